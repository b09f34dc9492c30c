//! Sessions of Copilot CLI: JSON lines, one event a line, appended while the agent works.
//!
//! An event has its `type`, its `data` and the event before it. What the model asked for stands in its
//! message; that a call then started is an observation of it. Events of a subagent stand between the
//! others and name the call that started it: they become a run of their own.

mod event;
mod events;
mod tool;

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::child::linked;
use super::conversation::{self, Conversation, cwd_payload};
use super::jsonl::{self, JsonLines, LineMapper};
use super::recent::Recent;
use super::record::{Record, extract};
use super::request::{FrameRequest, Turn, key_part, label, remote};
use super::sample::Sample;
use super::text::written_time;
use super::{Format, ImportError, Opening, Sink, Transcript, stem};
use tool::Change;

/// Whether the file has events of such a session.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(is_event)
}

/// Opens a session.
///
/// # Errors
/// The file cannot be read, or has no event of such a session.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if !fits(&sample) {
        let why = "no event with `type`, `data` and `parentId` among its first lines";
        return Err(Format::Copilot.refused(path, why));
    }
    // Only the first record counts, so that a longer file gives the same opening.
    let first = sample.records.first().unwrap_or(&Value::Null);
    let start = type_of(first) == "session.start";
    let data = first.get("data").filter(|_| start).unwrap_or(&Value::Null);
    let id = session.map_or_else(|| session_id(path, data), str::to_owned);
    let key = format!("import/copilot/{}", key_part(&id));
    let opening = opening(key.clone(), &id, first, data);
    let mapper = Session {
        key,
        id,
        threads: vec![Thread::default()],
        by_call: HashMap::new(),
        over: false,
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

fn is_event(record: &Value) -> bool {
    let known = event::known(type_of(record));
    let envelope = ["id", "timestamp", "parentId"];
    let envelope = envelope.into_iter().all(|name| record.get(name).is_some());
    known && envelope && record.get("data").is_some_and(Value::is_object)
}

fn type_of(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

/// The session is named by its first event, or else by the folder that it has for itself, or by its file.
fn session_id(path: &Path, data: &Value) -> String {
    let written = data.get("sessionId").and_then(Value::as_str);
    let stem = stem(path);
    let folder = path.parent().and_then(Path::file_name);
    let folder = folder.filter(|_| stem == "events");
    let folder = folder.map(|name| name.to_string_lossy().into_owned());
    written.map(str::to_owned).or(folder).unwrap_or(stem)
}

fn opening(key: String, id: &str, first: &Value, data: &Value) -> Opening {
    let mut body = conversation::session(Format::Copilot, "copilot", Some(id), true);
    if let Some(version) = data.get("copilotVersion").and_then(label) {
        body.insert("agent_version".into(), version);
    }
    let mut pins = Map::new();
    let mut repository = Map::new();
    let at = |member: &str| data.get("context")?.get(member);
    for (name, value) in [
        ("remote", at("repository").and_then(remote)),
        ("branch", at("branch").and_then(label)),
        ("commit", at("headCommit").and_then(label)),
    ] {
        repository.extend(value.map(|value| (name.to_owned(), value)));
    }
    if !repository.is_empty() {
        pins.insert("repository".into(), repository.into());
    }
    if let Some(model) = data.get("selectedModel").and_then(label) {
        let model = Map::from_iter([("name".to_owned(), model)]);
        pins.insert("model".into(), model.into());
    }
    if !pins.is_empty() {
        body.insert("pins".into(), pins.into());
    }
    let cwd = data.pointer("/context/cwd").and_then(Value::as_str);
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    let time = first.get("timestamp").and_then(Value::as_str);
    Opening {
        key,
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: time.and_then(written_time).and_then(|time| time.at),
    }
}

/// The conversations of a file: its own, and those of subagents.
struct Session {
    key: String,
    id: String,
    threads: Vec<Thread>,
    /// Threads by the call that started them.
    by_call: HashMap<String, usize>,
    /// Whether the last event said that the session has ended.
    over: bool,
}

/// One conversation.
#[derive(Default)]
struct Thread {
    talk: Conversation,
    /// The request that is being answered, by its id: its `model_call` frame.
    request: Option<(String, String)>,
    /// Files that calls which wait would change.
    changes: Recent<Vec<Change>>,
    /// Calls that start subagents: the keys of their frames.
    spawning: Recent<String>,
}

/// What an event tells, being emptied into frames.
struct Part {
    key: String,
    strict: bool,
    data: Value,
}

impl Part {
    fn text(&self, member: &str) -> Option<&str> {
        self.data.get(member).and_then(Value::as_str)
    }

    /// Moves a member into a payload of the frame.
    fn take(&mut self, pointer: &str, frame: &mut FrameRequest, name: &str) {
        if let Some(slot) = self.data.pointer_mut(pointer) {
            extract(slot, frame, name, self.strict);
        }
    }
}

impl Session {
    /// The thread of an event: that of the call which it names, or the file's own.
    fn thread(&mut self, record: &Value, out: &mut Sink<'_>) -> usize {
        let call = record.pointer("/data/parentToolCallId");
        let Some(call) = call.and_then(Value::as_str).filter(|call| !call.is_empty()) else {
            return 0;
        };
        if let Some(thread) = self.by_call.get(call) {
            return *thread;
        }
        let thread = self.threads.len();
        // A subagent may start another: its call is then in a subagent's thread.
        let threads = self.threads.iter().enumerate();
        let mut parents =
            threads.filter_map(|(at, one)| Some((at, one.spawning.get(call)?.clone())));
        let (parent, from) = match parents.next() {
            Some((parent, key)) => (parent, Some(key)),
            None => (0, None),
        };
        let key = format!("{}/agent/{}", self.key, key_part(call));
        let mut opening = opening(key, &self.id, record, &Value::Null);
        if let Some(id) = label(&call.into()) {
            opening.session.insert("agent_id".into(), id);
        }
        out.open(thread, opening);
        let (up, down) = linked(parent, thread, call, from.as_deref());
        out.frame_of(thread, up);
        out.frame_of(parent, down);
        self.by_call.insert(call.to_owned(), thread);
        self.threads.push(Thread::default());
        thread
    }
}

impl LineMapper for Session {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        self.over = type_of(&record.value) == "session.shutdown";
        let at = self.thread(&record.value, out);
        let Some(thread) = self.threads.get_mut(at) else {
            return;
        };
        let time = record.value.get("timestamp").and_then(Value::as_str);
        thread.talk.at(time.and_then(written_time));
        let kind = type_of(&record.value).to_owned();
        let part_key = jsonl::key(line);
        let mut part = Part {
            key: part_key.clone(),
            strict: record.strict(),
            data: record
                .value
                .get_mut("data")
                .map(Value::take)
                .unwrap_or_default(),
        };
        let object = part.data.is_object();
        let mapped = object
            .then(|| event::map(thread, &kind, &mut part))
            .flatten();
        let mut frames = mapped.unwrap_or_else(|| {
            out.unmapped();
            vec![thread.talk.classed("observation", "unmapped", &part_key)]
        });
        if let Some(slot) = record.value.get_mut("data") {
            *slot = part.data;
        }
        // The request that an answer is of comes before it.
        if let Some(own) = frames.iter_mut().find(|frame| frame.key == part_key) {
            own.copy(&record.value, "id", "event_id");
            record.leave_rest(own);
        }
        for frame in frames {
            out.frame_of(at, frame);
        }
    }

    fn turn(&self) -> Turn {
        self.threads
            .first()
            .map_or(Turn::Run, |thread| thread.talk.turn())
    }

    fn ended(&self) -> bool {
        self.over
    }
}
