//! Recording: intake, redaction, commitment, encryption, the place in the chain, durability, receipt.
//!
//! The way of a frame goes forward only, and `place` is the one file that extends a chain. Work
//! that writes runs in tasks of its own: a client that hangs up cancels nothing.

mod admin;
pub mod append;
mod company;
mod dry_run;
pub mod follow;
mod group;
mod head;
mod head_cache;
pub mod intake;
pub mod open;
mod place;
mod prepare;
mod queue;
pub mod read;
mod redaction;
mod rules;
pub mod seal;
mod sequencer;

pub(crate) use admin::TokenRow;
pub(crate) use dry_run::{RUNS as DRY_RUNS, Tried, TriedPlace, TryRequest};
pub(crate) use prepare::offload;

use crate::access::{AccessError, Tokens};
use crate::ledger::LedgerError;
use crate::redact::RuleError;
use crate::store::{self, Failure, Store, StoreError};
use crate::vault::{RunKeys, Vault, VaultError};
use intake::IntakeError;
use lru::LruCache;
use onrecord_core::chain::Fault;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
pub use queue::QueueLimits;
pub use rules::Rules;
pub(crate) use rules::{DOCUMENT_BYTES, Standing, document_media};
use sequencer::Sequencer;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::task::TaskTracker;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The request is malformed.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The token may not do it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No such run in the tenant.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// No such frame in the run.
    #[error("run {run} has no frame {seq}")]
    NoFrame {
        /// The run.
        run: RunId,
        /// The place.
        seq: u64,
    },
    /// No such turn in the run.
    #[error("run {run} has no turn {turn}")]
    NoTurn {
        /// The run.
        run: RunId,
        /// The number.
        turn: u64,
    },
    /// The run is sealed.
    #[error("run {0} is sealed; nothing can be added")]
    Sealed(RunId),
    /// The run is not sealed.
    #[error("run {0} is not sealed yet")]
    Open(RunId),
    /// The run has its `session_end`.
    #[error("run {0} has ended; only a seal can follow")]
    Ended(RunId),
    /// The turn that was asked for is not the open one.
    #[error("turn {asked} is not open{}", .open.map_or_else(|| "; no turn is".to_owned(), |open| format!("; turn {open} is")))]
    TurnNotOpen {
        /// The turn that was asked for.
        asked: u64,
        /// The turn that is open.
        open: Option<u64>,
    },
    /// The turn cannot be opened under that number.
    #[error("the next turn is {next}, not {asked}")]
    TurnNumber {
        /// The number that was asked for.
        asked: u64,
        /// The number that it would have.
        next: u64,
    },
    /// The turn is more than a proof of its own may hold.
    #[error(
        "turn {turn} has {bytes} bytes of frames and payloads, too many for a proof of its own"
    )]
    TurnTooLarge {
        /// The turn.
        turn: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// The key was used for another request.
    #[error("key {key:?} was used for another request, which is frame {seq} of run {run}")]
    KeyConflict {
        /// The key.
        key: String,
        /// The run.
        run: RunId,
        /// Its frame.
        seq: u64,
    },
    /// The head that the writer saw is not the head any more.
    #[error("the run's head is {head} now, {size} frames")]
    HeadMoved {
        /// The head.
        head: Hash,
        /// The size.
        size: u64,
    },
    /// A link names a frame that is not there.
    #[error("{pointer}: no earlier frame of the run is {wanted}")]
    NoLink {
        /// Where in the request.
        pointer: String,
        /// What it names.
        wanted: String,
    },
    /// The frame is over 64 KiB without its payloads.
    #[error("the frame has {bytes} bytes without its payloads, a frame has at most 65536")]
    FrameTooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The frame breaks a rule of its place.
    #[error("{}", .0.detail)]
    Fault(Fault),
    /// The database's clock is behind.
    #[error("the database's clock is {behind_ms} ms behind the last entry")]
    ClockBehind {
        /// By how much.
        behind_ms: i64,
    },
    /// No such tenant, though a token is of it.
    #[error("tenant {0} is not there")]
    NoTenant(TenantId),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// As much waits to be written as may.
    #[error("as many frames wait to be written as may")]
    Busy,
    /// Nothing is taken any more.
    #[error("the server is stopping")]
    Stopping,
    /// The database failed, and nothing was stored. Shared by all whose frames were in the batch.
    #[error("{0}")]
    NotStored(Arc<StoreError>),
    /// The database failed, and whether the write was stored is not known.
    #[error("the database did not say whether the write was stored")]
    Unknown,
    /// A document of rules that cannot be used.
    #[error("{0}")]
    BadRules(RuleError),
    /// A stored document of rules cannot be used: another version of this program wrote it.
    #[error("the tenant's rules of redaction cannot be used: {0}")]
    StoredRules(RuleError),
    /// The tenant's rules have no such version.
    #[error("there is no version {0} of the tenant's rules")]
    NoRules(u64),
    /// A task of ours ended without an answer.
    #[error("the work was cut off; whether it was done is not known")]
    CutOff,
}

