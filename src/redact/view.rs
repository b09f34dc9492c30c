//! A text as whoever reads it sees it, and the way back to the bytes that it was read from.

use super::Found;
use std::borrow::Cow;

const ESC: u8 = 0x1b;

/// Bytes that stand for others.
pub(super) struct View<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where each byte came from, and where the last one ends; none where nothing stood between them.
    places: Option<Places>,
}

#[derive(Default)]
struct Places {
    starts: Vec<u32>,
    ends: Vec<u32>,
}

impl<'a> View<'a> {
    fn same(bytes: &'a [u8]) -> Self {
        Self {
            bytes: Cow::Borrowed(bytes),
            places: None,
        }
    }

    /// Puts findings of the view where they are in what it was read from.
    pub(super) fn back(&self, found: &mut [Found]) {
        let Some(places) = &self.places else { return };
        for one in found {
            let last = one.end.saturating_sub(1);
            one.end = places.ends.get(last).map_or(one.end, |end| *end as usize);
            one.start = places
                .starts
                .get(one.start)
                .map_or(one.start, |start| *start as usize);
        }
    }
}

#[derive(Default)]
struct Builder {
    bytes: Vec<u8>,
    places: Places,
}

impl Builder {
    fn push(&mut self, bytes: &[u8], start: usize, end: usize) {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        for byte in bytes {
            self.bytes.push(*byte);
            self.places.starts.push(place(start));
            self.places.ends.push(place(end));
        }
    }

    fn finish<'a>(self) -> View<'a> {
        View {
            bytes: Cow::Owned(self.bytes),
            places: Some(self.places),
        }
    }
}

/// A terminal's text without what only colours it.
pub(super) fn without_colour(text: &[u8]) -> View<'_> {
    if !text.contains(&ESC) {
        return View::same(text);
    }
    let mut view = Builder::default();
    let mut at = 0;
    while at < text.len() {
        if text[at] == ESC {
            at = after_escape(text, at);
        } else {
            view.push(&text[at..=at], at, at + 1);
            at += 1;
        }
    }
    view.finish()
}

/// The place after an escape sequence of ECMA-48.
fn after_escape(text: &[u8], at: usize) -> usize {
    let skip = |from: usize, fits: fn(&u8) -> bool| {
        let run = text[from..].iter().take_while(|byte| fits(byte));
        from + run.count()
    };
    match text.get(at + 1) {
        Some(b'[') => {
            let end = skip(at + 2, |byte| (0x20..0x40).contains(byte));
            match text.get(end) {
                Some(last) if (0x40..0x7f).contains(last) => end + 1,
                _ => end,
            }
        }
        // A title or a link, to BEL or to ESC \.
        Some(b']') => {
            let end = skip(at + 2, |byte| !matches!(*byte, 0x07 | ESC | b'\n'));
            match (text.get(end), text.get(end + 1)) {
                (Some(&ESC), Some(b'\\')) => end + 2,
                (Some(0x07), _) => end + 1,
                _ => end,
            }
        }
        Some(next) if (0x20..0x7f).contains(next) => at + 2,
        _ => at + 1,
    }
}

/// The text of a JSON string, from what stands between its quotes.
pub(super) fn unescaped(raw: &[u8]) -> View<'_> {
    if !raw.contains(&b'\\') {
        return View::same(raw);
    }
    let mut view = Builder::default();
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' {
            view.push(&raw[at..=at], at, at + 1);
            at += 1;
            continue;
        }
        let (letter, end) = escape(raw, at);
        let mut utf8 = [0; 4];
        view.push(letter.encode_utf8(&mut utf8).as_bytes(), at, end);
        at = end;
    }
    view.finish()
}

/// The character that an escape stands for, and the place after it.
fn escape(raw: &[u8], at: usize) -> (char, usize) {
    let letter = match raw.get(at + 1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => {
            let unit = |from: usize| {
                let digits = raw.get(from..from + 4)?;
                u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
            };
            let first = unit(at + 2);
            let second = (raw.get(at + 6..at + 8) == Some(b"\\u"))
                .then(|| unit(at + 8))
                .flatten();
            return match (first, second) {
                (Some(high @ 0xD800..0xDC00), Some(low @ 0xDC00..0xE000)) => {
                    let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    (char::from_u32(code).unwrap_or('\u{fffd}'), at + 12)
                }
                (Some(code), _) => (char::from_u32(code).unwrap_or('\u{fffd}'), at + 6),
                (None, _) => ('\u{fffd}', (at + 2).min(raw.len())),
            };
        }
        Some(other) => char::from(*other),
        None => '\\',
    };
    (letter, (at + 2).min(raw.len()))
}

/// The bytes from a place on, so many at most, without the ends of lines and what indents the next: a terminal or
/// a mail program cut them there.
pub(super) fn joined(text: &[u8], from: usize, most: usize) -> View<'_> {
    let mut view = Builder::default();
    let mut at = from;
    while at < text.len() && view.bytes.len() < most {
        let end = after_line(text, at);
        if end > at {
            at = end;
        } else {
            view.push(&text[at..=at], at, at + 1);
            at += 1;
        }
    }
    view.finish()
}

/// The place where the next line's text begins, if a line ends here.
pub(super) fn after_line(text: &[u8], at: usize) -> usize {
    let mut end = at;
    if text.get(end) == Some(&b'\\') && matches!(text.get(end + 1), Some(b'\r' | b'\n')) {
        end += 1;
    }
    if text.get(end) == Some(&b'\r') {
        end += 1;
    }
    if text.get(end) != Some(&b'\n') {
        return at;
    }
    let indent = text[end + 1..].iter().take(64);
    end + 1
        + indent
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count()
}
