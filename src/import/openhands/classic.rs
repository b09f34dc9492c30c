//! Events of the older server: actions and the observations that they cause.

use serde_json::Value;

use super::history::{History, Step};
use super::sdk::ended;
use crate::import::request::{FrameRequest, Turn};

/// Actions that are calls of tools.
const CALLS: &[&str] = &[
    "run",
    "run_ipython",
    "read",
    "write",
    "edit",
    "browse",
    "browse_interactive",
    "think",
    "finish",
    "reject",
    "delegate",
    "call_tool_mcp",
    "mcp",
    "task_tracking",
    "search",
    "push",
    "send_pr",
    "add_task",
    "modify_task",
];

/// Observations that answer a call.
const RESULTS: &[&str] = &[
    "run",
    "run_ipython",
    "read",
    "write",
    "edit",
    "browse",
    "think",
    "delegate",
    "mcp",
    "task_tracking",
    "search",
    "success",
    "error",
    "user_rejected",
    "file_download",
    "chat",
    "null",
];

/// Events beside the work, by action or observation: the kind and class of their frame.
const PLAIN: &[(&str, &str, &str)] = &[
    ("condensation", "context", "compacted"),
    ("condensation_request", "context", "compaction_requested"),
    ("condense", "context", "compacted"),
    ("summarize", "context", "compacted"),
    ("microagent", "retrieval", "result"),
    ("workspace_context", "retrieval", "result"),
    ("change_agent_state", "observation", "agent_state"),
    ("agent_state_changed", "observation", "agent_state"),
    ("loop_detection", "observation", "loop_detected"),
    ("loop_recovery", "observation", "loop_recovery"),
    ("start", "observation", "started"),
    ("initialize", "observation", "initialized"),
    ("pause", "observation", "paused"),
    ("resume", "observation", "resumed"),
    ("stop", "observation", "stopped"),
    ("null", "observation", "null"),
    ("server_ready", "observation", "server_ready"),
];

/// Whether this is an event of the older server, of a type that is known.
pub(super) fn is_event(value: &Value) -> bool {
    let text = |member: &str| value.get(member).and_then(Value::as_str);
    let plain = |name: &str| PLAIN.iter().any(|(known, ..)| *known == name);
    let action = |name: &str| {
        CALLS.contains(&name) || plain(name) || matches!(name, "system" | "message" | "recall")
    };
    let observation = |name: &str| RESULTS.contains(&name) || plain(name) || name == "recall";
    text("action").is_some_and(action) || text("observation").is_some_and(observation)
}

pub(super) fn map(history: &mut History, step: &mut Step<'_>) {
    let action = step.text("/action").map(str::to_owned);
    let observation = step.text("/observation").map(str::to_owned);
    match (action.as_deref(), observation.as_deref()) {
        (Some("system"), _) => {
            let mut frame = history
                .conversation
                .classed("context", "system_prompt", step.key);
            if let Some(args) = step.event.get("args") {
                frame.copy(args, "agent_class", "agent_class").copy(
                    args,
                    "openhands_version",
                    "agent_version",
                );
            }
            step.take("/args/content", &mut frame, "text");
            step.take("/args/tools", &mut frame, "tools");
            push(step, frame);
        }
        (Some("message"), _) => message(history, step),
        (Some(name), _) if CALLS.contains(&name) => call(history, step, name),
        (Some("recall"), _) => recall(history, step, "query"),
        (None, Some("recall")) => recall(history, step, "result"),
        (None, Some("agent_state_changed")) => state(history, step),
        (None, Some(name)) if RESULTS.contains(&name) => result(history, step, name),
        (action, observation) => {
            let name = action.or(observation).unwrap_or_default();
            plain(history, step, name);
        }
    }
}

/// Says which event the frame is of.
fn push(step: &mut Step<'_>, mut frame: FrameRequest) {
    frame.copy(step.event, "id", "event_id");
    step.push(frame);
}

fn plain(history: &History, step: &mut Step<'_>, name: &str) {
    let known = PLAIN.iter().find(|(plain, ..)| *plain == name);
    let (kind, class) = match known {
        Some((_, kind, class)) => (*kind, *class),
        None => {
            step.unmapped = true;
            ("observation", "unmapped")
        }
    };
    let mut frame = history.conversation.classed(kind, class, step.key);
    frame.speaker(step.event.get("source"));
    if let Some(args) = step.event.get("args") {
        frame.copy(args, "agent_state", "state");
    }
    step.take("/args/summary", &mut frame, "summary");
    step.take("/content", &mut frame, "text");
    push(step, frame);
}

