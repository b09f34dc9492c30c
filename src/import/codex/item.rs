//! Items of the conversation with the model: messages, reasoning, calls and their results.

use serde_json::Value;

use super::outcome::Outcome;
use super::prompt::Source;
use super::{Part, Rollout, tool, type_of};
use crate::import::record::{extract, extract_base64};
use crate::import::request::FrameRequest;

/// How a message of the user begins that the program wrote, with the class of context that it becomes.
const NOT_PROMPTS: [(&str, &str); 15] = [
    ("<environment_context>", "environment_context"),
    ("<environments_context>", "environment_context"),
    ("<user_instructions>", "user_instructions"),
    ("# AGENTS.md instructions", "user_instructions"),
    ("<INSTRUCTIONS>", "user_instructions"),
    ("<turn_aborted>", "turn_aborted"),
    ("<skill>", "skill"),
    ("<skills_instructions>", "skill"),
    ("<user_shell_command>", "user_shell_command"),
    ("<subagent_notification>", "subagent_notification"),
    ("<hook_prompt", "hook_prompt"),
    ("<goal_context>", "goal_context"),
    ("<recommended_plugins>", "plugins"),
    ("<model_switch>", "model_switch"),
    ("<user_action>", "user_action"),
];

/// Items that are known; all but messages have a type.
const TYPES: [&str; 29] = [
    "message",
    "reasoning",
    "agent_message",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "web_search_call",
    "mcp_tool_call",
    "mcp_call",
    "computer_call",
    "tool_call",
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
    "mcp_tool_call_output",
    "computer_call_output",
    "tool_result",
    "function_result",
    "image_generation_call",
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "context_compaction",
    "additional_tools",
    "item_reference",
    "other",
];

/// Whether this is an item that is not wrapped in a line.
pub(super) fn is_item(value: &Value) -> bool {
    let member = |name: &str| value.get(name).is_some();
    match type_of(value) {
        "" | "message" => member("role") && (member("content") || member("message")),
        "reasoning" => member("summary"),
        "ghost_snapshot" => member("ghost_commit"),
        "function_call" | "custom_tool_call" | "tool_call" => {
            member("name") && member("call_id") || member("function")
        }
        "function_call_output" | "custom_tool_call_output" => member("call_id"),
        "function_result" => member("result"),
        kind => TYPES.contains(&kind) && (member("call_id") || member("action") || member("id")),
    }
}

/// An item of the conversation.
pub(super) fn map(rollout: &mut Rollout, part: &mut Part) -> Option<Vec<FrameRequest>> {
    let kind = type_of(&part.value).to_owned();
    Some(match kind.as_str() {
        "" | "message" => vec![message(rollout, part)?],
        "reasoning" => vec![reasoning(rollout, part)],
        "agent_message" => {
            let mut frame = context(rollout, "agent_message", part);
            frame.put("speaker", "agent");
            for name in ["author", "recipient", "source_call_id"] {
                frame.copy(&part.value, name, name);
            }
            take_content(part, "content", &mut frame, "text");
            vec![frame]
        }
        "image_generation_call" => image(rollout, part),
        "ghost_snapshot" => {
            let key = part.key.clone();
            let mut frame = rollout.talk.classed("snapshot", "ghost_commit", key);
            if let Some(commit) = part.value.get("ghost_commit") {
                frame
                    .copy(commit, "id", "commit")
                    .copy(commit, "parent", "parent");
            }
            vec![frame]
        }
        "compaction" | "compaction_summary" | "context_compaction" | "compaction_trigger" => {
            let trigger = kind == "compaction_trigger";
            let class = if trigger {
                "compaction_trigger"
            } else {
                "compacted"
            };
            let mut frame = context(rollout, class, part);
            part.take("encrypted_content", &mut frame, "encrypted");
            vec![frame]
        }
        "additional_tools" => {
            let mut frame = context(rollout, "tools", part);
            part.take("tools", &mut frame, "tools");
            vec![frame]
        }
        kind if kind.ends_with("_call") => vec![tool::call(rollout, kind, part)],
        kind if kind != "other" && TYPES.contains(&kind) && kind != "item_reference" => {
            tool::result(rollout, part)
        }
        _ => return None,
    })
}

fn context(rollout: &Rollout, class: &str, part: &Part) -> FrameRequest {
    rollout.talk.classed("context", class, part.key.clone())
}

