//! Sessions of Factory's Droid, in two shapes of JSON lines, one record a line: the session store (messages
//! made of blocks, after a `session_start`), and what `droid exec --output-format stream-json` prints
//! (messages, calls and results as records of their own, and a `completion` at the end).

use std::path::Path;

use serde_json::Value;

use super::blocks::{self, first_text, take_content, type_of};
use super::conversation::{Conversation, cwd_payload, session as session_body};
use super::jsonl::{JsonLines, LineMapper, key};
use super::recent::Recent;
use super::record::{Record, extract, extract_all, post};
use super::request::{FrameRequest, Turn, key_part, label};
use super::sample::Sample;
use super::text::{Written, counted_time, written_time};
use super::{Format, ImportError, Opening, Sink, Transcript, stem};

type Edits = Recent<(String, &'static str)>;

/// Maps the lines of a session.
#[derive(Default)]
struct Session {
    conversation: Conversation,
    /// The files that calls are to write, and what to do to them, by the calls' ids.
    edits: Edits,
    /// Whether the last record said that the session has ended.
    over: bool,
}

/// Tools that write the file which they name, and what they do to it.
const EDITS: [(&str, &str); 4] = [
    ("Create", "create"),
    ("Edit", "update"),
    ("MultiEdit", "update"),
    ("Write", "write"),
];

/// Whether the file has records of one of the two shapes.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(is_own)
}

fn is_own(record: &Value) -> bool {
    let text = |member: &str| record.get(member).is_some_and(Value::is_string);
    let streamed = text("session_id") || text("sessionId");
    match type_of(record) {
        "session_start" => text("id") && (text("cwd") || text("title")),
        "message" => streamed && text("role") && text("text"),
        "tool_call" | "tool_result" => streamed && (text("toolName") || text("toolCallId")),
        "completion" => streamed && text("finalText"),
        _ => false,
    }
}

/// Opens a session.
///
/// # Errors
/// The file cannot be read, or no line among its first is of a Droid session.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if !fits(&sample) {
        let why = "no line among the first is a `session_start`, or a message or call of a session";
        return Err(Format::Droid.refused(path, why));
    }
    let opening = opening(path, session, &sample);
    Ok(Box::new(JsonLines::open(
        path,
        opening,
        Session::default(),
    )?))
}

/// The request of the `session` frame, from the file's first record.
fn opening(path: &Path, session: Option<&str>, sample: &Sample) -> Opening {
    let none = Value::Null;
    let first = sample.records.first().unwrap_or(&none);
    let text = |member: &str| first.get(member).and_then(Value::as_str);
    let start = type_of(first) == "session_start";
    let own = text("session_id")
        .or_else(|| text("sessionId"))
        .or_else(|| text("id").filter(|_| start));
    let name = session.or(own).map_or_else(|| stem(path), str::to_owned);
    let mut body = session_body(Format::Droid, "droid", Some(&name), true);
    let members = [
        ("callingSessionId", "parent_session_id"),
        ("parentSessionId", "parent_session_id"),
        ("callingToolUseId", "parent_tool_call_id"),
    ];
    for (from, to) in members.into_iter().filter(|_| start) {
        if let Some(value) = first.get(from).and_then(label) {
            body.insert(to.into(), value);
        }
    }
    // The program's version is a text; a number is that of the file's form.
    if let Some(version) = first.get("version").filter(|_| start).and_then(label) {
        let member = match version {
            Value::String(_) => "agent_version",
            _ => "format_version",
        };
        body.insert(member.into(), version);
    }
    let cwd = text("cwd").filter(|cwd| !cwd.is_empty());
    Opening {
        key: format!("import/droid/{}", key_part(&name)),
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: time(first).and_then(|time| time.at),
    }
}

fn time(record: &Value) -> Option<Written> {
    let time = record.get("timestamp")?;
    match time.as_str() {
        Some(text) => written_time(text),
        None => counted_time(time),
    }
}

