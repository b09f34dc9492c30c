//! Agent transcripts turned into requests of the API (documentation: `docs/importing.md`).
//!
//! A reader takes one record after the other and answers with events: runs to open and frames to
//! post. It does no network of its own; `cli/import.rs` posts what comes out, like any agent.
//! Equal files give equal requests, so that an import can be repeated: keys come from the place of
//! a record in its file, never from the clock or from chance.
//!
//! A format is a module with two functions: `fits` tells by a [`Sample`] whether a file is one of its
//! own, `open` gives a [`Transcript`]. Files of lines are read by [`jsonl`], files of one JSON value by
//! [`document`]; what they have in common as conversations is in [`conversation`].

mod blocks;
pub mod child;
pub mod claude;
pub mod conversation;
pub mod document;
mod format;
pub mod jsonl;
pub mod lines;
pub mod payload;
pub mod record;
pub mod request;
pub mod sample;
pub mod swe;
pub mod text;

mod antigravity;
mod chat;
mod codex;
mod codex_exec;
mod copilot;
mod cursor;
pub mod cut;
mod droid;
mod gemini;
mod grok;
pub mod held;
mod inspect;
mod langfuse;
mod listed;
mod mini_swe;
pub mod moved;
mod opencode;
mod openhands;
mod recent;
mod tree;

pub use format::Format;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use payload::Payload;
use request::FrameRequest;
use sample::Sample;

/// Name and version of the mapping, in every `session` frame. It changes when the same file gives
/// other requests than before, and with nothing else.
pub const MAPPING: &str = "onrecord-import/2";

/// A file that cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No format fits.
    #[error(
        "{}: this file is none of the formats that were tried ({tried}); name the format instead of `auto` if you know better",
        path.display()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Their names.
        tried: String,
    },
    /// The file is not of the format that was asked for.
    #[error("{}: this is no file of the format {}: {why}", path.display(), format.as_str())]
    NotThisFormat {
        /// The file.
        path: PathBuf,
        /// The format.
        format: Format,
        /// What is missing.
        why: String,
    },
}

/// What to open a run with.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The idempotency key of the `session` frame: one run for one session, however often imported.
    pub key: String,
    /// The body of the `session` frame, without what the server adds.
    pub session: Map<String, Value>,
    /// Its payloads.
    pub payloads: Vec<Payload>,
    /// When the transcript says that the session began.
    pub occurred_at: Option<String>,
}

/// Something that could not be read as a record, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Number of the line, from 1; 0 where it is about the file as a whole.
    pub line: u64,
    /// Byte offset of the line in the file.
    pub offset: u64,
    /// What is wrong, and what was done.
    pub what: String,
}

/// What a reader answers.
#[derive(Debug)]
pub enum Event {
    /// Open the run of a thread. Thread 0 is the file's own and comes first.
    Open {
        /// The thread.
        thread: usize,
        /// What to post to `/v1/runs`.
        opening: Opening,
    },
    /// Post a frame to the run of a thread.
    Frame {
        /// The thread.
        thread: usize,
        /// The frame.
        frame: FrameRequest,
    },
    /// The session of a child (a subagent) has a file of its own beside this one.
    Child {
        /// The child's id.
        agent: String,
        /// Its file.
        file: PathBuf,
        /// The key of the call that started it, where the transcript tells it.
        call: Option<String>,
    },
    /// Tell the person who imports.
    Notice(Notice),
    /// The same of what its writer may not be done with: of a file that is followed it comes to an end by itself.
    Unfinished(Notice),
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records of the format.
    pub records: u64,
    /// Records without a frame kind of their own, kept whole as observations.
    pub unmapped: u64,
    /// Lines that are no record, kept as raw bytes.
    pub torn: u64,
    /// Bytes that are still being written (a last line, a call without its result), left for the next
    /// import.
    pub left_out_bytes: u64,
}

/// A file being read, a record at a time.
pub trait Transcript: Send {
    /// Reads the next record and adds its events. `false` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError>;

    /// What was counted so far.
    fn tally(&self) -> Tally;

    /// How far the reading is: records' bytes done, and bytes in all.
    fn progress(&self) -> (u64, u64);

    /// The transcript as one that can be read on when its file has grown. `None` where the file is
    /// written anew as a whole, so that it has to be opened anew.
    fn follow(&mut self) -> Option<&mut dyn Follow> {
        None
    }

    /// Whether the transcript says, as far as it was read, that its session has ended.
    fn ended(&self) -> bool {
        false
    }
}

/// A transcript to whose file its agent only appends.
pub trait Follow {
    /// Lets [`Transcript::step`] go on, up to the length that the file has now. A last line without a
    /// line feed is left for later, unless the reading is to come `to_the_end`: then it is read as an
    /// import reads it, and nothing may be read after it.
    ///
    /// # Errors
    /// The file cannot be read.
    fn extend(&mut self, to_the_end: bool) -> Result<(), ImportError>;

