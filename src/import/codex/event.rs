//! Events: what the program told whoever watched it.

use serde_json::Value;

use super::events::{EVENTS, MEMBERS};
use super::item::{prompt, said, take_content};
use super::prompt::Source;
use super::tool::{Told, begins, ends};
use super::{Part, Rollout, state, type_of};
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label, object, usage};

/// Events of a call that have `_begin` and `_end`, with the tool that they are about.
const CALLS: [(&str, &str); 10] = [
    ("exec_command", "exec_command"),
    ("patch_apply", "apply_patch"),
    ("mcp_tool_call", "mcp_tool"),
    ("dynamic_tool_call", "dynamic_tool"),
    ("image_generation", "image_generation"),
    ("collab_agent_spawn", "spawn_agent"),
    ("collab_agent_interaction", "send_input"),
    ("collab_waiting", "wait"),
    ("collab_close", "close_agent"),
    ("collab_resume", "resume_agent"),
];

/// Items of a turn that are calls of tools.
const CALL_ITEMS: [(&str, &str); 9] = [
    ("CommandExecution", "exec_command"),
    ("FileChange", "apply_patch"),
    ("McpToolCall", "mcp_tool"),
    ("DynamicToolCall", "dynamic_tool"),
    ("CollabAgentToolCall", "collab_agent"),
    ("ImageView", "view_image"),
    ("ImageGeneration", "image_generation"),
    ("CollabToolCall", "collab_agent"),
    ("Sleep", "sleep"),
];

/// An event.
pub(super) fn map(rollout: &mut Rollout, part: &mut Part) -> Option<Vec<FrameRequest>> {
    let kind = type_of(&part.value).to_owned();
    if kind == "user_message" {
        let said = part.text("message").unwrap_or("").to_owned();
        let mut frame = prompt(rollout, part, &said, "message", Source::Event);
        let images = part.value.get("images").and_then(Value::as_array);
        if images.is_some_and(|images| !images.is_empty()) {
            part.take("images", &mut frame, "images");
        }
        return Some(vec![frame]);
    }
    if kind == "item_completed" {
        return completed(rollout, part);
    }
    if kind == "web_search_end" {
        return Some(vec![searched(rollout, part)]);
    }
    if let Some((class, name, begin)) = call_event(&kind) {
        let told = told(part, class, name);
        child(rollout, part, told.id.as_deref());
        let frames = if begin {
            begins(rollout, part, told)
        } else {
            ends(rollout, part, told)
        };
        return Some(frames);
    }
    let (_, frame, class, payloads) = EVENTS.iter().find(|(name, ..)| *name == kind)?;
    let mut frame = rollout.talk.classed(frame, class, part.key.clone());
    for (from, to) in MEMBERS {
        frame.copy(&part.value, from, to);
    }
    match kind.as_str() {
        "token_count" | "turn.completed" => take_usage(&mut frame, &part.value),
        "turn_aborted" => {
            frame.copy(&part.value, "reason", "reason");
        }
        "error" | "stream_error" => {
            frame.put("error", kind.as_str());
        }
        "plan_update" => {
            frame.put("speaker", "model");
        }
        "sub_agent_activity" => child(rollout, part, None),
        "thread_settings_applied" => applied(rollout, part, &mut frame),
        _ if frame.kind == "decision" => {
            frame.put("speaker", "program");
            if let Some(status) = frame.body.shift_remove("status") {
                frame.put("selected", status);
            }
            let id = ["call_id", "target_item_id"]
                .into_iter()
                .find_map(|name| part.text(name));
            if let Some(call) = id.and_then(|id| rollout.talk.waiting(id)) {
                frame.link("derived_from", call.key.clone());
            }
        }
        _ => {}
    }
    for (from, to) in *payloads {
        part.take(from, &mut frame, to);
    }
    Some(vec![frame])
}

/// The class of an event of a call, its tool, and whether it begins.
fn call_event(kind: &str) -> Option<(&'static str, &'static str, bool)> {
    if kind == "view_image_tool_call" {
        return Some(("view_image", "view_image", false));
    }
    let (stem, begin) = match kind.rsplit_once('_')? {
        (stem, "begin" | "request") => (stem, true),
        (stem, "end" | "response") => (stem, false),
        _ => return None,
    };
    let (class, name) = CALLS.iter().find(|(name, _)| *name == stem)?;
    Some((class, name, begin))
}

fn told<'a>(part: &Part, class: &'a str, name: &str) -> Told<'a> {
    let id = ["call_id", "callId", "id"]
        .into_iter()
        .find_map(|name| part.text(name));
    let tool = ["/invocation/tool", "/tool"]
        .into_iter()
        .find_map(|name| part.value.pointer(name));
    Told {
        id: id.map(str::to_owned),
        name: tool.and_then(label).unwrap_or_else(|| name.into()),
        class,
    }
}

