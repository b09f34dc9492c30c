//! Chats of Grok's command line: a folder with `chat_history.jsonl`, one record a line and none with a
//! time, and `summary.json`, which says whose session it is and where it worked.
//!
//! The summary is written anew while the agent works: only what it has from the beginning opens the run,
//! and the whole of it is a frame whose key is made of its content. Subagents are folders of the same two
//! files, in `subagent` or `subagents/…` beside the chat.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::blocks::{take_content, type_of};
use super::child::Prompts;
use super::conversation::{Conversation, cwd_payload, session as session_body};
use super::document;
use super::jsonl::{JsonLines, LineMapper, key};
use super::record::{Record, digest, extract_all, post};
use super::request::{FrameRequest, Turn, key_part, label, object, remote};
use super::sample::Sample;
use super::text::written_time;
use super::{Format, ImportError, Notice, Opening, Sink, Transcript, stem};

/// Maps the lines of a chat.
struct Chat {
    path: PathBuf,
    summary: Option<Record>,
    conversation: Conversation,
    prompts: Prompts,
}

/// Whether the file has records as Grok writes them.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(is_own)
}

fn is_own(record: &Value) -> bool {
    let has = |member: &str| record.get(member).is_some();
    match type_of(record) {
        "assistant" => has("content") && (has("model_id") || has("model_fingerprint")),
        "user" => has("content") && (has("prompt_index") || has("synthetic_reason")),
        "backend_tool_call" => has("kind"),
        _ => false,
    }
}

/// Opens a chat, and reads the summary beside it where there is one.
///
/// # Errors
/// A file cannot be read, or no line among the first is of a chat.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    if !fits(&Sample::of(path)?) {
        let why =
            "no line among the first is of a chat of Grok; name the folder's `chat_history.jsonl`";
        return Err(Format::Grok.refused(path, why));
    }
    let summary = summary_in(path.parent())?;
    let opening = opening(path, session, summary.as_ref().map(|record| &record.value));
    let mapper = Chat {
        path: path.to_owned(),
        summary,
        conversation: Conversation::default(),
        prompts: Prompts::default(),
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

/// The summary in a folder.
fn summary_in(folder: Option<&Path>) -> Result<Option<Record>, ImportError> {
    let file = folder.map(|folder| folder.join("summary.json"));
    match file.filter(|file| file.is_file()) {
        Some(file) => Ok(Some(document::read(&file, Format::Grok)?.0)),
        None => Ok(None),
    }
}

fn opening(path: &Path, session: Option<&str>, summary: Option<&Value>) -> Opening {
    let text = |pointer: &str| summary?.pointer(pointer)?.as_str();
    let folder = path.parent().map(stem);
    let name = session
        .or(text("/info/id"))
        .map(str::to_owned)
        .or(folder)
        .unwrap_or_else(|| stem(path));
    let created = text("/created_at").and_then(written_time);
    let mut body = session_body(Format::Grok, "grok", Some(&name), created.is_some());
    let members = [
        ("session_kind", "session_kind"),
        ("parent_session_id", "parent_session_id"),
        ("chat_format_version", "format_version"),
    ];
    for (from, to) in members {
        let value = summary.and_then(|summary| summary.get(from));
        if let Some(value) = value.and_then(label) {
            body.insert(to.into(), value);
        }
    }
    if text("/session_kind") == Some("subagent") && !body.contains_key("parent_session_id") {
        let above = path.ancestors().skip(2).take(2);
        for folder in above {
            let parent = summary_in(Some(folder)).ok().flatten();
            let id = parent.and_then(|parent| label(parent.value.pointer("/info/id")?));
            if let Some(id) = id {
                body.insert("parent_session_id".into(), id);
                break;
            }
        }
    }
    let cwd = text("/info/cwd").filter(|cwd| !cwd.is_empty());
    Opening {
        key: format!("import/grok/{}", key_part(&name)),
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: created.and_then(|time| time.at),
    }
}

impl LineMapper for Chat {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        let frames = self
            .known(&key(line), &mut record)
            .unwrap_or_else(|| self.conversation.unmapped(key(line), out));
        post(record, frames, out);
    }

    fn turn(&self) -> Turn {
        self.conversation.turn()
    }

    fn end(&mut self, out: &mut Sink<'_>) {
        // As it is now: of a chat that is followed the one from the beginning is long out of date.
        match summary_in(self.path.parent()) {
            Ok(now) => self.summary = now.or(self.summary.take()),
            Err(error) => out.notice(Notice {
                line: 0,
                offset: 0,
                what: format!("the summary as it was at the beginning is kept: {error}"),
            }),
        }
        if let Some(summary) = self.summary.take() {
            out.record();
            out.frame(summary_frame(summary));
        }
        self.beside(out);
    }

    /// The subagents beside the chat.
    fn beside(&mut self, out: &mut Sink<'_>) {
        for file in self.children() {
            let agent = match summary_in(file.parent()) {
                Ok(summary) => summary.and_then(|summary| {
                    let id = summary.value.pointer("/info/id")?.as_str()?;
                    Some(id.to_owned())
                }),
                Err(error) => {
                    let what = format!("a subagent is left out: {error}");
                    out.notice(Notice {
                        line: 0,
                        offset: 0,
                        what,
                    });
                    continue;
                }
            };
            let agent = agent
                .or_else(|| file.parent().map(stem))
                .unwrap_or_default();
            let call = first_prompt(&file).and_then(|prompt| self.prompts.call_of(&prompt));
            out.child(agent, file, call);
        }
    }
}

