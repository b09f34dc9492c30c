//! The clocks: the database's, which is that of the evidence, the server's, and this machine's.

use super::Findings;
use onrecord_core::timestamp::Timestamp;

/// From which difference on two clocks are told to differ, in seconds. The server's `Date` is a second
/// coarse, and the answers took their time.
const DIFFERENCE_S: i64 = 3;

/// This machine's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the clock of the evidence; nothing is recorded from it"
)]
pub(in crate::cli) fn now() -> Option<Timestamp> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_micros(i64::try_from(since.ok()?.as_micros()).ok()?)
}

/// Compares this machine's clock with the others that could be read.
pub(super) fn check(
    findings: &mut Findings,
    here: Option<Timestamp>,
    database: Option<Timestamp>,
    server: Option<Timestamp>,
) {
    let Some(here) = here else {
        findings.failed(
            "clock",
            "this machine's clock stands before 1970",
            "set it, by NTP",
        );
        return;
    };
    let others = [("the database's", database), ("the server's", server)];
    let read: Vec<(&str, i64)> = others
        .into_iter()
        .filter_map(|(whose, time)| Some((whose, time?.seconds() - here.seconds())))
        .collect();
    if read.is_empty() {
        findings.skipped("clock", "neither the database nor the server told the time");
    }
    for (whose, ahead_s) in read {
        if ahead_s.abs() <= DIFFERENCE_S {
            findings.ok("clock", format!("{whose} clock and this machine's agree"));
        } else {
            let (by, side) = (
                ahead_s.abs(),
                if ahead_s > 0 { "ahead of" } else { "behind" },
            );
            findings.warning(
                "clock",
                format!("{whose} clock is {by} s {side} this machine's"),
                "set both by NTP: the database's clock is the time of the evidence, and writes stop while it is \
                 more than 5 s behind the last frame",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_named() {
        let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
        let mut findings = Findings::default();
        check(&mut findings, at(100), at(98), at(110));
        check(&mut findings, at(100), None, None);
        let found: Vec<(Status, &str)> = findings
            .0
            .iter()
            .map(|one| (one.status, one.found.as_str()))
            .collect();
        let expected = [
            (Status::Ok, "the database's clock and this machine's agree"),
            (
                Status::Warning,
                "the server's clock is 10 s ahead of this machine's",
            ),
            (
                Status::Skipped,
                "neither the database nor the server told the time",
            ),
        ];
        assert_eq!(found, expected);
    }
}
