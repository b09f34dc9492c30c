//! Facts of frames and of runs, as columns have them. They follow from the frames (core `facts`).

use super::id::Uuid;
use super::{StoreError, Tx, contradiction};
use onrecord_core::facts::{FactField, Verdict};
use onrecord_core::frame::Kind;
use onrecord_core::id::RunId;

/// What is known of runs that a seal asks for: of an actor the type, of the others that there is one.
const ASKED: [FactField; 5] = [
    FactField::Agent,
    FactField::Release,
    FactField::Profile,
    FactField::Model,
    FactField::Actor,
];

/// What frames said of runs, of the fields that a seal asks for.
pub(crate) async fn asked(
    tx: &mut Tx,
    runs: &[&RunId],
) -> Result<Vec<(RunId, FactField, String)>, StoreError> {
    let runs: Vec<Uuid> = runs.iter().map(|run| Uuid::from(*run)).collect();
    let rows: Vec<(Uuid, i16, String)> = sqlx::query_as(
        "select distinct run, field, case when field = $3 then value else '' end from run_facts
         where run = any($1) and field = any($2)",
    )
    .bind(runs)
    .bind(ASKED.map(field_no))
    .bind(field_no(FactField::Actor))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(run, number, value): (Uuid, i16, String)| {
        let field = ASKED.into_iter().find(|field| field_no(*field) == number);
        let field = field.ok_or_else(|| contradiction("run_facts", "field", number))?;
        Ok((run.into(), field, value))
    };
    rows.into_iter().map(read).collect()
}

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
        FactField::Missing => 15,
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

/// The kind of a `frames.kind_no`; none of a number that is none's.
pub(crate) fn kind_of(number: i16) -> Option<Kind> {
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    KINDS.get(place).copied()
}

/// The verdict of a `frames.verdict`; none of a number that is none's.
pub(crate) fn verdict_of(number: i16) -> Option<Verdict> {
    let mut all = Verdict::ALL.into_iter();
    all.find(|verdict| verdict_no(*verdict) == number)
}
