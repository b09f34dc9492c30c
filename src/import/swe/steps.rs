//! Messages of the history and steps of the trajectory.

use serde_json::Value;

use super::{Trajectory, role, unmapped_without};
use crate::import::Sink;
use crate::import::record::extract;
use crate::import::request::FrameRequest;

impl Trajectory {
    fn next_message(&mut self, out: &mut Sink<'_>) -> Option<(Value, String)> {
        let message = self.history.pop_front()?;
        self.message += 1;
        out.record();
        Some((message, format!("history/{}", self.message)))
    }

    /// A message that no step accounts for: the system's prompt, a demonstration, the task, or a result
    /// of a trajectory that has a history only.
    pub(super) fn message(&mut self, frames: &mut Vec<FrameRequest>, out: &mut Sink<'_>) {
        let Some((mut message, key)) = self.next_message(out) else {
            return;
        };
        let demonstration = message.get("is_demo").and_then(Value::as_bool) == Some(true)
            || message.get("message_type").and_then(Value::as_str) == Some("demonstration");
        let role = role(&message).to_owned();
        let task = role == "user" && !self.turn_open && !demonstration;
        let mut frame = if task {
            // The task opens the one turn of a trajectory.
            self.turn_open = true;
            let mut frame = self.frame("turn", key);
            frame.put("prompt", "task");
            frame
        } else if self.step == 0 && !self.calls.open.is_empty() {
            self.result_message(&message, key)
        } else {
            let class = match role.as_str() {
                _ if demonstration => "demonstration",
                "system" => "system_prompt",
                _ => "message",
            };
            let mut frame = self.frame("context", key);
            frame.class(class);
            frame
        };
        frame
            .speaker(message.get("role"))
            .copy(&message, "role", "role")
            .copy(&message, "agent", "agent");
        let name = match frame.kind {
            "turn" => "prompt",
            "tool_result" => "result",
            _ => "text",
        };
        if let Some(content) = message.get_mut("content") {
            extract(content, &mut frame, name, self.strict);
        }
        self.leave(&message, &["content", "role", "agent"], &mut frame);
        unmapped_without(&message, "role", &mut frame, out);
        frames.push(frame);
    }

    /// The message that answers a call, where there are no steps to tell the result.
    fn result_message(&mut self, message: &Value, key: String) -> FrameRequest {
        let mut frame = self.frame("tool_result", key);
        let ids = message.get("tool_call_ids").and_then(Value::as_array);
        let ids: Vec<_> = ids
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut answered = Vec::new();
        self.calls.open.retain(|(id, call)| {
            let named = id.as_deref().is_some_and(|id| ids.contains(&id));
            let answers = named || ids.is_empty();
            if answers {
                answered.push(call.clone());
            }
            !answers
        });
        for call in answered {
            frame.link("answers", call);
        }
        frame.put("status", "not stated");
        frame
    }

    /// A step of the trajectory, with the messages of the history that belong to it.
    pub(super) fn agent_step(&mut self, frames: &mut Vec<FrameRequest>, out: &mut Sink<'_>) {
        let Some(mut step) = self.steps.pop_front() else {
            return;
        };
        self.step += 1;
        out.record();
        let key = format!("step/{}", self.step);
        let mut message = self.history_of(&step, out);
        let call = self.model_call(&mut step, &key);
        let mut answer = self.frame("model_result", key.clone());
        answer.put("speaker", "model").put("step", self.step);
        answer.link("answers", call.key.clone());
        self.copy_model(&mut answer);
        let mut tools = Vec::new();
        if let Some(message) = &mut message {
            self.tool_calls(message, &key, &mut tools);
        }
        if tools.is_empty() {
            let mut tool = self.frame("tool_call", format!("{key}/call/1"));
            tool.link("derived_from", key.clone());
            tool.put("name", "shell");
            tools.push(tool);
        }
        let written = step.clone();
        self.take(&mut step, &mut answer, &[("response", "text")]);
        if step.get("thought") == written.get("response") {
            step["thought"] = step["response"].clone();
        }
        self.take(&mut step, &mut answer, &[("thought", "thought")]);
        // The action is the command that SWE-agent ran, however the model asked for it.
        self.take(&mut step, &mut tools[0], &[("action", "action")]);
        if let Some(mut message) = message {
            answer.copy(&message, "agent", "agent");
            for (member, of_step) in [
                ("content", "response"),
                ("thought", "thought"),
                ("action", "action"),
            ] {
                if message.get(member).is_some() && message.get(member) == written.get(of_step) {
                    message[member] = step[of_step].clone();
                }
            }
            self.take_message(&mut message, &mut answer);
            self.leave(&message, &["role", "agent", "message_type"], &mut answer);
        }
        let result = self.result(&mut step, &key, &tools, out);
        self.leave(&step, &[], &mut answer);
        unmapped_without(&step, "response", &mut answer, out);
        self.calls.open.clear();
        frames.push(call);
        frames.push(answer);
        frames.append(&mut tools);
        frames.push(result);
    }

