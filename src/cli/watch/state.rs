//! The state file: what is on record of each file, so that a restart does not begin anew.
//!
//! One line of JSON a file; a later line about the same file replaces the earlier one. It only saves
//! work: without it everything is posted again, and answered as being there already. So a line that is
//! older than the truth is harmless, and one that cannot be read is left out.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::import::threads::Recorded;
use super::super::scan::Stat;

/// The form of the file.
const VERSION: u32 = 1;
/// Lines that nobody needs any more, beside those that count, before the file is written anew.
const STALE_LINES: usize = 10_000;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another watcher has it.
    #[error(
        "{}: another `onrecord watch` uses this state file; end it, or give this one another with --state",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What is on record of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The file.
    pub file: PathBuf,
    /// What the file was like when it was last read.
    pub stat: Stat,
    /// Bytes of whole lines that are on record.
    pub offset: u64,
    /// SHA-256 of them, in hex.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// The format's name; empty before the first reading.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// The session's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Whether the file was renamed, so that its name does not tell the session any more.
    pub renamed: bool,
    /// What is on record of each thread.
    pub threads: Vec<Recorded>,
    /// Hash of the first frame of the file's own run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub opening: String,
    /// How many times the content was replaced by another.
    pub rewritten: u32,
    /// The run and its first frame that held the content before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<(String, String)>,
    /// Whether the session went on after its run was sealed.
    pub continues: bool,
    /// Whether it was read to its very end, as a file that nobody writes to any more.
    pub closed: bool,
    /// Whether its run is sealed.
    pub sealed: bool,
    /// Whether it was there before watching began, and left alone (`--from-now`).
    pub skipped: bool,
    /// Whether the file is gone.
    pub gone: bool,
}

impl Record {
    /// The file's own run.
    pub fn run(&self) -> Option<&str> {
        Some(self.threads.first()?.run.as_str())
    }

    /// Whether it says more than that there is such a file.
    pub fn says_something(&self) -> bool {
        !self.threads.is_empty() || self.skipped || self.gone || self.rewritten > 0
    }
}

/// The first line of the file.
#[derive(Serialize, Deserialize)]
struct Head {
    onrecord_watch: u32,
    server: String,
}

/// An open state file, which no other watcher can open.
pub struct State {
    path: PathBuf,
    server: String,
    file: File,
    lines: usize,
    /// Holds the lock as long as it is open.
    _lock: File,
}

/// What was found in a state file.
#[derive(Default)]
pub struct Found {
    /// The files that it knows.
    pub records: HashMap<PathBuf, Record>,
    /// What is to be told about it.
    pub complaint: Option<String>,
    /// There was no such file before.
    pub first: bool,
}

impl State {
    /// Opens a state file of this server, or makes it.
    ///
    /// # Errors
    /// It is in use, or cannot be read or written.
    pub fn open(path: &Path, server: &str) -> Result<(Self, Found), StateError> {
        let io = |source| StateError::Io {
            path: path.to_owned(),
            source,
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        fs::create_dir_all(folder.unwrap_or(Path::new("."))).map_err(io)?;
        // The state file itself is replaced, and a lock on it would go with the old one.
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&beside)
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(StateError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut found = read(path, server).map_err(io)?;
        // A file that is gone and whose run is sealed has nothing left to do.
        found
            .records
            .retain(|_, record| !(record.gone && record.sealed));
        let file = replace(path, server, found.records.values()).map_err(io)?;
        let state = Self {
            path: path.to_owned(),
            server: server.to_owned(),
            file,
            lines: found.records.len(),
            _lock: lock,
        };
        Ok((state, found))
    }

    /// Adds lines about files that changed, durably. `all` is written where the file has grown too long.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save<'r>(
        &mut self,
        changed: &[&Record],
        all: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), StateError> {
        let io = |source| StateError::Io {
            path: self.path.clone(),
            source,
        };
        if changed.is_empty() {
            return Ok(());
        }
        let count = all.clone().count();
        if self.lines + changed.len() > count + STALE_LINES {
            self.file = replace(&self.path, &self.server, all).map_err(io)?;
            self.lines = count;
            return Ok(());
        }
        let mut lines = Vec::new();
        for record in changed {
            line(&mut lines, record);
        }
        self.file.write_all(&lines).map_err(io)?;
        self.file.sync_data().map_err(io)?;
        self.lines += changed.len();
        Ok(())
    }
}

fn line(lines: &mut Vec<u8>, record: &Record) {
    // A name that is no UTF-8 has no JSON form: such a file is not remembered, and read anew.
    if let Ok(text) = serde_json::to_string(record) {
        lines.extend_from_slice(text.as_bytes());
        lines.push(b'\n');
    }
}

fn read(path: &Path, server: &str) -> io::Result<Found> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Found {
                first: true,
                ..Found::default()
            });
        }
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file).split(b'\n');
    let mut found = Found::default();
    let head = lines.next().transpose()?.unwrap_or_default();
    match serde_json::from_slice::<Head>(&head) {
        Ok(head) if head.onrecord_watch == VERSION && head.server == server => {}
        Ok(head) if head.onrecord_watch == VERSION => {
            found.complaint = Some(format!(
                "the state file is about another server, {}: everything is posted again",
                head.server
            ));
            return Ok(found);
        }
        _ => {
            found.complaint =
                Some("the state file cannot be read: everything is posted again".to_owned());
            return Ok(found);
        }
    }
    let mut unread = 0;
    for line in lines {
        match serde_json::from_slice::<Record>(&line?) {
            Ok(record) => {
                found.records.insert(record.file.clone(), record);
            }
            Err(_) => unread += 1,
        }
    }
    if unread > 0 {
        found.complaint = Some(format!(
            "{unread} lines of the state file cannot be read: what they were about is posted again"
        ));
    }
    Ok(found)
}

/// Writes the whole file beside the old one, which it then replaces.
fn replace<'r>(
    path: &Path,
    server: &str,
    records: impl Iterator<Item = &'r Record>,
) -> io::Result<File> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let head = Head {
        onrecord_watch: VERSION,
        server: server.to_owned(),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    for record in records {
        line(&mut bytes, record);
    }
    let mut file = tempfile::Builder::new()
        .prefix(".onrecord-watch-")
        .tempfile_in(folder)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()?;
    OpenOptions::new().append(true).open(path)
}
