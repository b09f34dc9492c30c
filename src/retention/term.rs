//! How long a run's tiers are kept: pure readings of the versions of a policy and of what a run says. Nothing here knows a
//! clock or a database.

use super::policy::{Policy, Schedule, Term, Trigger};
use crate::store::retention::{Needs, RunFacts};
use crate::store::search::condition::{Comparison, Condition, Value};
use crate::store::search::field::Field;
use onrecord_core::facts;
use onrecord_core::timestamp::Timestamp;
use std::fmt;

const DAY_MICROS: i64 = 86_400_000_000;

/// A version of a tenant's policy.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// From 1.
    pub(crate) version: u64,
    /// From when on it holds, until the next one does.
    pub(crate) at: Timestamp,
    pub(crate) policy: Policy,
}

/// All versions of a tenant's policy, from the first; none where it has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(pub(crate) Vec<Version>);

/// A time that may not be known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// Then.
    At(Timestamp),
    /// Not before something that has not happened, or never.
    Never,
}

impl fmt::Display for When {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(formatter),
            Self::Never => formatter.write_str("an end that is not known yet"),
        }
    }
}

/// Before when something of a tier may not be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) until: When,
    /// `SCHEDULE@VERSION`.
    pub(crate) schedule: String,
}

/// When a tier of a run expires, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) tier: u8,
    /// From then on it is not to be read, and is erased.
    pub(crate) due: When,
    /// Whether it goes because the run is in no sample.
    pub(crate) sampled_out: bool,
}

/// What becomes of a run under the policy that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// The version that holds.
    pub(crate) version: u64,
    /// The schedule that its rules choose; none: it is kept.
    pub(crate) schedule: Option<String>,
    /// The rule that chose it, from 0; none for the default.
    pub(crate) rule: Option<usize>,
    /// Of each tier that a schedule can speak of; what the run has nothing of never expires.
    pub(crate) tiers: [Expiry; 3],
}

impl Fate {
    /// `SCHEDULE@VERSION`, as erasures name what they are done under.
    pub(crate) fn policy(&self) -> String {
        let schedule = self.schedule.as_deref().unwrap_or("none");
        format!("{schedule}@{}", self.version)
    }

    /// The tiers that are due.
    pub(crate) fn expired(&self, now: Timestamp) -> impl Iterator<Item = &Expiry> {
        let due = move |one: &&Expiry| one.due <= When::At(now);
        self.tiers.iter().filter(due)
    }

    /// When something of it expires next, but for tiers of which nothing is left: bits as in `run_retention.done`.
    pub(crate) fn due(&self, done: i16) -> When {
        let left = self
            .tiers
            .iter()
            .filter(|one| done & (1_i16 << one.tier) == 0);
        left.map(|one| one.due).min().unwrap_or(When::Never)
    }
}

impl Versions {
    /// The version that holds.
    pub(crate) fn last(&self) -> Option<&Version> {
        self.0.last()
    }

    /// What of runs has to be read.
    pub(crate) fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for version in &self.0 {
            for (condition, _) in &version.policy.rules {
                ask(condition, &mut needs);
            }
            for schedule in &version.policy.document.schedules {
                // Whether a run failed or is flagged decides who is in a sample.
                needs.gates |= schedule.sample.is_some();
                needs.flags |= schedule.sample.is_some();
                let terms = Term::TIERS.map(|tier| schedule.tiers.of(tier));
                let mut terms = terms.iter().flatten();
                needs.access |= terms.any(|term| term.trigger == Trigger::LastAccess);
            }
        }
        needs
    }

    /// What becomes of a run; `None` where there is no policy.
    pub(crate) fn fate(&self, run: &RunFacts) -> Option<Fate> {
        let last = self.last()?;
        let chosen = chosen(&last.policy, run);
        let expiry = |tier| {
            let occurs = run.tiers & (1_i16 << tier) != 0;
            let chosen = chosen.filter(|_| occurs);
            let ceiling = chosen.and_then(|(schedule, _)| ceiling(schedule, tier, run));
            let floor = self.floor(run, tier).map(|floor| floor.until);
            match ceiling {
                Some((due, sampled_out)) => Expiry {
                    tier,
                    due: floor.map_or(due, |floor| floor.max(due)),
                    sampled_out,
                },
                None => Expiry {
                    tier,
                    due: When::Never,
                    sampled_out: false,
                },
            }
        };
        Some(Fate {
            version: last.version,
            schedule: chosen.map(|(schedule, _)| schedule.name.clone()),
            rule: chosen.and_then(|(_, rule)| rule),
            tiers: Term::TIERS.map(expiry),
        })
    }

    /// Before when a tier of a run may not be erased, by whatever path: the latest end of a floor in any version that held at
    /// some time since the run was opened, so that a change shortens nothing that was promised. Tier 0 is bound as long as any
    /// of the others.
    pub(crate) fn floor(&self, run: &RunFacts, tier: u8) -> Option<Floor> {
        let tiers = if tier == 0 { 1..=3 } else { tier..=tier };
        let ends = self.0.iter().map(|one| Some(one.at)).skip(1).chain([None]);
        // Those that a later one followed before the run was opened never held for it.
        let held = self.0.iter().zip(ends);
        let held = held.filter(|(_, end)| end.is_none_or(|end| end > run.opened_at));
        let floors = held.filter_map(|(version, _)| {
            let (schedule, _) = chosen(&version.policy, run)?;
            let until = tiers
                .clone()
                .filter_map(|tier| promised(schedule, tier, run));
            let until = until.max()?;
            Some(Floor {
                until,
                schedule: format!("{}@{}", schedule.name, version.version),
            })
        });
        floors.max_by_key(|floor| floor.until)
    }
}

