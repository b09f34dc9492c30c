//! One conversation, message by message.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{text, time};
use crate::import::blocks::{take_block, take_content};
use crate::import::conversation::Conversation;
use crate::import::payload::Payload;
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label, usage};

/// A conversation that is being read.
#[derive(Default)]
pub(super) struct Talk {
    /// What later messages refer back to.
    pub conversation: Conversation,
    /// Whether the strict reader took the file.
    pub strict: bool,
    /// What the file says about the answers in it, beside them: the model, the id of the response.
    pub about: Map<String, Value>,
    /// What the next answer took, where the file says so beside it.
    pub usage: Map<String, Value>,
    /// The key of the request that the next answers are of.
    pub asked: Option<String>,
    /// The keys of calls that are known by what follows them.
    pub called: HashSet<String>,
    /// Calls of functions that have no ids, by their names.
    functions: HashMap<String, String>,
}

impl Talk {
    /// In a file that the strict reader took, or did not.
    pub fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    /// What a message or an item becomes, its payloads taken out of it. Empty where it is of no known
    /// kind.
    pub fn frames(&mut self, key: &str, message: &mut Value) -> Vec<FrameRequest> {
        self.conversation.at(time(message));
        let Some(role) = text(message, "role").map(str::to_ascii_lowercase) else {
            return self.item(key, message);
        };
        match role.as_str() {
            "system" | "developer" => vec![self.instructions(key, &role, message)],
            "user" | "human" => self.user(key, message),
            "assistant" | "model" | "ai" => self.assistant(key, message),
            "tool" => vec![self.tool(key, message)],
            "function" => vec![self.function(key, message)],
            _ => Vec::new(),
        }
    }

    /// Frames of a message, the first with what is left of it.
    pub fn with_record(
        &self,
        key: &str,
        mut frames: Vec<FrameRequest>,
        message: &Value,
    ) -> (Vec<FrameRequest>, bool) {
        let known = !frames.is_empty();
        if !known {
            frames.push(self.conversation.classed("observation", "unmapped", key));
        }
        frames[0].attach(Payload::json("record", message, self.strict));
        (frames, known)
    }

    /// What the model was told before all else.
    pub fn instructions(&self, key: &str, role: &str, message: &mut Value) -> FrameRequest {
        let mut frame = self.conversation.classed("context", "system_prompt", key);
        frame.put("speaker", "program").put("role", role);
        if let Some(content) = message.get_mut("content") {
            take_content(content, &mut frame, "text", self.strict);
        }
        frame
    }

    /// What a person said, or what came of the tools that the model asked for.
    pub fn user(&mut self, key: &str, message: &mut Value) -> Vec<FrameRequest> {
        let content = message.get("content").and_then(Value::as_array);
        let results = content.is_some_and(|blocks| blocks.iter().any(is_result));
        if results {
            return self.results(key, message);
        }
        let mut frame = self.conversation.prompt(key);
        if let Some(content) = message.get_mut("content") {
            take_content(content, &mut frame, "prompt", self.strict);
        }
        vec![frame]
    }

    /// A user's message that brings results of tools.
    fn results(&mut self, key: &str, message: &mut Value) -> Vec<FrameRequest> {
        let blocks = message.get_mut("content").and_then(Value::as_array_mut);
        let mut frames = Vec::new();
        for (index, block) in blocks.into_iter().flatten().enumerate() {
            // The first frame has the message's own key, whatever it is.
            let part = |kind: &str| match index {
                0 => key.to_owned(),
                index => format!("{key}/{kind}/{}", index + 1),
            };
            if is_result(block) {
                frames.push(self.result_block(part("result"), block));
                continue;
            }
            let mut note = self
                .conversation
                .classed("observation", "user_note", part("note"));
            note.put("speaker", "user");
            take_block(block, &mut note, "text", self.strict);
            frames.push(note);
        }
        frames
    }

    fn result_block(&mut self, key: String, block: &mut Value) -> FrameRequest {
        let id = text(block, "tool_use_id").map(str::to_owned);
        let (mut frame, _) = self.conversation.result(key, id.as_deref());
        match block.get("is_error").and_then(Value::as_bool) {
            Some(true) => frame.put("status", "error"),
            Some(false) => frame.put("status", "ok"),
            None => &mut frame,
        };
        if let Some(content) = block.get_mut("content") {
            take_content(content, &mut frame, "result", self.strict);
        }
        frame
    }

