//! Files that are whole, the old or the new, whatever happens in between, and that survive a power cut.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Puts bytes in the place of a file, or makes it, with mode 0600. A crash in the middle leaves the file as it was and a
/// temporary one that nobody reads; after the return the file survives a power cut.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    temporary(path, bytes)?
        .persist(path)
        .map_err(|error| error.error)?;
    sync_parent(path)
}

/// Writes a file that was not there, likewise; false where somebody else wrote it first.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    // Fails where the name is taken: nothing is ever overwritten.
    match temporary(path, bytes)?.persist_noclobber(path) {
        Ok(_) => sync_parent(path).map(|()| true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Makes the name of a file or folder durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// The bytes on the disk under a name that nobody else has: two processes that wrote into one temporary file would change
/// what the first of them gave its name to.
fn temporary(path: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new_in(parent(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn parent(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