/// The schedule that a policy's rules choose, and the rule.
fn chosen<'a>(policy: &'a Policy, run: &RunFacts) -> Option<(&'a Schedule, Option<usize>)> {
    let rule = policy.rules.iter().position(|(when, _)| is_true(when, run));
    let place = match rule {
        Some(rule) => policy.rules.get(rule).map(|(_, place)| *place),
        None => policy.default,
    };
    let schedule = policy.document.schedules.get(place?)?;
    Some((schedule, rule))
}

/// When a schedule's floor of a tier ends; `None` where it has none.
fn promised(schedule: &Schedule, tier: u8, run: &RunFacts) -> Option<When> {
    if schedule.erase.is_some() {
        return Some(When::Never);
    }
    let term = schedule.tiers.of(tier)?;
    (term.floor_days > 0).then(|| after(term.trigger, term.floor_days, run))
}

/// When a tier expires under a schedule, and whether that is because the run is in no sample.
fn ceiling(schedule: &Schedule, tier: u8, run: &RunFacts) -> Option<(When, bool)> {
    let term = schedule.tiers.of(tier)?;
    let full = term.ceiling_days;
    let full = full.map(|days| after(term.trigger, days, run));
    let sample = schedule.sample.filter(|sample| {
        let failed = run.outcome.as_deref() == Some("failed") || !run.failed_gates.is_empty();
        run.sealed_at.is_some() && !failed && run.flags.is_empty() && !sample.keeps(&run.run)
    });
    let sampled = sample.map(|sample| after(term.trigger, sample.otherwise_days, run));
    match (full, sampled) {
        (full, Some(sampled)) if full.is_none_or(|full| sampled < full) => Some((sampled, true)),
        (full, _) => full.map(|full| (full, false)),
    }
}

/// So many days after a trigger.
fn after(trigger: Trigger, days: u32, run: &RunFacts) -> When {
    let from = match trigger {
        Trigger::Opened => Some(run.opened_at),
        Trigger::Sealed => run.sealed_at,
        Trigger::LastAccess => Some(
            run.accessed_at
                .map_or(run.last_at, |at| at.max(run.last_at)),
        ),
    };
    let then = |from: Timestamp| {
        let micros = from.micros().saturating_add(i64::from(days) * DAY_MICROS);
        Timestamp::from_micros(micros)
    };
    from.and_then(then).map_or(When::Never, When::At)
}

fn ask(condition: &Condition, needs: &mut Needs) {
    match condition {
        Condition::All(all) | Condition::Any(all) => {
            for one in all {
                ask(one, needs);
            }
        }
        Condition::Not(inner) => ask(inner, needs),
        Condition::Is(field, ..) | Condition::In(field, _) | Condition::Present(field) => {
            match field.name {
                "gate.failed" => needs.gates = true,
                "flag" => needs.flags = true,
                "outcome" => {}
                _ => needs.session = true,
            }
        }
    }
}

/// Whether a rule's condition is true of a run, as a query would answer it.
fn is_true(condition: &Condition, run: &RunFacts) -> bool {
    match condition {
        Condition::All(all) => all.iter().all(|one| is_true(one, run)),
        Condition::Any(any) => any.iter().any(|one| is_true(one, run)),
        Condition::Not(inner) => !is_true(inner, run),
        Condition::Present(field) => !values(field, run).is_empty(),
        Condition::Is(field, comparison, wanted) => {
            compares(&values(field, run), *comparison, wanted)
        }
        Condition::In(field, wanted) => {
            let values = values(field, run);
            let mut wanted = wanted.iter();
            wanted.any(|one| compares(&values, Comparison::Equal, one))
        }
    }
}

