//! Canonical bytes.

use super::error::JsonError;
use super::keys::{Entries, Entry, Key, Object};
use super::scan::{Place, Target};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Writes canonical bytes. Input that is canonical already is copied in one piece, at the end.
pub(super) struct Writer<'a> {
    text: &'a str,
    out: Vec<u8>,
    /// Bytes of the input that are in `out`, or are left out of it.
    copied: usize,
    entries: Entries<'a>,
    /// The members of an object in order, before they take the place of those out of order.
    ordered: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            out: Vec::with_capacity(text.len()),
            copied: 0,
            entries: Entries::new(text),
            ordered: Vec::new(),
        }
    }

    fn copy_to(&mut self, at: usize) {
        let run = &self.text.as_bytes()[self.copied..at];
        self.out.extend_from_slice(run);
        self.copied = at;
    }

    /// The bytes, once all has been read.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.copy_to(self.text.len());
        self.out
    }
}

impl Target for Writer<'_> {
    type Object = Object;

    #[inline]
    fn replace(&mut self, from: usize, to: usize, canonical: &[u8]) {
        self.copy_to(from);
        self.out.extend_from_slice(canonical);
        self.copied = to;
    }

    #[inline(always)]
    fn position(&self, at: usize) -> usize {
        self.out.len() + (at - self.copied)
    }

    fn open(&mut self) -> Object {
        self.entries.open()
    }

    #[inline]
    fn member(&mut self, object: &mut Object, key: Key, place: Place, _depth: usize) {
        let entry = Entry {
            key,
            start: place.key,
            end: place.end,
        };
        self.entries.push(object, entry);
    }

    fn close(&mut self, object: Object, at: usize, _depth: usize) -> Result<(), Box<JsonError>> {
        self.copy_to(at);
        if let Some(entries) = self.entries.sort(&object)? {
            self.ordered.clear();
            let mut first = usize::MAX;
            for entry in entries {
                if !self.ordered.is_empty() {
                    self.ordered.push(b',');
                }
                self.ordered
                    .extend_from_slice(&self.out[entry.start..entry.end]);
                first = first.min(entry.start);
            }
            self.out.truncate(first);
            self.out.extend_from_slice(&self.ordered);
        }
        self.entries.close(&object);
        Ok(())
    }

    fn element(&mut self, _depth: usize, _from: usize, _to: usize) {}
}
