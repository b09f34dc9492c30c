//! What is said again and again: each request of a model has all messages before it and the same tools.
//!
//! A value that a frame of the run has already is not posted again: the record refers to the payload that
//! has it. A list that begins like an earlier one has only what is new, after
//! `{"$frame": key, "$payload": name, "$first": n}`: the first `n` items of that list, which may begin so too.

use std::collections::{HashMap, VecDeque};

use onrecord_core::digest::Hash;
use serde_json::Value;

use crate::import::record::extract;
use crate::import::request::{FrameRequest, object};

/// Lists of one kind that are compared with a new one. Conversations that take turns (an agent and its
/// grader) need more than one.
const PAST: usize = 8;
/// Bytes of a value that is worth a reference.
const WORTH: usize = 1_024;

/// The payloads of a run that later ones are compared with.
#[derive(Default)]
pub(super) struct Said {
    lists: HashMap<&'static str, VecDeque<List>>,
    values: HashMap<Hash, (String, String)>,
}

struct List {
    frame: String,
    payload: String,
    items: Vec<Hash>,
}

impl Said {
    /// Moves a list into a payload, without what an earlier list of the kind `name` begins with.
    pub fn list(
        &mut self,
        slot: &mut Value,
        frame: &mut FrameRequest,
        name: &'static str,
        strict: bool,
    ) {
        let Value::Array(items) = &mut *slot else {
            return extract(slot, frame, name, strict);
        };
        if items.is_empty() {
            return;
        }
        let hashes: Vec<Hash> = items.iter().map(hash).collect();
        let past = self.lists.entry(name).or_default();
        let shared = |list: &List| {
            let pairs = list.items.iter().zip(&hashes);
            pairs.take_while(|(one, other)| one == other).count()
        };
        let best = past.iter().max_by_key(|list| shared(list));
        if let Some((list, first)) = best
            .map(|list| (list, shared(list)))
            .filter(|(_, first)| *first > 0)
        {
            let mut mark = object([
                ("$frame", list.frame.as_str().into()),
                ("$payload", list.payload.as_str().into()),
            ]);
            if first == hashes.len() && first == list.items.len() {
                *slot = mark;
                return;
            }
            mark["$first"] = first.into();
            items.splice(..first, [mark]);
        }
        extract(slot, frame, name, strict);
        if past.len() == PAST {
            past.pop_front();
        }
        let payload = slot["$payload"].as_str().unwrap_or(name).to_owned();
        past.push_back(List {
            frame: frame.key.clone(),
            payload,
            items: hashes,
        });
    }

    /// Moves a value into a payload, unless an earlier frame has the same.
    pub fn value(
        &mut self,
        slot: &mut Value,
        frame: &mut FrameRequest,
        name: &'static str,
        strict: bool,
    ) {
        let empty = match &*slot {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        if empty {
            return;
        }
        let text = slot.to_string();
        if text.len() < WORTH {
            return extract(slot, frame, name, strict);
        }
        let hash = Hash::of(&[text.as_bytes()]);
        if let Some((frame, payload)) = self.values.get(&hash) {
            *slot = object([
                ("$frame", frame.as_str().into()),
                ("$payload", payload.as_str().into()),
            ]);
            return;
        }
        extract(slot, frame, name, strict);
        let payload = slot["$payload"].as_str().unwrap_or(name).to_owned();
        self.values.insert(hash, (frame.key.clone(), payload));
    }
}

fn hash(value: &Value) -> Hash {
    Hash::of(&[value.to_string().as_bytes()])
}
