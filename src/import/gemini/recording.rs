//! Recorded answers of the model: one call of the model's interface a line, its name and what came back,
//! as one object or as the pieces of a stream. What the model was asked, and what its calls of tools gave
//! back, is not recorded.

use std::path::Path;

use serde_json::Value;

use super::message::Messages;
use crate::import::conversation::session as session_body;
use crate::import::jsonl::{JsonLines, LineMapper, key};
use crate::import::payload::Payload;
use crate::import::record::{Record, extract, post};
use crate::import::request::{FrameRequest, Turn, key_part};
use crate::import::{Format, ImportError, Opening, Sink, Transcript};

/// The calls that are recorded.
pub(super) fn is_method(method: &str) -> bool {
    is_answer(method) || matches!(method, "countTokens" | "embedContent")
}

fn is_answer(method: &str) -> bool {
    matches!(method, "generateContent" | "generateContentStream")
}

pub(super) fn open(path: &Path, name: &str) -> Result<Box<dyn Transcript>, ImportError> {
    let opening = Opening {
        key: format!("import/gemini-cli/recording/{}", key_part(name)),
        session: session_body(Format::GeminiCli, "gemini-cli", Some(name), false),
        payloads: Vec::new(),
        occurred_at: None,
    };
    let mapper = Recording(Messages::default());
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

struct Recording(Messages);

impl LineMapper for Recording {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        let key = key(line);
        let method = record.value.get("method").and_then(Value::as_str);
        let method = method.unwrap_or_default().to_owned();
        let strict = record.strict();
        let response = record.value.get_mut("response");
        let mut frames = match response.filter(|value| value.is_array() || value.is_object()) {
            Some(response) if is_answer(&method) => self.answer(&key, response, strict),
            Some(_) if method == "countTokens" => {
                vec![
                    self.0
                        .conversation
                        .classed("observation", "token_count", key),
                ]
            }
            Some(_) if method == "embedContent" => {
                vec![self.0.conversation.classed("observation", "embedding", key)]
            }
            _ => self.0.conversation.unmapped(key, out),
        };
        frames[0].copy(&record.value, "method", "method");
        post(record, frames, out);
    }

    fn turn(&self) -> Turn {
        self.0.conversation.turn()
    }
}

impl Recording {
    fn answer(&mut self, key: &str, response: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut answer = self.0.conversation.answer(key);
        let mut calls = Vec::new();
        let pieces = match response {
            Value::Array(pieces) => pieces.as_mut_slice(),
            piece => std::slice::from_mut(piece),
        };
        for piece in pieces.iter() {
            answer
                .copy(piece, "modelVersion", "model")
                .copy(piece, "responseId", "response_id");
            // The counts of a stream's last piece are those of all of it.
            answer.put_usage(piece.get("usageMetadata"));
            for candidate in list(piece.get("candidates")) {
                answer.copy(candidate, "finishReason", "finish_reason");
            }
            if let Some(feedback) = piece.get("promptFeedback") {
                answer.copy(feedback, "blockReason", "block_reason");
            }
        }
        answer.put("revision", "not_identifiable");
        let mut texts: Vec<&mut Value> = Vec::new();
        let mut thoughts: Vec<&mut Value> = Vec::new();
        for part in pieces.iter_mut().flat_map(parts) {
            let thought = part.get("thought").and_then(Value::as_bool) == Some(true);
            if part.get("functionCall").is_some() {
                let key_of_call = format!("{key}/call/{}", calls.len() + 1);
                if let Some(call) = part.get_mut("functionCall") {
                    calls.push(self.0.function_call(key_of_call, key, call, strict));
                }
            } else if let Some(text) = part.get_mut("text").filter(|text| text.is_string()) {
                if thought {
                    thoughts.push(text);
                } else {
                    texts.push(text);
                }
            }
        }
        take_texts(texts, &mut answer, "text", strict);
        take_texts(thoughts, &mut answer, "thinking", strict);
        let mut frames = vec![answer];
        frames.append(&mut calls);
        frames
    }
}

/// One text is moved into the payload. Of several pieces the payload is all of them together, and the
/// record keeps the pieces.
fn take_texts(mut texts: Vec<&mut Value>, answer: &mut FrameRequest, name: &str, strict: bool) {
    if let [only] = texts.as_mut_slice() {
        return extract(only, answer, name, strict);
    }
    let whole: String = texts.iter().filter_map(|text| text.as_str()).collect();
    if !whole.is_empty() {
        answer.attach(Payload::text(name, whole));
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The parts of all candidates of a piece.
fn parts(piece: &mut Value) -> impl Iterator<Item = &mut Value> {
    let candidates = piece.get_mut("candidates").and_then(Value::as_array_mut);
    let contents = candidates
        .into_iter()
        .flatten()
        .filter_map(|one| one.get_mut("content"));
    let parts = contents.filter_map(|content| content.get_mut("parts")?.as_array_mut());
    parts.flatten()
}
