//! What the readers of all formats gather.

use serde::Serialize;

use super::{Format, lines};

/// Failed tests that are listed by name; more are counted.
const LISTED: usize = 200;
/// Characters of a name, and of a message.
const NAME_CHARS: usize = 500;
const MESSAGE_CHARS: usize = 2_000;
/// Notices that are kept; every further one is of a code that is among them, or of a broken report.
const NOTICES: usize = 50;

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// As it should.
    Passed,
    /// What it checks does not hold.
    Failed,
    /// It could not check it: it broke, timed out, or did not end.
    Error,
    /// It was not run, or its failure was expected.
    Skipped,
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// As they should.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Broke, timed out, or did not end.
    pub errors: u64,
    /// Were not run, or were expected to fail and did.
    pub skipped: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        [self.passed, self.failed, self.errors, self.skipped]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Those that speak against the candidate.
    pub fn bad(&self) -> u64 {
        self.failed.saturating_add(self.errors)
    }

    /// Counts so many more.
    pub fn add(&mut self, case: Case, count: u64) {
        let place = match case {
            Case::Passed => &mut self.passed,
            Case::Failed => &mut self.failed,
            Case::Error => &mut self.errors,
            Case::Skipped => &mut self.skipped,
        };
        *place = place.saturating_add(count);
    }
}

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its name.
    pub name: String,
    /// `failed` or `error`.
    pub kind: &'static str,
    /// What it said, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a notice does to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It is said, and changes nothing.
    Told,
    /// What would be a pass is an error.
    NoPass,
    /// It is a failure.
    Fails,
    /// Nothing in the report can be relied on: an error.
    Broken,
}

/// Something about a report that whoever reads the verdict has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The word in the frame's body.
    pub code: &'static str,
    /// A sentence.
    pub text: String,
    /// What it does to the verdict.
    pub weight: Weight,
}

/// The tool that a report names as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
}

/// Totals that a report claims for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// Tests in all.
    pub total: Option<u64>,
    /// Failures and errors.
    pub bad: u64,
}

/// What a report says.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The format, or the formats of which the report is made up.
    pub formats: Vec<Format>,
    /// How many tests ended how.
    pub counts: Counts,
    /// The first of those that failed.
    pub failures: Vec<Failure>,
    /// How many more failed that are not listed.
    pub more_failures: u64,
    /// What has to be known about the report.
    pub notices: Vec<Notice>,
    /// How long it took, where the report says so.
    pub duration_ms: Option<u64>,
    /// The tool that wrote it, where the report says so.
    pub tool: Option<Tool>,
    /// Whether a report without tests is a good one: a scan without findings is.
    pub(super) empty_is_good: bool,
}

impl Reading {
    /// Before anything was read.
    pub(super) fn new(format: Format) -> Self {
        Self {
            formats: vec![format],
            counts: Counts::default(),
            failures: Vec::new(),
            more_failures: 0,
            notices: Vec::new(),
            duration_ms: None,
            tool: None,
            empty_is_good: false,
        }
    }

    /// A log of which only an exit code speaks.
    pub fn plain() -> Self {
        Self::new(Format::Plain)
    }

    /// A report that cannot be read at all, and why: nothing that is said beside it makes it a pass.
    pub fn unreadable(code: &'static str, text: impl Into<String>) -> Self {
        let mut reading = Self::new(Format::Plain);
        reading.formats.clear();
        reading.broken(code, text);
        reading
    }

    /// The format's name, or the names joined with `+`; nothing where it could not be read.
    pub fn format(&self) -> Option<String> {
        let names: Vec<_> = self.formats.iter().map(|format| format.as_str()).collect();
        (!names.is_empty()).then(|| names.join("+"))
    }

    /// Whether there is a notice of this code.
    pub fn has(&self, code: &str) -> bool {
        self.notices.iter().any(|notice| notice.code == code)
    }

    /// Whether it is a log of which only the exit code speaks, and nothing speaks against it.
    pub fn is_plain(&self) -> bool {
        let is_told = |notice: &Notice| notice.weight == Weight::Told;
        self.formats == [Format::Plain] && self.notices.iter().all(is_told)
    }

    /// Something beside the report because of which it can be no pass.
    pub fn doubt(&mut self, code: &'static str, text: impl Into<String>) {
        self.notice(code, Weight::NoPass, text);
    }

    /// Whether it is a whole report of tests that has none.
    fn is_empty(&self) -> bool {
        let is_broken = |notice: &Notice| notice.weight == Weight::Broken;
        let says = self.is_plain() || self.empty_is_good || self.notices.iter().any(is_broken);
        self.counts.total() == 0 && !says
    }

    /// Counts a test, and lists it if it failed.
    pub(super) fn case(&mut self, case: Case, name: &str, message: Option<&str>) {
        self.counts.add(case, 1);
        if matches!(case, Case::Failed | Case::Error) {
            self.list(case, name, message);
        }
    }

    /// Lists a failed test that is counted elsewhere.
    pub(super) fn list(&mut self, case: Case, name: &str, message: Option<&str>) {
        if self.failures.len() >= LISTED {
            self.more_failures += 1;
            return;
        }
        let message = message.map(|text| clip(text.trim(), MESSAGE_CHARS));
        self.failures.push(Failure {
            name: clip(name.trim(), NAME_CHARS),
            kind: if case == Case::Error {
                "error"
            } else {
                "failed"
            },
            message: message.filter(|text| !text.is_empty()),
        });
    }

