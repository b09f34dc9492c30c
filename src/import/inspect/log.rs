//! A log that is one JSON object.

use std::path::Path;
use std::vec::IntoIter;

use serde_json::Value;

use super::head::Log;
use crate::import::document::{Document, FILE_BYTES, Parts};
use crate::import::record::{Reading, Record};
use crate::import::request::object;
use crate::import::{Format, ImportError, Sink, Transcript, read_whole, stem};

/// What is left of a log while its samples become runs.
struct Whole {
    log: Log,
    /// The record of the whole file; the samples have been taken out.
    rest: Option<Record>,
    begun: bool,
    samples: IntoIter<Value>,
    strict: bool,
    total: usize,
}

/// Whether this is a log: an evaluation with its task, and how the log stands.
pub(super) fn is_log(document: &Value) -> bool {
    let member = |name: &str| document.get(name).is_some();
    document.pointer("/eval/task").is_some_and(Value::is_string)
        && (member("status") || member("plan"))
        && member("version")
}

/// Reads a log.
///
/// # Errors
/// The file cannot be read, is too large, or is no log.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let refused = |why: String| Format::Inspect.refused(path, why);
    let bytes = read_whole(path, FILE_BYTES)?.ok_or_else(|| {
        refused(format!("it is larger than {} MiB: convert it to an `.eval` archive (`inspect log convert --to eval`), which is read a sample at a time", FILE_BYTES >> 20))
    })?;
    let mut record = match super::read(&bytes) {
        Reading::Record(record) => record,
        Reading::Blank => return Err(refused("it is empty".to_owned())),
        Reading::Torn(why) => return Err(refused(why)),
    };
    if !is_log(&record.value) {
        return Err(refused(
            "no `eval` with a `task`, a `version` and a `status`".to_owned(),
        ));
    }
    let (log, opening) = Log::new(&record.value["eval"], session, &stem(path));
    let samples = match record.value.get_mut("samples").map(Value::take) {
        Some(Value::Array(samples)) => {
            record.value["samples"] = object([("$runs", samples.len().into())]);
            samples
        }
        other => {
            if let Some(other) = other {
                record.value["samples"] = other;
            }
            Vec::new()
        }
    };
    let whole = Whole {
        log,
        begun: false,
        strict: record.strict(),
        rest: Some(record),
        total: samples.len(),
        samples: samples.into_iter(),
    };
    Ok(Box::new(Document::new(bytes.len() as u64, opening, whole)))
}

impl Parts for Whole {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if let Some(rest) = self.rest.as_mut().filter(|_| !self.begun) {
            self.begun = true;
            self.log.begin(&mut rest.value, self.strict, out);
        } else if let Some(value) = self.samples.next() {
            let refused = self.rest.as_ref().and_then(|rest| rest.refused);
            let raw = None;
            self.log.sample(
                Record {
                    value,
                    refused,
                    raw,
                },
                out,
            );
        } else if let Some(rest) = self.rest.take() {
            self.log.end(rest, out);
        } else {
            return false;
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        let left = self.samples.len() + usize::from(self.rest.is_some());
        (self.total + 1 - left, self.total + 1)
    }
}
