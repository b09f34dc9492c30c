//! What an import posts: the requests of `POST /v1/runs/{run}/frames`, cut to the limits of the API.

mod counts;

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::payload::{PART_BYTES, Payload};
use super::text::{self, Written};

pub(super) use counts::usage;

/// Bytes of all payloads of one frame of an import; what is over goes into a continuation frame.
pub const FRAME_PAYLOAD_BYTES: usize = 12 * 1024 * 1024;
/// Payloads of one frame of an import; the server takes 64.
pub const FRAME_PAYLOADS: usize = 48;
/// Characters of a string that a body may carry. Longer ones are content and belong in a payload.
pub const LABEL_CHARS: usize = 200;

/// Which turn a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The member is left out: the open turn.
    Open,
    /// `null`: a frame of the run, outside of any turn.
    Run,
}

/// A link of a frame request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// To an earlier frame of the same run, by its key; the server puts the number in.
    Key {
        /// One of the relations of the format.
        rel: &'static str,
        /// The key of the earlier frame.
        key: String,
    },
    /// To a frame of another run.
    Frame {
        /// One of the relations of the format.
        rel: &'static str,
        /// The other run.
        run: String,
        /// The frame's hash, 64 hex digits.
        hash: String,
    },
    /// To a frame of another thread of the same import. Whoever posts turns it into
    /// [`Link::Frame`]; serialising it is a fault of the program.
    Thread {
        /// One of the relations of the format.
        rel: &'static str,
        /// The other thread.
        thread: usize,
        /// The key of the frame, or the thread's `session` frame.
        key: Option<String>,
    },
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Key { rel, key } => {
                map.serialize_entry("rel", rel)?;
                map.serialize_entry("key", key)?;
            }
            Self::Frame { rel, run, hash } => {
                map.serialize_entry("rel", rel)?;
                map.serialize_entry("run", run)?;
                map.serialize_entry("hash", hash)?;
            }
            Self::Thread { .. } => {
                return Err(serde::ser::Error::custom(
                    "a link between threads was posted before it was resolved",
                ));
            }
        }
        map.end()
    }
}

/// Who speaks in every frame of an import: what a transcript claims is the importer's statement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Importer {
    r#type: &'static str,
    id: &'static str,
}

/// The importer as an actor.
pub const IMPORTER: Importer = Importer {
    r#type: "importer",
    id: "onrecord-import",
};

/// A frame to be posted.
#[derive(Clone, Debug)]
pub struct FrameRequest {
    /// One of the kinds of the format.
    pub kind: &'static str,
    /// The idempotency key: printable ASCII, at most 200 characters, unique in the run.
    pub key: String,
    /// The turn.
    pub turn: Turn,
    /// The transcript's time, as the format spells it.
    pub occurred_at: Option<String>,
    /// Ids, enums and counts.
    pub body: Map<String, Value>,
    /// Everything that was said or returned.
    pub payloads: Vec<Payload>,
    /// Links to earlier frames.
    pub links: Vec<Link>,
    /// Whether another thread may link to this frame, so that its receipt has to be kept.
    pub linked_to: bool,
    /// The names of its payloads, and up to which number each was given again.
    names: BTreeMap<String, usize>,
}

impl FrameRequest {
    /// A frame without payloads or links. Its body is empty, but for an observation: whose it is, the
    /// transcript's, stands in it (`docs/kinds.md`: `source`).
    pub fn new(kind: &'static str, key: impl Into<String>, turn: Turn) -> Self {
        let mut body = Map::new();
        if kind == "observation" {
            body.insert("source".to_owned(), "transcript".into());
        }
        Self {
            kind,
            key: key.into(),
            turn,
            occurred_at: None,
            body,
            payloads: Vec::new(),
            links: Vec::new(),
            linked_to: false,
            names: BTreeMap::new(),
        }
    }

    /// Sets a member of the body.
    pub fn put(&mut self, member: &str, value: impl Into<Value>) -> &mut Self {
        self.body.insert(member.to_owned(), value.into());
        self
    }

