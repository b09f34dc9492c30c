//! Gates: what reports say, and that the command records it.
#![allow(clippy::disallowed_methods, reason = "tests compare values")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails so"
)]

mod ci_logs;
#[path = "../shared/mod.rs"]
mod shared;

use onrecord::gate::{GateError, Options, Reading, Verdict, judge, read};

/// A reading and the verdict of the report alone.
fn said(bytes: &[u8], options: Options) -> Result<(Reading, Verdict), GateError> {
    let reading = read(bytes, options)?;
    let verdict = judge(&reading, None);
    Ok((reading, verdict))
}

/// Format, verdict, passed, failed, errors and skipped of a report, and what was noticed.
fn line(bytes: &[u8]) -> String {
    match said(bytes, Options::default()) {
        Ok((reading, verdict)) => {
            let codes: Vec<_> = verdict.notices.iter().map(|notice| notice.code).collect();
            let counts = reading.counts;
            format!(
                "{} {} {}/{}/{}/{} {}",
                reading.format().unwrap(),
                verdict.outcome.as_str(),
                counts.passed,
                counts.failed,
                counts.errors,
                counts.skipped,
                codes.join(" ")
            )
            .trim_end()
            .to_owned()
        }
        Err(GateError::Unknown { .. }) => "unknown".to_owned(),
        Err(error) => panic!("{error}"),
    }
}
