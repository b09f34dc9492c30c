//! The seal keys of tenants: `seal.key`, `seal-2.key` … in a tenant's folder. Which of them signs is not said here but in
//! the tenant's row, by key id, so that no process can go on signing with one that was revoked while it ran.

use super::signer::{PublicKey, SealKey};
use super::{Vault, VaultError, files, open_key};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Seal keys that were opened, by tenant and key id.
#[derive(Default)]
pub(super) struct SealKeys(RwLock<HashMap<TenantId, HashMap<Hash, Arc<SealKey>>>>);

impl SealKeys {
    fn known(&self, tenant: &TenantId, keyid: &Hash) -> Option<Arc<SealKey>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(tenant)?.get(keyid).cloned()
    }

    /// Remembers what the folder has now, and forgets what it has no more.
    fn remember(&self, tenant: &TenantId, found: &[(PathBuf, Arc<SealKey>)]) {
        let keys = found
            .iter()
            .map(|(_, key)| (key.public().keyid, key.clone()));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(tenant.clone(), keys.collect());
    }
}

/// The name of a seal key's file, without `.key`; they are numbered from 1.
fn name(number: u32) -> String {
    match number {
        1 => "seal".to_owned(),
        _ => format!("seal-{number}"),
    }
}

/// The numbers of the seal keys that lie in a folder, rising.
///
/// # Errors
/// [`VaultError::File`]: the folder cannot be read.
pub(super) fn numbers(folder: &Path) -> Result<Vec<u32>, VaultError> {
    let mut numbers = Vec::new();
    for stem in files::key_names(folder)? {
        let number = match stem.strip_prefix("seal-") {
            Some(number) => number.parse().ok(),
            None => (stem == "seal").then_some(1),
        };
        numbers.extend(number.filter(|number| name(*number) == stem));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The names of the seal keys that lie in a folder; the first, which is missed then, where there is none.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, VaultError> {
    let mut numbers = numbers(folder)?;
    if numbers.is_empty() {
        numbers.push(1);
    }
    Ok(numbers.into_iter().map(name).collect())
}

impl Vault {
    /// The seal key of a tenant that has a key id. Where it is not known, the folder is read again: another process may
    /// have made it.
    ///
    /// # Errors
    /// [`VaultError::NoSealKey`]: it is not in the folder; otherwise a file there does not open.
    pub async fn seal_key(
        &self,
        tenant: &TenantId,
        keyid: &Hash,
    ) -> Result<Arc<SealKey>, VaultError> {
        if let Some(key) = self.seals.known(tenant, keyid) {
            return Ok(key);
        }
        let found = self.read_seal_keys(tenant).await?;
        self.seals.remember(tenant, &found);
        let mut keys = found.into_iter().map(|(_, key)| key);
        keys.find(|key| key.public().keyid == *keyid)
            .ok_or_else(|| VaultError::NoSealKey {
                keyid: *keyid,
                path: self.folder.join(tenant.as_str()),
            })
    }

    /// Makes another seal key of a tenant, durable before it is returned. Nobody signs with it before the tenant's row
    /// names it: a crash after this leaves a file that nobody uses. Whoever calls holds the tenant's lock, or the
    /// tenant is new.
    pub async fn new_seal_key(&self, tenant: &TenantId) -> Result<PublicKey, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        let number = numbers(&folder)?.last().map_or(1, |last| last + 1);
        let name = name(number);
        if !self.make_key(tenant, &name).await? {
            let path = folder.join(format!("{name}.key"));
            return Err(VaultError::Taken { path });
        }
        let secret = open_key(&*self.root, &folder, tenant, &name).await?;
        Ok(SealKey::new(&secret)?.public().clone())
    }

    /// Destroys the secrets of seal keys that are revoked; returns how many were there still. A crash in the middle
    /// leaves files of keys that nobody may sign with, which the next call destroys.
    pub async fn destroy_seal_keys(
        &self,
        tenant: &TenantId,
        revoked: &[Hash],
    ) -> Result<usize, VaultError> {
        let found = self.read_seal_keys(tenant).await?;
        let (gone, kept): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(_, key)| revoked.contains(&key.public().keyid));
        for (path, _) in &gone {
            files::destroy(path)?;
        }
        self.seals.remember(tenant, &kept);
        Ok(gone.len())
    }

    /// The seal keys in a tenant's folder, with their files.
    pub(super) async fn read_seal_keys(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<(PathBuf, Arc<SealKey>)>, VaultError> {
        let folder = self.folder.join(tenant.as_str());
        let mut keys = Vec::new();
        for number in numbers(&folder)? {
            let name = name(number);
            let secret = match open_key(&*self.root, &folder, tenant, &name).await {
                Ok(secret) => secret,
                // Another process destroyed it since.
                Err(VaultError::File { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let path = folder.join(format!("{name}.key"));
            keys.push((path, Arc::new(SealKey::new(&secret)?)));
        }
        Ok(keys)
    }
}
