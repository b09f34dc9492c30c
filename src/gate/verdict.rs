//! The verdict: what the report says and how the command ended, together.

use super::tally::{Notice, Reading, Weight};

/// A verdict, as a frame's body has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Tests were run, and none speaks against the candidate.
    Pass,
    /// Something speaks against it.
    Fail,
    /// It was not judged: the report or the run broke off, or there was nothing to judge by.
    Error,
    /// All tests were skipped.
    Skipped,
}

impl Outcome {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub exit: Option<i32>,
    /// The signal that ended it, or that it was interrupted with.
    pub signal: Option<String>,
}

/// The verdict on a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The verdict itself.
    pub outcome: Outcome,
    /// Whether the report and the exit code say opposite things.
    pub disagrees: bool,
    /// What was noticed, that of the verdict among it.
    pub notices: Vec<Notice>,
}

/// Judges. Of two that disagree the worse counts: an exit code other than 0 is never a pass, and
/// neither is a report with failures.
pub fn judge(reading: &Reading, ended: Option<&Ended>) -> Verdict {
    let mut notices = reading.notices.clone();
    let says = (!reading.is_plain()).then(|| report(reading, &mut notices));
    let exit = ended.and_then(|ended| ended.exit);
    let signal = ended.and_then(|ended| ended.signal.as_deref());
    let good = matches!(says, Some(Outcome::Pass | Outcome::Skipped));
    let disagrees = match exit {
        Some(0) => says == Some(Outcome::Fail),
        Some(_) => good,
        None => false,
    };
    let outcome = if let Some(signal) = signal {
        add(
            &mut notices,
            "signal",
            format!("the command was ended by {signal}"),
        );
        Outcome::Error
    } else {
        match (says, exit) {
            (Some(says), _) if !good => says,
            (Some(says), None | Some(0)) => says,
            (None, Some(0)) => Outcome::Pass,
            (_, Some(_)) => Outcome::Fail,
            (None, None) => {
                add(
                    &mut notices,
                    "no_exit",
                    "nothing says how it ended".to_owned(),
                );
                Outcome::Error
            }
        }
    };
    Verdict {
        outcome,
        disagrees,
        notices,
    }
}

/// What the report alone says.
fn report(reading: &Reading, notices: &mut Vec<Notice>) -> Outcome {
    let has = |weight| reading.notices.iter().any(|notice| notice.weight == weight);
    let counts = &reading.counts;
    if has(Weight::Broken) {
        Outcome::Error
    } else if counts.bad() > 0 || has(Weight::Fails) {
        Outcome::Fail
    } else if has(Weight::NoPass) {
        Outcome::Error
    } else if reading.empty_is_good {
        Outcome::Pass
    } else if counts.total() == 0 {
        add(notices, "no_tests", "there is no test in it".to_owned());
        Outcome::Error
    } else if counts.passed == 0 {
        add(notices, "all_skipped", "all tests were skipped".to_owned());
        Outcome::Skipped
    } else {
        Outcome::Pass
    }
}

fn add(notices: &mut Vec<Notice>, code: &'static str, text: String) {
    notices.push(Notice {
        code,
        text,
        weight: Weight::Told,
    });
}
