//! The Test Anything Protocol, versions 12 to 14. What is indented belongs to a test that has a line of
//! its own, and is not counted again.

use super::log::LogReader;
use super::tally::{Case, Reading};
use super::{Format, Weight};

/// Reads the lines of a log.
pub(super) struct Tap {
    reading: Reading,
    version: bool,
    plan: Option<u64>,
    /// The plan says that everything is skipped, and why.
    skipped_all: bool,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            reading: Reading::new(Format::Tap),
            version: false,
            plan: None,
            skipped_all: false,
        }
    }
}

impl LogReader for Tap {
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if line.starts_with("TAP version ") {
            self.version = true;
        } else if let Some(rest) = line.strip_prefix("Bail out!") {
            if self.version || self.plan.is_some() || self.reading.counts.total() > 0 {
                let text = format!("the tests bailed out:{rest}");
                self.reading.broken("bailed_out", text);
            }
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
        if !self.version && (self.plan.is_none() || (total == 0 && !self.skipped_all)) {
            return None;
        }
        match self.plan {
            None => {
                let text = "there is no plan: nobody knows how many tests there should be";
                self.reading.broken("truncated", text);
            }
            Some(plan) if plan > total => {
                let text = format!("{plan} tests were planned, and {total} were run: it broke off");
                self.reading.broken("truncated", text);
            }
            Some(plan) if plan < total => {
                let text = format!("{plan} tests were planned, and {total} were run");
                self.reading.notice("totals_differ", Weight::NoPass, text);
            }
            Some(_) => {}
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
        let is = |word: &str| {
            directive
                .get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        let case = match ok {
            // What was not run, and what is known to fail yet.
            true if is("skip") => Case::Skipped,
            false if is("todo") || is("skip") => Case::Skipped,
            true => Case::Passed,
            false => Case::Failed,
        };
        self.reading.case(case, name, None);
    }

    /// `1..5`, `1..0 # SKIP no network`. Several streams in one log have several plans.
    fn plan(&mut self, rest: &str) {
        let (count, directive) = directive(rest);
        let Ok(count) = count.trim().parse::<u64>() else {
            return;
        };
        self.plan = Some(self.plan.unwrap_or(0).saturating_add(count));
        if count == 0 && directive.to_ascii_lowercase().starts_with("skip") {
            self.skipped_all = true;
            self.reading.counts.add(Case::Skipped, 1);
            self.plan = self.plan.map(|plan| plan + 1);
        }
    }
}

/// What follows a word that stands alone.
fn word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

/// A description and the directive after its `#`, which a backslash takes its meaning from.
fn directive(text: &str) -> (&str, &str) {
    let found = text
        .match_indices('#')
        .find(|(at, _)| !text[..*at].ends_with('\\'));
    match found {
        Some((at, _)) => (text[..at].trim_end(), text[at + 1..].trim_start()),
        None => (text, ""),
    }
}
