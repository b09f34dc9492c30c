//! NUnit's XML: `test-run` of version 3, `test-results` of version 2.

use std::io::{self, Read};

use super::tally::{Case, Claims, OpenCase, Reading, seconds_ms};
use super::xml::{Element, Piece, Xml, expect_root};
use super::{Format, Weight};

/// Reads a report.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(mut xml: Xml<impl Read>) -> io::Result<Reading> {
    let mut reading = Reading::new(Format::Nunit);
    let mut claims = Claims::default();
    let (mut not_run, mut failed) = (0, false);
    let mut open: Option<OpenCase> = None;
    let mut depth = 0;
    while let Some(piece) = xml.next(&mut reading)? {
        match piece {
            Piece::Start(element) => {
                if !expect_root(&element, &["test-run", "test-results"], &mut reading) {
                    return Ok(reading);
                }
                depth = element.depth + 1;
                // A suite fails without a test of it where its setting up or tearing down does.
                let whole = matches!(element.name.as_str(), "test-run" | "test-suite");
                let result = element.get("result").unwrap_or("");
                failed |= whole && (result.starts_with("Fail") || result.starts_with("Error"));
                match element.name.as_str() {
                    "test-run" if element.depth == 0 => run(&element, &mut claims, &mut reading),
                    "test-results" if element.depth == 0 => {
                        not_run = results(&element, &mut claims, &mut reading);
                    }
                    // Of version 2: `test-run` has the version itself.
                    "environment" => {
                        reading.tool(Some("NUnit"), element.get("nunit-version"));
                    }
                    "test-case" => {
                        let name = element.get("fullname").or(element.get("name"));
                        let case = outcome(&element, &mut reading);
                        open = Some(OpenCase::new(element.depth, name.unwrap_or(""), case));
                    }
                    _ => {}
                }
            }
            Piece::End(name, text) => {
                depth -= 1;
                OpenCase::end(&mut open, depth, &name, text, &mut reading);
            }
        }
    }
    let total = reading.counts.total();
    // Version 2 counts those that were not run apart.
    reading.compare(claims, &[total.saturating_sub(not_run)]);
    if failed && reading.counts.bad() == 0 {
        let text = "the run as a whole failed, though no test in it did";
        reading.notice("run_failed", Weight::Fails, text);
    }
    Ok(reading)
}

fn run(element: &Element, claims: &mut Claims, reading: &mut Reading) {
    claims.total = element.count("total", reading);
    claims.bad = element.count("failed", reading).unwrap_or(0);
    reading.duration_ms = element.get("duration").and_then(seconds_ms);
    reading.tool(Some("NUnit"), element.get("engine-version"));
}

fn results(element: &Element, claims: &mut Claims, reading: &mut Reading) -> u64 {
    claims.total = element.count("total", reading);
    for name in ["failures", "errors"] {
        let count = element.count(name, reading).unwrap_or(0);
        claims.bad = claims.bad.saturating_add(count);
    }
    element.count("not-run", reading).unwrap_or(0)
}

fn outcome(element: &Element, reading: &mut Reading) -> Case {
    let label = element.get("label").unwrap_or("");
    if let Some(result) = element.get("result") {
        return match result {
            "Passed" | "Success" | "Warning" => Case::Passed,
            "Failed" if matches!(label, "Error" | "Invalid" | "Cancelled") => Case::Error,
            "Failed" | "Failure" => Case::Failed,
            "Error" | "NotRunnable" | "Cancelled" => Case::Error,
            "Skipped" | "Ignored" | "Inconclusive" => Case::Skipped,
            other => {
                let text = format!("the result {other:?} is none that is known: taken as an error");
                reading.notice("unknown_outcome", Weight::Told, text);
                Case::Error
            }
        };
    }
    // The oldest spelling.
    match (element.get("executed"), element.get("success")) {
        (Some("False"), _) => Case::Skipped,
        (_, Some("True")) => Case::Passed,
        (_, Some("False")) => Case::Failed,
        _ => Case::Error,
    }
}
