//! Events of the SDK, told by their `kind`.

use serde_json::Value;

use super::history::{History, Step};
use crate::import::request::{FrameRequest, Turn, label};

/// Events that are only kept: their kind here, and the kind and class of their frame.
const PLAIN: &[(&str, &str, &str)] = &[
    ("CondensationRequest", "context", "compaction_requested"),
    ("PauseEvent", "observation", "paused"),
    ("InterruptEvent", "observation", "interrupted"),
    ("TokenEvent", "observation", "tokens"),
    ("HookExecutionEvent", "observation", "hook"),
    ("LLMCompletionLogEvent", "observation", "completion_log"),
    ("StreamingDeltaEvent", "observation", "streaming_delta"),
];

/// Events with a mapping of their own.
const KINDS: &[&str] = &[
    "MessageEvent",
    "ActionEvent",
    "ObservationEvent",
    "UserRejectObservation",
    "AgentErrorEvent",
    "SystemPromptEvent",
    "Condensation",
    "CondensationSummaryEvent",
    "ConversationStateUpdateEvent",
    "ConversationErrorEvent",
    "ServerErrorEvent",
    "ACPToolCallEvent",
];

/// Whether this is an event of the SDK: all kinds but the condensations' end so, and newer ones may come.
pub(super) fn is_event(value: &Value) -> bool {
    let Some(kind) = value.get("kind").and_then(Value::as_str) else {
        return false;
    };
    let named = KINDS.contains(&kind) || PLAIN.iter().any(|(name, ..)| *name == kind);
    named || kind.ends_with("Event") && value.get("source").is_some_and(Value::is_string)
}

pub(super) fn map(history: &mut History, step: &mut Step<'_>) {
    let kind = step.text("/kind").unwrap_or_default().to_owned();
    if let Some((_, frame, class)) = PLAIN.iter().find(|(name, ..)| *name == kind) {
        let mut frame = history.conversation.classed(frame, class, step.key);
        frame
            .speaker(step.event.get("source"))
            .copy(step.event, "reason", "reason")
            .copy(step.event, "hook_event_type", "event")
            .copy(step.event, "tool_name", "name")
            .copy(step.event, "success", "success")
            .copy(step.event, "model_name", "model");
        return step.push(frame);
    }
    match kind.as_str() {
        "MessageEvent" => message(history, step),
        "ActionEvent" => action(history, step),
        "ObservationEvent" => observation(history, step),
        "UserRejectObservation" => rejection(history, step),
        "AgentErrorEvent" => agent_error(history, step),
        "ACPToolCallEvent" => acp_call(history, step),
        "ConversationStateUpdateEvent" => state(history, step),
        "SystemPromptEvent" => {
            let mut frame = context(history, "system_prompt", step);
            step.take("/system_prompt/text", &mut frame, "text");
            step.take("/dynamic_context/text", &mut frame, "dynamic_context");
            step.take("/tools", &mut frame, "tools");
            step.push(frame);
        }
        "Condensation" => {
            let mut frame = context(history, "compacted", step);
            let forgotten = step.event.get("forgotten_event_ids");
            if let Some(forgotten) = forgotten.and_then(Value::as_array) {
                frame.put("forgotten", forgotten.len());
            }
            frame.copy(step.event, "llm_response_id", "response_id");
            step.take("/summary", &mut frame, "summary");
            step.push(frame);
        }
        "CondensationSummaryEvent" => {
            let mut frame = context(history, "compact_summary", step);
            step.take("/summary", &mut frame, "summary");
            step.push(frame);
        }
        "ConversationErrorEvent" | "ServerErrorEvent" => {
            let mut frame = history
                .conversation
                .classed("observation", "error", step.key);
            frame.copy(step.event, "code", "code");
            step.take("/detail", &mut frame, "text");
            step.push(frame);
        }
        _ => {
            step.unmapped = true;
            let mut frame = history
                .conversation
                .classed("observation", "unmapped", step.key);
            frame.copy(step.event, "kind", "type");
            step.push(frame);
        }
    }
}

fn context(history: &History, class: &str, step: &Step<'_>) -> FrameRequest {
    let mut frame = history.conversation.classed("context", class, step.key);
    frame.speaker(step.event.get("source"));
    frame
}

