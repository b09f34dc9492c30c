//! Messages made of blocks (`text`, `thinking`, `image`, `tool_use`, `tool_result` …), as Anthropic's API
//! has them and several agents write them. Content may also be one string.

mod attachment;

use serde_json::Value;

use super::conversation::Conversation;
use super::payload::Payload;
use super::record::extract;
use super::request::FrameRequest;

/// What is done with a call's block before its arguments are taken out of it.
pub(super) type OnCall<'a> = &'a mut dyn FnMut(&Value, &mut FrameRequest);

/// The frames of a message, emptied of what became payloads. The first has the key itself, and is the
/// one that gets what is left of the record: a prompt, an answer, the first of several results, or,
/// in another role than `user` and `assistant`, context of the class `system_prompt` or `message`.
pub(super) fn message(
    role: &str,
    content: &mut Value,
    key: &str,
    conversation: &mut Conversation,
    strict: bool,
    on_call: OnCall<'_>,
) -> Vec<FrameRequest> {
    let blocks = content.as_array().into_iter().flatten();
    if role == "assistant" {
        return answer(content, key, conversation, strict, on_call);
    }
    if blocks.map(type_of).any(is_result) {
        return results(content, key, conversation, strict);
    }
    let (mut frame, name) = match role {
        "user" => (conversation.prompt(key), "prompt"),
        "system" | "developer" => {
            let frame = conversation.classed("context", "system_prompt", key);
            (frame, "text")
        }
        _ => (conversation.classed("context", "message", key), "text"),
    };
    take_content(content, &mut frame, name, strict);
    vec![frame]
}

/// Moves what a message says into payloads: texts under `name`, images and documents as their bytes.
pub(super) fn take_content(
    content: &mut Value,
    frame: &mut FrameRequest,
    name: &str,
    strict: bool,
) {
    match content {
        Value::Array(blocks) => {
            for block in blocks {
                take_block(block, frame, name, strict);
            }
        }
        Value::String(_) => extract(content, frame, name, strict),
        // One block that is in no list.
        block => take_block(block, frame, name, strict),
    }
}

/// Moves one block of content into a payload, as the APIs of Anthropic and OpenAI spell it. Kinds that are
/// not known stay in the record.
pub(super) fn take_block(block: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    if block.is_string() {
        return extract(block, frame, name, strict);
    }
    let kind = type_of(block).to_owned();
    let (member, name) = match kind.as_str() {
        "image" | "document" => return attachment::take_source(block, frame, &kind, strict),
        "image_url" | "input_image" => return attachment::take_image(block, frame),
        "input_audio" | "output_audio" => return attachment::take_audio(block, frame),
        "file" | "input_file" => return attachment::take_file(block, frame),
        "thinking" => ("thinking", "thinking"),
        "redacted_thinking" => ("data", "redacted_thinking"),
        "refusal" => ("refusal", "refusal"),
        "summary_text" | "reasoning_text" => ("text", "thinking"),
        "text" | "input_text" | "output_text" | "" => ("text", name),
        _ => return,
    };
    if let Some(slot) = block.get_mut(member) {
        extract(slot, frame, name, strict);
    }
}

/// A result that is one text becomes text; of several blocks the images become their bytes, and the
/// rest is kept as JSON.
pub(super) fn take_result(content: &mut Value, result: &mut FrameRequest, strict: bool) {
    if let Value::Array(blocks) = content {
        if let [only] = blocks.as_mut_slice() {
            return take_block(only, result, "result", strict);
        }
        for block in blocks.iter_mut().filter(|block| type_of(block) == "image") {
            attachment::take_source(block, result, "image", strict);
        }
    }
    extract(content, result, "result", strict);
}

/// The plan that a call puts before a person, of tools that do only that. Its text stands in the call's
/// arguments too.
pub(super) fn plan(
    input: &Value,
    call: &FrameRequest,
    conversation: &Conversation,
) -> Option<FrameRequest> {
    const TOOLS: [&str; 5] = [
        "ExitPlanMode",
        "ExitSpecMode",
        "CreatePlan",
        "exit_plan_mode",
        "plan_exit",
    ];
    let name = call.body.get("name").and_then(Value::as_str)?;
    let text = input.get("plan").and_then(Value::as_str)?;
    if !TOOLS.contains(&name) || text.is_empty() {
        return None;
    }
    let key = format!("{}/plan", call.key);
    let mut frame = conversation.classed("decision", "plan", key);
    frame
        .put("speaker", "model")
        .link("derived_from", call.key.clone())
        .attach(Payload::text("plan", text.to_owned()));
    Some(frame)
}

