//! One message with its parts.

use std::collections::HashMap;

use serde_json::Value;

use super::tool;
use crate::import::Sink;
use crate::import::blocks::type_of;
use crate::import::conversation::Conversation;
use crate::import::payload::Payload;
use crate::import::record::{Record, digest, extract, extract_all};
use crate::import::request::FrameRequest;
use crate::import::text::counted_time;

/// A message's file and those of its parts.
pub(super) struct Message {
    pub key: String,
    pub info: Record,
    pub parts: Vec<Part>,
}

/// A part's file.
pub(super) struct Part {
    pub key: String,
    pub record: Record,
}

impl Message {
    /// Whether the model is still writing it: OpenCode counts the tokens of a message from its beginning,
    /// and says when it is complete or why it failed. How it ended (`finish`) is said earlier: the patch of what
    /// it changed comes after that.
    pub fn is_growing(&self) -> bool {
        let info = &self.info.value;
        let has = |pointer: &str| info.pointer(pointer).is_some_and(|value| !value.is_null());
        if role(info) != "assistant" || has("/time/completed") || has("/error") {
            return false;
        }
        let runs = |part: &Part| {
            let status = part.record.value.pointer("/state/status");
            matches!(status.and_then(Value::as_str), Some("pending" | "running"))
        };
        has("/tokens") || self.parts.iter().any(runs)
    }

    /// Its frames. The first has the message's key and record; parts that are no frames of their own leave
    /// theirs in the frame that they became part of.
    pub fn frames(
        mut self,
        conversation: &mut Conversation,
        spawned: &mut HashMap<String, String>,
        out: &mut Sink<'_>,
    ) -> Vec<FrameRequest> {
        out.record();
        let time = self.info.value.pointer("/time/created");
        conversation.at(time.and_then(counted_time));
        let summary = take_summary(&mut self.info.value);
        let role = role(&self.info.value).to_owned();
        let mut frames = match role.as_str() {
            "user" => self.user(conversation, out),
            "assistant" => self.answer(conversation, spawned, out),
            _ => {
                out.unmapped();
                let mut frame = conversation.classed("observation", "unmapped", self.key.clone());
                self.info.leave_rest(&mut frame);
                for part in self.parts {
                    out.record();
                    part.record.leave_rest(&mut frame);
                }
                vec![frame]
            }
        };
        if let Some(summary) = summary {
            let key = format!("{}/summary/{}", frames[0].key, digest(&summary));
            let mut frame = conversation.classed("observation", "message_summary", key);
            frame.link("derived_from", frames[0].key.clone());
            frame.attach(Payload::json("summary", &summary, false));
            frames.push(frame);
        }
        frames
    }

    /// A prompt; or the request to compact, or what the program put in as if a person had written it.
    fn user(self, conversation: &mut Conversation, out: &mut Sink<'_>) -> Vec<FrameRequest> {
        let Self { key, info, parts } = self;
        let is = |part: &Part, kind: &str| type_of(&part.record.value) == kind;
        let compaction = parts.iter().any(|part| is(part, "compaction"));
        let texts = || parts.iter().filter(|part| is(part, "text"));
        let synthetic = texts().count() > 0 && texts().all(|part| is_synthetic(&part.record.value));
        let mut frame = if compaction {
            conversation.classed("context", "compacted", key)
        } else if synthetic {
            conversation.classed("context", "meta_message", key)
        } else {
            conversation.prompt(key)
        };
        frame.put("speaker", if synthetic { "program" } else { "user" });
        frame
            .copy(&info.value, "id", "message_id")
            .copy(&info.value, "agent", "agent");
        let mut info = info;
        let strict = info.strict();
        extract_all(&mut info.value, &[("system", "system")], &mut frame, strict);
        info.leave_rest(&mut frame);
        let mut frames = vec![frame];
        for part in parts {
            out.record();
            let known = ["text", "file", "agent", "subtask", "compaction"];
            let kind = type_of(&part.record.value).to_owned();
            if !known.contains(&kind.as_str()) {
                frames.extend(other(part, conversation, out));
                continue;
            }
            let mut record = part.record;
            let strict = record.strict();
            let name = if is_synthetic(&record.value) {
                "synthetic"
            } else {
                "prompt"
            };
            let members = [("text", name), ("prompt", name), ("url", "file")];
            if kind == "compaction" {
                frames[0].copy(&record.value, "auto", "auto");
            }
            extract_all(&mut record.value, &members, &mut frames[0], strict);
            record.leave_rest(&mut frames[0]);
        }
        frames
    }

