//! What others are told of ledgers, beside the agents' path: witnesses cosign the latest checkpoint, an authority stamps
//! seals, and a file outside of the database says what was published last.
//!
//! A round goes over all tenants whose ledgers have grown. All of it is done again after a crash, and by several processes
//! at once without harm: what is kept is kept once.

mod policy;
mod published;
mod stamp;
mod witness;

pub use policy::{BadPolicy, Policy};

use crate::record::rewind::Told;
use crate::record::{RecordError, Recorder, offload};
use crate::store::{self, StoreError};
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::timestamp::Timestamp;
use published::{Published, Record};
use stamp::Authority;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use witness::Asked;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// The first pause after a failure; it doubles with each further one.
const BACK_OFF: Duration = Duration::from_secs(1);
/// The longest pause after a failure.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(120);

/// Whom to ask, and where to keep what was published.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Folder of the files of what was published; by default `published` in the data folder.
    pub published: Option<PathBuf>,
    /// The witnesses, and how many of them are enough.
    pub witnesses: Option<Policy>,
    /// Address of a time-stamping authority (RFC 3161 over HTTP).
    pub authority: Option<String>,
}

/// What can go wrong with anchors.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The ledger, or the database.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file of what was published.
    #[error(
        "{path}: {source}; it says what was published last of a ledger, outside of the database"
    )]
    Published {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is there and says nothing.
    #[error(
        "{path} is no checkpoint of {origin}: put it back from a backup, or remove it if it is certain that the database was not put back"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The ledger.
        origin: Origin,
    },
    /// An address cannot be asked.
    #[error("{url}: {problem}")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<StoreError> for AnchorError {
    fn from(error: StoreError) -> Self {
        Self::Record(error.into())
    }
}

/// What a witness or the authority said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Failures in a row.
    failures: u32,
    /// Not before then.
    next: Option<Instant>,
    /// In words, since the last success.
    problem: Option<String>,
}

impl Standing {
    fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    fn well(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure; true for the first in a row, which is the one to be told.
    fn failed(&mut self, problem: String) -> bool {
        let pause = BACK_OFF * 2_u32.saturating_pow(self.failures.min(10));
        self.next = Some(Instant::now() + pause.min(LONGEST_BACK_OFF));
        self.failures = self.failures.saturating_add(1);
        let is_new = self.problem.as_deref() != Some(&problem);
        self.problem = Some(problem);
        is_new
    }
}

/// What is known of one tenant.
#[derive(Debug, Default)]
struct Known {
    /// What the file says.
    record: Option<Record>,
    /// Size of the largest checkpoint that is cosigned by enough.
    cosigned: Option<u64>,
    /// Since when a checkpoint waits for that.
    waiting: Option<Instant>,
    /// Index up to which seals are stamped.
    stamped: Option<u64>,
    /// Witnesses by their place: the size that each knows, and how it stands with it.
    witnesses: HashMap<usize, (u64, Standing)>,
}

/// Whoever tells others of the ledgers of a server.
pub struct Anchors {
    recorder: Recorder,
    published: Published,
    witnesses: Vec<Asked>,
    policy: Option<Policy>,
    authority: Option<Authority>,
    known: Mutex<HashMap<TenantId, Known>>,
    /// How it stands with the authority.
    stamping: Mutex<Standing>,
    /// Rounds take turns.
    round: tokio::sync::Mutex<()>,
}

/// How it stands with a witness.
#[derive(Clone, Debug)]
pub(crate) struct WitnessState {
    /// Its verifier key.
    pub(crate) witness: String,
    pub(crate) url: String,
    /// The largest checkpoint of the tenant that it cosigned, and when.
    pub(crate) cosigned: Option<(u64, Timestamp)>,
    /// What it, or its absence, says since then.
    pub(crate) problem: Option<String>,
}

/// How it stands with all that is told of a ledger.
#[derive(Clone, Debug)]
pub(crate) struct AnchorState {
    pub(crate) witnesses: Vec<WitnessState>,
    /// Size of the largest checkpoint that enough of them cosigned.
    pub(crate) cosigned_size: Option<u64>,
    /// Address of the authority, and what it, or its absence, says.
    pub(crate) authority: Option<(String, Option<String>)>,
    /// The last stamped seal's index, and the authority's time.
    pub(crate) stamped_seal: Option<(u64, Timestamp)>,
    /// The last stamped checkpoint's size, and the authority's time.
    pub(crate) stamped_checkpoint: Option<(u64, Timestamp)>,
    pub(crate) rewinds: Vec<store::rewinds::Rewind>,
}

impl Anchors {
    /// Anchors over a recorder. Nobody is asked before [`Self::round`].
    ///
    /// # Errors
    /// [`AnchorError::Address`]: whoever is to be asked cannot be. [`AnchorError::Published`]: there can be no folder.
    pub fn new(recorder: Recorder, config: &Config, data_dir: &Path) -> Result<Self, AnchorError> {
        let folder = config.published.clone();
        let published = Published::open(folder.unwrap_or_else(|| data_dir.join("published")))?;
        let asked = config.witnesses.iter().flat_map(Policy::asked);
        let witnesses = asked.map(|one| Asked::new(http_client(one.2)?, one));
        let witnesses = witnesses.collect::<Result<Vec<_>, _>>()?;
        let authority = config.authority.as_deref();
        let authority = authority.map(|url| Authority::new(http_client(url)?, url));
        if !witnesses.is_empty() {
            recorder.set_witnessed();
        }
        Ok(Self {
            recorder,
            published,
            witnesses,
            policy: config.witnesses.clone(),
            authority: authority.transpose()?,
            known: Mutex::default(),
            stamping: Mutex::default(),
            round: tokio::sync::Mutex::default(),
        })
    }

