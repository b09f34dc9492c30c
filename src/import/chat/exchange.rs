//! Requests and answers of the APIs: messages, and what stands beside them.

use std::collections::VecDeque;

use serde_json::Value;

use super::talk::Talk;
use super::text;
use super::whole::{How, Said};
use crate::import::request::{FrameRequest, object};

/// The messages of a request, then the request, then what was answered.
pub(super) fn said(value: &mut Value) -> VecDeque<Said> {
    let mut said = VecDeque::new();
    for member in ["system", "instructions"] {
        let there = value.get(member);
        if there.is_some_and(|it| it.is_string() || it.is_array()) {
            let taken = value[member].take();
            push(&mut said, member, taken, How::Instructions);
            value[member] = object([("$frames", member.into())]);
        }
    }
    list(&mut said, value, "messages", "message");
    match value.get("input") {
        Some(Value::String(_)) => {
            let mut asked = object([("role", "user".into())]);
            asked["content"] = value["input"].take();
            value["input"] = object([("$frames", "input/1".into()), ("$member", "content".into())]);
            push(&mut said, "input/1", asked, How::Message);
        }
        _ => list(&mut said, value, "input", "input"),
    }
    let answered = |last: &Said| text(&last.value, "role") == Some("assistant");
    let open = said.back().is_some_and(|last| !answered(last));
    let answer = ["choices", "output"]
        .into_iter()
        .any(|member| value.get(member).is_some_and(Value::is_array));
    if text(value, "model").is_some() && (answer || open) {
        let key = format!("request/{}", said.len());
        push(&mut said, &key, Value::Null, How::Request);
    }
    if let Some(Value::Array(choices)) = value.get_mut("choices") {
        let choices = std::mem::take(choices);
        for (index, choice) in choices.into_iter().enumerate() {
            push(
                &mut said,
                &format!("choice/{}", index + 1),
                choice,
                How::Choice,
            );
        }
        value["choices"] = object([("$frames", "choice".into())]);
    }
    list(&mut said, value, "output", "output");
    said
}

/// Takes a list of messages out of a member.
fn list(said: &mut VecDeque<Said>, value: &mut Value, member: &str, key: &str) {
    if let Some(all) = value.get_mut(member).filter(|all| all.is_array()) {
        messages(said, all, key);
        *all = object([("$frames", key.into())]);
    }
}

/// Takes the messages out of a list.
pub(super) fn messages(said: &mut VecDeque<Said>, all: &mut Value, key: &str) {
    if let Value::Array(all) = all.take() {
        for (index, message) in all.into_iter().enumerate() {
            push(said, &format!("{key}/{}", index + 1), message, How::Message);
        }
    }
}

fn push(said: &mut VecDeque<Said>, key: &str, value: Value, how: How) {
    said.push_back(Said {
        key: key.to_owned(),
        value,
        how,
    });
}

impl Talk {
    /// An answer among others, with the reason why it ended beside it.
    pub(super) fn choice(&mut self, key: &str, choice: &mut Value) -> Vec<FrameRequest> {
        let Some(message) = choice.get_mut("message").filter(|it| it.is_object()) else {
            return Vec::new();
        };
        let mut message = message.take();
        let mut frames = self.assistant(key, &mut message);
        choice["message"] = message;
        if let Some(answer) = frames.first_mut() {
            answer
                .copy(choice, "finish_reason", "finish_reason")
                .copy(choice, "index", "choice");
        }
        frames
    }
}
