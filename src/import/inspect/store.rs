//! What a sample keeps once for all of its events: attachments (long texts and images) and the pools of
//! messages. References to them are resolved, within a bound; what was resolved everywhere stands in the
//! events, and the rest stays in the sample.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Bytes that the references in one event may stand for. Over it they stay what they are.
const EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Where attachments are kept: now, and in the first versions.
const HOMES: [&str; 2] = ["/attachments", "/transcript/content"];
/// How references to them begin.
const PROTOCOLS: [&str; 2] = ["attachment://", "tc://"];
/// Where the pools are: under the sample, and in newer versions under `events_data`.
const MESSAGES: [&str; 2] = ["/message_pool", "/events_data/messages"];
const CALLS: [&str; 2] = ["/call_pool", "/events_data/calls"];

/// The attachments and pools of a sample.
pub(super) struct Store {
    attachments: HashMap<String, Attachment>,
    messages: Pool,
    calls: Pool,
}

struct Attachment {
    text: String,
    home: &'static str,
    used: bool,
    /// Whether a reference to it stays, for want of room.
    missed: bool,
}

#[derive(Default)]
struct Pool {
    home: Option<&'static str>,
    entries: Vec<Value>,
    lengths: Vec<usize>,
    used: Vec<bool>,
    missed: bool,
}

impl Store {
    /// Takes the attachments and pools out of a sample.
    pub fn of(sample: &mut Value) -> Self {
        let mut attachments = HashMap::new();
        for home in HOMES {
            let Some(Value::Object(members)) = sample.pointer_mut(home) else {
                continue;
            };
            for (hash, content) in std::mem::take(members) {
                match content {
                    Value::String(text) if !attachments.contains_key(&hash) => {
                        let (used, missed) = (false, false);
                        attachments.insert(
                            hash,
                            Attachment {
                                text,
                                home,
                                used,
                                missed,
                            },
                        );
                    }
                    // No text: it stays where it is.
                    other => {
                        members.insert(hash, other);
                    }
                }
            }
        }
        let mut store = Self {
            attachments,
            messages: Pool::of(sample, MESSAGES),
            calls: Pool::of(sample, CALLS),
        };
        for pool in [&mut store.messages, &mut store.calls] {
            for entry in &mut pool.entries {
                resolve(&mut store.attachments, entry, &mut EVENT_BYTES.clone());
            }
            pool.lengths = pool
                .entries
                .iter()
                .map(|entry| entry.to_string().len())
                .collect();
        }
        store
    }

    /// Puts what an event refers to in the place of its references.
    pub fn resolve(&mut self, event: &mut Value) {
        let mut room = EVENT_BYTES;
        if let Some(messages) = self.messages.expand(event.get("input_refs"), &mut room)
            && let Value::Object(members) = event
        {
            members.insert("input".to_owned(), messages.into());
            members.shift_remove("input_refs");
        }
        let call = event.get_mut("call");
        if let Some(Value::Object(call)) = call
            && let Some(messages) = self.calls.expand(call.get("call_refs"), &mut room)
        {
            let key = call
                .get("call_key")
                .and_then(Value::as_str)
                .unwrap_or("messages");
            let key = key.to_owned();
            if let Some(Value::Object(request)) = call.get_mut("request") {
                request.insert(key, messages.into());
                call.shift_remove("call_refs");
                call.shift_remove("call_key");
            }
        }
        resolve(&mut self.attachments, event, &mut room);
    }

    /// Puts the attachments of a part of the sample that is no event in the place of its references.
    pub fn resolve_texts(&mut self, value: &mut Value) {
        resolve(&mut self.attachments, value, &mut EVENT_BYTES.clone());
    }

    /// Gives the sample back what does not stand in its events.
    pub fn leave_rest(self, sample: &mut Value) {
        for (hash, attachment) in self.attachments {
            if attachment.used && !attachment.missed {
                continue;
            }
            if let Some(Value::Object(members)) = sample.pointer_mut(attachment.home) {
                members.insert(hash, attachment.text.into());
            }
        }
        for home in HOMES {
            // The map above has no order, and equal files have to give equal frames.
            if let Some(Value::Object(members)) = sample.pointer_mut(home) {
                members.sort_keys();
            }
        }
        for pool in [self.messages, self.calls] {
            let whole = pool.missed || pool.used.contains(&false);
            if let Some(slot) = pool.home.and_then(|home| sample.pointer_mut(home))
                && whole
            {
                *slot = pool.entries.into();
            }
        }
    }
}

impl Pool {
    fn of(sample: &mut Value, homes: [&'static str; 2]) -> Self {
        for home in homes {
            if let Some(Value::Array(entries)) = sample.pointer_mut(home) {
                let entries = std::mem::take(entries);
                return Self {
                    home: Some(home),
                    used: vec![false; entries.len()],
                    entries,
                    ..Self::default()
                };
            }
        }
        Self::default()
    }

    /// The entries that these ranges name; `None` where there are no ranges, where they name entries that the
    /// pool does not have, or where they would need more than the room.
    fn expand(&mut self, ranges: Option<&Value>, room: &mut usize) -> Option<Vec<Value>> {
        let ranges = ranges?.as_array()?;
        let found = self.indices(ranges, room);
        self.missed |= found.is_none();
        let found = found?;
        for index in &found {
            self.used[*index] = true;
        }
        Some(
            found
                .into_iter()
                .map(|index| self.entries[index].clone())
                .collect(),
        )
    }

    fn indices(&self, ranges: &[Value], room: &mut usize) -> Option<Vec<usize>> {
        let mut left = *room;
        let mut found = Vec::new();
        for range in ranges {
            let bound = |at: usize| usize::try_from(range.get(at)?.as_u64()?).ok();
            let (start, end) = match range.as_u64() {
                Some(one) => (
                    usize::try_from(one).ok()?,
                    usize::try_from(one).ok()?.checked_add(1)?,
                ),
                None => (bound(0)?, bound(1)?),
            };
            for length in self.lengths.get(start..end)? {
                left = left.checked_sub(length + 1)?;
            }
            found.extend(start..end);
        }
        *room = left;
        Some(found)
    }
}

fn resolve(attachments: &mut HashMap<String, Attachment>, value: &mut Value, room: &mut usize) {
    match value {
        Value::String(text) => {
            let hash = PROTOCOLS
                .into_iter()
                .find_map(|protocol| text.strip_prefix(protocol));
            let Some(attachment) = hash.and_then(|hash| attachments.get_mut(hash)) else {
                return;
            };
            match room.checked_sub(attachment.text.len()) {
                Some(left) => {
                    *room = left;
                    attachment.used = true;
                    text.clone_from(&attachment.text);
                }
                None => attachment.missed = true,
            }
        }
        Value::Array(items) => {
            for item in items {
                resolve(attachments, item, room);
            }
        }
        Value::Object(members) => resolve_members(attachments, members, room),
        _ => {}
    }
}

fn resolve_members(
    attachments: &mut HashMap<String, Attachment>,
    members: &mut Map<String, Value>,
    room: &mut usize,
) {
    for value in members.values_mut() {
        resolve(attachments, value, room);
    }
}
