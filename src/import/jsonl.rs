//! Files of JSON lines, appended while an agent works: one record a line, read in constant memory.
//!
//! A line that is no record is kept as raw bytes. The last line, cut off, is left for the next import;
//! of a file that is followed it is taken when its line feed is there.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Take};
use std::path::{Path, PathBuf};

use super::lines::{Line, Lines, Place};
use super::payload::Payload;
use super::record::{self, Reading, Record};
use super::request::{FrameRequest, Turn};
use super::{Event, Follow, ImportError, Notice, Opening, Sink, Tally, Transcript, open_file};

/// What the records of a format become.
pub(super) trait LineMapper: Send {
    /// Maps the record of a line. The frame with the key [`key`] has to get what is left of the record
    /// ([`Record::leave_rest`]).
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>);

    /// The turn that a frame of the file's own run would have now.
    fn turn(&self) -> Turn;

    /// Called once, after the last line. What it adds may stand in the run of a session that goes on
    /// all the same, so that a later reading of the longer file has to give it again, or not at all.
    fn end(&mut self, out: &mut Sink<'_>) {
        self.beside(out);
    }

    /// Names the files of children beside this one that no record has named so far. Of a file that is
    /// followed it is asked for each time the reading has caught up.
    fn beside(&mut self, _out: &mut Sink<'_>) {}

    /// Whether a record said that the session has ended, and no record came after it.
    fn ended(&self) -> bool {
        false
    }
}

/// Bytes that are read from the file at once.
const BUFFER: usize = 256 * 1024;

/// The key of a record's first frame.
pub(super) fn key(line: u64) -> String {
    format!("line/{line}")
}

/// Reads a file line by line.
pub(super) struct JsonLines<M> {
    path: PathBuf,
    lines: Lines<BufReader<Take<File>>>,
    length: u64,
    opening: Option<Opening>,
    mapper: M,
    ended: bool,
    /// Of a file that is followed only whole lines are taken.
    whole_lines: bool,
    tally: Tally,
}

impl<M: LineMapper> JsonLines<M> {
    /// Opens a file. What is appended while this reads is left for the next import.
    pub fn open(path: &Path, opening: Opening, mapper: M) -> Result<Self, ImportError> {
        let (file, length) = open_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            lines: Lines::new(BufReader::with_capacity(BUFFER, file.take(length))),
            length,
            opening: Some(opening),
            mapper,
            ended: false,
            whole_lines: false,
            tally: Tally::default(),
        })
    }

    /// Reads on at a place, up to the length that the file has now.
    fn read_from(&mut self, place: Place) -> std::io::Result<()> {
        let mut file = self.lines.reader().get_ref().get_ref().try_clone()?;
        self.length = file.metadata()?.len();
        file.seek(SeekFrom::Start(place.offset()))?;
        let rest = file.take(self.length.saturating_sub(place.offset()));
        self.lines = Lines::at(place, BufReader::with_capacity(BUFFER, rest));
        Ok(())
    }

    fn io(&self, source: std::io::Error) -> ImportError {
        ImportError::Io {
            path: self.path.clone(),
            source,
        }
    }

    fn line(&mut self, line: &Line, events: &mut Vec<Event>) {
        if line.piece.is_some() {
            let why = "the line is longer than the 64 MiB that are read at once";
            return self.keep_torn(line, why, events);
        }
        match record::read(&line.bytes) {
            Reading::Blank => {}
            Reading::Record(record) => {
                self.tally.records += 1;
                let mut out = Sink::new(events, &mut self.tally);
                self.mapper.map(line.number, record, &mut out);
            }
            // The writer may be in the middle of this line: with its end it may be a good record.
            Reading::Torn(_) if !line.ended => {
                self.tally.left_out_bytes = line.bytes.len() as u64;
                events.push(Event::Unfinished(Notice {
                    line: line.number,
                    offset: line.offset,
                    what: "the last line is cut off; it is left out and will be taken by the next import, when it is complete".to_owned(),
                }));
            }
            Reading::Torn(why) => self.keep_torn(line, &why, events),
        }
    }

    /// Keeps a line that is no record as it is. Nothing is read out of it: half of one record glued
    /// to another would be an invention.
    fn keep_torn(&mut self, line: &Line, why: &str, events: &mut Vec<Event>) {
        let first = line.piece.is_none_or(|piece| piece == 1);
        if first {
            self.tally.torn += 1;
            events.push(Event::Notice(Notice {
                line: line.number,
                offset: line.offset,
                what: format!("{why}; the line is kept as raw bytes"),
            }));
        }
        let key = match line.piece {
            None | Some(1) => key(line.number),
            Some(piece) => format!("{}/piece/{piece}", key(line.number)),
        };
        let mut frame = FrameRequest::new("observation", key, self.mapper.turn());
        frame
            .put("observation", "torn_line")
            .put("line", line.number)
            .put("offset", line.offset)
            .put("bytes", line.bytes.len());
        if let Some(piece) = line.piece {
            frame.put("piece", piece);
        }
        frame.attach(Payload::bytes("raw", line.bytes.clone(), None));
        Sink::new(events, &mut self.tally).frame(frame);
    }
}

