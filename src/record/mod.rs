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
pub mod own;
mod place;
mod prepare;
pub mod present;
mod queue;
pub mod read;
mod redaction;
mod rotate;
mod rules;
pub mod seal;
mod sequencer;
mod signed;
mod signing_keys;

pub(crate) use admin::TokenRow;
pub(crate) use dry_run::{RUNS as DRY_RUNS, Tried, TriedPlace, TryRequest};
pub(crate) use open::state_of;
pub(crate) use prepare::offload;
pub(crate) use rotate::Rotations;
pub(crate) use signing_keys::{NewAgentKey, SigningKeyRow, SigningKeys};

use crate::access::{AccessError, Agents, Tokens};
use crate::ledger::LedgerError;
use crate::redact::RuleError;
use crate::rotation::RotationError;
use crate::store::{self, Failure, Store, StoreError};
use crate::vault::{RunKeys, TenantKeys, Vault, VaultError};
use intake::IntakeError;
use lru::LruCache;
use onrecord_core::chain::Fault;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
pub use queue::QueueLimits;
pub use rules::Rules;
pub(crate) use rules::{DOCUMENT_BYTES, Standing, document_media};
use sequencer::Sequencer;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
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
    /// No frame of the run commits to such a payload.
    #[error("run {run} has no payload {commit}")]
    NoPayload {
        /// The run.
        run: RunId,
        /// The commitment.
        commit: Hash,
    },
    /// The payload was erased.
    #[error("payload {commit} was erased; entry {index} of the ledger is its certificate")]
    Erased {
        /// The commitment.
        commit: Hash,
        /// Index of the entry.
        index: u64,
    },
    /// The payload was never sent.
    #[error("payload {commit} was kept by its agent, which sent the commitment alone")]
    NotKept {
        /// The commitment.
        commit: Hash,
    },
    /// The payload is lost.
    #[error("payload {commit} was recorded, was not erased, and is not there")]
    Missing {
        /// The commitment.
        commit: Hash,
    },
    /// Nothing of it may be erased.
    #[error("hold {hold} for {matter:?} is in force; nothing under it is erased")]
    Held {
        /// Number of the hold.
        hold: u64,
        /// What it is for.
        matter: String,
    },
    /// No such erasure in the tenant.
    #[error("there is no erasure {0}")]
    NoErasure(RunId),
    /// The key was used for another erasure.
    #[error("key {0:?} was used for another erasure")]
    ErasureKey(String),
    /// An epoch could not be rotated.
    #[error(transparent)]
    Rotation(RotationError),
    /// No such hold in the tenant.
    #[error("there is no hold {0}")]
    NoHold(u64),
    /// No such turn in the run.
    #[error("run {run} has no turn {turn}")]
    NoTurn {
        /// The run.
        run: RunId,
        /// The number.
        turn: u64,
    },
    /// Another seal key is in force than the one that was to be revoked.
    #[error("the seal key in force is {keyid}")]
    KeyNotInForce {
        /// The key in force.
        keyid: Hash,
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
    /// A key was registered before, for somebody else or until it was revoked.
    #[error("key {0} was registered before")]
    AgentKeyTaken(Hash),
    /// No such key of an agent.
    #[error("the tenant has no agent's key {0}")]
    NoAgentKey(Hash),
    /// Frames of the actor are there that nobody signed, and its key would make faults of them.
    #[error("agent {actor:?} wrote frames that are not signed")]
    WroteUnsigned {
        /// The actor.
        actor: String,
    },
    /// The actor signs its frames, and this one is not signed.
    #[error("agent {actor:?} has a key, so that each of its frames has to be signed")]
    Unsigned {
        /// The actor.
        actor: String,
    },
    /// No such key of that actor, or one that is revoked.
    #[error("key {keyid} is none of agent {actor:?}, or is revoked")]
    AgentKey {
        /// The key.
        keyid: Hash,
        /// The actor.
        actor: String,
    },
    /// The signature is not that of the key over this frame.
    #[error("the signature is not that of the key over this frame")]
    FalseSignature,
    /// The key does not count on.
    #[error("the next n of key {keyid} in this run is {expected}, not {found}")]
    WrongCount {
        /// The key.
        keyid: Hash,
        /// What it is next.
        expected: u64,
        /// What was sent.
        found: u64,
    },
    /// A commitment of the agent's own is in the run already.
    #[error("commitment {0} is that of an earlier payload of the run")]
    CommitUsed(Hash),
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
pub(crate) async fn commit(tx: store::Tx) -> Result<(), RecordError> {
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

impl From<RotationError> for RecordError {
    fn from(error: RotationError) -> Self {
        match error {
            RotationError::Store(error) => Self::Store(error),
            RotationError::Vault(error) => Self::Vault(error),
            other => Self::Rotation(other),
        }
    }
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
    /// Ends work that another process, or the next start, goes on with.
    stopping: CancellationToken,
    /// Tenants whose rotation this process works on.
    rotating: Mutex<BTreeSet<TenantId>>,
    followed: follow::Followed,
    sequencer: Sequencer,
    tokens: Tokens,
    agents: Agents,
    run_keys: Mutex<OpenKeys>,
}

impl Deref for Recorder {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Keys of runs that are open, since when.
type OpenKeys = LruCache<(TenantId, RunId), (Arc<RunKeys>, Instant)>;

/// How long they are kept: what another process destroyed is in this one's memory no longer than that.
const OPEN_FOR: Duration = Duration::from_secs(60);

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
            agents: Agents::new(store.clone()),
            store,
            vault,
            redaction,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            rotating: Mutex::default(),
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
        self.stopping.cancel();
        self.sequencer.drain().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether nothing more is begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Whether the database answers and the keys of every tenant are there.
    pub async fn ready(&self) -> Result<(), RecordError> {
        self.store.ping().await?;
        for (tenant, keyid) in self.store.seal_keys().await? {
            self.keys(&tenant).await?;
            if self.vault.seal_key(&tenant, &keyid).await.is_err() {
                // It may have been rotated since.
                self.seal_key_now(&tenant).await?;
            }
        }
        Ok(())
    }

    /// Finishes what a crash may have cut off: rotations of seal keys whose old secret is there still.
    ///
    /// # Errors
    /// The database, or a key file that cannot be read or removed.
    pub async fn finish_rotations(&self) -> Result<(), RecordError> {
        for (tenant, _) in self.store.tenants().await? {
            self.destroy_revoked(&tenant).await?;
        }
        Ok(())
    }

    /// The keys of a tenant.
    pub(crate) async fn keys(&self, tenant: &TenantId) -> Result<Arc<TenantKeys>, RecordError> {
        if let Some(keys) = self.vault.known(tenant) {
            return Ok(keys);
        }
        let origin = self
            .store
            .origin(tenant)
            .await?
            .ok_or_else(|| RecordError::NoTenant(tenant.clone()))?;
        Ok(self.vault.tenant(tenant, &origin).await?)
    }

    /// The keys of a tenant as they lie in the folder now.
    async fn reread_keys(&self, tenant: &TenantId) -> Result<Arc<TenantKeys>, RecordError> {
        let origin = self.store.origin(tenant).await?;
        let origin = origin.ok_or_else(|| RecordError::NoTenant(tenant.clone()))?;
        Ok(self.vault.reread(tenant, &origin).await?)
    }

    /// The keys of a run as they are in the database now; empty where there is no such run.
    pub(crate) async fn read_run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<RunKeys, RecordError> {
        let keys = self.keys(tenant).await?;
        let wrapped = self.store.run_keys(tenant, run).await?;
        match keys.open_run(run, &wrapped) {
            // Another process made that epoch after this one read the folder, or destroyed it after the keys were read.
            Err(VaultError::Epoch { .. }) => {
                let keys = self.reread_keys(tenant).await?;
                let wrapped = self.store.run_keys(tenant, run).await?;
                Ok(keys.open_run(run, &wrapped)?)
            }
            other => Ok(other?),
        }
    }

    /// The keys of a run, opened once and kept while the run is written to.
    pub(crate) async fn run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<Arc<RunKeys>, RecordError> {
        let key = (tenant.clone(), run.clone());
        if let Some((keys, since)) = self.open_keys().get(&key)
            && since.elapsed() < OPEN_FOR
        {
            return Ok(keys.clone());
        }
        let recorder = self.clone();
        Box::pin(self.detached(async move {
            let (tenant, run) = &key;
            let keys = Arc::new(recorder.read_run_keys(tenant, run).await?);
            if keys.is_empty() {
                return Err(RecordError::NoRun(run.clone()));
            }
            let open = (keys.clone(), Instant::now());
            recorder.open_keys().put(key, open);
            Ok(keys)
        }))
        .await
    }

    /// Forgets the open keys of a run, which may have been renewed.
    pub(crate) fn forget_run_keys(&self, tenant: &TenantId, run: &RunId) {
        self.open_keys().pop(&(tenant.clone(), run.clone()));
    }

    /// Forgets the keys of runs that were open for long enough. Those of runs that are written to were opened anew.
    pub(crate) fn forget_old_keys(&self) {
        let mut open = self.open_keys();
        while let Some((_, (_, since))) = open.peek_lru()
            && since.elapsed() >= OPEN_FOR
        {
            open.pop_lru();
        }
    }

    fn open_keys(&self) -> MutexGuard<'_, OpenKeys> {
        self.run_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