fn message(history: &mut History, step: &mut Step<'_>) {
    let source = step.text("/source").unwrap_or_default().to_owned();
    let (mut frame, name) = match source.as_str() {
        "user" => {
            history.ended = false;
            (history.conversation.prompt(step.key), "prompt")
        }
        "agent" => (history.conversation.answer(step.key), "text"),
        _ => {
            let mut frame = history.conversation.classed("context", "message", step.key);
            frame.speaker(step.event.get("source"));
            (frame, "text")
        }
    };
    frame
        .copy(step.event, "llm_response_id", "response_id")
        .copy(step.event, "sender", "sender");
    step.take("/llm_message/content", &mut frame, name);
    step.take("/llm_message/reasoning_content", &mut frame, "thinking");
    step.take(
        "/llm_message/thinking_blocks",
        &mut frame,
        "thinking_blocks",
    );
    step.take("/extended_content", &mut frame, "extended");
    step.push(frame);
}

/// What the model answered, and the call in it. The calls of one answer are an event each, and only the
/// first of them has what was said.
fn action(history: &mut History, step: &mut Step<'_>) {
    let response = step.text("/llm_response_id").map(str::to_owned);
    let told = |step: &Step<'_>, member: &str| match step.event.get(member) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    };
    let silent = !["thought", "reasoning_content", "thinking_blocks"]
        .into_iter()
        .any(|member| told(step, member));
    let same = history
        .answer
        .as_ref()
        .filter(|(id, _)| silent && response.as_deref() == Some(id.as_str()));
    let (answer, key) = match same {
        Some((_, answer)) => (answer.clone(), step.key.to_owned()),
        None => {
            let mut frame = history.conversation.answer(step.key);
            frame.put("revision", "not_identifiable").copy(
                step.event,
                "llm_response_id",
                "response_id",
            );
            step.take("/thought", &mut frame, "text");
            step.take("/reasoning_content", &mut frame, "thinking");
            step.take("/thinking_blocks", &mut frame, "thinking_blocks");
            step.push(frame);
            history.answer = response.map(|id| (id, step.key.to_owned()));
            (step.key.to_owned(), step.part("call"))
        }
    };
    let id = step.text("/tool_call_id").map(str::to_owned);
    let name = step.event.get("tool_name").and_then(label);
    let mut call = history.conversation.call(key, id.as_deref(), name.as_ref());
    call.link("derived_from", answer)
        .copy(step.event, "security_risk", "security_risk");
    if step.event.get("action").is_none_or(Value::is_null) {
        call.put("executable", false);
    }
    step.take("/tool_call/arguments", &mut call, "arguments");
    step.take("/action", &mut call, "action");
    step.push(call);
}

fn observation(history: &mut History, step: &mut Step<'_>) {
    let id = step.text("/tool_call_id").map(str::to_owned);
    let (mut frame, _) = history.conversation.result(step.key, id.as_deref());
    frame.copy(step.event, "tool_name", "name");
    let at = |pointer: &str| step.event.pointer(pointer);
    let exit = at("/observation/exit_code").filter(|exit| exit.is_i64());
    let exit = exit.or_else(|| {
        // A command that did not end has -1 here.
        at("/observation/metadata/exit_code").filter(|exit| exit.as_i64() >= Some(0))
    });
    let failed = at("/observation/is_error").and_then(Value::as_bool);
    let failed_exit = exit.map(|exit| exit.as_i64() != Some(0));
    let status = match (failed, failed_exit) {
        (Some(true), _) | (_, Some(true)) => "error",
        (Some(false), _) | (_, Some(false)) => "ok",
        (None, None) => "not stated",
    };
    frame.put("status", status);
    if let Some(exit) = exit.and_then(label) {
        frame.put("exit", exit);
    }
    if at("/observation/timeout").and_then(Value::as_bool) == Some(true) {
        frame.put("timed_out", true);
    }
    let version = file_version(history, step, status);
    for member in ["content", "output"] {
        step.take(&format!("/observation/{member}"), &mut frame, "result");
    }
    step.take("/extended_content", &mut frame, "extended");
    step.push(frame);
    if let Some(version) = version {
        step.push(version);
    }
}

/// The file that an editor's observation says was changed.
fn file_version(history: &mut History, step: &mut Step<'_>, status: &str) -> Option<FrameRequest> {
    let path = step.text("/observation/path")?.to_owned();
    let changed = step.text("/observation/new_content").is_some()
        && step.text("/observation/command") != Some("view");
    if !changed || status == "error" {
        return None;
    }
    let existed = step.event.pointer("/observation/prev_exist");
    let change = match existed.and_then(Value::as_bool) {
        Some(false) => "create",
        _ => "update",
    };
    let key = step.part("file");
    let mut version = history
        .conversation
        .file_version(key, &path, change, step.key);
    step.take("/observation/old_content", &mut version, "before");
    step.take("/observation/new_content", &mut version, "after");
    Some(version)
}

