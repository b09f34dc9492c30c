//! Erasing. Of each tier of a run that an erasure is about:
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | a new key of the tier, durable in the database of keys | a key that wraps nothing |
//! | **one transaction** with the tenant's lock and the run's: no hold is in force; appends have to wrap with the new key from now on; keys of single payloads are emptied; the ledger's entry, which certifies it | what the entry names is erased for every reader |
//! | keys of payloads that survive are wrapped with the new key | some with the new, some with the old, each row says which |
//! | the older keys of the tier are removed | nothing that the store has opens any of it |
//! | its ciphertexts are removed | nothing of it |
//!
//! Each is done again after a crash, and does nothing where it was done. When every epoch is destroyed that had wrapped the
//! removed keys, no copy of the database opens any of it: the erasure is final.

use super::decide::Known;
use super::erasure::Finality;
use crate::access::Caller;
use crate::ledger::{self, Erasures};
use crate::record::{RecordError, Recorder, commit, state_of};
use crate::rotation;
use crate::store;
use crate::store::erasing::SurvivingKey;
use crate::store::erasures::{ErasureRow, PartRow, Scope};
use crate::store::permit::Certified;
use crate::vault::TIERS;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{self, Predicate};

/// Commitments of an entry, which has at most 65,535 bytes.
const LISTED: u32 = 500;
/// Rows of one transaction.
const ROWS: u32 = 500;
/// Parts that are read at once.
const PARTS: u32 = 100;
/// How an erasure says that it is done.
pub(super) const METHOD: &str = "crypto-shredding";

/// What became of a part that was to be certified.
enum Certifying {
    /// All of it is.
    Done(Certified),
    /// Something is left.
    More,
    /// It expired when it was found, and does not any more.
    NotDue,
}

/// Whether an erasure is of whole tiers.
fn is_whole(scope: &Scope) -> bool {
    matches!(scope, Scope::Tier(..) | Scope::Tenant | Scope::Expiry)
}

impl Recorder {
    /// Goes on with every erasure of every tenant that is not final. What hinders one does not hinder the others.
    pub async fn erase_pending(&self, finality: Finality) -> Result<(), RecordError> {
        self.forget_old_keys();
        for (tenant, _) in self.store.tenants().await? {
            let recorder = self.clone();
            let of_tenant = tenant.clone();
            let work =
                self.detached(async move { recorder.work_off(&of_tenant, None, finality).await });
            if let Err(error) = work.await {
                tracing::warn!(%tenant, %error, "erasures are not done; they are tried again");
            }
        }
        Ok(())
    }

    /// Goes on with the erasures of a tenant that are not final, or with one of them; what hinders one does not hinder the
    /// others. One process at a time does: false where another one has the turn.
    ///
    /// # Errors
    /// What hindered the last of those that were hindered.
    pub(super) async fn work_off(
        &self,
        tenant: &TenantId,
        only: Option<&RunId>,
        finality: Finality,
    ) -> Result<bool, RecordError> {
        let Some(turn) = self.store.erasing_turn(tenant).await? else {
            return Ok(false);
        };
        let mut tx = self.store.snapshot(tenant).await?;
        let open = store::erasures::open(&mut tx, tenant).await?;
        commit(tx).await?;
        let mut done = Ok(true);
        let wanted = open
            .iter()
            .filter(|one| only.is_none_or(|id| *id == one.id));
        for erasure in wanted {
            if let Err(error) = self.go_on_with(tenant, erasure, finality).await {
                tracing::error!(erasure = %erasure.id, %error, "an erasure was interrupted; it is tried again");
                done = Err(error);
            }
        }
        if only.is_none() && self.rotate_where_due(tenant, finality).await? {
            for erasure in &open {
                self.finalize(tenant, &erasure.id, finality).await?;
            }
        }
        if only.is_none()
            && let Err(error) = self.list_erased(tenant).await
        {
            tracing::warn!(%tenant, %error, "erased payloads of before are not listed; it is tried again");
        }
        turn.end().await?;
        done
    }