fn message(history: &mut History, step: &mut Step<'_>) {
    let (mut frame, name) = match step.text("/source") {
        Some("user") => {
            history.ended = false;
            (history.conversation.prompt(step.key), "prompt")
        }
        Some("agent") => {
            request(history, step);
            let mut frame = history.conversation.answer(step.key);
            answer(step, &mut frame);
            (frame, "text")
        }
        _ => {
            let mut frame = history.conversation.classed("context", "message", step.key);
            frame.speaker(step.event.get("source"));
            (frame, "text")
        }
    };
    step.take("/args/content", &mut frame, name);
    step.take("/args/thought", &mut frame, "thinking");
    step.take("/args/image_urls", &mut frame, "images");
    push(step, frame);
}

const RESPONSE: &str = "/tool_call_metadata/model_response";

/// The request of the model that the event's answer tells of. An answer with several calls stands in the
/// event of each: only the first has the request. Answers the key of the answer's frame where it is known.
fn request(history: &mut History, step: &mut Step<'_>) -> Option<String> {
    let id = step.text(&format!("{RESPONSE}/id"))?.to_owned();
    if let Some((_, answer)) = history.answer.as_ref().filter(|(known, _)| *known == id) {
        return Some(answer.clone());
    }
    let mut frame = history
        .conversation
        .frame("model_call", step.part("request"));
    frame.put("revision", "not_identifiable");
    if let Some(response) = step.event.pointer(RESPONSE) {
        frame
            .copy(response, "model", "model")
            .copy(response, "id", "response_id");
    }
    step.push(frame);
    history.answer = Some((id, step.key.to_owned()));
    None
}

/// What the model's own response says about an answer.
fn answer(step: &mut Step<'_>, frame: &mut FrameRequest) {
    frame.put("revision", "not_identifiable");
    let Some(response) = step.event.pointer(RESPONSE) else {
        return;
    };
    frame.link("answers", step.part("request"));
    fill_answer(response, frame);
    step.take(RESPONSE, frame, "response");
}

/// The model, the reason of the end and the usage of a chat completion.
pub(super) fn fill_answer(response: &Value, frame: &mut FrameRequest) {
    frame
        .copy(response, "model", "model")
        .copy(response, "id", "response_id");
    if let Some(choice) = response.pointer("/choices/0") {
        frame.copy(choice, "finish_reason", "finish_reason");
    }
    frame.put_usage(response.get("usage"));
}

fn call(history: &mut History, step: &mut Step<'_>, action: &str) {
    let by_agent = step.text("/source") == Some("agent");
    let thought = step
        .text("/args/thought")
        .is_some_and(|text| !text.is_empty());
    let known = request(history, step);
    let from_model = step.event.pointer(RESPONSE).is_some();
    let (answer_key, key) = match known {
        Some(answer) => (Some(answer), step.key.to_owned()),
        None if by_agent && (thought || from_model) => {
            let mut frame = history.conversation.answer(step.key);
            answer(step, &mut frame);
            step.take("/args/thought", &mut frame, "text");
            push(step, frame);
            (Some(step.key.to_owned()), step.part("call"))
        }
        None => (None, step.key.to_owned()),
    };
    let name = step.event.pointer("/tool_call_metadata/function_name");
    let name = name.cloned().unwrap_or_else(|| action.into());
    let id = event_id(step.event.get("id"));
    let mut call = history.conversation.call(key, id.as_deref(), Some(&name));
    call.put("action", action);
    told_id(step, &mut call);
    if !by_agent {
        call.speaker(step.event.get("source"));
    }
    if let Some(answer) = answer_key {
        call.link("derived_from", answer);
    }
    step.take("/args", &mut call, "arguments");
    let key = call.key.clone();
    push(step, call);
    if matches!(action, "finish" | "reject") && !history.ended {
        history.ended = true;
        let mut outcome = history.conversation.frame("outcome", step.part("outcome"));
        let status = if action == "finish" {
            "completed"
        } else {
            "failed"
        };
        outcome.turn = Turn::Run;
        outcome.put("status", status).link("derived_from", key);
        step.push(outcome);
    }
}

/// The id under which a call waits: the event's number, which its observation names as the cause.
fn event_id(id: Option<&Value>) -> Option<String> {
    Some(id?.as_i64()?.to_string())
}

/// Puts the model's own id of the call in the place of the event's number.
fn told_id(step: &Step<'_>, frame: &mut FrameRequest) {
    frame.body.shift_remove("tool_call_id");
    if let Some(metadata) = step.event.get("tool_call_metadata") {
        frame.copy(metadata, "tool_call_id", "tool_call_id");
    }
}

