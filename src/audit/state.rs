//! What an audit remembers: which runs were clean, and as what. A file is written beside the old one, which it then replaces,
//! so that a crash leaves one or the other.

use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VERSION: u32 = 1;
/// How long what was read may be lost to a crash, at least.
const EVERY: Duration = Duration::from_secs(1);
/// Part of the time that writing may take: one of so many.
const PART: u32 = 20;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written.
    #[error("state file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is none.
    #[error("{} is no state file of an audit: {cause}; name another one with --state, or remove it", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    onrecord_audit: u32,
    /// Whether the audit that wrote it came to its end.
    finished: bool,
    /// Clean runs, and what their rows were then.
    runs: BTreeMap<RunId, String>,
}

/// Which runs need not be read.
#[derive(Debug)]
pub struct State {
    path: Option<PathBuf>,
    saved: Saved,
    next: Instant,
}

impl State {
    /// Remembers nothing.
    pub fn none() -> Self {
        Self {
            path: None,
            saved: Saved::default(),
            next: Instant::now(),
        }
    }

    /// Reads a state file, which need not be there. What an audit that did not come to its end has read is not read again;
    /// what one that did has read is, unless the audit is `incremental` and the run has not changed.
    ///
    /// # Errors
    /// It cannot be read, or is another file.
    pub fn open(path: &Path, incremental: bool) -> Result<Self, StateError> {
        let saved = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| error.to_string())
                .and_then(|saved: Saved| match saved.onrecord_audit {
                    VERSION => Ok(saved),
                    other => Err(format!("its version is {other}, expected {VERSION}")),
                })
                .map_err(|cause| StateError::Other {
                    path: path.to_owned(),
                    cause,
                })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(source) => {
                return Err(StateError::File {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let keep = incremental || !saved.finished;
        let mut state = Self {
            path: Some(path.to_owned()),
            saved: Saved {
                onrecord_audit: VERSION,
                finished: false,
                runs: if keep { saved.runs } else { BTreeMap::new() },
            },
            next: Instant::now(),
        };
        // That it cannot be written is better known now than after hours.
        state.write()?;
        Ok(state)
    }

    /// Whether a run was clean when its row was this.
    pub(super) fn is_clean(&self, run: &RunId, mark: &str) -> bool {
        self.saved.runs.get(run).is_some_and(|known| known == mark)
    }

    pub(super) fn add(&mut self, run: RunId, mark: String) -> Result<(), StateError> {
        if self.path.is_none() {
            return Ok(());
        }
        self.saved.runs.insert(run, mark);
        if Instant::now() >= self.next {
            self.write()?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, run: &RunId) {
        self.saved.runs.remove(run);
    }

    /// Writes that the audit came to its end.
    pub(super) fn finish(&mut self) -> Result<(), StateError> {
        self.saved.finished = true;
        self.write()
    }

    fn write(&mut self) -> Result<(), StateError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let begun = Instant::now();
        write(path, &self.saved).map_err(|source| StateError::File {
            path: path.clone(),
            source,
        })?;
        self.next = Instant::now() + EVERY.max(begun.elapsed() * PART);
        Ok(())
    }
}

fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".onrecord-audit-")
        .tempfile_in(folder)?;
    file.write_all(&serde_json::to_vec(saved)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_read_again_when_it_was_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let run: RunId = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap();
        let mut state = State::open(&path, false).unwrap();
        state.add(run.clone(), "a".into()).unwrap();
        state.write().unwrap();
        drop(state);
        // It broke off: what was read is known, as long as it is what it was.
        let mut state = State::open(&path, false).unwrap();
        assert!(state.is_clean(&run, "a") && !state.is_clean(&run, "b"));
        state.finish().unwrap();
        assert!(State::open(&path, true).unwrap().is_clean(&run, "a"));
        let mut state = State::open(&path, false).unwrap();
        assert!(state.is_clean(&run, "a"), "the one before was not finished");
        state.finish().unwrap();
        assert!(!State::open(&path, false).unwrap().is_clean(&run, "a"));
        fs::write(&path, "{}").unwrap();
        assert!(State::open(&path, false).is_err());
    }
}
