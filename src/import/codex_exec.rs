//! What `codex exec --json` prints: an event a line, or one JSON object with the list `events`.
//!
//! Events tell of threads, turns and items. An item is told when it starts, when it changes and when it is
//! complete. Neither prompts nor times are printed, and no model.

use std::path::Path;

use serde_json::Value;

use super::conversation::{self, Conversation};
use super::jsonl::{self, JsonLines, LineMapper};
use super::listed::{self, RecordMapper};
use super::recent::Recent;
use super::record::{Record, extract};
use super::request::{FrameRequest, Turn, key_part};
use super::sample::Sample;
use super::{Format, ImportError, Opening, Sink, Transcript, stem};

/// Items that are calls of tools, with the tool's name where the item has none.
const CALLS: [(&str, &str); 5] = [
    ("command_execution", "shell"),
    ("file_change", "apply_patch"),
    ("mcp_tool_call", "mcp_tool"),
    ("collab_tool_call", "collab_agent"),
    ("web_search", "web_search"),
];

/// Whether the file's first events are of a thread, its turns and items.
pub(super) fn fits(sample: &Sample) -> bool {
    let listed = sample.member("events").and_then(Value::as_array);
    match listed {
        Some(events) => events.first().is_some_and(is_event),
        None => sample.records.first().is_some_and(is_event),
    }
}

/// Opens a file of events.
///
/// # Errors
/// The file cannot be read, or does not begin with such an event.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if sample.member("events").is_some_and(Value::is_array) {
        let begin = |_: &Value, first: Option<&Value>| {
            let first = first.unwrap_or(&Value::Null);
            (opening(path, session, first), Exec::default())
        };
        return listed::open(path, Format::CodexExec, "events", &[], begin);
    }
    let Some(first) = sample.records.first().filter(|first| is_event(first)) else {
        let why = "its first line is no event of a thread, a turn or an item";
        return Err(Format::CodexExec.refused(path, why));
    };
    let opening = opening(path, session, first);
    Ok(Box::new(JsonLines::open(path, opening, Exec::default())?))
}

fn is_event(event: &Value) -> bool {
    let member = |name: &str| event.get(name).is_some();
    match type_of(event) {
        "thread.started" => member("thread_id"),
        "turn.started" => true,
        "turn.completed" => member("usage"),
        "item.started" | "item.updated" | "item.completed" => event
            .get("item")
            .is_some_and(|item| !type_of(item).is_empty()),
        _ => false,
    }
}

fn type_of(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

/// The thread is named by its first event, and otherwise by the file.
fn opening(path: &Path, session: Option<&str>, first: &Value) -> Opening {
    let thread = first.get("thread_id").and_then(Value::as_str);
    let id = session.or(thread).map_or_else(|| stem(path), str::to_owned);
    Opening {
        key: format!("import/codex-exec/{}", key_part(&id)),
        session: conversation::session(Format::CodexExec, "codex", Some(&id), false),
        payloads: Vec::new(),
        occurred_at: None,
    }
}

#[derive(Default)]
struct Exec {
    talk: Conversation,
    answer: Option<String>,
    /// Items that started and are not complete.
    started: Recent<()>,
}

impl RecordMapper for Exec {
    fn map(&mut self, key: String, mut record: Record, out: &mut Sink<'_>) {
        let strict = record.strict();
        let value = &mut record.value;
        let kind = type_of(value).to_owned();
        let frames = match kind.as_str() {
            "item.started" | "item.updated" | "item.completed" => {
                let item = value.get_mut("item");
                item.and_then(|item| self.item(&key, &kind, item, strict))
            }
            _ => self
                .event(&key, &kind, value, strict)
                .map(|frame| vec![frame]),
        };
        let mut frames = frames.unwrap_or_else(|| {
            out.unmapped();
            vec![self.talk.classed("observation", "unmapped", &key)]
        });
        if let Some(first) = frames.first_mut() {
            record.leave_rest(first);
        }
        for frame in frames {
            out.frame(frame);
        }
    }
}

impl LineMapper for Exec {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        RecordMapper::map(self, jsonl::key(line), record, out);
    }

    fn turn(&self) -> Turn {
        self.talk.turn()
    }
}

fn take(value: &mut Value, member: &str, frame: &mut FrameRequest, name: &str, strict: bool) {
    if let Some(slot) = value.get_mut(member) {
        extract(slot, frame, name, strict);
    }
}

impl Exec {
    /// An event that is of no item.
    fn event(
        &mut self,
        key: &str,
        kind: &str,
        value: &mut Value,
        strict: bool,
    ) -> Option<FrameRequest> {
        Some(match kind {
            "thread.started" => {
                let mut frame = self.talk.classed("observation", "thread_started", key);
                frame.copy(value, "thread_id", "thread_id");
                frame
            }
            "turn.started" => {
                self.answer = None;
                let mut frame = self.talk.prompt(key);
                // What was asked is not printed.
                frame.put("prompt", "not stated");
                frame
            }
            "turn.completed" => {
                let mut frame = self.talk.classed("observation", "turn_complete", key);
                frame.put_usage(value.get("usage"));
                frame
            }
            "turn.failed" | "error" => {
                let mut frame = self.talk.classed("observation", "error", key);
                frame.put("error", kind);
                for pointer in ["/error/message", "/message"] {
                    if let Some(slot) = value.pointer_mut(pointer) {
                        extract(slot, &mut frame, "text", strict);
                    }
                }
                frame
            }
            "item.plan.delta" => {
                let mut frame = self.talk.classed("observation", "delta", key);
                take(value, "delta", &mut frame, "text", strict);
                frame
            }
            "request_user_input" => {
                let mut frame = self.talk.classed("observation", "request_user_input", key);
                frame.copy(value, "call_id", "tool_call_id");
                take(value, "questions", &mut frame, "text", strict);
                frame
            }
            _ => return None,
        })
    }

