//! What a frame says that runs and frames are looked for by. A reading above the format: names stand in bodies as
//! `docs/kinds.md` has them, and a body that says nothing so is none the worse for it.

use crate::coverage::Required;
use crate::digest::Hash;
use crate::frame::{ActorType, Kind, PayloadRef};
use crate::json;
use alloc::borrow::{Cow, ToOwned as _};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Bytes up to which a value stands for itself.
const WHOLE: usize = 200;
/// Bytes that are kept of the beginning of a longer one.
const BEGINNING: usize = 120;
/// Labels of a run that are looked at.
const LABELS: usize = 64;

/// The verdict of a gate, as bodies of `gate_result` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// What was asked for is so.
    Pass,
    /// It is not.
    Fail,
    /// The gate did not come to an answer.
    Error,
    /// It did not run.
    Skipped,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Fail, Self::Error, Self::Skipped];

    /// The word in bodies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}

/// What a run has in common with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FactField {
    /// `session.body.agent`.
    Agent,
    /// `session.body.release`.
    Release,
    /// `session.body.profile`.
    Profile,
    /// One of `session.body.labels`.
    Label,
    /// A model that was asked or that answered.
    Model,
    /// A tool that was called.
    Tool,
    /// A gate that said something.
    Gate,
    /// What a gate said.
    Verdict,
    /// A gate that said `fail` or `error`.
    FailedGate,
    /// A kind of frame that occurs.
    Kind,
    /// A kind of secret that was taken out of a payload.
    Redaction,
    /// The tier of a payload.
    Tier,
    /// The type of somebody who wrote a frame.
    Actor,
    /// The path of a file that got a new version.
    File,
    /// A fact that a record of use should have and a sealed run lacks ([`Known::missing`](crate::coverage::Known::missing)).
    /// No frame says it: it follows from all of them, and is written with the seal.
    Missing,
}

/// Something that is true of a run since one of its frames says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fact {
    /// What is said.
    pub field: FactField,
    /// Its value, as [`value`] makes it.
    pub value: Cow<'static, str>,
}

impl Fact {
    /// What a sealed run lacks.
    pub fn missing(required: Required) -> Self {
        Self {
            field: FactField::Missing,
            value: required.as_str().into(),
        }
    }
}

/// What a frame says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What it is about: the tool of a `tool_call`, the gate of a `gate_result`, the model of a `turn`, `model_call` or
    /// `model_result`, the path of a `file_version`; as [`value`] makes it.
    pub name: Option<String>,
    /// The verdict of a `gate_result`.
    pub verdict: Option<Verdict>,
    /// What is true of its run, each once.
    pub of_run: Vec<Fact>,
}

impl Facts {
    /// Reads them from the parts of a frame.
    pub fn of(kind: Kind, actor: ActorType, body: &[u8], payloads: &[PayloadRef]) -> Self {
        let mut facts = Self::default();
        facts.say(FactField::Kind, kind.as_str());
        facts.say(FactField::Actor, actor.as_str());
        let named = match kind {
            Kind::Session => {
                facts.session(body);
                None
            }
            Kind::ToolCall => Some(("name", FactField::Tool)),
            Kind::GateResult => Some(("name", FactField::Gate)),
            Kind::Turn | Kind::ModelCall | Kind::ModelResult => Some(("model", FactField::Model)),
            Kind::FileVersion => Some(("path", FactField::File)),
            _ => None,
        };
        if let Some((member, field)) = named {
            let members = json::members(body, json::Limits::FRAME).unwrap_or_default();
            facts.name = text(&members, member).map(|name| value(&name));
            if let Some(name) = facts.name.clone() {
                facts.say(field, name);
            }
            if kind == Kind::GateResult {
                facts.verdict =
                    text(&members, "verdict").and_then(|word| Verdict::from_word(&word));
            }
        }
        if let Some(verdict) = facts.verdict {
            facts.say(FactField::Verdict, verdict.as_str());
            if let (Verdict::Fail | Verdict::Error, Some(gate)) = (verdict, facts.name.clone()) {
                facts.say(FactField::FailedGate, gate);
            }
        }
        for payload in payloads {
            facts.say(FactField::Tier, payload.tier.to_string());
            let redactions = payload.redactions.as_deref().unwrap_or_default();
            for redaction in redactions {
                facts.say(FactField::Redaction, value(&redaction.kind));
            }
        }
        facts
    }

    fn session(&mut self, body: &[u8]) {
        let members = json::members(body, json::Limits::FRAME).unwrap_or_default();
        for (member, field) in [
            ("agent", FactField::Agent),
            ("release", FactField::Release),
            ("profile", FactField::Profile),
        ] {
            if let Some(said) = text(&members, member) {
                self.say(field, value(&said));
            }
        }
        let labels = members.iter().find(|member| member.name == "labels");
        let labels = labels.map(|labels| json::elements(labels.raw, json::Limits::FRAME));
        for label in labels.into_iter().flatten().flatten().take(LABELS) {
            if let Ok(label) = json::string(label) {
                self.say(FactField::Label, value(&label));
            }
        }
    }