/// The member `type`; empty where there is none.
pub(super) fn type_of(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

/// How the first text of a content begins.
pub(super) fn first_text(content: &Value) -> String {
    let text = match content {
        Value::String(text) => Some(text.as_str()),
        Value::Array(blocks) => blocks.iter().find_map(|block| match block {
            Value::String(text) => Some(text.as_str()),
            block => block.get("text").and_then(Value::as_str),
        }),
        _ => None,
    };
    let text = text.unwrap_or("").trim_start();
    text.chars().take(64).collect()
}

fn is_call(kind: &str) -> bool {
    kind.ends_with("tool_use") || matches!(kind, "tool_call" | "tool-call")
}

fn is_result(kind: &str) -> bool {
    kind.ends_with("tool_result") || kind == "tool-result"
}

/// An answer, and the calls that it asks for. Tools that the API runs itself answer within it.
fn answer(
    content: &mut Value,
    key: &str,
    conversation: &mut Conversation,
    strict: bool,
    on_call: OnCall<'_>,
) -> Vec<FrameRequest> {
    let mut frames = vec![conversation.answer(key)];
    let Value::Array(blocks) = content else {
        take_content(content, &mut frames[0], "text", strict);
        return frames;
    };
    for (index, block) in blocks.iter_mut().enumerate() {
        let kind = type_of(block).to_owned();
        if is_call(&kind) {
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            let key_of_call = format!("{key}/call/{}", index + 1);
            let name = block.get("name").cloned();
            let mut call = conversation.call(key_of_call, id.as_deref(), name.as_ref());
            call.link("derived_from", key);
            on_call(block, &mut call);
            let plan = block
                .get("input")
                .and_then(|input| plan(input, &call, conversation));
            if let Some(input) = block.get_mut("input") {
                extract(input, &mut call, "arguments", strict);
            }
            frames.push(call);
            frames.extend(plan);
        } else if is_result(&kind) {
            let key = format!("{key}/result/{}", index + 1);
            frames.push(result(block, key, conversation, strict));
        } else {
            take_block(block, &mut frames[0], "text", strict);
        }
    }
    frames
}

/// Results of tools; what else the message says is a note beside them.
fn results(
    content: &mut Value,
    key: &str,
    conversation: &mut Conversation,
    strict: bool,
) -> Vec<FrameRequest> {
    let mut frames: Vec<FrameRequest> = Vec::new();
    let mut note = conversation.classed("observation", "user_note", format!("{key}/note"));
    note.put("speaker", "user");
    for (index, block) in content.as_array_mut().into_iter().flatten().enumerate() {
        if !is_result(type_of(block)) {
            take_block(block, &mut note, "text", strict);
            continue;
        }
        let key = if frames.is_empty() {
            key.to_owned()
        } else {
            format!("{key}/result/{}", index + 1)
        };
        frames.push(result(block, key, conversation, strict));
    }
    if !note.payloads.is_empty() {
        frames.push(note);
    }
    frames
}

fn result(
    block: &mut Value,
    key: String,
    conversation: &mut Conversation,
    strict: bool,
) -> FrameRequest {
    let id = ["tool_use_id", "tool_call_id"]
        .into_iter()
        .find_map(|name| block.get(name)?.as_str());
    let (mut frame, call) = conversation.result(key, id);
    if call.is_none_or(|call| call.name.is_none()) {
        frame.copy(block, "name", "name");
    }
    match block.get("is_error").and_then(Value::as_bool) {
        Some(true) => frame.put("status", "error"),
        Some(false) => frame.put("status", "ok"),
        // Left out: the writer does not say.
        None => &mut frame,
    };
    if let Some(content) = block.get_mut("content") {
        take_result(content, &mut frame, strict);
    }
    frame
}
