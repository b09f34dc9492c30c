//! The parts of a top value, as they stand.

use super::Limits;
use super::error::{JsonError, Reason};
use super::keys::{Entries, Entry, Key, Object};
use super::scan::{Place, Target, admit, scan};
use super::text::unescape;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, after unescaping.
    pub name: String,
    /// The bytes of the value, without the space around it.
    pub raw: &'a [u8],
    /// Where the value begins in the input.
    pub offset: usize,
}

/// Checks all, and keeps the parts of the top value.
struct Splitter<'a> {
    entries: Entries<'a>,
    members: Vec<Entry>,
    elements: Vec<(usize, usize)>,
}

fn split(text: &str, limits: Limits) -> Result<Splitter<'_>, Box<JsonError>> {
    let splitter = Splitter {
        entries: Entries::new(text),
        members: Vec::new(),
        elements: Vec::new(),
    };
    scan(text, limits, splitter)
}

/// The first byte of the top value and its place.
fn top(text: &str) -> (Option<u8>, usize) {
    let value = text.trim_ascii_start();
    (value.bytes().next(), text.len() - value.len())
}

pub(super) fn members(input: &[u8], limits: Limits) -> Result<Vec<Member<'_>>, Box<JsonError>> {
    let text = admit(input, limits)?;
    let members = split(text, limits)?.members;
    let member = |entry: Entry| Member {
        name: unescape(entry.key.raw(text)),
        raw: &input[entry.start..entry.end],
        offset: entry.start,
    };
    Ok(members.into_iter().map(member).collect())
}

pub(super) fn elements(input: &[u8], limits: Limits) -> Result<Vec<&[u8]>, Box<JsonError>> {
    let text = admit(input, limits)?;
    let elements = split(text, limits)?.elements;
    if let (Some(b'['), _) = top(text) {
        let slice = |(start, end)| &input[start..end];
        return Ok(elements.into_iter().map(slice).collect());
    }
    Err(JsonError::at(Reason::Syntax, top(text).1))
}

pub(super) fn string(input: &[u8], limits: Limits) -> Result<String, Box<JsonError>> {
    let text = admit(input, limits)?;
    split(text, limits)?;
    let raw = text.trim_ascii().strip_prefix('"');
    match raw.and_then(|raw| raw.strip_suffix('"')) {
        Some(raw) => Ok(unescape(raw)),
        None => Err(JsonError::at(Reason::Syntax, top(text).1)),
    }
}

impl Target for Splitter<'_> {
    type Object = Object;

    fn replace(&mut self, _from: usize, _to: usize, _canonical: &[u8]) {}

    fn position(&self, at: usize) -> usize {
        at
    }

    fn open(&mut self) -> Object {
        self.entries.open()
    }

    fn member(&mut self, object: &mut Object, key: Key, place: Place, _depth: usize) {
        let entry = Entry {
            key,
            start: place.value,
            end: place.end,
        };
        self.entries.push(object, entry);
    }

    fn close(&mut self, object: Object, _at: usize, depth: usize) -> Result<(), Box<JsonError>> {
        self.entries.sort(&object)?;
        if depth == 1 {
            self.members = self.entries.take(&object);
            // Back to how they came.
            self.members.sort_unstable_by_key(|member| member.start);
        } else {
            self.entries.close(&object);
        }
        Ok(())
    }

    fn element(&mut self, depth: usize, from: usize, to: usize) {
        if depth == 1 {
            self.elements.push((from, to));
        }
    }
}
