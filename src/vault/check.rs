//! The check value: by which a root key is known to be that of the folder, before any key of a tenant is touched.
//!
//! `root.check` in the folder of the keys has 32 zeros wrapped by the root key, which tells nothing of it
//! (`docs/spec/payloads.md`, "Root keys").

use super::root::RootKey;
use super::{VaultError, files, label};
use std::path::{Path, PathBuf};

const LABEL: &str = "onrecord/root-check/1";
const ZEROS: [u8; 32] = [0; 32];

/// A check value, and what it is of.
pub(super) struct Check {
    pub(super) provider: String,
    wrapped: Vec<u8>,
}

/// Where the check value of a folder is.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("root.check")
}

/// Where that of the next root key is while the keys are moved to it.
pub(super) fn path_of_next(folder: &Path) -> PathBuf {
    folder.join("root.check.next")
}

/// The file of a check value: `onrecord/root-check/1 PROVIDER HEX`.
pub(super) async fn text(root: &dyn RootKey) -> Result<String, VaultError> {
    let wrapped = root.wrap(LABEL, &ZEROS).await?;
    let hex = onrecord_core::digest::hex(&wrapped);
    Ok(format!("{LABEL} {} {hex}\n", root.provider()))
}

/// Reads a check value; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Check>, VaultError> {
    let Some(text) = files::read_text(path)? else {
        return Ok(None);
    };
    let wrong = || VaultError::CheckFile {
        path: path.to_owned(),
    };
    let mut words = text.trim_end_matches('\n').split(' ');
    let parts = (words.next(), words.next(), words.next(), words.next());
    let (Some(LABEL), Some(provider), Some(hex), None) = parts else {
        return Err(wrong());
    };
    let mut wrapped = vec![0; hex.len() / 2];
    if !onrecord_core::digest::unhex(hex, &mut wrapped) {
        return Err(wrong());
    }
    Ok(Some(Check {
        provider: provider.to_owned(),
        wrapped,
    }))
}

impl Check {
    /// Whether it is of this root key.
    pub(super) async fn is_of(&self, root: &dyn RootKey) -> Result<bool, VaultError> {
        match root.unwrap(LABEL, &self.wrapped).await {
            Ok(zeros) => Ok(zeros[..] == ZEROS),
            Err(VaultError::Cipher) => Ok(false),
            Err(other) => Err(other),
        }
    }
}

/// Checks that a root key is that of a folder. A folder of before there were check values gets one where a key of it opens,
/// and a new folder where `create` says that nothing is encrypted yet.
pub(super) async fn check(
    folder: &Path,
    root: &dyn RootKey,
    create: bool,
) -> Result<(), VaultError> {
    if read(&path_of_next(folder))?.is_some() {
        return Err(VaultError::RootMoving {
            path: folder.to_owned(),
        });
    }
    let other = |under: &str| VaultError::OtherRoot {
        folder: folder.to_owned(),
        given: root.provider(),
        under: under.to_owned(),
    };
    if let Some(check) = read(&path(folder))? {
        return match check.is_of(root).await? {
            true => Ok(()),
            false => Err(other(&check.provider)),
        };
    }
    match first_key(folder)? {
        Some((label, wrapped)) => match root.unwrap(&label, &wrapped).await {
            Ok(_) => {}
            Err(VaultError::Cipher) => return Err(other("unknown")),
            Err(error) => return Err(error),
        },
        None if create => {}
        // Nothing to hold it against.
        None => return Ok(()),
    }
    // Where another process was first, its value has to be of the same root key.
    if files::write_new(&path(folder), text(root).await?.as_bytes())? {
        return Ok(());
    }
    match read(&path(folder))? {
        Some(check) if !check.is_of(root).await? => Err(other(&check.provider)),
        _ => Ok(()),
    }
}

/// A wrapped key of some tenant, with its label.
fn first_key(folder: &Path) -> Result<Option<(String, Vec<u8>)>, VaultError> {
    for tenant in files::tenants(folder)? {
        let path = folder.join(tenant.as_str()).join("ledger.key");
        if path.exists() {
            let wrapped = files::read_hex(&path)?.to_vec();
            return Ok(Some((label(&tenant, "ledger"), wrapped)));
        }
    }
    Ok(None)
}
