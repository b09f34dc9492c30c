//! All files of a folder, a look and a step at a time: nothing here waits or reads a clock.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::super::scan::{Scan, Stat, scan};
use super::entry::Entry;
use super::state::{Found, Record, State, StateError};
use super::told::{Told, What};
use crate::client::Client;
use crate::import::Format;
use crate::import::child::is_child_file;

/// Between two looks at all files.
pub(super) const SCAN: Duration = Duration::from_millis(750);
/// A look at all files may take one part in so many of the time.
const SCAN_SHARE: u32 = 30;
/// A file that was written to within this time is looked at in each tick.
const ACTIVE: Duration = Duration::from_secs(60);
/// The longest that a tick reads files that nobody is writing to.
const BACKLOG: Duration = Duration::from_millis(200);
/// Readers that are kept in memory.
const READERS: usize = 64;

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder.
    pub folder: PathBuf,
    /// The only format that is followed; otherwise all but plain chats, since any text might be one.
    pub format: Option<Format>,
    /// Seal a run when its file was not written to for so long; `None` for never.
    pub seal_after: Option<Duration>,
    /// Leave alone what is there at the first start, until it is written to.
    pub from_now: bool,
}

/// What a tick came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Files with something left to do now.
    pub busy: usize,
    /// Files whose seal waits for those of others.
    pub waiting: usize,
    /// Whether files are being written to, which are looked at in each tick.
    pub live: bool,
    /// Whether nothing can be done because the server is away.
    pub away: bool,
}

/// Follows the files of a folder.
pub struct Watcher {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) entries: HashMap<PathBuf, Entry>,
    state: State,
    changed: BTreeSet<PathBuf>,
    /// Records of names that files do not have any more.
    forgotten: Vec<Record>,
    pub(super) tell: Box<dyn FnMut(Told)>,
    scanned: Option<SystemTime>,
    scan_pause: Duration,
    first_scan: bool,
    faults: BTreeSet<PathBuf>,
    pub(super) away: Option<Away>,
    /// Whether the server has to be asked if it has the runs of the state file.
    pub(super) unsure: bool,
    /// Files and folders that could not be followed since the start.
    pub failures: usize,
}

/// Whether a pause of this length, which ends `then`, is not over. A clock that was set back does not make
/// it longer.
pub(super) fn is_before(now: SystemTime, then: SystemTime, pause: Duration) -> bool {
    then.duration_since(now)
        .is_ok_and(|left| left > Duration::ZERO && left <= pause)
}

/// A server that does not answer.
pub(super) struct Away {
    pub until: SystemTime,
    pub pause: Duration,
}

impl Watcher {
    /// Follows the files of a folder, going on from what the state file knows.
    pub fn new(
        client: Client,
        settings: Settings,
        (state, found): (State, Found),
        tell: Box<dyn FnMut(Told)>,
    ) -> Self {
        let first_scan = found.first;
        let entries = found.records.into_iter();
        let mut watcher = Self {
            client,
            settings,
            entries: entries
                .map(|(path, record)| (path, Entry::of(record)))
                .collect(),
            state,
            changed: BTreeSet::new(),
            forgotten: Vec::new(),
            tell,
            scanned: None,
            scan_pause: SCAN,
            first_scan,
            faults: BTreeSet::new(),
            away: None,
            unsure: !first_scan,
            failures: 0,
        };
        if let Some(complaint) = found.complaint {
            (watcher.tell)(Told::new(What::State, complaint));
        }
        watcher
    }