    async fn go_on_with(
        &self,
        tenant: &TenantId,
        erasure: &ErasureRow,
        finality: Finality,
    ) -> Result<(), RecordError> {
        if erasure.removed_at.is_none() {
            self.erase_all(tenant, erasure).await?;
        }
        self.finalize(tenant, &erasure.id, finality).await
    }

    /// Rotates the epoch of a tenant of which something was erased some time ago: the keys that are destroyed may lie in logs
    /// and backups, where only their epoch's end reaches them. Returns whether it did.
    async fn rotate_where_due(
        &self,
        tenant: &TenantId,
        finality: Finality,
    ) -> Result<bool, RecordError> {
        let Some(after) = finality.rotate_after else {
            return Ok(false);
        };
        let mut tx = self.store.snapshot(tenant).await?;
        let open = store::erasures::open(&mut tx, tenant).await?;
        commit(tx).await?;
        let removed = open.iter().filter(|one| one.removed_at.is_some());
        let Some(since) = removed.filter_map(|one| one.keys_destroyed_at).min() else {
            return Ok(false);
        };
        let waited_micros = self.store.now().await?.micros() - since.micros();
        if u128::try_from(waited_micros).unwrap_or(0) < after.as_micros() {
            return Ok(false);
        }
        // A crash in it leaves what the next one goes on with.
        rotation::epoch(&self.store, &self.vault, tenant).await?;
        Ok(true)
    }

    /// Whether long work may go on: a server that stops leaves the rest to the next one.
    pub(super) fn go_on(&self) -> Result<(), RecordError> {
        if self.is_stopping() {
            return Err(RecordError::Stopping);
        }
        Ok(())
    }

    async fn erase_all(&self, tenant: &TenantId, erasure: &ErasureRow) -> Result<(), RecordError> {
        let mut held = None;
        let mut last: Option<(RunId, i16)> = None;
        loop {
            let mut tx = self.store.snapshot(tenant).await?;
            let after = last.as_ref().map(|(run, tier)| (run, *tier));
            let parts = store::erasures::parts(&mut tx, &erasure.id, after, PARTS).await?;
            commit(tx).await?;
            let Some(end) = parts.last() else { break };
            last = Some((end.run.clone(), end.tier));
            for part in &parts {
                self.go_on()?;
                match self.erase_part(tenant, erasure, part).await {
                    // It waits for the release, or for the end of the floor; everything else goes on.
                    Err(RecordError::Held { matter, .. }) => held = Some(matter),
                    Err(floor @ RecordError::Floor { .. }) => held = Some(floor.to_string()),
                    done => done?,
                }
            }
        }
        let mut tx = self.store.begin(tenant).await?;
        store::erasures::settle(&mut tx, &erasure.id, held.as_deref()).await?;
        commit(tx).await
    }