    /// Adds an event for each file of a child beside this one that no record has named so far.
    fn beside(&mut self, events: &mut Vec<Event>);

    /// Where the next line begins, with the digest of what is before it.
    fn place(&self) -> lines::Place;
}

/// Reads one file of any format.
pub struct Reader {
    format: Format,
    transcript: Box<dyn Transcript>,
}

impl Reader {
    /// Opens a file; `format` is detected where it is `None`, and `session` replaces the session id
    /// that the file or its name would give.
    ///
    /// # Errors
    /// The file cannot be read, or is of no known format, or not of the one asked for.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        session: Option<&str>,
    ) -> Result<Self, ImportError> {
        let format = match format {
            Some(format) => format,
            None => detect(path)?,
        };
        let transcript = format.open(path, session)?;
        Ok(Self { format, transcript })
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// See [`Transcript::step`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        self.transcript.step(events)
    }

    /// See [`Transcript::tally`].
    pub fn tally(&self) -> Tally {
        self.transcript.tally()
    }

    /// See [`Transcript::progress`].
    pub fn progress(&self) -> (u64, u64) {
        self.transcript.progress()
    }

    /// See [`Transcript::follow`].
    pub fn follow(&mut self) -> Option<&mut dyn Follow> {
        self.transcript.follow()
    }

    /// See [`Transcript::ended`].
    pub fn ended(&self) -> bool {
        self.transcript.ended()
    }
}

/// Finds the format of a file from its content; its name does not count.
///
/// # Errors
/// The file cannot be read, or is none of [`Format::ALL`].
pub fn detect(path: &Path) -> Result<Format, ImportError> {
    let sample = Sample::of(path)?;
    let found = Format::ALL.into_iter().find(|format| format.fits(&sample));
    found.ok_or_else(|| ImportError::UnknownFormat {
        path: path.to_owned(),
        tried: Format::ALL.map(Format::as_str).join(", "),
    })
}

/// Where the mapping of a record puts what it makes, and what it counts.
pub struct Sink<'a> {
    events: &'a mut Vec<Event>,
    tally: &'a mut Tally,
}

impl<'a> Sink<'a> {
    /// Adds to these.
    pub fn new(events: &'a mut Vec<Event>, tally: &'a mut Tally) -> Self {
        Self { events, tally }
    }

    /// Opens the run of a thread; threads are opened in the order of their numbers.
    pub fn open(&mut self, thread: usize, opening: Opening) {
        self.events.push(Event::Open { thread, opening });
    }

    /// Adds a frame to the file's own run.
    pub fn frame(&mut self, frame: FrameRequest) {
        self.frame_of(0, frame);
    }

    /// Adds a frame to the run of a thread, cut where it is too large for one.
    pub fn frame_of(&mut self, thread: usize, frame: FrameRequest) {
        let frames = frame.fitted().into_iter();
        self.events
            .extend(frames.map(|frame| Event::Frame { thread, frame }));
    }

    /// Names the file of a child.
    pub fn child(&mut self, agent: impl Into<String>, file: PathBuf, call: Option<String>) {
        self.events.push(Event::Child {
            agent: agent.into(),
            file,
            call,
        });
    }

    /// Tells the person who imports.
    pub fn notice(&mut self, notice: Notice) {
        self.events.push(Event::Notice(notice));
    }

    /// Tells that something is still being written.
    pub fn unfinished(&mut self, notice: Notice) {
        self.events.push(Event::Unfinished(notice));
    }

    /// Counts a record.
    pub fn record(&mut self) {
        self.tally.records += 1;
    }

    /// Counts bytes that are still being written and are left for the next import.
    pub fn left_out(&mut self, bytes: u64) {
        self.tally.left_out_bytes += bytes;
    }

    /// Counts something that is no record and is kept as raw bytes.
    pub fn torn(&mut self) {
        self.tally.torn += 1;
    }

    /// Counts a record that no kind fits. It is kept whole, as an `observation` of the class `unmapped`.
    pub fn unmapped(&mut self) {
        self.tally.unmapped += 1;
    }
}

/// The file's name without its ending.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

fn open_file(path: &Path) -> Result<(File, u64), ImportError> {
    let io = |source| ImportError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(io(io::Error::new(
            io::ErrorKind::IsADirectory,
            "this is a folder: name the files in it",
        )));
    }
    Ok((file, metadata.len()))
}

fn read_whole(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, ImportError> {
    let (file, length) = open_file(path)?;
    if length > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|source| ImportError::Io {
            path: path.to_owned(),
            source,
        })?;
    Ok(Some(bytes))
}
