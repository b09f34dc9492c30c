//! TRX: results of Visual Studio and `dotnet test`.

use std::io::{self, Read};

use super::tally::{Case, Claims, Reading, between_ms};
use super::xml::{Element, Piece, Xml, expect_root};
use super::{Format, Weight};

/// A result being read; it may have results within it.
struct Open {
    depth: usize,
    name: String,
    case: Case,
    message: Option<String>,
    /// Whether the results within it were counted in its place, and whether one of them failed.
    inner: bool,
    inner_bad: bool,
}

/// Reads a report.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(mut xml: Xml<impl Read>) -> io::Result<Reading> {
    let mut reading = Reading::new(Format::Trx);
    let mut open: Vec<Open> = Vec::new();
    let (mut claims, mut parents, mut depth) = (Claims::default(), 0, 0);
    let mut ended = None;
    while let Some(piece) = xml.next(&mut reading)? {
        match piece {
            Piece::Start(element) => {
                if !expect_root(&element, &["TestRun"], &mut reading) {
                    return Ok(reading);
                }
                depth = element.depth + 1;
                match element.name.as_str() {
                    "Times" => {
                        let time = |name| element.get(name).unwrap_or("");
                        reading.duration_ms = between_ms(time("start"), time("finish"));
                    }
                    "Counters" => {
                        claims.total = element.count("total", &mut reading);
                        for name in ["failed", "error", "timeout", "aborted"] {
                            let count = element.count(name, &mut reading).unwrap_or(0);
                            claims.bad = claims.bad.saturating_add(count);
                        }
                    }
                    "ResultSummary" => ended = element.get("outcome").map(str::to_owned),
                    _ if is_result(&element) => {
                        if let Some(parent) = open.last_mut() {
                            parent.inner = true;
                        }
                        open.push(begun(&element, &mut reading));
                    }
                    _ => {}
                }
            }
            Piece::End(name, text) => {
                depth -= 1;
                let Some(last) = open.last_mut() else {
                    continue;
                };
                if depth == last.depth {
                    parents += u64::from(last.inner);
                    if let Some(last) = open.pop() {
                        close(last, open.last_mut(), &mut reading);
                    }
                } else if name == "Message" && last.message.is_none() {
                    last.message = Some(text);
                }
            }
        }
    }
    let total = reading.counts.total();
    reading.compare(claims, &[total + parents]);
    let good = [
        "Passed",
        "Completed",
        "Warning",
        "NotExecuted",
        "Inconclusive",
    ];
    if let Some(outcome) = ended.filter(|outcome| !good.contains(&outcome.as_str()))
        && reading.counts.bad() == 0
    {
        let text = format!("the run as a whole is {outcome}, though no test in it failed");
        reading.notice("run_failed", Weight::Fails, text);
    }
    Ok(reading)
}

/// `UnitTestResult` and its kin: all of them have an outcome, or lack it where it is the worst one.
fn is_result(element: &Element) -> bool {
    let name = element.name.as_str();
    name.ends_with("Result")
        && (element.get("testName").is_some() || element.get("testId").is_some())
}

fn begun(element: &Element, reading: &mut Reading) -> Open {
    let outcome = element.get("outcome").unwrap_or("Error");
    let case = match outcome {
        "Passed" | "Warning" | "Completed" => Case::Passed,
        "Failed" => Case::Failed,
        "NotExecuted" | "Inconclusive" => Case::Skipped,
        "Error"
        | "Timeout"
        | "Aborted"
        | "PassedButRunAborted"
        | "NotRunnable"
        | "Disconnected"
        | "InProgress"
        | "Pending" => Case::Error,
        other => {
            let text = format!("the outcome {other:?} is none that is known: taken as an error");
            reading.notice("unknown_outcome", Weight::Told, text);
            Case::Error
        }
    };
    Open {
        depth: element.depth,
        name: element.get("testName").unwrap_or("").to_owned(),
        case,
        message: None,
        inner: false,
        inner_bad: false,
    }
}

/// A result with results within it is counted by these, unless it alone failed.
fn close(result: Open, parent: Option<&mut Open>, reading: &mut Reading) {
    let bad = matches!(result.case, Case::Failed | Case::Error);
    if let Some(parent) = parent {
        parent.inner_bad |= bad || result.inner_bad;
    }
    if !result.inner || (bad && !result.inner_bad) {
        reading.case(result.case, &result.name, result.message.as_deref());
    }
}
