//! One file being followed: its reader, kept between two writes of the agent, and its runs.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use onrecord_core::digest::{Hash, hex};
use sha2::{Digest as _, Sha256};

use super::super::import::post::Failure;
use super::super::import::threads::{How, Threads};
use super::super::scan::Stat;
use super::state::Record;
use crate::client::Client;
use crate::import::{Event, Format, ImportError, Notice, Reader};

/// Bytes at the beginning and before the end of what was read that are compared before reading on.
const EDGE_BYTES: u64 = 4_096;

/// Lines of complaint about one file.
const NOTICES: usize = 20;

/// A child that a transcript named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Child {
    /// Its id.
    pub agent: String,
    /// Its file.
    pub file: PathBuf,
    /// The key of the call that started it, where the transcript tells it.
    pub call: Option<String>,
}

/// A file with its reader and its runs.
pub struct Follower {
    path: PathBuf,
    format: Format,
    session: Option<String>,
    reader: Reader,
    /// Whether only new lines are read, and not the whole file again.
    appends: bool,
    /// What the file was like when it was opened.
    stat: Stat,
    /// Its runs.
    pub threads: Threads,
    events: VecDeque<Event>,
    /// Children that were named and whose runs are not linked yet.
    pub children: Vec<Child>,
    named: HashSet<Child>,
    /// What is to be told.
    pub notices: Vec<Notice>,
    /// What was told of a document.
    noted: Vec<Notice>,
    /// How many notices there were.
    noticed: usize,
    /// Before this offset nothing is told: it was.
    told_before: u64,
    edges: Option<Hash>,
    /// It was written to while it was read: what was read of it last is not posted, and it is read anew.
    pub disturbed: bool,
    /// It was read to its very end, and cannot be read on.
    pub finished: bool,
}

impl Follower {
    /// Opens a file. What `record` says is on record is read, and not posted again.
    pub fn open(
        path: &Path,
        stat: Stat,
        format: Option<Format>,
        record: &Record,
    ) -> Result<Self, ImportError> {
        let session = record.session_id.clone().filter(|_| record.renamed);
        let mut reader = Reader::open(path, format, session.as_deref())?;
        let mut appends = false;
        if let Some(follow) = reader.follow() {
            follow.extend(false)?;
            appends = true;
        }
        let how = How {
            rewritten: record.rewritten,
            continues: record.continues,
            recorded: if appends {
                record.threads.clone()
            } else {
                Vec::new()
            },
            by_content: !appends,
            // The beginning of a file that is appended to was compared with what is on record.
            known: record
                .run()
                .filter(|_| appends && record.offset > 0)
                .map(|run| (run.to_owned(), record.opening.clone())),
            session_id: record.session_id.clone().filter(|_| record.run().is_some()),
        };
        Ok(Self {
            path: path.to_owned(),
            format: reader.format(),
            session,
            reader,
            appends,
            stat,
            threads: Threads::new(how),
            events: VecDeque::new(),
            children: Vec::new(),
            named: HashSet::new(),
            notices: Vec::new(),
            noted: Vec::new(),
            noticed: 0,
            told_before: record.offset,
            edges: None,
            disturbed: false,
            finished: false,
        })
    }

    /// Whether only what is new is read of a file that has grown.
    pub fn appends(&self) -> bool {
        self.appends
    }

    /// Whether the transcript says that its session has ended.
    pub fn ended(&self) -> bool {
        self.reader.ended()
    }

