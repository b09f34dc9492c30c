//! xUnit.net's XML, version 2: assemblies with collections of tests.

use std::io::{self, Read};

use super::tally::{Case, Claims, OpenCase, Reading, seconds_ms};
use super::xml::{Element, Piece, Xml, expect_root};
use super::{Format, Weight};

/// Reads a report.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(mut xml: Xml<impl Read>) -> io::Result<Reading> {
    let mut reading = Reading::new(Format::Xunit);
    let mut claims = Claims::default();
    let mut open: Option<OpenCase> = None;
    let mut broke = 0;
    let mut depth = 0;
    while let Some(piece) = xml.next(&mut reading)? {
        match piece {
            Piece::Start(element) => {
                if !expect_root(&element, &["assemblies", "assembly"], &mut reading) {
                    return Ok(reading);
                }
                depth = element.depth + 1;
                match element.name.as_str() {
                    "assembly" => assembly(&element, &mut claims, &mut reading),
                    "test" => {
                        let name = element.get("name").unwrap_or("");
                        let case = outcome(&element, &mut reading);
                        open = Some(OpenCase::new(element.depth, name, case));
                    }
                    // What broke outside of tests, such as cleaning up after them.
                    "error" if element.parent == "errors" && open.is_none() => {
                        broke += 1;
                        let name = element.get("name").or(element.get("type")).unwrap_or("");
                        reading.case(Case::Error, name, None);
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
    reading.compare(claims, &[total - broke]);
    Ok(reading)
}

fn assembly(element: &Element, claims: &mut Claims, reading: &mut Reading) {
    if let Some(total) = element.count("total", reading) {
        claims.total = Some(claims.total.unwrap_or(0).saturating_add(total));
    }
    for name in ["failed", "errors"] {
        let count = element.count(name, reading).unwrap_or(0);
        claims.bad = claims.bad.saturating_add(count);
    }
    if let Some(ms) = element.get("time").and_then(seconds_ms) {
        reading.duration_ms = Some(reading.duration_ms.unwrap_or(0).saturating_add(ms));
    }
    // `xUnit.net 2.4.1.0`
    let framework = element.get("test-framework").unwrap_or("");
    let (name, version) = framework.rsplit_once(' ').unwrap_or((framework, ""));
    reading.tool(Some(name), Some(version));
}

fn outcome(element: &Element, reading: &mut Reading) -> Case {
    match element.get("result") {
        Some("Pass") => Case::Passed,
        Some("Fail") => Case::Failed,
        Some("Skip" | "NotRun") => Case::Skipped,
        other => {
            let word = other.unwrap_or("");
            let text = format!("the result {word:?} is none that is known: taken as an error");
            reading.notice("unknown_outcome", Weight::Told, text);
            Case::Error
        }
    }
}
