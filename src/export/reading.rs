//! Payloads read one by one, and the entry in the ledger that every reading has before its first byte leaves.

use crate::access::{Caller, READERS};
use crate::ledger::people::stand_in;
use crate::ledger::{self, Erasures};
use crate::record::{RecordError, Recorder, commit, offload};
use crate::retention::expired::{self, Expired};
use crate::store::payloads::StoredPayload;
use crate::store::{self, Tx};
use crate::vault::{RunKeys, VaultError};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{Access, Predicate};

/// Commitments that an entry lists. What reads more of a run than that is written down as having read the run.
const LISTED: usize = 500;

/// A payload that was read.
pub struct ReadPayload {
    /// What was said.
    pub bytes: Vec<u8>,
    /// Its media type, as its writer called it.
    pub media: String,
    /// The salt of its commitment, with which anybody can check it.
    pub salt: Hash,
    /// The place of its frame.
    pub seq: u64,
    /// Index of the ledger's entry about this reading.
    pub index: u64,
}

impl Recorder {
    /// Reads a payload; who does and why is on the ledger before this returns.
    ///
    /// # Errors
    /// What became of the payload where it is not there: [`RecordError::Erased`], [`RecordError::NotKept`],
    /// [`RecordError::Missing`], or [`RecordError::NoPayload`].
    pub async fn read_payload(
        &self,
        caller: Caller,
        run: RunId,
        commit: Hash,
        purpose: String,
    ) -> Result<ReadPayload, RecordError> {
        self.refuse_secret("/purpose", &purpose)?;
        let recorder = self.clone();
        self.detached(async move {
            recorder
                .read_payload_now(&caller, &run, commit, &purpose)
                .await
        })
        .await
    }

    async fn read_payload_now(
        &self,
        caller: &Caller,
        run: &RunId,
        hash: Hash,
        purpose: &str,
    ) -> Result<ReadPayload, RecordError> {
        let access = access(caller, run, purpose, Some(vec![hash]));
        // As a rule nothing is erased at this moment, and the payload is opened before the tenant's lock is asked for.
        if let Some((read, ledger_size)) = self.open_unlocked(caller, run, hash).await? {
            let entered = self.enter_access(&caller.tenant, access.clone(), Some(ledger_size));
            if let Some(index) = entered.await? {
                return Ok(ReadPayload { index, ..read });
            }
        }
        let keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        // Under the lock that erasures take too: whatever the ledger says was erased before, was not read after.
        let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        let run_keys = self.read_run_keys(&caller.tenant, run).await?;
        if run_keys.is_empty() {
            return Err(RecordError::NoRun(run.clone()));
        }
        let erasures = Erasures::of(&mut tx, &caller.tenant, run).await?;
        let expired = Expired::of(&mut tx, &caller.tenant, run).await?;
        let gone = (&erasures, &expired);
        let Some(stored) = stored(&mut tx, gone, run, hash).await? else {
            return Err(absent(&mut tx, &caller.tenant, gone, run, hash).await?);
        };
        let read = open(&run_keys, stored)
            .map_err(|_| store::contradiction("payloads", "ciphertext", hash))?;
        let access = Predicate::Access(Access {
            at: ledger::next_time(&tenant)?,
            by: stand_in(&mut tx, &caller.tenant, &access.by).await?,
            ..access
        });
        let keys = (&*self.vault, &*keys);
        let entry = ledger::enter(&mut tx, &mut tenant, keys, &access, None).await?;
        // A crash before this line leaves no entry, and nobody who has read; after it an entry of a reading that was
        // perhaps not received.
        commit(tx).await?;
        let index = entry.index;
        Ok(ReadPayload { index, ..read })
    }

