//! XML with its long texts shortened, so that no piece of it needs memory beyond a bound.

use std::io::{self, Read};

/// Bytes of a text, a comment, a CDATA section or an attribute's value that are passed on.
const MOST: usize = 64 * 1024;
/// Bytes of a tag, its values shortened.
const TAG: usize = 1024 * 1024;
/// Bytes of the longest end of a section.
const END: usize = 3;

/// Where in the document the last byte was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    /// After `<`: the first bytes decide what it is.
    Opened,
    Tag,
    Quoted(u8),
    /// Up to an end: `-->`, `]]>` or `?>`.
    Until(&'static [u8]),
}

/// A reader of UTF-8 XML over another.
pub(super) struct Bounded<R> {
    input: R,
    place: Place,
    /// Bytes of the present text or value.
    run: usize,
    /// Bytes of the present tag that were passed on.
    tag: usize,
    /// The first bytes of a tag, and the last ones of what goes on until an end.
    recent: Vec<u8>,
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            place: Place::Text,
            run: 0,
            tag: 0,
            recent: Vec::new(),
        }
    }

    /// Whether the byte is passed on.
    fn pass(&mut self, byte: u8) -> bool {
        match self.place {
            Place::Text if byte == b'<' => {
                self.recent.clear();
                self.tag = 1;
                self.place = Place::Opened;
                true
            }
            Place::Text => self.counted(),
            Place::Opened => {
                self.recent.push(byte);
                self.tag += 1;
                self.decide(byte);
                true
            }
            Place::Tag => {
                self.tag += 1;
                match byte {
                    b'"' | b'\'' => self.enter(Place::Quoted(byte)),
                    b'>' => self.enter(Place::Text),
                    _ => {}
                }
                true
            }
            Place::Quoted(quote) if byte == quote => {
                self.tag += 1;
                self.enter(Place::Tag);
                true
            }
            Place::Quoted(_) => {
                let passed = self.counted();
                self.tag += usize::from(passed);
                passed
            }
            Place::Until(end) => self.until(end, byte),
        }
    }

    /// What a `<` and the bytes after it begin.
    fn decide(&mut self, byte: u8) {
        let recent = self.recent.as_slice();
        let undecided = |whole: &[u8]| whole.starts_with(recent) && recent.len() < whole.len();
        if recent == b"!--" {
            self.enter(Place::Until(b"-->"));
        } else if recent == b"![CDATA[" {
            self.enter(Place::Until(b"]]>"));
        } else if recent == b"?" {
            self.enter(Place::Until(b"?>"));
        } else if undecided(b"!--") || undecided(b"![CDATA[") {
            // The next byte decides.
        } else if byte == b'>' {
            self.enter(Place::Text);
        } else {
            self.enter(Place::Tag);
        }
    }

    /// Within what goes on until `end`: its bytes are passed on up to the bound, its end always.
    fn until(&mut self, end: &'static [u8], byte: u8) -> bool {
        let passed = self.counted();
        if self.recent.len() == end.len() {
            self.recent.remove(0);
        }
        self.recent.push(byte);
        if self.recent == end {
            self.enter(Place::Text);
        }
        passed
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
        self.run = 0;
        self.recent.clear();
    }

    fn counted(&mut self) -> bool {
        self.run += 1;
        self.run <= MOST
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // An end that was not passed on is added where it is due, which needs room.
            let room = into.len().saturating_sub(END);
            let count = if room == 0 {
                0
            } else {
                self.input.read(&mut into[..room])?
            };
            if count == 0 {
                return Ok(0);
            }
            let mut kept = Vec::with_capacity(count + END);
            for byte in &into[..count] {
                let before = self.place;
                let over = self.run >= MOST;
                let passed = self.pass(*byte);
                if let Place::Until(end) = before
                    && self.place == Place::Text
                    && over
                {
                    kept.extend_from_slice(end);
                } else if passed {
                    kept.push(*byte);
                }
            }
            if self.tag > TAG {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a tag is longer than 1 MiB",
                ));
            }
            if !kept.is_empty() {
                into[..kept.len()].copy_from_slice(&kept);
                return Ok(kept.len());
            }
        }
    }
}
