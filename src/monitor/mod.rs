//! A monitor: an auditor's eye on a ledger. It remembers the last checkpoint, reads every entry that comes, keeps a copy, and
//! says what is not as it should be. It has no database, and believes the trust file alone.
//!
//! A round is believed as a whole or not at all: the checkpoint is signed by the pinned log, its origin is the remembered one,
//! and all entries that were believed before are under its root, together with those that came. Hashing every entry shows
//! more than a consistency proof would; the proof is asked for where it does not fit, to tell a tree that is another one from
//! entries that are not the tree's.

mod keep;
mod log;

use crate::client::{Client, ClientError};
use keep::Folder;
use log::{Log, tile_of};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::{Frontier, consistency_nodes, consistency_path, verify_consistency};
use onrecord_core::note::{Checkpoint, TILE_WIDTH, Tile, TileKind};
use onrecord_core::timestamp::Timestamp;
use onrecord_verify::{Code, LedgerWalk, SignedCheckpoint, Trust};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Alarms about entries that are kept; more are counted.
const ALARMS: usize = 1_000;
/// Part of the time that writing the copy may take where rounds follow each other: one of so many.
const PART: u32 = 20;

/// A checkpoint that is smaller than one that was believed, of the same tree.
pub const ROLLBACK: &str = "rollback";
/// A run that was opened long ago and has no seal.
pub const LEFT_OPEN: &str = "run_left_open";

/// Something that somebody has to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// A code of the verifier, or `rollback` or `run_left_open`.
    pub alarm: String,
    /// The log.
    pub origin: String,
    /// The entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Size of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What was found and what was expected.
    pub cause: String,
    /// The folder with both signed checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<PathBuf>,
    /// What tells it from others of its kind: letters, digits and hyphens.
    mark: String,
}

impl Alarm {
    /// The same for the same thing, in every round.
    pub fn key(&self) -> String {
        format!("{}-{}", self.alarm, self.mark)
    }
}

/// What a round came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The log.
    pub origin: String,
    /// Entries that are believed.
    pub size: u64,
    /// How many of them are new.
    pub new: u64,
    /// All alarms that stand.
    pub alarms: Vec<Alarm>,
    /// Alarms about entries that are not among them.
    pub more: u64,
}

/// Why a round could not be made, which says nothing of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What it sent is nothing that could be checked.
    #[error(
        "{what}: {cause}; is this the address of a log, such as https://records.example/t/LOGID?"
    )]
    Answer {
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The trust file pins no log, or several and the address names none.
    #[error("{0}")]
    Trust(String),
    /// The folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process monitors with it.
    #[error("{} is in use by another monitor", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not as a monitor leaves it.
    #[error("{}: {cause}; start with an empty folder, and keep this one to compare", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
}

impl MonitorError {
    /// Whether looking again would not help.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Client(_) | Self::Answer { .. })
    }
}

/// Watches one log.
pub struct Monitor {
    log: Log,
    /// How the origin ends, by the address.
    ending: String,
    trust: Trust,
    folder: Folder,
    open_after: Duration,
    ledger: Option<Ledger>,
    copy_at: Instant,
}

/// The entries that are believed, as far as they are needed.
struct Ledger {
    walk: LedgerWalk,
    tree: Frontier,
    /// Hashes of the complete nodes of each level that is a multiple of 8.
    nodes: BTreeMap<u8, Vec<Hash>>,
    alarms: Vec<Alarm>,
    more: u64,
}

/// Where the log of an address is: the address itself, or of a server's address the one log that is pinned.
///
/// # Errors
/// The trust file pins no log, or several.
pub fn address(url: &str, trust: &Trust) -> Result<String, MonitorError> {
    let url = url.trim_end_matches('/');
    let mut origins: Vec<&str> = trust.log_origins().collect();
    origins.dedup();
    if origins.is_empty() {
        let none =
            "the trust file pins no log: it needs a `log` line, as `onrecord trust` prints it";
        return Err(MonitorError::Trust(none.to_owned()));
    }
    if url.contains("/t/") {
        return Ok(url.to_owned());
    }
    match &origins[..] {
        [origin] => match origin.rsplit_once("/t/") {
            Some((_, id)) => Ok(format!("{url}/t/{id}")),
            None => Ok(url.to_owned()),
        },
        _ => Err(MonitorError::Trust(
            "the trust file pins several logs: give the address of one, such as https://records.example/t/LOGID".to_owned(),
        )),
    }
}

