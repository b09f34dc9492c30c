//! What lies in a keys folder and whether the root key opens it, for whoever looks after it: read, and
//! nothing made or changed.

use super::root::{self, RootSource};
use super::{Vault, VaultError, check, files, open_key, seal_keys};
use onrecord_core::id::TenantId;
use std::path::Path;

/// The keys of a folder as they lie there.
#[derive(Debug)]
pub struct Survey {
    /// What the root key is: `file`, `environment`, or `transit:` and its name.
    pub provider: String,
    /// Whether the folder has a check value of it; one of before there were any has none until the next start.
    pub checked: bool,
    /// Tenants with their keys.
    pub tenants: Vec<TenantFolder>,
}

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
    /// Opens the root key of a folder and, with it, every key of every tenant there.
    ///
    /// # Errors
    /// The root key is not there, or none, or another than the folder's, or the folder cannot be read.
    pub async fn survey(folder: &Path, source: &RootSource) -> Result<Survey, VaultError> {
        let root = root::open(folder, source)?;
        let found = check::read(&check::path(folder))?;
        if let Some(found) = &found
            && !found.is_of(&*root).await?
        {
            return Err(VaultError::OtherRoot {
                folder: folder.to_owned(),
                given: root.provider(),
                under: found.provider.clone(),
            });
        }
        let mut tenants = Vec::new();
        for tenant in files::tenants(folder)? {
            let place = folder.join(tenant.as_str());
            let epochs = files::epochs(&place)?;
            // Without any, the first is the one that is missed.
            let named = epochs.iter().copied().chain(epochs.is_empty().then_some(1));
            let mut names = seal_keys::names(&place)?;
            names.push("ledger".to_owned());
            names.extend(named.map(|epoch| format!("epoch-{epoch}")));
            // The next start makes it where it is not there.
            if place.join("fingerprint.key").exists() {
                names.push("fingerprint".to_owned());
            }
            let mut fault = None;
            for name in names {
                let opened = open_key(&*root, &place, &tenant, &name).await;
                fault = fault.or(opened.err());
            }
            tenants.push(TenantFolder {
                tenant,
                epochs: epochs.len(),
                fault,
            });
        }
        Ok(Survey {
            provider: root.provider(),
            checked: found.is_some(),
            tenants,
        })
    }
}
