//! What `go test` prints: events with `-json`, lines with `-v`. Subtests count, and so do the tests
//! that they are in.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;

use super::log::LogReader;
use super::tally::{Case, Reading, between_ms};
use super::{Format, Weight};

/// Tests and packages that are kept in mind because they have not ended.
const OPEN: usize = 50_000;
/// Bytes of a test's output that are kept while it runs.
const OUTPUT: usize = 4 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow, default)]
    package: Cow<'a, str>,
    #[serde(borrow, default)]
    test: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    output: Option<Cow<'a, str>>,
}

/// Reads the events of `go test -json`; lines between them that are none do not count.
pub(super) struct GoJson {
    reading: Reading,
    events: u64,
    /// Tests that began and have not ended, with the beginning of their output.
    tests: HashMap<(String, String), String>,
    /// Packages that have not ended, and how many of their tests failed.
    packages: HashMap<String, u64>,
    builds: u64,
    failed_packages: u64,
    forgotten: u64,
    times: (Option<String>, Option<String>),
}

impl Default for GoJson {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::GoJson),
            events: 0,
            tests: HashMap::new(),
            packages: HashMap::new(),
            builds: 0,
            failed_packages: 0,
            forgotten: 0,
            times: (None, None),
        }
    }
}

impl LogReader for GoJson {
    fn line(&mut self, line: &str) {
        if !line.starts_with('{') {
            return;
        }
        if let Ok(event) = serde_json::from_str::<Event<'_>>(line) {
            self.event(&event);
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        if self.events == 0 {
            return None;
        }
        // Builds that failed are told by the packages that need them; where none is named, alone.
        if self.builds > 0 && self.failed_packages == 0 {
            self.reading.counts.add(Case::Error, self.builds);
            self.reading.list(Case::Error, "build", None);
        }
        let open = self.tests.len() as u64 + self.forgotten;
        if !self.packages.is_empty() || open > 0 {
            let text = format!(
                "{} packages and {open} tests began and never ended",
                self.packages.len()
            );
            self.reading.broken("truncated", text);
        }
        if let (Some(first), Some(last)) = &self.times {
            self.reading.duration_ms = between_ms(first, last);
        }
        Some(self.reading)
    }
}

impl GoJson {
    fn event(&mut self, event: &Event<'_>) {
        let action = event.action.as_ref();
        match action {
            "start" | "run" | "pause" | "cont" | "pass" | "bench" | "fail" | "output" | "skip"
            | "attr" | "artifacts" => {}
            "build-output" | "build-fail" => {
                self.events += 1;
                self.builds += u64::from(action == "build-fail");
                return;
            }
            _ => return,
        }
        self.events += 1;
        if let Some(time) = &event.time {
            self.times.0.get_or_insert_with(|| time.to_string());
            self.times.1 = Some(time.to_string());
        }
        let ended = match action {
            "pass" | "bench" => Some(Case::Passed),
            "fail" => Some(Case::Failed),
            "skip" => Some(Case::Skipped),
            _ => None,
        };
        match (&event.test, ended) {
            (Some(test), Some(case)) => self.end_test(&event.package, test, case),
            (Some(test), None) => self.go_on(event, test),
            (None, Some(case)) => self.end_package(&event.package, case),
            (None, None) => {
                self.open_package(&event.package);
            }
        }
    }

    fn open_package(&mut self, package: &str) -> Option<&mut u64> {
        if !self.packages.contains_key(package) && self.packages.len() < OPEN {
            self.packages.insert(package.to_owned(), 0);
        }
        self.packages.get_mut(package)
    }

    fn go_on(&mut self, event: &Event<'_>, test: &str) {
        self.open_package(&event.package);
        let key = (event.package.to_string(), test.to_owned());
        if event.action == "run" && !self.tests.contains_key(&key) {
            if self.tests.len() >= OPEN {
                self.forgotten += 1;
                return;
            }
            self.tests.insert(key, String::new());
        } else if let (Some(kept), Some(output)) = (self.tests.get_mut(&key), &event.output)
            && !output.trim_start().starts_with("=== ")
            && kept.len() < OUTPUT
        {
            kept.push_str(&output[..output.floor_char_boundary(OUTPUT)]);
        }
    }