impl Chat {
    /// The frames of a record of a known type. None of them is empty.
    fn known(&mut self, key: &str, record: &mut Record) -> Option<Vec<FrameRequest>> {
        let strict = record.strict();
        let value = &mut record.value;
        let frame = match type_of(value) {
            "system" => {
                let mut frame = self.conversation.classed("context", "system_prompt", key);
                extract_all(value, &[("content", "text")], &mut frame, strict);
                frame
            }
            "user" => self.user(key, value, strict),
            "reasoning" => {
                let mut frame = self.conversation.answer(key);
                frame
                    .copy(value, "id", "message_id")
                    .copy(value, "status", "status");
                for part in value
                    .get_mut("summary")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    extract_all(part, &[("text", "thinking")], &mut frame, strict);
                }
                frame
            }
            "assistant" => return Some(self.answer(key, value, strict)),
            "tool_result" => {
                let id = value
                    .get("tool_call_id")
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                let (mut frame, _) = self.conversation.result(key, id.as_deref());
                extract_all(value, &[("content", "result")], &mut frame, strict);
                frame
            }
            "backend_tool_call" => return Some(self.backend_call(key, value, strict)),
            _ => return None,
        };
        Some(vec![frame])
    }

    /// What a person wrote, or what the program put in as if.
    fn user(&mut self, key: &str, value: &mut Value, strict: bool) -> FrameRequest {
        let reason = value.get("synthetic_reason").and_then(Value::as_str);
        let (mut frame, name) = match reason {
            Some(reason) if reason.contains("compact") => {
                let frame = self.conversation.classed("context", "compact_summary", key);
                (frame, "text")
            }
            Some(_) => (
                self.conversation.classed("context", "meta_message", key),
                "text",
            ),
            None => (self.conversation.prompt(key), "prompt"),
        };
        for (from, to) in [
            ("synthetic_reason", "reason"),
            ("prompt_index", "prompt_index"),
            ("prior_turn_interrupt", "prior_turn_interrupt"),
        ] {
            frame.copy(value, from, to);
        }
        if let Some(content) = value.get_mut("content") {
            take_content(content, &mut frame, name, strict);
            for block in content.as_array_mut().into_iter().flatten() {
                if type_of(block) == "image" {
                    extract_all(block, &[("url", "image")], &mut frame, strict);
                }
            }
        }
        frame
    }

    fn answer(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut answer = self.conversation.answer(key);
        for (from, to) in [
            ("model_id", "model"),
            ("model_fingerprint", "model_fingerprint"),
            ("reasoning_effort", "effort"),
        ] {
            answer.copy(value, from, to);
        }
        answer.put("revision", "not_identifiable");
        if let Some(content) = value.get_mut("content") {
            take_content(content, &mut answer, "text", strict);
        }
        let mut frames = vec![answer];
        let calls = value.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, block) in calls.into_iter().flatten().enumerate() {
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            let name = block.get("name").cloned();
            let key_of_call = format!("{key}/call/{}", index + 1);
            let mut call = self
                .conversation
                .call(key_of_call, id.as_deref(), name.as_ref());
            call.link("derived_from", key);
            // The arguments are JSON within a string.
            let arguments = block.get("arguments").and_then(Value::as_str);
            let arguments: Option<Value> =
                arguments.and_then(|text| serde_json::from_str(text).ok());
            if let Some(prompt) = arguments
                .as_ref()
                .and_then(|value| value.get("prompt")?.as_str())
            {
                self.prompts.told(prompt, &call.key);
                call.linked_to = true;
            }
            extract_all(block, &[("arguments", "arguments")], &mut call, strict);
            frames.push(call);
        }
        frames
    }

    /// A tool that xAI's servers ran: the call and what came of it, in one record. A search is a retrieval.
    fn backend_call(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut none = Value::Null;
        let tool = value.get_mut("kind").unwrap_or(&mut none);
        let name = tool.get("tool_type").cloned();
        let search = name
            .as_ref()
            .and_then(Value::as_str)
            .is_some_and(|name| name.ends_with("search"));
        if search {
            let mut frame = self.conversation.frame("retrieval", key);
            frame
                .copy(tool, "tool_type", "retriever")
                .copy(tool, "id", "tool_call_id")
                .copy(tool, "status", "status");
            if let Some(action) = tool.get_mut("action") {
                extract_all(
                    action,
                    &[("query", "query"), ("sources", "chunks")],
                    &mut frame,
                    strict,
                );
            }
            return vec![frame];
        }
        let id = tool.get("id").and_then(Value::as_str).map(str::to_owned);
        let mut call = self.conversation.call(key, id.as_deref(), name.as_ref());
        extract_all(tool, &[("action", "arguments")], &mut call, strict);
        let (mut result, _) = self
            .conversation
            .result(format!("{key}/result"), id.as_deref());
        if id.is_none() {
            result.link("answers", key);
        }
        match tool.get("status").and_then(Value::as_str) {
            Some("completed") => result.put("status", "ok"),
            Some("failed") => result.put("status", "error"),
            _ => &mut result,
        };
        vec![call, result]
    }

    /// The chats of subagents beside this one, in the order of their names.
    fn children(&self) -> Vec<PathBuf> {
        let Some(folder) = self.path.parent() else {
            return Vec::new();
        };
        let entries = std::fs::read_dir(folder.join("subagents"))
            .into_iter()
            .flatten()
            .flatten();
        let folders = entries
            .map(|entry| entry.path())
            .chain([folder.join("subagent")]);
        let mut files: Vec<_> = folders
            .map(|folder| folder.join("chat_history.jsonl"))
            .filter(|file| file.is_file())
            .collect();
        files.sort();
        files
    }
}

