//! Payloads of an import, in parts that the API takes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{cut, text};

/// Bytes of one payload of an import. The format allows 16 MiB; half of it leaves room for the
/// escapes of JSON and for base64 in the request.
pub const PART_BYTES: usize = 8 * 1024 * 1024;
/// How a payload travels.
#[derive(Clone, Debug)]
pub enum Content {
    /// A JSON value that the strict reader takes; the server stores it as RFC 8785.
    Json(Box<RawValue>),
    /// Text without noncharacters, which no JSON string may carry.
    Text(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

/// A payload of a frame request.
#[derive(Clone, Debug)]
pub struct Payload {
    /// `[a-z][a-z0-9_.-]{0,63}`, unique in its frame.
    pub name: String,
    /// The media type, where the default of the content does not fit.
    pub media: Option<String>,
    /// The content.
    pub content: Content,
}

impl Payload {
    /// Text. Where JSON strings cannot carry it, or only at a great length, it travels as base64.
    pub fn text(name: impl Into<String>, content: String) -> Self {
        Self::text_as(name, content, None)
    }

    /// Text of a media type other than `text/plain`.
    pub fn text_as(name: impl Into<String>, content: String, media: Option<&str>) -> Self {
        if text::travels(&content) {
            return Self {
                name: name.into(),
                media: media.map(str::to_owned),
                content: Content::Text(content),
            };
        }
        let media = media.unwrap_or("text/plain; charset=utf-8");
        Self::bytes(name, content.into_bytes(), Some(media))
    }

    /// Any bytes; `application/octet-stream` unless a media type is given.
    pub fn bytes(name: impl Into<String>, content: Vec<u8>, media: Option<&str>) -> Self {
        Self {
            name: name.into(),
            media: media.map(str::to_owned),
            content: Content::Bytes(content),
        }
    }

    /// A JSON value. `strict` says that the record it comes from passed the strict reader; where it
    /// did not, or where the value is too large for one payload, the value travels as text.
    pub fn json(name: impl Into<String>, value: &Value, strict: bool) -> Self {
        let text = value.to_string();
        if strict
            && text.len() <= PART_BYTES
            && let Ok(raw) = RawValue::from_string(text.clone())
        {
            return Self {
                name: name.into(),
                media: None,
                content: Content::Json(raw),
            };
        }
        Self::text_as(name, text, Some("application/json"))
    }

    /// Bytes of the content, before any encoding for the way.
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Json(raw) => raw.get().len(),
            Content::Text(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether the content has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload itself where it is small enough, and otherwise its parts `name.1`, `name.2` ….
    pub(super) fn parts(self) -> Vec<Self> {
        if self.len() <= PART_BYTES {
            return vec![self];
        }
        let named = |index: usize, content: Content| Self {
            name: format!("{}.{}", self.name, index + 1),
            media: self.media.clone(),
            content,
        };
        match &self.content {
            // `json` is never larger than a part, see above.
            Content::Json(_) => vec![self],
            Content::Text(whole) => pieces(whole.as_bytes())
                .enumerate()
                .map(|(index, piece)| {
                    let text = String::from_utf8_lossy(piece).into_owned();
                    named(index, Content::Text(text))
                })
                .collect(),
            Content::Bytes(whole) => pieces(whole)
                .enumerate()
                .map(|(index, piece)| named(index, Content::Bytes(piece.to_vec())))
                .collect(),
        }
    }
}

/// The content in pieces of at most [`PART_BYTES`], cut between characters and around secrets.
fn pieces(whole: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = whole;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(cut::place(rest, PART_BYTES));
        rest = after;
        Some(piece)
    })
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        if let Some(media) = &self.media {
            map.serialize_entry("media", media)?;
        }
        match &self.content {
            Content::Json(raw) => map.serialize_entry("json", raw)?,
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Bytes(bytes) => map.serialize_entry("base64", &STANDARD.encode(bytes))?,
        }
        map.end()
    }
}
