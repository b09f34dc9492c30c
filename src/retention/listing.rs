//! Records of payloads that were erased before there were any: filled in from what frames commit to and what the ledger says was
//! erased, some runs at a time.

use crate::ledger::Erasures;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::listing::{ErasedRow, UnlistedRun};
use onrecord_core::frame::Frame;
use onrecord_core::id::{RunId, TenantId};

/// Runs of one call: erasures that are asked for meanwhile do not wait long.
const RUNS: u32 = 200;
/// Frames that are read at once.
const PAGE: u64 = 1_000;

impl Recorder {
    /// Goes on with the oldest erasure of a tenant whose payloads are not listed. Only whoever has the turn to erase does.
    pub(super) async fn list_erased(&self, tenant: &TenantId) -> Result<(), RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let found = store::listing::unlisted(&mut tx, tenant, RUNS).await?;
        commit(tx).await?;
        let Some((id, runs)) = found else {
            return Ok(());
        };
        for one in &runs {
            self.go_on()?;
            let listed = self.list_erased_of(tenant, &id, one).await?;
            let mut tx = self.store.begin(tenant).await?;
            // A crash before this line leaves rows of the run, and whoever goes through it again adds none twice.
            store::listing::listed(&mut tx, &id, Some(&one.run)).await?;
            commit(tx).await?;
            tracing::debug!(run = %one.run, listed, "payloads that were erased have records");
        }
        if runs.len() < RUNS as usize {
            let mut tx = self.store.begin(tenant).await?;
            store::listing::listed(&mut tx, &id, None).await?;
            commit(tx).await?;
            tracing::info!(%tenant, erasure = %id, "payloads of an earlier erasure have their records");
        }
        Ok(())
    }

    async fn list_erased_of(
        &self,
        tenant: &TenantId,
        id: &RunId,
        of: &UnlistedRun,
    ) -> Result<u64, RecordError> {
        let (mut from, mut listed) = (0, 0);
        loop {
            let mut tx = self.store.snapshot(tenant).await?;
            let sizes = store::runs::sizes(&mut tx, std::slice::from_ref(&of.run)).await?;
            let size = sizes.first().map_or(0, |(_, size, _)| *size);
            let to = size.min(from + PAGE);
            let seqs: Vec<u64> = (from..to).collect();
            let frames = store::frames::some(&mut tx, &of.run, &seqs).await?;
            let erasures = Erasures::of(&mut tx, tenant, &of.run).await?;
            commit(tx).await?;
            // What cannot be read is an audit's to name, and has no payloads that could be listed.
            let read = frames.values().filter_map(|bytes| Frame::parse(bytes).ok());
            let rows: Vec<ErasedRow> = read
                .flat_map(|frame| rows(&frame, &erasures, &of.entries))
                .collect();
            if !rows.is_empty() {
                let mut tx = self.store.begin_erasing(tenant).await?;
                listed += store::listing::list(&mut tx, tenant, (id, &of.run), &rows).await?;
                commit(tx).await?;
            }
            if to >= size {
                return Ok(listed);
            }
            from = to;
        }
    }
}

/// What stays known of the payloads of a frame that some entries of the ledger certify as erased.
fn rows(frame: &Frame<'_>, erasures: &Erasures, entries: &[u64]) -> Vec<ErasedRow> {
    let payloads = frame.payloads().iter().zip(0_i16..);
    let erased = payloads.filter_map(|(payload, place)| {
        let index = erasures.covering(frame.seq, payload.tier, &payload.commit)?;
        let is_of_it = payload.kept.is_none() && entries.contains(&index);
        is_of_it.then(|| ErasedRow {
            commit: payload.commit,
            seq: frame.seq,
            place,
            media: payload.media.clone(),
            tier: payload.tier.into(),
            size: payload.size,
            index,
        })
    });
    erased.collect()
}