fn result(history: &mut History, step: &mut Step<'_>, name: &str) {
    let cause = event_id(step.event.get("cause"));
    let waits = cause
        .as_deref()
        .is_some_and(|id| history.conversation.waiting(id).is_some());
    if !waits && matches!(name, "error" | "null") {
        let mut frame = history.conversation.classed("observation", name, step.key);
        told_id(step, &mut frame);
        step.take("/content", &mut frame, "text");
        return push(step, frame);
    }
    let (mut frame, call) = history.conversation.result(step.key, cause.as_deref());
    told_id(step, &mut frame);
    let exit = ["/extras/metadata/exit_code", "/extras/exit_code"]
        .into_iter()
        .find_map(|pointer| step.event.pointer(pointer)?.as_i64());
    let said = step.event.get("success").and_then(Value::as_bool);
    // The editor begins the text of what went wrong so, and says it nowhere else.
    let wrong = name == "error"
        || step
            .text("/content")
            .is_some_and(|text| text.starts_with("ERROR:"));
    let status = match (name, exit, said) {
        ("user_rejected", ..) => "denied",
        _ if wrong => "error",
        // A command that did not end has -1.
        (_, Some(exit), _) if exit >= 0 => {
            if exit == 0 {
                "ok"
            } else {
                "error"
            }
        }
        (_, _, Some(true)) | ("success", ..) => "ok",
        (_, _, Some(false)) => "error",
        _ => "not stated",
    };
    frame.put("status", status);
    if let Some(exit) = exit.filter(|exit| *exit >= 0) {
        frame.put("exit", exit);
    }
    let version = file_version(history, step, name, status);
    step.take("/content", &mut frame, "result");
    let key = frame.key.clone();
    push(step, frame);
    if let Some(version) = version {
        step.push(version);
    }
    if status == "denied" {
        let key_part = step.part("decision");
        let mut decision = history
            .conversation
            .classed("decision", "tool_denied", key_part);
        decision.put("speaker", "user");
        match call {
            Some(call) => decision.link("cancelled", call.key),
            None => decision.link("derived_from", key),
        };
        step.push(decision);
    }
}

/// The file that was edited. An observation of `write` names its file only: what was written is an argument
/// of the call.
fn file_version(
    history: &mut History,
    step: &mut Step<'_>,
    name: &str,
    status: &str,
) -> Option<FrameRequest> {
    let path = step.text("/extras/path")?.to_owned();
    if !matches!(name, "edit" | "write") || status == "error" || status == "denied" {
        return None;
    }
    // The editor says `prev_exist: false` of every file: only without content before is it new.
    let existed = step.event.pointer("/extras/prev_exist");
    let before = step.text("/extras/old_content").unwrap_or_default();
    let change = match existed.and_then(Value::as_bool) {
        Some(false) if before.is_empty() => "create",
        _ => "update",
    };
    let key = step.part("file");
    let mut version = history
        .conversation
        .file_version(key, &path, change, step.key);
    step.take("/extras/old_content", &mut version, "before");
    step.take("/extras/new_content", &mut version, "after");
    step.take("/extras/diff", &mut version, "patch");
    Some(version)
}

/// What was looked up for the agent: the question and, as the observation that it causes, what was found.
fn recall(history: &mut History, step: &mut Step<'_>, class: &str) {
    let mut frame = history.conversation.frame("retrieval", step.key);
    frame.put("phase", if class == "query" { "begin" } else { "end" });
    let side = if class == "query" { "args" } else { "extras" };
    if let Some(members) = step.event.get(side) {
        frame.copy(members, "recall_type", "retriever");
    }
    if class == "query" {
        step.take("/args/query", &mut frame, "query");
    } else {
        step.take("/content", &mut frame, "text");
        step.take("/extras", &mut frame, "chunks");
    }
    push(step, frame);
}

/// A change of the agent's state. Where it is an end, that is the outcome.
fn state(history: &mut History, step: &mut Step<'_>) {
    let state = step.text("/extras/agent_state").unwrap_or_default();
    history.ended &= state != "running";
    let status = ended(state).filter(|_| !history.ended);
    let mut frame = match status {
        Some(status) => {
            history.ended = true;
            let mut frame = history.conversation.frame("outcome", step.key);
            frame.turn = Turn::Run;
            frame.put("status", status);
            frame
        }
        None => history
            .conversation
            .classed("observation", "agent_state", step.key),
    };
    if let Some(extras) = step.event.get("extras") {
        frame.copy(extras, "agent_state", "state");
    }
    step.take("/extras/reason", &mut frame, "reason");
    push(step, frame);
}
