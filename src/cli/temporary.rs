//! Folders for servers that are gone with the command that started them.

use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Makes a folder that is removed with the value, its name beginning with `prefix`.
///
/// # Errors
/// It cannot be made.
pub(super) fn folder(prefix: &str) -> anyhow::Result<TempDir> {
    // PostgreSQL's user has to pass through root's folder; what lies in it is closed by its own mode.
    let mode = if rustix::process::geteuid().is_root() {
        0o711
    } else {
        0o700
    };
    let parent = parent();
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(mode))
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// The system's folder for temporary files; for root one that PostgreSQL's user may pass through, since
/// that of root's session may be closed.
fn parent() -> PathBuf {
    let usual = std::env::temp_dir();
    let open = |folder: &Path| {
        folder
            .ancestors()
            .all(|way| fs::metadata(way).is_ok_and(|found| found.mode() & 0o001 != 0))
    };
    if !rustix::process::geteuid().is_root() {
        return usual;
    }
    [usual.clone(), "/tmp".into(), "/var/tmp".into()]
        .into_iter()
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .find(|folder| open(folder))
        .unwrap_or(usual)
}
