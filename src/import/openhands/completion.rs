//! A logged completion: one request of the model with all its messages, and the model's answer.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::{Map, Value};

use super::classic::fill_answer;
use super::history::take_content;
use crate::import::conversation::{self, Conversation};
use crate::import::document::{self, Document, Parts};
use crate::import::record::{Record, extract};
use crate::import::request::{FrameRequest, key_part, label};
use crate::import::text::counted_time;
use crate::import::{Format, ImportError, Opening, Sink, Transcript, stem};

/// The messages of a request, and then the request itself.
struct Completion {
    messages: VecDeque<Value>,
    /// The record of the whole file; the messages stand in it as references.
    rest: Option<Record>,
    references: Vec<Value>,
    strict: bool,
    total: usize,
    conversation: Conversation,
}

/// Whether this is a request with its answer.
pub(super) fn is_completion(document: &Value) -> bool {
    let member = |name: &str| document.get(name).is_some();
    document.get("messages").is_some_and(Value::is_array)
        && document
            .pointer("/response/choices")
            .is_some_and(Value::is_array)
        && member("timestamp")
        && (member("cost") || member("kwargs") || member("latency_sec"))
}

/// Reads a logged completion.
///
/// # Errors
/// The file cannot be read, is too large, or is no completion.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut record, length) = document::read(path, Format::OpenHands)?;
    let messages = match record.value.get_mut("messages").map(Value::take) {
        Some(Value::Array(messages)) => VecDeque::from(messages),
        _ => return Err(Format::OpenHands.refused(path, "`messages` is no list")),
    };
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let opening = opening(&name, &record.value);
    let completion = Completion {
        total: messages.len() + 1,
        messages,
        strict: record.strict(),
        rest: Some(record),
        references: Vec::new(),
        conversation: Conversation::default(),
    };
    Ok(Box::new(Document::new(length, opening, completion)))
}

fn opening(name: &str, file: &Value) -> Opening {
    let mut body = conversation::session(Format::OpenHands, "openhands", Some(name), true);
    let at = |pointer: &str| file.pointer(pointer).and_then(label);
    let members = [
        ("name", at("/response/model")),
        ("temperature", at("/kwargs/temperature")),
        ("top_p", at("/kwargs/top_p")),
    ];
    let members = members.into_iter();
    let model: Map<String, Value> = members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    if !model.is_empty() {
        let mut pins = Map::new();
        pins.insert("model".into(), model.into());
        body.insert("pins".into(), pins.into());
    }
    Opening {
        key: format!("import/openhands/{}", key_part(name)),
        session: body,
        payloads: Vec::new(),
        occurred_at: None,
    }
}

impl Parts for Completion {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let frames = if let Some(message) = self.messages.pop_front() {
            self.message(message, out)
        } else if let Some(rest) = self.rest.take() {
            self.request(rest)
        } else {
            return false;
        };
        out.record();
        frames.into_iter().for_each(|frame| out.frame(frame));
        true
    }

    fn progress(&self) -> (usize, usize) {
        let left = self.messages.len() + usize::from(self.rest.is_some());
        (self.total - left, self.total)
    }
}

impl Completion {
    fn message(&mut self, mut message: Value, out: &mut Sink<'_>) -> Vec<FrameRequest> {
        let key = format!("message/{}", self.references.len() + 1);
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let mut frames = Vec::new();
        let (mut frame, name) = match role {
            // Models that call no functions are told results as the user's text.
            "user" if text(&message).starts_with("EXECUTION RESULT of [") => {
                (self.conversation.result(&key, None).0, "result")
            }
            "user" => (self.conversation.prompt(&key), "prompt"),
            "system" => (
                self.conversation.classed("context", "system_prompt", &key),
                "text",
            ),
            "assistant" => (self.conversation.answer(&key), "text"),
            "tool" => {
                let id = message.get("tool_call_id").and_then(Value::as_str);
                (self.conversation.result(&key, id).0, "result")
            }
            _ => {
                out.unmapped();
                (
                    self.conversation.classed("observation", "unmapped", &key),
                    "text",
                )
            }
        };
        if let Some(content) = message.get_mut("content") {
            take_content(content, &mut frame, name, self.strict);
        }
        frames.push(frame);
        self.calls(&key, &mut message, &mut frames);
        if let Some(frame) = frames.first_mut() {
            extract(&mut message, frame, "record", self.strict);
        }
        self.references.push(message);
        frames
    }

    /// The calls in an answer.
    fn calls(&mut self, key: &str, message: &mut Value, frames: &mut Vec<FrameRequest>) {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let id = call.get("id").and_then(Value::as_str);
            let name = call.pointer("/function/name").cloned();
            let call_key = format!("{key}/call/{}", index + 1);
            let mut frame = self.conversation.call(call_key, id, name.as_ref());
            frame.link("derived_from", key);
            if let Some(arguments) = call.pointer_mut("/function/arguments") {
                extract(arguments, &mut frame, "arguments", self.strict);
            }
            frames.push(frame);
        }
    }

    /// The request, with all of the file that is no message, and the answer.
    fn request(&mut self, mut rest: Record) -> Vec<FrameRequest> {
        let file = &mut rest.value;
        file["messages"] = std::mem::take(&mut self.references).into();
        self.conversation
            .at(file.get("timestamp").and_then(counted_time));
        let mut request = self.conversation.frame("model_call", "request");
        request.put("revision", "not_identifiable");
        if let Some(options) = file.get("kwargs") {
            for member in ["temperature", "top_p", "seed"] {
                request.copy(options, member, member);
            }
            for member in ["max_tokens", "max_completion_tokens"] {
                request.copy(options, member, "max_tokens");
            }
        }
        request.copy(file, "context_window", "context_window");
        if let Some(tools) = file.get_mut("tools") {
            extract(tools, &mut request, "tools", self.strict);
        }
        let mut answer = self.conversation.answer("response");
        answer
            .put("revision", "not_identifiable")
            .link("answers", "request");
        answer.put_millis("latency_ms", file.get("latency_sec"));
        if let Some(response) = file.get("response") {
            request.copy(response, "model", "model");
            fill_answer(response, &mut answer);
        }
        answer.put_cost(file.get("cost"));
        let mut frames = vec![answer];
        if let Some(message) = file.pointer_mut("/response/choices/0/message") {
            for (member, name) in [("content", "text"), ("reasoning_content", "thinking")] {
                if let Some(slot) = message.get_mut(member) {
                    take_content(slot, &mut frames[0], name, self.strict);
                }
            }
            self.calls("response", message, &mut frames);
        }
        rest.leave_rest(&mut request);
        frames.insert(0, request);
        frames
    }
}

/// The text of a message, where it is one.
fn text(message: &Value) -> &str {
    let content = &message["content"];
    let only = content.pointer("/0/text").unwrap_or(content);
    only.as_str().unwrap_or_default()
}
