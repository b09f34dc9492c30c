//! Which facts a record of use should have, and which of them a run has: a list in the style of Article 12 of Regulation
//! (EU) 2024/1689. A reading above the format, frame by frame; names stand in bodies as `docs/kinds.md` has them.
//!
//! It says what was recorded. Whether a system is one that the Regulation speaks of, and what it asks of its logs, is for
//! whoever answers for the system to say: this is no legal advice, and a run that has all of it complies with nothing by that.

use crate::facts::{FactField, Facts};
use crate::frame::{ActorType, Frame, Kind, Rel, Status};
use crate::json;
use alloc::borrow::ToOwned as _;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;

/// Kinds of frames that name a model: where there is one of these, the model is asked for.
pub const OF_MODELS: [Kind; 3] = [Kind::Turn, Kind::ModelCall, Kind::ModelResult];

/// A fact that a record of use should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Required {
    /// When the use began.
    UseStarted,
    /// When it ended.
    UseEnded,
    /// Which agent.
    Agent,
    /// Which release of it.
    Release,
    /// What for.
    Purpose,
    /// Under whose mandate.
    Mandate,
    /// In which environment.
    Environment,
    /// Which models.
    Model,
    /// Which revisions of them.
    ModelRevision,
    /// What went in.
    Input,
    /// What it was compared with.
    ReferenceData,
    /// What was decided, and by whom.
    Decision,
    /// What people did.
    Oversight,
    /// What tools answered.
    ToolResults,
    /// What was changed outside.
    SideEffects,
    /// What was verified.
    Verification,
    /// What came out.
    Outcome,
    /// What the outcome rests on.
    OutcomeVerified,
    /// What went wrong.
    Errors,
    /// How long the record is kept.
    Retention,
}

/// Whether a run has a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It has.
    Recorded {
        /// The first frame that does.
        seq: u64,
    },
    /// It has not.
    Absent,
    /// Nothing in the run asks for it.
    NotApplicable,
}

/// What of a run is known without its frames: kinds are counted in its chain, and the rest are facts of the run.
#[derive(Clone, Debug, Default)]
pub struct Known {
    kinds: BTreeMap<Kind, u64>,
    fields: BTreeSet<FactField>,
    /// Whether a person wrote a frame.
    human: bool,
}

/// Reads a run frame by frame, in order.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    known: Known,
    first: BTreeMap<Required, u64>,
    /// What the run asks for, of what not every run does.
    asked: BTreeSet<Required>,
    /// Places of the gates that passed.
    passed: BTreeSet<u64>,
}

impl Required {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 20] = [
        Self::UseStarted,
        Self::UseEnded,
        Self::Agent,
        Self::Release,
        Self::Purpose,
        Self::Mandate,
        Self::Environment,
        Self::Model,
        Self::ModelRevision,
        Self::Input,
        Self::ReferenceData,
        Self::Decision,
        Self::Oversight,
        Self::ToolResults,
        Self::SideEffects,
        Self::Verification,
        Self::Outcome,
        Self::OutcomeVerified,
        Self::Errors,
        Self::Retention,
    ];

    /// Those that are known of a sealed run without its frames ([`Known::missing`]); the others are in the full reading only.
    pub const AT_SEAL: [Self; 10] = [
        Self::UseEnded,
        Self::Agent,
        Self::Release,
        Self::Purpose,
        Self::Model,
        Self::Decision,
        Self::Oversight,
        Self::ToolResults,
        Self::Verification,
        Self::Outcome,
    ];

    /// The word in reports and filters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UseStarted => "use_started",
            Self::UseEnded => "use_ended",
            Self::Agent => "agent",
            Self::Release => "release",
            Self::Purpose => "purpose",
            Self::Mandate => "mandate",
            Self::Environment => "environment",
            Self::Model => "model",
            Self::ModelRevision => "model_revision",
            Self::Input => "input",
            Self::ReferenceData => "reference_data",
            Self::Decision => "decision",
            Self::Oversight => "oversight",
            Self::ToolResults => "tool_results",
            Self::SideEffects => "side_effects",
            Self::Verification => "verification",
            Self::Outcome => "outcome",
            Self::OutcomeVerified => "outcome_verified",
            Self::Errors => "errors",
            Self::Retention => "retention",
        }
    }

    /// The provision in whose style it is asked for.
    pub const fn source(self) -> &'static str {
        match self {
            Self::UseStarted | Self::UseEnded => "Art. 12(3)(a)",
            Self::Agent => "Art. 12(2)(c), 26(5)",
            Self::Release => "Art. 12(2)(a); Annex IV(1)(c)",
            Self::Purpose => "Art. 12(2)(c); Annex IV(1)(a)",
            Self::Mandate => "Art. 12(2)(c), 26(1)",
            Self::Environment => "Art. 12(2)(a); Annex IV(1)(b), (e)",
            Self::Model | Self::ModelRevision => "Art. 12(2)(a); Annex IV(2)(a)",
            Self::Input => "Art. 12(3)(c)",
            Self::ReferenceData => "Art. 12(3)(b)",
            Self::Decision => "Art. 12(1), 12(2)(b)",
            Self::Oversight => "Art. 12(3)(d), 14(5)",
            Self::ToolResults | Self::SideEffects => "Art. 12(2)(a), 79(1)",
            Self::Verification => "Art. 12(2)(b), 72; Annex IV(2)(g)",
            Self::Outcome => "Art. 12(2)(b), 72",
            Self::OutcomeVerified => "Art. 12(2)(b), 72; Annex IV(2)(g)",
            Self::Errors => "Art. 12(2)(a), 79(1)",
            Self::Retention => "Art. 19(1), 26(6)",
        }
    }

    /// How a run records it.
    pub const fn how(self) -> &'static str {
        match self {
            Self::UseStarted => "the session frame, with the store's time",
            Self::UseEnded => "a session_end, with the store's time",
            Self::Agent => "session.body.agent",
            Self::Release => "session.body.release",
            Self::Purpose => "session.body.profile",
            Self::Mandate => "session.body.mandate",
            Self::Environment => {
                "session.body.pins: what the run stands on, such as toolchain, image, repository"
            }
            Self::Model => {
                "model in the body of a turn, model_call or model_result; asked for where there is one"
            }
            Self::ModelRevision => {
                "revision in the body of a model_call, not_identifiable included; asked for where there is one"
            }
            Self::Input => "a payload of a session, turn, model_call or observation",
            Self::ReferenceData => "index in the body of a retrieval; asked for where there is one",
            Self::Decision => "a decision, whose actor is who made it",
            Self::Oversight => {
                "a frame whose actor is a human, such as a decision or a gate_result"
            }
            Self::ToolResults => {
                "as many tool_results as tool_calls; asked for where there is a call"
            }
            Self::SideEffects => {
                "operation in the body of a side_effect; asked for where there is one"
            }
            Self::Verification => "a gate_result",
            Self::Outcome => "an outcome",
            Self::OutcomeVerified => {
                "an outcome that is linked with verified_by to a gate_result that passed; asked for where one says completed"
            }
            Self::Errors => {
                "a verdict fail or error, a tool_result that failed, or an outcome that did; where nothing says so, nothing is asked for"
            }
            Self::Retention => {
                "session.body.retention, which the store adds where the writer leaves it out"
            }
        }
    }
}

