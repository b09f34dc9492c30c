//! A witness of logs (c2sp.org/tlog-witness), for whoever does not run them: it cosigns a checkpoint that goes on from the
//! one that it cosigned before, and no other.
//!
//! A program of its own with a folder of its own: the key and what it saw lie together, so that a witness that forgot
//! what it saw cannot sign either.

mod log;
mod serve;

pub use serve::serve;

use crate::durable;
use crate::vault::{VaultError, WitnessKey};
use log::Log;
use onrecord_core::note::{Checkpoint, Note, NoteSignature, Submission, VerifierKey};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a submission at most: 63 hashes and 100 signatures are far below.
pub const SUBMISSION_BYTES: usize = 65_536;
/// Bytes of the list of logs at most.
const LOGS_BYTES: u64 = 1 << 20;
/// Name of the key's file in the folder.
const KEY: &str = "witness.key";
/// Name of the list of logs in the folder.
const LOGS: &str = "logs.txt";
/// Name of the file that a running witness locks.
const LOCK: &str = "lock";
/// What a new list of logs says.
const LOGS_HEAD: &str = "# The logs that this witness cosigns, one a line: `log VKEY`, as in a trust file. Read at the start and at SIGHUP.\n";

/// What can go wrong with a witness.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// Its key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A file of its folder.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line of the list of logs.
    #[error("{path}, line {line}: {problem}")]
    Logs {
        /// The list.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// What it saw of a log cannot be read. It must not go on as if it had seen nothing.
    #[error(
        "{path} does not say what this witness saw of {origin}; put the file back as it was, or make a new witness: one that forgot must not sign"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// The log.
        origin: String,
    },
    /// Another process has the folder.
    #[error("another witness runs on {folder}: two would not know of each other's signatures")]
    Running {
        /// The folder.
        folder: PathBuf,
    },
    /// The machine's clock stands before 1970.
    #[error("this machine's clock stands before 1970: set it, by NTP")]
    Clock,
}

fn at(path: &Path) -> impl Fn(io::Error) -> WitnessError {
    let path = path.to_owned();
    move |source| WitnessError::File {
        path: path.clone(),
        source,
    }
}

/// What a witness answers to a submission.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It cosigned, and will never sign anything that contradicts it.
    Cosigned(NoteSignature),
    /// It had another checkpoint last, of this size.
    Size(u64),
    /// It does not know the log.
    UnknownLog,
    /// No signature under the checkpoint is by a key of the log.
    UnknownKey,
    /// The checkpoint does not go on from the one that it had last.
    Inconsistent(String),
    /// What was sent is no submission.
    Malformed(String),
}

/// A witness over its folder.
pub struct Witness {
    folder: PathBuf,
    key: WitnessKey,
    logs: RwLock<BTreeMap<String, Arc<Log>>>,
    /// Locked as long as the witness is there.
    _lock: File,
}

impl Witness {
    /// Makes a folder with a new key and an empty list of logs; returns the key's public half.
    ///
    /// # Errors
    /// [`WitnessError::Vault`]: there is a key already, or the name is none. [`WitnessError::File`]: it cannot be written.
    pub fn init(name: &str, folder: &Path) -> Result<VerifierKey, WitnessError> {
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700);
        make.create(folder).map_err(at(folder))?;
        durable::sync_parent(folder).map_err(at(folder))?;
        // A crash after it leaves a witness without a list, which says so when it is started.
        let key = WitnessKey::create(name, &folder.join(KEY))?;
        let logs = folder.join(LOGS);
        durable::write_new(&logs, LOGS_HEAD.as_bytes()).map_err(at(&logs))?;
        Ok(key.verifier().clone())
    }

    /// Opens the witness of a folder, which no other process has.
    ///
    /// # Errors
    /// [`WitnessError`]: what of the folder cannot be used, and why. It does not go on without what it saw.
    pub fn open(folder: &Path) -> Result<Self, WitnessError> {
        let key = WitnessKey::open(&folder.join(KEY))?;
        let path = folder.join(LOCK);
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                return Err(WitnessError::Running {
                    folder: folder.to_owned(),
                });
            }
            Err(error) => return Err(at(&path)(error.into())),
        }
        let witness = Self {
            folder: folder.to_owned(),
            key,
            logs: RwLock::default(),
            _lock: lock,
        };
        witness.reload()?;
        Ok(witness)
    }

    /// The public half of its key.
    pub fn verifier(&self) -> &VerifierKey {
        self.key.verifier()
    }

    /// The logs that it knows, with the sizes that it saw last.
    pub fn sizes(&self) -> Vec<(String, u64)> {
        let logs = self.logs.read().unwrap_or_else(PoisonError::into_inner);
        let size = |(origin, log): (&String, &Arc<Log>)| (origin.clone(), log.size());
        logs.iter().map(size).collect()
    }

    /// Reads the list of logs again. Where it cannot be read, the witness keeps those that it knows.
    ///
    /// # Errors
    /// [`WitnessError::File`], [`WitnessError::Logs`], [`WitnessError::State`].
    pub fn reload(&self) -> Result<(), WitnessError> {
        let listed = log::read_list(&self.folder.join(LOGS), LOGS_BYTES)?;
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = BTreeMap::new();
        for (origin, keys) in listed {
            let log = match logs.get(&origin) {
                // What was seen of it stays with those who look at it now.
                Some(known) => known.with_keys(keys),
                None => Log::open(&self.folder, &origin, keys)?,
            };
            next.insert(origin, Arc::new(log));
        }
        *logs = next;
        Ok(())
    }

    /// Takes what a log submits. Blocks on the disk; submissions of one log take turns.
    ///
    /// # Errors
    /// [`WitnessError`]: it could not be decided or kept, and nothing was signed.
    pub fn add_checkpoint(&self, body: &[u8]) -> Result<Answer, WitnessError> {
        let malformed =
            |problem: &dyn std::fmt::Display| Ok(Answer::Malformed(problem.to_string()));
        let Ok(text) = std::str::from_utf8(body) else {
            return malformed(&"a submission is UTF-8");
        };
        let submission = match Submission::parse(text) {
            Ok(submission) => submission,
            Err(error) => return malformed(&error),
        };
        let note = match Note::parse(&submission.checkpoint) {
            Ok(note) => note,
            Err(error) => return malformed(&error),
        };
        let checkpoint = match Checkpoint::parse(&note.text) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return malformed(&error),
        };
        let logs = self.logs.read().unwrap_or_else(PoisonError::into_inner);
        let log = logs.get(&checkpoint.origin).cloned();
        drop(logs);
        let Some(log) = log else {
            return Ok(Answer::UnknownLog);
        };
        let Some(note) = log.signed(&note) else {
            return Ok(Answer::UnknownKey);
        };
        if submission.old > checkpoint.size {
            return malformed(&"the old size is above the checkpoint's");
        }
        log.advance(&submission, &checkpoint, &note, |text| {
            Ok(self.key.cosign(now()?, text)?)
        })
    }
}

/// Seconds since 1970 by this machine's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a cosignature says when by the witness's own clock, which is not that of the evidence"
)]
fn now() -> Result<u64, WitnessError> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since
        .map(|since| since.as_secs())
        .map_err(|_| WitnessError::Clock)
}
