//! Messages of the model: what it said, and the calls in it.

use serde_json::Value;

use super::sample::SampleRun;
use super::text;
use crate::import::record::extract;
use crate::import::request::FrameRequest;

/// Moves the content of a message into payloads: the text as `name`, reasoning as `thinking`, and images and the
/// like under the names of their types.
pub(super) fn take_content(slot: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    let Value::Array(blocks) = slot else {
        return extract(slot, frame, name, strict);
    };
    for block in blocks {
        // A block has its content under the name of its type.
        let kind = text(block, "type").unwrap_or_default().to_owned();
        let payload = match kind.as_str() {
            "text" => name,
            "reasoning" => "thinking",
            "image" | "audio" | "video" | "document" | "data" => &kind,
            _ => continue,
        };
        if let Some(part) = block.get_mut(&kind) {
            extract(part, frame, payload, strict);
        }
    }
}

impl SampleRun {
    /// The calls in a message of the model, each linked to the answer that it stands in.
    pub fn calls(&mut self, message: &mut Value, key: &str, answer: &str) -> Vec<FrameRequest> {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        let mut frames = Vec::new();
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let key = format!("{key}/call/{}", index + 1);
            let name = call.get("function").cloned();
            let mut frame = self.conversation.call(key, text(call, "id"), name.as_ref());
            frame.link("derived_from", answer);
            if let Some(arguments) = call.get_mut("arguments") {
                extract(arguments, &mut frame, "arguments", self.strict);
            }
            if let Some(error) = call.get_mut("parse_error") {
                extract(error, &mut frame, "error", self.strict);
            }
            frames.push(frame);
        }
        frames
    }
}

/// The error that a tool answered with. A call that was not approved was denied.
pub(super) fn take_error(error: &mut Value, frame: &mut FrameRequest, strict: bool) {
    let denied = text(error, "type") == Some("approval");
    frame
        .put("status", if denied { "denied" } else { "error" })
        .copy(error, "type", "error_type");
    if let Some(message) = error.get_mut("message") {
        extract(message, frame, "error", strict);
    }
}

/// The counts of tokens of an output.
pub(super) fn fill_usage(output: &Value, frame: &mut FrameRequest) {
    frame.copy(output, "model", "model");
    if let Some(choice) = output.pointer("/choices/0") {
        frame.copy(choice, "stop_reason", "finish_reason");
    }
    frame.put_usage(output.get("usage"));
    frame.put_millis("latency_ms", output.get("time"));
}
