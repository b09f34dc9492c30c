//! Messages of a sample that has no events.

use serde_json::Value;

use super::answer::{take_content, take_error};
use super::sample::SampleRun;
use super::text;
use crate::import::Sink;
use crate::import::record::extract;

/// Posts the frames of a message; a reference to its record stands in its place afterwards.
pub(super) fn post(run: &mut SampleRun, number: usize, message: &mut Value, out: &mut Sink<'_>) {
    out.record();
    run.store.resolve_texts(message);
    let key = format!("message/{number}");
    let id = text(message, "tool_call_id").map(str::to_owned);
    let role = text(message, "role").unwrap_or_default().to_owned();
    let (mut frame, name) = match role.as_str() {
        "system" => (
            run.conversation.classed("context", "system_prompt", &key),
            "text",
        ),
        "user" => (run.conversation.prompt(&key), "prompt"),
        "assistant" => {
            let mut frame = run.conversation.answer(&key);
            frame
                .put("revision", "not_identifiable")
                .copy(message, "model", "model");
            (frame, "text")
        }
        "tool" => {
            let (mut frame, _) = run.conversation.result(&key, id.as_deref());
            frame.copy(message, "function", "name").put("status", "ok");
            if let Some(error) = message.get_mut("error").filter(|error| error.is_object()) {
                take_error(error, &mut frame, run.strict);
            }
            (frame, "result")
        }
        _ => {
            out.unmapped();
            (
                run.conversation.classed("observation", "unmapped", &key),
                "text",
            )
        }
    };
    frame
        .copy(message, "id", "message_id")
        .copy(message, "source", "source");
    if let Some(content) = message.get_mut("content") {
        take_content(content, &mut frame, name, run.strict);
    }
    let calls = run.calls(message, &key, &key);
    extract(message, &mut frame, "record", run.strict);
    out.frame_of(run.thread, frame);
    for call in calls {
        out.frame_of(run.thread, call);
    }
}