/// The session that a call started, or that an activity is of.
fn child(rollout: &Rollout, part: &mut Part, call: Option<&str>) {
    let id = ["new_thread_id", "agent_thread_id"]
        .into_iter()
        .find_map(|name| part.text(name));
    let Some(id) = id.map(str::to_owned) else {
        return;
    };
    // Only a call that was expected to start a session can be pointed to from another run.
    let call = call.and_then(|call| rollout.talk.waiting(call));
    let call = call.filter(|call| call.name == Some("spawn_agent".into()));
    part.child = Some((id, call.map(|call| call.key.clone())));
}

fn take_usage(frame: &mut FrameRequest, value: &Value) {
    let info = value.get("info").unwrap_or(&Value::Null);
    // As the first versions had it.
    let old = object([
        ("input_tokens", info["prompt"].clone()),
        ("output_tokens", info["completion"].clone()),
    ]);
    let members = [
        (
            info.get("last_token_usage")
                .or_else(|| value.get("usage"))
                .or(Some(&old)),
            "usage",
        ),
        (info.get("total_token_usage"), "usage_total"),
    ];
    for (counts, name) in members {
        let counts = counts.map(usage).unwrap_or_default();
        if !counts.is_empty() {
            frame.put(name, counts);
        }
    }
    frame.copy(info, "model_context_window", "context_window");
}

/// Settings that hold from now on.
fn applied(rollout: &mut Rollout, part: &mut Part, frame: &mut FrameRequest) {
    let Some(settings) = part.value.get_mut("thread_settings").map(Value::take) else {
        return;
    };
    if let Some(model) = settings.get("model").and_then(label) {
        rollout.model = Some(model);
    }
    let outer = std::mem::replace(&mut part.value, settings);
    state::settings(frame, part);
    let settings = std::mem::replace(&mut part.value, outer);
    part.value["thread_settings"] = settings;
}

/// What a search on the web found.
fn searched(rollout: &Rollout, part: &mut Part) -> FrameRequest {
    let mut frame = rollout.talk.frame("retrieval", part.key.clone());
    frame.put("retriever", "web_search");
    if let Some(kind) = part.value.pointer("/action/type").and_then(label) {
        frame.put("action", kind);
    }
    let id = ["call_id", "id"]
        .into_iter()
        .find_map(|name| part.text(name));
    if let Some(call) = id.and_then(|id| rollout.talk.waiting(id)) {
        frame.link("derived_from", call.key.clone());
    }
    part.take("query", &mut frame, "query");
    part.take("action", &mut frame, "request");
    part.take("results", &mut frame, "chunks");
    frame
}

/// An item of a turn, complete: what the conversation's items tell, once more, for whoever watches.
fn completed(rollout: &mut Rollout, part: &mut Part) -> Option<Vec<FrameRequest>> {
    let item = part.value.get_mut("item")?.take();
    let kind = type_of(&item).to_owned();
    let outer = std::mem::replace(&mut part.value, item);
    let frames = completed_item(rollout, part, &kind);
    let item = std::mem::replace(&mut part.value, outer);
    part.value["item"] = item;
    let mut frames = frames?;
    if let Some(first) = frames.first_mut() {
        first.copy(&part.value, "turn_id", "turn_id");
    }
    Some(frames)
}

fn completed_item(rollout: &mut Rollout, part: &mut Part, kind: &str) -> Option<Vec<FrameRequest>> {
    if let Some((class, name)) = CALL_ITEMS.iter().find(|(name, _)| *name == kind) {
        let told = told(part, class, name);
        return Some(ends(rollout, part, told));
    }
    let classed = |kind, class: &str| rollout.talk.classed(kind, class, part.key.clone());
    let frame = match kind {
        "UserMessage" => {
            let said = said(&part.value["content"]);
            prompt(rollout, part, &said, "content", Source::TurnItem)
        }
        "AgentMessage" => {
            let mut frame = classed("observation", "agent_message");
            frame.copy(&part.value, "phase", "phase");
            take_content(part, "content", &mut frame, "text");
            frame
        }
        "Reasoning" => {
            let mut frame = classed("observation", "agent_reasoning");
            for name in ["summary_text", "raw_content"] {
                take_content(part, name, &mut frame, "text");
            }
            frame
        }
        "Plan" => {
            let mut frame = classed("decision", "plan");
            frame.put("speaker", "model");
            part.take("text", &mut frame, "plan");
            frame
        }
        "HookPrompt" => {
            let mut frame = classed("context", "hook_prompt");
            part.take("fragments", &mut frame, "text");
            frame
        }
        "ContextCompaction" => classed("context", "context_compacted"),
        "EnteredReviewMode" => classed("observation", "review_started"),
        "ExitedReviewMode" => {
            let mut frame = classed("observation", "review");
            if let Some(review) = part.value.get_mut("review") {
                extract(review, &mut frame, "review", part.strict);
            }
            frame
        }
        "SubAgentActivity" => {
            child(rollout, part, None);
            rollout
                .talk
                .classed("observation", "sub_agent_activity", part.key.clone())
        }
        "WebSearch" | "Extension" if part.value.get("query").is_some() => searched(rollout, part),
        _ => return None,
    };
    Some(vec![frame])
}
