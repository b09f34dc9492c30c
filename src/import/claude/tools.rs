//! Calls of tools, their results, and the files that they changed.

use serde_json::Value;

use super::entry::{Entry, Mapped};
use super::thread::{Call, Thread};
use crate::import::blocks::{self, first_text, take_block, type_of};
use crate::import::payload::Payload;
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label};
use crate::import::text::is_label;

/// Tools that start a subagent.
const SUBAGENT_TOOLS: [&str; 2] = ["Task", "Agent"];

/// Fills a `tool_call` from a block that asks for a tool.
pub(super) fn take_call(
    block: &mut Value,
    call: &mut FrameRequest,
    thread: &mut Thread,
    strict: bool,
) {
    let tool = block.get("name").and_then(Value::as_str).map(str::to_owned);
    call.copy(block, "name", "name")
        .copy(block, "id", "tool_call_id");
    let subagent = tool
        .as_deref()
        .is_some_and(|tool| SUBAGENT_TOOLS.contains(&tool));
    let prompt = block.pointer("/input/prompt").and_then(Value::as_str);
    let prompt = prompt.filter(|_| subagent).map(str::to_owned);
    call.linked_to = subagent;
    if let Some(id) = block.get("id").and_then(Value::as_str) {
        let key = call.key.clone();
        thread
            .calls
            .insert(id.to_owned(), Call { key, tool, prompt });
    }
    if let Some(input) = block.get_mut("input") {
        extract(input, call, "arguments", strict);
    }
}

/// Fills a `tool_result` from a block, and answers the call that it belongs to.
pub(super) fn take_result(
    block: &mut Value,
    mut result: FrameRequest,
    thread: &mut Thread,
    strict: bool,
) -> (FrameRequest, Option<Call>) {
    let id = block.get("tool_use_id").and_then(Value::as_str);
    let call = id.and_then(|id| thread.calls.remove(id));
    result.copy(block, "tool_use_id", "tool_call_id");
    if let Some(call) = &call {
        result.link("answers", call.key.clone());
        if let Some(tool) = call
            .tool
            .as_ref()
            .and_then(|tool| label(&tool.as_str().into()))
        {
            result.put("name", tool);
        }
    }
    let failed = block.get("is_error").and_then(Value::as_bool) == Some(true);
    result.put("status", if failed { "error" } else { "ok" });
    if let Some(content) = block.get_mut("content") {
        if let Some(exit) = exit_code(&first_text(content)).filter(|_| failed) {
            result.put("exit", exit);
        }
        blocks::take_result(content, &mut result, strict);
    }
    (result, call)
}

