//! JSON lines: a conversation a line, as for fine-tuning, where each is a run of its own; or a message
//! a line, where the file is the conversation.

use std::path::Path;

use serde_json::Value;

use super::item;
use super::opening;
use super::shape::{is_exchange, is_message, messages};
use super::talk::Talk;
use crate::import::child::linked;
use crate::import::jsonl::{JsonLines, LineMapper, key};
use crate::import::record::Record;
use crate::import::request::{FrameRequest, Turn};
use crate::import::{Format, ImportError, Sink, Transcript, stem};

/// Records that are looked at.
const LOOK: usize = 8;

/// What the lines of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    Conversations,
    Messages,
}

impl Lines {
    fn of(records: &[Value]) -> Option<Self> {
        let all = |test: fn(&Value) -> bool| records.iter().take(LOOK).all(test);
        let said = |one: &Value| is_message(one) || item::is_item(one);
        let first: Value = records.iter().take(LOOK).cloned().collect();
        if records.is_empty() {
            None
        } else if all(is_conversation) {
            Some(Self::Conversations)
        } else {
            (all(said) && messages(&first)).then_some(Self::Messages)
        }
    }
}

fn is_conversation(value: &Value) -> bool {
    value.get("messages").is_some_and(messages) && is_exchange(value)
}

/// Whether each of a file's first lines is a conversation, or each a message. Objects in the lines of a
/// list that was cut off are no lines of their own.
pub(super) fn fits(text: &str, records: &[Value]) -> bool {
    text.trim_start().starts_with('{') && Lines::of(records).is_some()
}

/// Opens a file of lines.
///
/// # Errors
/// The file cannot be read, or its first record is no conversation and no message.
pub(super) fn open(
    path: &Path,
    session: Option<&str>,
    records: &[Value],
) -> Result<Box<dyn Transcript>, ImportError> {
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let Some(lines) = records
        .first()
        .and_then(|first| Lines::of(std::slice::from_ref(first)))
    else {
        let why = "its first line that is JSON is neither a conversation (`messages`) nor a message \
            (`role` and `content`)";
        return Err(Format::Chat.refused(path, why));
    };
    let mut opening = opening(&name, None, None, true);
    // A file of one line is one conversation and read as such: this run is another.
    if lines == Lines::Conversations {
        opening.key.push_str("/lines");
    }
    let mapper = Chats {
        key: opening.key.clone(),
        name,
        lines,
        threads: 0,
        talk: Talk::new(true),
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

struct Chats {
    key: String,
    name: String,
    lines: Lines,
    threads: usize,
    /// The conversation of a file of messages.
    talk: Talk,
}

impl LineMapper for Chats {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        match self.lines {
            Lines::Messages => self.message(line, record, out),
            Lines::Conversations if is_conversation(&record.value) => {
                self.conversation(line, record, out);
            }
            Lines::Conversations => {
                let frame = FrameRequest::new("observation", key(line), Turn::Run);
                unmapped(frame, record, out);
            }
        }
    }

    fn turn(&self) -> Turn {
        self.talk.conversation.turn()
    }
}

impl Chats {
    fn message(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        self.talk.strict = record.strict();
        let mut frames = self.talk.frames(&key(line), &mut record.value).into_iter();
        let Some(mut first) = frames.next() else {
            let frame = self.talk.conversation.frame("observation", key(line));
            return unmapped(frame, record, out);
        };
        record.leave_rest(&mut first);
        out.frame(first);
        frames.for_each(|frame| out.frame(frame));
    }

    /// A line that is a conversation: its run's first frame has the line, those that follow what was
    /// said.
    fn conversation(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        self.threads += 1;
        let thread = self.threads;
        let name = format!("{}/line/{line}", self.name);
        let mut opening = opening(&name, None, Some(&record.value), true);
        opening.key = format!("{}/{line}", self.key);
        out.open(thread, opening);
        let (up, down) = linked(0, thread, &format!("line/{line}"), None);
        out.frame_of(thread, up);
        out.frame(down);

        let mut talk = Talk::new(record.strict());
        let mut first = talk
            .conversation
            .classed("observation", "conversation", key(line));
        for (from, to) in [("model", "model"), ("id", "id"), ("custom_id", "id")] {
            first.copy(&record.value, from, to);
        }
        let mut frames = Vec::new();
        let said = record
            .value
            .get_mut("messages")
            .and_then(Value::as_array_mut);
        for (index, message) in said.into_iter().flatten().enumerate() {
            let part = format!("{}/message/{}", key(line), index + 1);
            let made = talk.frames(&part, message);
            if made.is_empty() {
                let mut frame = talk.conversation.classed("observation", "unmapped", part);
                frame.copy(message, "role", "role");
                frames.push(frame);
                out.unmapped();
            }
            out.record();
            frames.extend(made);
        }
        record.leave_rest(&mut first);
        out.frame_of(thread, first);
        for frame in frames {
            out.frame_of(thread, frame);
        }
    }
}

fn unmapped(mut frame: FrameRequest, record: Record, out: &mut Sink<'_>) {
    out.unmapped();
    frame.class("unmapped");
    record.leave_rest(&mut frame);
    out.frame(frame);
}
