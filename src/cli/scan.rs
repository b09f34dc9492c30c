//! Looking: which files are there, and what they are like. Polling works on every file system, also
//! where changes are not told, such as those over a network.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// What tells whether a file changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The device.
    pub dev: u64,
    /// The inode on it.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// When it was last written to, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            modified_ns: seconds.saturating_add(metadata.mtime_nsec()),
        }
    }

    /// Looks at a file; `None` where there is none of this name.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn look(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(Self::of(&metadata))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same with what is in these folders, though not below them: another size or time where a file
    /// there changed. What cannot be looked at does not count; whoever reads it is told.
    pub fn with_folders(mut self, folders: &[PathBuf]) -> Self {
        let entries = folders
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok());
        for entry in entries.flatten().flatten() {
            let kind = entry.file_type();
            let file = kind.is_ok_and(|kind| kind.is_file());
            if let Some(metadata) = file.then(|| entry.metadata().ok()).flatten() {
                let other = Self::of(&metadata);
                self.size = self.size.saturating_add(other.size);
                self.modified_ns = self.modified_ns.max(other.modified_ns);
            }
        }
        self
    }

    /// Whether this is the same file, whatever its content.
    pub fn is_file_of(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// How long it was not written to; zero where its clock is ahead.
    pub fn idle(&self, now: SystemTime) -> Duration {
        let modified = u64::try_from(self.modified_ns).unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(modified);
        now.duration_since(modified).unwrap_or_default()
    }
}

/// What a look at a folder found.
#[derive(Default)]
pub struct Scan {
    /// All files in it and below.
    pub files: Vec<(PathBuf, Stat)>,
    /// What could not be looked at. What is missing then is not known to be gone.
    pub faults: Vec<(PathBuf, io::Error)>,
}

/// Looks at all files of a folder and of those in it. Symbolic links are not followed: what they lead to
/// is outside, or is found without them.
pub fn scan(folder: &Path) -> Scan {
    let mut scan = Scan::default();
    let mut folders = vec![folder.to_owned()];
    let top = folder;
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Gone in between; the folder that is watched has to be there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder != top => continue,
            Err(error) => {
                scan.faults.push((folder, error));
                continue;
            }
        };
        for entry in entries {
            let looked = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?, entry)));
            match looked {
                Ok((path, kind, _)) if kind.is_dir() => folders.push(path),
                Ok((path, kind, entry)) if kind.is_file() => match entry.metadata() {
                    Ok(metadata) => scan.files.push((path, Stat::of(&metadata))),
                    // Gone in between.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => scan.faults.push((path, error)),
                },
                Ok(_) => {}
                Err(error) => scan.faults.push((folder.clone(), error)),
            }
        }
    }
    scan
}
