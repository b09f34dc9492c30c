//! What is done about one file: reading on, linking children, closing and sealing, and what failed.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::super::import::post::{Failure, seal, send};
use super::super::scan::Stat;
use super::entry::Entry;
use super::follower::{Follower, begins_as};
use super::state::Record;
use super::told::{Told, What};
use super::watcher::Watcher;
use crate::import::child::is_child_file;
use crate::import::request::{FrameRequest, Link, Turn};
use crate::import::{Format, ImportError, detect};

/// Records that are read of a file before the others have their turn.
const SLICE: usize = 200;
/// How long a run waits with its seal for those of its children before it looks again.
const CHILDREN: Duration = Duration::from_secs(1);

impl Watcher {
    /// Does what there is to do about a file, at most a slice of it.
    pub(super) async fn work(&mut self, path: &Path, now: SystemTime) {
        let Some(mut entry) = self.entries.remove(path) else {
            return;
        };
        let before = entry.record.clone();
        let of = |entry: &Entry| {
            let follower = entry.follower.as_ref();
            follower.map_or((0, 0), Follower::acknowledged)
        };
        let moved = |entry: &Entry| entry.follower.as_ref().map_or(0, Follower::moved);
        let (heard, had) = of(&entry);
        let had_moved = moved(&entry);
        let done = self.step(path, &mut entry, now).await;
        let (hears, has) = of(&entry);
        let sealed = entry.record.sealed && !before.sealed && !entry.record.gone;
        if hears > heard || sealed {
            self.is_back();
        }
        let has_moved = moved(&entry).saturating_sub(had_moved);
        if has_moved > 0 {
            let what = format!("{has_moved} values with secrets moved into payloads");
            (self.tell)(Told::new(What::Notice, what).of(path));
        }
        self.tell_notices(path, &mut entry);
        let run = entry.record.run().map(str::to_owned);
        if before.run() != run.as_deref() && run.is_some() {
            let parents = self.entries.values_mut();
            for parent in parents.filter(|parent| parent.is_to_link(path)) {
                parent.to_link = true;
            }
            let format = Told::new(What::Following, entry.record.format.clone());
            (self.tell)(format.of(path).run(run.as_deref()));
        }
        // The run that new frames went to: the last one of a session that was resumed.
        let follower = entry.follower.as_ref();
        let last = follower.and_then(|follower| follower.threads.runs(0).last());
        let last = last.map(|run| run.run.clone()).or(run);
        if has > had {
            let told = Told::new(What::Appended, "").of(path).frames(has - had);
            (self.tell)(told.run(last.as_deref()));
        }
        if entry.record.sealed && !before.sealed {
            (self.tell)(Told::new(What::Sealed, "").of(path).run(last.as_deref()));
        }
        match done {
            Ok(()) => {
                entry.failed = None;
                if entry.record.sealed {
                    entry.follower = None;
                }
            }
            Err(failure) => self.failed(path, &mut entry, &failure, now),
        }
        if entry.record != before {
            self.note(path);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    fn tell_notices(&mut self, path: &Path, entry: &mut Entry) {
        let Some(follower) = &mut entry.follower else {
            return;
        };
        for notice in follower.notices.drain(..) {
            let what = match notice.line {
                // About the file as a whole.
                0 => notice.what,
                line => format!("line {line}, byte {}: {}", notice.offset, notice.what),
            };
            (self.tell)(Told::new(What::Notice, what).of(path));
        }
    }

    async fn step(
        &mut self,
        path: &Path,
        entry: &mut Entry,
        now: SystemTime,
    ) -> Result<(), Failure> {
        entry.record.skipped = false;
        if entry.record.gone {
            return self.gone(entry, now).await;
        }
        if entry.stat != entry.record.stat && !entry.more {
            if self.is_only_touched(path, entry)? {
                entry.record.stat = entry.stat;
                return Ok(());
            }
            self.resumed(path, entry);
        }
        if !entry.more && !self.ready(path, entry).await? {
            return Ok(());
        }
        let Some(mut follower) = entry.follower.take() else {
            return Ok(());
        };
        // Until it went well: after a failure the same events come first.
        entry.more = true;
        let done = follower
            .advance(&self.client, SLICE, || entry.is_as_it_was(path))
            .await;
        let follower = entry.follower.insert(follower);
        entry.more = match done {
            Err(failure @ Failure::OtherSession) => {
                for thread in &entry.record.threads {
                    seal(&self.client, &thread.run).await?;
                }
                self.rewritten(path, entry, &failure.to_string());
                return Ok(());
            }
            done => done?,
        };
        if follower.disturbed {
            return Ok(());
        }
        follower.note(&mut entry.record);
        if entry.more {
            return Ok(());
        }
        let first = entry.record.stat == Stat::default();
        entry.record.stat = entry.reading;
        if first {
            entry.read_along(path, now);
        }
        entry.to_link = false;
        self.link_back(entry).await?;
        self.link_children(path, entry).await?;
        if entry.is_over(now, self.closing_after()) {
            self.close(path, entry).await?;
            if self.settings.seal_after.is_some() {
                self.seal(path, entry, now).await?;
            }
        }
        Ok(())
    }

    /// Whether a file that was read to its end has another time and the same bytes.
    fn is_only_touched(&self, path: &Path, entry: &Entry) -> Result<bool, ImportError> {
        let record = &entry.record;
        let read = record.offset > 0 && record.offset == entry.stat.size;
        let finished = record.sealed || record.closed;
        if !read || !finished || !entry.stat.is_file_of(&record.stat) {
            return Ok(false);
        }
        begins_as(path, record).map_err(|source| io_error(path, source))
    }

    /// A file that was closed and is written to again.
    fn resumed(&mut self, path: &Path, entry: &mut Entry) {
        entry.record.closed = false;
        if entry.record.sealed {
            entry.record.sealed = false;
            self.go_on(path, entry);
        }
    }

    /// From now on what is new goes into another run. What is in the sealed one is asked for again, since
    /// what follows links to it.
    pub(super) fn go_on(&mut self, path: &Path, entry: &mut Entry) {
        entry.record.continues = true;
        entry.follower = None;
        entry.more = false;
        let what = "what is new goes into another run, linked to the sealed one";
        let told = Told::new(What::Continued, what).of(path);
        (self.tell)(told.run(entry.record.run()));
    }

    /// Gets the reader ready for what is new. `false` where there is none: the file is of no format that
    /// is followed.
    async fn ready(&mut self, path: &Path, entry: &mut Entry) -> Result<bool, Failure> {
        entry.reading = entry.stat;
        if let Some(follower) = &mut entry.follower {
            let goes_on = follower.goes_on(&entry.stat);
            if goes_on.map_err(|source| io_error(path, source))? {
                follower.extend(entry.stat, false)?;
                return Ok(true);
            }
        }
        if entry.record.offset > 0
            && !begins_as(path, &entry.record).map_err(|source| io_error(path, source))?
        {
            let why = if entry.stat.size < entry.record.offset {
                "the file is shorter than what was read of it"
            } else {
                "the file does not begin with what was read of it"
            };
            if let Some(follower) = &mut entry.follower {
                // What is in memory is nowhere else any more.
                follower.threads.end(&self.client).await?;
                follower.settle(&self.client).await?;
                follower.threads.seal(&self.client).await?;
            } else {
                for thread in &entry.record.threads {
                    seal(&self.client, &thread.run).await?;
                }
            }
            self.rewritten(path, entry, why);
        }
        entry.follower = None;
        let known = Format::named(&entry.record.format);
        let format = match known.map_or_else(|| detect(path), Ok) {
            Ok(format) if self.settings.format.is_none_or(|only| only == format) => format,
            Ok(format) => {
                let why = format!("it is of the format {}", format.as_str());
                return Ok(self.unknown(path, entry, &why));
            }
            Err(ImportError::UnknownFormat { .. }) => {
                let why = "it is none of the known formats so far";
                return Ok(self.unknown(path, entry, why));
            }
            Err(error) => return Err(error.into()),
        };
        if format == Format::Chat && self.settings.format.is_none() {
            let why = "a plain chat: `--format chat` follows it";
            return Ok(self.unknown(path, entry, why));
        }
        match Follower::open(path, entry.stat, Some(format), &entry.record) {
            Ok(follower) => entry.follower = Some(follower),
            Err(error @ ImportError::NotThisFormat { .. }) if known.is_none() => {
                return Ok(self.unknown(path, entry, &error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        entry.unknown = None;
        Ok(true)
    }

    fn unknown(&mut self, path: &Path, entry: &mut Entry, why: &str) -> bool {
        if entry.unknown.is_none() {
            (self.tell)(Told::new(What::Ignored, why).of(path));
        }
        entry.unknown = Some(entry.stat);
        false
    }

    /// What is in the file now is recorded apart from what was; that stays.
    pub(super) fn rewritten(&mut self, path: &Path, entry: &mut Entry, why: &str) {
        let record = &mut entry.record;
        let first = entry.follower.as_ref().and_then(|follower| {
            let run = follower.threads.runs(0).first()?;
            Some((run.run.clone(), run.opening.clone()))
        });
        let before = record.run().map(str::to_owned);
        let replaced = first
            .or_else(|| Some((before.clone()?, record.opening.clone())))
            .or(record.replaced.take());
        let what = format!("{why}; what was recorded stays, the new content gets a run of its own");
        (self.tell)(
            Told::new(What::Rewritten, what)
                .of(path)
                .run(before.as_deref()),
        );
        *record = Record {
            file: path.to_owned(),
            rewritten: record.rewritten + 1,
            session_id: record.session_id.take(),
            renamed: record.renamed,
            replaced,
            ..Record::default()
        };
        entry.follower = None;
        entry.more = false;
    }

    /// Links the run of a file's new content to that of its old.
    async fn link_back(&mut self, entry: &mut Entry) -> Result<(), Failure> {
        let (Some((run, hash)), Some(own)) = (entry.record.replaced.clone(), entry.record.run())
        else {
            return Ok(());
        };
        let mut frame = FrameRequest::new("observation", format!("replaced/{run}"), Turn::Run);
        // The watcher saw it; no transcript says so.
        frame.class("rewritten").put("source", "watcher");
        frame.links.push(Link::Frame {
            rel: "replaced",
            run,
            hash,
        });
        send(&self.client, own, &frame).await?;
        entry.record.replaced = None;
        Ok(())
    }

    /// Reads a file to its very end.
    async fn close(&mut self, path: &Path, entry: &mut Entry) -> Result<(), Failure> {
        let gone = entry.record.gone;
        let Some(follower) = &mut entry.follower else {
            return Ok(());
        };
        if entry.record.closed && follower.finished {
            return Ok(());
        }
        if follower.appends() || !gone {
            follower.extend(entry.stat, true)?;
        }
        while follower.advance(&self.client, SLICE, || true).await? {}
        follower.note(&mut entry.record);
        self.link_children(path, entry).await?;
        entry.record.closed = true;
        Ok(())
    }

    /// Seals the runs of a file that is closed, after those of its children.
    async fn seal(
        &mut self,
        path: &Path,
        entry: &mut Entry,
        now: SystemTime,
    ) -> Result<(), Failure> {
        let run = entry.record.run().map(str::to_owned);
        let over = |other: &Entry| other.is_over(now, self.closing_after());
        let waited_for = |file: &Path| self.entries.get(file).is_some_and(Entry::is_waited_for);
        let follower = entry.follower.as_ref();
        let waits = follower.is_some_and(|follower| follower.named().any(waited_for));
        // A sealed run takes no link to its parent's any more.
        let others = || self.entries.iter();
        let unlinked = is_child_file(path)
            && !entry.linked
            && others().any(|(other, parent)| {
                parent.is_to_link(path) || (!is_child_file(other) && parent.is_unread())
            });
        // A copy of the file, or the session's other name.
        let shared = self.entries.values().any(|other| {
            other.record.run().is_some() && other.record.run() == run.as_deref() && !over(other)
        });
        entry.seal_waits = waits || unlinked || shared;
        if entry.seal_waits {
            entry.not_before = Some(now + CHILDREN);
            return Ok(());
        }
        match &entry.follower {
            Some(follower) => {
                for child in &follower.children {
                    let what = format!(
                        "{} is not followed, so that its run is not linked",
                        child.file.display()
                    );
                    (self.tell)(Told::new(What::Notice, what).of(path));
                }
                follower.threads.seal(&self.client).await?;
            }
            None => {
                for thread in &entry.record.threads {
                    seal(&self.client, &thread.run).await?;
                }
            }
        }
        entry.record.sealed = true;
        Ok(())
    }

    /// A file that was deleted: the rest of it is read where it is still open, and its run is sealed when
    /// it would have been.
    async fn gone(&mut self, entry: &mut Entry, now: SystemTime) -> Result<(), Failure> {
        let path = entry.record.file.clone();
        self.close(&path, entry).await?;
        entry.record.closed = true;
        if self.settings.seal_after.is_some() && entry.is_over(now, self.closing_after()) {
            self.seal(&path, entry, now).await?;
        }
        Ok(())
    }
}

fn io_error(path: &Path, source: io::Error) -> ImportError {
    ImportError::Io {
        path: path.to_owned(),
        source,
    }
}
