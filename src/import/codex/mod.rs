//! Codex sessions (rollouts): JSON lines, one record a line, appended while the agent works.
//!
//! A line wraps what it tells in `type` and `payload`: items of the conversation with the model
//! (`response_item`), events for whoever watches (`event_msg`), and the state around both. Much is told
//! twice, as an item and as an event. What the model was sent and answered are the items; an event that
//! repeats one is an observation beside it, and an event of which no item tells stands for itself. A
//! prompt opens its turn where it is written first, and is an observation where it is written again.
//!
//! Very old sessions have the items bare, without times; before them a session was one JSON object with
//! the list `items`. Keys are the places of lines and items: a file only grows.

mod event;
mod events;
mod item;
mod outcome;
pub(super) mod patch;
mod prompt;
mod state;
mod tool;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::conversation::{self, Conversation, cwd_payload};
use super::jsonl::{self, JsonLines, LineMapper};
use super::listed::{self, RecordMapper};
use super::record::{Record, extract};
use super::request::{FrameRequest, Turn, key_part, label, remote};
use super::sample::Sample;
use super::text::{Written, counted_time, is_uuid, written_time};
use super::{Format, ImportError, Opening, Sink, Transcript, stem};
use prompt::Prompts;
use tool::Tools;

/// The types of lines that have a `payload`.
const LINES: [&str; 8] = [
    "session_meta",
    "turn_context",
    "world_state",
    "compacted",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "response_item",
    "event_msg",
];

/// Whether the file has lines of a rollout, or the list of items of an old session.
pub(super) fn fits(sample: &Sample) -> bool {
    let listed = sample.member("items").and_then(Value::as_array);
    let first = listed.and_then(|items| items.first());
    let items = first.is_some_and(|first| !type_of(first).is_empty() && item::is_item(first));
    items || sample.records.iter().any(is_line) || is_bare(&sample.records)
}

/// Opens a session.
///
/// # Errors
/// The file cannot be read, or is no session of Codex.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if sample.member("items").is_some_and(Value::is_array) {
        let begin = |file: &Value, _: Option<&Value>| {
            let head = file.get("session").unwrap_or(&Value::Null);
            (opening(path, session, head), Rollout::new(path))
        };
        return listed::open(path, Format::Codex, "items", &["session"], begin);
    }
    if !fits(&sample) {
        let why = "no line of a rollout (session_meta, response_item, event_msg …) among its first";
        return Err(Format::Codex.refused(path, why));
    }
    // Only the first record counts, so that a longer file gives the same opening.
    let head = sample.records.first().map_or(&Value::Null, head_of);
    let opening = opening(path, session, head);
    Ok(Box::new(JsonLines::open(
        path,
        opening,
        Rollout::new(path),
    )?))
}

fn is_line(record: &Value) -> bool {
    LINES.contains(&type_of(record)) && record.get("payload").is_some_and(Value::is_object)
}

/// Whether these are lines of an old session: a head without type, then items that are not wrapped.
fn is_bare(records: &[Value]) -> bool {
    let Some((head, items)) = records.split_first() else {
        return false;
    };
    let item = |record: &Value| {
        item::is_item(record) || record.get("record_type").is_some_and(Value::is_string)
    };
    state::is_old_head(head) && items.iter().any(item)
}

/// What the first record says about its session.
fn head_of(record: &Value) -> &Value {
    if type_of(record) == "session_meta" {
        return record.get("payload").unwrap_or(&Value::Null);
    }
    if state::is_old_head(record) {
        return record;
    }
    &Value::Null
}

/// The session's id: that of the file's name, or else of its first record, or else the file's name.
fn session_id(path: &Path, head: &Value) -> String {
    let stem = stem(path);
    let tail = stem.len().checked_sub(36).and_then(|at| stem.get(at..));
    let uuid = tail.filter(|tail| is_uuid(tail)).map(str::to_owned);
    let written = ["id", "session_id"]
        .into_iter()
        .find_map(|name| head.get(name)?.as_str());
    uuid.or_else(|| written.map(str::to_owned)).unwrap_or(stem)
}

