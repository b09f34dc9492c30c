//! What is known about one file, and when there is something to do about it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::super::scan::Stat;
use super::failed::PAUSE;
use super::follower::{Follower, begins_as};
use super::state::Record;
use super::watcher::is_before;
use crate::import::Format;

/// A file of no known format is looked at again whenever it changed, as long as it is no longer than this;
/// then only when it is quiet, or has doubled.
const SMALL: u64 = 1 << 20;

/// A document that was not written to for so long is whole.
const QUIET: Duration = Duration::from_secs(1);

/// A session of several files that was not written to for so long was whole when it was read.
const SETTLED: Duration = Duration::from_secs(60);

/// A file.
pub struct Entry {
    /// What is on record of it.
    pub record: Record,
    /// What it is like.
    pub stat: Stat,
    /// What it was like when the present reading began.
    pub reading: Stat,
    /// Whether it was the same at the last two looks.
    pub still: bool,
    /// Whether the last look at all files did not find it.
    pub missing: bool,
    /// Its reader and its runs, while they are in memory.
    pub follower: Option<Follower>,
    /// Whether there is more to read than one slice.
    pub more: bool,
    /// What it was like when it was found to be of no format that is followed.
    pub unknown: Option<Stat>,
    /// A child that it named has a run now, to which it is not linked yet.
    pub to_link: bool,
    /// Its parent's run and its own are linked.
    pub linked: bool,
    /// Its seal waits for those of its children, or for the link to its parent.
    pub seal_waits: bool,
    /// Nothing is to be done about it before.
    pub not_before: Option<SystemTime>,
    /// Why it failed, and how long it waited then.
    pub failed: Option<(String, Duration)>,
}

impl Entry {
    /// A file that the state file knows.
    pub fn of(record: Record) -> Self {
        Self {
            stat: record.stat,
            reading: record.stat,
            record,
            still: false,
            missing: false,
            follower: None,
            more: false,
            unknown: None,
            to_link: false,
            linked: false,
            seal_waits: false,
            not_before: None,
            failed: None,
        }
    }

    /// A file that was not there before; `skipped` leaves it alone until it changes.
    pub fn new(path: &Path, stat: Stat, skipped: bool) -> Self {
        let mut entry = Self::of(Record {
            file: path.to_owned(),
            skipped,
            ..Record::default()
        });
        entry.stat = stat;
        if skipped {
            entry.record.stat = stat;
        }
        entry
    }

    /// Takes in what a look at the file found.
    pub fn saw(&mut self, stat: Stat) {
        let stat = self.whole(&self.record.file, stat);
        self.still = self.stat == stat;
        self.stat = stat;
        self.missing = false;
    }

    /// What the file is like with those that are read along with it: a session may grow in these alone.
    fn whole(&self, path: &Path, stat: Stat) -> Stat {
        let format = Format::named(&self.record.format);
        let session = self.record.session_id.as_deref();
        match format.map(|format| format.folders(path, session)) {
            Some(folders) => stat.with_folders(&folders),
            None => stat,
        }
    }

    /// Whether it is what it was when the present reading began.
    pub fn is_as_it_was(&self, path: &Path) -> bool {
        let now = Stat::look(path).ok().flatten();
        now.is_some_and(|now| self.whole(path, now) == self.reading)
    }

    /// After the first reading, which tells what was read along: it is not read again where nobody wrote to
    /// any of it for so long that all of it was there before, whatever its clock.
    pub fn read_along(&mut self, path: &Path, now: SystemTime) {
        let whole = self.whole(path, self.reading);
        if whole.idle(now) > SETTLED {
            (self.stat, self.record.stat) = (whole, whole);
        }
    }

    /// Whether a new name with the same inode is this file's.
    pub fn is_renamed(&self, path: &Path, stat: &Stat) -> bool {
        let stat = self.whole(path, *stat);
        let untouched = (self.stat.size, self.stat.modified_ns) == (stat.size, stat.modified_ns);
        untouched || (self.record.offset > 0 && begins_as(path, &self.record).unwrap_or(false))
    }

    /// The same file under another name.
    pub fn renamed(mut self, path: &Path, stat: Stat) -> Self {
        self.record.renamed |= self.record.file.file_stem() != path.file_stem();
        path.clone_into(&mut self.record.file);
        self.record.gone = false;
        // Its reader looks beside the old name.
        self.follower = None;
        self.more = false;
        self.saw(stat);
        self
    }

    /// Whether the file has a run, or will have one.
    pub fn is_followed(&self) -> bool {
        self.unknown.is_none() && !self.record.skipped
    }

    /// Whether something of it is not read yet, which may name children.
    pub fn is_unread(&self) -> bool {
        let there = self.is_followed() && !self.record.gone && self.failed.is_none();
        there && (self.more || self.stat != self.record.stat)
    }

    /// Whether its parent waits for its seal.
    pub fn is_waited_for(&self) -> bool {
        let there = self.is_followed() && self.failed.is_none();
        let never = self.record.gone && self.record.run().is_none();
        there && !never && !self.record.sealed
    }

    /// Whether a child's file was named whose run is not linked yet.
    pub fn is_to_link(&self, file: &Path) -> bool {
        let follower = self.follower.as_ref();
        follower.is_some_and(|follower| follower.children.iter().any(|child| child.file == file))
    }

    /// Whether the file is written anew as a whole, as far as that is known.
    fn is_document(&self) -> bool {
        match &self.follower {
            Some(follower) => !follower.appends(),
            None => !self.record.format.is_empty() && self.record.sha256.is_empty(),
        }
    }

    /// Whether nobody writes to it any more.
    pub fn is_over(&self, now: SystemTime, closing_after: Duration) -> bool {
        let ended = self.follower.as_ref().is_some_and(Follower::ended);
        self.stat.idle(now) >= closing_after || (ended && self.still)
    }

    /// Whether there is something to do: `seals` says whether runs are sealed at all.
    pub fn is_due(&self, now: SystemTime, closing_after: Duration, seals: bool) -> bool {
        let pause = self.failed.as_ref().map_or(PAUSE, |(_, pause)| *pause);
        if self
            .not_before
            .is_some_and(|then| is_before(now, then, pause))
        {
            return false;
        }
        let over = self.is_over(now, closing_after);
        let to_seal = seals && over && !self.record.sealed;
        if self.record.gone {
            let unread = self.follower.is_some() && !self.record.closed;
            return !self.record.sealed && (unread || to_seal);
        }
        if let Some(looked) = self.unknown {
            let doubled = self.stat.size / 2 >= looked.size || self.stat.size < looked.size;
            let worth = looked.size < SMALL || self.still || doubled;
            return looked != self.stat && worth;
        }
        if self.more || self.to_link {
            return true;
        }
        if self.stat != self.record.stat {
            return !self.is_document() || self.still || self.stat.idle(now) > QUIET;
        }
        !self.record.skipped && ((over && !self.record.closed) || to_seal)
    }
}
