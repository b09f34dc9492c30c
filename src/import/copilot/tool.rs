//! Calls of tools, their results, and the files that they changed.

use serde_json::Value;

use super::{Part, Thread};
use crate::import::codex::patch;
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label};

/// A file that a call changes.
pub(super) type Change = patch::Change;

/// Tools that start a subagent.
const SPAWNING: [&str; 1] = ["task"];

/// Errors with which a call comes back that a person, or a rule, did not allow.
const DENIED: [&str; 3] = ["denied", "rejected", "permission_denied"];

/// The calls that a message of the model asks for. A call that started before its message was written
/// has its frame already.
pub(super) fn requests(thread: &mut Thread, part: &mut Part, frames: &mut Vec<FrameRequest>) {
    let mut requests = part
        .data
        .get_mut("toolRequests")
        .map(Value::take)
        .unwrap_or_default();
    for (index, request) in requests.as_array_mut().into_iter().flatten().enumerate() {
        let id = request
            .get("toolCallId")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if id
            .as_deref()
            .is_some_and(|id| thread.talk.waiting(id).is_some())
        {
            continue;
        }
        let key = format!("{}/call/{}", part.key, index + 1);
        let name = request.get("name").cloned();
        let mut call = call(thread, key, id, name.as_ref(), request.get("arguments"));
        call.link("derived_from", part.key.clone());
        if let Some(slot) = request.get_mut("arguments") {
            extract(slot, &mut call, "arguments", part.strict);
        }
        frames.push(call);
    }
    if let Some(slot) = part.data.get_mut("toolRequests") {
        *slot = requests;
    }
}

fn call(
    thread: &mut Thread,
    key: String,
    id: Option<String>,
    name: Option<&Value>,
    arguments: Option<&Value>,
) -> FrameRequest {
    let mut frame = thread.talk.call(key, id.as_deref(), name);
    let tool = name.and_then(Value::as_str).unwrap_or("");
    if let Some(id) = id {
        if SPAWNING.contains(&tool) {
            frame.linked_to = true;
            thread.spawning.insert(id.clone(), frame.key.clone());
        }
        let changes = arguments.and_then(|arguments| changes(tool, arguments));
        if let Some(changes) = changes {
            thread.changes.insert(id, changes);
        }
    }
    frame
}

/// The files that a call of this tool changes.
fn changes(tool: &str, arguments: &Value) -> Option<Vec<Change>> {
    let parsed = arguments
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    let arguments = parsed.as_ref().unwrap_or(arguments);
    let command = arguments.get("command").and_then(Value::as_str);
    let change = match (tool, command) {
        ("create", _) | ("str_replace_editor", Some("create")) => "create",
        ("edit" | "str_replace" | "insert", _) => "update",
        ("str_replace_editor", Some("str_replace" | "insert")) => "update",
        _ => return patch::of_call(Some(tool), arguments),
    };
    let path = arguments.get("path").and_then(Value::as_str)?.to_owned();
    Some(vec![Change {
        path,
        change,
        moved_to: None,
    }])
}

/// That a call started: an observation of it, or the call itself where no message told of it.
pub(super) fn starts(thread: &mut Thread, part: &mut Part) -> Vec<FrameRequest> {
    let id = part.text("toolCallId").map(str::to_owned);
    let waiting = id.as_deref().and_then(|id| thread.talk.waiting(id));
    let mut frame = match waiting.map(|call| call.key.clone()) {
        Some(call) => {
            let mut frame = thread
                .talk
                .classed("observation", "tool_started", &part.key);
            frame.copy(&part.data, "toolCallId", "tool_call_id");
            frame.link("observed_by", call);
            frame
        }
        None => {
            let name = part.data.get("toolName").cloned();
            let key = part.key.clone();
            call(thread, key, id, name.as_ref(), part.data.get("arguments"))
        }
    };
    for (from, to) in [("mcpServerName", "server"), ("mcpToolName", "mcp_tool")] {
        frame.copy(&part.data, from, to);
    }
    part.take("/arguments", &mut frame, "arguments");
    vec![frame]
}

/// That a call is complete.
pub(super) fn completes(thread: &mut Thread, part: &mut Part) -> Vec<FrameRequest> {
    let id = part.text("toolCallId").map(str::to_owned);
    let (mut frame, call) = thread.talk.result(&part.key, id.as_deref());
    let code = part.data.pointer("/error/code").and_then(Value::as_str);
    let status = match part.data.get("success").and_then(Value::as_bool) {
        _ if code.is_some_and(|code| DENIED.contains(&code)) => "denied",
        Some(true) => "ok",
        Some(false) => "error",
        None => "not stated",
    };
    frame
        .put("status", status)
        .copy(&part.data, "model", "model");
    let shown = part.data.pointer("/result/content").and_then(Value::as_str);
    if let Some(exit) = shown.and_then(exit) {
        frame.put("exit", exit);
    }
    for (pointer, name) in [
        ("/toolTelemetry/metrics/durationMs", "duration_ms"),
        ("/error/code", "error"),
    ] {
        if let Some(value) = part.data.pointer(pointer).and_then(label) {
            frame.put(name, value);
        }
    }
    let changes = id
        .and_then(|id| thread.changes.remove(&id))
        .unwrap_or_default();
    let mut after = Vec::new();
    if let Some(call) = call.filter(|_| status == "denied") {
        let key = format!("{}/decision", part.key);
        let mut decision = thread.talk.classed("decision", "tool_denied", key);
        decision.link("cancelled", call.key);
        after.push(decision);
    }
    for (index, change) in changes.iter().filter(|_| status == "ok").enumerate() {
        let key = format!("{}/file/{}", part.key, index + 1);
        let version = thread
            .talk
            .file_version(key, &change.path, change.change, &part.key);
        after.push(version);
    }
    // For whoever watches, the result of an edit is what it changed.
    let detail = part
        .data
        .pointer("/result/detailedContent")
        .and_then(Value::as_str);
    if let ([version], Some(detail)) = (after.as_mut_slice(), detail)
        && version.kind == "file_version"
        && (detail.starts_with("diff ") || detail.contains("\n@@ "))
    {
        part.take("/result/detailedContent", version, "patch");
    }
    for (pointer, name) in [
        ("/result/content", "result"),
        ("/result/detailedContent", "detail"),
        ("/result/contents", "contents"),
        ("/error/message", "error"),
    ] {
        let payload = part
            .data
            .pointer(pointer)
            .is_some_and(|value| value.get("$payload").is_some());
        if !payload {
            part.take(pointer, &mut frame, name);
        }
    }
    after.insert(0, frame);
    after
}

/// The exit code with which the result of a command ends.
fn exit(text: &str) -> Option<i64> {
    let line = text.trim_end().lines().next_back()?;
    let code = line
        .strip_prefix("<exited with exit code ")?
        .strip_suffix('>')?;
    code.parse().ok()
}
