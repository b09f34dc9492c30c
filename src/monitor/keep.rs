//! What a monitor keeps in its folder, and no other process at the same time:
//!
//! | file | |
//! |---|---|
//! | `state.json` | the last checkpoint that was believed, how much of `entries` it covers, and which alarms were told; replaced whole |
//! | `entries` | all entries, each with its length before it in two bytes; what is behind that length is of a round that broke off, and cut away |
//! | `ledger.tar` | the copy for `onrecord verify --ledger`; replaced whole |
//! | `evidence/NAME/` | of each contradiction that was seen the two signed checkpoints and the alarm; it stands until somebody removes it |

use super::{Alarm, MonitorError};
use onrecord_core::bundle;
use onrecord_core::digest::Hash;
use onrecord_core::note::{Tile, TileKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// Contradictions that are kept; more show nothing more.
const EVIDENCE: usize = 100;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    onrecord_monitor: u32,
    /// The signed checkpoint that was believed last; empty before the first.
    pub(super) checkpoint: String,
    /// Entries under it.
    pub(super) size: u64,
    /// Bytes of them in the file.
    pub(super) bytes: u64,
    /// Entries in `ledger.tar`.
    pub(super) copied: u64,
    /// Keys of alarms that stand and were told.
    pub(super) told: BTreeSet<String>,
}

/// A monitor's folder.
pub(super) struct Folder {
    path: PathBuf,
    pub(super) state: State,
    entries: File,
    /// Holds the lock as long as it is open.
    _lock: File,
}

impl Folder {
    /// Opens a folder, or makes it. What a crash left behind the believed entries is cut away.
    pub(super) fn open(path: &Path) -> Result<Self, MonitorError> {
        let error = |source| MonitorError::Folder {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path.join("evidence")).map_err(error)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(MonitorError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(fs::TryLockError::Error(source)) => return Err(error(source)),
        }
        let broken = |cause: String| MonitorError::State {
            path: path.join("state.json"),
            cause,
        };
        let state = match fs::read(path.join("state.json")) {
            Ok(bytes) => {
                let state: State =
                    serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
                if state.onrecord_monitor != VERSION {
                    return Err(broken(format!(
                        "its version is {}, expected {VERSION}",
                        state.onrecord_monitor
                    )));
                }
                state
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => State {
                onrecord_monitor: VERSION,
                ..State::default()
            },
            Err(source) => return Err(error(source)),
        };
        let entries = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path.join("entries"))
            .map_err(error)?;
        if entries.metadata().map_err(error)?.len() < state.bytes {
            return Err(broken(format!(
                "`entries` is shorter than its {} bytes",
                state.bytes
            )));
        }
        let mut folder = Self {
            path: path.to_owned(),
            state,
            entries,
            _lock: lock,
        };
        folder.cut()?;
        Ok(folder)
    }

    fn error(&self) -> impl Fn(io::Error) -> MonitorError + use<> {
        let path = self.path.clone();
        move |source| MonitorError::Folder {
            path: path.clone(),
            source,
        }
    }

    /// What is in the folder is not what a monitor leaves.
    pub(super) fn broken(&self, cause: &str) -> MonitorError {
        MonitorError::State {
            path: self.path.clone(),
            cause: cause.to_owned(),
        }
    }

    /// Removes entries that no checkpoint that was believed covers.
    pub(super) fn cut(&mut self) -> Result<(), MonitorError> {
        self.entries
            .set_len(self.state.bytes)
            .and_then(|()| self.entries.seek(SeekFrom::Start(self.state.bytes)))
            .map_err(self.error())?;
        Ok(())
    }

    /// Adds entries, which are not believed yet. Returns how many bytes they take.
    pub(super) fn add(&mut self, entries: &[Vec<u8>]) -> Result<u64, MonitorError> {
        let mut bytes = Vec::new();
        for entry in entries {
            onrecord_core::note::write_entry(&mut bytes, entry).map_err(|error| {
                MonitorError::Answer {
                    what: "an entry".to_owned(),
                    cause: error.to_string(),
                }
            })?;
        }
        self.entries.write_all(&bytes).map_err(self.error())?;
        Ok(bytes.len() as u64)
    }

    /// Believes a checkpoint and all entries under it, durably: a crash before leaves the one before.
    pub(super) fn believe(
        &mut self,
        checkpoint: &str,
        size: u64,
        more_bytes: u64,
    ) -> Result<(), MonitorError> {
        self.entries.sync_all().map_err(self.error())?;
        checkpoint.clone_into(&mut self.state.checkpoint);
        self.state.size = size;
        self.state.bytes += more_bytes;
        self.save()
    }

    /// Writes the state.
    pub(super) fn save(&self) -> Result<(), MonitorError> {
        let bytes = serde_json::to_vec(&self.state).map_err(|error| self.error()(error.into()))?;
        replace(&self.path.join("state.json"), |file| file.write_all(&bytes)).map_err(self.error())
    }

