//! Fields that conditions can be about, and where each has its values.
//!
//! What a run's frames say is looked up in `run_facts`, by field and value. All other fields are columns, of the row that
//! is asked about or of its run.

use super::condition::Scope;
use super::said::Said;
use crate::store::facts::KINDS;
use onrecord_core::coverage::Required;
use onrecord_core::facts::FactField;
use onrecord_core::frame::{ActorType, Kind};

/// What a field's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from 0.
    Number,
    /// A time.
    Time,
    /// The id of a run.
    Run,
}

/// A field of rows that conditions can be about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// As people write it.
    pub(crate) name: &'static str,
    pub(crate) kind: FieldType,
    pub(super) source: Source,
}

/// Where a field has its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An expression of the run's row, which is called `r`; null for none.
    Run(&'static str),
    /// An expression of the frame's row, which is called `f`.
    Frame(&'static str),
    /// An expression of the payload's row, which is called `p`.
    Payload(&'static str),
    /// The run's id, which rows of each sort have.
    RunId,
    /// What is said of the run in a table of its own.
    Said(Said),
    /// Whether anything holds it, which follows from that.
    Held,
    /// An expression of what the sweeper knows of the run, `q`.
    Retention(&'static str),
    /// The kind of a frame.
    Kind,
    /// What frames of these kinds are about.
    Name(&'static [Kind]),
    /// What a gate said.
    Verdict,
    /// The gate that said `fail` or `error`.
    FailedGate,
}

/// Expressions that the search knows by name, since it answers them by other means than by looking at each row.
pub(super) const OPENED_AT: Source = Source::Run("r.opened_at");
pub(super) const SEALED_AT: Source = Source::Run("r.sealed_at");
pub(super) const LAST_AT: Source = Source::Run("r.last_at");
pub(super) const RUN_NO: Source = Source::Run("r.run_no");
pub(super) const OUTCOME: Source = Source::Run("coalesce(r.outcome, 'unknown')");
pub(super) const STATUS: Source = Source::Run(
    "case when r.sealed_at is not null then 'sealed' when r.ended then 'ended' else 'open' end",
);
pub(super) const EXPIRES_AT: Source = Source::Retention("nullif(q.due, 'infinity')");
pub(super) const AT: Source = Source::Frame("f.at");
pub(super) const TIER: Source = Source::Payload("p.tier");

const KIND_WORDS: [&str; KINDS.len()] = {
    let mut words = [""; KINDS.len()];
    let mut place = 0;
    while place < KINDS.len() {
        words[place] = KINDS[place].as_str();
        place += 1;
    }
    words
};
const ACTOR_WORDS: [&str; ActorType::ALL.len()] = {
    let mut words = [""; ActorType::ALL.len()];
    let mut place = 0;
    while place < ActorType::ALL.len() {
        words[place] = ActorType::ALL[place].as_str();
        place += 1;
    }
    words
};
const MISSING_WORDS: [&str; Required::AT_SEAL.len()] = {
    let mut words = [""; Required::AT_SEAL.len()];
    let mut place = 0;
    while place < words.len() {
        words[place] = Required::AT_SEAL[place].as_str();
        place += 1;
    }
    words
};
const KIND: FieldType = FieldType::Word(&KIND_WORDS);
const VERDICT: FieldType = FieldType::Word(&["pass", "fail", "error", "skipped"]);
const OUTCOMES: FieldType = FieldType::Word(&["completed", "failed", "cancelled", "unknown"]);
const STATUSES: FieldType = FieldType::Word(&["open", "ended", "sealed"]);

/// Fields of runs.
pub(crate) static RUN_FIELDS: &[Field] = &[
    field("run", FieldType::Run, Source::RunId),
    field("run_no", FieldType::Number, RUN_NO),
    fact("agent", FieldType::Text, FactField::Agent),
    fact("release", FieldType::Text, FactField::Release),
    fact("profile", FieldType::Text, FactField::Profile),
    fact("label", FieldType::Text, FactField::Label),
    fact("model", FieldType::Text, FactField::Model),
    fact("tool", FieldType::Text, FactField::Tool),
    fact("gate", FieldType::Text, FactField::Gate),
    fact("gate.verdict", VERDICT, FactField::Verdict),
    fact("gate.failed", FieldType::Text, FactField::FailedGate),
    fact("kind", KIND, FactField::Kind),
    fact("file", FieldType::Text, FactField::File),
    fact("actor", FieldType::Word(&ACTOR_WORDS), FactField::Actor),
    fact(
        "tier",
        FieldType::Word(&["0", "1", "2", "3"]),
        FactField::Tier,
    ),
    fact("redaction", FieldType::Text, FactField::Redaction),
    fact(
        "missing",
        FieldType::Word(&MISSING_WORDS),
        FactField::Missing,
    ),
    field("status", STATUSES, STATUS),
    field("outcome", OUTCOMES, OUTCOME),
    field("size", FieldType::Number, Source::Run("r.size")),
    field("erased", FieldType::Number, Source::Run("r.erased")),
    field("opened_at", FieldType::Time, OPENED_AT),
    field("last_at", FieldType::Time, LAST_AT),
    field("sealed_at", FieldType::Time, SEALED_AT),
    field("flag", FieldType::Text, Source::Said(Said::Flag)),
    field("incident", FieldType::Text, Source::Said(Said::Incident)),
    field("hold", FieldType::Text, Source::Said(Said::Hold)),
    field("held", FieldType::Word(&["yes", "no"]), Source::Held),
    field("schedule", FieldType::Text, Source::Retention("q.schedule")),
    field("expires_at", FieldType::Time, EXPIRES_AT),
];

/// Fields of runs that rules of retention may ask for. They are compared in memory, with what was read of the run.
pub(crate) static RULE_FIELDS: &[Field] = &[
    fact("agent", FieldType::Text, FactField::Agent),
    fact("profile", FieldType::Text, FactField::Profile),
    fact("release", FieldType::Text, FactField::Release),
    fact("label", FieldType::Text, FactField::Label),
    field("outcome", OUTCOMES, OUTCOME),
    field("flag", FieldType::Text, Source::Run("null")),
    fact("gate.failed", FieldType::Text, FactField::FailedGate),
];

/// Fields of frames.
pub(crate) static FRAME_FIELDS: &[Field] = &[
    field("run", FieldType::Run, Source::RunId),
    field("seq", FieldType::Number, Source::Frame("f.seq")),
    field("at", FieldType::Time, AT),
    field("turn", FieldType::Number, Source::Frame("f.turn")),
    field("answers", FieldType::Number, Source::Frame("f.answers")),
    field("key", FieldType::Text, Source::Frame("f.key")),
    field("kind", KIND, Source::Kind),
    field(
        "model",
        FieldType::Text,
        Source::Name(&[Kind::Turn, Kind::ModelCall, Kind::ModelResult]),
    ),
    field("tool", FieldType::Text, Source::Name(&[Kind::ToolCall])),
    field("gate", FieldType::Text, Source::Name(&[Kind::GateResult])),
    field("gate.verdict", VERDICT, Source::Verdict),
    field("gate.failed", FieldType::Text, Source::FailedGate),
    field("file", FieldType::Text, Source::Name(&[Kind::FileVersion])),
];

/// Fields of the records of payloads.
pub(crate) static PAYLOAD_FIELDS: &[Field] = &[
    field("run", FieldType::Run, Source::RunId),
    field("seq", FieldType::Number, Source::Payload("p.seq")),
    field("place", FieldType::Number, Source::Payload("p.place")),
    field("media", FieldType::Text, Source::Payload("p.media")),
    field("tier", FieldType::Number, TIER),
    field("size", FieldType::Number, Source::Payload("p.size")),
    field(
        "state",
        FieldType::Word(&["stored", "kept", "erased"]),
        Source::Payload("p.state"),
    ),
];

/// Fields that lists ask about without a filter.
pub(crate) static RUN_AGENT: Field = fact("agent", FieldType::Text, FactField::Agent);
pub(crate) static RUN_OUTCOME: Field = field("outcome", OUTCOMES, OUTCOME);
pub(crate) static RUN_OPENED_AT: Field = field("opened_at", FieldType::Time, OPENED_AT);
pub(crate) static RUN_SEALED_AT: Field = field("sealed_at", FieldType::Time, SEALED_AT);

/// What a frame is about, where its kind is known.
pub(super) static NAME: Field = field("name", FieldType::Text, Source::Frame("f.name"));
/// The number of a frame's verdict.
pub(super) static VERDICT_NO: Field =
    field("verdict_no", FieldType::Number, Source::Frame("f.verdict"));
/// The number of a frame's kind.
pub(super) static KIND_NO: Field = field("kind_no", FieldType::Number, Source::Frame("f.kind_no"));
/// Fields by which the search finds what conditions of other fields imply.
pub(super) static FRAME_AT: Field = field("at", FieldType::Time, AT);
/// The holds of a run.
pub(super) static HOLD: Field = field("hold", FieldType::Text, Source::Said(Said::Hold));

impl Field {
    /// Whether rows are found by each value of it, rather than looked at one after the other. By what is said of runs they are
    /// found by several values at once.
    pub(super) fn is_indexed(&self) -> bool {
        matches!(
            self.source,
            Source::RunId
                | Source::Kind
                | Source::Name(_)
                | Source::Verdict
                | Source::FailedGate
                | TIER
                | OUTCOME
                | STATUS
        ) || [&NAME, &VERDICT_NO].contains(&self)
    }
}

impl Source {
    /// The expression that has the value of a row, null for none. What the kind of a frame decides was answered before.
    pub(super) fn expression(self, scope: Scope<'_>) -> String {
        match self {
            Self::Run(sql) | Self::Frame(sql) | Self::Payload(sql) => sql.to_owned(),
            Self::RunId => scope.run.to_owned(),
            Self::Retention(value) => {
                format!(
                    "(select {value} from run_retention q where q.run = {})",
                    scope.run
                )
            }
            Self::Said(_)
            | Self::Held
            | Self::Kind
            | Self::Name(_)
            | Self::Verdict
            | Self::FailedGate => "null".to_owned(),
        }
    }
}

const fn field(name: &'static str, kind: FieldType, source: Source) -> Field {
    Field { name, kind, source }
}

const fn fact(name: &'static str, kind: FieldType, fact: FactField) -> Field {
    field(name, kind, Source::Said(Said::Fact(fact)))
}