impl State {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded { .. } => "recorded",
            Self::Absent => "absent",
            Self::NotApplicable => "not_applicable",
        }
    }
}

/// Whether a fact that is known without frames is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Recorded,
    Absent,
    NotAsked,
}

impl Seen {
    fn of(recorded: bool) -> Self {
        if recorded {
            Self::Recorded
        } else {
            Self::Absent
        }
    }
}

impl Known {
    /// Frames of each kind, as the chain has counted them.
    pub fn of(kinds: &BTreeMap<Kind, u64>) -> Self {
        Self {
            kinds: kinds.clone(),
            ..Self::default()
        }
    }

    /// Something that a frame says of the run.
    pub fn add(&mut self, field: FactField, value: &str) {
        self.fields.insert(field);
        self.human |= field == FactField::Actor && value == ActorType::Human.as_str();
    }

    /// What the run lacks, of what is known without its frames.
    pub fn missing(&self) -> impl Iterator<Item = Required> {
        let all = Required::ALL.into_iter();
        all.filter(|fact| self.state(*fact) == Some(Seen::Absent))
    }

    fn count(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or(0)
    }

    /// `None` where it hangs on what frames say besides.
    fn state(&self, fact: Required) -> Option<Seen> {
        let field = |field| Seen::of(self.fields.contains(&field));
        let kind = |kind| Seen::of(self.count(kind) > 0);
        Some(match fact {
            Required::UseEnded => kind(Kind::SessionEnd),
            Required::Agent => field(FactField::Agent),
            Required::Release => field(FactField::Release),
            Required::Purpose => field(FactField::Profile),
            Required::Model if OF_MODELS.iter().all(|kind| self.count(*kind) == 0) => {
                Seen::NotAsked
            }
            Required::Model => field(FactField::Model),
            Required::Decision => kind(Kind::Decision),
            Required::Oversight => Seen::of(self.human),
            Required::ToolResults if self.count(Kind::ToolCall) == 0 => Seen::NotAsked,
            // Which calls have no answer is in the run's account; that some have none, their numbers say.
            Required::ToolResults => {
                Seen::of(self.count(Kind::ToolResult) >= self.count(Kind::ToolCall))
            }
            Required::Verification => kind(Kind::GateResult),
            Required::Outcome => kind(Kind::Outcome),
            _ => return None,
        })
    }
}

