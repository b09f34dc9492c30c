//! The one reader of JSON: grammar and limits, in one pass.

use super::Limits;
use super::error::{JsonError, Reason};
use super::keys::Key;
use super::{number, text};
use alloc::boxed::Box;
use alloc::format;

/// Refuses what can be told before reading: size, byte order mark, UTF-8.
pub(super) fn admit(input: &[u8], limits: Limits) -> Result<&str, Box<JsonError>> {
    if input.len() > limits.bytes {
        return Err(JsonError::at(Reason::Size, limits.bytes));
    }
    if input.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::at(Reason::Bom, 0));
    }
    core::str::from_utf8(input).map_err(|error| JsonError::at(Reason::Utf8, error.valid_up_to()))
}

/// Where a member stands, in the target's own positions.
pub(super) struct Place {
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) end: usize,
}

/// What is done with what the scanner finds.
pub(super) trait Target {
    /// What is kept of an object while it is read.
    type Object;

    /// The canonical form has `canonical` instead of `from..to` of the input. Called in reading order.
    fn replace(&mut self, from: usize, to: usize, canonical: &[u8]);
    /// The target's own position for one of the input that has been read.
    fn position(&self, at: usize) -> usize;
    fn open(&mut self) -> Self::Object;
    /// A member of an object at `depth` was read.
    fn member(&mut self, object: &mut Self::Object, key: Key, place: Place, depth: usize);
    /// The object ends at `at`, where its bracket stands; `depth` is its own.
    fn close(
        &mut self,
        object: Self::Object,
        at: usize,
        depth: usize,
    ) -> Result<(), Box<JsonError>>;
    /// An element of an array at `depth` is `from..to` of the input.
    fn element(&mut self, depth: usize, from: usize, to: usize);
}

/// Reads the whole text into the target.
pub(super) fn scan<T: Target>(text: &str, limits: Limits, target: T) -> Result<T, Box<JsonError>> {
    let mut scanner = Scanner {
        text,
        at: 0,
        depth: 0,
        limits,
        target,
    };
    scanner.space();
    let start = scanner.at;
    scanner.value()?;
    scanner.space();
    if scanner.at != text.len() {
        return Err(scanner.syntax());
    }
    if limits.object && text.as_bytes().get(start) != Some(&b'{') {
        return Err(JsonError::at(Reason::NotObject, start));
    }
    Ok(scanner.target)
}

/// Reads the value that begins at `at`, inside of `depth` others; the place after it.
#[inline]
pub(super) fn value<T: Target>(
    text: &str,
    at: usize,
    depth: usize,
    limits: Limits,
    target: T,
) -> Result<usize, Box<JsonError>> {
    let mut scanner = Scanner {
        text,
        at,
        depth,
        limits,
        target,
    };
    scanner.value().map(|()| scanner.at)
}

struct Scanner<'a, T> {
    text: &'a str,
    at: usize,
    depth: usize,
    limits: Limits,
    target: T,
}