    /// What the model said, with the calls that it asks for.
    pub fn assistant(&mut self, key: &str, message: &mut Value) -> Vec<FrameRequest> {
        let mut answer = self.answer(key, message);
        let mut calls = Vec::new();
        match message.get_mut("content") {
            Some(Value::Array(blocks)) => {
                for (index, block) in blocks.iter_mut().enumerate() {
                    let part = |kind: &str| format!("{key}/{kind}/{}", index + 1);
                    let kind = text(block, "type").unwrap_or("");
                    if kind.ends_with("tool_use") {
                        let name = block.get("name").cloned();
                        let id = text(block, "id").map(str::to_owned);
                        let mut call = self.call(part("call"), key, id.as_deref(), name.as_ref());
                        self.take(block, &mut call, "input", "arguments");
                        calls.push(call);
                    } else if is_result(block) {
                        calls.push(self.result_block(part("result"), block));
                    } else {
                        if kind == "refusal" {
                            answer.put("refused", true);
                        }
                        take_block(block, &mut answer, "text", self.strict);
                    }
                }
            }
            Some(content) => extract(content, &mut answer, "text", self.strict),
            None => {}
        }
        for member in ["reasoning_content", "reasoning", "thinking"] {
            let said = message.get_mut(member).filter(|slot| slot.is_string());
            if let Some(slot) = said {
                extract(slot, &mut answer, "thinking", self.strict);
            }
        }
        if text(message, "refusal").is_some_and(|refusal| !refusal.is_empty()) {
            answer.put("refused", true);
            self.take(message, &mut answer, "refusal", "refusal");
        }
        self.function_calls(key, message, &mut calls);
        calls.insert(0, answer);
        calls
    }

    fn answer(&mut self, key: &str, message: &Value) -> FrameRequest {
        let mut answer = self.conversation.answer(key);
        answer.body.extend(self.about.clone());
        for (from, to) in [
            ("model", "model"),
            ("id", "message_id"),
            ("stop_reason", "finish_reason"),
            ("finish_reason", "finish_reason"),
        ] {
            answer.copy(message, from, to);
        }
        if answer.body.contains_key("model") {
            answer.put("revision", "not_identifiable");
        }
        let mut spent = message.get("usage").map(usage).unwrap_or_default();
        spent.extend(std::mem::take(&mut self.usage));
        if !spent.is_empty() {
            answer.put("usage", spent);
        }
        if let Some(asked) = &self.asked {
            answer.link("answers", asked.clone());
        }
        answer
    }

    /// Calls as OpenAI's API has them: `tool_calls`, and `function_call` before there were tools.
    fn function_calls(&mut self, key: &str, message: &mut Value, calls: &mut Vec<FrameRequest>) {
        let asked = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        let mut count = 0;
        for call in asked.into_iter().flatten() {
            count += 1;
            let part = format!("{key}/tool-call/{count}");
            let id = text(call, "id").map(str::to_owned);
            let custom = call.get("custom").is_some_and(Value::is_object);
            let (member, input) = match custom {
                true => ("custom", "input"),
                false => ("function", "arguments"),
            };
            let name = call.get(member).and_then(|it| it.get("name")).cloned();
            let mut frame = self.call(part, key, id.as_deref(), name.as_ref());
            if let Some(it) = call.get_mut(member) {
                self.take(it, &mut frame, input, "arguments");
            }
            calls.push(frame);
        }
        let Some(call) = message
            .get_mut("function_call")
            .filter(|call| call.is_object())
        else {
            return;
        };
        let name = call.get("name").cloned();
        let part = format!("{key}/function-call");
        let mut frame = self.call(part, key, None, name.as_ref());
        self.take(call, &mut frame, "arguments", "arguments");
        if let Some(Value::String(name)) = name {
            self.functions.insert(name, frame.key.clone());
        }
        calls.push(frame);
    }

    /// A call that the answer with the key `answer` asks for.
    pub fn call(
        &mut self,
        key: String,
        answer: &str,
        id: Option<&str>,
        name: Option<&Value>,
    ) -> FrameRequest {
        let mut call = self.conversation.call(key, id, name);
        call.link("derived_from", answer);
        call
    }

    fn tool(&mut self, key: &str, message: &mut Value) -> FrameRequest {
        let id = text(message, "tool_call_id").map(str::to_owned);
        let (mut frame, _) = self.conversation.result(key, id.as_deref());
        self.take_result(message, &mut frame);
        frame
    }

    /// The result of a function without an id: it is that of the last call of this name.
    fn function(&mut self, key: &str, message: &mut Value) -> FrameRequest {
        let (mut frame, _) = self.conversation.result(key, None);
        let name = text(message, "name");
        if let Some(call) = name.and_then(|name| self.functions.remove(name)) {
            frame.link("answers", call);
        }
        self.take_result(message, &mut frame);
        frame
    }

    fn take_result(&self, message: &mut Value, frame: &mut FrameRequest) {
        if !frame.body.contains_key("name") {
            frame.copy(message, "name", "name");
        }
        if let Some(content) = message.get_mut("content") {
            take_content(content, frame, "result", self.strict);
        }
    }

    /// Moves a member into a payload.
    pub fn take(&self, from: &mut Value, frame: &mut FrameRequest, member: &str, name: &str) {
        if let Some(slot) = from.get_mut(member) {
            extract(slot, frame, name, self.strict);
        }
    }

    /// What the file says about the answers that follow.
    pub fn response(&mut self, response: &Value) {
        let known = [("model", "model"), ("id", "response_id")];
        for (from, to) in known {
            if let Some(value) = response.get(from).and_then(label) {
                self.about.insert(to.into(), value);
            }
        }
        self.usage = response.get("usage").map(usage).unwrap_or_default();
    }
}

fn is_result(block: &Value) -> bool {
    text(block, "type").is_some_and(|kind| kind.ends_with("tool_result"))
}
