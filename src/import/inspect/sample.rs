//! The run of a sample.

use serde_json::Value;

use super::head::error;
use super::lists::Said;
use super::store::Store;
use super::{event, message, text};
use crate::import::Sink;
use crate::import::conversation::Conversation;
use crate::import::record::{Record, digest, extract};
use crate::import::request::{FrameRequest, Turn, key_part};
use crate::import::text::{is_label, written_time};

/// Where the events are: now, and in the first versions.
const EVENTS: [&str; 2] = ["/events", "/transcript/events"];

/// A sample on its way to frames.
pub(super) struct SampleRun {
    pub thread: usize,
    pub strict: bool,
    pub conversation: Conversation,
    pub said: Said,
    pub store: Store,
    /// How many events were mapped, those within others among them.
    pub events: usize,
}

/// Posts the frames of a sample to its run.
pub(super) fn post(mut record: Record, thread: usize, out: &mut Sink<'_>) {
    let strict = record.strict();
    let mut run = SampleRun {
        thread,
        strict,
        conversation: Conversation::default(),
        said: Said::default(),
        store: Store::of(&mut record.value),
        events: 0,
    };
    let sample = &mut record.value;
    let mut mapped = false;
    for pointer in EVENTS {
        if let Some(Value::Array(events)) = sample.pointer_mut(pointer) {
            let mut events = std::mem::take(events);
            mapped |= !events.is_empty();
            let init = |event: &Value| text(event, "event") == Some("sample_init");
            if !events.is_empty() && !events.iter().any(init) {
                run.prompt(sample, out);
            }
            for event in &mut events {
                event::post(&mut run, event, out);
            }
            if let Some(slot) = sample.pointer_mut(pointer) {
                *slot = events.into();
            }
        }
    }
    if !mapped && let Some(Value::Array(messages)) = sample.get_mut("messages") {
        for (index, message) in messages.iter_mut().enumerate() {
            message::post(&mut run, index + 1, message, out);
        }
    }
    run.end(record, out);
}

impl SampleRun {
    /// The input, where no event tells of it.
    fn prompt(&mut self, sample: &mut Value, out: &mut Sink<'_>) {
        if let Some(input) = sample.get_mut("input") {
            self.store.resolve_texts(input);
            let mut frame = self.conversation.prompt("prompt");
            self.said.value(input, &mut frame, "prompt", self.strict);
            out.frame_of(self.thread, frame);
        }
    }

    /// What the sample says after its events: scores, how it ended, and the rest.
    fn end(mut self, mut record: Record, out: &mut Sink<'_>) {
        let (thread, strict) = (self.thread, self.strict);
        let sample = &mut record.value;
        let completed = text(sample, "completed_at").and_then(written_time);
        self.conversation.at(completed);
        for member in ["input", "messages", "output"] {
            if let Some(slot) = sample.get_mut(member) {
                self.store.resolve_texts(slot);
            }
        }
        let store = std::mem::replace(&mut self.store, Store::of(&mut Value::Null));
        store.leave_rest(sample);
        self.scores(sample, out);
        let outcome = self.outcome(sample);
        out.record();
        let mut frame = FrameRequest::new(
            "observation",
            format!("sample/{}", digest(sample)),
            Turn::Run,
        );
        frame.class("sample");
        for (member, to) in [
            ("id", "sample_id"),
            ("epoch", "epoch"),
            ("uuid", "sample_uuid"),
        ] {
            frame.copy(sample, member, to);
        }
        frame.put_millis("duration_ms", sample.get("total_time"));
        frame.put_millis("working_ms", sample.get("working_time"));
        let usage = sample.get("model_usage").and_then(Value::as_object);
        if let Some((model, counts)) =
            usage.and_then(|usage| usage.iter().next().filter(|_| usage.len() == 1))
        {
            frame.put_usage(Some(counts));
            if is_label(model, 200) {
                frame.put("model", model.as_str());
            }
        }
        if let Some(error_of) = sample.get_mut("error").filter(|error| error.is_object()) {
            error(error_of, "error", &mut frame, strict);
        }
        if let Some(messages) = sample.get_mut("messages") {
            self.said.list(messages, &mut frame, "messages", strict);
        }
        for member in ["input", "target", "output", "store", "metadata"] {
            if let Some(slot) = sample.get_mut(member) {
                self.said.value(slot, &mut frame, member, strict);
            }
        }
        record.leave_rest(&mut frame);
        out.frame_of(thread, frame);
        if let Some(outcome) = outcome {
            out.frame_of(thread, outcome);
        }
    }

    /// The scores. A transcript's score is what the transcript says, and no gate's verdict.
    fn scores(&mut self, sample: &mut Value, out: &mut Sink<'_>) {
        let scores = sample.get_mut("scores").and_then(Value::as_object_mut);
        for (name, score) in scores.into_iter().flatten() {
            if !score.is_object() {
                continue;
            }
            out.record();
            let key = format!("score/{}/{}", key_part(name), digest(score));
            let mut frame = self.conversation.classed("observation", "score", key);
            frame.turn = Turn::Run;
            if is_label(name, 200) {
                frame.put("name", name.as_str());
            }
            fill_score(score, &mut frame, &mut self.said, self.strict);
            extract(score, &mut frame, "record", self.strict);
            out.frame_of(self.thread, frame);
        }
    }

    /// How the sample ended, where it says so. One that a limit ended did not end by itself.
    fn outcome(&self, sample: &Value) -> Option<FrameRequest> {
        let told = |member: &str| sample.get(member).is_some_and(|value| !value.is_null());
        let scored = sample.get("scores").is_some_and(Value::is_object);
        let limit = sample.get("limit").and_then(|limit| text(limit, "type"));
        let answered = sample.pointer("/output/choices/0").is_some();
        let status = match limit {
            _ if told("error") => "failed",
            Some("operator") => "cancelled",
            Some(_) => "failed",
            None if answered || scored || told("completed_at") => "completed",
            None => return None,
        };
        let key = format!("outcome/{status}");
        let mut frame = self.conversation.frame("outcome", key);
        frame.turn = Turn::Run;
        frame.put("status", status);
        if let Some(limit) = limit.filter(|limit| is_label(limit, 200)) {
            frame.put("limit", limit);
        }
        Some(frame)
    }
}

/// The value of a score, and what was said about it.
pub(super) fn fill_score(
    score: &mut Value,
    frame: &mut FrameRequest,
    said: &mut Said,
    strict: bool,
) {
    frame.copy(score, "value", "value");
    if let Some(value) = score
        .get_mut("value")
        .filter(|value| value.is_object() || value.is_array())
    {
        extract(value, frame, "value", strict);
    }
    for member in ["answer", "explanation", "metadata"] {
        if let Some(slot) = score.get_mut(member) {
            said.value(slot, frame, member, strict);
        }
    }
}
