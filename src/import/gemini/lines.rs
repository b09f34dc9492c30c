//! Sessions as JSON lines. A message is written again, whole, whenever something was added to it: what is
//! new then becomes frames, and the record itself an observation.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::message::{Called, Messages, time};
use super::{Children, is_head};
use crate::import::blocks::type_of;
use crate::import::jsonl::{JsonLines, LineMapper, key};
use crate::import::record::{Record, extract, extract_all, post};
use crate::import::request::{FrameRequest, Turn};
use crate::import::{ImportError, Opening, Sink, Transcript};

struct Session {
    messages: Messages,
    /// The first frames of the messages that were seen, by the messages' ids.
    seen: HashMap<String, String>,
    children: Option<Children>,
    path: PathBuf,
}

pub(super) fn open(path: &Path, opening: Opening) -> Result<Box<dyn Transcript>, ImportError> {
    let mapper = Session {
        messages: Messages::default(),
        seen: HashMap::new(),
        children: None,
        path: path.to_owned(),
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

impl LineMapper for Session {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        self.messages.at(time(&record.value));
        if self.children.is_none() && is_head(&record.value) {
            self.children = Some(Children::of(&self.path, &record.value));
        }
        let key = key(line);
        let mut agents = Vec::new();
        let frames = self
            .known(&key, &mut record, &mut agents)
            .unwrap_or_else(|| self.messages.conversation.unmapped(key, out));
        post(record, frames, out);
        for (agent, call) in agents {
            if let Some(children) = &mut self.children {
                children.named(&agent, &call, out);
            }
        }
    }

    fn turn(&self) -> Turn {
        self.messages.conversation.turn()
    }

    fn beside(&mut self, out: &mut Sink<'_>) {
        if let Some(children) = &self.children {
            children.others(out);
        }
    }
}

impl Session {
    /// The frames of a record of a known kind. None of them is empty.
    fn known(
        &mut self,
        key: &str,
        record: &mut Record,
        agents: &mut Vec<(String, String)>,
    ) -> Option<Vec<FrameRequest>> {
        let strict = record.strict();
        let value = &mut record.value;
        let conversation = &self.messages.conversation;
        if value.get("$rewindTo").is_some() {
            let mut frame = conversation.classed("context", "rewind", key);
            frame.put("speaker", "user");
            frame.copy(value, "$rewindTo", "message_id");
            return Some(vec![frame]);
        }
        if let Some(set) = value.get_mut("$set").filter(|set| set.is_object()) {
            return Some(vec![self.changed(key, set, strict)]);
        }
        if is_head(value) {
            return Some(vec![conversation.classed(
                "observation",
                "session_start",
                key,
            )]);
        }
        if type_of(value).is_empty() {
            return None;
        }
        self.message(key, value, strict, agents)
    }

    fn message(
        &mut self,
        key: &str,
        value: &mut Value,
        strict: bool,
        agents: &mut Vec<(String, String)>,
    ) -> Option<Vec<FrameRequest>> {
        let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        let before = id.as_ref().and_then(|id| self.seen.get(id)).cloned();
        let mut frames = match &before {
            None => self.messages.message(key, value, strict)?,
            Some(before) => {
                let conversation = &self.messages.conversation;
                let mut frame = conversation.classed("observation", "message_revised", key);
                frame
                    .copy(value, "id", "message_id")
                    .link("derived_from", before.clone());
                vec![frame]
            }
        };
        if let Some(id) = id.filter(|_| before.is_none()) {
            self.seen.insert(id, key.to_owned());
        }
        frames[0].put_usage(value.get("tokens"));
        let answer = before.unwrap_or_else(|| key.to_owned());
        let calls = value.get_mut("toolCalls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let key = format!("{key}/call/{}", index + 1);
            let Called {
                frames: mut new,
                agent,
            } = self.messages.tool_call(&key, &answer, call, strict);
            frames.append(&mut new);
            agents.extend(agent);
        }
        Some(frames)
    }

    /// A change of the head. Messages in it replace those of the session: the conversation was compressed,
    /// or old results masked.
    fn changed(&self, key: &str, set: &mut Value, strict: bool) -> FrameRequest {
        let conversation = &self.messages.conversation;
        if let Some(messages) = set.get_mut("messages") {
            let mut frame = conversation.classed("context", "history_replaced", key);
            extract(messages, &mut frame, "messages", strict);
            return frame;
        }
        if set.get("memoryScratchpad").is_some() {
            let mut frame = conversation.classed("memory", "written", key);
            extract_all(set, &[("memoryScratchpad", "content")], &mut frame, strict);
            return frame;
        }
        let mut frame = conversation.classed("observation", "session_changed", key);
        extract_all(set, &[("summary", "summary")], &mut frame, strict);
        frame
    }
}