fn message(rollout: &mut Rollout, part: &mut Part) -> Option<FrameRequest> {
    let content = ["content", "message"]
        .into_iter()
        .find(|name| part.value.get(*name).is_some_and(|value| !value.is_null()))?;
    let mut frame = match part.text("role")? {
        "assistant" => {
            let mut frame = answer(rollout, part);
            take_content(part, content, &mut frame, "text");
            frame
        }
        "user" => {
            let said = said(&part.value[content]);
            prompt(rollout, part, &said, content, Source::Item)
        }
        role @ ("developer" | "system") => {
            let developer = role == "developer";
            let class = if developer {
                "developer_message"
            } else {
                "system_prompt"
            };
            let mut frame = context(rollout, class, part);
            frame.put("speaker", "program");
            take_content(part, content, &mut frame, "text");
            frame
        }
        _ => return None,
    };
    for (from, to) in [("id", "message_id"), ("phase", "phase")] {
        frame.copy(&part.value, from, to);
    }
    Some(frame)
}

/// A message of the user: a turn where it is new, an observation where it was written before, and context
/// where the program wrote it.
pub(super) fn prompt(
    rollout: &mut Rollout,
    part: &mut Part,
    said: &str,
    content: &str,
    source: Source,
) -> FrameRequest {
    let start = said.trim_start();
    if let Some((_, class)) = NOT_PROMPTS.iter().find(|(mark, _)| start.starts_with(mark)) {
        let mut frame = context(rollout, class, part);
        frame.put("speaker", "program");
        take_content(part, content, &mut frame, "text");
        return frame;
    }
    let before = rollout.prompts.take(said, source, &part.key);
    let mut frame = match &before {
        None => {
            rollout.answer = None;
            rollout.talk.prompt(part.key.clone())
        }
        Some(turn) => {
            let key = part.key.clone();
            let mut frame = rollout.talk.classed("observation", "user_message", key);
            frame
                .put("speaker", "user")
                .link("derived_from", turn.clone());
            frame
        }
    };
    let name = if before.is_none() { "prompt" } else { "text" };
    take_content(part, content, &mut frame, name);
    frame
}

/// A frame of what the model answered.
fn answer(rollout: &mut Rollout, part: &Part) -> FrameRequest {
    rollout.prompts.answered();
    let mut frame = rollout.talk.answer(part.key.clone());
    if let Some(model) = &rollout.model {
        frame.put("model", model.clone());
    }
    frame.copy(&part.value, "model", "model");
    frame.put("revision", "not_identifiable");
    rollout.answer = Some(part.key.clone());
    frame
}

fn reasoning(rollout: &mut Rollout, part: &mut Part) -> FrameRequest {
    let mut frame = answer(rollout, part);
    frame
        .put("blocks", vec!["reasoning"])
        .copy(&part.value, "id", "message_id");
    take_content(part, "summary", &mut frame, "thinking");
    take_content(part, "content", &mut frame, "thinking");
    part.take("encrypted_content", &mut frame, "encrypted");
    frame
}

/// An image that the model's service made: call and result are one item.
fn image(rollout: &mut Rollout, part: &mut Part) -> Vec<FrameRequest> {
    let mut call = tool::call(rollout, "image_generation_call", part);
    part.take("revised_prompt", &mut call, "arguments");
    let id = part.text("id").map(str::to_owned);
    let (mut result, _) = rollout
        .talk
        .result(format!("{}/result", part.key), id.as_deref());
    if id.is_none() {
        result.link("answers", call.key.clone());
    }
    result.put("status", Outcome::of(&part.value).status);
    if let Some(slot) = part.value.get_mut("result") {
        extract_base64(slot, &mut result, "image", Some("image/png"));
    }
    rollout.tools.answered(id, &call.key);
    vec![call, result]
}

/// The text of a message, without the marks that the program puts around images.
pub(super) fn said(content: &Value) -> String {
    let blocks = match content {
        Value::String(text) => return text.clone(),
        Value::Array(blocks) => blocks,
        _ => return String::new(),
    };
    let texts = blocks
        .iter()
        .filter_map(|block| block.get("text")?.as_str());
    let texts = texts.filter(|text| !text.starts_with("<image") && *text != "</image>");
    texts.collect()
}

/// Moves the blocks of a message into payloads: texts under `name`, images and files under their own.
pub(super) fn take_content(part: &mut Part, member: &str, frame: &mut FrameRequest, name: &str) {
    let strict = part.strict;
    let Some(content) = part.value.get_mut(member) else {
        return;
    };
    let Value::Array(blocks) = content else {
        return extract(content, frame, name, strict);
    };
    let members = [
        ("text", name),
        ("refusal", "refusal"),
        ("image_url", "image"),
        ("audio_url", "audio"),
        ("file_data", "document"),
        ("encrypted_content", "encrypted"),
    ];
    for block in blocks {
        if block.is_string() {
            extract(block, frame, name, strict);
        }
        for (member, name) in members {
            if let Some(slot) = block.get_mut(member) {
                extract(slot, frame, name, strict);
            }
        }
    }
}
