//! Calls of a model.

use serde_json::Value;

use super::answer::{fill_usage, take_content};
use super::sample::SampleRun;
use super::text;
use crate::import::record::extract;
use crate::import::request::FrameRequest;
use crate::import::text::written_time;

/// Members of a model's settings that are numbers or words.
const SETTINGS: [&str; 6] = [
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "max_tokens",
    "reasoning_tokens",
];

/// The request with the event's own key, the answer, and the calls in it.
pub(super) fn map(run: &mut SampleRun, key: &str, event: &mut Value) -> Vec<FrameRequest> {
    let strict = run.strict;
    let mut request = run.conversation.frame("model_call", key);
    request.put("revision", "not_identifiable");
    for member in ["model", "role", "tool_choice", "cache", "retries"] {
        request.copy(event, member, member);
    }
    if let Some(config) = event.get("config") {
        for member in SETTINGS {
            request.copy(config, member, member);
        }
        request.copy(config, "reasoning_effort", "effort");
    }
    for (pointer, name) in [
        ("/input", "messages"),
        ("/tools", "tools"),
        ("/call/request/tools", "wire_tools"),
        // Where the providers' own requests have the messages.
        ("/call/request/messages", "wire_messages"),
        ("/call/request/contents", "wire_messages"),
        ("/call/request/input", "wire_messages"),
        ("/call/request/inputs", "wire_messages"),
    ] {
        if let Some(slot) = event.pointer_mut(pointer) {
            run.said.list(slot, &mut request, name, strict);
        }
    }
    if let Some(slot) = event.pointer_mut("/call/request") {
        extract(slot, &mut request, "request", strict);
    }
    let mut frames = vec![request];
    if event.get("pending").and_then(Value::as_bool) != Some(true) {
        frames.extend(answer(run, key, event));
    }
    frames
}

fn answer(run: &mut SampleRun, key: &str, event: &mut Value) -> Vec<FrameRequest> {
    let strict = run.strict;
    if let Some(completed) = text(event, "completed").and_then(written_time) {
        run.conversation.at(Some(completed));
    }
    let answer_key = format!("{key}/answer");
    let mut answer = run.conversation.answer(&answer_key);
    answer
        .put("revision", "not_identifiable")
        .link("answers", key);
    answer.put_millis("latency_ms", event.get("working_time"));
    for member in ["error", "traceback", "traceback_ansi"] {
        if let Some(slot) = event.get_mut(member).filter(|slot| slot.is_string()) {
            extract(slot, &mut answer, member, strict);
            answer.put("status", "error");
        }
    }
    if let Some(slot) = event.pointer_mut("/call/response") {
        extract(slot, &mut answer, "response", strict);
    }
    let mut calls = Vec::new();
    if let Some(output) = event.get_mut("output") {
        fill_usage(output, &mut answer);
        let content = output.pointer("/choices/0/message/content").cloned();
        if let Some(message) = output.pointer_mut("/choices/0/message") {
            if let Some(content) = message.get_mut("content") {
                take_content(content, &mut answer, "text", strict);
            }
            calls = run.calls(message, key, &answer_key);
        }
        // Newer versions have the text of the message once more.
        if let Some(text) = content.filter(|text| Some(text) == output.get("completion")) {
            let again = output.pointer("/choices/0/message/content").cloned();
            output["completion"] = again.unwrap_or(text);
        }
    }
    let mut frames = vec![answer];
    frames.append(&mut calls);
    frames
}
