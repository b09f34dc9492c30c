//! The keys of objects: their order by UTF-16 code units (RFC 8785, 3.2.3) and that none stands twice.

use super::error::{JsonError, Reason};
use super::text::{Characters, unescape};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Where a key stands in the input, between its quotes.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) start: usize,
    pub(super) end: usize,
    /// ASCII without an escape: its bytes are its code units.
    pub(super) plain: bool,
}

impl Key {
    pub(super) fn raw(self, text: &str) -> &str {
        &text[self.start..self.end]
    }

    /// The order of two keys, after unescaping.
    #[inline]
    pub(super) fn compare(self, other: Self, text: &str) -> Ordering {
        if self.plain && other.plain {
            let bytes = text.as_bytes();
            let (this, other) = (&bytes[self.start..self.end], &bytes[other.start..other.end]);
            match (this, other) {
                // Most often it needs no more.
                ([a, ..], [b, ..]) if a != b => a.cmp(b),
                _ => this.cmp(other),
            }
        } else {
            Units::of(self.raw(text)).cmp(Units::of(other.raw(text)))
        }
    }
}

/// UTF-16 code units of a key.
struct Units<'a> {
    characters: Characters<'a>,
    low: Option<u16>,
}

impl<'a> Units<'a> {
    fn of(raw: &'a str) -> Self {
        Self {
            characters: Characters { raw },
            low: None,
        }
    }
}

impl Iterator for Units<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if let Some(low) = self.low.take() {
            return Some(low);
        }
        let mut units = [0; 2];
        match *self.characters.next()?.encode_utf16(&mut units) {
            [high, low] => {
                self.low = Some(low);
                Some(high)
            }
            _ => Some(units[0]),
        }
    }
}

/// A member of an object that is being read.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// The slice that the target wants to find again.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// An object that is being read: where its entries begin, and whether they came in strict order so far.
pub(super) struct Object {
    base: usize,
    sorted: bool,
}

/// The entries of all objects that are being read, the innermost last.
pub(super) struct Entries<'a> {
    text: &'a str,
    stack: Vec<Entry>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            stack: Vec::new(),
        }
    }

    pub(super) fn open(&self) -> Object {
        Object {
            base: self.stack.len(),
            sorted: true,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, object: &mut Object, entry: Entry) {
        if object.sorted
            && let Some(previous) = self.stack.get(object.base..).and_then(<[Entry]>::last)
        {
            object.sorted = previous.key.compare(entry.key, self.text) == Ordering::Less;
        }
        self.stack.push(entry);
    }

    /// The entries in the order of their keys, if that is not how they came.
    ///
    /// # Errors
    /// The first key that stood in the object before.
    pub(super) fn sort(&mut self, object: &Object) -> Result<Option<&[Entry]>, Box<JsonError>> {
        if object.sorted {
            return Ok(None);
        }
        let text = self.text;
        let entries = &mut self.stack[object.base..];
        entries.sort_unstable_by(|a, b| {
            let order = a.key.compare(b.key, text);
            order.then(a.key.start.cmp(&b.key.start))
        });
        let again = entries
            .windows(2)
            .filter(|pair| pair[0].key.compare(pair[1].key, text) == Ordering::Equal)
            .map(|pair| pair[1].key)
            .min_by_key(|key| key.start);
        if let Some(key) = again {
            // The offset is that of the opening quote.
            let fault = JsonError::at(Reason::DuplicateKey, key.start - 1);
            return Err(fault.within(&unescape(key.raw(text))));
        }
        Ok(Some(entries))
    }

    pub(super) fn close(&mut self, object: &Object) {
        self.stack.truncate(object.base);
    }

    /// Closes an object and hands its entries out, in the order they have by now.
    pub(super) fn take(&mut self, object: &Object) -> Vec<Entry> {
        self.stack.split_off(object.base)
    }
}