/// Commits a write. An answer that is lost leaves it open whether it was done; its writer finds out with its key.
async fn commit(tx: store::Tx) -> Result<(), RecordError> {
    tx.commit().await.map_err(|error| {
        let error = StoreError::from(error);
        match error.failure() {
            Failure::Unknown => {
                tracing::warn!(%error, "whether a write was committed is not known");
                RecordError::Unknown
            }
            _ => error.into(),
        }
    })
}

impl From<LedgerError> for RecordError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => Self::Store(error),
            LedgerError::Vault(error) => Self::Vault(error),
            LedgerError::ClockBehind { behind_ms } => Self::ClockBehind { behind_ms },
        }
    }
}

/// The recorder: the database and the keys, and the tasks that write. Every request has one, so that cloning it is cheap.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

/// What all clones of a recorder have.
pub struct Shared {
    pub(crate) store: Store,
    pub(crate) vault: Arc<Vault>,
    /// The rules under which payloads are redacted, if they are.
    redaction: Option<Rules>,
    tasks: TaskTracker,
    followed: follow::Followed,
    sequencer: Sequencer,
    tokens: Tokens,
    run_keys: Mutex<LruCache<(TenantId, RunId), Arc<RunKeys>>>,
}

impl Deref for Recorder {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Runs whose keys are kept open, the last used.
const OPEN_KEYS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(8_191);

impl Recorder {
    /// A recorder over a database and its keys, which redacts payloads under rules if it is given any.
    pub fn new(store: Store, vault: Arc<Vault>, redaction: Option<Rules>) -> Self {
        Self::with_queue(store, vault, redaction, QueueLimits::STANDARD)
    }

    /// The same with another bound on what may wait to be written.
    pub fn with_queue(
        store: Store,
        vault: Arc<Vault>,
        redaction: Option<Rules>,
        limits: QueueLimits,
    ) -> Self {
        let followed = follow::Followed::default();
        Self(Arc::new(Shared {
            sequencer: Sequencer::start(&store, &followed, limits),
            tokens: Tokens::new(store.clone()),
            store,
            vault,
            redaction,
            tasks: TaskTracker::new(),
            followed,
            run_keys: Mutex::new(LruCache::new(OPEN_KEYS)),
        }))
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The tokens of the database, to find out who calls.
    pub fn callers(&self) -> &Tokens {
        &self.tokens
    }

    /// Runs work to its end, whatever becomes of whoever waits for it: a handler that its client
    /// dropped leaves no transaction half done and no connection in one.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RecordError>> + Send + 'static,
    ) -> Result<T, RecordError> {
        self.tasks
            .spawn(work)
            .await
            .unwrap_or(Err(RecordError::CutOff))
    }

    /// Waits until all work that was begun is done, and all frames that were handed over are written. Nothing may be
    /// begun after it.
    pub async fn drain(&self) {
        self.sequencer.drain().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether the database answers and the keys of every tenant are there.
    pub async fn ready(&self) -> Result<(), RecordError> {
        self.store.ping().await?;
        for (tenant, _) in self.store.tenants().await? {
            self.keys(&tenant).await?;
        }
        Ok(())
    }

    /// The keys of a tenant.
    pub(crate) async fn keys(
        &self,
        tenant: &TenantId,
    ) -> Result<Arc<crate::vault::TenantKeys>, RecordError> {
        if let Some(keys) = self.vault.known(tenant) {
            return Ok(keys);
        }
        let origin = self
            .store
            .origin(tenant)
            .await?
            .ok_or_else(|| RecordError::NoTenant(tenant.clone()))?;
        Ok(self.vault.tenant(tenant, &origin)?)
    }

    /// The keys of a run, opened once and kept while the run is written to.
    async fn run_keys(&self, tenant: &TenantId, run: &RunId) -> Result<Arc<RunKeys>, RecordError> {
        let key = (tenant.clone(), run.clone());
        if let Some(keys) = self.open_keys().get(&key) {
            return Ok(keys.clone());
        }
        let recorder = self.clone();
        Box::pin(self.detached(async move {
            let (tenant, run) = &key;
            let tenant_keys = recorder.keys(tenant).await?;
            let mut tx = recorder.store.begin(tenant).await?;
            let wrapped = store::runs::keys(&mut tx, run).await?;
            tx.commit().await.map_err(StoreError::from)?;
            if wrapped.is_empty() {
                return Err(RecordError::NoRun(run.clone()));
            }
            let keys = Arc::new(tenant_keys.open_run(run, &wrapped)?);
            recorder.open_keys().put(key, keys.clone());
            Ok(keys)
        }))
        .await
    }

    fn open_keys(&self) -> MutexGuard<'_, LruCache<(TenantId, RunId), Arc<RunKeys>>> {
        self.run_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
