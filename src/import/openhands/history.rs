//! Events in their order, wherever they stand.

use serde_json::Value;

use super::{classic, sdk};
use crate::import::Sink;
use crate::import::conversation::Conversation;
use crate::import::jsonl::{self, LineMapper};
use crate::import::record::{Record, extract};
use crate::import::request::{FrameRequest, Turn};
use crate::import::text::written_time;

/// What later events of a conversation refer back to.
#[derive(Default)]
pub(super) struct History {
    pub conversation: Conversation,
    /// The model's answer that was seen last: its id, and the key of its frame. An answer with several
    /// calls is an event for each of them.
    pub answer: Option<(String, String)>,
    /// Whether the end was told since the last prompt: the agent's own call and the change of its state
    /// are one end.
    pub ended: bool,
}

/// An event on its way to frames. The frame with the event's key gets the rest of the record.
pub(super) struct Step<'a> {
    pub key: &'a str,
    pub event: &'a mut Value,
    strict: bool,
    frames: Vec<FrameRequest>,
    /// Whether no kind fits.
    pub unmapped: bool,
}

impl Step<'_> {
    /// The key of a part of the event.
    pub fn part(&self, name: &str) -> String {
        format!("{}/{name}", self.key)
    }

    /// The text at a JSON pointer.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.event.pointer(pointer)?.as_str()
    }

    /// Moves what stands at a JSON pointer into a payload; text that is the only block of a list as text.
    pub fn take(&mut self, pointer: &str, frame: &mut FrameRequest, name: &str) {
        if let Some(slot) = self.event.pointer_mut(pointer) {
            take_content(slot, frame, name, self.strict);
        }
    }

    pub fn push(&mut self, frame: FrameRequest) {
        self.frames.push(frame);
    }
}

/// Moves the content of a message into a payload: text as text, also where it is the only block of a list.
pub(super) fn take_content(slot: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    if let Value::Array(blocks) = slot {
        match blocks.as_mut_slice() {
            [] => return,
            [only] if only.get("text").is_some_and(Value::is_string) => {
                return extract(&mut only["text"], frame, name, strict);
            }
            _ => {}
        }
    }
    extract(slot, frame, name, strict);
}

impl History {
    /// Maps an event to frames, one of which has its key.
    pub fn map(
        &mut self,
        key: &str,
        event: &mut Value,
        strict: bool,
        out: &mut Sink<'_>,
    ) -> Vec<FrameRequest> {
        let time = event.get("timestamp").and_then(Value::as_str);
        self.conversation.at(time.and_then(written_time));
        let mut step = Step {
            key,
            event,
            strict,
            frames: Vec::new(),
            unmapped: false,
        };
        if sdk::is_event(step.event) {
            sdk::map(self, &mut step);
        } else {
            classic::map(self, &mut step);
        }
        if step.unmapped {
            out.unmapped();
        }
        step.frames
    }

    /// Maps a record of its own, and posts the frames.
    pub fn record(&mut self, key: &str, mut record: Record, out: &mut Sink<'_>) {
        let strict = record.strict();
        let mut frames = self.map(key, &mut record.value, strict, out);
        if let Some(frame) = frames.iter_mut().find(|frame| frame.key == key) {
            record.leave_rest(frame);
        }
        frames.into_iter().for_each(|frame| out.frame(frame));
    }

    /// Maps an event that stands in another record, and posts the frames to the run of a thread. A
    /// reference to the event's own record stands in its place afterwards.
    pub fn inner(
        &mut self,
        key: &str,
        event: &mut Value,
        strict: bool,
        thread: usize,
        out: &mut Sink<'_>,
    ) {
        out.record();
        let mut frames = self.map(key, event, strict, out);
        if let Some(frame) = frames.iter_mut().find(|frame| frame.key == key) {
            extract(event, frame, "record", strict);
        }
        for frame in frames {
            out.frame_of(thread, frame);
        }
    }
}

/// Events, one a line.
#[derive(Default)]
pub(super) struct EventLines {
    history: History,
}

impl LineMapper for EventLines {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        self.history.record(&jsonl::key(line), record, out);
    }

    fn turn(&self) -> Turn {
        self.history.conversation.turn()
    }
}