impl Coverage {
    /// Before the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next frame of the run.
    pub fn read(&mut self, frame: &Frame<'_>) {
        let (kind, seq) = (frame.kind, frame.seq);
        *self.known.kinds.entry(kind).or_default() += 1;
        let facts = Facts::of(
            kind,
            frame.actor.kind,
            frame.body.as_bytes(),
            frame.payloads(),
        );
        for fact in &facts.of_run {
            self.known.add(fact.field, &fact.value);
            let required = match fact.field {
                FactField::Agent => Required::Agent,
                FactField::Release => Required::Release,
                FactField::Profile => Required::Purpose,
                FactField::Model => Required::Model,
                FactField::FailedGate => Required::Errors,
                FactField::Actor if frame.actor.kind == ActorType::Human => Required::Oversight,
                _ => continue,
            };
            self.note(required, seq, true);
        }
        if facts.verdict == Some(crate::facts::Verdict::Pass) {
            self.passed.insert(seq);
        }
        let takes_in = [
            Kind::Session,
            Kind::Turn,
            Kind::ModelCall,
            Kind::Observation,
        ];
        self.note(
            Required::Input,
            seq,
            takes_in.contains(&kind) && !frame.payloads().is_empty(),
        );
        self.read_kind(frame);
    }

    fn read_kind(&mut self, frame: &Frame<'_>) {
        let (seq, body) = (frame.seq, Body::of(frame));
        match frame.kind {
            Kind::Session => {
                self.note(Required::UseStarted, seq, true);
                self.note(Required::Mandate, seq, body.has("mandate"));
                self.note(Required::Environment, seq, body.has("pins"));
                self.note(Required::Retention, seq, body.has("retention"));
            }
            Kind::SessionEnd => self.note(Required::UseEnded, seq, true),
            Kind::ModelCall => self.ask(Required::ModelRevision, seq, body.has("revision")),
            Kind::Retrieval => self.ask(Required::ReferenceData, seq, body.has("index")),
            Kind::SideEffect => self.ask(Required::SideEffects, seq, body.has("operation")),
            Kind::Decision => self.note(Required::Decision, seq, true),
            Kind::GateResult => self.note(Required::Verification, seq, true),
            Kind::ToolResult => {
                self.note(Required::ToolResults, seq, true);
                let failed = matches!(body.text("status").as_deref(), Some("error" | "denied"));
                self.note(Required::Errors, seq, failed);
            }
            Kind::Outcome => {
                self.note(Required::Outcome, seq, true);
                let status = frame.status();
                self.note(Required::Errors, seq, status == Ok(Status::Failed));
                if status == Ok(Status::Completed) {
                    let mut links = frame.links().iter();
                    let verified = links.any(|link| {
                        let gate = link.seq.filter(|_| link.rel == Rel::VerifiedBy);
                        gate.is_some_and(|gate| self.passed.contains(&gate))
                    });
                    self.ask(Required::OutcomeVerified, seq, verified);
                }
            }
            _ => {}
        }
    }

    /// Each fact in the order of [`Required::ALL`], once the last frame was read.
    pub fn finish(&self) -> Vec<(Required, State)> {
        let all = Required::ALL.into_iter();
        all.map(|fact| (fact, self.state(fact))).collect()
    }

    /// What is known without the frames, which are read.
    pub fn known(&self) -> &Known {
        &self.known
    }

    fn state(&self, fact: Required) -> State {
        let first = self.first.get(&fact).copied();
        let recorded = first.map_or(State::Absent, |seq| State::Recorded { seq });
        match self.known.state(fact) {
            Some(Seen::NotAsked) => State::NotApplicable,
            Some(Seen::Absent) => State::Absent,
            Some(Seen::Recorded) => recorded,
            None if first.is_none() && fact.is_only_asked_for() && !self.asked.contains(&fact) => {
                State::NotApplicable
            }
            None => recorded,
        }
    }

    /// A frame records a fact, if it does.
    fn note(&mut self, fact: Required, seq: u64, does: bool) {
        if does {
            self.first.entry(fact).or_insert(seq);
        }
    }

    /// A frame asks for a fact, and records it, if it does.
    fn ask(&mut self, fact: Required, seq: u64, does: bool) {
        self.asked.insert(fact);
        self.note(fact, seq, does);
    }
}

impl Required {
    /// Whether not every run has to have it. Errors are never asked for.
    const fn is_only_asked_for(self) -> bool {
        matches!(
            self,
            Self::ModelRevision
                | Self::ReferenceData
                | Self::SideEffects
                | Self::OutcomeVerified
                | Self::Errors
        )
    }
}

/// The members of a body.
struct Body<'a>(Vec<json::Member<'a>>);

impl<'a> Body<'a> {
    fn of(frame: &Frame<'a>) -> Self {
        Self(json::members(frame.body.as_bytes(), json::Limits::FRAME).unwrap_or_default())
    }

    fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let mut members = self.0.iter();
        members.find(|one| one.name == name).map(|one| one.raw)
    }

    /// Whether it says something by a name: neither null nor empty.
    fn has(&self, name: &str) -> bool {
        let nothing: [&[u8]; 4] = [b"null", b"\"\"", b"{}", b"[]"];
        self.raw(name).is_some_and(|raw| !nothing.contains(&raw))
    }

    fn text(&self, name: &str) -> Option<String> {
        json::string(self.raw(name)?)
            .ok()
            .map(|text| text.to_owned())
    }
}
