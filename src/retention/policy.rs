//! A tenant's retention policy: a document that says how long what is kept, and of which runs. Read strictly, or refused by
//! name (documented in `docs/retention.md`).

use crate::query::{self, BadFilter};
use crate::record::RecordError;
use crate::store::search::condition::Condition;
use onrecord_core::digest::Hash;
use onrecord_core::frame::Kind;
use onrecord_core::id::RunId;
use onrecord_core::json;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a document.
pub(crate) const DOCUMENT_BYTES: usize = 65_536;
/// Days that a floor or a ceiling may have: a hundred years.
const DAYS: u32 = 36_525;
/// Schedules of a policy.
const SCHEDULES: usize = 64;
/// Rules of a policy.
const RULES: usize = 100;
/// Classes of a policy.
const CLASSES: usize = 500;

/// A policy as it is written and signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// How long things are kept, under names.
    pub schedules: Vec<Schedule>,
    /// Which runs have which schedule: the first rule that is true of a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The schedule of runs that no rule is true of; absent: they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Tiers of payloads whose writers name none, by `KIND.NAME` of the payload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, u8>,
}

/// How long the tiers of a run are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Its name, as erasures and answers name it: a code.
    pub name: String,
    /// Where it comes from, for people: a law and its paragraph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `never`: nothing of the run is erased, by whatever path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase: Option<Erase>,
    /// The tiers, by their numbers 1 to 3; what is absent is kept, and may be erased.
    #[serde(default, skip_serializing_if = "Tiers::is_empty")]
    pub tiers: Tiers,
    /// Which runs are kept for less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// Whether anything may be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Erase {
    /// Nothing.
    Never,
}

/// Tiers 1 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    /// Decision-critical.
    #[serde(rename = "1", default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Term>,
    /// Evidence of verifiers.
    #[serde(rename = "2", default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Term>,
    /// Everything else.
    #[serde(rename = "3", default, skip_serializing_if = "Option::is_none")]
    pub forensic: Option<Term>,
}

/// How long a tier is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// From when the days count.
    pub trigger: Trigger,
    /// Days before which nothing of it is erased, 0 to 36,525.
    #[serde(default)]
    pub floor_days: u32,
    /// Days after which it expires, 0 to 36,525; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_days: Option<u32>,
}

/// From when days count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The opening.
    Opened,
    /// The seal. Before it nothing expires, and floors have not begun.
    Sealed,
    /// The last reading that stands on the ledger, or the last frame where it is later.
    LastAccess,
}

/// Of runs that are sealed, did not fail and are not flagged, so many are kept as the tiers say. Of the others the tiers that the
/// schedule speaks of expire earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Of a hundred, 0 to 100.
    pub keep_percent: u8,
    /// Days after which tiers of the others expire, counted as those of the tier.
    pub otherwise_days: u32,
}

/// Which runs have a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A filter over agent, profile, release, label, outcome, flag and gate.failed.
    pub when: String,
    /// Name of the schedule.
    pub schedule: String,
}

/// Why a document is no policy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub(crate) struct BadPolicy {
    /// Where in the document; empty for the whole.
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) detail: String,
}

/// A policy that can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) document: Document,
    /// The rules, each with the place of its schedule.
    pub(crate) rules: Vec<(Condition, usize)>,
    /// The place of the default's schedule.
    pub(crate) default: Option<usize>,
}

impl Term {
    /// The tiers of which schedules speak.
    pub(crate) const TIERS: [u8; 3] = [1, 2, 3];
}

impl Tiers {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is said of a tier.
    pub(crate) fn of(&self, tier: u8) -> Option<Term> {
        match tier {
            1 => self.decisions,
            2 => self.evidence,
            3 => self.forensic,
            _ => None,
        }
    }
}

impl Sample {
    /// Whether a run is among those that are kept: the first eight bytes of `SHA-256("onrecord/sample/1\n" ‖ run)`, as a
    /// number of the highest byte first, modulo 100, is below `keep_percent`.
    pub(crate) fn keeps(&self, run: &RunId) -> bool {
        let hash = Hash::of(&[b"onrecord/sample/1\n", run.as_str().as_bytes()]);
        let (first, _) = hash.0.split_at(8);
        let number = first
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        number % 100 < u64::from(self.keep_percent)
    }
}

impl Document {
    /// Reads one, which [`Policy::of`] has to look at still.
    ///
    /// # Errors
    /// [`RecordError::BadPolicy`]: it has not the shape.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        Ok(json::typed(bytes).map_err(|error| bad("", error.to_string()))?)
    }

    /// The bytes that are signed and kept.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        json::to_canonical(self).ok()
    }
}

