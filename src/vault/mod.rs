//! The vault: the only room that holds secrets and randomness.
//!
//! A root key opens the keys of the tenants, which are files beside it and never in Postgres: the seal
//! keys, the ledger's key, the fingerprint key and the epoch keys. An epoch key wraps the keys of runs
//! (of each run and tier one, and another one whenever it is renewed), those wrap the keys of payloads,
//! and both lie wrapped in databases. Whoever has the databases alone opens nothing, and destroying a
//! key makes everything below it unreadable.

mod check;
mod cipher;
mod commitment;
mod epochs;
mod files;
pub(crate) mod random;
mod rewrap;
mod root;
mod run;
mod seal_keys;
mod signer;
mod survey;
mod transit;
mod witness;

pub use commitment::{Commitment, commit_to, salt_of};
pub use root::RootSource;
pub use run::{OpenedPayload, RunKeys, SealedPayload, WrappedRunKey};
pub use signer::{LedgerKey, PublicKey, SealKey};
pub use survey::{Survey, TenantFolder};
pub use transit::TransitSource;
pub use witness::WitnessKey;

use cipher::Key;
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
use root::RootKey;
use seal_keys::SealKeys;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Retention tiers, each with a run key of its own.
pub const TIERS: u8 = 4;

/// What can go wrong with keys. No variant says anything of a key itself.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Randomness,
    /// A ciphertext does not open: another key, another place, or altered bytes.
    #[error("a ciphertext does not open under its key")]
    Cipher,
    /// A key file is malformed.
    #[error("a key is malformed")]
    Key,
    /// A key is wrapped by an epoch's that is not in the keys folder, or was not when it was read.
    #[error(
        "the key of epoch {epoch} is not in the keys folder: it was destroyed, or made elsewhere"
    )]
    Epoch {
        /// The epoch.
        epoch: i32,
    },
    /// The folder is not the one that the database tells of.
    #[error(
        "the database knows epoch {known}, and the newest in the keys folder is {newest}: it is an old copy, or not the folder that all server processes share; put back the newest backup of it"
    )]
    OldFolder {
        /// The newest epoch in the database.
        known: i32,
        /// The newest epoch in the folder.
        newest: i32,
    },
    /// The newest epoch takes no new keys.
    #[error("epoch {epoch} is closed, and no newer one is in the keys folder")]
    EpochClosed {
        /// The epoch.
        epoch: i32,
    },
    /// The newest epoch cannot be destroyed: keys are wrapped under it.
    #[error("epoch {epoch} is in use: no newer one is in the keys folder")]
    EpochInUse {
        /// The epoch.
        epoch: i32,
    },
    /// A run has no such key: it was destroyed, with all payloads under it.
    #[error("the run has no key of tier {tier} and version {version}")]
    NoRunKey {
        /// The tier.
        tier: i16,
        /// The version.
        version: i16,
    },
    /// A signature did not verify with its own public key.
    #[error("a signature made here does not verify; the machine or its memory is faulty")]
    Signature,
    /// A statement cannot be written.
    #[error("a statement cannot be written in the format's limits")]
    Statement,
    /// A key file cannot be read or written.
    #[error("key file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key file is no key file, or the root key does not open it.
    #[error("key file {path} does not open under the root key; is it the root key of this data?")]
    Wrong {
        /// The file.
        path: PathBuf,
    },
    /// The root key file holds something else.
    #[error(
        "root key file {path}: expected 64 hex digits and a newline, readable by the owner only (mode 0600)"
    )]
    Root {
        /// The file.
        path: PathBuf,
    },
    /// A new tenant has keys already.
    #[error("key file {path} is there already")]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// Others may read a key that is not encrypted.
    #[error("key file {path} is for its owner alone: chmod 0600 it")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// There are keys of tenants, or evidence, but not the root key that opens them.
    #[error(
        "root key {path} is not there, but keys or evidence under it are (of provider: {under}); put it back, or name it with --root-key or --root-key-transit"
    )]
    RootMissing {
        /// The file.
        path: PathBuf,
        /// The provider that the folder names, or `unknown`.
        under: String,
    },
    /// The root key is not that of the folder.
    #[error(
        "the root key (provider: {given}) is not the one that the keys in {folder} are under (provider: {under}); give that one, or move them with `onrecord keys rewrap-root`. No key was touched"
    )]
    OtherRoot {
        /// The folder of the keys.
        folder: PathBuf,
        /// The provider that was given.
        given: String,
        /// The provider that the folder names, or `unknown`.
        under: String,
    },
    /// The keys are on their way from one root key to another.
    #[error(
        "the keys in {path} are being moved to another root key; run `onrecord keys rewrap-root` again with the same options, it goes on"
    )]
    RootMoving {
        /// The folder of the keys.
        path: PathBuf,
    },
    /// The root key was changed while this process ran.
    #[error(
        "the keys were moved to another root key since this process started; stop it, and start it with that one"
    )]
    RootMoved,
    /// The folder's check value cannot be read.
    #[error("{path} is no check value of a root key; put it back from the backup of the keys")]
    CheckFile {
        /// The file.
        path: PathBuf,
    },
    /// A root key that was given is none.
    #[error("the root key that was given is none: expected 64 hex digits")]
    Given,
    /// The service that has the root key does not do what it is asked.
    #[error("root key at {url}: {problem}")]
    Service {
        /// Its address.
        url: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The seal key that a tenant signs with is not in the keys folder.
    #[error(
        "seal key {keyid} is not in {path}; put the file back from its backup, or give every server process the same keys folder (--keys)"
    )]
    NoSealKey {
        /// The key.
        keyid: Hash,
        /// The tenant's folder.
        path: PathBuf,
    },
    /// The keys of a tenant are not in the keys folder.
    #[error(
        "the keys of tenant {tenant} are not in {path}; give every server process the same keys folder (--keys)"
    )]
    NoTenant {
        /// The tenant.
        tenant: TenantId,
        /// The folder.
        path: PathBuf,
    },
}

