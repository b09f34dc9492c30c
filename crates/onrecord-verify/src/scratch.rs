//! A file for what is too much to hold: it has no name, and is gone with its handle.

use std::fs::{File, OpenOptions, remove_file};
use std::io;

/// Names that are tried; others of the same process may be in use for a moment.
const NAMES: u32 = 100;

/// A new one in the folder for temporary files, which only its owner could have opened.
pub(crate) fn file() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for n in 0..NAMES {
        let name = format!("onrecord-verify-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match options.open(&path) {
            Ok(file) => return remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}
