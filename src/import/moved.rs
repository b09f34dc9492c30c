//! Secrets outside of payloads: the server refuses them there, so an import moves what they stand in into a payload of
//! the frame, where they are taken out and leave their fingerprints.

use crate::redact::{Place, RuleSet, Shape};
use onrecord_core::digest::Hash;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::LazyLock;

use super::payload::Payload;
use super::request::{FrameRequest, Link};
use super::text::travels;

/// Name of the payload: an object from pointers into the request to the values that stood there.
pub const NAME: &str = "moved";
/// What stands in a body where the server found more than these rules do.
const REFUSED: &str = "[redacted:secret]";

/// The rules that every server has. `None` where they cannot be used, which a test excludes: then nothing is moved,
/// and what the server refuses is told.
pub(super) static RULES: LazyLock<Option<RuleSet>> = LazyLock::new(|| RuleSet::builtin().ok());

/// The parts of a request in which there may be no secret, and its payloads.
pub struct Parts<'a> {
    /// What the body is called: `body` or `session`.
    pub member: &'static str,
    /// The body.
    pub body: &'a mut Map<String, Value>,
    /// The key.
    pub key: &'a mut String,
    /// The payloads.
    pub payloads: &'a mut Vec<Payload>,
    /// Links, whose keys are those that frames have.
    pub links: &'a mut [Link],
}

impl Parts<'_> {
    /// Moves what the built-in rules find, and answers how many values that were. The same request becomes the same
    /// whenever it is asked for, so that a second import finds what the first one posted.
    pub fn move_out(mut self) -> u64 {
        let moved = self.take_out();
        attach(self.payloads, moved)
    }

    /// Takes out what would be moved, by pointer.
    pub fn take_out(&mut self) -> Map<String, Value> {
        let Some(rules) = &*RULES else {
            return Map::new();
        };
        let mut moved = of_body(rules, self.member, self.body);
        if let Some(key) = without_secret(rules, self.key) {
            let key = std::mem::replace(self.key, key);
            moved.insert("/key".to_owned(), key.into());
        }
        for link in &mut *self.links {
            if let Link::Key { key, .. } = link
                && let Some(other) = without_secret(rules, key)
            {
                *key = other;
            }
        }
        for (index, payload) in self.payloads.iter_mut().enumerate() {
            let found = |media: &String| !rules.find(media.as_bytes(), Shape::Text).is_empty();
            if let Some(media) = payload.media.take_if(|media| found(media)) {
                moved.insert(format!("/payloads/{index}/media"), media.into());
            }
        }
        moved
    }
}

impl FrameRequest {
    /// See [`Parts::move_out`].
    pub fn move_out(&mut self) -> u64 {
        let parts = Parts {
            member: "body",
            body: &mut self.body,
            key: &mut self.key,
            payloads: &mut self.payloads,
            links: &mut self.links,
        };
        parts.move_out()
    }

    /// See [`move_refused`].
    pub fn move_refused(&mut self, pointer: &str) -> bool {
        move_refused("body", &mut self.body, &mut self.payloads, pointer)
    }
}

/// Moves the member of a body that the server refused for a secret, by a rule of its tenant or a literal. `false` where
/// the pointer is to none. `member` is what the body is called.
pub fn move_refused(
    member: &str,
    body: &mut Map<String, Value>,
    payloads: &mut Vec<Payload>,
    pointer: &str,
) -> bool {
    let inner = pointer
        .strip_prefix('/')
        .and_then(|rest| rest.strip_prefix(member));
    let Some(inner) = inner.and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let first = inner.split('/').next().unwrap_or_default();
    let name = first.replace("~1", "/").replace("~0", "~");
    let Some(value) = body.get_mut(&name) else {
        return false;
    };
    let value = std::mem::replace(value, REFUSED.into());
    if value == REFUSED {
        return false;
    }
    let moved = [(format!("/{member}/{first}"), value)];
    attach(payloads, moved.into_iter().collect()) > 0
}

/// Adds the payload, unless nothing was moved.
fn attach(payloads: &mut Vec<Payload>, moved: Map<String, Value>) -> u64 {
    let count = moved.len() as u64;
    if count > 0 {
        let taken: HashSet<&str> = payloads.iter().map(|one| one.name.as_str()).collect();
        let names = (2..).map(|number| format!("{NAME}_{number}"));
        let name = std::iter::once(NAME.to_owned()).chain(names);
        let name = name.into_iter().find(|name| !taken.contains(name.as_str()));
        let moved = Value::Object(moved);
        let strict = travels(&moved.to_string());
        payloads.push(Payload::json(name.unwrap_or_default(), &moved, strict));
    }
    count
}