    fn model_call(&self, step: &mut Value, key: &str) -> FrameRequest {
        let mut call = self.frame("model_call", format!("{key}/model"));
        self.copy_model(&mut call);
        call.put("revision", "not_identifiable");
        // What the model was given: `messages` at first, `query` later.
        self.take(
            step,
            &mut call,
            &[("messages", "messages"), ("query", "messages")],
        );
        call
    }

    fn copy_model(&self, frame: &mut FrameRequest) {
        if let Some(model) = &self.model {
            frame.put("model", model.clone());
        }
    }

    /// The result of a step: what the environment answered, and how that was shown to the model.
    fn result(
        &mut self,
        step: &mut Value,
        key: &str,
        tools: &[FrameRequest],
        out: &mut Sink<'_>,
    ) -> FrameRequest {
        let mut result = self.frame("tool_result", format!("{key}/result"));
        for tool in tools {
            result.link("answers", tool.key.clone());
        }
        // A trajectory tells what came back, not whether it went well.
        result.put("status", "not stated");
        result.put_millis("duration_ms", step.get("execution_time"));
        self.take(
            step,
            &mut result,
            &[("observation", "result"), ("state", "state")],
        );
        while self
            .history
            .front()
            .is_some_and(|message| matches!(role(message), "user" | "tool"))
        {
            let Some((mut message, _)) = self.next_message(out) else {
                break;
            };
            self.take(&mut message, &mut result, &[("content", "shown")]);
            self.leave(&message, &[], &mut result);
        }
        result
    }

    /// The history's message of this step, if the next one is it.
    fn history_of(&mut self, step: &Value, out: &mut Sink<'_>) -> Option<Value> {
        let message = self.history.front()?;
        let same = |member: &str, other: &str| {
            let text = step.get(member).and_then(Value::as_str);
            text.is_some() && text == message.get(other).and_then(Value::as_str)
        };
        let belongs = role(message) == "assistant"
            && (same("response", "content")
                || same("action", "action")
                || same("thought", "thought"));
        // A history may have been shortened: a message of another step is left for its own.
        if belongs {
            self.next_message(out).map(|(message, _)| message)
        } else {
            None
        }
    }

    /// An answer of a trajectory that has a history only.
    pub(super) fn lone_answer(&mut self, frames: &mut Vec<FrameRequest>, out: &mut Sink<'_>) {
        let Some((mut message, key)) = self.next_message(out) else {
            return;
        };
        let mut answer = self.frame("model_result", key.clone());
        answer.put("speaker", "model");
        self.copy_model(&mut answer);
        self.take_message(&mut message, &mut answer);
        let mut tools = Vec::new();
        self.calls.open.clear();
        self.tool_calls(&mut message, &key, &mut tools);
        if tools.is_empty() && message.get("action").is_some() {
            let mut tool = self.frame("tool_call", format!("{key}/call/1"));
            tool.link("derived_from", key);
            tool.put("name", "shell");
            self.calls.open.push((None, tool.key.clone()));
            tools.push(tool);
        }
        if let Some(tool) = tools.first_mut() {
            self.take(&mut message, tool, &[("action", "action")]);
        }
        self.leave(&message, &[], &mut answer);
        frames.push(answer);
        frames.append(&mut tools);
    }

    /// Moves what an answer of the history says into payloads.
    fn take_message(&self, message: &mut Value, answer: &mut FrameRequest) {
        answer.copy(message, "agent", "agent");
        let members = [
            ("content", "text"),
            ("thought", "thought"),
            ("thinking_blocks", "thinking"),
        ];
        for (member, name) in members {
            // Beside a step, what is the step's own text is a reference already.
            if message
                .get(member)
                .is_some_and(|value| value.get("$payload").is_none())
            {
                self.take(message, answer, &[(member, name)]);
            }
        }
    }

    /// The functions that an answer calls.
    fn tool_calls(&mut self, message: &mut Value, key: &str, tools: &mut Vec<FrameRequest>) {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let mut tool = self.frame("tool_call", format!("{key}/call/{}", index + 1));
            tool.link("derived_from", key);
            tool.copy(call, "id", "tool_call_id");
            let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
            if id
                .as_ref()
                .is_some_and(|id| !self.calls.seen.insert(id.clone()))
            {
                tool.put("tool_call_id_repeated", true);
            }
            self.calls.open.push((id, tool.key.clone()));
            if let Some(function) = call.get_mut("function") {
                tool.copy(function, "name", "name");
                if let Some(arguments) = function.get_mut("arguments") {
                    extract(arguments, &mut tool, "arguments", self.strict);
                }
            }
            tools.push(tool);
        }
    }
}
