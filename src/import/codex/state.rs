//! Records of what is around the conversation: the session, its settings and surroundings, compactions.

use serde_json::Value;

use super::{Part, Rollout};
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label};

/// A record with a type of its own and a payload.
pub(super) fn map(rollout: &mut Rollout, kind: &str, part: &mut Part) -> Option<Vec<FrameRequest>> {
    let key = part.key.clone();
    let context = |class: &str| rollout.talk.classed("context", class, key.clone());
    let frame = match kind {
        "session_meta" => head(context("session_meta"), part),
        "turn_context" => {
            let mut frame = context("turn_context");
            rollout.model = part.value.get("model").and_then(label);
            settings(&mut frame, part);
            frame
        }
        "world_state" => {
            let mut frame = context("world_state");
            frame.copy(&part.value, "full", "full");
            part.take("state", &mut frame, "state");
            frame
        }
        "compacted" => {
            let mut frame = context("compacted");
            for name in ["window_id", "window_number", "previous_window_id"] {
                frame.copy(&part.value, name, name);
            }
            part.take("message", &mut frame, "summary");
            part.take("replacement_history", &mut frame, "after");
            frame
        }
        "inter_agent_communication" => {
            let mut frame = context("agent_message");
            frame.put("speaker", "agent");
            for name in ["author", "recipient", "trigger_turn"] {
                frame.copy(&part.value, name, name);
            }
            part.take("content", &mut frame, "text");
            frame
        }
        "inter_agent_communication_metadata" => {
            let mut frame = rollout.talk.classed("observation", kind, key);
            frame.copy(&part.value, "trigger_turn", "trigger_turn");
            frame
        }
        _ => return None,
    };
    Some(vec![frame])
}

/// A record of a very old session that is no item.
pub(super) fn bare(rollout: &Rollout, part: &mut Part) -> Option<Vec<FrameRequest>> {
    if is_old_head(&part.value) {
        let frame = rollout
            .talk
            .classed("context", "session_meta", part.key.clone());
        return Some(vec![head(frame, part)]);
    }
    let state = part.text("record_type") == Some("state");
    state.then(|| {
        vec![
            rollout
                .talk
                .classed("observation", "state", part.key.clone()),
        ]
    })
}

/// Whether this is the first line of a session before lines had types.
pub(super) fn is_old_head(record: &Value) -> bool {
    let text = |name: &str| record.get(name).is_some_and(Value::is_string);
    let other = ["type", "role", "record_type"]
        .into_iter()
        .any(|name| record.get(name).is_some());
    let own = record.get("instructions").is_some() || record.get("git").is_some();
    text("id") && text("timestamp") && own && !other
}

fn head(mut frame: FrameRequest, part: &mut Part) -> FrameRequest {
    for (from, to) in [
        ("id", "session_id"),
        ("cli_version", "agent_version"),
        ("originator", "originator"),
        ("model_provider", "provider"),
    ] {
        frame.copy(&part.value, from, to);
    }
    if let Some(text) = part.value.pointer_mut("/base_instructions/text") {
        extract(text, &mut frame, "system_prompt", part.strict);
    }
    part.take("instructions", &mut frame, "instructions");
    part.take("dynamic_tools", &mut frame, "tools");
    part.take("cwd", &mut frame, "cwd");
    frame
}

/// What a turn, or from now on the session, works with.
pub(super) fn settings(frame: &mut FrameRequest, part: &mut Part) {
    for (from, to) in [
        ("turn_id", "turn_id"),
        ("model", "model"),
        ("effort", "effort"),
        ("reasoning_effort", "effort"),
        ("approval_policy", "approval_policy"),
        ("personality", "personality"),
    ] {
        frame.copy(&part.value, from, to);
    }
    if let Some(policy) = part.value.get("sandbox_policy") {
        frame
            .copy(policy, "type", "sandbox")
            .copy(policy, "mode", "sandbox");
    }
    for name in [
        "user_instructions",
        "developer_instructions",
        "base_instructions",
    ] {
        part.take(name, frame, name);
    }
    part.take("cwd", frame, "cwd");
}
