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

/// Kinds in the order of `frames.kind_no`, which counts from 1.
pub(crate) const KINDS: [Kind; 18] = [
    Kind::Session,
    Kind::Turn,
    Kind::TurnEnd,
    Kind::ToolCall,
    Kind::ToolResult,
    Kind::GateResult,
    Kind::ModelCall,
    Kind::ModelResult,
    Kind::Observation,
    Kind::Decision,
    Kind::SideEffect,
    Kind::Snapshot,
    Kind::FileVersion,
    Kind::Retrieval,
    Kind::Memory,
    Kind::Context,
    Kind::Outcome,
    Kind::SessionEnd,
];

/// `frames.kind_no` of a kind.
pub(crate) fn kind_no(kind: Kind) -> i16 {
    let found = (1..).zip(KINDS).find(|(_, one)| *one == kind);
    found.map_or(0, |(no, _)| no)
}