impl VaultError {
    /// Whether the service that has the root key may do it another time.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Service { .. })
    }
}

/// All keys of a server.
pub struct Vault {
    root: Box<dyn RootKey>,
    /// The check value's file as it was at the start.
    check: Option<String>,
    folder: PathBuf,
    tenants: RwLock<HashMap<TenantId, Arc<TenantKeys>>>,
    seals: SealKeys,
}

/// The keys of one tenant, but for its seal keys.
pub struct TenantKeys {
    tenant: TenantId,
    ledger: LedgerKey,
    /// Of it are the keys of runs for what outlives the keys of their tiers.
    fingerprint: Key,
    epochs: HashMap<i32, Key>,
    epoch: i32,
}

impl Vault {
    /// Opens the vault of a folder, and checks that the root key is that of the folder.
    ///
    /// A root key file in the folder that is not there is made, if `create` says that nothing is encrypted under
    /// another one yet.
    ///
    /// # Errors
    /// The root key is not there, or none, or another than the one that the keys are under; no key was touched.
    pub async fn open(
        folder: &Path,
        source: &RootSource,
        create: bool,
    ) -> Result<Self, VaultError> {
        files::private_folder(folder)?;
        let path = folder.join("root.key");
        if matches!(source, RootSource::File(None)) && !path.exists() {
            let check = check::read(&check::path(folder))?;
            // Another root key would open nothing of what is there.
            if !create || check.is_some() || files::has_tenants(folder)? {
                let under = check.map_or_else(|| "unknown".to_owned(), |check| check.provider);
                return Err(VaultError::RootMissing { path, under });
            }
            root::make(&path)?;
        }
        let root = root::open(folder, source)?;
        check::check(folder, &*root, create).await?;
        Ok(Self {
            root,
            check: files::read_text(&check::path(folder))?,
            folder: folder.to_owned(),
            tenants: RwLock::default(),
            seals: SealKeys::default(),
        })
    }

    /// Makes the keys of a new tenant but for its seal key ([`Vault::new_seal_key`]), durable before they are returned:
    /// a crash after this leaves keys that no tenant uses, never a tenant without keys.
    pub async fn create_tenant(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        files::private_folder(&folder)?;
        for name in ["ledger", "epoch-1"] {
            if !self.make_key(tenant, name).await? {
                let path = folder.join(format!("{name}.key"));
                return Err(VaultError::Taken { path });
            }
        }
        self.tenant(tenant, origin).await
    }

