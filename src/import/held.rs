//! Pieces of a stream that an agent wrote one by one. Payloads are redacted one by one too, so a secret that was
//! streamed in pieces would be recorded in pieces: pieces wait for what follows, and one that begins a secret gets the
//! rest of it. Read one after the other they are the same text.

use super::moved::RULES;
use super::payload::Content;
use super::request::FrameRequest;
use crate::redact::{RuleSet, Shape};
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Bytes of a stream that wait for what follows them. Longer secrets are not told in pieces.
const TAIL_BYTES: usize = 4 * 1024;
/// How often a piece gets more.
const TRIES: usize = 16;
/// Classes of frames that are pieces.
const CLASSES: [&str; 2] = ["delta", "streaming_delta"];
/// The payload that has the piece; beside it may be what is left of the record.
const TEXT: &str = "text";

/// The last pieces of a stream.
#[derive(Default)]
pub struct Held {
    pieces: VecDeque<FrameRequest>,
    bytes: usize,
}

impl Held {
    /// Takes the next frame of a thread, and answers those that are to be posted now.
    pub fn take(&mut self, frame: FrameRequest) -> Vec<FrameRequest> {
        let Some(length) = text(&frame).map(str::len) else {
            let mut ready = self.release();
            ready.push(frame);
            return ready;
        };
        let mut ready = Vec::new();
        if self
            .pieces
            .back()
            .is_some_and(|last| stream(last) != stream(&frame))
        {
            ready = self.release();
        }
        self.pieces.push_back(frame);
        self.bytes += length;
        while let Some(first) = self.pieces.front().and_then(text).map(str::len)
            && self.bytes - first > TAIL_BYTES
        {
            ready.extend(self.first());
        }
        ready
    }

    /// All that waits, where nothing follows.
    pub fn release(&mut self) -> Vec<FrameRequest> {
        std::iter::from_fn(|| self.first()).collect()
    }

    /// The first piece, with the rest of a secret that begins in it.
    fn first(&mut self) -> Option<FrameRequest> {
        let mut first = self.pieces.pop_front()?;
        let own = text(&first).map_or(0, str::len);
        let texts = std::iter::once(&first).chain(&self.pieces);
        let whole: String = texts.filter_map(text).collect();
        self.bytes = whole.len() - own;
        let cut = RULES.as_ref().map_or(own, |rules| end(rules, &whole, own));
        if cut > own {
            put(&mut first, whole[..cut].to_owned());
            let mut taken = cut - own;
            for piece in &mut self.pieces {
                let length = text(piece).map_or(0, str::len);
                let gone = taken.min(length);
                let rest = text(piece).and_then(|text| text.get(gone..));
                let rest = rest.unwrap_or_default().to_owned();
                put(piece, rest);
                taken -= gone;
            }
            self.bytes = whole.len() - cut;
        }
        Some(first)
    }
}

/// Where a text is to be cut, at a place or behind it, so that both parts have whole secrets.
fn end(rules: &RuleSet, whole: &str, place: usize) -> usize {
    let found = |text: &str, at: usize| {
        let found = rules.find(text.as_bytes(), Shape::Text).into_iter();
        found.map(move |one| (at + one.start, at + one.end))
    };
    let all: Vec<_> = found(whole, 0).collect();
    let mut cut = place;
    for _ in 0..TRIES {
        if all.is_empty() || cut == whole.len() {
            break;
        }
        let (before, after) = whole.split_at(cut);
        let apart: Vec<_> = found(before, 0).chain(found(after, cut)).collect();
        let Some((_, end)) = all.iter().find(|one| !apart.contains(one)) else {
            break;
        };
        cut = whole.ceil_char_boundary((*end).max(cut + 1));
    }
    cut
}

/// The text of a piece; none where the frame is none.
fn text(frame: &FrameRequest) -> Option<&str> {
    let class = frame.body.get("observation").and_then(Value::as_str)?;
    let mut payloads = frame.payloads.iter();
    let payload = payloads.find(|payload| payload.name == TEXT)?;
    match &payload.content {
        Content::Text(text) if CLASSES.contains(&class) && !frame.linked_to => Some(text),
        _ => None,
    }
}

fn put(frame: &mut FrameRequest, text: String) {
    let mut payloads = frame.payloads.iter_mut();
    if let Some(payload) = payloads.find(|payload| payload.name == TEXT) {
        payload.content = Content::Text(text);
    }
}

/// What pieces of one stream have in common: their bodies without what counts.
fn stream(frame: &FrameRequest) -> Map<String, Value> {
    let counts = |name: &str, value: &Value| value.is_number() || name == "occurred_at_written";
    let members = frame.body.iter();
    let members = members.filter(|(name, value)| !counts(name, value));
    members
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::payload::Payload;
    use crate::import::request::Turn;

    const TOKEN: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";

    fn piece(stream: &str, text: &str) -> FrameRequest {
        let mut frame = FrameRequest::new("observation", "k", Turn::Open);
        frame
            .class("delta")
            .put("call_id", stream)
            .put("n", text.len());
        frame.attach(Payload::text("text", text.to_owned()));
        frame
    }

    fn pieces(text: &str, size: usize) -> Vec<FrameRequest> {
        let text: Vec<char> = text.chars().collect();
        let texts = text
            .chunks(size)
            .map(|chunk| chunk.iter().collect::<String>());
        texts.map(|text| piece("a", &text)).collect()
    }

    fn through(frames: Vec<FrameRequest>) -> Vec<String> {
        let mut held = Held::default();
        let mut out: Vec<_> = frames
            .into_iter()
            .flat_map(|frame| held.take(frame))
            .collect();
        out.extend(held.release());
        let texts = out
            .iter()
            .map(|frame| text(frame).unwrap_or("-").to_owned());
        texts.collect()
    }

    #[test]
    fn a_secret_in_pieces_is_whole_in_one_of_them() {
        let filler = "grün ist die Hoffnung. ".repeat(200);
        let whole =
            format!("{filler}token is {TOKEN} done, PGPASSWORD=s3cr3t-pass9 psql\n{filler}");
        for size in [9, 100, 5_000] {
            let texts = through(pieces(&whole, size));
            assert_eq!(texts.concat(), whole);
            assert_eq!(texts.len(), whole.chars().count().div_ceil(size));
            let redacted: String = texts
                .iter()
                .map(|text| {
                    let rules = RULES.as_ref().unwrap();
                    let redacted = rules.redact(text.as_bytes(), Shape::Text);
                    redacted.map_or(text.clone(), |one| String::from_utf8(one.bytes).unwrap())
                })
                .collect();
            assert!(
                redacted.contains(
                    "token is [redacted:github_token] done, PGPASSWORD=[redacted:password] psql"
                ),
                "{size}"
            );
        }
    }

    #[test]
    fn another_frame_or_stream_waits_for_nothing() {
        let mut other = FrameRequest::new("tool_call", "k", Turn::Open);
        other.put("name", "shell");
        let frames = vec![
            piece("a", "ghp_A1b2"),
            piece("b", "C3d4"),
            other,
            piece("b", "E5"),
        ];
        assert_eq!(through(frames), ["ghp_A1b2", "C3d4", "-", "E5"]);
        let mut held = Held::default();
        assert!(held.take(piece("a", "x")).is_empty());
        assert_eq!(held.take(piece("b", "y")).len(), 1);
        assert_eq!(held.release().len(), 1);
    }
}
