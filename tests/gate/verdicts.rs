//! The verdict: the report and the exit code together.

use crate::reading;
use onrecord::gate::{Ended, Format, Options, Outcome, Reading, judge, read};

fn exit(code: i32) -> Ended {
    Ended {
        exit: Some(code),
        signal: None,
    }
}

fn plain() -> Reading {
    let options = Options {
        format: Some(Format::Plain),
        ..Options::default()
    };
    read(&b"5 passed in 0.1s"[..], options).unwrap()
}

#[test]
fn the_worse_of_two_counts() {
    let pass = || reading("1..1\nok 1\n");
    let fail = || reading("1..1\nnot ok 1\n");
    let skipped = || reading("1..0 # SKIP\n");
    let cut = || reading("1..2\nok 1\n");
    let signal = Ended {
        exit: None,
        signal: Some("SIGKILL".to_owned()),
    };
    let interrupted = Ended {
        exit: Some(0),
        signal: Some("SIGINT".to_owned()),
    };
    for (report, ended, outcome, disagrees) in [
        (pass(), None, Outcome::Pass, false),
        (pass(), Some(exit(0)), Outcome::Pass, false),
        (pass(), Some(exit(1)), Outcome::Fail, true),
        (pass(), Some(exit(-1)), Outcome::Fail, true),
        (fail(), None, Outcome::Fail, false),
        (fail(), Some(exit(0)), Outcome::Fail, true),
        (fail(), Some(exit(1)), Outcome::Fail, false),
        (skipped(), Some(exit(0)), Outcome::Skipped, false),
        (skipped(), Some(exit(2)), Outcome::Fail, true),
        (cut(), Some(exit(0)), Outcome::Error, false),
        (cut(), Some(exit(1)), Outcome::Error, false),
        (plain(), Some(exit(0)), Outcome::Pass, false),
        (plain(), Some(exit(3)), Outcome::Fail, false),
        (plain(), None, Outcome::Error, false),
        (pass(), Some(signal.clone()), Outcome::Error, false),
        (plain(), Some(signal), Outcome::Error, false),
        (pass(), Some(interrupted.clone()), Outcome::Error, false),
        (fail(), Some(interrupted), Outcome::Error, true),
        (
            Reading::unreadable("no_report", "x"),
            Some(exit(0)),
            Outcome::Error,
            false,
        ),
    ] {
        let verdict = judge(&report, ended.as_ref());
        let case = format!("{:?} {ended:?}", report.formats);
        assert_eq!(
            (verdict.outcome, verdict.disagrees),
            (outcome, disagrees),
            "{case}"
        );
    }
}

#[test]
fn several_reports_are_one() {
    let mut whole = reading("1..1\nok 1\n");
    whole.merge(reading(
        "<testsuite time='1'><testcase/><testcase><failure/></testcase></testsuite>",
    ));
    assert_eq!(judge(&whole, None).outcome, Outcome::Fail);
    assert_eq!((whole.counts.total(), whole.duration_ms), (3, Some(1_000)));
    assert_eq!(whole.format().as_deref(), Some("tap+junit"));
    let mut clean = reading("{\"version\":\"2.1.0\",\"runs\":[{\"results\":[]}]}");
    clean.merge(plain());
    assert_eq!(judge(&clean, Some(&exit(0))).outcome, Outcome::Pass);
    let mut first = plain();
    first.merge(reading("1..1\nnot ok 1\n"));
    assert_eq!(judge(&first, Some(&exit(0))).outcome, Outcome::Fail);
    // Also between logs that say nothing themselves.
    for mut logs in [
        [plain(), Reading::unreadable("no_report", "x")],
        [Reading::unreadable("no_report", "x"), plain()],
    ] {
        let [first, second] = &mut logs;
        first.merge(second.clone());
        assert_eq!(judge(first, Some(&exit(0))).outcome, Outcome::Error);
    }
    let mut doubted = plain();
    doubted.doubt("candidate_changed", "x");
    assert_eq!(judge(&doubted, Some(&exit(0))).outcome, Outcome::Error);
    // A report without tests is told, where others have some.
    let (tests, none) = (reading("1..1\nok 1\n"), reading("<testsuites/>"));
    for (first, second) in [(&tests, &none), (&none, &tests)] {
        let mut both = first.clone();
        both.merge(second.clone());
        both.merge(plain());
        assert_eq!(judge(&both, None).outcome, Outcome::Pass);
        assert!(both.has("empty_report"));
    }
    let mut missing = reading("1..1\nok 1\n");
    missing.merge(Reading::unreadable("no_report", "x"));
    assert_eq!(judge(&missing, Some(&exit(0))).outcome, Outcome::Error);
}
