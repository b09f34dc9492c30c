//! JUnit's XML, in all the spellings that tools have made of it.

use std::io::{self, Read};

use super::tally::{Case, Claims, Reading, seconds_ms};
use super::xml::{Element, Piece, Xml, expect_root};
use super::{Format, Weight};

/// A test case being read.
struct Open {
    depth: usize,
    name: String,
    case: Case,
    message: Option<String>,
}

#[derive(Default)]
struct Junit {
    case: Option<Open>,
    claims: Claims,
    /// Tests in no suite that claims a total.
    unclaimed: u64,
    total: Outermost,
    bad: Outermost,
    time: Outermost,
}

/// Depth of the open element that claims something; what those within it claim is part of it.
#[derive(Default)]
struct Outermost(Option<usize>);

impl Outermost {
    fn is(&mut self, depth: usize) -> bool {
        *self.0.get_or_insert(depth) == depth
    }

    fn end(&mut self, depth: usize) {
        self.0 = self.0.filter(|own| *own != depth);
    }
}

/// Reads a report.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(mut xml: Xml<impl Read>) -> io::Result<Reading> {
    let mut reading = Reading::new(Format::Junit);
    let mut junit = Junit::default();
    let mut depth = 0;
    while let Some(piece) = xml.next(&mut reading)? {
        match piece {
            Piece::Start(element) => {
                if !expect_root(&element, &["testsuites", "testsuite"], &mut reading) {
                    return Ok(reading);
                }
                depth = element.depth + 1;
                junit.start(&element, &mut reading);
            }
            Piece::End(name, text) => {
                depth -= 1;
                junit.end(&name, depth, &text, &mut reading);
            }
        }
    }
    let counts = reading.counts;
    // Some tools leave skipped tests out of the total, others the suites that did not run at all.
    let run = counts.total() - counts.skipped;
    let without_errors = counts.total() - counts.errors;
    let total = junit.claims.total;
    junit.claims.total = total.map(|total| total.saturating_add(junit.unclaimed));
    reading.compare(junit.claims, &[run, without_errors]);
    Ok(reading)
}

impl Junit {
    fn start(&mut self, element: &Element, reading: &mut Reading) {
        match element.name.as_str() {
            "testsuites" | "testsuite" if self.case.is_none() => self.suite(element, reading),
            "testcase" if self.case.is_none() => {
                self.case = Some(Open {
                    depth: element.depth,
                    name: name(element),
                    case: status(element, reading),
                    message: None,
                });
            }
            "failure" | "error" | "skipped" => self.sign(element, reading),
            _ => {}
        }
    }

    /// Totals and times are taken from the outermost suite that has them.
    fn suite(&mut self, element: &Element, reading: &mut Reading) {
        let depth = element.depth;
        if element.get("tests").is_some()
            && self.total.is(depth)
            && let Some(total) = element.count("tests", reading)
        {
            let sum = self.claims.total.unwrap_or(0).saturating_add(total);
            self.claims.total = Some(sum);
        }
        let bad = ["failures", "errors"];
        if bad.iter().any(|name| element.get(name).is_some()) && self.bad.is(depth) {
            for name in bad {
                let count = element.count(name, reading).unwrap_or(0);
                self.claims.bad = self.claims.bad.saturating_add(count);
            }
        }
        if let Some(ms) = element.get("time").and_then(seconds_ms)
            && self.time.is(depth)
        {
            reading.duration_ms = Some(reading.duration_ms.unwrap_or(0).saturating_add(ms));
        }
        reading.tool(element.get("tool"), element.get("version"));
    }

    /// A failure, an error or a mark of skipping: of the open test, or of a suite as a whole.
    fn sign(&mut self, element: &Element, reading: &mut Reading) {
        let case = match element.name.as_str() {
            "failure" => Case::Failed,
            "error" => Case::Error,
            _ => Case::Skipped,
        };
        let message = element
            .get("message")
            .filter(|text| !text.trim().is_empty());
        match &mut self.case {
            Some(open) if element.depth == open.depth + 1 && weight(case) >= weight(open.case) => {
                open.case = case;
                open.message = message.map(str::to_owned);
            }
            None if element.parent.starts_with("testsuite") && case != Case::Skipped => {
                reading.case(case, "the suite itself", message);
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str, depth: usize, text: &str, reading: &mut Reading) {
        let Some(open) = &mut self.case else {
            for place in [&mut self.total, &mut self.bad, &mut self.time] {
                place.end(depth);
            }
            return;
        };
        if name == "testcase" && depth == open.depth {
            let message = open.message.as_deref();
            reading.case(open.case, &open.name, message);
            self.unclaimed += u64::from(self.total.0.is_none());
            self.case = None;
        } else if depth == open.depth + 1
            && matches!(name, "failure" | "error")
            && open.message.is_none()
            && !text.trim().is_empty()
        {
            open.message = Some(text.trim().to_owned());
        }
    }
}

/// What is worse wins where a test has several marks.
fn weight(case: Case) -> u8 {
    match case {
        Case::Passed => 0,
        Case::Skipped => 1,
        Case::Failed => 2,
        Case::Error => 3,
    }
}

/// What its attributes say of a test, which may have no element for it: the worse of the two.
fn status(element: &Element, reading: &mut Reading) -> Case {
    let words = ["result", "status"]
        .into_iter()
        .filter_map(|name| element.get(name));
    let cases = words.map(|word| match word.trim().to_ascii_lowercase().as_str() {
        "" | "passed" | "pass" | "success" | "successful" | "succeeded" | "ok" | "run"
        | "completed" | "complete" | "executed" | "finished" | "done" | "fixed" | "expected"
        | "xpassed" | "flaky" | "warning" => Case::Passed,
        "failed" | "failure" | "fail" | "unexpected" | "regression" => Case::Failed,
        "error" | "errored" | "broken" | "timeout" | "timedout" | "aborted" | "crashed"
        | "interrupted" | "cancelled" | "canceled" => Case::Error,
        "skipped" | "skip" | "disabled" | "notrun" | "not_run" | "suppressed" | "ignored"
        | "pending" | "todo" | "inconclusive" | "notexecuted" | "xfailed" => Case::Skipped,
        _ => {
            let text = format!("the status {word:?} is none that is known: taken as an error");
            reading.notice("unknown_outcome", Weight::Told, text);
            Case::Error
        }
    });
    cases
        .max_by_key(|case| weight(*case))
        .unwrap_or(Case::Passed)
}

fn name(element: &Element) -> String {
    let name = element.get("name").unwrap_or("");
    match element.get("classname").filter(|class| !class.is_empty()) {
        Some(class) if class != name => format!("{class} {name}"),
        _ => name.to_owned(),
    }
}