/// Redacts a body; returns what stood there, by pointer.
fn of_body(rules: &RuleSet, member: &str, body: &mut Map<String, Value>) -> Map<String, Value> {
    let whole = Value::Object(std::mem::take(body));
    let text = whole.to_string();
    let Some(redacted) = rules.redact(text.as_bytes(), Shape::Json) else {
        if let Value::Object(whole) = whole {
            *body = whole;
        }
        return Map::new();
    };
    *body = serde_json::from_slice(&redacted.bytes).unwrap_or_default();
    let mut moved = Map::new();
    for mark in &redacted.marks {
        if let Place::Pointer(pointer) = &mark.place
            && let Some(value) = whole.pointer(pointer)
        {
            moved.insert(format!("/{member}{pointer}"), value.clone());
        }
    }
    // What told the secret may be what stood around the value. Then all of it goes.
    let alone = Value::Object(moved.clone()).to_string();
    let alone = rules.redact(alone.as_bytes(), Shape::Json);
    let found = |secret: &[u8]| {
        let marks = alone.iter().flat_map(|alone| &alone.marks);
        marks.clone().any(|mark| mark.secret.as_slice() == secret)
    };
    if !redacted.marks.iter().all(|mark| found(&mark.secret)) {
        moved = Map::from_iter([(format!("/{member}"), whole)]);
    }
    moved
}

/// A key without the secret in it, which is another for another secret; `None` where it has none.
fn without_secret(rules: &RuleSet, key: &str) -> Option<String> {
    let redacted = rules.redact(key.as_bytes(), Shape::Text)?;
    let digest = Hash::of(&[key.as_bytes()]).hex();
    // Keys are ASCII.
    let text = String::from_utf8(redacted.bytes).unwrap_or_default();
    let text = text.get(..text.len().min(180)).unwrap_or_default();
    Some(format!("{text}~{}", &digest[..16]))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use crate::import::payload::Content;
    use crate::import::request::Turn;
    use serde_json::json;

    fn moved(body: Value, key: &str) -> (FrameRequest, u64) {
        let mut frame = FrameRequest::new("tool_call", key, Turn::Open);
        frame.body = body.as_object().unwrap().clone();
        frame.link("answers", key);
        let count = frame.move_out();
        (frame, count)
    }

    fn content(frame: &FrameRequest) -> Value {
        let Content::Json(raw) = &frame.payloads[0].content else {
            panic!("{:?}", frame.payloads[0]);
        };
        serde_json::from_str(raw.get()).unwrap()
    }

    #[test]
    fn what_a_secret_stands_in_goes_into_a_payload() {
        let command = "PGPASSWORD=s3cr3t-pass9 psql";
        let (frame, count) = moved(
            json!({"name": "shell", "args": [{"command": command}]}),
            "k",
        );
        assert_eq!(count, 1);
        assert_eq!(
            Value::Object(frame.body.clone()),
            json!({"name": "shell", "args": [{"command": "PGPASSWORD=[redacted:password] psql"}]})
        );
        assert_eq!(frame.payloads[0].name, "moved");
        assert_eq!(content(&frame), json!({"/body/args/0/command": command}));
        let mut again = frame.clone();
        assert_eq!(again.move_out(), 0);
        assert_eq!(frame.payloads.len(), again.payloads.len());
    }

    #[test]
    fn what_only_its_surroundings_tell_goes_with_them() {
        for body in [
            json!({"cookie": {"sid": "q1w2e3r4t5"}, "n": 1}),
            json!({"name": "API_KEY", "value": "0a1b2c3d4e5f"}),
        ] {
            let (frame, count) = moved(body.clone(), "k");
            assert_eq!(count, 1, "{body}");
            assert_eq!(content(&frame), json!({"/body": body}));
            let text = content(&frame).to_string();
            let rules = RULES.as_ref().unwrap();
            assert!(rules.redact(text.as_bytes(), Shape::Json).is_some());
        }
    }

    #[test]
    fn a_key_stays_another_for_another_secret_and_links_follow_it() {
        let token = |end: &str| format!("call/ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r{end}");
        let ((one, count), (other, _)) =
            (moved(json!({}), &token("8")), moved(json!({}), &token("9")));
        assert_eq!(count, 1);
        assert!(
            one.key.starts_with("call/[redacted:github_token]~"),
            "{}",
            one.key
        );
        assert_ne!(one.key, other.key);
        assert!(matches!(&one.links[0], Link::Key { key, .. } if *key == one.key));
        assert_eq!(content(&one), json!({"/key": token("8")}));
    }

    #[test]
    fn what_the_server_refuses_beyond_goes_too() {
        let mut frame = FrameRequest::new("tool_call", "k", Turn::Open);
        frame.put("a/b", "the word of the tenant");
        assert!(frame.move_refused("/body/a~1b/0"));
        assert_eq!(frame.body["a/b"], REFUSED);
        assert_eq!(
            content(&frame),
            json!({"/body/a~1b": "the word of the tenant"})
        );
        assert!(!frame.move_refused("/body/a~1b") && !frame.move_refused("/key"));
    }
}
