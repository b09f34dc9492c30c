//! Agent transcripts turned into requests of the API (documentation: `docs/importing.md`).
//!
//! A reader takes one record after the other and answers with events: runs to open and frames to
//! post. It does no network of its own; `cli/import.rs` posts what comes out, like any agent.
//! Equal files give equal requests, so that an import can be repeated: keys come from the place of
//! a record in its file, never from the clock or from chance.

pub mod claude;
pub mod lines;
pub mod payload;
pub mod record;
pub mod request;
pub mod swe;
pub mod text;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use payload::Payload;
use request::FrameRequest;

/// Name and version of the mapping, in every `session` frame. It changes when the same file gives
/// other requests than before, and with nothing else.
pub const MAPPING: &str = "onrecord-import/1";

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A session of Claude Code: JSON lines.
    ClaudeCode,
    /// A trajectory of SWE-agent: one JSON object.
    SweAgent,
}

impl Format {
    /// Every format, in the order in which detection tries them.
    pub const ALL: [Self; 2] = [Self::ClaudeCode, Self::SweAgent];

    /// The name on the command line and in `session` frames.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::SweAgent => "swe-agent",
        }
    }
}

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
    #[error("{}: not a {} file: {why}", path.display(), format.as_str())]
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
    /// Number of the line, from 1.
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
    /// The transcript names a subagent here, whose own file may stand beside this one.
    Subagent {
        /// The subagent's id.
        agent: String,
        /// The key of the call that started it.
        call: Option<String>,
    },
    /// Tell the person who imports.
    Notice(Notice),
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
    /// Bytes of a last line that is still being written, left for the next import.
    pub left_out_bytes: u64,
}

/// Reads one file.
pub enum Reader {
    /// A Claude Code session.
    Claude(Box<claude::ClaudeReader>),
    /// A SWE-agent trajectory.
    Swe(Box<swe::SweReader>),
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
        Ok(match format {
            Format::ClaudeCode => {
                Self::Claude(Box::new(claude::ClaudeReader::open(path, session)?))
            }
            Format::SweAgent => Self::Swe(Box::new(swe::SweReader::open(path, session)?)),
        })
    }

    /// Reads the next record and adds its events. `false` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        match self {
            Self::Claude(reader) => reader.step(events),
            Self::Swe(reader) => Ok(reader.step(events)),
        }
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        match self {
            Self::Claude(reader) => reader.tally(),
            Self::Swe(reader) => reader.tally(),
        }
    }

    /// How far the reading is: records' bytes done, and bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        match self {
            Self::Claude(reader) => reader.progress(),
            Self::Swe(reader) => reader.progress(),
        }
    }
}

/// Finds the format of a file from its content; its name does not count.
///
/// # Errors
/// The file cannot be read, or is none of [`Format::ALL`].
pub fn detect(path: &Path) -> Result<Format, ImportError> {
    if claude::fits(path)? {
        return Ok(Format::ClaudeCode);
    }
    if swe::fits(path)? {
        return Ok(Format::SweAgent);
    }
    Err(ImportError::UnknownFormat {
        path: path.to_owned(),
        tried: Format::ALL.map(Format::as_str).join(", "),
    })
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