impl Policy {
    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadPolicy> {
        let document: Document = json::typed(bytes).map_err(|error| bad("", error.to_string()))?;
        Self::of(document)
    }

    /// A document that was read.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn of(document: Document) -> Result<Self, BadPolicy> {
        check_schedules(&document.schedules)?;
        check_classes(&document.classes)?;
        if document.rules.len() > RULES {
            return Err(bad("/rules", format!("a policy has at most {RULES} rules")));
        }
        let place = |pointer: &str, name: &str| {
            let place = document.schedules.iter().position(|one| one.name == name);
            place.ok_or_else(|| bad(pointer, format!("there is no schedule {name:?} in it")))
        };
        let mut rules = Vec::new();
        for (number, rule) in document.rules.iter().enumerate() {
            let pointer = format!("/rules/{number}/schedule");
            let condition = query::of_rules(&rule.when).map_err(|error: BadFilter| {
                bad(&format!("/rules/{number}/when"), error.to_string())
            })?;
            rules.push((condition, place(&pointer, &rule.schedule)?));
        }
        let default = document.default.as_deref();
        let default = default.map(|name| place("/default", name)).transpose()?;
        Ok(Self {
            rules,
            default,
            document,
        })
    }
}

fn check_schedules(schedules: &[Schedule]) -> Result<(), BadPolicy> {
    if !(1..=SCHEDULES).contains(&schedules.len()) {
        let detail = format!("a policy has 1 to {SCHEDULES} schedules");
        return Err(bad("/schedules", detail));
    }
    let mut names = BTreeSet::new();
    for (number, schedule) in schedules.iter().enumerate() {
        let here = format!("/schedules/{number}");
        if !is_code(&schedule.name) {
            let detail = "1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or a digit";
            return Err(bad(&format!("{here}/name"), detail));
        }
        if !names.insert(&schedule.name) {
            let detail = format!("another schedule is called {:?}", schedule.name);
            return Err(bad(&format!("{here}/name"), detail));
        }
        if let Some(source) = &schedule.source
            && (source.len() > 1_000 || source.chars().any(char::is_control))
        {
            let detail = "at most 1,000 bytes without control characters";
            return Err(bad(&format!("{here}/source"), detail));
        }
        for tier in Term::TIERS {
            if let Some(term) = schedule.tiers.of(tier) {
                check_term(schedule, tier, term, &here)?;
            }
        }
        check_sample(schedule, &here)?;
    }
    Ok(())
}

fn check_term(schedule: &Schedule, tier: u8, term: Term, here: &str) -> Result<(), BadPolicy> {
    let at = |member: &str| format!("{here}/tiers/{tier}/{member}");
    for (member, days) in [
        ("floor_days", Some(term.floor_days)),
        ("ceiling_days", term.ceiling_days),
    ] {
        if days.is_some_and(|days| days > DAYS) {
            return Err(bad(&at(member), format!("at most {DAYS} days")));
        }
    }
    if let Some(ceiling) = term.ceiling_days {
        if schedule.erase.is_some() {
            let detail = "where nothing is ever erased, nothing expires";
            return Err(bad(&at("ceiling_days"), detail));
        }
        if ceiling < term.floor_days {
            let detail = format!(
                "it would expire after {ceiling} days, before its floor of {} days",
                term.floor_days
            );
            return Err(bad(&at("ceiling_days"), detail));
        }
    }
    Ok(())
}

fn check_sample(schedule: &Schedule, here: &str) -> Result<(), BadPolicy> {
    let Some(sample) = schedule.sample else {
        return Ok(());
    };
    let at = |member: &str| format!("{here}/sample/{member}");
    if sample.keep_percent > 100 {
        return Err(bad(&at("keep_percent"), "0 to 100"));
    }
    if sample.otherwise_days > DAYS {
        return Err(bad(&at("otherwise_days"), format!("at most {DAYS} days")));
    }
    if schedule.erase.is_some() {
        let detail = "where nothing is ever erased, nothing is left out of a sample";
        return Err(bad(&format!("{here}/sample"), detail));
    }
    for tier in Term::TIERS {
        let floor = schedule.tiers.of(tier).map_or(0, |term| term.floor_days);
        if sample.otherwise_days < floor {
            let detail = format!("it is before the floor of tier {tier}, which is {floor} days");
            return Err(bad(&at("otherwise_days"), detail));
        }
    }
    Ok(())
}