    /// Gives the entries from a byte on to somebody, one by one.
    pub(super) fn read(
        &self,
        from_byte: u64,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), MonitorError> {
        let mut file = File::open(self.path.join("entries")).map_err(self.error())?;
        file.seek(SeekFrom::Start(from_byte))
            .map_err(self.error())?;
        let mut rest = BufReader::new(file.take(self.state.bytes - from_byte));
        let mut entry = Vec::new();
        loop {
            let mut length = [0; 2];
            match rest.read(&mut length[..1]).map_err(self.error())? {
                0 => return Ok(()),
                _ => rest.read_exact(&mut length[1..]).map_err(self.error())?,
            }
            entry.resize(usize::from(u16::from_be_bytes(length)), 0);
            rest.read_exact(&mut entry).map_err(self.error())?;
            each(&entry);
        }
    }

    /// Writes the copy that the verifier takes; `nodes` are the hashes of each level that is a multiple of 8.
    pub(super) fn copy(&mut self, nodes: &BTreeMap<u8, Vec<Hash>>) -> Result<(), MonitorError> {
        let entries = File::open(self.path.join("entries")).map_err(self.error())?;
        let mut entries = BufReader::new(entries.take(self.state.bytes));
        replace(&self.path.join("ledger.tar"), |file| {
            let mut tar = BufWriter::new(file);
            member(&mut tar, "checkpoint", self.state.checkpoint.as_bytes())?;
            for tile in Tile::all(self.state.size) {
                let bytes = match tile.kind {
                    TileKind::Hashes { .. } => hashes(&tile, nodes)?,
                    TileKind::Entries => cut_tile(&tile, &mut entries)?,
                };
                member(&mut tar, &tile.to_string(), &bytes)?;
            }
            tar.write_all(&[0; 2 * bundle::BLOCK])?;
            tar.flush()
        })
        .map_err(self.error())?;
        self.state.copied = self.state.size;
        self.save()
    }

    /// Keeps what shows a contradiction, under a name of its own; where it is.
    pub(super) fn keep_evidence(
        &self,
        alarm: &Alarm,
        shown: &str,
    ) -> Result<PathBuf, MonitorError> {
        let folder = self.path.join("evidence").join(alarm.key());
        if folder.join("alarm.json").exists() {
            return Ok(folder);
        }
        let io = self.error();
        let kept = fs::read_dir(self.path.join("evidence"))
            .map_err(&io)?
            .count();
        if kept >= EVIDENCE {
            return Ok(folder);
        }
        fs::create_dir_all(&folder).map_err(&io)?;
        let write = |name: &str, bytes: &[u8]| {
            replace(&folder.join(name), |file| file.write_all(bytes)).map_err(&io)
        };
        write("believed.checkpoint", self.state.checkpoint.as_bytes())?;
        write("shown.checkpoint", shown.as_bytes())?;
        // Last, since it is what says that the rest is there.
        let bytes = serde_json::to_vec(alarm).map_err(|error| io(error.into()))?;
        write("alarm.json", &bytes)?;
        Ok(folder)
    }

    /// The alarms of contradictions that are kept.
    pub(super) fn evidence(&self) -> Result<Vec<Alarm>, MonitorError> {
        let io = self.error();
        let mut alarms = Vec::new();
        for entry in fs::read_dir(self.path.join("evidence")).map_err(&io)? {
            let path = entry.map_err(&io)?.path();
            match fs::read(path.join("alarm.json")) {
                Ok(bytes) => {
                    let alarm: Alarm =
                        serde_json::from_slice(&bytes).map_err(|error| MonitorError::State {
                            path: path.join("alarm.json"),
                            cause: error.to_string(),
                        })?;
                    alarms.push(Alarm {
                        evidence: Some(path),
                        ..alarm
                    });
                }
                // One that a crash left unfinished is written again if it is seen again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io(error)),
            }
        }
        alarms.sort_by_key(Alarm::key);
        Ok(alarms)
    }
}

/// The bytes of a tile of hashes.
fn hashes(tile: &Tile, nodes: &BTreeMap<u8, Vec<Hash>>) -> io::Result<Vec<u8>> {
    let (level, range) = tile.nodes();
    let of_level = nodes.get(&level).map_or(&[][..], Vec::as_slice);
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    let hashes = of_level.get(start..end).ok_or(io::ErrorKind::InvalidData)?;
    Ok(hashes.iter().flat_map(|hash| hash.0).collect())
}

/// The bytes of the next tile of entries.
fn cut_tile(tile: &Tile, entries: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for _ in 0..tile.width {
        let mut length = [0; 2];
        entries.read_exact(&mut length)?;
        let begin = bytes.len() + 2;
        bytes.extend_from_slice(&length);
        bytes.resize(begin + usize::from(u16::from_be_bytes(length)), 0);
        entries.read_exact(&mut bytes[begin..])?;
    }
    Ok(bytes)
}

fn member(tar: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    let size = bytes.len() as u64;
    let header = bundle::header(name, size).ok_or(io::ErrorKind::InvalidData)?;
    tar.write_all(&header)?;
    tar.write_all(bytes)?;
    tar.write_all(&vec![0; bundle::padding(size)])
}

/// Writes a file beside the old one, which it then replaces.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".onrecord-monitor-")
        .tempfile_in(folder)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
