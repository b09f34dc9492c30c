//! Documents that hold in one list what other files of the same format have as lines.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::{Map, Value};

use super::document::{self, Document, Parts};
use super::record::Record;
use super::request::{FrameRequest, Turn, object};
use super::{Format, ImportError, Opening, Sink, Transcript};

/// What the records of a format become, be they lines or items of a list.
pub(super) trait RecordMapper: Send {
    /// Maps a record. The frame with this key has to get what is left of it ([`Record::leave_rest`]).
    fn map(&mut self, key: String, record: Record, out: &mut Sink<'_>);
}

/// The items of a list on their way to frames; their keys are `MEMBER/N`.
struct Listed<M> {
    member: &'static str,
    known: &'static [&'static str],
    rest: Option<Record>,
    refused: Option<&'static str>,
    items: VecDeque<Value>,
    done: usize,
    total: usize,
    mapper: M,
}

/// Reads a file that is one object with a list of records in `member`. Of its other members those in
/// `known` are told by the first item's opening; all are kept. `begin` gives the opening and the mapper.
///
/// # Errors
/// The file cannot be read, is too large, or has no such list.
pub(super) fn open<M: RecordMapper + 'static>(
    path: &Path,
    format: Format,
    member: &'static str,
    known: &'static [&'static str],
    begin: impl FnOnce(&Value, Option<&Value>) -> (Opening, M),
) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut record, length) = document::read(path, format)?;
    let items: VecDeque<Value> = match record.value.get_mut(member).map(Value::take) {
        Some(Value::Array(items)) => items.into(),
        _ => return Err(format.refused(path, format!("`{member}` is no list"))),
    };
    record.value[member] = object([("$frames", member.into())]);
    let (opening, mapper) = begin(&record.value, items.front());
    let listed = Listed {
        member,
        known,
        refused: record.refused,
        rest: Some(record),
        done: 0,
        total: items.len(),
        items,
        mapper,
    };
    Ok(Box::new(Document::new(length, opening, listed)))
}

impl<M> Listed<M> {
    /// The members beside the list. They come first, so that a longer list leaves them where they are.
    fn rest(&self, record: Record, out: &mut Sink<'_>) {
        let mut frame = FrameRequest::new("observation", "file", Turn::Run);
        frame.class("file");
        let names = record.value.as_object().map(Map::keys);
        let others: Vec<_> = names
            .into_iter()
            .flatten()
            .filter(|name| *name != self.member)
            .collect();
        if !others.is_empty() {
            out.record();
        }
        if others
            .iter()
            .any(|name| !self.known.contains(&name.as_str()))
        {
            out.unmapped();
            frame.class("unmapped");
        }
        record.leave_rest(&mut frame);
        out.frame(frame);
    }
}

impl<M: RecordMapper> Parts for Listed<M> {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if let Some(record) = self.rest.take() {
            self.rest(record, out);
            return true;
        }
        let Some(value) = self.items.pop_front() else {
            return false;
        };
        self.done += 1;
        out.record();
        let key = format!("{}/{}", self.member, self.done);
        let record = Record {
            value,
            refused: self.refused,
            // The exact bytes of the whole file are kept with its first frame.
            raw: None,
        };
        self.mapper.map(key, record, out);
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.done, self.total)
    }
}