/// The `session` frame's request, from the head of the session.
fn opening(path: &Path, session: Option<&str>, head: &Value) -> Opening {
    let id = session.map_or_else(|| session_id(path, head), str::to_owned);
    let mut body = conversation::session(Format::Codex, "codex", Some(&id), true);
    let mut put = |name: &str, value: Option<&Value>| {
        if let Some(value) = value.and_then(label) {
            body.insert(name.to_owned(), value);
        }
    };
    put("agent_version", head.get("cli_version"));
    put("originator", head.get("originator"));
    put("provider", head.get("model_provider"));
    put("forked_from", head.get("forked_from_id"));
    put("source", head.get("source"));
    let spawn = head.pointer("/source/subagent/thread_spawn");
    let member = |name: &str| spawn.and_then(|spawn| spawn.get(name));
    let parent = head.get("parent_thread_id");
    put(
        "parent_session_id",
        parent.or_else(|| member("parent_thread_id")),
    );
    put("agent_role", member("agent_role"));
    if let Some(repository) = head
        .get("git")
        .map(repository)
        .filter(|pins| !pins.is_empty())
    {
        let pins = Map::from_iter([("repository".to_owned(), repository.into())]);
        body.insert("pins".into(), pins.into());
    }
    let cwd = head.get("cwd").and_then(Value::as_str);
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    Opening {
        key: format!("import/codex/{}", key_part(&id)),
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: head
            .get("timestamp")
            .and_then(time)
            .and_then(|time| time.at),
    }
}

/// What the repository was.
fn repository(git: &Value) -> Map<String, Value> {
    let members = [
        ("remote", git.get("repository_url").and_then(remote)),
        ("branch", git.get("branch").and_then(label)),
        ("commit", git.get("commit_hash").and_then(label)),
    ];
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn time(value: &Value) -> Option<Written> {
    match value {
        Value::String(text) => written_time(text),
        other => counted_time(other),
    }
}

fn type_of(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

/// The session as far as it is read.
struct Rollout {
    path: PathBuf,
    talk: Conversation,
    /// The model of the last context that was written.
    model: Option<Value>,
    /// The model's answer that calls come from.
    answer: Option<String>,
    prompts: Prompts,
    tools: Tools,
    /// Child sessions that were named.
    named: HashSet<String>,
}

/// What a record tells, being emptied into frames.
struct Part {
    key: String,
    strict: bool,
    value: Value,
    /// A child session that it names, and the key of the call.
    child: Option<(String, Option<String>)>,
}

impl Part {
    fn text(&self, member: &str) -> Option<&str> {
        self.value.get(member).and_then(Value::as_str)
    }

    /// Moves a member into a payload of the frame.
    fn take(&mut self, member: &str, frame: &mut FrameRequest, name: &str) {
        if let Some(slot) = self.value.get_mut(member) {
            extract(slot, frame, name, self.strict);
        }
    }
}

impl Rollout {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            talk: Conversation::default(),
            model: None,
            answer: None,
            prompts: Prompts::default(),
            tools: Tools::default(),
            named: HashSet::new(),
        }
    }

    fn frames(&mut self, kind: &str, wrapped: bool, part: &mut Part) -> Option<Vec<FrameRequest>> {
        match (kind, wrapped) {
            ("response_item", true) => item::map(self, part),
            ("event_msg", true) => event::map(self, part),
            (kind, true) => state::map(self, kind, part),
            _ if item::is_item(&part.value) => item::map(self, part),
            _ => state::bare(self, part),
        }
    }

    /// The file of a child session beside this one. The id comes from a transcript: it names a file of
    /// this folder and no other.
    fn child(&mut self, id: &str) -> Option<PathBuf> {
        if !is_uuid(id) || self.named.contains(id) {
            return None;
        }
        let ending = format!("-{id}.jsonl");
        let entries = std::fs::read_dir(self.path.parent()?).ok()?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let found = paths.find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.ends_with(&ending)) && *path != self.path
        })?;
        self.named.insert(id.to_owned());
        Some(found)
    }
}

impl RecordMapper for Rollout {
    fn map(&mut self, key: String, mut record: Record, out: &mut Sink<'_>) {
        let at = ["timestamp", "created_at"]
            .into_iter()
            .find_map(|name| record.value.get(name).and_then(time));
        self.talk.at(at);
        let kind = type_of(&record.value).to_owned();
        let wrapped = record.value.get("payload").is_some_and(Value::is_object);
        let mut part = Part {
            key,
            strict: record.strict(),
            value: if wrapped {
                record.value["payload"].take()
            } else {
                record.value.take()
            },
            child: None,
        };
        let mut frames = self.frames(&kind, wrapped, &mut part).unwrap_or_else(|| {
            out.unmapped();
            vec![
                self.talk
                    .classed("observation", "unmapped", part.key.clone()),
            ]
        });
        if wrapped {
            record.value["payload"] = part.value;
        } else {
            record.value = part.value;
        }
        if let Some(first) = frames.first_mut() {
            record.leave_rest(first);
        }
        for frame in frames {
            out.frame(frame);
        }
        if let Some((id, call)) = part.child
            && let Some(file) = self.child(&id)
        {
            out.child(id, file, call);
        }
    }
}

impl LineMapper for Rollout {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        RecordMapper::map(self, jsonl::key(line), record, out);
    }

    fn turn(&self) -> Turn {
        self.talk.turn()
    }
}
