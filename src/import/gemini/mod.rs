//! Gemini CLI, in three shapes: sessions of newer versions (JSON lines: a head, messages, changes of the
//! head), sessions of older ones (one JSON object, written anew as a whole), and the recorded answers of
//! its model (JSON lines, one call of the model a line).
//!
//! A message grows: its counts of tokens and the results of its calls come after it. JSON lines repeat the
//! message then; in the object it changes where it is, and what may still change is posted as frames of its
//! own when it has come. A subagent has a session of its own, in the folder with its parent's id.

mod document;
mod lines;
mod message;
mod recording;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::child::is_plain;
use super::conversation::session as session_body;
use super::payload::Payload;
use super::request::{key_part, label, object};
use super::sample::Sample;
use super::text::written_time;
use super::{Format, ImportError, Opening, Sink, Transcript, stem};

/// Whether the file has one of the three shapes.
pub(super) fn fits(sample: &Sample) -> bool {
    shape(sample).is_some()
}

enum Shape {
    Lines,
    Document,
    Recording,
}

fn shape(sample: &Sample) -> Option<Shape> {
    if let Some(document) = &sample.document
        && is_document(document)
    {
        return Some(Shape::Document);
    }
    sample.records.iter().find_map(|record| {
        let method = record.get("method").and_then(Value::as_str);
        if is_head(record) && record.get("messages").is_none() {
            Some(Shape::Lines)
        } else if method.is_some_and(recording::is_method) && record.get("response").is_some() {
            Some(Shape::Recording)
        } else {
            None
        }
    })
}

fn is_head(record: &Value) -> bool {
    ["sessionId", "projectHash"]
        .into_iter()
        .all(|name| record.get(name).is_some_and(Value::is_string))
}

fn is_document(document: &Value) -> bool {
    let list = |name: &str| document.get(name).and_then(Value::as_array);
    let parts = |message: &Value| message.get("parts").is_some_and(Value::is_array);
    list("messages").is_some() && is_head(document)
        || list("history").is_some_and(|history| history.first().is_some_and(parts))
}

/// Opens a session or a recording.
///
/// # Errors
/// The file cannot be read, or has none of the three shapes.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    match shape(&sample) {
        Some(Shape::Document) => document::open(path, session),
        Some(Shape::Lines) => {
            let head = sample.records.iter().find(|record| is_head(record));
            lines::open(path, opening(path, session, head.unwrap_or(&Value::Null)))
        }
        Some(Shape::Recording) => {
            let name = session.map_or_else(|| stem(path), str::to_owned);
            recording::open(path, &name)
        }
        None => {
            let why = "it is neither a session (`sessionId` and `projectHash`, or a `history` of parts) nor a recording (`method` and `response`)";
            Err(Format::GeminiCli.refused(path, why))
        }
    }
}

/// The request of the `session` frame, from what a session has from its beginning on.
fn opening(path: &Path, session: Option<&str>, head: &Value) -> Opening {
    let text = |member: &str| head.get(member).and_then(Value::as_str);
    let name = session
        .or(text("sessionId"))
        .map_or_else(|| stem(path), str::to_owned);
    let mut body = session_body(Format::GeminiCli, "gemini-cli", Some(&name), true);
    let subagent = text("kind") == Some("subagent");
    for (from, to) in [("kind", "session_kind"), ("projectHash", "project")] {
        if let Some(value) = head.get(from).and_then(label) {
            body.insert(to.into(), value);
        }
    }
    let folder = path.parent().and_then(Path::file_name);
    if let Some(folder) = folder.filter(|_| subagent)
        && let Some(parent) = label(&folder.to_string_lossy().into())
    {
        body.insert("parent_session_id".into(), parent);
    }
    if let Some(model) = head.pointer("/meta/model").and_then(label) {
        let model = object([("name", model)]);
        body.insert("pins".into(), object([("model", model)]));
    }
    let directories = head.get("directories").filter(|list| {
        let list = list.as_array();
        subagent && list.is_some_and(|list| !list.is_empty())
    });
    let start = text("startTime").or(text("start_time"));
    Opening {
        key: format!("import/gemini-cli/{}", key_part(&name)),
        session: body,
        payloads: directories
            .map(|list| Payload::json("directories", list, false))
            .into_iter()
            .collect(),
        occurred_at: start.and_then(written_time).and_then(|time| time.at),
    }
}

/// The sessions of subagents: `SESSION/AGENT.jsonl` beside the session's file.
struct Children {
    folder: Option<PathBuf>,
    named: HashSet<String>,
}

impl Children {
    fn of(path: &Path, head: &Value) -> Self {
        let session = head.get("sessionId").and_then(Value::as_str);
        let session = session.filter(|id| is_plain(id));
        Self {
            folder: session.and_then(|id| Some(path.parent()?.join(id))),
            named: HashSet::new(),
        }
    }

    /// A call started this agent.
    fn named(&mut self, agent: &str, call: &str, out: &mut Sink<'_>) {
        let file = self.folder.as_ref().filter(|_| is_plain(agent));
        let file = file.map(|folder| folder.join(format!("{agent}.jsonl")));
        if let Some(file) = file.filter(|file| file.is_file())
            && self.named.insert(agent.to_owned())
        {
            out.child(agent, file, Some(call.to_owned()));
        }
    }

    /// Those that no call names.
    fn others(&self, out: &mut Sink<'_>) {
        let Some(folder) = &self.folder else { return };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
            .filter(|path| !self.named.contains(&stem(path)))
            .collect();
        files.sort();
        for file in files {
            out.child(stem(&file), file, None);
        }
    }
}
