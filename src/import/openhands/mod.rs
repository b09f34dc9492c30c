//! OpenHands: what its server, its SDK, its evaluations and its log of completions write.
//!
//! The record is an event: `action` and `observation` of the older server, or events with a `kind` of the
//! SDK. They stand one a line, in one list, one a file in the folder of a conversation, or as the
//! `history` of the instance on a line of an evaluation's output; every event becomes the same frames in
//! all of these places. A logged completion (a request of the model and its answer) is a document of its
//! own, and so is a list of predictions.

mod classic;
mod completion;
mod folder;
mod history;
mod list;
mod output;
mod sdk;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::jsonl::JsonLines;
use super::request::key_part;
use super::sample::Sample;
use super::text::written_time;
use super::{Format, ImportError, Opening, Transcript, conversation, stem};

/// Whether the file is one of those that OpenHands writes.
pub(super) fn fits(sample: &Sample) -> bool {
    form(sample).is_some()
}

/// Opens one of them.
///
/// # Errors
/// The file cannot be read, is none of them, or is a part of a folder that another file names.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    match form(&sample) {
        Some(Form::State) => folder::open_state(path, session),
        Some(Form::EventFile) => folder::open_events(path, session),
        Some(Form::Completion) => completion::open(path, session),
        Some(Form::List) => list::open(path, session),
        Some(Form::Output) => output::open(path, &sample, session),
        Some(Form::Events) => {
            let name = session.map_or_else(|| stem(path), str::to_owned);
            let first = sample.records.iter().find(|record| is_event(record));
            let opening = opening(&name, first);
            let mapper = history::EventLines::default();
            Ok(Box::new(JsonLines::open(path, opening, mapper)?))
        }
        None => Err(Format::OpenHands.refused(
            path,
            "no events, no evaluation output, no conversation's state and no logged completion of OpenHands",
        )),
    }
}

/// The folders whose files are read along with this one.
pub(super) fn folders(path: &Path) -> Vec<PathBuf> {
    folder::events_of(path).into_iter().collect()
}

/// What a file of OpenHands is.
enum Form {
    /// Events, one a line.
    Events,
    /// A list of events, or of predictions.
    List,
    /// One event in the folder of a conversation.
    EventFile,
    /// The state of a conversation, beside the folder of its events.
    State,
    /// Instances of an evaluation, one a line.
    Output,
    /// A logged completion.
    Completion,
}

fn form(sample: &Sample) -> Option<Form> {
    if let Some(document) = &sample.document {
        if folder::is_state(document) {
            return Some(Form::State);
        }
        if completion::is_completion(document) {
            return Some(Form::Completion);
        }
        if list::is_list(document) {
            return Some(Form::List);
        }
        if is_event(document) && folder::is_event_file(&sample.path) {
            return Some(Form::EventFile);
        }
    }
    let mut records = sample.records.iter();
    if records.clone().any(is_event) {
        return Some(Form::Events);
    }
    records.any(output::is_instance).then_some(Form::Output)
}

/// Whether this is an event of the server or of the SDK.
fn is_event(value: &Value) -> bool {
    let text = |member: &str| value.get(member).is_some_and(Value::is_string);
    let known = sdk::is_event(value) || text("action") || text("observation");
    let own = classic::is_event(value) || sdk::is_event(value);
    known && own && text("timestamp") && text("source")
}

/// The `session` frame's request of a conversation, from its first event.
fn opening(name: &str, first: Option<&Value>) -> Opening {
    let mut body = conversation::session(Format::OpenHands, "openhands", Some(name), true);
    let version = first.and_then(|event| event.pointer("/args/openhands_version"));
    if let Some(version) = version.and_then(super::request::label) {
        body.insert("agent_version".into(), version);
    }
    let time = first.and_then(|event| event.get("timestamp"));
    Opening {
        key: format!("import/openhands/{}", key_part(name)),
        session: body,
        payloads: Vec::new(),
        occurred_at: time
            .and_then(Value::as_str)
            .and_then(written_time)
            .and_then(|time| time.at),
    }
}