fn compares(values: &[&str], comparison: Comparison, wanted: &Value) -> bool {
    let Value::Text(wanted) = wanted else {
        // Rules have fields of texts and words alone.
        return false;
    };
    match comparison {
        Comparison::Equal => values.contains(&&*facts::value(wanted)),
        Comparison::Begins => values.iter().any(|value| value.starts_with(&**wanted)),
        _ => false,
    }
}

/// What a run has of a field.
fn values<'a>(field: &Field, run: &'a RunFacts) -> Vec<&'a str> {
    let one = |value: &'a Option<String>| value.as_deref().into_iter().collect();
    let all = |values: &'a [String]| values.iter().map(String::as_str).collect();
    match field.name {
        "agent" => one(&run.agent),
        "profile" => one(&run.profile),
        "release" => one(&run.release),
        "label" => all(&run.labels),
        "outcome" => vec![run.outcome.as_deref().unwrap_or("unknown")],
        "flag" => all(&run.flags),
        "gate.failed" => all(&run.failed_gates),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrecord_core::id::RunId;

    const DAY: i64 = DAY_MICROS;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_micros(days * DAY).unwrap()
    }

    fn run() -> RunFacts {
        RunFacts {
            run: RunId::from_parts(1, [0; 10]),
            opened_at: at(10),
            last_at: at(11),
            sealed_at: None,
            accessed_at: None,
            outcome: None,
            agent: Some("coder".to_owned()),
            profile: None,
            release: None,
            labels: vec!["a".to_owned(), "b".to_owned()],
            failed_gates: Vec::new(),
            flags: Vec::new(),
            tiers: 0b1110,
        }
    }

    fn version(number: u64, since: i64, text: &str) -> Version {
        Version {
            version: number,
            at: at(since),
            policy: Policy::read(text.as_bytes()).unwrap(),
        }
    }

    const KEPT: &str = r#"{"schedules":[{"name":"k","tiers":{"2":{"trigger":"opened","floor_days":30}}}],"default":"k"}"#;
    const SHORT: &str = r#"{"schedules":[{"name":"s","tiers":{"2":{"trigger":"opened","ceiling_days":1}}}],"default":"s"}"#;

    #[test]
    fn a_floor_is_that_of_any_version_that_held_since_the_opening() {
        let run = run();
        for (second, floor) in [(9, None), (11, Some(40))] {
            let versions = Versions(vec![version(1, 0, KEPT), version(2, second, SHORT)]);
            let found = versions.floor(&run, 2);
            let expected = floor.map(|days| Floor {
                until: When::At(at(days)),
                schedule: "k@1".to_owned(),
            });
            assert_eq!(found, expected, "replaced on day {second}");
            assert_eq!(versions.floor(&run, 0), expected);
            assert_eq!(versions.floor(&run, 1), None);
            let fate = versions.fate(&run).unwrap();
            assert_eq!(fate.policy(), "s@2");
            let due = floor.unwrap_or(11);
            assert_eq!(fate.tiers[1].due, When::At(at(due)));
            assert_eq!(
                (fate.due(0), fate.due(0b100)),
                (When::At(at(due)), When::Never)
            );
        }
    }

    #[test]
    fn each_trigger_has_its_time() {
        let mut run = run();
        for (trigger, open, sealed, read) in [
            (Trigger::Opened, Some(15), 15, 15),
            (Trigger::Sealed, None, 25, 25),
            (Trigger::LastAccess, Some(16), 16, 35),
        ] {
            let when = |days: i64| When::At(at(days));
            (run.sealed_at, run.accessed_at) = (None, None);
            assert_eq!(after(trigger, 5, &run), open.map_or(When::Never, when));
            run.sealed_at = Some(at(20));
            assert_eq!(after(trigger, 5, &run), when(sealed));
            run.accessed_at = Some(at(30));
            assert_eq!(after(trigger, 5, &run), when(read));
        }
    }

    #[test]
    fn rules_are_answered_as_queries_are() {
        let run = run();
        for (rule, expected) in [
            (r#"agent = "coder" and label = "b""#, true),
            (r#"agent begins "co" and not label = "c""#, true),
            (r#"label in ("x", "a")"#, true),
            ("outcome = unknown", true),
            ("outcome != failed", true),
            (r#"profile != "coding""#, true),
            ("profile is set or flag is set or gate.failed is set", false),
            (r#"label = "a" and label = "x""#, false),
        ] {
            let condition = crate::query::of_rules(rule).unwrap();
            assert_eq!(is_true(&condition, &run), expected, "{rule}");
        }
    }
}