/// The whole summary. It is another one whenever it was written anew, and then another frame.
fn summary_frame(summary: Record) -> FrameRequest {
    let mut frame = FrameRequest::new(
        "observation",
        format!("summary/{}", digest(&summary.value)),
        Turn::Run,
    );
    frame.class("session_summary");
    let value = &summary.value;
    for (from, to) in [
        ("current_model_id", "model"),
        ("agent_name", "agent_name"),
        ("num_messages", "messages"),
        ("sandbox_profile", "sandbox"),
    ] {
        frame.copy(value, from, to);
    }
    let repository = [
        ("remote", value.pointer("/git_remotes/0").and_then(remote)),
        ("branch", value.get("head_branch").and_then(label)),
        ("commit", value.get("head_commit").and_then(label)),
    ]
    .map(|(name, value)| (name, value.unwrap_or_default()));
    if repository.iter().any(|(_, value)| !value.is_null()) {
        frame.put("repository", object(repository));
    }
    if let Some(time) = value
        .get("updated_at")
        .and_then(Value::as_str)
        .and_then(written_time)
    {
        frame.at(&time);
    }
    summary.leave_rest(&mut frame);
    frame
}

/// What a subagent was told: the first message of its chat that the program did not put in.
fn first_prompt(file: &Path) -> Option<String> {
    let sample = Sample::of(file).ok()?;
    let first = sample
        .records
        .iter()
        .find(|record| type_of(record) == "user" && record.get("synthetic_reason").is_none())?;
    let content = first.get("content")?;
    match content {
        Value::String(text) => Some(text.clone()),
        content => Some(content.get(0)?.get("text")?.as_str()?.to_owned()),
    }
}