    /// Says which one of its kind the frame is, under the member that the kind has for it
    /// (`docs/kinds.md`): `action` of a context or memory, else a member of the kind's own name.
    pub fn class(&mut self, class: impl Into<Value>) -> &mut Self {
        let member = match self.kind {
            "context" | "memory" => "action",
            kind => kind,
        };
        self.put(member, class)
    }

    /// Copies a member into the body where it is an id, an enum or a count (see [`label`]).
    pub fn copy(&mut self, from: &Value, member: &str, to: &str) -> &mut Self {
        if let Some(value) = from.get(member).and_then(label) {
            self.body.insert(to.to_owned(), value);
        }
        self
    }

    /// Says who speaks, by the writer's word for it: the user, the model or a tool; all other words
    /// (`system`, `developer`, `agent`, `environment` …) mean the program. None where there is none.
    pub(super) fn speaker(&mut self, role: Option<&Value>) -> &mut Self {
        match role.and_then(Value::as_str) {
            None => self,
            Some("user" | "human") => self.put("speaker", "user"),
            Some("assistant" | "model") => self.put("speaker", "model"),
            Some("tool" | "function") => self.put("speaker", "tool"),
            Some(_) => self.put("speaker", "program"),
        }
    }

    /// Says what was selected: the writer's own word, or, for yes and no, `approved` and `denied`.
    pub fn selected(&mut self, value: Option<&Value>) -> &mut Self {
        match value {
            Some(Value::Bool(true)) => self.put("selected", "approved"),
            Some(Value::Bool(false)) => self.put("selected", "denied"),
            other => {
                let word = other.and_then(label);
                self.body
                    .extend(word.map(|word| ("selected".to_owned(), word)));
                self
            }
        }
    }

    /// Sets the transcript's time, and its spelling where the time does not say all of it.
    pub fn at(&mut self, time: &Written) -> &mut Self {
        self.occurred_at.clone_from(&time.at);
        if let Some(spelling) = &time.spelling {
            self.put("occurred_at_written", spelling.clone());
        }
        self
    }

    /// Adds a link to an earlier frame of the run.
    pub fn link(&mut self, rel: &'static str, key: impl Into<String>) -> &mut Self {
        self.links.push(Link::Key {
            rel,
            key: key.into(),
        });
        self
    }

    /// Adds a payload under a name that is free in this frame, and answers that name.
    pub fn attach(&mut self, mut payload: Payload) -> String {
        let base = payload.name.clone();
        // Each number is tried once: a message may have a hundred thousand blocks.
        let mut count = self.names.get(&base).copied().unwrap_or(0);
        while self.names.contains_key(&payload.name) {
            count += 1;
            payload.name = format!("{base}_{}", count + 1);
        }
        self.names.insert(base, count);
        let name = payload.name.clone();
        self.names.entry(name.clone()).or_insert(0);
        self.payloads.push(payload);
        name
    }

    /// The frame and, where its payloads are too many or too large for one, the continuation
    /// frames (`observation`, class `continuation`, linked to it) that carry the rest.
    pub fn fitted(mut self) -> Vec<Self> {
        let total: usize = self.payloads.iter().map(Payload::len).sum();
        if total <= PART_BYTES && self.payloads.len() <= FRAME_PAYLOADS {
            return vec![self];
        }
        let payloads = std::mem::take(&mut self.payloads);
        let (key, turn, occurred_at) = (self.key.clone(), self.turn, self.occurred_at.clone());
        let mut frames = vec![self];
        let mut room = FRAME_PAYLOAD_BYTES;
        for part in payloads.into_iter().flat_map(Payload::parts) {
            let full = |frame: &Self| frame.payloads.len() >= FRAME_PAYLOADS;
            if part.len() > room || frames.last().is_some_and(full) {
                let mut next =
                    Self::new("observation", format!("{key}/more/{}", frames.len()), turn);
                next.occurred_at.clone_from(&occurred_at);
                next.put("observation", "continuation")
                    .put("part", frames.len())
                    .link("derived_from", key.clone());
                frames.push(next);
                room = FRAME_PAYLOAD_BYTES;
            }
            room = room.saturating_sub(part.len());
            if let Some(frame) = frames.last_mut() {
                frame.payloads.push(part);
            }
        }
        frames
    }
}