    fn end_test(&mut self, package: &str, test: &str, case: Case) {
        let key = (package.to_owned(), test.to_owned());
        let output = self.tests.remove(&key);
        if output.is_none() {
            self.forgotten = self.forgotten.saturating_sub(1);
        }
        if case == Case::Failed
            && let Some(failed) = self.open_package(package)
        {
            *failed += 1;
        }
        self.reading
            .case(case, &format!("{package} {test}"), output.as_deref());
    }

    /// With its package, every test of it has ended: one that did not say how was broken off by a
    /// panic, a time limit or an exit, or its last word was lost.
    fn end_package(&mut self, package: &str, case: Case) {
        let mut failed = self.packages.remove(package).unwrap_or(0);
        let open: BTreeSet<_> = self
            .tests
            .keys()
            .filter(|(of, _)| of == package)
            .cloned()
            .collect();
        for key in open {
            let output = self.tests.remove(&key);
            let name = format!("{package} {}", key.1);
            failed += 1;
            self.reading.case(Case::Error, &name, output.as_deref());
        }
        if case == Case::Failed {
            self.failed_packages += 1;
            if failed == 0 {
                self.reading.case(
                    Case::Error,
                    package,
                    Some("the package failed, and no test of it"),
                );
            }
        }
    }
}

/// Reads the lines of `go test -v`.
pub(super) struct GoTest {
    reading: Reading,
    found: bool,
    /// Tests of the package being run that began, ended, and failed.
    began: u64,
    ended: u64,
    failed: u64,
    /// The test that began last.
    latest: String,
}

impl Default for GoTest {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::GoTest),
            found: false,
            began: 0,
            ended: 0,
            failed: 0,
            latest: String::new(),
        }
    }
}

impl LogReader for GoTest {
    fn line(&mut self, line: &str) {
        // An event of `-json`, which quotes such lines.
        if line.starts_with('{') && line.ends_with('}') {
            return;
        }
        if let Some((_, name)) = line.split_once("=== RUN   ") {
            self.began += 1;
            self.latest = name.trim_end().to_owned();
        } else if let Some(rest) = line.trim_start().strip_prefix("--- ") {
            self.test(rest);
        } else if let Some((_, rest)) = line.rsplit_once("--- ") {
            // After what the test printed without an end of the line.
            if ended(rest).is_some_and(|(_, name)| name == self.latest) {
                self.test(rest);
            }
        } else if let Some(package) = failed_package(line) {
            if self.failed == 0 && self.began <= self.ended {
                let message = "the package failed, and no test of it";
                self.reading.case(Case::Error, package, Some(message));
            }
            self.end_package(true);
        } else if line.starts_with("ok  \t") && (self.found || self.began > 0) {
            self.end_package(false);
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        if !self.found && self.began == 0 {
            return None;
        }
        if self.began > 0 || self.ended > 0 {
            let text = "the last package never said how it ended";
            self.reading.broken("truncated", text);
        }
        Some(self.reading)
    }
}

impl GoTest {
    fn test(&mut self, rest: &str) {
        if let Some((case, name)) = ended(rest) {
            self.found = true;
            self.ended += 1;
            self.failed += u64::from(case == Case::Failed);
            self.reading.case(case, name, None);
        }
    }

    /// Tests that began and did not end were broken off.
    fn end_package(&mut self, failed: bool) {
        self.found = true;
        let open = self.began.saturating_sub(self.ended);
        if open > 0 {
            self.reading.counts.add(Case::Error, open);
            let text = format!("{open} tests began and never ended");
            let weight = if failed { Weight::Told } else { Weight::Fails };
            self.reading.notice("unended", weight, text);
        }
        (self.began, self.ended, self.failed) = (0, 0, 0);
    }
}

/// `PASS: TestName (0.00s)`
fn ended(rest: &str) -> Option<(Case, &str)> {
    let (word, rest) = rest.split_once(": ")?;
    let case = match word {
        "PASS" => Case::Passed,
        "FAIL" => Case::Failed,
        "SKIP" => Case::Skipped,
        _ => return None,
    };
    let (name, time) = rest.rsplit_once(" (")?;
    time.ends_with("s)").then_some((case, name))
}

/// The package of `FAIL\tpackage\t0.01s` and `FAIL\tpackage [build failed]`, with or without `-v`.
fn failed_package(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("FAIL\t")?;
    let (package, time) = rest.split_once('\t').unwrap_or((rest, ""));
    let is_timed = time.starts_with(|one: char| one.is_ascii_digit());
    (is_timed || rest.ends_with("failed]")).then_some(package)
}
