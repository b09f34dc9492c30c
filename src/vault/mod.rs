//! The vault: the only room that holds secrets and randomness.
//!
//! A root key opens the keys of the tenants, which are files beside it and never in Postgres: the seal
//! keys, the ledger's key and the epoch keys. An epoch key wraps the keys of runs (one a run and tier),
//! those wrap the keys of payloads, and both lie wrapped in the database. Whoever has the database
//! alone opens nothing, and destroying a key makes everything below it unreadable.

mod cipher;
mod commitment;
mod files;
pub(crate) mod random;
mod seal_keys;
mod signer;
mod survey;

pub use commitment::{Commitment, commit_to, salt_of};
pub use signer::{LedgerKey, PublicKey, SealKey};
pub use survey::TenantFolder;

use cipher::{Key, Place};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
use seal_keys::SealKeys;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
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

/// All keys of a server.
pub struct Vault {
    root: Key,
    folder: PathBuf,
    tenants: RwLock<HashMap<TenantId, Arc<TenantKeys>>>,
    seals: SealKeys,
}

/// The keys of one tenant, but for its seal keys.
pub struct TenantKeys {
    tenant: TenantId,
    ledger: LedgerKey,
    epochs: HashMap<i32, Key>,
    epoch: i32,
}

/// A key of a run and tier as it lies in the database.
#[derive(Clone, Debug)]
pub struct WrappedRunKey {
    /// 0 to 3.
    pub tier: i16,
    /// The epoch whose key wraps it.
    pub epoch: i32,
    /// The wrapped bytes.
    pub wrapped: Vec<u8>,
}

/// The keys of a run, one a tier; those whose tier was erased are gone.
pub struct RunKeys {
    tenant: TenantId,
    run: RunId,
    keys: HashMap<i16, Key>,
    /// [`cipher::request_key`] of requests without payloads, which is the same for all of them.
    request_key: OnceLock<Key>,
}

/// A payload as it is stored.
pub struct SealedPayload {
    /// The commitment.
    pub commit: Hash,
    /// Length after padding, in bytes.
    pub size: u64,
    /// `size` + 16 bytes.
    pub ciphertext: Vec<u8>,
    /// The payload's key under the run's.
    pub wrapped_dek: Vec<u8>,
    /// For the fingerprint of the request; `None` where the agent kept the payload, and its key.
    dek: Option<Key>,
}

/// A payload as it is disclosed.
pub struct OpenedPayload {
    /// What was said.
    pub plaintext: Vec<u8>,
    /// The salt of its commitment.
    pub salt: Hash,
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
            seals: SealKeys::default(),
        })
    }

    /// Makes the keys of a new tenant but for its seal key ([`Vault::new_seal_key`]), durable before they are returned:
    /// a crash after this leaves keys that no tenant uses, never a tenant without keys.
    pub fn create_tenant(
        &self,
        tenant: &TenantId,
        origin: &Origin,
    ) -> Result<Arc<TenantKeys>, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        files::private_folder(&folder)?;
        for name in ["ledger", "epoch-1"] {
            let secret = Zeroizing::new(random::bytes::<32>()?);
            let wrapped = cipher::wrap(&self.root, &label(tenant, name), &secret[..])?;
            let text = format!("{}\n", onrecord_core::digest::hex(&wrapped));
            let path = folder.join(format!("{name}.key"));
            if !files::write_new(&path, text.as_bytes())? {
                return Err(VaultError::Taken { path });
            }
        }
        self.tenant(tenant, origin)
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
        let keys = Arc::new(self.load(tenant, origin)?);
        self.tenants
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tenant.clone(), keys.clone());
        Ok(keys)
    }

    fn load(&self, tenant: &TenantId, origin: &Origin) -> Result<TenantKeys, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        if !folder.exists() {
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
        Ok(TenantKeys {
            tenant: tenant.clone(),
            ledger: LedgerKey::new(&*key("ledger")?, origin)?,
            epochs,
            epoch,
        })
    }
}

fn label(tenant: &TenantId, name: &str) -> String {
    format!("onrecord/tenant-key/1\n{tenant}\n{name}")
}

fn run_label(tenant: &TenantId, run: &RunId, tier: i16) -> String {
    format!("onrecord/run-key/1\n{tenant}\n{run}\n{tier}")
}

fn dek_label(run: &RunId, commit: &Hash) -> String {
    format!("onrecord/dek/1\n{run}\n{commit}")
}

impl TenantKeys {
    /// The key that signs checkpoints.
    pub fn ledger(&self) -> &LedgerKey {
        &self.ledger
    }

    /// Makes the keys of a new run, one a tier.
    pub fn new_run(&self, run: &RunId) -> Result<(RunKeys, Vec<WrappedRunKey>), VaultError> {
        let epoch_key = self.epochs.get(&self.epoch).ok_or(VaultError::Key)?;
        let mut keys = HashMap::new();
        let mut wrapped = Vec::new();
        for tier in 0..i16::from(TIERS) {
            let key = Zeroizing::new(random::bytes::<32>()?);
            let bytes = cipher::wrap(epoch_key, &run_label(&self.tenant, run, tier), &key[..])?;
            wrapped.push(WrappedRunKey {
                tier,
                epoch: self.epoch,
                wrapped: bytes,
            });
            keys.insert(tier, key);
        }
        Ok((
            RunKeys {
                tenant: self.tenant.clone(),
                run: run.clone(),
                keys,
                request_key: OnceLock::new(),
            },
            wrapped,
        ))
    }

