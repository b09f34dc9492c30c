//! What Python's unittest prints, and what builds on it: `Ran 3 tests in 0.001s`, and how they ended.

use super::log::LogReader;
use super::tally::{Case, Reading, ms};
use super::{Format, Weight};

/// Reads the lines of a log.
pub(super) struct Unittest {
    reading: Reading,
    found: bool,
    /// Tests of a run of which the next line says how it ended.
    ran: Option<u64>,
    /// The line before was the rule above a failed test.
    ruled: bool,
}

impl Default for Unittest {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::Unittest),
            found: false,
            ran: None,
            ruled: false,
        }
    }
}

impl LogReader for Unittest {
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let ruled = std::mem::replace(&mut self.ruled, line.starts_with("======"));
        if line.is_empty() {
            return;
        }
        // Where something else follows, the line was another program's.
        let ran = self.ran.take();
        if let Some(ran) = ran
            && let Some(word) = ["OK", "PASSED", "FAILED", "NO TESTS RAN"]
                .into_iter()
                .find(|word| line == *word || line.starts_with(&format!("{word} (")))
        {
            self.end(ran, word, &line[word.len()..]);
        } else if let Some((count, seconds)) = began(line) {
            self.ran = Some(count);
            if let Some(ms) = seconds.parse().ok().and_then(ms) {
                let sum = self.reading.duration_ms.unwrap_or(0).saturating_add(ms);
                self.reading.duration_ms = Some(sum);
            }
        } else if ruled && let Some(name) = line.strip_prefix("FAIL: ") {
            self.reading.list(Case::Failed, name, None);
        } else if ruled && let Some(name) = line.strip_prefix("ERROR: ") {
            self.reading.list(Case::Error, name, None);
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        if self.ran.is_some() {
            self.found = true;
            let text = "tests were run, and nothing says how they ended";
            self.reading.broken("truncated", text);
        }
        self.found.then_some(self.reading)
    }
}

impl Unittest {
    /// ` (failures=1, errors=2, skipped=3)`. What broke outside of tests is in these and not in `ran`.
    fn end(&mut self, ran: u64, word: &str, details: &str) {
        self.found = true;
        let (mut others, mut bad) = (0_u64, 0_u64);
        for part in details.trim_matches([' ', '(', ')']).split(", ") {
            let Some((what, count)) = part.split_once('=') else {
                continue;
            };
            let case = match what {
                "failures" | "unexpected successes" | "unexpectedSuccesses" => Case::Failed,
                "errors" => Case::Error,
                "skipped" | "skips" | "expected failures" | "expectedFailures" => Case::Skipped,
                _ => continue,
            };
            let count = count.parse().unwrap_or(0);
            others = others.saturating_add(count);
            bad = bad.saturating_add(if case == Case::Skipped { 0 } else { count });
            self.reading.counts.add(case, count);
        }
        let passed = ran.saturating_sub(others);
        self.reading.counts.add(Case::Passed, passed);
        if word == "FAILED" && bad == 0 {
            let text = "unittest says FAILED and counts no failure";
            self.reading.notice("run_failed", Weight::Fails, text);
        }
    }
}

/// `Ran 3 tests in 0.001s`
fn began(line: &str) -> Option<(u64, &str)> {
    let (count, rest) = line.strip_prefix("Ran ")?.split_once(" test")?;
    let seconds = rest.strip_prefix('s').unwrap_or(rest);
    let seconds = seconds.strip_prefix(" in ")?.strip_suffix('s')?;
    let is_time = seconds
        .bytes()
        .all(|one| one.is_ascii_digit() || one == b'.');
    Some((count.parse().ok()?, seconds)).filter(|_| is_time)
}