impl Monitor {
    /// Watches the log at the client's address, with what it has in a folder. Runs without a seal are an alarm after `open_after`.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn new(
        client: Client,
        trust: Trust,
        folder: &Path,
        open_after: Duration,
    ) -> Result<Self, MonitorError> {
        let ending = client.base().rsplit_once("/t/");
        let ending = ending.map_or_else(String::new, |(_, id)| format!("/t/{id}"));
        Ok(Self {
            ending,
            log: Log { client },
            trust,
            folder: Folder::open(folder)?,
            open_after,
            ledger: None,
            copy_at: Instant::now(),
        })
    }

    /// Looks once. `now` is this machine's clock.
    ///
    /// # Errors
    /// It could not be checked; everything is as it was before.
    pub async fn round(&mut self, now: Timestamp) -> Result<Round, MonitorError> {
        let before = self.folder.state.size;
        let mut alarms = Vec::new();
        let looked = self.look(&mut alarms).await;
        if looked.is_err() {
            // What came of entries is not believed.
            self.folder.cut()?;
        }
        looked?;
        let origin = self.origin();
        let (more, of_entries) = match &self.ledger {
            Some(ledger) => {
                alarms.extend(self.left_open(ledger, now));
                (ledger.more, ledger.alarms.clone())
            }
            None => (0, Vec::new()),
        };
        alarms.extend(of_entries);
        let kept = self.folder.evidence()?;
        alarms.retain(|alarm| !kept.iter().any(|one| one.key() == alarm.key()));
        alarms.splice(..0, kept);
        Ok(Round {
            origin,
            size: self.folder.state.size,
            new: self.folder.state.size - before,
            alarms,
            more,
        })
    }

    /// Those of the alarms that were not told before; all of them count as told from now on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn news<'r>(&mut self, round: &'r Round) -> Result<Vec<&'r Alarm>, MonitorError> {
        let known = &self.folder.state.told;
        let news = round
            .alarms
            .iter()
            .filter(|one| !known.contains(&one.key()));
        let news = news.collect();
        // What does not stand any more is news when it does again.
        let told = round.alarms.iter().map(Alarm::key).collect();
        if told != *known {
            self.folder.state.told = told;
            self.folder.save()?;
        }
        Ok(news)
    }

    /// Writes `ledger.tar` where it is not that of all entries; not too often, unless `now`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn copy(&mut self, now: bool) -> Result<(), MonitorError> {
        let state = &self.folder.state;
        let Some(ledger) = self.ledger.as_ref().filter(|_| state.copied != state.size) else {
            return Ok(());
        };
        let begun = Instant::now();
        if now || begun >= self.copy_at {
            self.folder.copy(&ledger.nodes)?;
            self.copy_at = Instant::now() + begun.elapsed() * PART;
        }
        Ok(())
    }

    /// The origin of what is believed, or the pinned one.
    fn origin(&self) -> String {
        let believed = SignedCheckpoint::read(&self.folder.state.checkpoint, None);
        match believed {
            Ok(signed) => signed.checkpoint.origin,
            Err(_) => self
                .trust
                .log_origins()
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    async fn look(&mut self, alarms: &mut Vec<Alarm>) -> Result<(), MonitorError> {
        let shown = self.log.checkpoint().await?;
        let bad = |cause| MonitorError::Answer {
            what: "checkpoint".to_owned(),
            cause,
        };
        let signed = SignedCheckpoint::read(&shown, Some(&self.trust)).map_err(bad)?;
        let checkpoint = &signed.checkpoint;
        for finding in &signed.findings {
            let mark = short(&Hash::of(&[shown.as_bytes()]));
            // As long as witnesses are few, it is one alarm.
            let mark = if finding.code == Code::WitnessQuorum {
                "log".to_owned()
            } else {
                mark
            };
            alarms.push(of_checkpoint(
                finding.code.as_str(),
                checkpoint,
                &finding.cause,
                mark,
            ));
        }
        // A size is taken from signed data only.
        if !signed.is_signed() {
            return Ok(());
        }
        let origin = self.origin();
        let other = !self.folder.state.checkpoint.is_empty() && checkpoint.origin != origin;
        if other || !checkpoint.origin.ends_with(&self.ending) {
            let cause = format!(
                "the checkpoint is of {:?}, expected {origin:?}",
                checkpoint.origin
            );
            return self.contradiction(
                Code::CheckpointOrigin.as_str(),
                checkpoint,
                &cause,
                &shown,
                alarms,
            );
        }
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => self.load(&checkpoint.origin)?,
        };
        let believed = self.folder.state.size;
        if checkpoint.size <= believed {
            let same = ledger.walk.root_at(checkpoint.size) == Some(checkpoint.root);
            self.ledger = Some(ledger);
            return match same {
                true if checkpoint.size == believed => self.renew(&shown),
                true => {
                    let cause = format!("{} entries are shown, {believed} were", checkpoint.size);
                    self.contradiction(ROLLBACK, checkpoint, &cause, &shown, alarms)
                }
                false => {
                    let cause = format!("the root of {} entries was another one", checkpoint.size);
                    self.contradiction(Code::SplitView.as_str(), checkpoint, &cause, &shown, alarms)
                }
            };
        }
        self.grow(ledger, checkpoint, &shown, alarms).await
    }

    /// Keeps a checkpoint of the same tree: it may have more cosignatures.
    fn renew(&mut self, shown: &str) -> Result<(), MonitorError> {
        if self.folder.state.checkpoint == shown {
            return Ok(());
        }
        self.folder.state.copied = 0;
        self.folder.believe(shown, self.folder.state.size, 0)
    }

    /// Reads the entries of a larger checkpoint, and believes it if they are under its root.
    async fn grow(
        &mut self,
        mut ledger: Ledger,
        checkpoint: &Checkpoint,
        shown: &str,
        alarms: &mut Vec<Alarm>,
    ) -> Result<(), MonitorError> {
        let from = self.folder.state.size;
        let (mut tree, mut more_bytes) = (ledger.tree.clone(), 0);
        let mut same = true;
        for tile in new_tiles(from, checkpoint.size) {
            let entries = self.log.entries(&tile).await?;
            let first = tile.index * u64::from(TILE_WIDTH);
            let known = usize::try_from(from.saturating_sub(first)).unwrap_or(0);
            let (old, new) = entries.split_at(known.min(entries.len()));
            let leaves = ledger.nodes.get(&0).map_or(&[][..], Vec::as_slice);
            let was = leaves
                .iter()
                .skip(usize::try_from(first).unwrap_or(usize::MAX));
            same &= old
                .iter()
                .zip(was)
                .all(|(entry, leaf)| leaf_hash(entry) == *leaf);
            new.iter().for_each(|entry| tree.push(leaf_hash(entry)));
            more_bytes += self.folder.add(new)?;
        }
        if !same || tree.root() != checkpoint.root {
            self.folder.cut()?;
            let consistent = self.consistent(&ledger, checkpoint).await?;
            self.ledger = Some(ledger);
            return if consistent {
                let cause = format!(
                    "the entries up to {} are not those under its root",
                    checkpoint.size
                );
                self.contradiction(Code::LedgerRoot.as_str(), checkpoint, &cause, shown, alarms)
            } else {
                let cause = format!(
                    "{} entries do not go on from the {from} that were believed",
                    checkpoint.size
                );
                self.contradiction(Code::SplitView.as_str(), checkpoint, &cause, shown, alarms)
            };
        }
        let begin = self.folder.state.bytes;
        self.folder.believe(shown, checkpoint.size, more_bytes)?;
        // A crash before this leaves entries that are read when the next monitor begins.
        let trust = &self.trust;
        self.folder
            .read(begin, |entry| ledger.read(entry, &checkpoint.origin, trust))?;
        self.check_tiles(&ledger, checkpoint, from, alarms).await?;
        self.ledger = Some(ledger);
        Ok(())
    }

    /// Whether the tiles of hashes show that a checkpoint's tree goes on from what is believed.
    async fn consistent(
        &self,
        ledger: &Ledger,
        checkpoint: &Checkpoint,
    ) -> Result<bool, MonitorError> {
        let (first, second) = (ledger.tree.size(), checkpoint.size);
        let mut found = BTreeMap::new();
        for (level, index) in consistency_nodes(first, second) {
            // A node between two levels of tiles is made of those below it.
            let below = level / 8 * 8;
            let count = 1 << (level - below);
            let start = index << (level - below);
            let tile = tile_of(below, start, second);
            let hashes = self.log.hashes(&tile).await?;
            let at = usize::try_from(start % u64::from(TILE_WIDTH)).unwrap_or(usize::MAX);
            let Some(leaves) = hashes.get(at..at.saturating_add(count)) else {
                return Ok(false);
            };
            found.insert(
                (level, index),
                onrecord_core::merkle::root_of(leaves.iter().copied()),
            );
        }
        let path = consistency_path(first, second, |level, index| {
            found.get(&(level, index)).copied().ok_or(())
        });
        let Ok(path) = path else { return Ok(false) };
        let checked =
            verify_consistency(first, second, &ledger.tree.root(), &checkpoint.root, &path);
        Ok(checked.is_ok())
    }

    /// The tiles of hashes, by which others check the log, are those of the entries.
    async fn check_tiles(
        &self,
        ledger: &Ledger,
        checkpoint: &Checkpoint,
        from: u64,
        alarms: &mut Vec<Alarm>,
    ) -> Result<(), MonitorError> {
        let of_hashes = |tile: &Tile| matches!(tile.kind, TileKind::Hashes { .. });
        for tile in Tile::all(checkpoint.size).filter(of_hashes) {
            let (level, range) = tile.nodes();
            if range.end <= from >> level {
                continue;
            }
            let hashes = self.log.hashes(&tile).await?;
            let nodes = ledger.nodes.get(&level).map_or(&[][..], Vec::as_slice);
            let start = usize::try_from(range.start).unwrap_or(usize::MAX);
            if nodes.get(start..start + hashes.len()) != Some(&hashes) {
                let mark = tile.to_string().replace(['/', '.'], "-");
                let cause = format!("{tile} has other hashes than the entries");
                alarms.push(of_checkpoint(
                    Code::LedgerTile.as_str(),
                    checkpoint,
                    &cause,
                    mark,
                ));
                return Ok(());
            }
        }
        Ok(())
    }

    /// An alarm with both signed checkpoints as evidence.
    fn contradiction(
        &mut self,
        code: &str,
        checkpoint: &Checkpoint,
        cause: &str,
        shown: &str,
        alarms: &mut Vec<Alarm>,
    ) -> Result<(), MonitorError> {
        let mark = format!("{}-{}", checkpoint.size, short(&checkpoint.root));
        let mut alarm = of_checkpoint(code, checkpoint, cause, mark);
        alarm.evidence = Some(self.folder.keep_evidence(&alarm, shown)?);
        alarms.push(alarm);
        Ok(())
    }

    /// Reads what is believed, from the folder.
    fn load(&self, origin: &str) -> Result<Ledger, MonitorError> {
        let mut ledger = Ledger {
            walk: LedgerWalk::new(origin),
            tree: Frontier::new(),
            nodes: BTreeMap::new(),
            alarms: Vec::new(),
            more: 0,
        };
        self.folder
            .read(0, |entry| ledger.read(entry, origin, &self.trust))?;
        let believed = SignedCheckpoint::read(&self.folder.state.checkpoint, None);
        let root = believed.ok().map(|signed| signed.checkpoint.root);
        if ledger.tree.size() != self.folder.state.size
            || root.is_some_and(|root| root != ledger.tree.root())
        {
            return Err(self
                .folder
                .broken("`entries` are not those under the checkpoint of `state.json`"));
        }
        Ok(ledger)
    }

    /// Runs that were opened long ago and have no seal.
    fn left_open(&self, ledger: &Ledger, now: Timestamp) -> Vec<Alarm> {
        let after = i64::try_from(self.open_after.as_micros()).unwrap_or(i64::MAX);
        let origin = self.origin();
        let late = ledger.walk.runs().filter(|(_, run)| {
            !run.sealed && now.micros().saturating_sub(run.opened_at.micros()) > after
        });
        late.take(ALARMS)
            .map(|(id, run)| Alarm {
                alarm: LEFT_OPEN.to_owned(),
                origin: origin.clone(),
                index: Some(run.open_index),
                run: Some(id.to_string()),
                size: None,
                cause: format!("opened at {} and not sealed", run.opened_at),
                evidence: None,
                mark: id.to_string(),
            })
            .collect()
    }
}

