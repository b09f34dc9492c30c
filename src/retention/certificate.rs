//! Certificates of disposal: how far an erasure is, signed, over the list of the ledger's entries that certify it.

use super::erasure::{Erasure, Finality};
use crate::ledger;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::erasures::ErasureRow;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{DISPOSAL_SUBJECT, Disposal, Predicate};
use onrecord_core::timestamp::Timestamp;

const DAY_MICROS: i64 = 86_400_000_000;

impl Recorder {
    /// What a certificate is over: a line `INDEX LEAF RUN` for each entry of the ledger that certifies an erasure, by index.
    pub async fn erasure_entries(
        &self,
        tenant: TenantId,
        id: RunId,
    ) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let row = store::erasures::find(&mut tx, &id).await?;
            let row = row.ok_or(RecordError::NoErasure(id))?;
            let entries = listed(&mut tx, &tenant, &row.id).await?;
            commit(tx).await?;
            Ok(entries)
        })
        .await
    }

    /// The certificate of an erasure as far as it is now: an envelope over its entries.
    pub async fn certificate(
        &self,
        tenant: TenantId,
        id: RunId,
        finality: Finality,
    ) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let key = recorder.seal_key_now(&tenant).await?;
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let row = store::erasures::find(&mut tx, &id).await?;
            let row = row.ok_or(RecordError::NoErasure(id))?;
            let entries = listed(&mut tx, &tenant, &row.id).await?;
            commit(tx).await?;
            let at = recorder.store.now().await?;
            let disposal = Predicate::Disposal(disposal(&row, at, finality));
            let subject = Some((DISPOSAL_SUBJECT, Hash::of(&[entries.as_bytes()])));
            let envelope = key.sign(&tenant, &disposal, subject)?;
            Ok(String::from_utf8_lossy(&envelope).into_owned())
        })
        .await
    }

    /// Makes an erasure final, where every epoch is destroyed that had wrapped a key of it, and says so on the ledger.
    pub(super) async fn finalize(
        &self,
        tenant: &TenantId,
        id: &RunId,
        finality: Finality,
    ) -> Result<(), RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let standing = store::erasures::standing(&mut tx, id).await?;
        commit(tx).await?;
        let standing = standing.ok_or_else(|| RecordError::NoErasure(id.clone()))?;
        let (Some(removed_at), None) = (standing.removed_at, standing.final_at) else {
            return Ok(());
        };
        let destroyed = match standing.epoch {
            Some(epoch) => self.store.destroyed_up_to(tenant, epoch).await?,
            // There was nothing to erase.
            None => Some(removed_at),
        };
        let Some(destroyed) = destroyed else {
            return Ok(());
        };
        let final_at = destroyed.max(removed_at);
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::erasures::find(&mut tx, id).await?;
        commit(tx).await?;
        let row = ErasureRow {
            final_at: Some(final_at),
            ..row.ok_or_else(|| RecordError::NoErasure(id.clone()))?
        };
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin(tenant).await?;
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let entries = listed(&mut tx, tenant, id).await?;
        let disposal = Predicate::Disposal(disposal(&row, ledger::next_time(&locked)?, finality));
        let subject = Some((DISPOSAL_SUBJECT, Hash::of(&[entries.as_bytes()])));
        ledger::enter(
            &mut tx,
            &mut locked,
            (&self.vault, &keys),
            &disposal,
            subject,
        )
        .await?;
        store::erasures::finalize(&mut tx, id, final_at).await?;
        commit(tx).await
    }
}

fn disposal(row: &ErasureRow, at: Timestamp, finality: Finality) -> Disposal {
    let erasure = Erasure::from(row.clone());
    let dead = |days: u32, at: Timestamp| {
        Timestamp::from_micros(at.micros().saturating_add(i64::from(days) * DAY_MICROS))
    };
    let backups = finality.key_backup_days.zip(erasure.final_at);
    Disposal {
        at,
        backups_dead_at: backups.and_then(|(days, at)| dead(days, at)),
        by: erasure.by,
        count: erasure.count,
        entries: erasure.entries,
        erasure: erasure.id,
        final_at: erasure.final_at,
        keys_destroyed_at: erasure.keys_destroyed_at,
        policy: erasure.policy,
        reason: erasure.reason,
        removed_at: erasure.removed_at,
        requested_at: erasure.requested_at,
        scope: erasure.scope.to_owned(),
    }
}

/// The lines that a certificate is over.
async fn listed(tx: &mut store::Tx, tenant: &TenantId, id: &RunId) -> Result<String, RecordError> {
    let entries = store::erasures::entries(tx, tenant, id).await?;
    let lines = entries
        .iter()
        .map(|(index, leaf, run)| format!("{index} {leaf} {run}\n"));
    Ok(lines.collect())
}