    /// Carries out one part of an erasure.
    ///
    /// # Errors
    /// [`RecordError::Held`] and [`RecordError::Floor`]: it has to wait.
    pub(super) async fn erase_part(
        &self,
        tenant: &TenantId,
        erasure: &ErasureRow,
        part: &PartRow,
    ) -> Result<(), RecordError> {
        let all = is_whole(&erasure.scope);
        let version = match part.key_version {
            Some(version) if part.certified().is_some() => version,
            // Whoever renewed the key meanwhile wrapped with it what this is about.
            Some(version)
                if self
                    .read_run_keys(tenant, &part.run)
                    .await?
                    .tier_version(part.tier)
                    == Some(version) =>
            {
                version
            }
            _ => self.renew(tenant, erasure, part).await?,
        };
        let certified = match part.certified() {
            Some(certified) => certified,
            None => loop {
                match self.certify(tenant, erasure, part, version).await? {
                    Certifying::Done(certified) => break certified,
                    Certifying::More => {}
                    Certifying::NotDue => return Ok(()),
                }
            },
        };
        if !part.keys_destroyed {
            if !all {
                self.rewrap(tenant, &part.run, part.tier, version).await?;
            }
            let epoch = self
                .store
                .remove_run_keys(tenant, &certified, version)
                .await?;
            self.forget_run_keys(tenant, &part.run);
            let mut tx = self.store.begin(tenant).await?;
            store::erasures::keys_destroyed(&mut tx, &erasure.id, part, epoch).await?;
            commit(tx).await?;
        }
        let mut last = None;
        loop {
            self.go_on()?;
            let mut tx = self.store.begin_erasing(tenant).await?;
            let page = (last, ROWS);
            let rows = store::erasing::removable(&mut tx, &certified, version, all, page).await?;
            last = rows.last().map(|(commit, _)| *commit);
            if last.is_none() {
                store::erasures::removed(&mut tx, &erasure.id, part).await?;
            } else {
                let erasures = Erasures::of(&mut tx, tenant, &part.run).await?;
                let tier = u8::try_from(part.tier).unwrap_or(u8::MAX);
                let mut gone = Vec::with_capacity(rows.len());
                for (commit, seq) in rows {
                    let index = erasures.covering(seq, tier, &commit).ok_or_else(|| {
                        store::contradiction("payloads", "key_version", commit.hex())
                    })?;
                    gone.push((commit, index));
                }
                store::erasing::remove(&mut tx, &certified, &gone).await?;
            }
            commit(tx).await?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    /// Makes a new key of the tier, and says so in the part.
    async fn renew(
        &self,
        tenant: &TenantId,
        erasure: &ErasureRow,
        part: &PartRow,
    ) -> Result<i16, RecordError> {
        let keys = self.renew_run_key(tenant, &part.run, part.tier).await?;
        let version = keys.version();
        let mut tx = self.store.begin(tenant).await?;
        store::erasures::renewed(&mut tx, &erasure.id, part, version).await?;
        commit(tx).await?;
        Ok(version)
    }

    /// Certifies as much of a part as an entry of the ledger lists.
    async fn certify(
        &self,
        tenant: &TenantId,
        erasure: &ErasureRow,
        part: &PartRow,
        version: i16,
    ) -> Result<Certifying, RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin_erasing(tenant).await?;
        // First the tenant, then the run, as everybody who needs both does.
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let row = store::runs::lock(&mut tx, &part.run).await?;
        let (row, _) = row.ok_or_else(|| RecordError::NoRun(part.run.clone()))?;
        let known = Known::of(&mut tx, tenant, std::slice::from_ref(&part.run)).await?;
        if erasure.scope == Scope::Expiry && !known.is_due(&part.run, part.tier) {
            // Since it was found due something changed: a flag, the policy. The new key of the tier wraps nothing, and the old
            // one goes on.
            let part = (&part.run, part.tier);
            store::expiring::drop_part(&mut tx, &erasure.id, part).await?;
            commit(tx).await?;
            return Ok(Certifying::NotDue);
        }
        let permit = known.verdict(&part.run, part.tier).permit()?;
        // Each payload stands in one certificate, also where an earlier one of the tier is not carried out yet.
        let erasures = Erasures::of(&mut tx, tenant, &part.run).await?;
        let from = erasures.covered(u8::try_from(part.tier).unwrap_or(u8::MAX));
        let all = is_whole(&erasure.scope);
        let (commits, count): (Vec<Hash>, u64) = if all {
            let count = store::erasing::of_tier(&mut tx, part, from).await?;
            (Vec::new(), count)
        } else {
            let page = (from, LISTED);
            let commits = store::erasing::targets(&mut tx, &erasure.scope, part, page).await?;
            store::erasing::destroy_keys_of(&mut tx, &permit, &commits).await?;
            let count = commits.len() as u64;
            (commits, count)
        };
        store::erasing::update_run(&mut tx, &part.run, version, count).await?;
        let mut index = None;
        if count > 0 {
            let entry = statement::Erasure {
                at: ledger::next_time(&locked)?,
                by: erasure.by.clone(),
                commits: (!all).then_some(commits),
                count,
                method: METHOD.to_owned(),
                policy: erasure.policy.clone(),
                reason: erasure.reason.clone(),
                state: state_of(&row.chain),
                tier: all.then(|| u8::try_from(part.tier).unwrap_or(0)),
                tiers: None,
            };
            let entry = Predicate::Erasure(entry);
            let entry =
                ledger::enter(&mut tx, &mut locked, (&self.vault, &keys), &entry, None).await?;
            index = Some(entry.index);
        }
        let done = all || count < u64::from(LISTED);
        let certified =
            store::erasures::certified(&mut tx, &erasure.id, &permit, (index, count), done).await?;
        // A crash before this line leaves everything as it was; after it what the entry names is erased, and what is left
        // of it is removed when the work goes on.
        commit(tx).await?;
        self.forget_run_keys(tenant, &part.run);
        Ok(certified.map_or(Certifying::More, Certifying::Done))
    }

    /// Wraps the keys of payloads that survive with the tier's new key.
    async fn rewrap(
        &self,
        tenant: &TenantId,
        run: &RunId,
        tier: i16,
        version: i16,
    ) -> Result<u64, RecordError> {
        let keys = self.read_run_keys(tenant, run).await?;
        let mut tx = self.store.snapshot(tenant).await?;
        let erasures = Erasures::of(&mut tx, tenant, run).await?;
        commit(tx).await?;
        // What the ledger says is erased does not survive, though its row be there still.
        let survives = |row: &SurvivingKey| {
            let tier = u8::try_from(tier).unwrap_or(u8::MAX);
            erasures.covering(row.seq, tier, &row.commit).is_none()
        };
        let (mut last, mut count) = (None, 0);
        loop {
            self.go_on()?;
            let mut tx = self.store.begin_erasing(tenant).await?;
            let page = (last, ROWS);
            let mut rows = store::erasing::surviving(&mut tx, (run, tier), version, page).await?;
            last = rows.last().map(|row| row.commit);
            rows.retain(survives);
            for row in &mut rows {
                (row.wrapped_dek, row.key_version) =
                    keys.rewrap(tier, &row.commit, row.key_version, &row.wrapped_dek)?;
            }
            store::erasing::rewrapped(&mut tx, run, &rows).await?;
            commit(tx).await?;
            count += rows.len() as u64;
            if last.is_none() {
                return Ok(count);
            }
            tracing::debug!(%run, tier, count, "keys of payloads are wrapped again");
        }
    }

    /// Renews the keys of a run, of every tier: the keys of its payloads are wrapped again, and the older ones of the run
    /// removed. No ciphertext is touched. Returns how many were wrapped again. Where a crash cuts it off some payloads are
    /// under the new keys and some under the old ones, all of which are there; done again, it brings all under one.
    pub async fn renew_run(&self, caller: Caller, run: RunId) -> Result<u64, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            // Erasures renew keys too, and count on the version that they chose.
            let Some(turn) = recorder.store.erasing_turn(tenant).await? else {
                return Err(RecordError::Busy);
            };
            let mut tx = recorder.store.snapshot(tenant).await?;
            let found = store::runs::sizes(&mut tx, std::slice::from_ref(&run)).await?;
            commit(tx).await?;
            if found.is_empty() {
                return Err(RecordError::NoRun(run));
            }
            let mut count = 0;
            for tier in 0..i16::from(TIERS) {
                let version = recorder.renew_run_key(tenant, &run, tier).await?.version();
                let mut tx = recorder.store.begin_erasing(tenant).await?;
                store::erasing::update_run(&mut tx, &run, version, 0).await?;
                // From here on appends wrap with the new key.
                commit(tx).await?;
                recorder.forget_run_keys(tenant, &run);
                count += recorder.rewrap(tenant, &run, tier, version).await?;
                recorder
                    .store
                    .remove_outlived_run_keys(tenant, &run, tier, version)
                    .await?;
            }
            recorder.forget_run_keys(tenant, &run);
            turn.end().await?;
            Ok(count)
        })
        .await
    }
}
