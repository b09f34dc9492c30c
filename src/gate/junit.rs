//! JUnit's XML, in all the spellings that tools have made of it.

use std::io::{self, Read};

use super::Format;
use super::tally::{Case, Claims, Reading, seconds_ms};
use super::xml::{Element, Piece, Xml, expect_root};

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
    /// Depth of the outermost element that claims totals; those within it are part of them.
    claimed: Option<usize>,
    /// Depth of the outermost element with a time.
    timed: Option<usize>,
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
                    case: status(element),
                    message: None,
                });
            }
            "failure" | "error" | "skipped" => self.sign(element, reading),
            _ => {}
        }
    }

    /// Totals and times are taken from the outermost suite that has them.
    fn suite(&mut self, element: &Element, reading: &mut Reading) {
        let outermost = |place: &mut Option<usize>| {
            let within = place.is_some_and(|depth| element.depth > depth);
            if !within {
                *place = Some(element.depth);
            }
            !within
        };
        if element.get("tests").is_some() && outermost(&mut self.claimed) {
            let total = element.count("tests", reading);
            let mut bad = 0_u64;
            for member in ["failures", "errors"] {
                bad = bad.saturating_add(element.count(member, reading).unwrap_or(0));
            }
            self.claims.bad = self.claims.bad.saturating_add(bad);
            if let Some(total) = total {
                let sum = self.claims.total.unwrap_or(0).saturating_add(total);
                self.claims.total = Some(sum);
            }
        }
        if let Some(ms) = element.get("time").and_then(seconds_ms)
            && outermost(&mut self.timed)
        {
            reading.duration_ms = Some(reading.duration_ms.unwrap_or(0).saturating_add(ms));
        }
        if self.claimed.is_none_or(|depth| element.depth <= depth) {
            let version = element.get("version");
            reading.tool(element.get("tool"), version);
        }
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
        let Some(open) = &mut self.case else { return };
        if name == "testcase" && depth == open.depth {
            let message = open.message.as_deref();
            reading.case(open.case, &open.name, message);
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

/// What an attribute says of a test that has no element for it.
fn status(element: &Element) -> Case {
    let result = element.get("result");
    let word = result.or(element.get("status")).unwrap_or("");
    match word.to_ascii_lowercase().as_str() {
        "failed" | "failure" | "fail" => Case::Failed,
        "error" | "errored" | "broken" => Case::Error,
        "skipped" | "disabled" | "notrun" | "suppressed" | "ignored" | "pending" => Case::Skipped,
        _ => Case::Passed,
    }
}

fn name(element: &Element) -> String {
    let name = element.get("name").unwrap_or("");
    match element.get("classname").filter(|class| !class.is_empty()) {
        Some(class) if class != name => format!("{class} {name}"),
        _ => name.to_owned(),
    }
}
