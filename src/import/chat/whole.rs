//! Files that are one JSON value: a conversation, or a list of them.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use serde_json::Value;

use super::shape::{Export, Shape};
use super::talk::Talk;
use super::{chatgpt, claude_ai, exchange, opening, text};
use crate::import::child::linked;
use crate::import::document::{Document, Parts, read_list};
use crate::import::payload::Payload;
use crate::import::record::{Record, digest, extract};
use crate::import::request::{FrameRequest, Turn, key_part, labels, object};
use crate::import::{Format, ImportError, Opening, Sink, Transcript, stem};

/// A message on its way to frames.
pub(super) struct Said {
    /// The key of its first frame.
    pub key: String,
    /// The message, or what it stands in.
    pub value: Value,
    /// What it is.
    pub how: How,
}

/// What is said, by where it stands.
pub(super) enum How {
    /// A message or an item.
    Message,
    /// A choice of an answer, with the message in it.
    Choice,
    /// Instructions that stand beside the messages.
    Instructions,
    /// A node of ChatGPT's tree, which follows the node with this key.
    ChatGpt(Option<String>),
    /// A message of Claude.ai, which follows the one with this key.
    ClaudeAi(Option<String>),
    /// The request itself, after its messages.
    Request,
}

/// A conversation that is being read.
struct Chat {
    thread: usize,
    said: VecDeque<Said>,
    /// What the file says about it; a bare list says nothing.
    about: Option<Value>,
    talk: Talk,
}

/// The conversations of a file.
struct Chats {
    name: String,
    strict: bool,
    /// The exact bytes of a file that the strict reader refused are kept with its last frame.
    file: Option<(String, Record)>,
    /// Whether it is a list of conversations.
    many: bool,
    waiting: VecDeque<Value>,
    total: usize,
    done: usize,
    threads: usize,
    seen: HashSet<String>,
    chat: Option<Chat>,
}

/// Opens a file that is one JSON value.
///
/// # Errors
/// The file cannot be read, is too large, or is no chat.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut file, length) = read_list(path, Format::Chat)?;
    let Some(shape) = Shape::of(&file.value) else {
        let why = "it is JSON, but no list of messages, no object with such a list in `messages`, \
            `input`, `output` or `choices`, and no export of ChatGPT or Claude.ai";
        return Err(Format::Chat.refused(path, why));
    };
    let strict = file.strict();
    let refused = (!strict).then(|| format!("file/{}", digest(&file.value)));
    let value = file.value.take();
    let name = session.map_or_else(|| own_name(&value, shape, path), str::to_owned);
    let mut chats = Chats {
        name,
        strict,
        file: refused.map(|key| (key, file)),
        many: false,
        waiting: VecDeque::new(),
        total: 0,
        done: 0,
        threads: 0,
        seen: HashSet::new(),
        chat: None,
    };
    let opening = match (shape, value) {
        (Shape::Many(_), Value::Array(items)) => {
            chats.many = true;
            chats.total = items.len();
            chats.waiting = items.into();
            opening(&chats.name, agent(shape), None, true)
        }
        (shape, value) => {
            let opening = opening(&chats.name, agent(shape), Some(&value), true);
            let chat = Chat::of(shape, value, 0, strict);
            chats.total = chat.said.len();
            chats.chat = Some(chat);
            opening
        }
    };
    Ok(Box::new(Document::new(length, opening, chats)))
}

/// Who answered, where the shape of the file says so.
fn agent(shape: Shape) -> Option<&'static str> {
    match shape {
        Shape::ChatGpt | Shape::Many(Export::ChatGpt) => Some("chatgpt"),
        Shape::ClaudeAi | Shape::Many(Export::ClaudeAi) => Some("claude.ai"),
        _ => None,
    }
}

/// A conversation of an export has an id of its own; all else is named by its file.
fn own_name(value: &Value, shape: Shape, path: &Path) -> String {
    let id = match shape {
        Shape::ChatGpt | Shape::ClaudeAi => id(value),
        _ => None,
    };
    id.map_or_else(|| stem(path), str::to_owned)
}

fn id(conversation: &Value) -> Option<&str> {
    ["conversation_id", "uuid", "id"]
        .into_iter()
        .find_map(|member| text(conversation, member))
        .filter(|id| !id.is_empty())
}

impl Parts for Chats {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if let Some(mut chat) = self.chat.take() {
            if chat.step(out) {
                self.done += usize::from(!self.many);
                self.chat = Some(chat);
            } else {
                chat.account(out);
            }
        } else if let Some(conversation) = self.waiting.pop_front() {
            self.done += 1;
            self.begin(conversation, out);
        } else if let Some((key, file)) = self.file.take() {
            let mut frame = FrameRequest::new("observation", key, Turn::Run);
            frame.class("file");
            file.leave_rest(&mut frame);
            out.frame(frame);
        } else {
            return false;
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.done.min(self.total), self.total)
    }
}

