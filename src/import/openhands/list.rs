//! One JSON list: a trajectory's events, or the predictions of an evaluation.

use std::path::Path;
use std::vec::IntoIter;

use serde_json::Value;
use serde_json::value::RawValue;

use super::history::History;
use super::{is_event, opening};
use crate::import::document::{Document, FILE_BYTES, Parts};
use crate::import::record::{self, Reading, Record, extract};
use crate::import::request::{FrameRequest, Turn};
use crate::import::{Format, ImportError, Sink, Transcript, read_whole, stem};

/// The items of a list on their way to frames. Each is read like the record of a line.
struct List {
    items: IntoIter<Box<RawValue>>,
    total: usize,
    history: History,
}

/// Whether this is a list of events or predictions.
pub(super) fn is_list(document: &Value) -> bool {
    let items = document.as_array();
    items.is_some_and(|items| {
        let ours = |item: &Value| is_event(item) || is_prediction(item) && by_openhands(item);
        items.iter().any(ours)
    })
}

/// What an agent would change for an instance, without how it came to it.
fn is_prediction(item: &Value) -> bool {
    let member = |name: &str| item.get(name).is_some();
    member("instance_id") && member("model_patch")
}

fn by_openhands(prediction: &Value) -> bool {
    let name = prediction.get("model_name_or_path").and_then(Value::as_str);
    name.is_some_and(|name| name.to_lowercase().contains("openhands"))
}

/// Reads a list.
///
/// # Errors
/// The file cannot be read, is too large, or is no JSON list.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let refused = |why: String| Format::OpenHands.refused(path, why);
    let bytes = read_whole(path, FILE_BYTES)?
        .ok_or_else(|| refused(format!("it is larger than {} MiB", FILE_BYTES >> 20)))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let items: Vec<Box<RawValue>> = serde_json::from_slice(text)
        .map_err(|error| refused(format!("not a JSON list: {error}")))?;
    let first = items
        .iter()
        .find_map(|item| match record::read(item.get().as_bytes()) {
            Reading::Record(record) if is_event(&record.value) => Some(record.value),
            _ => None,
        });
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let opening = opening(&name, first.as_ref());
    let list = List {
        total: items.len(),
        items: items.into_iter(),
        history: History::default(),
    };
    Ok(Box::new(Document::new(bytes.len() as u64, opening, list)))
}

impl Parts for List {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let Some(item) = self.items.next() else {
            return false;
        };
        out.record();
        let key = format!("item/{}", self.total - self.items.len());
        match record::read(item.get().as_bytes()) {
            Reading::Record(record) if is_prediction(&record.value) => {
                out.frame(prediction(&key, record));
            }
            Reading::Record(record) => self.history.record(&key, record, out),
            Reading::Blank | Reading::Torn(_) => {
                out.unmapped();
                let mut frame =
                    FrameRequest::new("observation", key, self.history.conversation.turn());
                frame.class("unmapped");
                frame.attach(record::raw_payload(item.get().as_bytes()));
                out.frame(frame);
            }
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.total - self.items.len(), self.total)
    }
}

fn prediction(key: &str, mut record: Record) -> FrameRequest {
    let strict = record.strict();
    let mut frame = FrameRequest::new("observation", key, Turn::Run);
    frame
        .class("prediction")
        .copy(&record.value, "instance_id", "instance_id")
        .copy(&record.value, "model_name_or_path", "by");
    extract(
        &mut record.value["model_patch"],
        &mut frame,
        "patch",
        strict,
    );
    record.leave_rest(&mut frame);
    frame
}
