//! Records of the conversation: what people and the model said.

use serde_json::Value;

use super::entry::{Entry, Mapped};
use super::thread::Thread;
use super::tools::{results, take_call, take_result};
use crate::import::blocks::{first_text, take_block, type_of};
use crate::import::record::extract;
use crate::import::request::{FrameRequest, Turn};
use crate::import::text::is_label;

/// How a user's record begins that the person did not write as a prompt, with the frame kind and
/// class that it becomes.
const NOT_PROMPTS: &[(&str, &str, &str)] = &[
    (
        "<local-command-stdout>",
        "observation",
        "local_command_output",
    ),
    (
        "<local-command-stderr>",
        "observation",
        "local_command_output",
    ),
    ("<local-command-caveat>", "context", "caveat"),
    ("Caveat: The messages below", "context", "caveat"),
    ("<bash-input>", "observation", "shell_input"),
    ("<bash-stdout>", "observation", "shell_output"),
    ("<bash-stderr>", "observation", "shell_output"),
    ("[Request interrupted by user", "observation", "interrupted"),
];

/// A `user` record: a prompt, results of tools, or text that the program put in.
pub(super) fn user(entry: &mut Entry, thread: &mut Thread) -> Option<Mapped> {
    let content = entry.record.value.pointer("/message/content")?;
    match content {
        Value::Array(blocks) if blocks.iter().any(|block| type_of(block) == "tool_result") => {
            Some(results(entry, thread))
        }
        Value::Array(blocks) if !blocks.is_empty() => Some(said(entry, thread)),
        Value::String(_) => Some(said(entry, thread)),
        _ => None,
    }
}

/// Text of a `user` record. A prompt opens the next turn.
fn said(entry: &mut Entry, thread: &mut Thread) -> Mapped {
    let first = first_text(&entry.record.value["message"]["content"]);
    let special = NOT_PROMPTS
        .iter()
        .find(|(start, ..)| first.starts_with(start));
    let (kind, class) = if entry.flag("isCompactSummary") {
        ("context", "compact_summary")
    } else if let Some((_, kind, class)) = special {
        (*kind, *class)
    } else if entry.flag("isMeta") {
        ("context", "meta_message")
    } else {
        ("turn", "prompt")
    };
    let command = first.starts_with("<command-name>") || first.starts_with("<command-message>");
    let mut frame = entry.frame(kind, "", thread);
    if kind == "turn" {
        // The server numbers the turn and closes the one before.
        frame.turn = Turn::Open;
        thread.turn_open = true;
        thread.message = None;
        frame.put("prompt", if command { "command" } else { "message" });
    } else {
        frame.class(class);
    }
    let value = &entry.record.value;
    frame.put("speaker", "user");
    for (from, to) in [
        ("promptId", "prompt_id"),
        ("permissionMode", "permission_mode"),
        ("promptSource", "source"),
    ] {
        frame.copy(value, from, to);
    }
    if let Some(origin) = value.get("origin") {
        frame.copy(origin, "kind", "origin");
    }
    take_content(
        entry,
        &mut frame,
        if kind == "turn" { "prompt" } else { "text" },
    );
    Mapped::one(frame)
}

/// Moves what a message says into payloads: texts under `name`, images and documents as their bytes.
fn take_content(entry: &mut Entry, frame: &mut FrameRequest, name: &str) {
    let strict = entry.record.strict();
    let content = &mut entry.value()["message"]["content"];
    match content {
        Value::Array(blocks) => {
            for block in blocks {
                take_block(block, frame, name, strict);
            }
        }
        content => extract(content, frame, name, strict),
    }
}

/// An `assistant` record: a part of what the model answered, with the calls it asks for.
pub(super) fn assistant(entry: &mut Entry, thread: &mut Thread) -> Option<Mapped> {
    let message = entry.record.value.get("message")?;
    if !matches!(
        message.get("content"),
        Some(Value::Array(_) | Value::String(_))
    ) {
        return None;
    }
    let model = message.get("model").and_then(Value::as_str);
    if model == Some("<synthetic>") || entry.flag("isApiErrorMessage") {
        let mut frame = entry.frame("observation", "", thread);
        frame
            .put("observation", "synthetic_message")
            .put("speaker", "program");
        frame.copy(&entry.record.value, "apiErrorStatus", "status");
        take_content(entry, &mut frame, "text");
        return Some(Mapped::one(frame));
    }
    let mut frames = Vec::new();
    let call = model_call(entry, thread, &mut frames);
    let mut result = entry.frame("model_result", "", thread);
    result.put("speaker", "model");
    let value = &entry.record.value;
    for (from, to) in [
        ("requestId", "request_id"),
        ("isAbortedMidStream", "aborted"),
        ("effort", "effort"),
    ] {
        result.copy(value, from, to);
    }
    let message = &value["message"];
    for (from, to) in [
        ("model", "model"),
        ("id", "message_id"),
        ("stop_reason", "finish_reason"),
    ] {
        result.copy(message, from, to);
    }
    result.put_usage(message.get("usage"));
    if let Some(call) = call {
        result.link("answers", call);
    }
    let at = frames.len();
    frames.push(result);
    take_answer(entry, thread, &mut frames, at);
    Some(Mapped::many(frames))
}

/// The `model_call` of a message, where the record names the message and the model; the message's
/// later records answer the same call. Answers its key.
fn model_call(
    entry: &Entry,
    thread: &mut Thread,
    frames: &mut Vec<FrameRequest>,
) -> Option<String> {
    let message = entry.record.value.get("message")?;
    let id = message.get("id")?.as_str()?.to_owned();
    message.get("model")?.as_str()?;
    if let Some((open, key)) = &thread.message
        && *open == id
    {
        return Some(key.clone());
    }
    let mut call = entry.frame("model_call", "call", thread);
    call.copy(message, "model", "model")
        .copy(message, "id", "message_id");
    call.copy(&entry.record.value, "requestId", "request_id");
    // A transcript names a model, never the revision that served it.
    call.put("revision", "not_identifiable");
    let key = call.key.clone();
    thread.message = Some((id, key.clone()));
    frames.push(call);
    Some(key)
}

fn take_answer(entry: &mut Entry, thread: &mut Thread, frames: &mut Vec<FrameRequest>, at: usize) {
    if entry.record.value["message"]["content"].is_string() {
        return take_content(entry, &mut frames[at], "text");
    }
    let strict = entry.record.strict();
    let mut content = entry.value()["message"]["content"].take();
    let mut kinds = Vec::new();
    for (index, block) in content.as_array_mut().into_iter().flatten().enumerate() {
        let kind = type_of(block).to_owned();
        if kind.ends_with("tool_use") {
            let mut call = entry.frame("tool_call", &format!("call/{}", index + 1), thread);
            call.link("derived_from", frames[at].key.clone());
            take_call(block, &mut call, thread, strict);
            frames.push(call);
        } else if kind.ends_with("tool_result") {
            let result = entry.frame("tool_result", &format!("result/{}", index + 1), thread);
            frames.push(take_result(block, result, thread, strict).0);
        } else {
            take_block(block, &mut frames[at], "text", strict);
        }
        kinds.push(kind);
    }
    let kinds = kinds.iter().filter(|kind| is_label(kind, 64)).take(64);
    let kinds: Vec<_> = kinds.map(|kind| Value::from(kind.as_str())).collect();
    frames[at].put("blocks", kinds);
    entry.value()["message"]["content"] = content;
}