    /// The answers of the model's steps, each with the calls that it asks for.
    fn answer(
        self,
        conversation: &mut Conversation,
        spawned: &mut HashMap<String, String>,
        out: &mut Sink<'_>,
    ) -> Vec<FrameRequest> {
        let Self {
            key,
            mut info,
            parts,
        } = self;
        let value = &info.value;
        let mut first = conversation.answer(key.clone());
        if value.get("summary").and_then(Value::as_bool) == Some(true) {
            first.kind = "context";
            first.class("compact_summary");
        }
        model(value, &mut first);
        first
            .copy(value, "id", "message_id")
            .copy(value, "finish", "finish_reason");
        put_usage(value, &mut first);
        let time = value.pointer("/time/created").and_then(counted_time);
        let error = failure(&key, &mut info, conversation);
        let mut frames = vec![first];
        let about = info.value.clone();
        info.leave_rest(&mut frames[0]);
        // Where in `frames` the answer of the step is, and whether it has said or called anything.
        let (mut at, mut used) = (0, false);
        for part in parts {
            out.record();
            let kind = type_of(&part.record.value).to_owned();
            let Part { key, mut record } = part;
            let strict = record.strict();
            conversation.at(time.clone());
            match kind.as_str() {
                "text" | "reasoning" | "file" => {
                    used = true;
                    let name = if kind == "reasoning" {
                        "thinking"
                    } else {
                        "text"
                    };
                    let members = [("text", name), ("url", "file")];
                    extract_all(&mut record.value, &members, &mut frames[at], strict);
                    record.leave_rest(&mut frames[at]);
                }
                "step-start" => {
                    if used {
                        let mut answer = conversation.answer(key);
                        model(&about, &mut answer);
                        at = frames.len();
                        frames.push(answer);
                        used = false;
                    }
                    frames[at].copy(&record.value, "snapshot", "tree");
                    record.leave_rest(&mut frames[at]);
                }
                "step-finish" => {
                    frames[at].copy(&record.value, "reason", "finish_reason");
                    put_usage(&record.value, &mut frames[at]);
                    record.leave_rest(&mut frames[at]);
                }
                "tool" => {
                    used = true;
                    let answer = frames[at].key.clone();
                    frames.extend(tool::frames(
                        Part { key, record },
                        &answer,
                        conversation,
                        spawned,
                    ));
                }
                _ => frames.extend(other(Part { key, record }, conversation, out)),
            }
        }
        frames.extend(error);
        frames
    }
}

/// A part that is no text and no call.
fn other(part: Part, conversation: &mut Conversation, out: &mut Sink<'_>) -> Vec<FrameRequest> {
    let Part { key, mut record } = part;
    let strict = record.strict();
    let value = &mut record.value;
    let mut versions = Vec::new();
    let mut frame = match type_of(value) {
        "snapshot" => {
            let mut frame = conversation.classed("snapshot", "working_tree", key);
            frame.copy(value, "snapshot", "tree");
            frame
        }
        // The state of the files after a step, and which of them the step changed.
        "patch" => {
            let mut frame = conversation.classed("snapshot", "working_tree", key.clone());
            frame.copy(value, "hash", "tree");
            let files = value
                .get("files")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            for (index, file) in files.filter_map(Value::as_str).enumerate() {
                let of_file = format!("{key}/file/{}", index + 1);
                versions.push(conversation.file_version(of_file, file, "update", &key));
            }
            frame
        }
        "retry" => {
            if let Some(time) = value.pointer("/time/created").and_then(counted_time) {
                conversation.at(Some(time));
            }
            let mut frame = conversation.classed("observation", "error", key);
            frame
                .put("speaker", "program")
                .copy(value, "attempt", "attempt");
            extract_all(value, &[("error", "error")], &mut frame, strict);
            frame
        }
        "compaction" => {
            let mut frame = conversation.classed("context", "compacted", key);
            frame
                .copy(value, "auto", "auto")
                .copy(value, "overflow", "overflow");
            frame
        }
        kind @ ("agent" | "subtask") => {
            let mut frame = conversation.classed("observation", kind, key);
            frame
                .copy(value, "agent", "agent")
                .copy(value, "name", "agent");
            extract_all(value, &[("prompt", "prompt")], &mut frame, strict);
            frame
        }
        _ => {
            out.unmapped();
            conversation.classed("observation", "unmapped", key)
        }
    };
    record.leave_rest(&mut frame);
    [frame].into_iter().chain(versions).collect()
}

/// Why a message failed, or that a person stopped it.
fn failure(key: &str, info: &mut Record, conversation: &Conversation) -> Option<FrameRequest> {
    let strict = info.strict();
    let error = info
        .value
        .get_mut("error")
        .filter(|error| !error.is_null())?;
    let stopped = error.get("name").and_then(Value::as_str) == Some("MessageAbortedError");
    let class = if stopped { "interrupted" } else { "error" };
    let mut frame = conversation.classed("observation", class, format!("{key}/error"));
    frame.put("speaker", "program").link("derived_from", key);
    frame.copy(error, "name", "error");
    extract(error, &mut frame, "error", strict);
    Some(frame)
}

fn role(info: &Value) -> &str {
    info.get("role").and_then(Value::as_str).unwrap_or("")
}

fn is_synthetic(part: &Value) -> bool {
    part.get("synthetic").and_then(Value::as_bool) == Some(true)
}

/// The summary of a message is written later than the message, and again.
fn take_summary(info: &mut Value) -> Option<Value> {
    let is_object = info.get("summary").is_some_and(Value::is_object);
    info.as_object_mut()
        .filter(|_| is_object)?
        .remove("summary")
}

fn model(info: &Value, frame: &mut FrameRequest) {
    let of = info
        .get("model")
        .filter(|model| model.is_object())
        .unwrap_or(info);
    frame
        .copy(of, "modelID", "model")
        .copy(of, "providerID", "provider");
    frame.put("revision", "not_identifiable");
    for name in ["agent", "mode", "variant"] {
        frame.copy(info, name, name);
    }
}

/// Puts the counts and the cost of a message or a step into its frame.
fn put_usage(value: &Value, frame: &mut FrameRequest) {
    let cost = ["/cost/usd", "/cost"].into_iter();
    let cost = cost
        .filter_map(|place| value.pointer(place))
        .find(|cost| cost.is_number());
    frame.put_usage(value.get("tokens")).put_cost(cost);
}
