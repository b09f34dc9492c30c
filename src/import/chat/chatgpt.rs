//! Conversations as ChatGPT exports them: a tree of messages, since a person may ask again and a model
//! may answer again.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::talk::Talk;
use super::text;
use super::time;
use super::whole::{How, Said};
use crate::import::record::extract;
use crate::import::request::{FrameRequest, key_part, object};
use crate::import::tree::{Place, descend};

/// Takes the messages out of a conversation, in the order of their times, each after the one that it
/// follows. What is left of the tree says which branches there are.
pub(super) fn said(conversation: &mut Value) -> VecDeque<Said> {
    let Some(nodes) = conversation
        .get_mut("mapping")
        .and_then(Value::as_object_mut)
    else {
        return VecDeque::new();
    };
    let index: HashMap<_, _> = nodes.keys().cloned().zip(0..).collect();
    let mut places: Vec<_> = nodes
        .values()
        .map(|node| Place {
            parent: text(node, "parent").and_then(|parent| index.get(parent).copied()),
            depth: 0,
            begin: node.get("message").and_then(time).and_then(|time| time.at),
        })
        .collect();
    descend(&mut places);
    let mut taken = Vec::new();
    let mut keys = Vec::new();
    for (at, (id, node)) in nodes.iter_mut().enumerate() {
        let key = format!("node/{}", key_part(id));
        let there = node
            .get("message")
            .is_some_and(|message| !message.is_null());
        keys.push(there.then(|| key.clone()));
        if there {
            let value = node["message"].take();
            node["message"] = object([("$frames", key.as_str().into())]);
            taken.push((at, key, value));
        }
    }
    taken.sort_by_key(|(at, ..)| (places[*at].begin.clone(), places[*at].depth, *at));
    let said = |(at, key, value): (usize, String, Value)| {
        let parent = places[at].parent.and_then(|parent| keys[parent].clone());
        Said {
            key,
            value,
            how: How::ChatGpt(parent),
        }
    };
    taken.into_iter().map(said).collect()
}

impl Talk {
    /// A message of the tree. A message of the model that is not for all is a call of the tool that it
    /// is for.
    pub(super) fn node(
        &mut self,
        key: &str,
        parent: Option<&str>,
        message: &mut Value,
    ) -> Vec<FrameRequest> {
        self.conversation.at(time(message));
        let role = message.pointer("/author/role").and_then(Value::as_str);
        let role = role.unwrap_or("").to_owned();
        let kind = message.pointer("/content/content_type");
        let kind = kind.and_then(Value::as_str).unwrap_or("").to_owned();
        let recipient = text(message, "recipient").unwrap_or("all").to_owned();
        let mut after = None;
        let (mut frame, name) = match role.as_str() {
            "user"
                if matches!(
                    kind.as_str(),
                    "user_editable_context" | "model_editable_context"
                ) =>
            {
                let frame = self.conversation.classed("context", &kind, key);
                (frame, "text")
            }
            "user" => (self.conversation.prompt(key), "prompt"),
            "system" => {
                let frame = self.conversation.classed("context", "system_prompt", key);
                (frame, "text")
            }
            "assistant" => {
                let mut answer = self.conversation.answer(key);
                if recipient != "all" {
                    let name = Value::from(recipient);
                    let call = format!("{key}/call");
                    let mut call = self.call(call, key, None, Some(&name));
                    take_content(message, &mut call, "arguments", self.strict);
                    self.called.insert(call.key.clone());
                    after = Some(call);
                }
                if let Some(metadata) = message.get("metadata") {
                    answer.copy(metadata, "model_slug", "model");
                    if let Some(details) = metadata.get("finish_details") {
                        answer.copy(details, "type", "finish_reason");
                    }
                }
                if answer.body.contains_key("model") {
                    answer.put("revision", "not_identifiable");
                }
                let thought = matches!(kind.as_str(), "thoughts" | "reasoning_recap");
                (answer, if thought { "thinking" } else { "text" })
            }
            "tool" => (self.node_result(key, parent, message), "result"),
            _ => return Vec::new(),
        };
        if kind == "system_error" && frame.kind == "tool_result" {
            frame.put("status", "error");
        }
        frame
            .copy(message, "id", "message_id")
            .copy(message, "status", "message_status");
        if let Some(content) = message.get("content") {
            frame.copy(content, "content_type", "content_type");
        }
        if let Some(parent) = parent {
            frame.link("derived_from", parent);
        }
        // What the call took is a reference by now.
        take_content(message, &mut frame, name, self.strict);
        let mut frames = vec![frame];
        frames.extend(after);
        frames
    }

    /// A tool answers the call that it follows.
    fn node_result(&mut self, key: &str, parent: Option<&str>, message: &Value) -> FrameRequest {
        let (mut frame, _) = self.conversation.result(key, None);
        if let Some(author) = message.get("author") {
            frame.copy(author, "name", "name");
        }
        let call = parent.map(|parent| format!("{parent}/call"));
        if let Some(call) = call.filter(|call| self.called.contains(call)) {
            frame.link("answers", call);
        }
        frame
    }
}

/// Moves what a message says into payloads.
fn take_content(message: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    let Some(content) = message.get_mut("content") else {
        return;
    };
    if let Some(Value::Array(parts)) = content.get_mut("parts") {
        for part in parts {
            let slot = match part {
                Value::String(_) => Some(part),
                // A transcription, or a picture by the name of its file.
                Value::Object(part) => part.get_mut("text"),
                _ => None,
            };
            if let Some(slot) = slot.filter(|slot| slot.is_string()) {
                extract(slot, frame, name, strict);
            }
        }
    }
    for member in [
        "text",
        "result",
        "content",
        "thoughts",
        "user_profile",
        "user_instructions",
        "model_set_context",
    ] {
        let slot = content.get_mut(member);
        if let Some(slot) = slot.filter(|slot| slot.get("$payload").is_none()) {
            extract(slot, frame, name, strict);
        }
    }
}
