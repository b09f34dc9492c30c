//! A batch of runs written: one transaction, in the way of `record::joint`, but for the clock.

use super::SeedError;
use super::compose::{Batch, Composed};
use crate::ledger::{self, Unwritten};
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::append::RunWrite;
use crate::store::keys::Added;
use crate::store::runs::{NewRun, RunRow, SealedRow};
use crate::store::tenants::LockedTenant;
use crate::store::{StoreError, Tx};
use crate::vault::TenantKeys;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{FRAMES_SUBJECT, Predicate, Previous};
use onrecord_core::timestamp::Timestamp;

/// Where the entries of a run are.
#[derive(Clone, Copy, Debug, Default)]
struct Stated {
    open_index: u64,
    /// Time and index of the seal.
    seal: Option<(Timestamp, u64)>,
}

/// Writes the runs of a batch, and returns how many of them are sealed.
pub(super) async fn write(
    recorder: &Recorder,
    (tenant, keys): (&TenantId, &TenantKeys),
    batch: &Batch,
) -> Result<u64, SeedError> {
    let wrapped = batch.runs.iter().map(|run| (run.run(), &run.keys[..]));
    // A crash after it leaves keys that no run uses.
    if recorder
        .store
        .add_run_keys(tenant, &Vec::from_iter(wrapped))
        .await?
        != Added::Done
    {
        return Err(SeedError::Rotated(tenant.clone()));
    }
    let mut tx = recorder.store.begin(tenant).await?;
    let mut locked = store::tenants::lock(&mut tx, tenant).await?;
    let mut unwritten = Unwritten::begin(&locked, &recorder.vault).await?;
    let stated = state(&mut unwritten, &mut locked, &batch.runs)?;
    insert(&mut tx, &batch.runs, &stated).await?;
    unwritten.write(&mut tx, &locked).await?;
    let note = ledger::checkpoint(&mut tx, &locked, keys).await?;
    let sealed = seal(&mut tx, &locked, &note, (&batch.runs, &stated)).await?;
    store::tenants::update_runs(&mut tx, &locked).await?;
    // A crash before this line leaves nothing of the batch, after it all.
    commit(tx).await?;
    Ok(sealed)
}

/// Gives openings and seals their places in the ledger, in the order of their times.
fn state(
    unwritten: &mut Unwritten,
    tenant: &mut LockedTenant,
    runs: &[Composed],
) -> Result<Vec<Stated>, SeedError> {
    let mut events: Vec<(Timestamp, bool, usize)> = Vec::with_capacity(2 * runs.len());
    for (index, run) in runs.iter().enumerate() {
        events.push((run.open.0.at, false, index));
        events.extend(run.sealed_at.map(|at| (at, true, index)));
    }
    events.sort_unstable();
    let mut stated = vec![Stated::default(); runs.len()];
    for (_, is_seal, index) in events {
        let run = &runs[index];
        if !is_seal {
            let open = Predicate::RunOpen(run.open.0.clone());
            let subject = Some((FRAMES_SUBJECT, run.open.1));
            stated[index].open_index = unwritten.push(tenant, &open, subject)?.index;
            tenant.next_run_no += 1;
            continue;
        }
        let row = row(run, stated[index].open_index);
        let statement = run.closed.statement(&row, tenant)?;
        let at = statement.sealed_at;
        let subject = Some((FRAMES_SUBJECT, run.closed.chain.file_digest()));
        let entry = unwritten.push(tenant, &Predicate::RunSeal(statement), subject)?;
        stated[index].seal = Some((at, entry.index));
        let hash = entry.leaf;
        tenant.previous_seal = Some(Previous {
            hash,
            run: run.run().clone(),
        });
    }
    Ok(stated)
}

/// The row of a run as a seal finds it.
fn row(run: &Composed, open_index: u64) -> RunRow {
    RunRow {
        run: run.run().clone(),
        tenant: run.empty.tenant().clone(),
        run_no: run.open.0.run_no,
        agent: None,
        opened_at: run.open.0.at,
        open_index,
        chain: run.empty.clone(),
        sealed: None,
        key_version: 0,
        erased: 0,
    }
}

/// Writes the rows of the runs, and all of their frames.
async fn insert(tx: &mut Tx, runs: &[Composed], stated: &[Stated]) -> Result<(), StoreError> {
    let new = runs.iter().zip(stated).map(|(run, stated)| NewRun {
        chain: &run.empty,
        opened_at: run.open.0.at,
        run_no: run.open.0.run_no,
        open_key: None,
        agent: Some(run.agent),
        open_index: stated.open_index,
    });
    store::runs::insert(tx, &Vec::from_iter(new)).await?;
    let payloads: Vec<Vec<_>> = runs
        .iter()
        .map(|run| run.payloads.iter().map(|payload| payload.row()).collect())
        .collect();
    let writes = runs.iter().zip(&payloads).map(|(run, payloads)| RunWrite {
        before: run.closed.before,
        chain: &run.closed.chain,
        frames: &run.closed.frames,
        payloads,
        nodes: &run.closed.nodes,
        facts: run.facts.iter().collect(),
        key_version: None,
    });
    store::append::write_locked(tx, &mut Vec::from_iter(writes)).await
}

/// Makes the proofs of seals under the checkpoint that has them, and keeps them with their runs.
async fn seal(
    tx: &mut Tx,
    tenant: &LockedTenant,
    note: &str,
    (runs, stated): (&[Composed], &[Stated]),
) -> Result<u64, RecordError> {
    let seals = runs.iter().zip(stated);
    let seals: Vec<(&RunId, Timestamp, u64)> = seals
        .filter_map(|(run, stated)| stated.seal.map(|(at, index)| (run.run(), at, index)))
        .collect();
    let indexes: Vec<u64> = seals.iter().map(|(.., index)| *index).collect();
    if indexes.is_empty() {
        return Ok(0);
    }
    let size = tenant.ledger.size();
    let proofs = ledger::proofs(tx, &tenant.tenant, &indexes, (size, note)).await?;
    let rows = seals
        .into_iter()
        .zip(proofs)
        .map(|((run, at, index), proof)| {
            let row = SealedRow { at, index, proof };
            (run.clone(), row)
        });
    store::runs::update_seals(tx, &Vec::from_iter(rows)).await?;
    Ok(indexes.len() as u64)
}
