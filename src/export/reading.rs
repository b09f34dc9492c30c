//! Payloads read one by one, and the entry in the ledger that every reading has before its first byte leaves.

use crate::access::{Caller, READERS};
use crate::ledger::{self, Erasures};
use crate::record::{RecordError, Recorder, commit, offload};
use crate::store::{self, Tx};
use crate::vault::{TenantKeys, Vault};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::id::RunId;
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
        let keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        // Under the lock that erasures take too: whatever the ledger says was erased before, was not read after.
        let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        let run_keys = self.read_run_keys(&caller.tenant, run).await?;
        if run_keys.is_empty() {
            return Err(RecordError::NoRun(run.clone()));
        }
        let stored = store::payloads::one(&mut tx, run, &hash).await?;
        let erasures = Erasures::of(&mut tx, &caller.tenant, run).await?;
        let covering =
            |seq, tier: i16| erasures.covering(seq, u8::try_from(tier).unwrap_or(u8::MAX), &hash);
        let stored = match stored {
            Some(stored)
                if !stored.key.kept && covering(stored.key.seq, stored.key.tier).is_none() =>
            {
                stored
            }
            _ => return Err(absent(&mut tx, &erasures, run, hash).await?),
        };
        let opened = offload(stored.ciphertext.len(), || {
            run_keys.open(
                stored.key.tier,
                stored.key.key_version,
                &stored.media,
                &hash,
                &stored.key.wrapped_dek,
                &stored.ciphertext,
            )
        });
        let opened = opened.map_err(|_| store::contradiction("payloads", "ciphertext", hash))?;
        let access = access(caller, run, purpose, Some(vec![hash]));
        let index = append(&mut tx, &mut tenant, (&self.vault, &keys), access).await?;
        // A crash before this line leaves no entry, and nobody who has read; after it an entry of a reading that was
        // perhaps not received.
        commit(tx).await?;
        Ok(ReadPayload {
            bytes: opened.plaintext,
            media: stored.media,
            salt: opened.salt,
            seq: stored.key.seq,
            index,
        })
    }

    /// Writes into the ledger that payloads of a run are about to be read: those that are named, or those of the run.
    pub(super) async fn log_access(
        &self,
        caller: &Caller,
        run: &RunId,
        purpose: &str,
        commits: Option<Vec<Hash>>,
    ) -> Result<u64, RecordError> {
        let keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        if store::runs::sizes(&mut tx, std::slice::from_ref(run))
            .await?
            .is_empty()
        {
            return Err(RecordError::NoRun(run.clone()));
        }
        let commits = commits.filter(|commits| commits.len() <= LISTED);
        let access = access(caller, run, purpose, commits);
        let index = append(&mut tx, &mut tenant, (&self.vault, &keys), access).await?;
        commit(tx).await?;
        Ok(index)
    }
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

async fn append(
    tx: &mut Tx,
    tenant: &mut store::tenants::LockedTenant,
    keys: (&Vault, &TenantKeys),
    access: Access,
) -> Result<u64, RecordError> {
    let access = Access {
        at: ledger::next_time(tenant)?,
        ..access
    };
    let access = Predicate::Access(access);
    let entry = ledger::enter(tx, tenant, keys, &access, None).await?;
    Ok(entry.index)
}

/// Why a payload is not there to be read.
async fn absent(
    tx: &mut Tx,
    erasures: &Erasures,
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
        Some(index) => RecordError::Erased { commit, index },
        None => RecordError::Missing { commit },
    })
}