/// `Exit code N`, with which the results of failed commands begin.
fn exit_code(text: &str) -> Option<i32> {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    let digits = text.strip_prefix("Exit code ")?;
    digits
        .split(|one: char| !one.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// A `user` record that brings results of tools.
pub(super) fn results(entry: &mut Entry, thread: &mut Thread) -> Mapped {
    let strict = entry.record.strict();
    let mut detail = entry.value().get_mut("toolUseResult").map(Value::take);
    let denial = entry.record.value.get("toolDenialKind").and_then(label);
    let named = entry.text("sourceToolUseID").map(str::to_owned);
    let mut content = entry.value()["message"]["content"].take();
    let mut mapped = Mapped::many(Vec::new());
    let mut told = false;
    for (index, block) in content.as_array_mut().into_iter().flatten().enumerate() {
        // The first frame carries the record's own key, whatever kind it is.
        let part = |kind: &str| match index {
            0 => String::new(),
            index => format!("{kind}/{}", index + 1),
        };
        if type_of(block) != "tool_result" {
            let mut note = entry.frame("observation", &part("note"), thread);
            note.put("observation", "user_note").put("speaker", "user");
            take_block(block, &mut note, "text", strict);
            mapped.frames.push(note);
            continue;
        }
        let refused = first_text(&block["content"]).starts_with("The user doesn't want to");
        let frame = entry.frame("tool_result", &part("result"), thread);
        let (mut frame, mut call) = take_result(block, frame, thread, strict);
        if let Some(id) = named
            .as_deref()
            .filter(|_| block.get("tool_use_id").is_none())
        {
            frame.copy(&entry.record.value, "sourceToolUseID", "tool_call_id");
            call = thread.calls.remove(id);
            if let Some(call) = &call {
                frame.link("answers", call.key.clone());
            }
        }
        let mut after = Vec::new();
        // The account of the program is one for the record: it goes with the first result.
        if let Some(detail) = detail.as_mut().filter(|detail| detail.is_object() && !told) {
            told = true;
            take_detail(entry, detail, &mut frame, &mut after, thread);
            let agent = detail.get("agentId").and_then(Value::as_str);
            mapped.subagent =
                agent.map(|agent| (agent.to_owned(), call.as_ref().map(|call| call.key.clone())));
        }
        if denial.is_some() || refused {
            frame.put("status", "denied");
            after.push(denied(entry, index, denial.as_ref(), call.as_ref(), thread));
        }
        mapped.frames.push(frame);
        mapped.frames.append(&mut after);
    }
    let value = entry.value();
    value["message"]["content"] = content;
    if let Some(detail) = detail {
        value["toolUseResult"] = detail;
    }
    mapped
}

/// A person, or a rule, did not let the tool run.
fn denied(
    entry: &Entry,
    index: usize,
    denial: Option<&Value>,
    call: Option<&Call>,
    thread: &Thread,
) -> FrameRequest {
    let mut decision = entry.frame("decision", &format!("decision/{}", index + 1), thread);
    decision.put("decision", "tool_denied");
    if let Some(denial) = denial {
        decision.put("reason", denial.clone());
    }
    let rule = denial
        .and_then(Value::as_str)
        .is_some_and(|denial| !denial.starts_with("user"));
    decision.put("speaker", if rule { "program" } else { "user" });
    if let Some(call) = call {
        decision.link("cancelled", call.key.clone());
    }
    decision
}

/// The program's own account of a result (`toolUseResult`): counts into the body, changed files into
/// `file_version` frames, and the rest into the payload `detail`.
fn take_detail(
    entry: &Entry,
    detail: &mut Value,
    result: &mut FrameRequest,
    after: &mut Vec<FrameRequest>,
    thread: &mut Thread,
) {
    let members = [
        ("exitCode", "exit"),
        ("interrupted", "interrupted"),
        ("durationMs", "duration_ms"),
        ("totalDurationMs", "duration_ms"),
        ("totalTokens", "tokens"),
        ("totalToolUseCount", "tool_calls"),
        ("agentId", "agent_id"),
        ("numFiles", "files"),
        ("truncated", "truncated"),
    ];
    for (from, to) in members {
        result.copy(detail, from, to);
    }
    let failed = result.body.get("status") == Some(&Value::from("error"));
    if let Some(version) = (!failed)
        .then(|| file_version(entry, detail, result, thread))
        .flatten()
    {
        after.push(version);
    }
    for member in ["stdout", "stderr"] {
        if let Some(slot) = detail.get_mut(member) {
            extract(slot, result, member, entry.record.strict());
        }
    }
}

/// The version of a file that an edit wrote, as far as the transcript tells it.
fn file_version(
    entry: &Entry,
    detail: &mut Value,
    result: &FrameRequest,
    thread: &mut Thread,
) -> Option<FrameRequest> {
    let path = ["filePath", "notebook_path"]
        .into_iter()
        .find_map(|name| detail.get(name)?.as_str());
    let path = path?.to_owned();
    let edit = [
        "structuredPatch",
        "originalFile",
        "original_file",
        "updated_file",
    ];
    if !edit.into_iter().any(|name| detail.get(name).is_some()) {
        return None;
    }
    let mut version = entry.frame("file_version", "file", thread);
    if is_label(&path, 1_024) {
        version.put("path", path.as_str());
    } else {
        version.attach(Payload::text("path", path.clone()));
    }
    let created = type_of(detail) == "create";
    version.put("change", if created { "create" } else { "update" });
    version.link("derived_from", result.key.clone());
    if let Some(before) = thread.files.insert(path, version.key.clone()) {
        version.link("replaced", before);
    }
    let parts = [
        ("originalFile", "before"),
        ("original_file", "before"),
        ("content", "after"),
        ("updated_file", "after"),
        ("structuredPatch", "patch"),
    ];
    for (member, name) in parts {
        if let Some(slot) = detail.get_mut(member) {
            extract(slot, &mut version, name, entry.record.strict());
        }
    }
    Some(version)
}

/// A `tool_use` record of its own, as very old versions wrote it.
pub(super) fn lone_call(entry: &mut Entry, thread: &mut Thread) -> Mapped {
    let strict = entry.record.strict();
    let mut call = entry.frame("tool_call", "", thread);
    take_call(entry.value(), &mut call, thread, strict);
    Mapped::one(call)
}

/// A `tool_result` record of its own.
pub(super) fn lone_result(entry: &mut Entry, thread: &mut Thread) -> Mapped {
    let strict = entry.record.strict();
    let frame = entry.frame("tool_result", "", thread);
    let (mut frame, _) = take_result(entry.value(), frame, thread, strict);
    frame.copy(&entry.record.value, "name", "name");
    if let Some(output) = entry.value().get_mut("output") {
        extract(output, &mut frame, "result", strict);
    }
    Mapped::one(frame)
}