fn check_classes(classes: &BTreeMap<String, u8>) -> Result<(), BadPolicy> {
    if classes.len() > CLASSES {
        let detail = format!("a policy has at most {CLASSES} classes");
        return Err(bad("/classes", detail));
    }
    for (class, tier) in classes {
        let here = format!("/classes/{class}");
        let kind = class
            .split_once('.')
            .filter(|(_, name)| !name.is_empty())
            .and_then(|(kind, _)| Kind::from_word(kind));
        if kind.is_none() {
            let detail = "expected a kind of frame, a dot and the name of a payload, as in tool_call.arguments";
            return Err(bad(&here, detail));
        }
        if *tier > 3 {
            return Err(bad(&here, "a tier is 0 to 3"));
        }
    }
    Ok(())
}

/// Whether a text is a code, as schedules are named.
fn is_code(text: &str) -> bool {
    let mut bytes = text.bytes();
    (1..=64).contains(&text.len())
        && bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn bad(pointer: &str, detail: impl Into<String>) -> BadPolicy {
    BadPolicy {
        pointer: pointer.to_owned(),
        detail: detail.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Policy::read(text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn a_policy_is_read_and_written_as_it_was() {
        let text = r#"{"classes":{"tool_call.arguments":1},"default":"b","rules":[{"schedule":"a","when":"outcome = failed"}],"schedules":[{"erase":"never","name":"a"},{"name":"b","sample":{"keep_percent":10,"otherwise_days":7},"tiers":{"1":{"floor_days":7,"trigger":"sealed"},"3":{"ceiling_days":30,"floor_days":0,"trigger":"opened"}}}]}"#;
        let policy = Policy::read(text.as_bytes()).unwrap();
        let bytes = policy.document.bytes().unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert_eq!(policy.default, Some(1));
        assert_eq!(policy.rules[0].1, 0);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let one = |schedule: &str| format!(r#"{{"schedules":[{schedule}]}}"#);
        for (text, told) in [
            ("{}".to_owned(), "missing field"),
            (r#"{"schedules":[]}"#.to_owned(), "/schedules: a policy has"),
            (one(r#"{"name":"-a"}"#), "/schedules/0/name"),
            (
                one(r#"{"name":"a"},{"name":"a"}"#),
                "/schedules/1/name: another",
            ),
            (
                one(
                    r#"{"name":"a","tiers":{"1":{"trigger":"opened","floor_days":9,"ceiling_days":8}}}"#,
                ),
                "/schedules/0/tiers/1/ceiling_days: it would expire after 8 days, before its floor of 9",
            ),
            (
                one(
                    r#"{"name":"a","erase":"never","tiers":{"1":{"trigger":"opened","ceiling_days":8}}}"#,
                ),
                "where nothing is ever erased",
            ),
            (
                one(
                    r#"{"name":"a","tiers":{"1":{"trigger":"opened","floor_days":9}},"sample":{"keep_percent":1,"otherwise_days":8}}"#,
                ),
                "before the floor of tier 1",
            ),
            (
                one(r#"{"name":"a","tiers":{"0":{"trigger":"opened"}}}"#),
                "unknown field",
            ),
            (
                one(r#"{"name":"a","tiers":{"1":{"trigger":"opened","floor_days":36526}}}"#),
                "at most 36525",
            ),
            (
                r#"{"schedules":[{"name":"a"}],"default":"b"}"#.to_owned(),
                "/default: there is no schedule",
            ),
            (
                r#"{"schedules":[{"name":"a"}],"rules":[{"when":"size > 3","schedule":"a"}]}"#
                    .to_owned(),
                "/rules/0/when: at character 1",
            ),
            (
                r#"{"schedules":[{"name":"a"}],"classes":{"speech.x":1}}"#.to_owned(),
                "/classes/speech.x",
            ),
        ] {
            let found = refused(&text);
            assert!(found.contains(told), "{text}: {found}");
        }
    }

    #[test]
    fn a_sample_is_chosen_by_the_run_alone() {
        let runs: Vec<RunId> = (0..1_000_u64)
            .map(|n| RunId::from_parts(n, [7; 10]))
            .collect();
        let kept = |keep_percent| {
            let sample = Sample {
                keep_percent,
                otherwise_days: 0,
            };
            runs.iter().filter(|run| sample.keeps(run)).count()
        };
        assert_eq!((kept(0), kept(100)), (0, 1_000));
        assert!((200..300).contains(&kept(25)), "{}", kept(25));
    }
}
