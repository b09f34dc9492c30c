//! What lies in a keys folder and whether the root key opens it, for whoever looks after it: read, and
//! nothing made or changed.

use super::{Vault, VaultError, cipher, files, label, seal_keys};
use onrecord_core::id::TenantId;
use std::path::Path;

/// The keys of one tenant as they lie in the folder.
#[derive(Debug)]
pub struct TenantFolder {
    /// The tenant.
    pub tenant: TenantId,
    /// Its epochs' keys.
    pub epochs: usize,
    /// What is missing or does not open, in words.
    pub fault: Option<VaultError>,
}

impl Vault {
    /// Opens the root key of a folder and, with it, every key of every tenant there. `root` is as in
    /// [`Vault::open`].
    ///
    /// # Errors
    /// The root key is not there or none, or the folder cannot be read.
    pub fn survey(folder: &Path, root: Option<&Path>) -> Result<Vec<TenantFolder>, VaultError> {
        let path = root.map_or_else(|| folder.join("root.key"), Path::to_owned);
        let root = files::read_root(&path)?;
        let mut found = Vec::new();
        for tenant in files::tenants(folder)? {
            let place = folder.join(tenant.as_str());
            let epochs = files::epochs(&place)?;
            // Without any, the first is the one that is missed.
            let named = epochs.iter().copied().chain(epochs.is_empty().then_some(1));
            let names = named.map(|epoch| format!("epoch-{epoch}"));
            let names = seal_keys::names(&place)?
                .into_iter()
                .chain(["ledger".to_owned()])
                .chain(names);
            let fault = names
                .map(|name| {
                    let path = place.join(format!("{name}.key"));
                    let wrapped = files::read_hex(&path)?;
                    cipher::unwrap_key(&root, &label(&tenant, &name), &wrapped)
                        .map(drop)
                        .map_err(|_| VaultError::Wrong { path })
                })
                .find_map(Result::err);
            found.push(TenantFolder {
                tenant,
                epochs: epochs.len(),
                fault,
            });
        }
        Ok(found)
    }
}