    fn say(&mut self, field: FactField, value: impl Into<Cow<'static, str>>) {
        let value = value.into();
        let fact = Fact { field, value };
        if !self.of_run.contains(&fact) {
            self.of_run.push(fact);
        }
    }
}

fn text(members: &[json::Member<'_>], name: &str) -> Option<String> {
    let member = members.iter().find(|member| member.name == name)?;
    json::string(member.raw).ok()
}

/// A value as it is kept for looking it up: itself, or where it is longer than 200 bytes or has a U+0000 its beginning (at
/// most 120 bytes), `#` and its SHA-256. So every value is found by all of itself, and no index is given one that is too long.
pub fn value(said: &str) -> String {
    let nul = said.find('\0');
    if said.len() <= WHOLE && nul.is_none() {
        return said.to_owned();
    }
    let end = said.floor_char_boundary(BEGINNING.min(nul.unwrap_or(BEGINNING)));
    format!("{}#{}", &said[..end], Hash::of(&[said.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn of(kind: Kind, body: &str) -> Facts {
        Facts::of(kind, ActorType::Agent, body.as_bytes(), &[])
    }

    fn said(facts: &Facts, field: FactField) -> Vec<&str> {
        let of_field = facts.of_run.iter().filter(|fact| fact.field == field);
        of_field.map(|fact| &*fact.value).collect()
    }

    #[test]
    fn frames_say_what_they_are_about() {
        for (kind, body, name, field) in [
            (
                Kind::ToolCall,
                r#"{"attempt":1,"name":"bash"}"#,
                Some("bash"),
                FactField::Tool,
            ),
            (
                Kind::ModelCall,
                r#"{"model":"m-1"}"#,
                Some("m-1"),
                FactField::Model,
            ),
            (
                Kind::ModelResult,
                r#"{"model":"m-1"}"#,
                Some("m-1"),
                FactField::Model,
            ),
            (
                Kind::Turn,
                r#"{"label":"x","model":"m-1"}"#,
                Some("m-1"),
                FactField::Model,
            ),
            (
                Kind::FileVersion,
                r#"{"path":"src/a.rs"}"#,
                Some("src/a.rs"),
                FactField::File,
            ),
            (Kind::ToolCall, r#"{"name":7}"#, None, FactField::Tool),
            (Kind::ToolCall, "{}", None, FactField::Tool),
            (
                Kind::Observation,
                r#"{"name":"bash"}"#,
                None,
                FactField::Tool,
            ),
        ] {
            let facts = of(kind, body);
            assert_eq!(facts.name.as_deref(), name, "{kind} {body}");
            assert_eq!(
                said(&facts, field),
                name.into_iter().collect::<Vec<_>>(),
                "{kind} {body}"
            );
            assert_eq!(said(&facts, FactField::Kind), [kind.as_str()]);
            assert_eq!(said(&facts, FactField::Actor), ["agent"]);
        }
    }

    #[test]
    fn a_gate_that_failed_is_named() {
        for (body, verdict, failed) in [
            (
                r#"{"name":"tests","verdict":"pass"}"#,
                Some(Verdict::Pass),
                vec![],
            ),
            (
                r#"{"name":"tests","verdict":"fail"}"#,
                Some(Verdict::Fail),
                vec!["tests"],
            ),
            (
                r#"{"name":"tests","verdict":"error"}"#,
                Some(Verdict::Error),
                vec!["tests"],
            ),
            (
                r#"{"name":"tests","verdict":"skipped"}"#,
                Some(Verdict::Skipped),
                vec![],
            ),
            (r#"{"verdict":"fail"}"#, Some(Verdict::Fail), vec![]),
            (r#"{"name":"tests","verdict":"maybe"}"#, None, vec![]),
        ] {
            let facts = of(Kind::GateResult, body);
            assert_eq!(facts.verdict, verdict, "{body}");
            assert_eq!(said(&facts, FactField::FailedGate), failed, "{body}");
        }
    }

    #[test]
    fn a_session_says_what_the_run_is() {
        let facts = of(
            Kind::Session,
            r#"{"agent":"coder","labels":["env:prod","env:prod",3,"team:a"],"profile":"coding","release":"r1"}"#,
        );
        assert_eq!(said(&facts, FactField::Agent), ["coder"]);
        assert_eq!(said(&facts, FactField::Release), ["r1"]);
        assert_eq!(said(&facts, FactField::Profile), ["coding"]);
        assert_eq!(said(&facts, FactField::Label), ["env:prod", "team:a"]);
    }

    #[test]
    fn long_values_are_told_apart_and_short() {
        let (whole, long) = ("x".repeat(WHOLE), "x".repeat(WHOLE + 1));
        assert_eq!(value(&whole), whole);
        assert_eq!(value(&long).len(), BEGINNING + 65);
        assert_ne!(value(&long), value(&"x".repeat(WHOLE + 2)));
        let wide = "ü".repeat(150);
        assert!(value(&wide).starts_with("üü") && value(&wide).len() <= WHOLE);
        assert!(value("a\0b").starts_with("a#") && !value("a\0b").contains('\0'));
    }
}
