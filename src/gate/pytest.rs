//! What pytest prints on a terminal, also quietly (`-q`) and with pytest-sugar: the summary at the end.

use super::log::LogReader;
use super::tally::{Case, Counts, Reading, ms};
use super::{Format, Weight};

/// Reads the lines of a log.
pub(super) struct Pytest {
    reading: Reading,
    /// Sessions that began, and summaries that ended one.
    began: u64,
    ended: u64,
    /// Within the summary of pytest-sugar, which has a line for each count.
    sugar: bool,
}

impl Default for Pytest {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::Pytest),
            began: 0,
            ended: 0,
            sugar: false,
        }
    }
}

impl LogReader for Pytest {
    fn line(&mut self, line: &str) {
        if self.sugar && self.sugar_count(line) {
            return;
        }
        let text = line.trim_matches(['=', ' ', '\t']);
        if text.is_empty() {
            return;
        }
        if text == "test session starts" && line.contains('=') {
            self.began += 1;
        } else if let Some((counts, time)) = summary(text) {
            self.ended += 1;
            self.add(counts);
            self.took(time);
        } else if let Some(time) = text.strip_prefix("Results (") {
            if let Some(time) = time.strip_suffix("s):") {
                self.ended += 1;
                self.sugar = true;
                self.took(time);
            }
        } else if let Some(rest) = text.strip_prefix("FAILED ") {
            self.listed(Case::Failed, rest);
        } else if let Some(rest) = text.strip_prefix("ERROR ") {
            self.listed(Case::Error, rest);
        } else if text.starts_with("!!!") && text.ends_with("!!!") {
            // `!!! KeyboardInterrupt !!!`, and then a summary of what was run until then.
            let text = "pytest was stopped: not all tests were run";
            self.reading.notice("cancelled", Weight::NoPass, text);
        } else if line.starts_with("INTERNALERROR>") {
            self.began = self.began.max(1);
            self.reading
                .broken("internal_error", "pytest broke within itself");
        } else if self.began > 0 && self.reading.tool.is_none() {
            // `platform linux -- Python 3.12.1, pytest-8.0.0, pluggy-1.4.0`
            let version = text.strip_prefix("platform ").and_then(|rest| {
                rest.split(", ")
                    .find_map(|part| part.strip_prefix("pytest-"))
            });
            if let Some(version) = version {
                self.reading.tool(Some("pytest"), Some(version));
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        if self.began == 0 && self.ended == 0 {
            return None;
        }
        if self.began > self.ended {
            let text = "a session of pytest has no summary: it broke off";
            self.reading.broken("truncated", text);
        }
        // Names are listed when the summary comes, which a log may not have reached.
        let listed = self.reading.failures.len() as u64 + self.reading.more_failures;
        if listed > self.reading.counts.bad() {
            let text = "more tests are listed as failed than the summary counts";
            self.reading.notice("totals_differ", Weight::Fails, text);
        }
        Some(self.reading)
    }
}

impl Pytest {
    fn add(&mut self, counts: Counts) {
        for (case, count) in [
            (Case::Passed, counts.passed),
            (Case::Failed, counts.failed),
            (Case::Error, counts.errors),
            (Case::Skipped, counts.skipped),
        ] {
            self.reading.counts.add(case, count);
        }
    }

    fn took(&mut self, seconds: &str) {
        if let Some(ms) = seconds.parse().ok().and_then(ms) {
            let sum = self.reading.duration_ms.unwrap_or(0).saturating_add(ms);
            self.reading.duration_ms = Some(sum);
        }
    }

    /// `FAILED tests/a.py::test - assert 1 == 2`, of the short summary.
    fn listed(&mut self, case: Case, rest: &str) {
        let (name, message) = match rest.split_once(" - ") {
            Some((name, message)) => (name, Some(message)),
            None => (rest, None),
        };
        // A log has other lines that begin so, and pytest itself prints `ERROR    name:file.py:3 …` of a
        // program's log; a test is named by its file.
        if !name.starts_with(' ') && name.contains(".py") && !name.contains(": ") {
            self.reading.list(case, name, message);
        }
    }

    /// `       169 passed`; anything else ends the summary.
    fn sugar_count(&mut self, line: &str) -> bool {
        let mut counts = Counts::default();
        self.sugar = line.trim().is_empty()
            || (line.starts_with(' ') && count(line.trim(), &mut counts).is_some());
        self.add(counts);
        self.sugar
    }
}

/// `2 failed, 9 passed, 1 warning in 0.06s (0:00:01)`: the counts, and the seconds.
fn summary(text: &str) -> Option<(Counts, &str)> {
    let (counts, time) = text.rsplit_once(" in ")?;
    // Before version 5, `0.12 seconds`.
    let (seconds, rest) = time.split_once(" seconds").or(time.split_once('s'))?;
    let is_clock = |rest: &str| rest.is_empty() || (rest.starts_with(" (") && rest.ends_with(')'));
    if !seconds
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
        || seconds.is_empty()
        || !is_clock(rest)
    {
        return None;
    }
    let mut found = Counts::default();
    if counts != "no tests ran" {
        for part in counts.split(", ") {
            count(part, &mut found)?;
        }
    }
    Some((found, seconds))
}

/// `9 passed`. An expected failure counts as skipped, as pytest's own XML has it, and an unexpected
/// pass as passed: a strict one pytest itself counts as failed.
fn count(part: &str, counts: &mut Counts) -> Option<()> {
    let (count, what) = part.split_once(' ')?;
    let count = count.parse().ok()?;
    match what {
        "passed" | "xpassed" => counts.add(Case::Passed, count),
        "failed" => counts.add(Case::Failed, count),
        "error" | "errors" => counts.add(Case::Error, count),
        "skipped" | "xfailed" => counts.add(Case::Skipped, count),
        "deselected" | "warning" | "warnings" | "rerun" | "reruns" | "subtests passed" => {}
        "subtests failed" => counts.add(Case::Failed, count),
        _ => return None,
    }
    Some(())
}
