//! Stating on the ledger how far open runs are, so that cutting the tail of one that was never sealed shows.

use super::open::state_of;
use super::{RecordError, Recorder, commit};
use crate::ledger::{self, Unwritten, later};
use crate::store;
pub use crate::store::run_heads::HeadsEvery;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{FRAMES_SUBJECT, Predicate, RunHead};

/// Runs of one transaction, while which other entries of the tenant's ledger wait.
const TOGETHER: u32 = 256;

impl Recorder {
    /// Enters a `run-head` for every open run that is due. Returns how many. What hinders one tenant does not hinder the
    /// others, and of several processes each head is entered by one.
    ///
    /// # Errors
    /// The tenants cannot be listed.
    pub async fn state_heads(&self, every: HeadsEvery) -> Result<u64, RecordError> {
        let mut count = 0;
        for (tenant, _) in self.store.tenants().await? {
            // Each run once: one that grows all the while is due again at once.
            let mut behind = None;
            loop {
                let (recorder, of_tenant) = (self.clone(), tenant.clone());
                let some = async move { recorder.state_some(&of_tenant, every, behind).await };
                match self.detached(some).await {
                    Ok((stated, last)) => {
                        count += stated;
                        if last.is_none() || self.is_stopping() {
                            break;
                        }
                        behind = last;
                    }
                    Err(error) => {
                        tracing::warn!(%tenant, %error, "how far open runs are is not stated; it is tried again");
                        break;
                    }
                }
            }
        }
        Ok(count)
    }

    /// Enters heads of some runs of a tenant, in one transaction. Returns how many, and behind which run there may be more.
    async fn state_some(
        &self,
        tenant: &TenantId,
        every: HeadsEvery,
        behind: Option<RunId>,
    ) -> Result<(u64, Option<RunId>), RecordError> {
        let behind = behind.as_ref();
        // Without the lock first: mostly nothing is due, and nobody has to wait for that.
        let mut tx = self.store.snapshot(tenant).await?;
        let due = store::run_heads::due(&mut tx, tenant, every, behind, 1).await?;
        commit(tx).await?;
        if due.last.is_none() {
            return Ok((0, None));
        }
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin(tenant).await?;
        // No run is sealed while it is held, and no other process states heads. Appends go on: what was read of a run stays
        // true of its first frames.
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let mut at = ledger::next_time(&locked)?;
        let mut unwritten = Unwritten::begin(&locked, &self.vault).await?;
        let mut stated = Vec::new();
        let due = store::run_heads::due(&mut tx, tenant, every, behind, TOGETHER).await?;
        for row in due.runs {
            let chain = match row {
                Ok(row) => row.chain,
                Err(error) => {
                    tracing::error!(%tenant, %error, "how far a run is cannot be stated");
                    continue;
                }
            };
            // Not before the last entry, nor before the frames that it states.
            match later(at, chain.last_at()) {
                Ok(time) => at = time,
                Err(behind_ms) => {
                    tracing::error!(run = %chain.run(), behind_ms, "how far a run is cannot be stated: the database's clock is behind it");
                    continue;
                }
            }
            let state = state_of(&chain);
            let (run, size) = (state.run.clone(), state.size);
            let head = Predicate::RunHead(RunHead { at, state });
            let subject = Some((FRAMES_SUBJECT, chain.file_digest()));
            let entry = unwritten.push(&mut locked, &head, subject)?;
            stated.push((run, size, entry.index));
        }
        if stated.is_empty() {
            return Ok((0, due.last));
        }
        unwritten.write(&mut tx, &locked).await?;
        ledger::checkpoint(&mut tx, &locked, &keys).await?;
        store::run_heads::update(&mut tx, tenant, &stated).await?;
        // A crash before this line leaves the ledger as it was, and the runs are due still; after it they are stated.
        commit(tx).await?;
        Ok((stated.len() as u64, due.last))
    }
}