impl LineMapper for Session {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        self.conversation.at(time(&record.value));
        self.over = matches!(
            type_of(&record.value),
            "completion" | "result" | "session_end"
        );
        let frames = self
            .known(&key(line), &mut record)
            .unwrap_or_else(|| self.conversation.unmapped(key(line), out));
        post(record, frames, out);
    }

    fn turn(&self) -> Turn {
        self.conversation.turn()
    }

    fn ended(&self) -> bool {
        self.over
    }
}

impl Session {
    /// The frames of a record of a known type. None of them is empty.
    fn known(&mut self, key: &str, record: &mut Record) -> Option<Vec<FrameRequest>> {
        let strict = record.strict();
        let value = &mut record.value;
        let kind = type_of(value).to_owned();
        let frame = match kind.as_str() {
            "message" if value.pointer("/message/content").is_some() => {
                return Some(self.message(key, value, strict));
            }
            "message" | "reasoning" => self.streamed(key, value, strict)?,
            "tool_call" => self.call(key, value, strict),
            "tool_result" => return Some(self.result(key, value, strict)),
            "completion" | "result" => self.outcome(key, value, strict),
            "compaction_state" => {
                let mut frame = self.conversation.classed("context", "compact_summary", key);
                extract_all(
                    value,
                    &[("summaryText", "text"), ("summary", "text")],
                    &mut frame,
                    strict,
                );
                frame
            }
            "error" => {
                let mut frame = self.conversation.classed("observation", "error", key);
                frame
                    .put("speaker", "program")
                    .copy(value, "source", "source");
                extract_all(value, &[("message", "text")], &mut frame, strict);
                frame
            }
            "system" => {
                let mut frame = self
                    .conversation
                    .classed("observation", "session_start", key);
                frame
                    .copy(value, "model", "model")
                    .copy(value, "reasoning_effort", "effort");
                extract_all(
                    value,
                    &[("tools", "tools"), ("cwd", "cwd")],
                    &mut frame,
                    strict,
                );
                frame
            }
            "session_start" | "session_end" | "session_settings" | "todo_state"
            | "agent_turn_outcome" => {
                let mut frame = self.conversation.classed("observation", &kind, key);
                frame
                    .copy(value, "turnId", "turn_id")
                    .copy(value, "reason", "reason");
                frame
            }
            _ => return None,
        };
        Some(vec![frame])
    }

    /// A message of the session store.
    fn message(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let message = &mut value["message"];
        let role = message.get("role").and_then(Value::as_str);
        let role = role.unwrap_or_default().to_owned();
        let mut content = message["content"].take();
        let mut frames = if role == "user" && only_reminders(&content) {
            let mut frame = self.conversation.classed("context", "reminder", key);
            take_content(&mut content, &mut frame, "text", strict);
            vec![frame]
        } else {
            let edits = &mut self.edits;
            blocks::message(
                &role,
                &mut content,
                key,
                &mut self.conversation,
                strict,
                &mut |block, _| {
                    let id = block.get("id").and_then(Value::as_str);
                    note_edit(edits, id, block.get("name"), block.get("input"));
                },
            )
        };
        message["content"] = content;
        frames[0]
            .copy(value, "id", "message_id")
            .copy(value, "parentId", "parent_id");
        for at in (0..frames.len()).rev() {
            if let Some(version) = self.version(&frames[at]) {
                frames.insert(at + 1, version);
            }
        }
        frames
    }

    /// A message of the stream.
    fn streamed(&mut self, key: &str, value: &mut Value, strict: bool) -> Option<FrameRequest> {
        let role = value.get("role").and_then(Value::as_str);
        let (mut frame, name) = match (type_of(value), role) {
            ("reasoning", _) => (self.conversation.answer(key), "thinking"),
            (_, Some("user")) => (self.conversation.prompt(key), "prompt"),
            (_, Some("assistant")) => (self.conversation.answer(key), "text"),
            (_, Some("system")) => {
                let frame = self.conversation.classed("context", "system_prompt", key);
                (frame, "text")
            }
            _ => return None,
        };
        frame.copy(value, "id", "message_id");
        extract_all(value, &[("text", name)], &mut frame, strict);
        Some(frame)
    }

