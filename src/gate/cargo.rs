//! What `cargo test` and `cargo nextest` print: a summary for each binary, which are added up.

use super::log::LogReader;
use super::tally::{Case, Reading, ms};
use super::{Format, Weight};

/// Reads the lines of a log.
pub(super) struct Cargo {
    reading: Reading,
    found: bool,
    /// Tests that the binary being run has announced, until its summary comes.
    announced: Option<u64>,
    /// Within a run of nextest, which shows what a failed test printed: a summary of one test among it.
    nextest: bool,
    /// Cargo says that tests failed; those without libtest's harness say so in no other way.
    failed: bool,
}

impl Default for Cargo {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::Cargo),
            found: false,
            announced: None,
            nextest: false,
            failed: false,
        }
    }
}

impl LogReader for Cargo {
    fn line(&mut self, line: &str) {
        let line = line.trim();
        if starting(line) {
            self.end_binary();
            self.nextest = true;
        } else if let Some(rest) = line.strip_prefix("Summary [") {
            self.nextest(rest);
        } else if line.starts_with("error: could not compile `") {
            self.found = true;
            self.reading
                .broken("did_not_compile", "the tests did not compile");
        } else if FAILED.iter().any(|words| line.starts_with(words)) {
            self.failed = true;
        } else if self.nextest {
            // They are shown once more after the summary.
            if let Some(name) = nextest_failure(line) {
                self.reading.list(Case::Failed, name, None);
            }
        } else if let Some(count) = running(line) {
            self.end_binary();
            self.announced = Some(count);
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.summary(rest);
        } else if let Some(test) = line.strip_prefix("test ") {
            if self.announced.is_some()
                && let Some(name) = test.strip_suffix(" ... FAILED")
            {
                self.reading.list(Case::Failed, name, None);
            }
        } else if line.starts_with("error: no tests to run") {
            self.found = true;
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        self.end_binary();
        if self.nextest {
            self.found = true;
            let text = "a run of nextest has no summary: it broke off";
            self.reading.broken("truncated", text);
        }
        if self.failed && self.reading.counts.bad() == 0 {
            self.found = true;
            let text = "cargo says that tests failed, and no test is counted as failed";
            self.reading.notice("run_failed", Weight::Fails, text);
        }
        self.found.then_some(self.reading)
    }
}

impl Cargo {
    /// A binary that announced tests and never summed them up has broken off.
    fn end_binary(&mut self) {
        if let Some(count) = self.announced.take() {
            self.found = true;
            let text = format!("a binary began {count} tests and never said how they ended");
            self.reading.broken("truncated", text);
        }
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`
    fn summary(&mut self, rest: &str) {
        let Some((word, counts)) = rest.split_once(". ") else {
            return;
        };
        let before = self.reading.counts.total();
        let (mut known, mut bad) = (false, false);
        for part in counts.split(';') {
            let part = part.trim();
            if let Some(time) = part.strip_prefix("finished in ") {
                self.took(time);
                continue;
            }
            let Some((count, what)) = counted(part) else {
                continue;
            };
            let case = match what {
                "passed" | "measured" => Case::Passed,
                "failed" => Case::Failed,
                "ignored" => Case::Skipped,
                _ => continue,
            };
            known |= what == "passed";
            bad |= what == "failed" && count > 0;
            self.reading.counts.add(case, count);
        }
        if !known {
            return;
        }
        self.found = true;
        if word != "ok" && !bad {
            let text = "a binary says FAILED and counts no failure";
            self.reading.notice("run_failed", Weight::Fails, text);
        }
        let total = self.reading.counts.total() - before;
        if let Some(announced) = self.announced.take()
            && announced != total
        {
            let text = format!("a binary announced {announced} tests and counts {total}");
            self.reading.notice("totals_differ", Weight::NoPass, text);
        }
    }

    /// `   0.05s] 3 tests run: 2 passed (1 slow), 1 failed, 1 timed out, 4 skipped`
    fn nextest(&mut self, rest: &str) {
        let Some((time, rest)) = rest.split_once(']') else {
            return;
        };
        let Some((run, counts)) = rest.split_once(" run: ") else {
            return;
        };
        let Some((run, _)) = run.trim().split_once(" test") else {
            return;
        };
        let (ran, planned) = run.split_once('/').unwrap_or((run, run));
        let (Ok(ran), Ok(planned)) = (ran.parse::<u64>(), planned.parse::<u64>()) else {
            return;
        };
        self.found = true;
        self.nextest = false;
        self.took(time.trim());
        let mut summed = 0_u64;
        for part in without_asides(counts).split(',') {
            let Some((count, what)) = counted(part.trim()) else {
                continue;
            };
            let case = match what {
                "passed" => Case::Passed,
                "failed" => Case::Failed,
                "skipped" => Case::Skipped,
                "timed out" | "exec failed" => Case::Error,
                _ => continue,
            };
            summed = summed.saturating_add(if case == Case::Skipped { 0 } else { count });
            self.reading.counts.add(case, count);
        }
        if ran != planned {
            let text = format!("{ran} of {planned} tests were run");
            self.reading.notice("cancelled", Weight::NoPass, text);
        }
        if summed != ran {
            let text = format!("the summary says {ran} tests and counts {summed}");
            self.reading.notice("totals_differ", Weight::NoPass, text);
        }
    }

    fn took(&mut self, time: &str) {
        let seconds = time.trim_end_matches('s').trim().parse().ok().and_then(ms);
        if let Some(ms) = seconds {
            let sum = self.reading.duration_ms.unwrap_or(0).saturating_add(ms);
            self.reading.duration_ms = Some(sum);
        }
    }
}

/// What cargo and nextest say at the end of a run with failures.
const FAILED: [&str; 4] = [
    "error: test failed, to rerun",
    "error: doctest failed, to rerun",
    "error: bench failed, to rerun",
    "error: test run failed",
];

/// `Starting 3 tests across 2 binaries`, as nextest says.
fn starting(line: &str) -> bool {
    let rest = line.strip_prefix("Starting ").and_then(counted);
    rest.is_some_and(|(_, what)| what.starts_with("test") && what.contains(" across "))
}

/// `running 3 tests`
fn running(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("running ")?;
    let count = rest.strip_suffix(" tests").or(rest.strip_suffix(" test"))?;
    count.parse().ok()
}

/// `3 passed`
fn counted(part: &str) -> Option<(u64, &str)> {
    let (count, what) = part.split_once(' ')?;
    Some((count.parse().ok()?, what.trim()))
}

/// `2 passed (1 slow, 1 flaky), 1 failed` without what is in brackets.
fn without_asides(text: &str) -> String {
    let mut within = 0_u32;
    text.chars()
        .filter(|one| {
            within += u32::from(*one == '(');
            let outside = within == 0;
            within = within.saturating_sub(u32::from(*one == ')'));
            outside
        })
        .collect()
}

/// `FAIL [   0.005s] (2/9) crate::bin test::name`, as nextest says when a test ends.
fn nextest_failure(line: &str) -> Option<&str> {
    ["FAIL [", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["]
        .into_iter()
        .find_map(|word| line.strip_prefix(word))
        .and_then(|rest| rest.split_once("s] "))
        .map(|(_, name)| match name.split_once(") ") {
            Some((count, name)) if count.starts_with('(') => name,
            _ => name,
        })
}