    /// Says something about the report; the same code is said once, and as gravely as it ever was.
    pub(super) fn notice(&mut self, code: &'static str, weight: Weight, text: impl Into<String>) {
        let known = self
            .notices
            .iter()
            .any(|notice| notice.code == code && notice.weight == weight);
        if known || (self.notices.len() >= NOTICES && weight != Weight::Broken) {
            return;
        }
        self.notices.push(Notice {
            code,
            text: clip(&text.into(), NAME_CHARS),
            weight,
        });
    }

    /// The report is cut off or damaged.
    pub(super) fn broken(&mut self, code: &'static str, text: impl Into<String>) {
        self.notice(code, Weight::Broken, text);
    }

    /// The tool, from a name and a version of which either may be missing.
    pub(super) fn tool(&mut self, name: Option<&str>, version: Option<&str>) {
        if let Some(name) = name.filter(|name| !name.trim().is_empty()) {
            self.tool.get_or_insert_with(|| Tool {
                name: clip(name.trim(), 100),
                version: version
                    .map(|text| clip(text.trim(), 100))
                    .filter(|text| !text.is_empty()),
            });
        }
    }

    /// Compares the counts with what the report claims. `also` are totals that count otherwise and
    /// are right too.
    pub(super) fn compare(&mut self, claims: Claims, also: &[u64]) {
        if self
            .notices
            .iter()
            .any(|notice| notice.weight == Weight::Broken)
        {
            return;
        }
        let (total, bad) = (self.counts.total(), self.counts.bad());
        if let Some(claimed) = claims.total
            && claimed != total
            && !also.contains(&claimed)
        {
            self.notice(
                "totals_differ",
                Weight::NoPass,
                format!("the report claims {claimed} tests, and {total} are in it"),
            );
        }
        if claims.bad > bad {
            self.notice(
                "totals_differ",
                Weight::Fails,
                format!(
                    "the report claims {} failures and errors, and {bad} are in it",
                    claims.bad
                ),
            );
        }
    }

    /// Adds another report of the same gate.
    pub fn merge(&mut self, mut other: Self) {
        let one_is_empty = self.is_empty() != other.is_empty();
        // A plain log says nothing, also not that there is no test.
        if self.is_plain() {
            std::mem::swap(self, &mut other);
        }
        let empty_is_good = other.is_plain() || other.empty_is_good;
        for format in other.formats {
            if !self.formats.contains(&format) {
                self.formats.push(format);
            }
        }
        let theirs = other.counts;
        for (case, count) in [
            (Case::Passed, theirs.passed),
            (Case::Failed, theirs.failed),
            (Case::Error, theirs.errors),
            (Case::Skipped, theirs.skipped),
        ] {
            self.counts.add(case, count);
        }
        for failure in other.failures {
            if self.failures.len() < LISTED {
                self.failures.push(failure);
            } else {
                self.more_failures += 1;
            }
        }
        self.more_failures = self.more_failures.saturating_add(other.more_failures);
        for notice in other.notices {
            self.notice(notice.code, notice.weight, notice.text);
        }
        self.duration_ms = match (self.duration_ms, other.duration_ms) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
            (one, two) => one.or(two),
        };
        self.tool = self.tool.take().or(other.tool);
        if one_is_empty {
            let text = "one of several reports has no test in it";
            self.notice("empty_report", Weight::Told, text);
        }
        self.empty_is_good &= empty_is_good;
    }
}

/// At most so many characters, without escapes of terminals and without what strict JSON refuses.
pub(super) fn clip(text: &str, chars: usize) -> String {
    let text = lines::visible(text);
    let clean = text.chars().map(|one| match one {
        '\n' | '\t' => one,
        '\r' => '\n',
        one if one.is_control() => ' ',
        one if (0xfdd0..=0xfdef).contains(&u32::from(one)) || u32::from(one) & 0xfffe == 0xfffe => {
            '\u{fffd}'
        }
        one => one,
    });
    let mut clipped: String = clean.clone().take(chars).collect();
    if clean.count() > chars {
        clipped.push('…');
    }
    clipped
}

/// Seconds, as reports write them, in milliseconds. What is negative or no number is `None`.
pub(super) fn seconds_ms(text: &str) -> Option<u64> {
    let seconds: f64 = text.trim().replace(',', "").parse().ok()?;
    ms(seconds)
}

/// Seconds in milliseconds.
pub(super) fn ms(seconds: f64) -> Option<u64> {
    const MOST: f64 = 9.0e15;
    let ms = (seconds * 1_000.0).round();
    // Within 2^53, which the cast keeps.
    (0.0..=MOST).contains(&ms).then_some(ms as u64)
}

/// Milliseconds from one time to another, as reports spell them.
pub(super) fn between_ms(first: &str, last: &str) -> Option<u64> {
    let at = |text: &str| text.trim().parse::<jiff::Timestamp>().ok();
    let span = at(last)?.as_millisecond() - at(first)?.as_millisecond();
    u64::try_from(span).ok()
}

/// A test whose element is open, in reports that have its message in an element within.
pub(super) struct OpenCase {
    depth: usize,
    name: String,
    case: Case,
    message: Option<String>,
}

impl OpenCase {
    /// A test whose element is at this depth.
    pub fn new(depth: usize, name: &str, case: Case) -> Self {
        Self {
            depth,
            name: name.to_owned(),
            case,
            message: None,
        }
    }

    /// An element at a depth ended: the first `message` within a test is its own, and at the test's own end
    /// it is counted.
    pub fn end(open: &mut Option<Self>, depth: usize, name: &str, text: String, to: &mut Reading) {
        match open {
            Some(test) if name == "message" && depth > test.depth => {
                test.message.get_or_insert(text);
            }
            Some(test) if depth == test.depth => {
                to.case(test.case, &test.name, test.message.as_deref());
                *open = None;
            }
            _ => {}
        }
    }
}