impl<T: Target> Scanner<'_, T> {
    /// The byte at hand; NUL, which no rule lets in, at the end.
    #[inline(always)]
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    #[cold]
    fn syntax(&self) -> Box<JsonError> {
        JsonError::at(Reason::Syntax, self.at)
    }

    #[inline(always)]
    fn space(&mut self) {
        if self.peek() <= b' ' {
            self.skip_space();
        }
    }

    fn skip_space(&mut self) {
        let start = self.at;
        while let b' ' | b'\t' | b'\n' | b'\r' = self.peek() {
            self.at += 1;
        }
        if self.at > start {
            self.target.replace(start, self.at, b"");
        }
    }

    fn value(&mut self) -> Result<(), Box<JsonError>> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'{' => self.object(),
            b'[' => self.array(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => Err(self.syntax()),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Box<JsonError>> {
        if !self.text.as_bytes()[self.at..].starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(())
    }

    /// Steps over an opening bracket.
    fn enter(&mut self) -> Result<(), Box<JsonError>> {
        if self.depth == self.limits.depth {
            return Err(JsonError::at(Reason::Depth, self.at));
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        Ok(())
    }

    /// Steps over a closing bracket.
    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn object(&mut self) -> Result<(), Box<JsonError>> {
        self.enter()?;
        let mut object = self.target.open();
        if self.peek() != b'}' {
            loop {
                self.member(&mut object)?;
                self.space();
                match self.peek() {
                    b',' => self.at += 1,
                    b'}' => break,
                    _ => return Err(self.syntax()),
                }
                self.space();
            }
        }
        self.target.close(object, self.at, self.depth)?;
        self.leave();
        Ok(())
    }

    #[inline(always)]
    fn member(&mut self, object: &mut T::Object) -> Result<(), Box<JsonError>> {
        if self.peek() != b'"' {
            return Err(self.syntax());
        }
        let (start, from) = (self.target.position(self.at), self.at);
        let plain = self.string()?;
        let key = Key {
            start: from + 1,
            end: self.at - 1,
            plain,
        };
        self.space();
        if self.peek() != b':' {
            return Err(self.syntax());
        }
        self.at += 1;
        self.space();
        let value = self.target.position(self.at);
        self.value()
            .map_err(|fault| fault.within(&text::unescape(key.raw(self.text))))?;
        let place = Place {
            key: start,
            value,
            end: self.target.position(self.at),
        };
        self.target.member(object, key, place, self.depth);
        Ok(())
    }

    fn array(&mut self) -> Result<(), Box<JsonError>> {
        self.enter()?;
        if self.peek() != b']' {
            let mut index = 0usize;
            loop {
                let start = self.at;
                self.value()
                    .map_err(|fault| fault.within(&format!("{index}")))?;
                self.target.element(self.depth, start, self.at);
                self.space();
                match self.peek() {
                    b',' => self.at += 1,
                    b']' => break,
                    _ => return Err(self.syntax()),
                }
                self.space();
                index += 1;
            }
        }
        self.leave();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Box<JsonError>> {
        let mut buffer = ryu_js::Buffer::new();
        let (end, canonical) = number::number(self.text, self.at, &mut buffer)
            .map_err(|(reason, at)| JsonError::at(reason, at))?;
        if let Some(canonical) = canonical {
            self.target.replace(self.at, end, canonical.as_bytes());
        }
        self.at = end;
        Ok(())
    }

    /// Steps over a string; whether it is ASCII without an escape.
    #[inline]
    fn string(&mut self) -> Result<bool, Box<JsonError>> {
        let bytes = self.text.as_bytes();
        let mut plain = true;
        let mut at = self.at + 1;
        loop {
            at = text::plain_run(bytes, at);
            match (bytes.get(at), bytes.get(at + 1)) {
                (Some(b'"'), _) => {
                    self.at = at + 1;
                    return Ok(plain);
                }
                // These are canonical as they stand.
                (Some(b'\\'), Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')) => at += 2,
                (Some(b'\\'), _) => {
                    self.at = at;
                    self.escape()?;
                    at = self.at;
                }
                (Some(0x80..), _) => {
                    at = text::wide_run(bytes, at)
                        .map_err(|at| JsonError::at(Reason::Noncharacter, at))?;
                }
                _ => {
                    self.at = at;
                    return Err(self.syntax());
                }
            }
            plain = false;
        }
    }

    fn escape(&mut self) -> Result<(), Box<JsonError>> {
        let bytes = self.text.as_bytes();
        let (character, end) =
            text::escape(bytes, self.at).map_err(|(reason, at)| JsonError::at(reason, at))?;
        let mut buffer = [0; 6];
        let canonical = text::spell(character, &mut buffer);
        if bytes[self.at..end] != *canonical {
            self.target.replace(self.at, end, canonical);
        }
        self.at = end;
        Ok(())
    }
}