    /// Whether the file as it is now goes on from what was read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn goes_on(&mut self, stat: &Stat) -> io::Result<bool> {
        if !self.appends {
            return Ok(true);
        }
        let offset = self.offset();
        if self.finished || !self.stat.is_file_of(stat) || stat.size < offset {
            return Ok(false);
        }
        Ok(self.edges.is_none() || self.edges == Some(edges(&self.path, offset)?))
    }

    /// Takes up what is new in the file; with `to_the_end` also a last line without a line feed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn extend(&mut self, stat: Stat, to_the_end: bool) -> Result<(), ImportError> {
        if let Some(follow) = self.reader.follow() {
            follow.extend(to_the_end)?;
        } else {
            let session = self.session.as_deref();
            self.reader = Reader::open(&self.path, Some(self.format), session)?;
        }
        self.stat = stat;
        self.finished = to_the_end;
        Ok(())
    }

    /// Reads and posts up to so many records. `true` where there are more. Of a document nothing is posted that
    /// was read while it was written: after the reading it has to be `still` what it was before.
    ///
    /// # Errors
    /// The file cannot be read, or the server does not take it. Nothing is forgotten: the next call goes
    /// on where this one stopped.
    pub async fn advance(
        &mut self,
        client: &Client,
        records: usize,
        still: impl Fn() -> bool,
    ) -> Result<bool, Failure> {
        let mut fresh = Vec::new();
        let mut more = true;
        self.post_events(client).await?;
        for _ in 0..records {
            more = self.reader.step(&mut fresh)?;
            if self.appends {
                self.take(&mut fresh);
                self.post_events(client).await?;
            }
            if !more {
                break;
            }
        }
        self.disturbed = !self.appends && !still();
        if self.disturbed {
            return Ok(false);
        }
        self.take(&mut fresh);
        self.settle(client).await?;
        Ok(more)
    }

    /// Posts what was read.
    ///
    /// # Errors
    /// See [`advance`](Self::advance).
    pub async fn settle(&mut self, client: &Client) -> Result<(), Failure> {
        self.post_events(client).await?;
        if self.finished {
            self.threads.end(client).await?;
        }
        self.threads.flush(client).await?;
        if self.appends {
            let offset = self.offset();
            let edges = edges(&self.path, offset).map_err(|source| ImportError::Io {
                path: self.path.clone(),
                source,
            });
            self.edges = edges.ok();
        }
        Ok(())
    }

    /// The files of the children that were named.
    pub fn named(&self) -> impl Iterator<Item = &Path> {
        self.named.iter().map(|child| child.file.as_path())
    }

    /// Asks for the children beside the file that no record names.
    pub fn look_beside(&mut self) {
        let mut found = Vec::new();
        if let Some(follow) = self.reader.follow() {
            follow.beside(&mut found);
        }
        for event in found {
            if let Event::Child { agent, file, call } = event {
                self.child(Child { agent, file, call });
            }
        }
    }

    /// Frames that the server acknowledged, and how many of them are new.
    pub fn acknowledged(&self) -> (u64, u64) {
        let threads = 0..self.threads.count();
        let runs = threads.flat_map(|thread| self.threads.runs(thread));
        runs.fold((0, 0), |(all, new), run| {
            (all + run.frames, new + run.frames - run.already)
        })
    }

    /// Values with secrets that were moved into payloads.
    pub fn moved(&self) -> u64 {
        let threads = 0..self.threads.count();
        let runs = threads.flat_map(|thread| self.threads.runs(thread));
        runs.map(|run| run.moved).sum()
    }

    /// Writes into the record what is on record. Only right after [`advance`](Self::advance) or
    /// [`settle`](Self::settle) went well.
    pub fn note(&mut self, record: &mut Record) {
        self.format.as_str().clone_into(&mut record.format);
        record.threads = self.threads.recorded();
        if let Some(run) = self.threads.runs(0).first() {
            record.opening.clone_from(&run.opening);
            record.session_id = self.threads.session_id();
        }
        if let Some(follow) = self.reader.follow() {
            let place = follow.place();
            record.offset = place.offset();
            record.sha256 = place
                .digest()
                .map(|digest| hex(&digest))
                .unwrap_or_default();
        }
    }

    fn offset(&mut self) -> u64 {
        self.reader
            .follow()
            .map_or(0, |follow| follow.place().offset())
    }

    fn take(&mut self, fresh: &mut Vec<Event>) {
        self.events.extend(fresh.drain(..));
    }

    fn notice(&mut self, mut notice: Notice) {
        // A document is read again and again, and complains each time.
        if notice.offset < self.told_before || self.noted.contains(&notice) {
            return;
        }
        self.noticed += 1;
        if !self.appends && self.noticed <= NOTICES {
            self.noted.push(notice.clone());
        }
        if self.noticed == NOTICES {
            notice
                .what
                .push_str("; more such lines of this file are not told");
        }
        if self.noticed <= NOTICES {
            self.notices.push(notice);
        }
    }

    fn child(&mut self, child: Child) {
        if self.named.insert(child.clone()) {
            self.children.push(child);
        }
    }

    async fn post_events(&mut self, client: &Client) -> Result<(), Failure> {
        // An event leaves the queue when nothing can fail any more that would lose it.
        while let Some(event) = self.events.front_mut() {
            match event {
                Event::Open { thread, opening } => {
                    let opening = opening.clone();
                    self.threads.open(client, *thread, opening).await?;
                }
                Event::Frame { frame, .. } => self.threads.resolve(client, frame).await?,
                Event::Child { .. } | Event::Notice(_) | Event::Unfinished(_) => {}
            }
            match self.events.pop_front() {
                Some(Event::Frame { thread, frame }) => {
                    self.threads.frame(client, thread, frame).await?;
                }
                Some(Event::Child { agent, file, call }) => self.child(Child { agent, file, call }),
                Some(Event::Notice(notice)) => self.notice(notice),
                Some(Event::Unfinished(notice)) if self.finished => self.notice(notice),
                Some(Event::Open { .. } | Event::Unfinished(_)) | None => {}
            }
        }
        Ok(())
    }
}

/// Whether the file begins with what is on record of it.
///
/// # Errors
/// The file cannot be read.
pub fn begins_as(path: &Path, record: &Record) -> io::Result<bool> {
    let mut file = File::open(path)?.take(record.offset);
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..count]);
    }
    let digest: [u8; 32] = digest.finalize().into();
    Ok(file.limit() == 0 && hex(&digest) == record.sha256)
}

/// A digest of both edges of the first `offset` bytes: a file that was written anew differs there.
fn edges(path: &Path, offset: u64) -> io::Result<Hash> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(offset.min(EDGE_BYTES)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    let first = Hash::of(&[&bytes]);
    file.read_exact_at(&mut bytes, offset.saturating_sub(EDGE_BYTES))?;
    Ok(Hash::of(&[first.as_bytes(), &bytes]))
}
