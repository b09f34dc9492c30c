//! Starting a server: the database, the keys, the first tenant and its token.

use crate::anchor::{self, AnchorError, Anchors};
use crate::http::body::Memory;
use crate::http::{App, BODY_IDLE, BODY_MEMORY_MIB, Effort, Streams, UPLOAD_BYTES, VERIFICATIONS};
use crate::postgres::{Cluster, Durability, PostgresError};
pub use crate::record::stated::HeadsEvery;
use crate::record::{RecordError, Recorder, Rules};
use crate::redact::{Literals, RuleError};
use crate::retention::pace::SweepLimits;
use crate::store::{Store, StoreError};
pub use crate::vault::{RootSource, Survey, TenantFolder, TransitSource};
use crate::vault::{Vault, VaultError};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// Name of the file with the first token, in the data folder.
pub const TOKEN_FILE: &str = "admin.token";
/// Database of the embedded cluster.
pub const DATABASE: &str = "onrecord";

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the token file, of the keys unless given, and of the embedded cluster.
    pub data_dir: PathBuf,
    /// A PostgreSQL to use instead of the embedded one, and nothing else.
    pub database_url: Option<String>,
    /// The database of the keys of runs; without it they are in the evidence's.
    pub key_database_url: Option<String>,
    /// Folder of PostgreSQL's programs, where they are in none of the known places.
    pub postgres_bin: Option<PathBuf>,
    /// Folder of the keys; by default `keys` in the data folder.
    pub keys: Option<PathBuf>,
    /// Where the root key is.
    pub root_key: RootSource,
    /// Host in the origins of new ledgers.
    pub public_host: String,
    /// Connections to the database.
    pub connections: u32,
    /// Whether the records must survive a crash; only tests say no.
    pub durability: Durability,
    /// Whether to make another owner's token.
    pub new_token: bool,
    /// Whether secrets are taken out of payloads before these are recorded.
    pub redaction: bool,
    /// File of literal secrets, one a line.
    pub literals: Option<PathBuf>,
    /// Who is told of the ledgers.
    pub anchors: anchor::Config,
}

impl Config {
    /// Folder of the keys.
    pub fn keys_folder(&self) -> PathBuf {
        let keys = self.keys.clone();
        keys.unwrap_or_else(|| self.data_dir.join("keys"))
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The embedded cluster.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keys.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The rules of redaction.
    #[error("redaction: {0}")]
    Rules(#[from] RuleError),
    /// The file of literal secrets.
    #[error("cannot read {path}: {source}")]
    Literals {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read the file of literal secrets.
    #[error("{path} is for its owner alone: chmod 0600 it")]
    LiteralsOpen {
        /// The file.
        path: PathBuf,
    },
    /// The first tenant.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Witnesses, the authority, or what was published.
    #[error(transparent)]
    Anchor(#[from] AnchorError),
    /// The token's file.
    #[error("cannot write {path}: {source}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A server that is ready to serve.
pub struct Started {
    /// What its handlers have.
    pub app: App,
    /// The embedded cluster; it ends with the server.
    pub cluster: Option<Cluster>,
    /// The file with a new token and the token itself, where one was made.
    pub token: Option<(PathBuf, String)>,
}

/// Brings everything up to the point where a listener can be served.
pub async fn start(config: &Config) -> Result<Started, StartError> {
    let (cluster, url) = match &config.database_url {
        Some(url) => (None, url.clone()),
        None => {
            let cluster = Cluster::start(
                &config.data_dir,
                config.durability,
                config.postgres_bin.as_deref(),
            )
            .await?;
            Store::create_database(cluster.url(), DATABASE).await?;
            let url = cluster.database_url(DATABASE);
            (Some(cluster), url)
        }
    };
    let key_url = config.key_database_url.as_deref();
    Store::migrate(&url, key_url).await?;
    let store = Store::connect(&url, key_url, config.connections).await?;
    let keys = config.keys_folder();
    let empty = store.first_tenant().await?.is_none();
    let vault = Vault::open(&keys, &config.root_key, empty).await?;
    let literals = config.literals.as_deref().map(read_literals).transpose()?;
    let redaction = config
        .redaction
        .then(|| Rules::new(literals.flatten()))
        .transpose()?;
    let recorder = Recorder::new(store, Arc::new(vault), redaction);
    // Rather no server than one that finds out at the first frame that keys are lost.
    recorder.ready().await?;
    recorder.check_keys().await?;
    recorder.finish_rotations().await?;
    let anchors = Anchors::new(recorder.clone(), &config.anchors, &config.data_dir)?;
    anchors.check().await?;
    let token = match first_token(&recorder, config).await? {
        Some(token) => {
            let path = config.data_dir.join(TOKEN_FILE);
            write_token(&path, &token).map_err(|source| StartError::Token {
                path: path.clone(),
                source,
            })?;
            Some((path, token))
        }
        None => None,
    };
    let app = App {
        recorder,
        public_host: config.public_host.as_str().into(),
        upload_bytes: UPLOAD_BYTES,
        body_idle: BODY_IDLE,
        body_memory: Memory::new(BODY_MEMORY_MIB),
        verifications: Arc::new(Semaphore::new(VERIFICATIONS)),
        effort: Effort::default(),
        streams: Streams::default(),
        finality: Default::default(),
        sweeping: SweepLimits::NONE,
        anchors: Arc::new(anchors),
    };
    Ok(Started {
        app,
        cluster,
        token,
    })
}

/// Reads literal secrets from a file that its owner alone may read.
fn read_literals(path: &Path) -> Result<Option<Literals>, StartError> {
    let at = |source| StartError::Literals {
        path: path.to_owned(),
        source,
    };
    let mode = fs::metadata(path).map_err(at)?.permissions().mode();
    // As with the root key: systemd's credentials carry group bits in some versions.
    if mode & 0o007 != 0 {
        return Err(StartError::LiteralsOpen {
            path: path.to_owned(),
        });
    }
    let text = Zeroizing::new(fs::read_to_string(path).map_err(at)?);
    Ok(Literals::read(&text)?)
}

/// Looks at the keys that a server of this configuration would open, and changes nothing.
///
/// # Errors
/// [`StartError::Vault`]: the root key is not there, or the folder cannot be read.
pub async fn survey_keys(config: &Config) -> Result<Survey, StartError> {
    Ok(Vault::survey(&config.keys_folder(), &config.root_key).await?)
}

/// Moves the keys in a folder from one root key to another, while no server runs; see [`Vault::rewrap_root`].
///
/// # Errors
/// [`StartError::Vault`].
pub async fn rewrap_root(
    folder: &Path,
    old: &RootSource,
    new: &RootSource,
    told: impl FnMut(usize, usize),
) -> Result<usize, StartError> {
    Ok(Vault::rewrap_root(folder, old, new, told).await?)
}

/// Makes the first tenant where there is none. Several servers may start on one empty database: one of
/// them makes it.
async fn first_token(recorder: &Recorder, config: &Config) -> Result<Option<String>, StartError> {
    let _turn = recorder.store().first_tenant_turn().await?;
    let made = match recorder.store().first_tenant().await? {
        None => Some(
            recorder
                .create_tenant(&config.public_host, "first")
                .await?
                .1,
        ),
        Some(tenant) if config.new_token => Some(
            recorder
                .create_token(tenant, crate::access::TokenRequest::owner())
                .await?,
        ),
        Some(_) => None,
    };
    Ok(made.map(|new| new.token.0))
}

/// Writes a token's file, for its owner alone and in one step.
pub(crate) fn write_token(path: &Path, token: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension("token.new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