impl Chats {
    /// Opens the run of the next conversation of a list.
    fn begin(&mut self, conversation: Value, out: &mut Sink<'_>) {
        let single =
            |shape: &Shape| matches!(shape, Shape::ChatGpt | Shape::ClaudeAi | Shape::Exchange);
        let Some(shape) = Shape::of(&conversation).filter(single) else {
            out.record();
            out.unmapped();
            let key = format!("item/{}", self.done);
            let mut frame = FrameRequest::new("observation", key, Turn::Run);
            frame.class("unmapped");
            frame.attach(Payload::json("record", &conversation, self.strict));
            return out.frame(frame);
        };
        // By its own id; without one, or with one that was there already, by its place.
        let own = id(&conversation).map(key_part);
        let own = own.filter(|id| self.seen.insert(id.clone()));
        let own = own.unwrap_or_else(|| format!("place/{}", self.done));
        self.threads += 1;
        let name = id(&conversation).unwrap_or(&own).to_owned();
        let mut opening: Opening = opening(&name, agent(shape), Some(&conversation), true);
        opening.key = format!("import/chat/{}/conversation/{own}", key_part(&self.name));
        out.open(self.threads, opening);
        let (up, down) = linked(0, self.threads, &own, None);
        out.frame_of(self.threads, up);
        out.frame(down);
        self.chat = Some(Chat::of(shape, conversation, self.threads, self.strict));
    }
}

impl Chat {
    fn of(shape: Shape, mut value: Value, thread: usize, strict: bool) -> Self {
        let (said, about) = match shape {
            Shape::ChatGpt => (chatgpt::said(&mut value), Some(value)),
            Shape::ClaudeAi => (claude_ai::said(&mut value), Some(value)),
            Shape::Message => {
                let key = "message/1".to_owned();
                let how = How::Message;
                (VecDeque::from([Said { key, value, how }]), None)
            }
            Shape::Exchange => (exchange::said(&mut value), Some(value)),
            Shape::Messages | Shape::Many(_) => {
                let mut said = VecDeque::new();
                exchange::messages(&mut said, &mut value, "message");
                (said, None)
            }
        };
        Self {
            thread,
            said,
            about,
            talk: Talk::new(strict),
        }
    }

    /// Maps the next message. `false` when there is none left.
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let Some(mut said) = self.said.pop_front() else {
            return false;
        };
        let key = said.key.as_str();
        let frames = match &said.how {
            How::Request => {
                let frame = self.request(key);
                out.frame_of(self.thread, frame);
                return true;
            }
            How::Instructions => {
                let mut message = object([("content", said.value.take())]);
                let frame = self.talk.instructions(key, "system", &mut message);
                said.value = message["content"].take();
                vec![frame]
            }
            How::Message => self.talk.frames(key, &mut said.value),
            How::Choice => self.talk.choice(key, &mut said.value),
            How::ChatGpt(parent) => self.talk.node(key, parent.as_deref(), &mut said.value),
            How::ClaudeAi(parent) => self.talk.sent(key, parent.as_deref(), &mut said.value),
        };
        out.record();
        let (frames, known) = self.talk.with_record(key, frames, &said.value);
        if !known {
            out.unmapped();
        }
        for frame in frames {
            out.frame_of(self.thread, frame);
        }
        true
    }

    /// The request whose messages stand in the file, with the model and its settings.
    fn request(&mut self, key: &str) -> FrameRequest {
        let mut call = self.talk.conversation.frame("model_call", key);
        let mut about = self.about.take().unwrap_or_default();
        settings(&about, &mut call);
        call.put("revision", "not_identifiable");
        for (member, name) in [
            ("tools", "tools"),
            ("functions", "tools"),
            ("response_format", "output_schema"),
        ] {
            self.talk.take(&mut about, &mut call, member, name);
        }
        self.talk.asked = Some(key.to_owned());
        self.talk.response(&about);
        self.about = Some(about);
        call
    }

    /// What the file says about the conversation, as it was at this moment.
    fn account(self, out: &mut Sink<'_>) {
        let Some(mut about) = self.about else { return };
        out.record();
        let key = format!("conversation/{}", digest(&about));
        let mut frame = FrameRequest::new("observation", key, Turn::Run);
        frame.class("conversation");
        settings(&about, &mut frame);
        for (from, to) in [
            ("id", "id"),
            ("object", "object"),
            ("status", "status"),
            ("default_model_slug", "model"),
        ] {
            frame.copy(&about, from, to);
        }
        frame.put_usage(about.get("usage"));
        for (member, name) in [
            ("title", "title"),
            ("name", "title"),
            ("summary", "summary"),
        ] {
            let slot = about.get_mut(member).filter(|slot| slot.is_string());
            if let Some(slot) = slot {
                extract(slot, &mut frame, name, self.talk.strict);
            }
        }
        frame.attach(Payload::json("record", &about, self.talk.strict));
        out.frame_of(self.thread, frame);
    }
}

fn settings(about: &Value, frame: &mut FrameRequest) {
    for (from, to) in [
        ("model", "model"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("seed", "seed"),
        ("max_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("max_output_tokens", "max_tokens"),
        ("service_tier", "service_tier"),
    ] {
        frame.copy(about, from, to);
    }
    let effort = about.get("reasoning").map(labels).unwrap_or_default();
    if let Some(effort) = effort.get("effort") {
        frame.put("effort", effort.clone());
    }
}
