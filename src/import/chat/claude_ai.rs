//! Conversations as Claude.ai exports them.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;

use super::talk::Talk;
use super::whole::{How, Said};
use super::{text, time};
use crate::import::record::extract;
use crate::import::request::{FrameRequest, key_part, object};

/// Takes the messages out of a conversation. Where a person asked again, a message names the one that
/// it follows.
pub(super) fn said(conversation: &mut Value) -> VecDeque<Said> {
    let Some(Value::Array(messages)) = conversation.get_mut("chat_messages").map(Value::take)
    else {
        return VecDeque::new();
    };
    conversation["chat_messages"] = object([("$frames", "message".into())]);
    let mut seen = HashSet::new();
    let mut said = VecDeque::new();
    for (index, value) in messages.into_iter().enumerate() {
        let own = text(&value, "uuid").map(key_part);
        let own = own.filter(|id| !seen.contains(id));
        let key = match &own {
            Some(id) => format!("message/{id}"),
            None => format!("place/{}", index + 1),
        };
        let parent = text(&value, "parent_message_uuid").map(key_part);
        let parent = parent.filter(|id| seen.contains(id));
        seen.extend(own);
        said.push_back(Said {
            key,
            value,
            how: How::ClaudeAi(parent.map(|id| format!("message/{id}"))),
        });
    }
    said
}

impl Talk {
    /// A message: who sent it is `sender`, what it says is `content`, and, in one piece, `text`.
    pub(super) fn sent(
        &mut self,
        key: &str,
        parent: Option<&str>,
        message: &mut Value,
    ) -> Vec<FrameRequest> {
        self.conversation.at(time(message));
        // Old exports have `text` alone.
        let blocks = message.get("content").and_then(Value::as_array);
        let member = match blocks.is_some_and(|blocks| !blocks.is_empty()) {
            true => "content",
            false => "text",
        };
        let content = message.get_mut(member).map(Value::take).unwrap_or_default();
        let mut said = object([("content", content.clone())]);
        let mut frames = match text(message, "sender") {
            Some("human" | "user") => self.user(key, &mut said),
            Some("assistant") => self.assistant(key, &mut said),
            Some("system") => vec![self.instructions(key, "system", &mut said)],
            _ => Vec::new(),
        };
        if let Some(slot) = message.get_mut(member) {
            *slot = said["content"].take();
        }
        let Some(first) = frames.first_mut() else {
            return frames;
        };
        first.copy(message, "uuid", "message_id");
        if let Some(parent) = parent {
            first.link("derived_from", parent);
        }
        // The text once more, where it is that of the only block.
        let only = content.as_array().filter(|blocks| blocks.len() == 1);
        let only = only.and_then(|blocks| text(&blocks[0], "text"));
        if member == "content" && only.is_some() && only == text(message, "text") {
            let taken = message.pointer("/content/0/text").cloned();
            message["text"] = taken.unwrap_or_default();
        }
        let attachments = message.get_mut("attachments").and_then(Value::as_array_mut);
        for attachment in attachments.into_iter().flatten() {
            if let Some(slot) = attachment.get_mut("extracted_content") {
                extract(slot, first, "attachment", self.strict);
            }
        }
        frames
    }
}