    /// Compares all ledgers with what was published of them, before anything is recorded.
    ///
    /// # Errors
    /// The database, or a file that cannot be read.
    pub async fn check(&self) -> Result<(), AnchorError> {
        for (tenant, origin, size) in self.recorder.store().ledgers().await? {
            self.recorder.set_published(&tenant, size);
            self.keep_published(&tenant, &origin).await?;
        }
        Ok(self.recorder.refresh_rewound().await?)
    }

    /// Goes round until the recorder stops.
    pub async fn run(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.recorder.stopping() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            self.round().await;
        }
    }

    /// One round over all tenants whose ledgers have grown, or that wait for an answer. What fails is logged and done again.
    pub async fn round(&self) {
        let _turn = self.round.lock().await;
        if let Err(error) = self.recorder.refresh_rewound().await {
            tracing::warn!(%error, "it could not be asked whether a ledger lacks what was published");
        }
        let ledgers = match self.recorder.store().ledgers().await {
            Ok(ledgers) => ledgers,
            Err(error) => {
                tracing::warn!(%error, "the ledgers could not be looked at");
                return;
            }
        };
        // First what needs nobody else: it does not wait for whoever does not answer.
        let mut sound = Vec::new();
        for (tenant, origin, size) in ledgers {
            let record = self.known(&tenant, |known| known.record.clone());
            if record.is_none_or(|record| record.size != size) {
                match self.keep_published(&tenant, &origin).await {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        tracing::error!(%tenant, %error, "what was published of the ledger could not be compared or kept");
                        continue;
                    }
                }
            }
            sound.push((tenant, size));
        }
        for (tenant, size) in sound {
            if let Err(error) = self.ask_witnesses(&tenant, size).await {
                tracing::warn!(%tenant, %error, "witnesses could not be asked");
            }
            if let Err(error) = self.ask_authority(&tenant, size).await {
                tracing::warn!(%tenant, %error, "seals could not be stamped");
            }
        }
    }

    /// How it stands with what is told of a tenant's ledger.
    pub(crate) async fn state(&self, tenant: TenantId) -> Result<AnchorState, AnchorError> {
        let mut tx = self.recorder.store().snapshot(&tenant).await?;
        let mut witnesses = Vec::new();
        for (place, asked) in self.witnesses.iter().enumerate() {
            let witness = asked.verifier().to_string();
            let cosigned = store::anchors::last_of_witness(&mut tx, &tenant, &witness).await?;
            let problem = self.known(&tenant, |known| {
                let standing = known.witnesses.get(&place);
                standing.and_then(|(_, standing)| standing.problem.clone())
            });
            witnesses.push(WitnessState {
                url: asked.url().to_owned(),
                witness,
                cosigned,
                problem,
            });
        }
        let cosigned = store::anchors::cosigned(&mut tx, &tenant).await?;
        let seal = store::anchors::Stamped::Seal;
        let checkpoint = store::anchors::Stamped::Checkpoint;
        let seal = store::anchors::stamp(&mut tx, &tenant, seal, None).await?;
        let checkpoint = store::anchors::stamp(&mut tx, &tenant, checkpoint, None).await?;
        let rewinds = store::rewinds::all(&mut tx, &tenant).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let standing = lock(&self.stamping).problem.clone();
        let authority = self.authority.as_ref();
        Ok(AnchorState {
            witnesses,
            cosigned_size: cosigned.map(|(size, _)| size),
            authority: authority.map(|authority| (authority.url().to_owned(), standing)),
            stamped_seal: seal.map(|stamp| (stamp.number, stamp.stamped_at)),
            stamped_checkpoint: checkpoint.map(|stamp| (stamp.number, stamp.stamped_at)),
            rewinds,
        })
    }

    /// Compares the ledger with the file of what was published, and then writes what is the latest into it. False where the
    /// ledger lacks something.
    async fn keep_published(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<bool, AnchorError> {
        let known = self.known(tenant, |known| known.record.clone());
        let record = match known {
            Some(record) => Some(record),
            None => self.published.read(origin)?,
        };
        let mut tx = self.recorder.store().snapshot(tenant).await?;
        let latest = store::ledger::checkpoint(&mut tx, tenant).await;
        let same = match (&record, &latest) {
            (Some(record), Ok((size, _))) if record.size <= *size => {
                crate::ledger::log::root(&mut tx, tenant, record.size).await? == record.root
            }
            (None, _) => true,
            _ => false,
        };
        tx.commit().await.map_err(StoreError::from)?;
        let (size, note) = latest?;
        if !same && let Some(Record { size, root, .. }) = record {
            let told = Told::Published { size, root };
            let has = self.recorder.has_published(tenant, told).await?;
            let waits = self.recorder.rewinds(tenant.clone()).await?;
            if !has && waits.iter().any(|one| !one.accepted) {
                return Ok(false);
            }
        }
        // Only what is committed is written, so that a crash before or after leaves a file that the ledger reaches.
        if record.is_none_or(|record| !same || record.size < size) {
            // It waits for the disk.
            let record = offload(usize::MAX, || self.published.write(origin, &note))?;
            self.known(tenant, |known| known.record = Some(record));
        }
        Ok(true)
    }

    /// Something of what is known of a tenant.
    fn known<T>(&self, tenant: &TenantId, look: impl FnOnce(&mut Known) -> T) -> T {
        look(lock(&self.known).entry(tenant.clone()).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that waits for nobody for long, and goes where it is told and nowhere else.
fn http_client(url: &str) -> Result<reqwest::Client, AnchorError> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let mut client = reqwest::Client::builder();
    let host = reqwest::Url::parse(url).ok();
    let host = host.as_ref().and_then(|url| url.host_str());
    let host = host.map(|host| host.trim_matches(['[', ']']));
    let is_here = |host: &str| {
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    };
    if host.is_some_and(is_here) {
        // What is meant for this machine goes to no proxy.
        client = client.no_proxy();
    }
    client
        .connect_timeout(TIMEOUT)
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("onrecord/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| AnchorError::Address {
            url: url.to_owned(),
            problem: error.to_string(),
        })
}

/// The whole of an answer of at most so many bytes.
async fn answer(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(told)? {
        if bytes.len() + piece.len() > limit {
            return Err("its answer is too long to be one".to_owned());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// An error of the client and what caused it, on one line.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