    /// Makes a key of a tenant, durable when this returns; false where there is one of that name.
    async fn make_key(&self, tenant: &TenantId, name: &str) -> Result<bool, VaultError> {
        // Somebody moved the keys to another root key under this process: a key by the old one would open for nobody.
        let is_moving = check::path_of_next(&self.folder).exists();
        if is_moving || files::read_text(&check::path(&self.folder))? != self.check {
            return Err(VaultError::RootMoved);
        }
        let secret = Zeroizing::new(random::bytes::<32>()?);
        let wrapped = self.root.wrap(&label(tenant, name), &secret[..]).await?;
        let text = format!("{}\n", onrecord_core::digest::hex(&wrapped));
        let path = self
            .folder
            .join(tenant.as_str())
            .join(format!("{name}.key"));
        files::write_new(&path, text.as_bytes())
    }

    /// The keys of a tenant, where they were opened before.
    pub fn known(&self, tenant: &TenantId) -> Option<Arc<TenantKeys>> {
        self.tenants
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(tenant)
            .cloned()
    }

    /// The keys of a tenant.
    pub async fn tenant(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        if let Some(keys) = self.known(tenant) {
            return Ok(keys);
        }
        self.reread(tenant, origin).await
    }

    /// The keys of a tenant as they lie in the folder now: another process may have made an epoch.
    pub async fn reread(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        let keys = Arc::new(self.load(tenant, origin).await?);
        self.tenants
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tenant.clone(), keys.clone());
        Ok(keys)
    }

    async fn load(&self, tenant: &TenantId, origin: &Origin) -> Result<TenantKeys, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        if !folder.exists() {
            return Err(VaultError::NoTenant {
                tenant: tenant.clone(),
                path: self.folder.clone(),
            });
        }
        let key = async |name: &str| open_key(&*self.root, &folder, tenant, name).await;
        let mut epochs = HashMap::new();
        for epoch in files::epochs(&folder)? {
            epochs.insert(epoch, key(&format!("epoch-{epoch}")).await?);
        }
        if epochs.is_empty() {
            // Fails, and says which file is not there.
            epochs.insert(1, key("epoch-1").await?);
        }
        let epoch = epochs.keys().copied().max().ok_or(VaultError::Key)?;
        // Tenants of before this key was thought of have none. Where another process was first, its key is the key.
        if !folder.join("fingerprint.key").exists() {
            self.make_key(tenant, "fingerprint").await?;
        }
        Ok(TenantKeys {
            tenant: tenant.clone(),
            ledger: LedgerKey::new(&*key("ledger").await?, origin)?,
            fingerprint: key("fingerprint").await?,
            epochs,
            epoch,
        })
    }
}

/// Opens a key file of a tenant.
async fn open_key(
    root: &dyn RootKey,
    folder: &Path,
    tenant: &TenantId,
    name: &str,
) -> Result<Key, VaultError> {
    let path = folder.join(format!("{name}.key"));
    let wrapped = files::read_hex(&path)?;
    let secret = match root.unwrap(&label(tenant, name), &wrapped).await {
        Err(VaultError::Cipher) => return Err(VaultError::Wrong { path }),
        other => other?,
    };
    let key: [u8; 32] = secret
        .as_slice()
        .try_into()
        .map_err(|_| VaultError::Wrong { path })?;
    Ok(Zeroizing::new(key))
}

fn label(tenant: &TenantId, name: &str) -> String {
    format!("onrecord/tenant-key/1\n{tenant}\n{name}")
}

impl TenantKeys {
    /// The key that signs checkpoints.
    pub fn ledger(&self) -> &LedgerKey {
        &self.ledger
    }
}

/// A new ULID of a run, at a time in milliseconds since 1970.
pub fn new_run_id(millis: u64) -> Result<RunId, VaultError> {
    Ok(RunId::from_parts(millis, random::bytes()?))
}

/// A new nonce for a session frame.
pub fn new_nonce() -> Result<Hash, VaultError> {
    Ok(Hash(random::bytes()?))
}

/// `length` random characters of `[0-9a-z]`, for ids that say nothing.
pub fn new_name(length: usize) -> Result<String, VaultError> {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut name = String::with_capacity(length);
    while name.len() < length {
        // 252 is the largest multiple of 36 that a byte holds: beyond it letters would not be equally likely.
        for byte in random::bytes::<32>()?
            .into_iter()
            .filter(|byte| *byte < 252)
        {
            if name.len() < length {
                name.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
            }
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
