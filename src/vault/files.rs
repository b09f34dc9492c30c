//! Key files: hex and a newline, mode 0600, durable before anything relies on them.

use super::VaultError;
use super::cipher::Key;
use crate::durable;
use onrecord_core::id::TenantId;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

fn at(path: &Path) -> impl Fn(io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::File {
        path: path.clone(),
        source,
    }
}

/// Makes a folder that only its owner may enter, and that survives a power cut.
pub(super) fn private_folder(path: &Path) -> Result<(), VaultError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(at(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(at(path))?;
    sync_parent(path)
}

/// Makes the name of a file or folder durable.
fn sync_parent(path: &Path) -> Result<(), VaultError> {
    durable::sync_parent(path).map_err(at(path))
}

/// Writes a file that was not there; false where somebody else wrote it first. A crash in the middle
/// leaves a temporary file that nobody reads; after the return the file survives a power cut.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<bool, VaultError> {
    durable::write_new(path, bytes).map_err(at(path))
}

/// Destroys a key file; false where it is gone already. On a disk that writes in place the bytes are overwritten; one
/// that does not (flash, and file systems that copy on write) keeps the old ones until it uses their room again.
pub(super) fn destroy(path: &Path) -> Result<bool, VaultError> {
    let doomed = path.with_extension("destroyed");
    match fs::rename(path, &doomed) {
        // A crash from here on leaves a name that nobody reads a key from.
        Ok(()) => sync_parent(path)?,
        // Gone, or a crash came after the renaming.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(path)(error)),
    }
    let mut file = match fs::OpenOptions::new().write(true).open(&doomed) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(at(&doomed)(error)),
    };
    let length = file.metadata().map_err(at(&doomed))?.len();
    let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
    file.write_all(&zeros).map_err(at(&doomed))?;
    // The overwriting reaches the disk before the name goes, and not with it.
    file.sync_all().map_err(at(&doomed))?;
    match fs::remove_file(&doomed) {
        // Another process may do the same at this moment.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&doomed)(error)),
        _ => sync_parent(path).map(|()| true),
    }
}

/// Puts other bytes in the place of a file, in one step that survives a power cut.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), VaultError> {
    durable::replace(path, bytes).map_err(at(path))
}

/// Gives a file another name, in the place of one that has it.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), VaultError> {
    fs::rename(from, to).map_err(at(from))?;
    sync_parent(to)
}

/// A file's text; `None` where there is no file.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, VaultError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// Whether a folder has the keys of a tenant in it.
pub(super) fn has_tenants(path: &Path) -> Result<bool, VaultError> {
    for entry in fs::read_dir(path).map_err(at(path))? {
        if entry.map_err(at(path))?.path().join("ledger.key").exists() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The tenants that have a folder there.
pub(super) fn tenants(path: &Path) -> Result<Vec<TenantId>, VaultError> {
    let mut tenants = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        let name = entry.map_err(at(path))?.file_name();
        tenants.extend(name.to_str().and_then(|name| name.parse::<TenantId>().ok()));
    }
    tenants.sort();
    Ok(tenants)
}

/// The bytes of a hex file.
pub(super) fn read_hex(path: &Path) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let text = Zeroizing::new(fs::read_to_string(path).map_err(at(path))?);
    let text = text.trim_end_matches('\n');
    let mut bytes = Zeroizing::new(vec![0; text.len() / 2]);
    if onrecord_core::digest::unhex(text, &mut bytes) {
        Ok(bytes)
    } else {
        Err(VaultError::Wrong {
            path: path.to_owned(),
        })
    }
}

/// The root key of a file that its owner alone may read.
pub(super) fn read_root(path: &Path) -> Result<Key, VaultError> {
    let wrong = || VaultError::Root {
        path: path.to_owned(),
    };
    let mode = fs::metadata(path).map_err(at(path))?.permissions().mode();
    // systemd's credentials are readable by the service alone but carry group bits in some versions.
    if mode & 0o007 != 0 {
        return Err(wrong());
    }
    let bytes = read_hex(path).map_err(|error| match error {
        VaultError::Wrong { .. } => wrong(),
        other => other,
    })?;
    let key: [u8; 32] = bytes.as_slice().try_into().map_err(|_| wrong())?;
    Ok(Zeroizing::new(key))
}

/// Names of the keys in a tenant's folder, without `.key`, in their order.
pub(super) fn key_names(folder: &Path) -> Result<Vec<String>, VaultError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let name = entry.map_err(at(folder))?.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(".key"));
        names.extend(name.map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// Numbers of the epoch keys in a tenant's folder, in their order.
pub(super) fn epochs(folder: &Path) -> Result<Vec<i32>, VaultError> {
    let names = key_names(folder)?;
    let numbers = names.iter().filter_map(|name| name.strip_prefix("epoch-"));
    let mut epochs: Vec<i32> = numbers.filter_map(|number| number.parse().ok()).collect();
    epochs.sort_unstable();
    Ok(epochs)
}
