//! The vault: the only room that holds secrets and randomness.
//!
//! A root key opens the keys of the tenants, which are files beside it and never in Postgres: the seal
//! key, the ledger's key, the fingerprint key and the epoch keys. An epoch key wraps the keys of runs
//! (of each run and tier one, and another one whenever it is renewed), those wrap the keys of payloads,
//! and both lie wrapped in databases. Whoever has the databases alone opens nothing, and destroying a
//! key makes everything below it unreadable.

mod cipher;
mod epochs;
mod files;
pub(crate) mod random;
mod run;
mod signer;
mod survey;

pub use run::{OpenedPayload, RunKeys, SealedPayload, WrappedRunKey};
pub use signer::{LedgerKey, PublicKey, SealKey};
pub use survey::TenantFolder;

use cipher::Key;
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
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
    /// There are keys of tenants, or evidence, but not the root key that opens them.
    #[error(
        "root key {path} is not there, but keys or evidence under it are; put it back, or name it with --root-key"
    )]
    RootMissing {
        /// The file.
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

/// All keys of a server.
pub struct Vault {
    root: Key,
    folder: PathBuf,
    tenants: RwLock<HashMap<TenantId, Arc<TenantKeys>>>,
}

/// The keys of one tenant.
pub struct TenantKeys {
    tenant: TenantId,
    seal: SealKey,
    ledger: LedgerKey,
    /// Of it are the keys of runs for what outlives the keys of their tiers.
    fingerprint: Key,
    epochs: HashMap<i32, Key>,
    epoch: i32,
}

impl Vault {
    /// Opens the vault of a folder.
    ///
    /// `root` names a root key file of somebody else's care; without it the key is `root.key` in the
    /// folder, and is made there if `create` says that nothing is encrypted under another one yet.
    pub fn open(folder: &Path, root: Option<&Path>, create: bool) -> Result<Self, VaultError> {
        files::private_folder(folder)?;
        let path = root.map_or_else(|| folder.join("root.key"), Path::to_owned);
        if root.is_none() && !path.exists() {
            // Another root key would open nothing of what is there.
            if !create || files::has_tenants(folder)? {
                return Err(VaultError::RootMissing { path });
            }
            let key = Zeroizing::new(random::bytes::<32>()?);
            let text = Zeroizing::new(format!("{}\n", onrecord_core::digest::hex(&key[..])));
            // Where another process was first, its key is the key.
            files::write_new(&path, text.as_bytes())?;
        }
        Ok(Self {
            root: files::read_root(&path)?,
            folder: folder.to_owned(),
            tenants: RwLock::default(),
        })
    }

    /// Makes the keys of a new tenant, durable before they are returned: a crash after this leaves keys
    /// that no tenant uses, never a tenant without keys.
    pub fn create_tenant(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        files::private_folder(&folder)?;
        for name in ["seal", "ledger", "epoch-1"] {
            if !self.make_key(tenant, name)? {
                let path = folder.join(format!("{name}.key"));
                return Err(VaultError::Taken { path });
            }
        }
        self.tenant(tenant, origin)
    }

    /// Makes a key of a tenant, durable when this returns; false where there is one of that name.
    fn make_key(&self, tenant: &TenantId, name: &str) -> Result<bool, VaultError> {
        let secret = Zeroizing::new(random::bytes::<32>()?);
        let wrapped = cipher::wrap(&self.root, &label(tenant, name), &secret[..])?;
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
    pub fn tenant(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        if let Some(keys) = self.known(tenant) {
            return Ok(keys);
        }
        self.reread(tenant, origin)
    }

    /// The keys of a tenant as they lie in the folder now: another process may have made an epoch.
    pub fn reread(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        let keys = Arc::new(self.load(tenant, origin)?);
        self.tenants
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tenant.clone(), keys.clone());
        Ok(keys)
    }

    fn load(&self, tenant: &TenantId, origin: &Origin) -> Result<TenantKeys, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        if !folder.join("seal.key").exists() {
            return Err(VaultError::NoTenant {
                tenant: tenant.clone(),
                path: self.folder.clone(),
            });
        }
        let key = |name: &str| {
            let path = folder.join(format!("{name}.key"));
            let wrapped = files::read_hex(&path)?;
            cipher::unwrap_key(&self.root, &label(tenant, name), &wrapped)
                .map_err(|_| VaultError::Wrong { path })
        };
        let mut epochs = HashMap::new();
        for epoch in files::epochs(&folder)? {
            epochs.insert(epoch, key(&format!("epoch-{epoch}"))?);
        }
        if epochs.is_empty() {
            // Fails, and says which file is not there.
            epochs.insert(1, key("epoch-1")?);
        }
        let epoch = epochs.keys().copied().max().ok_or(VaultError::Key)?;
        // Tenants of before this key was thought of have none. Where another process was first, its key is the key.
        if !folder.join("fingerprint.key").exists() {
            self.make_key(tenant, "fingerprint")?;
        }
        Ok(TenantKeys {
            tenant: tenant.clone(),
            seal: SealKey::new(&*key("seal")?)?,
            ledger: LedgerKey::new(&*key("ledger")?, origin)?,
            fingerprint: key("fingerprint")?,
            epochs,
            epoch,
        })
    }
}

fn label(tenant: &TenantId, name: &str) -> String {
    format!("onrecord/tenant-key/1\n{tenant}\n{name}")
}

impl TenantKeys {
    /// The key that signs statements.
    pub fn seal(&self) -> &SealKey {
        &self.seal
    }

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
