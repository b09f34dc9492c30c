//! Messages of a session, and the calls of tools in them.

use std::collections::HashMap;

use serde_json::Value;

use crate::import::blocks::type_of;
use crate::import::conversation::Conversation;
use crate::import::record::{extract, extract_all, extract_base64};
use crate::import::request::FrameRequest;
use crate::import::text::{Written, counted_time, written_time};

/// What the messages of a session have in common.
#[derive(Default)]
pub(super) struct Messages {
    pub conversation: Conversation,
    /// The time of the message that is being mapped.
    time: Option<Written>,
    /// Whether the result of a call has come, by the call's id.
    pub done: HashMap<String, bool>,
}

/// What became of a call.
#[derive(Default)]
pub(super) struct Called {
    /// Its frames, as far as they are new.
    pub frames: Vec<FrameRequest>,
    /// The agent that it started, and the call's key.
    pub agent: Option<(String, String)>,
}

/// When a message was written.
pub(super) fn time(message: &Value) -> Option<Written> {
    let time = message.get("timestamp").or_else(|| message.get("ts"))?;
    match time.as_str() {
        Some(text) => written_time(text),
        None => counted_time(time),
    }
}

/// Whether a call is over, so that nothing of it changes any more.
pub(super) fn is_over(call: &Value) -> bool {
    match call.get("status").and_then(Value::as_str) {
        Some(status) => matches!(status, "success" | "error" | "cancelled"),
        None => call.get("result").is_some_and(|result| !result.is_null()),
    }
}

impl Messages {
    /// Sets the time of the frames that follow.
    pub fn at(&mut self, time: Option<Written>) {
        self.time.clone_from(&time);
        self.conversation.at(time);
    }

    /// The frames of a message without its `toolCalls`, the first with the key itself; `None` for a type
    /// that is not known.
    pub fn message(
        &mut self,
        key: &str,
        message: &mut Value,
        strict: bool,
    ) -> Option<Vec<FrameRequest>> {
        let kind = match type_of(message) {
            "" => message.get("role").and_then(Value::as_str).unwrap_or(""),
            kind => kind,
        };
        let kind = kind.to_owned();
        let slot = if message.get("content").is_some() {
            "content"
        } else {
            "parts"
        };
        let mut none = Value::Null;
        let content = message.get_mut(slot).unwrap_or(&mut none);
        let mut frames = match kind.as_str() {
            "user" => self.user(key, content, strict),
            "gemini" | "model" | "assistant" => self.answer(key, content, strict),
            "info" | "warning" | "error" => {
                let mut frame = self.conversation.classed("observation", &kind, key);
                frame.put("speaker", "program");
                take_parts(content, &mut frame, "text", strict);
                vec![frame]
            }
            _ => return None,
        };
        let first = &mut frames[0];
        first.copy(message, "id", "message_id");
        if first.kind == "model_result" {
            first
                .copy(message, "model", "model")
                .put("revision", "not_identifiable");
            let thoughts = message.get_mut("thoughts");
            if let Some(thoughts) = thoughts.filter(|list| **list != Value::Array(Vec::new())) {
                extract(thoughts, first, "thinking", strict);
            }
        }
        Some(frames)
    }

    /// A prompt; or, in a history of the model's own, what tools gave back.
    fn user(&mut self, key: &str, content: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let results = parts
            .iter()
            .any(|part| part.get("functionResponse").is_some());
        if !results {
            let mut frame = self.conversation.prompt(key);
            take_parts(content, &mut frame, "prompt", strict);
            return vec![frame];
        }
        let mut frames: Vec<FrameRequest> = Vec::new();
        let parts = content.as_array_mut().into_iter().flatten();
        for (index, part) in parts.enumerate() {
            let Some(response) = part.get_mut("functionResponse") else {
                continue;
            };
            let key = match frames.len() {
                0 => key.to_owned(),
                _ => format!("{key}/result/{}", index + 1),
            };
            let id = response.get("id").and_then(Value::as_str);
            let (mut frame, _) = self.conversation.result(key, id);
            frame.copy(response, "name", "name");
            extract_all(response, &[("response", "result")], &mut frame, strict);
            frames.push(frame);
        }
        // What stands beside results, such as the picture that a tool read.
        take_parts(content, &mut frames[0], "text", strict);
        frames
    }