impl Ledger {
    /// The next entry.
    fn read(&mut self, bytes: &[u8], origin: &str, trust: &Trust) {
        let index = self.tree.size();
        let nodes = &mut self.nodes;
        self.tree.push_with(leaf_hash(bytes), |level, _, hash| {
            if level % 8 == 0 {
                nodes.entry(level).or_default().push(hash);
            }
        });
        for (number, finding) in self.walk.read(bytes, Some(trust)).into_iter().enumerate() {
            if self.alarms.len() >= ALARMS {
                self.more += 1;
                continue;
            }
            self.alarms.push(Alarm {
                alarm: finding.code.as_str().to_owned(),
                origin: origin.to_owned(),
                index: Some(index),
                run: None,
                size: None,
                cause: finding.cause,
                evidence: None,
                mark: format!("{index}-{number}"),
            });
        }
    }
}

fn of_checkpoint(code: &str, checkpoint: &Checkpoint, cause: &str, mark: String) -> Alarm {
    Alarm {
        alarm: code.to_owned(),
        origin: checkpoint.origin.clone(),
        index: None,
        run: None,
        size: Some(checkpoint.size),
        cause: cause.to_owned(),
        evidence: None,
        mark,
    }
}

/// As much of a hash as tells it from others.
fn short(hash: &Hash) -> String {
    let mut text = hash.hex();
    text.truncate(16);
    text
}

/// The tiles of entries that have what is between two sizes.
fn new_tiles(from: u64, to: u64) -> impl Iterator<Item = Tile> {
    let width = u64::from(TILE_WIDTH);
    (from / width..to.div_ceil(width)).map(move |index| Tile {
        kind: TileKind::Entries,
        index,
        width: (to - index * width).min(width) as u16,
    })
}
