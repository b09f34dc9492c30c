//! Files of one JSON value, written anew as a whole: they have to be in memory.

use std::path::Path;

use super::record::{self, Reading, Record};
use super::{Event, Format, ImportError, Opening, Sink, Tally, Transcript, read_whole};

/// Bytes of a document that is read.
pub const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The parts of a document on their way to frames.
pub(super) trait Parts: Send {
    /// Maps the next part. `false` when there is none left.
    fn step(&mut self, out: &mut Sink<'_>) -> bool;

    /// How many parts are done, and how many there are in all.
    fn progress(&self) -> (usize, usize);

    /// Whether a part said that the session has ended.
    fn ended(&self) -> bool {
        false
    }
}

/// Reads the one JSON object of a file.
///
/// # Errors
/// The file cannot be read, is larger than [`FILE_BYTES`], or is no JSON object.
pub(super) fn read(path: &Path, format: Format) -> Result<(Record, u64), ImportError> {
    let bytes = bytes(path, format)?;
    record_of(path, format, record::read(&bytes), &bytes)
}

/// Reads the one JSON object or list of a file.
///
/// # Errors
/// As [`read`]'s.
pub(super) fn read_list(path: &Path, format: Format) -> Result<(Record, u64), ImportError> {
    let bytes = bytes(path, format)?;
    record_of(path, format, record::read_list(&bytes), &bytes)
}

/// The bytes of a file that is read as a whole.
///
/// # Errors
/// The file cannot be read, or is larger than [`FILE_BYTES`].
pub(super) fn bytes(path: &Path, format: Format) -> Result<Vec<u8>, ImportError> {
    read_whole(path, FILE_BYTES)?.ok_or_else(|| {
        let why = format!("it is larger than {} MiB", FILE_BYTES >> 20);
        format.refused(path, why)
    })
}

fn record_of(
    path: &Path,
    format: Format,
    reading: Reading,
    bytes: &[u8],
) -> Result<(Record, u64), ImportError> {
    match reading {
        Reading::Record(record) => Ok((record, bytes.len() as u64)),
        Reading::Blank => Err(format.refused(path, "it is empty")),
        Reading::Torn(why) => Err(format.refused(path, why)),
    }
}

/// Reads a document part by part.
pub(super) struct Document<P> {
    length: u64,
    opening: Option<Opening>,
    parts: P,
    tally: Tally,
}

impl<P: Parts> Document<P> {
    /// Of a file of so many bytes.
    pub fn new(length: u64, opening: Opening, parts: P) -> Self {
        Self {
            length,
            opening: Some(opening),
            parts,
            tally: Tally::default(),
        }
    }
}

impl<P: Parts> Transcript for Document<P> {
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
            return Ok(true);
        }
        Ok(self.parts.step(&mut Sink::new(events, &mut self.tally)))
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn progress(&self) -> (u64, u64) {
        // Estimated: parts are of different lengths.
        let (done, total) = self.parts.progress();
        let done = match total as u64 {
            0 => self.length,
            total => self.length.saturating_mul(done as u64) / total,
        };
        (done, self.length)
    }
    fn ended(&self) -> bool {
        self.parts.ended()
    }
}