    fn answer(&mut self, key: &str, content: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut frames = vec![self.conversation.answer(key)];
        take_parts(content, &mut frames[0], "text", strict);
        let parts = content.as_array_mut().into_iter().flatten();
        for (index, part) in parts.enumerate() {
            if let Some(call) = part.get_mut("functionCall") {
                let key_of_call = format!("{key}/part/{}", index + 1);
                frames.push(self.function_call(key_of_call, key, call, strict));
            }
        }
        frames
    }

    /// A call as the model's own interface writes it.
    pub fn function_call(
        &mut self,
        key: String,
        answer: &str,
        call: &mut Value,
        strict: bool,
    ) -> FrameRequest {
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        let name = call.get("name").cloned();
        let mut frame = self.conversation.call(key, id.as_deref(), name.as_ref());
        frame.link("derived_from", answer);
        extract_all(call, &[("args", "arguments")], &mut frame, strict);
        frame
    }

    /// A member of `toolCalls`: the call the first time that it is seen, and its result when it is over.
    pub fn tool_call(&mut self, key: &str, answer: &str, call: &mut Value, strict: bool) -> Called {
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        let mut called = Called::default();
        let seen = id.as_ref().and_then(|id| self.done.get(id)).copied();
        let over = is_over(call);
        if let Some(id) = &id {
            self.done.insert(id.clone(), over || seen == Some(true));
        }
        let mut call_key = id
            .as_deref()
            .and_then(|id| self.conversation.waiting(id))
            .map(|call| call.key.clone());
        if seen.is_none() {
            let mut frame = self.function_call(key.to_owned(), answer, call, strict);
            frame.copy(call, "agentId", "agent_id");
            frame.linked_to = call.get("agentId").is_some();
            call_key = Some(frame.key.clone());
            called.frames.push(frame);
        }
        if over && seen != Some(true) {
            // A call has the time of its result.
            self.conversation
                .at(time(call).or_else(|| self.time.clone()));
            let agent = call.get("agentId").and_then(Value::as_str);
            called.agent = agent.map(str::to_owned).zip(call_key.clone());
            self.tool_result(
                key,
                id.as_deref(),
                call_key,
                call,
                strict,
                &mut called.frames,
            );
            self.conversation.at(self.time.clone());
        }
        called
    }

    fn tool_result(
        &mut self,
        key: &str,
        id: Option<&str>,
        call_key: Option<String>,
        call: &mut Value,
        strict: bool,
        frames: &mut Vec<FrameRequest>,
    ) {
        let (mut frame, waited) = self.conversation.result(format!("{key}/result"), id);
        if let Some(call_key) = call_key.as_ref().filter(|_| waited.is_none()) {
            frame.link("answers", call_key.clone());
            frame.copy(call, "name", "name");
        }
        let said = call.get("result").map(Value::to_string).unwrap_or_default();
        let denied = said.contains("User denied") || said.contains("User did not allow");
        let status = call.get("status").and_then(Value::as_str);
        match status {
            Some("success") => frame.put("status", "ok"),
            Some("error") => frame.put("status", "error"),
            Some("cancelled") if denied => frame.put("status", "denied"),
            Some("cancelled") => frame.put("status", "error").put("cancelled", true),
            _ => &mut frame,
        };
        // Any text that a tool gives back may have these words: only a shell's result ends with them.
        let shell = call.get("name").and_then(Value::as_str) == Some("run_shell_command");
        let output = call.pointer("/result/0/functionResponse/response/output");
        let output = output.and_then(Value::as_str).filter(|_| shell);
        if let Some(exit) = output.and_then(exit_code) {
            frame.put("exit", exit);
        }
        let mut decision = None;
        if let Some(call_key) = call_key.filter(|_| status == Some("cancelled") && denied) {
            let key = format!("{key}/decision");
            let mut frame = self.conversation.classed("decision", "tool_denied", key);
            frame.put("speaker", "user").link("cancelled", call_key);
            decision = Some(frame);
        }
        let answer = self.plan_answer(key, call, &frame.key);
        extract_all(call, &[("result", "result")], &mut frame, strict);
        let version = self.file_version(key, call, &frame.key, strict);
        if let Some(shown) = call
            .get_mut("resultDisplay")
            .filter(|shown| !shown.is_object())
        {
            extract(shown, &mut frame, "shown", strict);
        }
        frames.push(frame);
        frames.extend(decision);
        frames.extend(answer);
        frames.extend(version);
    }

