//! A monitor: an auditor's eye on a ledger. It remembers the last checkpoint, reads every entry that comes, keeps a copy, and
//! says what is not as it should be. It has no database, and believes the trust file alone.
//!
//! A round is believed as a whole or not at all: the checkpoint is signed by the pinned log, its origin is the remembered one,
//! and all entries that were believed before are under its root, together with those that came. Hashing every entry shows
//! more than a consistency proof would; the proof is asked for where it does not fit, to tell a tree that is another one from
//! entries that are not the tree's.

mod alarm;
mod keep;
mod ledger;
mod log;

pub use alarm::{Alarm, LEFT_OPEN, MonitorError, ROLLBACK, Round};

use crate::client::Client;
use alarm::of_checkpoint;
use keep::Folder;
use ledger::Ledger;
use log::{Log, tile_of};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::{consistency_nodes, consistency_path, verify_consistency};
use onrecord_core::note::{Checkpoint, TILE_WIDTH, Tile, TileKind};
use onrecord_core::timestamp::Timestamp;
use onrecord_verify::{Code, SignedCheckpoint, Trust};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Part of the time that writing the copy may take where rounds follow each other: one of so many.
const PART: u32 = 20;

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
                alarms.extend(ledger.left_open(&origin, (now, self.open_after)));
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
        let mut added: BTreeMap<u8, Vec<Hash>> = BTreeMap::new();
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
            for entry in new {
                tree.push_with(leaf_hash(entry), |level, _, hash| {
                    if level % 8 == 0 {
                        added.entry(level).or_default().push(hash);
                    }
                });
            }
            more_bytes += self.folder.add(new)?;
        }
        if !same || tree.root() != checkpoint.root {
            self.folder.cut()?;
            // Where tiles do not come either, what was signed and what is shown contradict each other all the same.
            let consistent = self.consistent(&ledger, checkpoint).await;
            self.ledger = Some(ledger);
            return if consistent.unwrap_or(true) {
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
        self.check_tiles(&ledger, &added, checkpoint, alarms)
            .await?;
        let begin = self.folder.state.bytes;
        self.folder.believe(shown, checkpoint.size, more_bytes)?;
        // A crash before this leaves entries that are read when the next monitor begins.
        let trust = &self.trust;
        self.folder
            .read(begin, |entry| ledger.read(entry, &checkpoint.origin, trust))?;
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
        added: &BTreeMap<u8, Vec<Hash>>,
        checkpoint: &Checkpoint,
        alarms: &mut Vec<Alarm>,
    ) -> Result<(), MonitorError> {
        let of_hashes = |tile: &Tile| matches!(tile.kind, TileKind::Hashes { .. });
        for tile in Tile::all(checkpoint.size).filter(of_hashes) {
            let (level, range) = tile.nodes();
            let known = ledger.nodes.get(&level).map_or(&[][..], Vec::as_slice);
            let new = added.get(&level).map_or(&[][..], Vec::as_slice);
            if range.end <= known.len() as u64 {
                continue;
            }
            let start = usize::try_from(range.start).unwrap_or(usize::MAX);
            let nodes = known.iter().chain(new).skip(start);
            let hashes = self.log.hashes(&tile).await?;
            if !nodes.take(hashes.len()).eq(&hashes) {
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
        let mut ledger = Ledger::new(origin);
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
