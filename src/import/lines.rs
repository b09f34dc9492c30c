//! Lines of a file that its writer may have left torn, in constant memory.

use std::io::{self, BufRead};

use sha2::{Digest as _, Sha256};

/// Bytes of a line that are held at once. A longer line comes in pieces of this size and is never
/// read as JSON.
pub const LINE_BYTES: usize = 64 * 1024 * 1024;

/// A line, or a piece of one that is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: u64,
    /// Where these bytes begin in the file.
    pub offset: u64,
    /// The bytes, without the line feed and a carriage return before it.
    pub bytes: Vec<u8>,
    /// Which piece of an over-long line this is, from 1; `None` for a whole line.
    pub piece: Option<u32>,
    /// Whether a line feed ended the line; the last line of a file that is being written has none.
    pub ended: bool,
}

/// A place between two lines, or two pieces of one, from where a file can be read on.
#[derive(Clone, Debug)]
pub struct Place {
    number: u64,
    offset: u64,
    piece: u32,
    digest: Option<Sha256>,
}

impl Place {
    /// The beginning of a file. With `digested` everything that is read is digested too.
    pub fn start(digested: bool) -> Self {
        Self {
            number: 1,
            offset: 0,
            piece: 0,
            digest: digested.then(Sha256::new),
        }
    }

    /// Bytes before the place.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// SHA-256 of the bytes before the place, if they were digested.
    pub fn digest(&self) -> Option<[u8; 32]> {
        let digest = self.digest.clone()?;
        Some(digest.finalize().into())
    }
}

/// Reads lines one after the other.
pub struct Lines<R> {
    reader: R,
    place: Place,
    limit: usize,
}

impl<R: BufRead> Lines<R> {
    /// Starts at the beginning of a file.
    pub fn new(reader: R) -> Self {
        Self::at(Place::start(false), reader)
    }

    /// Goes on at a place; the reader's next byte is the one there.
    pub fn at(place: Place, reader: R) -> Self {
        Self {
            reader,
            place,
            limit: LINE_BYTES,
        }
    }

    /// Where the next line begins.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What the lines are read from.
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// Whether more of this line or piece may follow, where the file goes on.
    pub fn is_cut(&self, line: &Line) -> bool {
        !line.ended && line.bytes.len() < self.limit
    }

    /// The next line or piece; `None` at the end. Empty lines come too.
    pub fn read(&mut self) -> io::Result<Option<Line>> {
        let offset = self.place.offset;
        let mut bytes = Vec::new();
        let mut ended = false;
        while !ended && bytes.len() < self.limit {
            let available = match self.reader.fill_buf() {
                Ok([]) => break,
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let room = available.len().min(self.limit - bytes.len());
            let feed = available[..room].iter().position(|byte| *byte == b'\n');
            let taken = feed.unwrap_or(room);
            bytes.extend_from_slice(&available[..taken]);
            ended = feed.is_some();
            let used = taken + usize::from(ended);
            if let Some(digest) = &mut self.place.digest {
                digest.update(&available[..used]);
            }
            self.reader.consume(used);
            self.place.offset += used as u64;
        }
        if bytes.is_empty() && !ended {
            return Ok(None);
        }
        let place = &mut self.place;
        let over_long = place.piece > 0 || (!ended && bytes.len() == self.limit);
        let number = place.number;
        if over_long {
            place.piece += 1;
        }
        let piece = over_long.then_some(place.piece);
        if ended {
            place.number += 1;
            place.piece = 0;
            if bytes.last() == Some(&b'\r') && piece.is_none() {
                bytes.pop();
            }
        }
        Ok(Some(Line {
            number,
            offset,
            bytes,
            piece,
            ended,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    type Read = (u64, u64, Vec<u8>, Option<u32>, bool);

    fn read(text: &[u8], limit: usize) -> Vec<Read> {
        // A buffer of three bytes puts every line across several reads.
        let reader = BufReader::with_capacity(3, Cursor::new(text.to_vec()));
        let mut lines = Lines {
            limit,
            ..Lines::new(reader)
        };
        let mut all = Vec::new();
        while let Some(line) = lines.read().unwrap() {
            all.push((line.number, line.offset, line.bytes, line.piece, line.ended));
        }
        assert_eq!(lines.place().offset(), text.len() as u64);
        all
    }

    #[test]
    fn a_place_is_enough_to_read_on() {
        let text = b"one\ntwo\nabcdefgh";
        let of = |place: Place| Lines {
            limit: 4,
            ..Lines::at(place.clone(), &text[place.offset() as usize..])
        };
        let mut place = Place::start(true);
        let mut all = Vec::new();
        while let Some(line) = { of(place.clone()).read().unwrap() } {
            let mut lines = of(place);
            lines.read().unwrap();
            all.push((line.number, line.piece, lines.is_cut(&line)));
            place = lines.place().clone();
            let digest: [u8; 32] = Sha256::digest(&text[..place.offset() as usize]).into();
            assert_eq!(place.digest(), Some(digest));
        }
        let expected = [
            (1, None, false),
            (2, None, false),
            (3, Some(1), false),
            (3, Some(2), false),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn numbers_and_offsets_name_the_place() {
        assert_eq!(
            read(b"one\r\n\nthree\nfo", 100),
            [
                (1, 0, b"one".to_vec(), None, true),
                (2, 5, b"".to_vec(), None, true),
                (3, 6, b"three".to_vec(), None, true),
                (4, 12, b"fo".to_vec(), None, false),
            ]
        );
        assert_eq!(read(b"", 100), []);
    }

    #[test]
    fn a_line_over_the_limit_comes_in_pieces() {
        assert_eq!(
            read(b"a\nbcdefghij\nk\n", 4),
            [
                (1, 0, b"a".to_vec(), None, true),
                (2, 2, b"bcde".to_vec(), Some(1), false),
                (2, 6, b"fghi".to_vec(), Some(2), false),
                (2, 10, b"j".to_vec(), Some(3), true),
                (3, 12, b"k".to_vec(), None, true),
            ]
        );
    }
}