    fn call(&mut self, key: &str, value: &mut Value, strict: bool) -> FrameRequest {
        let id = call_id(value).map(str::to_owned);
        let edits = &mut self.edits;
        note_edit(
            edits,
            id.as_deref(),
            value.get("toolName"),
            value.get("parameters"),
        );
        let name = value.get("toolName").cloned();
        let mut frame = self.conversation.call(key, id.as_deref(), name.as_ref());
        if let Some(risk) = value.get("parameters") {
            frame.copy(risk, "riskLevel", "risk");
        }
        extract_all(value, &[("parameters", "arguments")], &mut frame, strict);
        frame
    }

    fn result(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let id = call_id(value).map(str::to_owned);
        let (mut frame, _) = self.conversation.result(key, id.as_deref());
        match value.get("isError").and_then(Value::as_bool) {
            Some(true) => frame.put("status", "error"),
            Some(false) => frame.put("status", "ok"),
            None => &mut frame,
        };
        if let Some(result) = value.get_mut("value") {
            if result.is_object() {
                frame.copy(result, "exitCode", "exit");
                extract_all(
                    result,
                    &[("stdout", "stdout"), ("stderr", "stderr")],
                    &mut frame,
                    strict,
                );
            } else {
                extract(result, &mut frame, "result", strict);
            }
        }
        extract_all(value, &[("error", "error")], &mut frame, strict);
        let version = self.version(&frame);
        [frame].into_iter().chain(version).collect()
    }

    /// How the stream ended, as it says itself.
    fn outcome(&self, key: &str, value: &mut Value, strict: bool) -> FrameRequest {
        let mut frame = self.conversation.frame("outcome", key);
        let failed = ["isError", "is_error"]
            .into_iter()
            .any(|name| value.get(name).and_then(Value::as_bool) == Some(true));
        frame.put("status", if failed { "failed" } else { "completed" });
        for (from, to) in [("durationMs", "duration_ms"), ("numTurns", "turns")] {
            frame.copy(value, from, to);
        }
        frame.put_usage(value.get("usage"));
        extract_all(
            value,
            &[("finalText", "summary"), ("result", "summary")],
            &mut frame,
            strict,
        );
        frame
    }

    /// The version of a file that a call wrote whose result says that it went well.
    fn version(&mut self, result: &FrameRequest) -> Option<FrameRequest> {
        if result.kind != "tool_result" {
            return None;
        }
        let id = result.body.get("tool_call_id").and_then(Value::as_str)?;
        let (path, change) = self.edits.remove(id)?;
        let well = result.body.get("status") == Some(&"ok".into());
        well.then(|| {
            let key = format!("{}/file", result.key);
            self.conversation
                .file_version(key, &path, change, &result.key)
        })
    }
}

fn call_id(value: &Value) -> Option<&str> {
    let id = value.get("toolCallId").or_else(|| value.get("id"));
    id.and_then(Value::as_str)
}

/// Remembers which file a call is to write.
fn note_edit(edits: &mut Edits, id: Option<&str>, name: Option<&Value>, input: Option<&Value>) {
    let name = name.and_then(Value::as_str);
    let change = EDITS.into_iter().find(|(tool, _)| Some(*tool) == name);
    let path = input.and_then(|input| input.get("file_path")?.as_str());
    if let (Some(id), Some((_, change)), Some(path)) = (id, change, path) {
        edits.insert(id.to_owned(), (path.to_owned(), change));
    }
}

/// Whether the program put all of the texts in, and a person none.
fn only_reminders(content: &Value) -> bool {
    let reminder = |text: &str| {
        let text = text.trim();
        text.starts_with("<system-reminder>")
            && text.find("</system-reminder>") == text.len().checked_sub("</system-reminder>".len())
    };
    match content {
        Value::Array(blocks) => {
            first_text(content).starts_with("<system-reminder>")
                && blocks.iter().all(|block| {
                    block
                        .get("text")
                        .and_then(Value::as_str)
                        .is_some_and(reminder)
                })
        }
        Value::String(text) => reminder(text),
        _ => false,
    }
}
