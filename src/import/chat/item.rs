//! Items of OpenAI's Responses that are no messages: reasoning, calls of tools, and their results.

use serde_json::Value;

use super::talk::Talk;
use super::text;
use crate::import::blocks::take_content;
use crate::import::record::{extract, extract_base64};
use crate::import::request::FrameRequest;

/// Calls: their type, the member with what was asked, and the one with what came of it, where the
/// service itself ran the tool.
const CALLS: [(&str, &str, Option<&str>); 12] = [
    ("function_call", "arguments", None),
    ("custom_tool_call", "input", None),
    ("computer_call", "action", None),
    ("local_shell_call", "action", None),
    ("shell_call", "action", None),
    ("apply_patch_call", "operation", None),
    ("tool_search_call", "arguments", None),
    ("mcp_call", "arguments", Some("output")),
    ("web_search_call", "action", None),
    ("file_search_call", "queries", Some("results")),
    ("code_interpreter_call", "code", Some("outputs")),
    ("image_generation_call", "prompt", Some("result")),
];

/// Other types that are told by their name alone.
const OTHERS: [&str; 7] = [
    "reasoning",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "compaction",
    "compaction_summary",
    "item_reference",
];

/// Whether this is an item that is no message.
pub(super) fn is_item(value: &Value) -> bool {
    let Some(kind) = text(value, "type") else {
        return false;
    };
    let id = ["id", "call_id", "approval_request_id"]
        .into_iter()
        .any(|member| text(value, member).is_some());
    let known = call(kind).is_some() || is_output(kind) || OTHERS.contains(&kind);
    known && (id || kind == "reasoning" || kind == "compaction")
}

fn call(kind: &str) -> Option<(&'static str, &'static str, Option<&'static str>)> {
    CALLS.into_iter().find(|(known, ..)| *known == kind)
}

fn is_output(kind: &str) -> bool {
    kind.strip_suffix("_output")
        .is_some_and(|of| call(of).is_some())
}

impl Talk {
    /// What an item becomes; empty where its type is not known.
    pub(super) fn item(&mut self, key: &str, item: &mut Value) -> Vec<FrameRequest> {
        let kind = text(item, "type").unwrap_or("").to_owned();
        let mut frame = match kind.as_str() {
            "reasoning" => return vec![self.reasoning(key, item)],
            "mcp_list_tools" => self.conversation.classed("context", "tools", key),
            "compaction" | "compaction_summary" => {
                self.conversation.classed("context", "compacted", key)
            }
            "item_reference" | "mcp_approval_request" => {
                self.conversation.classed("observation", &kind, key)
            }
            "mcp_approval_response" => return vec![self.approval(key, item)],
            kind if is_output(kind) => return vec![self.output(key, item)],
            kind => match call(kind) {
                Some((_, asked, came)) => return self.item_call(key, kind, asked, came, item),
                None => return Vec::new(),
            },
        };
        frame.copy(item, "id", "item_id");
        for (member, name) in [
            ("tools", "tools"),
            ("arguments", "arguments"),
            ("encrypted_content", "encrypted"),
        ] {
            self.take(item, &mut frame, member, name);
        }
        vec![frame]
    }

    fn reasoning(&mut self, key: &str, item: &mut Value) -> FrameRequest {
        let mut frame = self.conversation.answer(key);
        frame.body.extend(self.about.clone());
        frame.put("reasoning", true).copy(item, "id", "item_id");
        if let Some(asked) = &self.asked {
            frame.link("answers", asked.clone());
        }
        for member in ["summary", "content"] {
            if let Some(content) = item.get_mut(member) {
                take_content(content, &mut frame, "thinking", self.strict);
            }
        }
        self.take(item, &mut frame, "encrypted_content", "encrypted");
        frame
    }

    fn item_call(
        &mut self,
        key: &str,
        kind: &str,
        asked: &str,
        came: Option<&str>,
        item: &mut Value,
    ) -> Vec<FrameRequest> {
        let id = text(item, "call_id").or_else(|| text(item, "id"));
        let id = id.map(str::to_owned);
        let named = Value::from(kind.strip_suffix("_call").unwrap_or(kind));
        let name = item.get("name").unwrap_or(&named).clone();
        let mut call = self.conversation.call(key, id.as_deref(), Some(&name));
        for (from, to) in [
            ("id", "item_id"),
            ("status", "item_status"),
            ("server_label", "server"),
        ] {
            call.copy(item, from, to);
        }
        self.take(item, &mut call, asked, "arguments");
        let failed = item.get("error").is_some_and(|error| !error.is_null());
        let answered = came.and_then(|came| item.get(came));
        let answered = answered.is_some_and(|came| !came.is_null());
        if !answered && !failed {
            return vec![call];
        }
        let (mut result, _) = self
            .conversation
            .result(format!("{key}/result"), id.as_deref());
        if id.is_none() {
            result.link("answers", call.key.clone());
        }
        if failed {
            result.put("status", "error");
            self.take(item, &mut result, "error", "error");
        }
        match came {
            // A picture, as base64 without a media type.
            Some("result") => {
                if let Some(slot) = item.get_mut("result") {
                    extract_base64(slot, &mut result, "image", None);
                }
            }
            Some(came) => self.take(item, &mut result, came, "result"),
            None => {}
        }
        vec![call, result]
    }

    fn output(&mut self, key: &str, item: &mut Value) -> FrameRequest {
        let id = text(item, "call_id").map(str::to_owned);
        let (mut frame, _) = self.conversation.result(key, id.as_deref());
        frame
            .copy(item, "id", "item_id")
            .copy(item, "status", "item_status");
        if let Some(output) = item.get_mut("output") {
            match output {
                Value::Array(_) => take_content(output, &mut frame, "result", self.strict),
                _ => extract(output, &mut frame, "result", self.strict),
            }
        }
        frame
    }

    /// A person let a tool of a server run, or did not.
    fn approval(&mut self, key: &str, item: &mut Value) -> FrameRequest {
        let mut frame = self.conversation.classed("decision", "approval", key);
        frame
            .put("speaker", "user")
            .selected(item.get("approve"))
            .copy(item, "approval_request_id", "approval_request_id");
        self.take(item, &mut frame, "reason", "reason");
        frame
    }
}