    /// What a person said to the plan that this call put before them. The plan is a file of its own.
    fn plan_answer(&self, key: &str, call: &Value, result: &str) -> Option<FrameRequest> {
        let plan = call.get("name").and_then(Value::as_str) == Some("exit_plan_mode");
        let said = call.pointer("/result/0/functionResponse/response/output");
        let said = said.and_then(Value::as_str).filter(|_| plan)?;
        let approved = said.starts_with("Plan approved");
        if !approved && !said.starts_with("Plan rejected") {
            return None;
        }
        let key = format!("{key}/decision");
        let mut frame = self.conversation.classed("decision", "approval", key);
        frame
            .selected(Some(&approved.into()))
            .put("speaker", "user")
            .link("derived_from", result);
        Some(frame)
    }

    /// The version of a file that an edit wrote, as its account tells it.
    fn file_version(
        &mut self,
        key: &str,
        call: &mut Value,
        result: &str,
        strict: bool,
    ) -> Option<FrameRequest> {
        let well = call.get("status").and_then(Value::as_str) == Some("success");
        let shown = call
            .get("resultDisplay")
            .filter(|shown| shown.get("fileDiff").is_some() && well)?;
        let path = [
            shown.get("filePath"),
            call.pointer("/args/file_path"),
            shown.get("fileName"),
        ];
        let path = path
            .into_iter()
            .flatten()
            .find_map(Value::as_str)?
            .to_owned();
        let created = shown.get("isNewFile").and_then(Value::as_bool) == Some(true)
            || shown.get("originalContent").is_some_and(Value::is_null);
        let change = if created { "create" } else { "update" };
        let mut frame =
            self.conversation
                .file_version(format!("{key}/file"), &path, change, result);
        let members = [
            ("originalContent", "before"),
            ("newContent", "after"),
            ("fileDiff", "patch"),
        ];
        extract_all(call.get_mut("resultDisplay")?, &members, &mut frame, strict);
        Some(frame)
    }
}

/// `Exit Code: N`, which the result of a shell command has after the output.
fn exit_code(result: &str) -> Option<i32> {
    let (_, rest) = result.rsplit_once("Exit Code: ")?;
    let end = rest.find(|one: char| !one.is_ascii_digit() && one != '-');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// Moves what a message says into payloads. Parts of other kinds stay in the record.
pub(super) fn take_parts(content: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    match content {
        Value::Array(parts) => {
            for part in parts {
                take_part(part, frame, name, strict);
            }
        }
        Value::String(_) => extract(content, frame, name, strict),
        part => take_part(part, frame, name, strict),
    }
}

fn take_part(part: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    if part.is_string() {
        return extract(part, frame, name, strict);
    }
    let thought = part.get("thought").and_then(Value::as_bool) == Some(true);
    let name = if thought { "thinking" } else { name };
    extract_all(part, &[("text", name)], frame, strict);
    if let Some(inline) = part.get_mut("inlineData") {
        let media = inline.get("mimeType").and_then(Value::as_str);
        let media = media
            .filter(|media| onrecord_core::frame::check_media(media).is_ok())
            .map(str::to_owned);
        if let Some(data) = inline.get_mut("data") {
            let kind = media.as_deref().and_then(|media| media.split('/').next());
            let name = match kind {
                Some("image") => "image",
                Some("audio") => "audio",
                _ => "file",
            };
            extract_base64(data, frame, name, media.as_deref());
        }
    }
}
