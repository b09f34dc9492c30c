//! A database for measuring: many runs of evidence that is valid, made up but recorded as evidence is.
//!
//! Frames get their places by the rule that places all frames, openings and seals are entries of a tenant's ledger with
//! checkpoints, payloads are committed to and encrypted: an export of any of these runs verifies, and an audit finds
//! nothing. Only the clock is left out: the times are those of the story, so that months of evidence are there in minutes.
//! For that the tenant is a new one, since the ledger of one that is there has its last time already.

mod chance;
mod compose;
mod story;
mod write;

use crate::ledger::LedgerError;
use crate::record::{RecordError, Recorder};
use crate::store::StoreError;
use crate::vault::VaultError;
use futures_util::{StreamExt as _, stream};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use std::sync::Arc;
use story::Story;

/// What a database is filled with.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Runs, from 1.
    pub runs: u64,
    /// Frames of each run, from [`LEAST_FRAMES`].
    pub frames: u64,
    /// Payloads of each run; at most one a frame.
    pub payloads: u64,
    /// Days over which the runs are spread; the last of them ends now.
    pub days: u32,
    /// Whatever follows from chance follows from this: the same number tells the same story.
    pub seed: u64,
    /// Host in the origin of the ledger.
    pub host: String,
}

/// Frames without which no story can be told: a session, a turn, a call and its result, a gate, an outcome, and two ends.
pub const LEAST_FRAMES: u64 = 8;
/// Runs of a transaction.
const BATCH: u64 = 200;
/// Batches that are made up while one is written.
const AHEAD: usize = 2;
const DAY_MICROS: i64 = 86_400_000_000;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seeded {
    /// Runs that are durable.
    pub runs: u64,
    /// Their frames.
    pub frames: u64,
    /// Runs of these that are sealed.
    pub sealed: u64,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tenant, or a frame that may not stand where the story has it, which is a defect here.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// Somebody rotated the keys of the new tenant meanwhile.
    #[error(
        "the keys of tenant {0} were rotated while it was filled: leave it alone until that is done"
    )]
    Rotated(TenantId),
    /// There are more days than there were since 1970, or a work that was cut off.
    #[error("{0}")]
    Impossible(&'static str),
}

/// A tenant that is being filled.
pub struct Seeding {
    recorder: Recorder,
    tenant: TenantId,
    token: String,
    story: Arc<Story>,
    seed: Seed,
}

impl Seeding {
    /// Makes the tenant: its keys, its ledger, whose first entries are as old as the story, and its owner's token.
    ///
    /// A crash after it leaves a tenant without runs, whose token nobody saw.
    ///
    /// # Errors
    /// [`SeedError`].
    pub async fn begin(recorder: &Recorder, seed: Seed) -> Result<Self, SeedError> {
        let now = recorder.store.now().await?;
        let began = now.micros() - i64::from(seed.days) * DAY_MICROS;
        let impossible = || SeedError::Impossible("so many days ago there was no time yet");
        let began = Timestamp::from_micros(began).filter(|at| at.micros() > 0);
        let began = began.ok_or_else(impossible)?;
        let (tenant, token) = recorder
            .create_tenant_at(&seed.host, "seed", Some(began))
            .await?;
        Ok(Self {
            story: Arc::new(Story::new(&seed, began, now)),
            recorder: recorder.clone(),
            tenant,
            token: token.token.0.to_string(),
            seed,
        })
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Its owner's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Fills it, and tells after each transaction how far it is; `told` says whether to go on. A crash leaves the runs of
    /// before, whole, and perhaps keys that no run uses.
    ///
    /// # Errors
    /// [`SeedError`].
    pub async fn fill(&self, mut told: impl FnMut(Seeded) -> bool) -> Result<Seeded, SeedError> {
        let keys = self.recorder.keys(&self.tenant).await?;
        let origin = self.recorder.store.origin(&self.tenant).await?;
        let origin = origin.ok_or_else(|| RecordError::NoTenant(self.tenant.clone()))?;
        let firsts = (0..self.seed.runs).step_by(usize::try_from(BATCH).unwrap_or(1));
        let batches = firsts.map(|first| {
            let numbers = first..self.seed.runs.min(first + BATCH);
            let (story, keys) = (self.story.clone(), keys.clone());
            let place = (self.tenant.clone(), origin.clone());
            tokio::task::spawn_blocking(move || compose::batch(&story, &keys, &place, numbers))
        });
        let mut batches = stream::iter(batches).buffered(AHEAD);
        let mut seeded = Seeded::default();
        while let Some(batch) = batches.next().await {
            let cut_off = |_| SeedError::Impossible("a thread of this process ended by itself");
            let batch = batch.map_err(cut_off)??;
            let sealed = write::write(&self.recorder, (&self.tenant, &keys), &batch).await?;
            seeded.runs += batch.runs.len() as u64;
            seeded.sealed += sealed;
            seeded.frames += batch.frames();
            if !told(seeded) {
                break;
            }
        }
        Ok(seeded)
    }
}