    /// Looks at the files, and does for each what there is to do, a slice at a time.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub async fn tick(&mut self, now: SystemTime) -> Result<Ticked, StateError> {
        self.look(now);
        let mut ticked = Ticked::default();
        if self.unsure && self.may_ask(now) {
            self.check_records(now).await;
        }
        if self.may_ask(now) {
            let started = Instant::now();
            for path in self.due(now) {
                let live = self.is_live(&path, now);
                if !live && started.elapsed() > BACKLOG {
                    continue;
                }
                self.work(&path, now).await;
                if !self.may_ask(now) {
                    break;
                }
            }
        }
        self.save()?;
        self.drop_readers();
        ticked.busy = self.due(now).len();
        let waiting = self.entries.values().filter(|entry| entry.seal_waits);
        ticked.waiting = waiting.count();
        let mut entries = self.entries.values();
        ticked.live = entries.any(|entry| entry.stat.idle(now) < ACTIVE);
        ticked.away = self.away.is_some();
        Ok(ticked)
    }

    /// Whether it is not the server's turn to come back.
    fn may_ask(&self, now: SystemTime) -> bool {
        let away = self.away.as_ref();
        away.is_none_or(|away| !is_before(now, away.until, away.pause))
    }

    /// Files that are followed, and files of no format that is.
    pub fn counts(&self) -> (usize, usize) {
        let followed = self.entries.values().filter(|entry| entry.is_followed());
        let followed = followed.count();
        (followed, self.entries.len() - followed)
    }

    /// Frames that were sent of a file since its reader was opened, and how many of them were on record
    /// already. `None` where it is not read now.
    pub fn sent(&self, path: &Path) -> Option<(u64, u64)> {
        let follower = self.entries.get(path)?.follower.as_ref()?;
        let (all, new) = follower.acknowledged();
        Some((all, all - new))
    }

    /// The files with something to do: those that are being written to first, and children right after
    /// their parents, whose files are named as the folders of their children.
    fn due(&self, now: SystemTime) -> Vec<PathBuf> {
        let due = self.entries.iter().filter(|(_, entry)| {
            entry.is_due(
                now,
                self.closing_after(),
                self.settings.seal_after.is_some(),
            )
        });
        let mut paths: Vec<PathBuf> = due.map(|(path, _)| path.clone()).collect();
        paths.sort_by_cached_key(|path| {
            let child = is_child_file(path);
            (!self.is_live(path, now), path.with_extension(""), child)
        });
        paths
    }

    fn is_live(&self, path: &Path, now: SystemTime) -> bool {
        let entry = self.entries.get(path);
        entry.is_some_and(|entry| entry.stat.idle(now) < ACTIVE)
    }

    /// The idle time after which a file counts as one that nobody writes to any more.
    pub(super) fn closing_after(&self) -> Duration {
        self.settings.seal_after.unwrap_or(super::SEAL_AFTER)
    }

    /// Marks a file's record as one to be saved.
    pub(super) fn note(&mut self, path: &Path) {
        self.changed.insert(path.to_owned());
    }

    fn save(&mut self) -> Result<(), StateError> {
        let changed = std::mem::take(&mut self.changed);
        let forgotten = std::mem::take(&mut self.forgotten);
        let changed = changed.iter().filter_map(|path| self.entries.get(path));
        let changed: Vec<&Record> = forgotten
            .iter()
            .chain(changed.map(|entry| &entry.record))
            .filter(|record| record.says_something())
            .collect();
        let all = self.entries.values().map(|entry| &entry.record);
        let all = all.filter(|record| record.says_something());
        self.state.save(&changed, all)
    }

    /// Looks at all files, or at those that are active.
    fn look(&mut self, now: SystemTime) {
        let age = self.scanned.map(|then| now.duration_since(then));
        // A clock that was set back does not stop it.
        if age.is_none_or(|age| age.is_err() || age.is_ok_and(|age| age >= self.scan_pause)) {
            self.scanned = Some(now);
            let started = Instant::now();
            let found = scan(&self.settings.folder);
            self.found(found);
            self.scan_pause = SCAN.max(started.elapsed() * SCAN_SHARE);
            return;
        }
        for (path, entry) in &mut self.entries {
            if entry.stat.idle(now) < ACTIVE && !entry.record.gone {
                // Where it is not there, the next look at all files tells what became of it.
                if let Ok(Some(stat)) = Stat::look(path) {
                    entry.saw(stat);
                }
            }
        }
    }

    fn found(&mut self, scan: Scan) {
        let mut faults = BTreeSet::new();
        for (path, error) in scan.faults {
            if !self.faults.contains(&path) {
                self.failures += 1;
                let told = Told::new(What::Failed, error.to_string());
                (self.tell)(told.of(&path));
            }
            faults.insert(path);
        }
        self.faults = faults;
        let mut fresh = Vec::new();
        for entry in self.entries.values_mut() {
            entry.missing = true;
        }
        for (path, stat) in scan.files {
            match self.entries.get_mut(&path) {
                Some(entry) if entry.record.gone => {
                    match entry.record.threads.is_empty() {
                        true => *entry = Entry::new(&path, stat, false),
                        false => entry.saw(stat),
                    }
                    entry.record.gone = false;
                    self.changed.insert(path.clone());
                }
                Some(entry) => entry.saw(stat),
                None => fresh.push((path, stat)),
            }
        }
        // What could not be looked at is not known to be gone.
        let missing: Vec<PathBuf> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.missing && !entry.record.gone)
            .map(|(path, _)| path.clone())
            .filter(|path| !self.faults.iter().any(|fault| path.starts_with(fault)))
            .collect();
        let mut renamed: HashMap<(u64, u64), PathBuf> = HashMap::new();
        for path in missing {
            if let Some(entry) = self.entries.get(&path) {
                renamed.insert((entry.stat.dev, entry.stat.ino), path);
            }
        }
        for (path, stat) in fresh {
            let before = renamed.remove(&(stat.dev, stat.ino));
            self.arrived(path, stat, before);
        }
        for path in renamed.into_values() {
            self.left(&path);
        }
        self.first_scan = false;
    }

    /// A file that was not there under this name.
    fn arrived(&mut self, path: PathBuf, stat: Stat, before: Option<PathBuf>) {
        let known = before.and_then(|before| {
            // The inode of a file that is gone may be given to another one.
            let same = self.entries.get(&before)?.is_renamed(&path, &stat);
            same.then_some(before)
        });
        let entry = match known {
            Some(before) => {
                self.forgotten.push(Record {
                    file: before.clone(),
                    gone: true,
                    sealed: true,
                    ..Record::default()
                });
                let (told, entry) = match self.entries.remove(&before) {
                    Some(entry) => (
                        Told::new(What::Renamed, format!("was {}", before.display())),
                        entry.renamed(&path, stat),
                    ),
                    None => return,
                };
                let run = entry.record.run().map(str::to_owned);
                (self.tell)(told.of(&path).run(run.as_deref()));
                entry
            }
            None => {
                let skipped = self.settings.from_now && self.first_scan;
                Entry::new(&path, stat, skipped)
            }
        };
        self.changed.insert(path.clone());
        self.entries.insert(path, entry);
    }

    fn left(&mut self, path: &Path) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        entry.record.gone = true;
        self.changed.insert(path.to_owned());
        if entry.record.threads.is_empty() {
            entry.record.sealed = true;
            return;
        }
        let told = Told::new(What::Gone, "its run stays");
        (self.tell)(told.of(path).run(entry.record.run()));
    }

    /// Keeps the readers of the files that were written to last, and of those that are not done.
    fn drop_readers(&mut self) {
        let mut idle: Vec<(i64, PathBuf)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.follower.is_some() && !entry.more)
            .map(|(path, entry)| (entry.stat.modified_ns, path.clone()))
            .collect();
        if idle.len() <= READERS {
            return;
        }
        idle.sort();
        let surplus = idle.len() - READERS;
        for (_, path) in idle.into_iter().take(surplus) {
            if let Some(entry) = self.entries.get_mut(&path) {
                entry.follower = None;
            }
        }
    }
}