impl<M: LineMapper> Transcript for JsonLines<M> {
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
            return Ok(true);
        }
        let before = self.whole_lines.then(|| self.lines.place().clone());
        let line = self.lines.read().map_err(|source| self.io(source))?;
        match (line, before) {
            // Read again from its beginning when there is more of it.
            (Some(line), Some(before)) if self.lines.is_cut(&line) => {
                let file = self.lines.reader().get_ref().get_ref();
                let file = file.try_clone().map_err(|source| self.io(source))?;
                self.lines = Lines::at(before, BufReader::new(file.take(0)));
                return Ok(false);
            }
            (Some(line), _) => self.line(&line, events),
            (None, Some(_)) => return Ok(false),
            (None, None) if self.ended => return Ok(false),
            (None, None) => {
                self.ended = true;
                self.mapper.end(&mut Sink::new(events, &mut self.tally));
            }
        }
        Ok(true)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn progress(&self) -> (u64, u64) {
        (self.lines.place().offset(), self.length)
    }

    fn follow(&mut self) -> Option<&mut dyn Follow> {
        Some(self)
    }

    fn ended(&self) -> bool {
        self.mapper.ended()
    }
}

impl<M: LineMapper> Follow for JsonLines<M> {
    fn extend(&mut self, to_the_end: bool) -> Result<(), ImportError> {
        self.whole_lines = !to_the_end;
        let place = self.lines.place().clone();
        // From the first byte on, or never: it is too late for those that were read.
        let place = match place.offset() {
            0 => Place::start(true),
            _ => place,
        };
        self.read_from(place).map_err(|source| self.io(source))
    }

    fn beside(&mut self, events: &mut Vec<Event>) {
        self.mapper.beside(&mut Sink::new(events, &mut self.tally));
    }

    fn place(&self) -> Place {
        self.lines.place().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;
    use std::io::Write as _;

    /// Gives a frame for each record; `{"end":true}` ends the session.
    #[derive(Default)]
    struct Mapper(bool);

    impl LineMapper for Mapper {
        fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
            self.0 = record.value.get("end").is_some();
            out.frame(FrameRequest::new("observation", key(line), Turn::Run));
        }

        fn turn(&self) -> Turn {
            Turn::Run
        }

        fn end(&mut self, out: &mut Sink<'_>) {
            out.frame(FrameRequest::new("observation", "end", Turn::Run));
        }

        fn ended(&self) -> bool {
            self.0
        }
    }

    fn keys(reader: &mut JsonLines<Mapper>) -> Vec<String> {
        let mut events = Vec::new();
        while reader.step(&mut events).unwrap() {}
        let keys = events.into_iter().filter_map(|event| match event {
            Event::Frame { frame, .. } => Some(frame.key),
            _ => None,
        });
        keys.collect()
    }

    #[test]
    fn a_file_that_is_followed_is_read_in_whole_lines_until_its_end() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let opening = Opening {
            key: "k".to_owned(),
            session: Map::new(),
            payloads: Vec::new(),
            occurred_at: None,
        };
        let mut write = |text: &[u8]| file.write_all(text).unwrap();
        write(b"{\"a\":1}\n{\"a\":");
        let mut reader = JsonLines::open(&path, opening, Mapper::default()).unwrap();
        reader.extend(false).unwrap();
        assert_eq!(keys(&mut reader), ["line/1"]);
        assert_eq!((reader.place().offset(), reader.tally.torn), (8, 0));
        // Nothing more is read before it is told to go on, and then from the beginning of the line.
        write(b"2}");
        assert!(keys(&mut reader).is_empty());
        reader.extend(false).unwrap();
        assert!(keys(&mut reader).is_empty(), "it may go on");
        write(b"\n{\"end\":true}\n{\"a\":3}");
        reader.extend(false).unwrap();
        assert_eq!(keys(&mut reader), ["line/2", "line/3"]);
        assert!(reader.ended());
        let digest = onrecord_core::digest::Hash(reader.place().digest().unwrap());
        let read = std::fs::read(&path).unwrap();
        let length = usize::try_from(reader.place().offset()).unwrap();
        use sha2::Digest as _;
        assert_eq!(digest.0[..], sha2::Sha256::digest(&read[..length])[..]);
        // At the end the last line counts as it is.
        reader.extend(true).unwrap();
        assert_eq!(keys(&mut reader), ["line/4", "end"]);
        assert!(!reader.ended(), "a record came after it");
    }
}
