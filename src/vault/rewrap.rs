//! The keys of all tenants from one root key to another, while no server runs.

use super::check::{self, Check};
use super::root::{self, RootKey, RootSource};
use super::{Vault, VaultError, files, label};
use onrecord_core::id::TenantId;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

impl Vault {
    /// Wraps every key file of a folder again, by another root key. `told` hears after each file how many are done, of
    /// how many. Returns how many this call wrapped.
    ///
    /// A crash anywhere leaves files that one of the two root keys opens, and a folder that no server starts on; the
    /// same call goes on. A new root key file that is not there is made.
    ///
    /// # Errors
    /// One of the root keys is not what it should be, or a file cannot be read or written.
    pub async fn rewrap_root(
        folder: &Path,
        old: &RootSource,
        new: &RootSource,
        mut told: impl FnMut(usize, usize),
    ) -> Result<usize, VaultError> {
        if let RootSource::File(Some(path)) = new
            && !path.exists()
        {
            root::make(path)?;
        }
        let new = root::open(folder, new)?;
        let next = check::read(&check::path_of_next(folder))?;
        if next.is_none() && is_of(check::read(&check::path(folder))?, &*new).await? {
            // It was done before.
            return Ok(0);
        }
        let old = root::open(folder, old)?;
        match next {
            Some(next) if next.is_of(&*new).await? => {}
            Some(next) => {
                return Err(VaultError::OtherRoot {
                    folder: folder.to_owned(),
                    given: new.provider(),
                    under: format!("on their way to {}", next.provider),
                });
            }
            None => {
                check::check(folder, &*old, false).await?;
                // From here on no server starts, until the last line.
                let text = check::text(&*new).await?;
                files::write_new(&check::path_of_next(folder), text.as_bytes())?;
            }
        }
        let keys = key_files(folder)?;
        let mut wrapped = 0;
        for (index, key) in keys.iter().enumerate() {
            // A crash in it leaves the file as it was or as it is to be.
            if key.rewrap(&*old, &*new).await? {
                wrapped += 1;
            }
            told(index + 1, keys.len());
        }
        files::rename(&check::path_of_next(folder), &check::path(folder))?;
        Ok(wrapped)
    }
}

async fn is_of(check: Option<Check>, root: &dyn RootKey) -> Result<bool, VaultError> {
    match check {
        Some(check) => check.is_of(root).await,
        None => Ok(false),
    }
}

/// A key file of a tenant.
struct KeyFile {
    path: PathBuf,
    label: String,
}

impl KeyFile {
    /// Wraps it by the new root key; false where it is already.
    async fn rewrap(&self, old: &dyn RootKey, new: &dyn RootKey) -> Result<bool, VaultError> {
        let before = files::read_hex(&self.path)?;
        match new.unwrap(&self.label, &before).await {
            Ok(_) => return Ok(false),
            Err(VaultError::Cipher) => {}
            Err(other) => return Err(other),
        }
        let secret = self.opened(old, &before).await?;
        let after = new.wrap(&self.label, &secret).await?;
        // What does not open again is not put in the place of what does.
        if self.opened(new, &after).await? != secret {
            return Err(VaultError::Cipher);
        }
        let text = format!("{}\n", onrecord_core::digest::hex(&after));
        files::replace(&self.path, text.as_bytes())?;
        Ok(true)
    }

    async fn opened(
        &self,
        root: &dyn RootKey,
        wrapped: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        root.unwrap(&self.label, wrapped)
            .await
            .map_err(|error| match error {
                VaultError::Cipher => VaultError::Wrong {
                    path: self.path.clone(),
                },
                other => other,
            })
    }
}

/// Every key file of every tenant.
fn key_files(folder: &Path) -> Result<Vec<KeyFile>, VaultError> {
    let of_tenant = |tenant: TenantId| {
        let place = folder.join(tenant.as_str());
        let names = files::key_names(&place)?;
        let keys = names.into_iter().map(move |name| KeyFile {
            path: place.join(format!("{name}.key")),
            label: label(&tenant, &name),
        });
        Ok(keys.collect::<Vec<_>>())
    };
    let tenants = files::tenants(folder)?.into_iter().map(of_tenant);
    let keys = tenants.collect::<Result<Vec<_>, VaultError>>()?;
    Ok(keys.into_iter().flatten().collect())
}
