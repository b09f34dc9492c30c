//! Facts of frames and of runs, as columns have them. They follow from the frames (core `facts`).

use onrecord_core::facts::{FactField, Verdict};
use onrecord_core::frame::Kind;

/// `run_facts.field` of a field. A number that was written once keeps its meaning.
pub(crate) const fn field_no(field: FactField) -> i16 {
    match field {
        FactField::Agent => 1,
        FactField::Release => 2,
        FactField::Profile => 3,
        FactField::Label => 4,
        FactField::Model => 5,
        FactField::Tool => 6,
        FactField::Gate => 7,
        FactField::Verdict => 8,
        FactField::FailedGate => 9,
        FactField::Kind => 10,
        FactField::Redaction => 11,
        FactField::Tier => 12,
        FactField::Actor => 13,
        FactField::File => 14,
    }
}

/// `frames.verdict` of a verdict.
pub(crate) const fn verdict_no(verdict: Verdict) -> i16 {
    match verdict {
        Verdict::Pass => 1,
        Verdict::Fail => 2,
        Verdict::Error => 3,
        Verdict::Skipped => 4,
    }
}

/// `frames.kind_no` of a kind.
pub(crate) const fn kind_no(kind: Kind) -> i16 {
    match kind {
        Kind::Session => 1,
        Kind::Turn => 2,
        Kind::TurnEnd => 3,
        Kind::ToolCall => 4,
        Kind::ToolResult => 5,
        Kind::GateResult => 6,
        Kind::ModelCall => 7,
        Kind::ModelResult => 8,
        Kind::Observation => 9,
        Kind::Decision => 10,
        Kind::SideEffect => 11,
        Kind::Snapshot => 12,
        Kind::FileVersion => 13,
        Kind::Retrieval => 14,
        Kind::Memory => 15,
        Kind::Context => 16,
        Kind::Outcome => 17,
        Kind::SessionEnd => 18,
    }
}