impl Serialize for FrameRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("key", &self.key)?;
        if self.turn == Turn::Run {
            map.serialize_entry("turn", &None::<u64>)?;
        }
        map.serialize_entry("actor", &IMPORTER)?;
        if let Some(at) = &self.occurred_at {
            map.serialize_entry("occurred_at", at)?;
        }
        map.serialize_entry("body", &self.body)?;
        if !self.payloads.is_empty() {
            map.serialize_entry("payloads", &self.payloads)?;
        }
        if !self.links.is_empty() {
            map.serialize_entry("links", &self.links)?;
        }
        map.end()
    }
}

/// The value as a member of a body: a short string without control characters, a boolean, or a
/// number that every JSON reader keeps. `None` for all else, which belongs in a payload.
pub fn label(value: &Value) -> Option<Value> {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    let fits = match value {
        Value::String(text) => text::is_label(text, LABEL_CHARS),
        Value::Bool(_) => true,
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() <= SAFE),
        _ => false,
    };
    fits.then(|| value.clone())
}

/// The address of a repository, unless there is a name or a password in it: a body is never erased.
pub(super) fn remote(address: &Value) -> Option<Value> {
    let text = address.as_str()?;
    let secret = text.contains("://") && text.contains('@');
    label(address).filter(|_| !secret)
}

/// Copies the members of an object that are ids, enums or counts, under their own names.
pub fn labels(object: &Value) -> Map<String, Value> {
    const MEMBERS: usize = 32;
    let members = object.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| text::is_label(name, 64))
        .filter_map(|(name, value)| Some((name.clone(), label(value)?)))
        .take(MEMBERS)
        .collect()
}

/// An object of these members, in this order.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.into_iter().collect())
}