    fn item(
        &mut self,
        key: &str,
        event: &str,
        item: &mut Value,
        strict: bool,
    ) -> Option<Vec<FrameRequest>> {
        let kind = type_of(item).to_owned();
        if let Some((_, name)) = CALLS.iter().find(|(call, _)| *call == kind) {
            return Some(match event {
                "item.started" => vec![self.call(key, name, item, strict)],
                "item.completed" => self.completed(key, name, item, strict),
                _ => vec![self.changed(key, item)],
            });
        }
        let done = event == "item.completed";
        let frame = match kind.as_str() {
            "agent_message" if done => self.said(key, item, "text", strict),
            "reasoning" if done => self.said(key, item, "thinking", strict),
            // A list is told at its start and at each change: every one is the plan of its time.
            "todo_list" | "plan" => {
                let mut frame = self.talk.classed("decision", "plan", key);
                frame.put("speaker", "model").copy(item, "id", "item_id");
                take(item, "items", &mut frame, "plan", strict);
                take(item, "text", &mut frame, "plan", strict);
                frame
            }
            "error" => {
                let mut frame = self.talk.classed("observation", "error", key);
                frame.put("error", "item").copy(item, "id", "item_id");
                take(item, "message", &mut frame, "text", strict);
                frame
            }
            "agent_message" | "reasoning" => self.changed(key, item),
            _ => return None,
        };
        Some(vec![frame])
    }

    /// An item that is not complete.
    fn changed(&self, key: &str, item: &Value) -> FrameRequest {
        let mut frame = self.talk.classed("observation", "item_changed", key);
        for (from, to) in [("id", "item_id"), ("type", "item"), ("status", "status")] {
            frame.copy(item, from, to);
        }
        frame
    }

    fn said(&mut self, key: &str, item: &mut Value, name: &str, strict: bool) -> FrameRequest {
        let mut frame = self.talk.answer(key);
        frame.copy(item, "id", "item_id");
        take(item, "text", &mut frame, name, strict);
        self.answer = Some(key.to_owned());
        frame
    }

    fn call(&mut self, key: &str, name: &str, item: &mut Value, strict: bool) -> FrameRequest {
        let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
        let own = Value::from(name);
        let name = item.get("tool").unwrap_or(&own);
        let mut frame = self.talk.call(key, id.as_deref(), Some(name));
        frame.copy(item, "server", "server");
        if let Some(answer) = &self.answer {
            frame.link("derived_from", answer.clone());
        }
        if let Some(id) = id {
            self.started.insert(id, ());
        }
        for name in ["command", "arguments", "query", "prompt", "changes"] {
            take(item, name, &mut frame, "arguments", strict);
        }
        frame
    }

    /// The result of an item that is a call; with the call itself where its start was not told.
    fn completed(
        &mut self,
        key: &str,
        name: &str,
        item: &mut Value,
        strict: bool,
    ) -> Vec<FrameRequest> {
        let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
        let changes = item.get("changes").cloned();
        let started = id
            .as_ref()
            .is_some_and(|id| self.started.remove(id).is_some());
        let mut frames = Vec::new();
        let mut writer = key.to_owned();
        if !started {
            frames.push(self.call(key, name, item, strict));
            if let Some(id) = &id {
                self.started.remove(id);
            }
            writer.push_str("/result");
        }
        let (mut result, call) = self.talk.result(&writer, id.as_deref());
        if id.is_none() {
            result.link("answers", key);
        }
        let exit = item.get("exit_code").and_then(Value::as_i64);
        let status = match item.get("status").and_then(Value::as_str) {
            Some("declined") => "denied",
            Some("failed") => "error",
            Some("completed") if exit.unwrap_or(0) == 0 => "ok",
            Some("completed") => "error",
            _ => "not stated",
        };
        result.put("status", status).copy(item, "exit_code", "exit");
        for (member, name) in [
            ("aggregated_output", "result"),
            ("result", "result"),
            ("error", "error"),
            ("agents_states", "result"),
        ] {
            take(item, member, &mut result, name, strict);
        }
        frames.push(result);
        if let Some(call) = call.filter(|_| status == "denied") {
            let key = format!("{key}/decision");
            let mut decision = self.talk.classed("decision", "tool_denied", key);
            decision.link("cancelled", call.key);
            frames.push(decision);
        }
        if status == "ok" {
            self.versions(key, &writer, changes.as_ref(), &mut frames);
        }
        frames
    }

    fn versions(
        &mut self,
        key: &str,
        writer: &str,
        changes: Option<&Value>,
        frames: &mut Vec<FrameRequest>,
    ) {
        let changes = changes.and_then(Value::as_array);
        for (index, change) in changes.into_iter().flatten().enumerate() {
            let Some(path) = change.get("path").and_then(Value::as_str) else {
                continue;
            };
            let word = match change.get("kind").and_then(Value::as_str) {
                Some("add") => "create",
                Some("delete") => "delete",
                _ => "update",
            };
            let key = format!("{key}/file/{}", index + 1);
            frames.push(self.talk.file_version(key, path, word, writer));
        }
    }
}
