//! Transcripts of Cursor: JSON lines, one message a line, without times and, mostly, without results.
//!
//! A session is a folder `ID/ID.jsonl`; the transcripts of its subagents are in `ID/subagents/`. Nothing in
//! them names the call that started a subagent: it is found by what it was told.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::blocks::{self, type_of};
use super::child::Prompts;
use super::conversation::{Conversation, session as session_body};
use super::jsonl::{JsonLines, LineMapper, key};
use super::record::{Record, extract, post};
use super::request::{FrameRequest, Turn, key_part, label};
use super::sample::Sample;
use super::{Format, ImportError, Opening, Sink, Transcript, stem};

/// Maps the lines of a transcript.
struct Session {
    path: PathBuf,
    conversation: Conversation,
    prompts: Prompts,
}

/// Whether the file has messages as Cursor writes them: a role beside the message, and no type.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(is_message)
}

fn is_message(record: &Value) -> bool {
    let role = record.get("role").and_then(Value::as_str);
    let content = record.pointer("/message/content");
    matches!(role, Some("user" | "assistant"))
        && content.is_some_and(|content| content.is_array() || content.is_string())
        && record.get("type").is_none()
}

/// Opens a transcript.
///
/// # Errors
/// The file cannot be read, or has no message among its first lines.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    if !fits(&Sample::of(path)?) {
        let why = "no line among the first is a message (`role` and `message.content`)";
        return Err(Format::Cursor.refused(path, why));
    }
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let mut body = session_body(Format::Cursor, "cursor", Some(&name), false);
    let mut key = format!("import/cursor/{}", key_part(&name));
    if let Some(parent) = parent(path) {
        key = format!(
            "import/cursor/{}/agent/{}",
            key_part(&parent),
            key_part(&name)
        );
        if let Some(parent) = label(&parent.into()) {
            body.insert("parent_session_id".into(), parent);
        }
    }
    let opening = Opening {
        key,
        session: body,
        payloads: Vec::new(),
        occurred_at: None,
    };
    let mapper = Session {
        path: path.to_owned(),
        conversation: Conversation::default(),
        prompts: Prompts::default(),
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

/// The session of the parent, of a file in `…/PARENT/subagents/`: the one transcript in the folder, or the
/// folder's name.
fn parent(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    if folder.file_name()? != "subagents" {
        return None;
    }
    let folder = folder.parent()?;
    match transcripts(folder).as_slice() {
        [only] => Some(stem(only)),
        _ => Some(folder.file_name()?.to_string_lossy().into_owned()),
    }
}

/// The transcripts in a folder, in the order of their names.
fn transcripts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    paths.sort();
    paths
}

impl LineMapper for Session {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        let frames = if is_message(&record.value) {
            self.message(line, &mut record)
        } else if type_of(&record.value) == "turn_ended" {
            vec![self.turn_ended(line, &mut record)]
        } else {
            self.conversation.unmapped(key(line), out)
        };
        post(record, frames, out);
    }

    fn turn(&self) -> Turn {
        self.conversation.turn()
    }

    /// The subagents beside the session.
    fn beside(&mut self, out: &mut Sink<'_>) {
        let Some(folder) = self.path.parent() else {
            return;
        };
        let own = folder
            .file_name()
            .is_some_and(|name| name.to_string_lossy() == stem(&self.path));
        if !own && transcripts(folder).len() != 1 {
            return;
        }
        for file in transcripts(&folder.join("subagents")) {
            let call = first_prompt(&file).and_then(|prompt| self.prompts.call_of(&prompt));
            out.child(stem(&file), file, call);
        }
    }
}

impl Session {
    fn message(&mut self, line: u64, record: &mut Record) -> Vec<FrameRequest> {
        let strict = record.strict();
        let role = record.value.get("role").and_then(Value::as_str);
        let role = role.unwrap_or_default().to_owned();
        let mut content = record.value["message"]["content"].take();
        let prompts = &mut self.prompts;
        let mut frames = blocks::message(
            &role,
            &mut content,
            &key(line),
            &mut self.conversation,
            strict,
            &mut |block, call| {
                if let Some(prompt) = block.pointer("/input/prompt").and_then(Value::as_str) {
                    prompts.told(prompt, &call.key);
                    call.linked_to = true;
                }
            },
        );
        record.value["message"]["content"] = content;
        frames[0].copy(&record.value, "model", "model");
        if frames[0].body.contains_key("model") {
            frames[0].put("revision", "not_identifiable");
        }
        frames
    }

    /// How a turn ended. It is no outcome of the run: the next prompt may follow.
    fn turn_ended(&self, line: u64, record: &mut Record) -> FrameRequest {
        let status = record.value.get("status").and_then(Value::as_str);
        let class = match status {
            Some("error") => "error",
            Some("aborted") => "interrupted",
            _ => "turn_ended",
        };
        let mut frame = self.conversation.classed("observation", class, key(line));
        frame.put("speaker", "program");
        frame.copy(&record.value, "status", "status");
        let strict = record.strict();
        if let Some(error) = record.value.get_mut("error") {
            extract(error, &mut frame, "text", strict);
        }
        frame
    }
}

/// What a subagent was told: the text of the first message in its file.
fn first_prompt(file: &Path) -> Option<String> {
    let sample = Sample::of(file).ok()?;
    let first = sample.records.iter().find(|record| is_message(record))?;
    let content = first.pointer("/message/content")?;
    let text = match content {
        Value::String(text) => text,
        content => content.get(0)?.get("text")?.as_str()?,
    };
    let text = text.trim();
    let query = text
        .strip_prefix("<user_query>")
        .and_then(|text| text.strip_suffix("</user_query>"));
    Some(query.unwrap_or(text).to_owned())
}