/// A part of a key made from an id of the transcript: what is not a letter, a digit or one of
/// `._:-` becomes `%XX`; an id that is too long keeps its beginning and gets a digest of the whole.
pub fn key_part(id: &str) -> String {
    const CHARS: usize = 80;
    let mut part = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b':' | b'-' => {
                part.push(char::from(byte));
            }
            _ => part.push_str(&format!("%{byte:02X}")),
        }
    }
    if part.len() > CHARS {
        let digest = onrecord_core::digest::Hash::of(&[id.as_bytes()]).hex();
        part.truncate(CHARS - 17);
        part.push('~');
        part.push_str(&digest[..16]);
    }
    part
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use crate::import::payload::Content;
    use serde_json::json;

    #[test]
    fn large_payloads_are_cut_and_nothing_is_lost() {
        let mut frame = FrameRequest::new("observation", "line/1", Turn::Open);
        let whole = "ä".repeat(PART_BYTES + 3);
        frame.attach(Payload::text("raw", whole.clone()));
        frame.attach(Payload::text("note", "n".to_owned()));
        let frames = frame.fitted();
        assert_eq!(frames.len(), 2);
        let mut joined = String::new();
        for frame in &frames {
            assert!(frame.payloads.iter().map(Payload::len).sum::<usize>() <= FRAME_PAYLOAD_BYTES);
            for payload in &frame.payloads {
                assert!(payload.len() <= PART_BYTES);
                if let Content::Text(text) = &payload.content
                    && payload.name.starts_with("raw.")
                {
                    joined.push_str(text);
                }
            }
        }
        assert!(joined == whole, "the parts make the whole");
        assert_eq!(frames[1].key, "line/1/more/1");
        assert_eq!(
            frames[1].links,
            [Link::Key {
                rel: "derived_from",
                key: "line/1".to_owned()
            }]
        );
    }

    #[test]
    fn many_payloads_go_on_in_the_next_frame_under_names_of_their_own() {
        let mut frame = FrameRequest::new("observation", "k", Turn::Open);
        for _ in 0..FRAME_PAYLOADS + 1 {
            frame.attach(Payload::text("text", "x".to_owned()));
        }
        let names: std::collections::HashSet<_> = frame
            .payloads
            .iter()
            .map(|payload| payload.name.clone())
            .collect();
        assert_eq!(names.len(), FRAME_PAYLOADS + 1);
        let frames = frame.fitted();
        assert_eq!(
            [frames[0].payloads.len(), frames[1].payloads.len()],
            [FRAME_PAYLOADS, 1]
        );
    }

    #[test]
    fn a_message_of_many_blocks_takes_no_time() {
        let mut frame = FrameRequest::new("observation", "k", Turn::Open);
        frame.attach(Payload::text("text_3", String::new()));
        let names: std::collections::HashSet<_> = (0..30_000)
            .map(|_| frame.attach(Payload::text("text", String::new())))
            .collect();
        assert_eq!(names.len(), 30_000);
        assert!(names.contains("text") && names.contains("text_2") && !names.contains("text_3"));
    }

    #[test]
    fn the_turn_is_left_out_or_null() {
        let open = serde_json::to_value(FrameRequest::new("turn", "k", Turn::Open)).unwrap();
        assert_eq!(open.get("turn"), None);
        let run = serde_json::to_value(FrameRequest::new("context", "k", Turn::Run)).unwrap();
        assert_eq!(run["turn"], Value::Null);
        assert_eq!(
            run["actor"],
            json!({"type": "importer", "id": "onrecord-import"})
        );
    }

    #[test]
    fn only_labels_get_into_a_body() {
        for fits in [
            json!("end_turn"),
            json!(true),
            json!(9_007_199_254_740_991_u64),
            json!(0.25),
        ] {
            assert_eq!(label(&fits), Some(fits));
        }
        let long = json!("x".repeat(LABEL_CHARS + 1));
        for content in [
            long,
            json!("a\nb"),
            json!("\u{fffe}"),
            json!(9_007_199_254_740_992_u64),
            json!(1e30),
            json!({}),
            json!(null),
        ] {
            assert_eq!(label(&content), None, "{content}");
        }
    }

    #[test]
    fn an_address_with_a_password_is_no_remote() {
        for kept in [
            "https://example.org/a.git",
            "git@example.org:a.git",
            "mara/till",
        ] {
            assert_eq!(remote(&kept.into()), Some(kept.into()));
        }
        for secret in [
            "https://mara:s3cret@example.org/a.git",
            "https://token@example.org/a",
        ] {
            assert_eq!(remote(&secret.into()), None, "{secret}");
        }
    }

    #[test]
    fn ids_become_parts_of_keys() {
        assert_eq!(key_part("0a1b-c"), "0a1b-c");
        assert_eq!(key_part("a b/ü"), "a%20b%2F%C3%BC");
        let (one, other) = (key_part(&"x".repeat(300)), key_part(&"x".repeat(301)));
        assert!(one.len() <= 80 && one != other);
    }

    #[test]
    fn text_that_json_cannot_carry_travels_as_base64() {
        let plain = serde_json::to_value(Payload::text("p", "a\u{0}b".to_owned())).unwrap();
        assert_eq!(plain, json!({"name": "p", "text": "a\u{0}b"}));
        let odd = serde_json::to_value(Payload::text("p", "a\u{fffe}".to_owned())).unwrap();
        assert_eq!(
            odd,
            json!({"name": "p", "media": "text/plain; charset=utf-8", "base64": "Ye+/vg=="})
        );
        let nuls = serde_json::to_value(Payload::text("p", "\u{0}".repeat(900))).unwrap();
        assert!(
            nuls.get("base64").is_some(),
            "six bytes of escape for each of one"
        );
    }
}