    /// Opens the keys of a run.
    pub fn open_run(&self, run: &RunId, wrapped: &[WrappedRunKey]) -> Result<RunKeys, VaultError> {
        let mut keys = HashMap::new();
        for one in wrapped {
            let epoch_key = self.epochs.get(&one.epoch).ok_or(VaultError::Key)?;
            keys.insert(
                one.tier,
                cipher::unwrap_key(
                    epoch_key,
                    &run_label(&self.tenant, run, one.tier),
                    &one.wrapped,
                )?,
            );
        }
        Ok(RunKeys {
            tenant: self.tenant.clone(),
            run: run.clone(),
            keys,
            request_key: OnceLock::new(),
        })
    }
}

impl SealedPayload {
    /// What is stored of a payload that the agent kept: its commitment, so that it is in no other place of the run, and
    /// nothing that could be opened.
    pub fn kept(commit: Hash, size: u64) -> Self {
        Self {
            commit,
            size,
            ciphertext: Vec::new(),
            wrapped_dek: Vec::new(),
            dek: None,
        }
    }
}

impl RunKeys {
    fn key(&self, tier: i16) -> Result<&Key, VaultError> {
        self.keys.get(&tier).ok_or(VaultError::Key)
    }

    fn place<'a>(&'a self, media: &'a str) -> Place<'a> {
        Place {
            tenant: &self.tenant,
            run: &self.run,
            media,
        }
    }

    /// Commits to a payload and encrypts it under a key of its own.
    pub fn seal(
        &self,
        tier: i16,
        media: &str,
        plaintext: Vec<u8>,
    ) -> Result<SealedPayload, VaultError> {
        let dek = Zeroizing::new(random::bytes::<32>()?);
        self.seal_under(dek, tier, media, plaintext)
    }

    /// The same under a key that the agent made, which thereby made the commitment too.
    pub fn seal_under(
        &self,
        dek: Zeroizing<[u8; 32]>,
        tier: i16,
        media: &str,
        plaintext: Vec<u8>,
    ) -> Result<SealedPayload, VaultError> {
        let (commit, ciphertext) = cipher::seal_payload(&dek, &self.place(media), plaintext)?;
        let wrapped_dek = cipher::wrap(self.key(tier)?, &dek_label(&self.run, &commit), &dek[..])?;
        Ok(SealedPayload {
            commit,
            size: ciphertext.len() as u64 - 16,
            ciphertext,
            wrapped_dek,
            dek: Some(dek),
        })
    }

    fn dek(&self, tier: i16, commit: &Hash, wrapped_dek: &[u8]) -> Result<Key, VaultError> {
        cipher::unwrap_key(self.key(tier)?, &dek_label(&self.run, commit), wrapped_dek)
    }

    /// Decrypts a payload and checks it against its commitment.
    pub fn open(
        &self,
        tier: i16,
        media: &str,
        commit: &Hash,
        wrapped_dek: &[u8],
        ciphertext: &[u8],
    ) -> Result<OpenedPayload, VaultError> {
        let dek = self.dek(tier, commit, wrapped_dek)?;
        let plaintext = cipher::open_payload(&dek, &self.place(media), commit, ciphertext)?;
        Ok(OpenedPayload {
            plaintext,
            salt: Hash(cipher::salt(&dek)?),
        })
    }

    /// The salt of a payload's commitment.
    pub fn salt(&self, tier: i16, commit: &Hash, wrapped_dek: &[u8]) -> Result<Hash, VaultError> {
        cipher::salt(&self.dek(tier, commit, wrapped_dek)?).map(Hash)
    }

    /// The fingerprint of a secret that was redacted, by which it is found to be the same elsewhere in the run.
    pub fn secret_fingerprint(&self, secret: &[u8]) -> Result<Hash, VaultError> {
        cipher::secret_fingerprint(self.key(0)?, &self.run, secret)
    }

    /// The fingerprint of a new frame's request, by which a retry is told from another request.
    pub fn request_mac<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a SealedPayload>,
        request: &[u8],
    ) -> Result<[u8; 16], VaultError> {
        let deks: Vec<Key> = payloads
            .into_iter()
            .filter_map(|payload| payload.dek.clone())
            .collect();
        self.mac(&deks, request)
    }

    fn mac(&self, deks: &[Key], request: &[u8]) -> Result<[u8; 16], VaultError> {
        let run_key = self.key(0)?;
        if !deks.is_empty() {
            return cipher::request_mac(&cipher::request_key(run_key, deks)?, request);
        }
        let key = match self.request_key.get() {
            Some(key) => key,
            None => {
                let key = cipher::request_key(run_key, deks)?;
                self.request_key.get_or_init(|| key)
            }
        };
        cipher::request_mac(key, request)
    }

    /// Whether a request is the one that a stored frame was made of. `stored` are its payloads, those
    /// of a result after those of its call, in their order, as `(tier, commit, wrapped DEK)`.
    pub fn same_request(
        &self,
        stored: &[(i16, Hash, Vec<u8>)],
        request: &[u8],
        mac: &[u8],
    ) -> Result<bool, VaultError> {
        let deks = stored
            .iter()
            .map(|(tier, commit, wrapped)| self.dek(*tier, commit, wrapped))
            .collect::<Result<Vec<Key>, _>>()?;
        let expected = self.mac(&deks, request)?;
        Ok(subtle::ConstantTimeEq::ct_eq(&expected[..], mac).into())
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
