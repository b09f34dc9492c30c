//! The Test Anything Protocol, versions 12 to 14. What is indented belongs to a test that has a line of
//! its own, and is not counted again.

use super::log::LogReader;
use super::tally::{Case, Reading};
use super::{Format, Weight};

/// Reads the lines of a log.
pub(super) struct Tap {
    reading: Reading,
    /// Streams that began with a version, and plans.
    versions: u64,
    plans: u64,
    /// Tests in all plans.
    planned: u64,
    /// A plan says that everything is skipped, and why.
    skipped_all: bool,
    /// `prove` says that the whole failed, or that a program's exit code is not 0.
    failed: bool,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::Tap),
            versions: 0,
            plans: 0,
            planned: 0,
            skipped_all: false,
            failed: false,
        }
    }
}

impl LogReader for Tap {
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if line.starts_with("TAP version ") {
            self.versions += 1;
        } else if let Some(rest) = line.strip_prefix("Bail out!") {
            if self.versions + self.plans + self.reading.counts.total() > 0 {
                let text = format!("the tests bailed out:{rest}");
                self.reading.broken("bailed_out", text);
            }
        } else if line == "Result: FAIL" || line.starts_with("Dubious, test returned ") {
            self.failed = true;
        } else if line == "ok" && self.plans > 0 && self.planned == self.reading.counts.total() {
            // Of `prove -v`, when a stream was as planned.
        } else if let Some(rest) = word(line, "not ok") {
            self.test(false, rest);
        } else if let Some(rest) = word(line, "ok") {
            self.test(true, rest);
        } else if let Some(rest) = line.strip_prefix("1..") {
            self.plan(rest);
        }
    }

    fn finish(mut self: Box<Self>) -> Option<Reading> {
        let total = self.reading.counts.total();
        // A line that begins with `ok` is in many logs, and so is `1..10`: both together are not.
        if self.versions == 0 && (self.plans == 0 || (total == 0 && !self.skipped_all)) {
            return None;
        }
        let planned = self.planned;
        if self.versions > self.plans {
            let text = "a stream has no plan: nobody knows how many tests there should be";
            self.reading.broken("truncated", text);
        } else if planned > total {
            let text = format!("{planned} tests were planned, and {total} were run: it broke off");
            self.reading.broken("truncated", text);
        } else if planned < total {
            let text = format!("{planned} tests were planned, and {total} were run");
            self.reading.notice("totals_differ", Weight::NoPass, text);
        }
        if self.failed && self.reading.counts.bad() == 0 {
            let text = "prove says that the tests failed, and no test is counted as failed";
            self.reading.notice("run_failed", Weight::Fails, text);
        }
        Some(self.reading)
    }
}

impl Tap {
    fn test(&mut self, ok: bool, rest: &str) {
        let rest = rest.trim_start();
        let number = rest.bytes().take_while(u8::is_ascii_digit).count();
        let rest = rest[number..].trim_start().trim_start_matches("- ");
        let (name, directive) = directive(rest);
        let case = match (ok, directive) {
            // What was not run, and what is known to fail yet.
            (_, Some(Directive::Skip)) | (false, Some(Directive::Todo)) => Case::Skipped,
            (true, _) => Case::Passed,
            (false, None) => Case::Failed,
        };
        self.reading.case(case, name, None);
    }

    /// `1..5`, `1..0 # SKIP no network`. Several streams in one log have several plans.
    fn plan(&mut self, rest: &str) {
        let count = rest.split('#').next().unwrap_or("");
        let Ok(mut count) = count.trim().parse::<u64>() else {
            return;
        };
        if count == 0 && directive(rest).1 == Some(Directive::Skip) {
            self.skipped_all = true;
            self.reading.counts.add(Case::Skipped, 1);
            count = 1;
        }
        self.plans += 1;
        self.planned = self.planned.saturating_add(count);
    }
}

/// What follows a word that stands alone.
fn word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Skip,
    Todo,
}

/// A description, and the directive after a `#` that stands between spaces. Other `#` are text.
fn directive(text: &str) -> (&str, Option<Directive>) {
    for (at, _) in text.match_indices('#') {
        let (before, after) = (&text[..at], &text[at + 1..]);
        let rest = after.trim_start();
        let end = rest.find(|one: char| !one.is_alphanumeric());
        let directive = match rest[..end.unwrap_or(rest.len())].to_lowercase().as_str() {
            "skip" | "skipped" | "skipping" => Directive::Skip,
            "todo" => Directive::Todo,
            _ => continue,
        };
        let is_apart = before.is_empty() || before.ends_with([' ', '\t']);
        if is_apart && rest.len() < after.len() {
            return (before.trim_end(), Some(directive));
        }
    }
    (text, None)
}