fn rejection(history: &mut History, step: &mut Step<'_>) {
    let id = step.text("/tool_call_id").map(str::to_owned);
    let (mut frame, call) = history.conversation.result(step.key, id.as_deref());
    frame
        .put("status", "denied")
        .copy(step.event, "tool_name", "name");
    step.take("/rejection_reason", &mut frame, "result");
    let mut decision =
        history
            .conversation
            .classed("decision", "tool_denied", step.part("decision"));
    let by_hook = step.text("/rejection_source") == Some("hook");
    decision.put("speaker", if by_hook { "program" } else { "user" });
    if let Some(call) = call {
        decision.link("cancelled", call.key);
    }
    step.push(frame);
    step.push(decision);
}

/// An error that the agent's program answers a call with.
fn agent_error(history: &mut History, step: &mut Step<'_>) {
    let id = step.text("/tool_call_id").map(str::to_owned);
    let waits = id
        .as_deref()
        .is_some_and(|id| history.conversation.waiting(id).is_some());
    let mut frame = if waits {
        let (mut frame, _) = history.conversation.result(step.key, id.as_deref());
        frame.put("status", "error");
        frame
    } else {
        history
            .conversation
            .classed("observation", "error", step.key)
    };
    frame.copy(step.event, "tool_name", "name");
    let name = if waits { "error" } else { "text" };
    step.take("/error", &mut frame, name);
    step.push(frame);
}

/// A call that an agent behind the Agent Client Protocol made. Each change of it is an event: the first is
/// the call, and one that says it is done the result.
fn acp_call(history: &mut History, step: &mut Step<'_>) {
    let id = step.text("/tool_call_id").map(str::to_owned);
    let status = step.text("/status").unwrap_or_default();
    let done = matches!(status, "completed" | "failed");
    let failed =
        status == "failed" || step.event.get("is_error").and_then(Value::as_bool) == Some(true);
    let waits = id
        .as_deref()
        .is_some_and(|id| history.conversation.waiting(id).is_some());
    if !waits {
        let name = step.event.get("tool_kind").and_then(label);
        let mut call = history
            .conversation
            .call(step.key, id.as_deref(), name.as_ref());
        call.copy(step.event, "parent_tool_call_id", "parent_tool_call_id");
        step.take("/title", &mut call, "title");
        step.take("/raw_input", &mut call, "arguments");
        step.push(call);
    }
    let key = if waits {
        step.key.to_owned()
    } else {
        step.part("result")
    };
    if done {
        let (mut frame, _) = history.conversation.result(key, id.as_deref());
        frame.put("status", if failed { "error" } else { "ok" });
        step.take("/raw_output", &mut frame, "result");
        step.take("/content", &mut frame, "content");
        step.push(frame);
    } else if waits {
        let mut frame = history
            .conversation
            .classed("observation", "tool_progress", key);
        frame
            .copy(step.event, "tool_call_id", "tool_call_id")
            .copy(step.event, "status", "status");
        step.push(frame);
    }
}

/// A change of the conversation's state. Where it says that the agent ended, that is the outcome.
fn state(history: &mut History, step: &mut Step<'_>) {
    let name = step.text("/key").unwrap_or_default().to_owned();
    let value = step.text("/value").unwrap_or_default().to_owned();
    let status = matches!(name.as_str(), "execution_status" | "agent_status")
        .then(|| ended(&value))
        .flatten();
    // Whoever runs again ends again.
    history.ended &= value != "running";
    let mut frame = match (status, name.as_str()) {
        (Some(status), _) if !history.ended => {
            history.ended = true;
            let mut frame = history.conversation.frame("outcome", step.key);
            frame.turn = Turn::Run;
            frame.put("status", status);
            frame
        }
        (_, "full_state") => {
            history
                .conversation
                .classed("snapshot", "conversation_state", step.key)
        }
        (_, "stats") => history
            .conversation
            .classed("observation", "stats", step.key),
        _ => history
            .conversation
            .classed("observation", "state", step.key),
    };
    frame
        .copy(step.event, "key", "key")
        .copy(step.event, "value", "value");
    if step.event.get("value").is_some_and(Value::is_object) {
        step.take("/value", &mut frame, "state");
    }
    step.push(frame);
}

/// The outcome that a state of the agent is, where it is an end.
pub(super) fn ended(state: &str) -> Option<&'static str> {
    match state {
        "finished" => Some("completed"),
        "error" | "stuck" | "rejected" => Some("failed"),
        "stopped" => Some("cancelled"),
        _ => None,
    }
}
