//! Gates: what reports say, what follows from it, and that the command records it.
#![allow(clippy::disallowed_methods, reason = "tests compare values")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails so"
)]

#[path = "../api/mod.rs"]
mod api;
mod ci_logs;
mod commands;
mod dotnet;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../server/log.rs"]
#[allow(dead_code, reason = "another test binary uses the rest")]
mod log;
mod logs;
mod python;
mod recording;
#[path = "../server/running.rs"]
#[allow(dead_code, reason = "another test binary uses the rest")]
mod running;
mod sarif;
#[path = "../shared/mod.rs"]
mod shared;
mod verdicts;
mod xml;

use onrecord::gate::{GateError, Options, Reading, judge, read};

fn reading(report: impl AsRef<[u8]>) -> Reading {
    read(report.as_ref(), Options::default()).expect("a report")
}

/// Format, verdict, counts as passed/failed/errors/skipped, and the codes of what was noticed.
fn line(report: impl AsRef<[u8]>) -> String {
    line_with(report, Options::default())
}

fn line_with(report: impl AsRef<[u8]>, options: Options) -> String {
    let reading = match read(report.as_ref(), options) {
        Ok(reading) => reading,
        Err(GateError::Unknown { .. }) => return "unknown".to_owned(),
        Err(error) => panic!("{error}"),
    };
    let verdict = judge(&reading, None);
    let counts = reading.counts;
    let mut words = vec![
        reading.format().expect("a format"),
        verdict.outcome.as_str().to_owned(),
        format!(
            "{}/{}/{}/{}",
            counts.passed, counts.failed, counts.errors, counts.skipped
        ),
    ];
    words.extend(verdict.notices.iter().map(|notice| notice.code.to_owned()));
    words.join(" ")
}
