//! Recording: intake, redaction, commitment, encryption, the place in the chain, durability, receipt.
//!
//! The way of a frame goes forward only, and `place` is the one file that extends a chain. Work
//! that writes runs in tasks of its own: a client that hangs up cancels nothing.

mod admin;
pub mod append;
mod classes;
mod company;
mod dry_run;
mod error;
pub(crate) mod figures;
pub mod follow;
mod group;
mod head;
mod head_cache;
pub mod intake;
mod joint;
pub mod open;
pub mod own;
mod people;
mod place;
mod prepare;
pub mod present;
pub mod query;
mod queue;
pub mod read;
mod redaction;
pub mod release;
pub(crate) mod rewind;
mod rotate;
mod rules;
pub mod seal;
mod sequencer;
pub mod settings;
mod signed;
mod signing_keys;
pub mod stated;

pub(crate) use admin::TokenRow;
pub(crate) use dry_run::{RUNS as DRY_RUNS, Tried, TriedPlace, TryRequest};
pub use error::RecordError;
pub(crate) use error::commit;
pub(crate) use head::sign as sign_head;
pub(crate) use open::{session_body, state_of};
pub(crate) use people::PersonRow;
pub(crate) use place::{STORE_ID, close_turn, place};
pub(crate) use prepare::offload;
pub(crate) use rotate::Rotations;
pub(crate) use signing_keys::{NewAgentKey, SigningKeyRow, SigningKeys};

use crate::access::{Agents, Tokens};
use crate::store::Store;
use crate::vault::{RunKeys, TenantKeys, Vault, VaultError};
use lru::LruCache;
use onrecord_core::id::{RunId, TenantId};
pub use queue::QueueLimits;
pub use rules::Rules;
pub(crate) use rules::{DOCUMENT_BYTES, Standing, document_media};
use sequencer::Sequencer;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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
    /// What this process counts of its own work.
    pub(crate) figures: Arc<figures::Figures>,
    sequencer: Sequencer,
    joint: joint::Joint,
    tokens: Tokens,
    agents: Agents,
    /// Tiers of payloads whose writers name none.
    classes: classes::Looks,
    run_keys: Mutex<OpenKeys>,
    /// Tenants whose ledgers lack what was published, as this process saw it last.
    rewound: RwLock<BTreeSet<TenantId>>,
    /// Whether witnesses are asked, so that what is published waits for them.
    witnessed: AtomicBool,
    /// Sizes of the ledgers when this process started: no smaller checkpoint is published.
    published: RwLock<HashMap<TenantId, u64>>,
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
        let figures = Arc::new(figures::Figures::default());
        Self(Arc::new(Shared {
            sequencer: Sequencer::start(&store, &followed, &figures, limits),
            joint: joint::Joint::default(),
            tokens: Tokens::new(store.clone()),
            agents: Agents::new(store.clone()),
            classes: classes::Looks::default(),
            store,
            vault,
            redaction,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            rotating: Mutex::default(),
            followed,
            figures,
            run_keys: Mutex::new(LruCache::new(OPEN_KEYS)),
            rewound: RwLock::default(),
            witnessed: AtomicBool::new(false),
            published: RwLock::default(),
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

    /// Says that witnesses are asked: what is published of ledgers has their signatures.
    pub(crate) fn set_witnessed(&self) {
        self.witnessed.store(true, Ordering::Relaxed);
    }

    /// Whether witnesses are asked.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.witnessed.load(Ordering::Relaxed)
    }

    /// Notes how large a ledger was when this process started.
    pub(crate) fn set_published(&self, tenant: &TenantId, size: u64) {
        let mut published = self
            .published
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        published.entry(tenant.clone()).or_insert(size);
    }

    /// How large it was; nothing where it was made since.
    pub(crate) fn published_at_start(&self, tenant: &TenantId) -> u64 {
        let published = self
            .published
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        published.get(tenant).copied().unwrap_or(0)
    }

    /// Done when nothing more is to be begun.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
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