    /// Opens a payload as it is at this moment, with the size that the ledger has; what is to be given out needs an entry
    /// behind it. `None` where that did not do, for whatever reason: under the tenant's lock it is found out.
    async fn open_unlocked(
        &self,
        caller: &Caller,
        run: &RunId,
        hash: Hash,
    ) -> Result<Option<(ReadPayload, u64)>, RecordError> {
        let run_keys = self.read_run_keys(&caller.tenant, run).await?;
        let mut tx = self.store.snapshot(&caller.tenant).await?;
        let ledger_size = store::tenants::ledger_size(&mut tx, &caller.tenant).await?;
        let erasures = Erasures::of(&mut tx, &caller.tenant, run).await?;
        let expired = Expired::of(&mut tx, &caller.tenant, run).await?;
        let stored = stored(&mut tx, (&erasures, &expired), run, hash).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        let read = stored.and_then(|stored| open(&run_keys, stored).ok());
        Ok(read.map(|read| (read, ledger_size)))
    }

    /// Writes into the ledger that payloads of a run are about to be read: those that are named, or those of the run.
    pub(super) async fn log_access(
        &self,
        caller: &Caller,
        run: &RunId,
        purpose: &str,
        commits: Option<Vec<Hash>>,
    ) -> Result<(), RecordError> {
        let mut tx = self.store.snapshot(&caller.tenant).await?;
        let found = store::runs::sizes(&mut tx, std::slice::from_ref(run)).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        if found.is_empty() {
            return Err(RecordError::NoRun(run.clone()));
        }
        let commits = commits.filter(|commits| commits.len() <= LISTED);
        let access = access(caller, run, purpose, commits);
        self.enter_access(&caller.tenant, access, None).await?;
        Ok(())
    }
}

/// A payload as it is stored, if it is there to be read.
async fn stored(
    tx: &mut Tx,
    (erasures, expired): (&Erasures, &Expired),
    run: &RunId,
    commit: Hash,
) -> Result<Option<StoredPayload>, RecordError> {
    let stored = store::payloads::one(tx, run, &commit).await?;
    Ok(stored.filter(|StoredPayload { key, .. }| {
        let tier = u8::try_from(key.tier).unwrap_or(u8::MAX);
        !key.kept
            && erasures.covering(key.seq, tier, &commit).is_none()
            && expired.payload(tier, commit).is_none()
    }))
}

/// Opens it; where it is in the ledger is not known yet.
fn open(run_keys: &RunKeys, stored: StoredPayload) -> Result<ReadPayload, VaultError> {
    let key = &stored.key;
    let opened = offload(stored.ciphertext.len(), || {
        run_keys.open(
            key.tier,
            key.key_version,
            &stored.media,
            &key.commit,
            &key.wrapped_dek,
            &stored.ciphertext,
        )
    })?;
    Ok(ReadPayload {
        bytes: opened.plaintext,
        seq: key.seq,
        media: stored.media,
        salt: opened.salt,
        index: 0,
    })
}

fn access(caller: &Caller, run: &RunId, purpose: &str, commits: Option<Vec<Hash>>) -> Access {
    Access {
        // The ledger's own time takes its place, once it is known.
        at: onrecord_core::timestamp::Timestamp::MIN,
        by: caller.reader(),
        scope: commits.is_none().then(|| "run".to_owned()),
        commits,
        purpose: purpose.to_owned(),
        role: caller
            .role_of(&READERS)
            .map(|role| role.as_str().to_owned()),
        run: run.clone(),
    }
}

/// Why a payload is not there to be read.
async fn absent(
    tx: &mut Tx,
    tenant: &TenantId,
    (erasures, expired): (&Erasures, &Expired),
    run: &RunId,
    commit: Hash,
) -> Result<RecordError, RecordError> {
    let none = |run| RecordError::NoPayload { run, commit };
    let Some(bytes) = store::frames::committing(tx, run, &commit).await? else {
        return Ok(none(run.clone()));
    };
    let frame = Frame::parse(&bytes).map_err(|_| store::contradiction("frames", "bytes", run))?;
    let named = |one: &&PayloadRef| one.commit == commit;
    let Some(payload) = frame.payloads().iter().find(named) else {
        return Ok(none(run.clone()));
    };
    let erased = erasures.covering(frame.seq, payload.tier, &commit);
    Ok(match erased {
        _ if payload.kept == Some(false) => RecordError::NotKept { commit },
        Some(index) => expired::erased(tx, tenant, commit, index).await?,
        None => expired
            .payload(payload.tier, commit)
            .unwrap_or(RecordError::Missing { commit }),
    })
}
