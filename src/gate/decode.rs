//! Bytes of any encoding as UTF-8.

use std::io::{self, Read};

use encoding_rs::{Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// Bytes that are decoded at once.
const CHUNK: usize = 16 * 1024;

/// What the beginning of a report says about all of it.
pub(super) struct Kind {
    /// UTF-16, or the encoding that an XML declaration names.
    pub encoding: Option<&'static Encoding>,
    /// Bytes of the mark before the text.
    mark: usize,
    /// The first character that is no space.
    pub start: Option<char>,
    /// The beginning as text.
    pub text: String,
}

impl Kind {
    /// Looks at the first bytes.
    pub fn of(head: &[u8]) -> Self {
        let (mut encoding, mark) = marked(head);
        let body = &head[mark..];
        let text = encoding.unwrap_or(UTF_8).decode_without_bom_handling(body);
        let text = text.0.into_owned();
        if encoding.is_none() && text.trim_start().starts_with("<?xml") {
            encoding = declared(&text);
        }
        Self {
            encoding,
            mark,
            start: text.trim_start().chars().next(),
            text,
        }
    }
}

/// The encoding of text that begins like this, where it is evidently none of one byte a character:
/// `utf-16le` or `utf-16be`.
pub fn charset(head: &[u8]) -> Option<&'static str> {
    match marked(head).0 {
        Some(found) if found == UTF_16LE => Some("utf-16le"),
        Some(found) if found == UTF_16BE => Some("utf-16be"),
        _ => None,
    }
}

/// By a byte order mark, or by every second byte being zero; and the length of the mark.
fn marked(head: &[u8]) -> (Option<&'static Encoding>, usize) {
    match Encoding::for_bom(head) {
        Some((found, length)) if found == UTF_8 => return (None, length),
        Some((found, length)) => return (Some(found), length),
        None => {}
    }
    let sample = &head[..head.len().min(1_024)];
    let zeros = |offset: usize| {
        let bytes = sample.iter().skip(offset).step_by(2);
        bytes.filter(|byte| **byte == 0).count()
    };
    let (even, odd, pairs) = (zeros(0), zeros(1), sample.len() / 2);
    if pairs >= 2 && odd * 4 >= pairs * 3 && even * 20 <= pairs {
        (Some(UTF_16LE), 0)
    } else if pairs >= 2 && even * 4 >= pairs * 3 && odd * 20 <= pairs {
        (Some(UTF_16BE), 0)
    } else {
        (None, 0)
    }
}

/// The encoding of an XML declaration, where it is not UTF-8. One that names UTF-16 in bytes that are
/// not is wrong, and not followed.
fn declared(text: &str) -> Option<&'static Encoding> {
    let declaration = text.split("?>").next()?;
    let value = declaration.split("encoding").nth(1)?.trim_start();
    let value = value.strip_prefix('=')?.trim_start();
    let quote = value
        .chars()
        .next()
        .filter(|one| matches!(one, '"' | '\''))?;
    let label = value[1..].split(quote).next()?;
    Encoding::for_label(label.as_bytes())
        .filter(|found| *found != UTF_8 && *found != UTF_16LE && *found != UTF_16BE)
}

/// A reader of UTF-8 over bytes of another encoding. What is malformed becomes U+FFFD.
pub(super) struct Utf8<R> {
    input: R,
    decoder: Decoder,
    mark: usize,
    bytes: Vec<u8>,
    from: usize,
    text: Vec<u8>,
    given: usize,
    ended: bool,
    finished: bool,
}

impl<R: Read> Utf8<R> {
    /// Over a report of which [`Kind`] has seen the beginning.
    pub fn new(input: R, kind: &Kind) -> Self {
        Self {
            input,
            decoder: kind
                .encoding
                .unwrap_or(UTF_8)
                .new_decoder_without_bom_handling(),
            mark: kind.mark,
            bytes: Vec::new(),
            from: 0,
            text: Vec::new(),
            given: 0,
            ended: false,
            finished: false,
        }
    }

    /// Decodes until there is some text, or the end.
    fn more(&mut self) -> io::Result<()> {
        self.given = 0;
        self.text.clear();
        while self.text.is_empty() && !self.finished {
            if self.from == self.bytes.len() && !self.ended {
                self.bytes.resize(CHUNK, 0);
                let count = self.input.read(&mut self.bytes)?;
                self.bytes.truncate(count);
                self.from = self.mark.min(count);
                self.mark -= self.from;
                self.ended = count == 0;
            }
            self.text.resize(4 * CHUNK, 0);
            let (result, read, written, _) =
                self.decoder
                    .decode_to_utf8(&self.bytes[self.from..], &mut self.text, self.ended);
            self.text.truncate(written);
            self.from += read;
            self.finished = self.ended && result == encoding_rs::CoderResult::InputEmpty;
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.given == self.text.len() {
            self.more()?;
        }
        let rest = &self.text[self.given..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}
