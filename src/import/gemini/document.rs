//! Sessions as one JSON object, written anew as a whole. A message's frame has what does not change after
//! it was written; counts of tokens and calls that are over follow as frames of their own.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::Value;

use super::message::{Called, Messages, is_over, time};
use super::{Children, opening};
use crate::import::document::{self, Document, Parts};
use crate::import::payload::Payload;
use crate::import::record::{Record, digest, extract_all};
use crate::import::request::{FrameRequest, Turn, object};
use crate::import::{Format, ImportError, Notice, Sink, Transcript};

struct Session {
    messages: Messages,
    left: VecDeque<Value>,
    done: usize,
    /// The other members of the file.
    rest: Option<Record>,
    strict: bool,
    children: Children,
    /// Calls that are not over.
    waiting: usize,
}

pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut record, length) = document::read(path, Format::GeminiCli)?;
    let mut opening = opening(path, session, &record.value);
    // A newer version goes on with the same session in lines of its own: the same messages, other keys.
    opening.key.push_str("/document");
    let name = ["messages", "history"]
        .into_iter()
        .find(|name| record.value.get(name).is_some_and(Value::is_array));
    let messages = name.map(|name| record.value[name].take());
    let Some(Value::Array(messages)) = messages else {
        let why = "neither `messages` nor `history` is a list";
        return Err(Format::GeminiCli.refused(path, why));
    };
    if let Some(name) = name {
        record.value[name] = object([("$frames", "message".into())]);
    }
    let session = Session {
        messages: Messages::default(),
        left: messages.into(),
        done: 0,
        strict: record.strict(),
        children: Children::of(path, &record.value),
        rest: Some(record),
        waiting: 0,
    };
    Ok(Box::new(Document::new(length, opening, session)))
}

impl Parts for Session {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if let Some(message) = self.left.pop_front() {
            self.done += 1;
            out.record();
            self.message(message, out);
        } else if let Some(rest) = self.rest.take() {
            out.record();
            out.frame(self.rest_frame(rest));
            if self.waiting > 0 {
                let what = format!(
                    "{} calls are not over; they are left out and will be taken by the next import, when they are",
                    self.waiting
                );
                out.unfinished(Notice {
                    line: 0,
                    offset: 0,
                    what,
                });
            }
            self.children.others(out);
        } else {
            return false;
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.done, self.done + self.left.len())
    }
}

impl Session {
    fn message(&mut self, mut message: Value, out: &mut Sink<'_>) {
        let key = format!("message/{}", self.done);
        let strict = self.strict;
        self.messages.at(time(&message));
        // What changes after the message was written is not of its frame, not even that it is missing.
        let counts = take_member(&mut message, "tokens", |_| true);
        let calls = take_member(&mut message, "toolCalls", Value::is_array);
        let mut frames = self
            .messages
            .message(&key, &mut message, strict)
            .unwrap_or_else(|| self.messages.conversation.unmapped(key.clone(), out));
        frames[0].attach(Payload::json("record", &message, strict));
        for frame in frames {
            out.frame(frame);
        }
        if !counts.is_null() {
            let key_of_usage = format!("{key}/usage");
            let mut frame =
                self.messages
                    .conversation
                    .classed("observation", "usage", key_of_usage);
            frame
                .put_usage(Some(&counts))
                .link("derived_from", key.clone());
            frame.attach(Payload::json("record", &counts, strict));
            out.frame(frame);
        }
        let calls = match calls {
            Value::Array(calls) => calls,
            _ => Vec::new(),
        };
        for (index, call) in calls.into_iter().enumerate() {
            self.call(&key, index, call, out);
        }
    }

    fn call(&mut self, answer: &str, index: usize, mut call: Value, out: &mut Sink<'_>) {
        if !is_over(&call) {
            self.waiting += 1;
            out.left_out(call.to_string().len() as u64);
            return;
        }
        // Each message comes once: an id that comes again is another call's.
        self.messages.done.clear();
        let key = format!("{answer}/call/{}", index + 1);
        let Called { mut frames, agent } =
            self.messages
                .tool_call(&key, answer, &mut call, self.strict);
        if let Some(first) = frames.first_mut() {
            first.attach(Payload::json("record", &call, self.strict));
        }
        for frame in frames {
            out.frame(frame);
        }
        if let Some((agent, call)) = agent {
            self.children.named(&agent, &call, out);
        }
    }

    /// The other members of the file. They change while the agent works, and then are another frame.
    fn rest_frame(&self, mut rest: Record) -> FrameRequest {
        let key = format!("session/{}/{}", self.done, digest(&rest.value));
        let mut frame = FrameRequest::new("observation", key, Turn::Run);
        frame.class("session_summary");
        extract_all(
            &mut rest.value,
            &[("summary", "summary")],
            &mut frame,
            self.strict,
        );
        rest.leave_rest(&mut frame);
        frame
    }
}

/// Takes a member out of a message, where it is of the form in which it grows or `null`.
fn take_member(message: &mut Value, name: &str, form: fn(&Value) -> bool) -> Value {
    let fits = message
        .get(name)
        .is_some_and(|value| value.is_null() || form(value));
    let members = message.as_object_mut().filter(|_| fits);
    members
        .and_then(|members| members.remove(name))
        .unwrap_or_default()
}
