//! One record of a transcript: read strictly where that is possible, mended where it is not, and
//! emptied of what travels as payloads.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::json::{self, Limits, Reason};
use serde_json::Value;

use super::Sink;
use super::payload::{PART_BYTES, Payload};
use super::request::{FrameRequest, object};

/// Records are nested less deep than the format allows: a reference to a payload is one level deeper
/// than the text in whose place it stands.
const LIMITS: Limits = Limits {
    bytes: usize::MAX,
    depth: 28,
    object: false,
};

/// A record as a value.
#[derive(Debug)]
pub struct Record {
    /// The record. What the mapping takes out of it is replaced by a reference to the payload.
    pub value: Value,
    /// Why the strict reader refused the record, if it did. The value is then only close to what
    /// was written, and `raw` has the exact bytes.
    pub refused: Option<&'static str>,
    /// The exact bytes of a refused record.
    pub raw: Option<Payload>,
}

/// What a line turned out to be.
#[derive(Debug)]
pub enum Reading {
    /// A JSON object, or a list where one was asked for.
    Record(Record),
    /// Nothing but white space.
    Blank,
    /// No such JSON: cut off, two records glued together, or never a record.
    Torn(String),
}

/// Reads the bytes of a line or of a file that are one JSON object.
pub fn read(bytes: &[u8]) -> Reading {
    read_value(bytes, Value::is_object, "an object")
}

/// Reads the bytes of a file that are one JSON object or list.
pub fn read_list(bytes: &[u8]) -> Reading {
    let wanted = |value: &Value| value.is_object() || value.is_array();
    read_value(bytes, wanted, "an object or a list")
}

fn read_value(bytes: &[u8], wanted: impl Fn(&Value) -> bool, named: &str) -> Reading {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Reading::Blank;
    }
    let (clean, trimmed) = trim(bytes);
    let strict = json::canonicalize(clean, LIMITS).err();
    let refused = match (&strict, trimmed) {
        (Some(fault), _) => Some(fault.reason.as_str()),
        (None, trimmed) => trimmed,
    };
    let text = String::from_utf8_lossy(clean);
    let mended = match &strict {
        Some(fault) if fault.reason != Reason::Syntax => mend_surrogates(&text),
        _ => Cow::Borrowed(text.as_ref()),
    };
    match serde_json::from_str(&mended) {
        Ok(value) if wanted(&value) => Reading::Record(Record {
            value,
            raw: refused.map(|_| raw_payload(bytes)),
            refused,
        }),
        Ok(_) => Reading::Torn(format!("this is JSON, but not {named}")),
        Err(error) => Reading::Torn(match strict {
            Some(fault) => fault.to_string(),
            None => error.to_string(),
        }),
    }
}

/// The bytes as they are: as text where they are text.
pub fn raw_payload(bytes: &[u8]) -> Payload {
    match std::str::from_utf8(bytes) {
        Ok(text) => Payload::text("raw", text.to_owned()),
        Err(_) => Payload::bytes("raw", bytes.to_vec(), None),
    }
}

/// Without a byte order mark and the NULs that a crash leaves around a record; says which it was.
fn trim(bytes: &[u8]) -> (&[u8], Option<&'static str>) {
    let mut clean = bytes;
    let mut reason = None;
    if let Some(rest) = clean.strip_prefix(b"\xef\xbb\xbf") {
        (clean, reason) = (rest, Some("bom"));
    }
    while let [0, rest @ ..] | [rest @ .., 0] = clean {
        (clean, reason) = (rest, Some("nul_padding"));
    }
    (clean, reason)
}

/// Puts U+FFFD in the place of each escaped half of a surrogate pair, so that the rest of the record
/// can be read. The exact bytes are kept beside it.
pub(super) fn mend_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u16> {
        let escape = bytes.get(at..at + 6)?;
        let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(step) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|byte| *byte == b'\\'))
    {
        at += step;
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            Some(_) => 6,
            None => 2,
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

impl Record {
    /// Whether the strict reader took the record, and so each part of it.
    pub fn strict(&self) -> bool {
        self.refused.is_none()
    }

    /// Gives the frame what is left of the record: the record with references to its payloads, or
    /// the exact bytes where the strict reader refused it.
    pub fn leave_rest(self, frame: &mut FrameRequest) {
        let (refused, strict) = (self.refused, self.strict());
        if let Some(reason) = refused {
            frame.put("refused", reason);
        }
        let rest = self
            .raw
            .unwrap_or_else(|| Payload::json("record", &self.value, strict));
        frame.attach(rest);
    }
}

/// Posts what a record became, the first frame with what is left of it.
pub(super) fn post(record: Record, mut frames: Vec<FrameRequest>, out: &mut Sink<'_>) {
    if let Some(first) = frames.first_mut() {
        record.leave_rest(first);
    }
    for frame in frames {
        out.frame(frame);
    }
}

/// Moves a value out of its record into a payload of the frame and leaves a reference. A string
/// becomes text, all else JSON; empty strings and `null` stay where they are.
pub fn extract(slot: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    let payload = match &mut *slot {
        Value::Null => return,
        Value::String(text) if text.is_empty() => return,
        Value::String(text) => Payload::text(name, std::mem::take(text)),
        other => Payload::json(name, other, strict),
    };
    let name = frame.attach(payload);
    *slot = reference(&frame.key, &name);
}

/// Moves the members of a value that are there into payloads: pairs of a member's and a payload's name.
pub fn extract_all(
    from: &mut Value,
    members: &[(&str, &str)],
    frame: &mut FrameRequest,
    strict: bool,
) {
    for (member, name) in members {
        if let Some(slot) = from.get_mut(*member) {
            extract(slot, frame, name, strict);
        }
    }
}

/// Moves base64 out of its record into a payload of the bytes. What does not decode, or would not
/// come back as the same text, is moved as text.
pub fn extract_base64(slot: &mut Value, frame: &mut FrameRequest, name: &str, media: Option<&str>) {
    let Value::String(text) = &*slot else {
        return;
    };
    match STANDARD.decode(text.as_bytes()) {
        Ok(bytes) if bytes.len() <= PART_BYTES => {
            let name = frame.attach(Payload::bytes(name, bytes, media));
            let mut mark = reference(&frame.key, &name);
            mark["$as"] = "base64".into();
            *slot = mark;
        }
        _ => extract(slot, frame, name, true),
    }
}

/// Moves a data URL out of its record: into a payload of its bytes where it has base64 that would come
/// back as the same text, and otherwise as text, like any URL.
pub fn extract_data_url(slot: &mut Value, frame: &mut FrameRequest, name: &str) {
    let decoded = slot.as_str().and_then(|text| {
        let (media, base64) = text.strip_prefix("data:")?.split_once(";base64,")?;
        onrecord_core::frame::check_media(media).ok()?;
        Some((media.to_owned(), STANDARD.decode(base64).ok()?))
    });
    match decoded {
        Some((media, bytes)) if (1..=PART_BYTES).contains(&bytes.len()) => {
            let name = frame.attach(Payload::bytes(name, bytes, Some(&media)));
            let mut mark = reference(&frame.key, &name);
            mark["$as"] = "data_url".into();
            *slot = mark;
        }
        _ => extract(slot, frame, name, true),
    }
}

/// 16 hex digits that tell this value from others: the last part of the key of a frame about what a
/// later version of the file may say differently.
pub fn digest(value: &Value) -> String {
    let hash = onrecord_core::digest::Hash::of(&[value.to_string().as_bytes()]);
    let mut hex = hash.hex();
    hex.truncate(16);
    hex
}

/// What stands in a record in the place of a payload.
fn reference(key: &str, name: &str) -> Value {
    object([("$frame", key.into()), ("$payload", name.into())])
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use crate::import::payload::Content;
    use crate::import::request::Turn;
    use serde_json::json;

    fn record(bytes: &[u8]) -> Record {
        match read(bytes) {
            Reading::Record(record) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_strict_reader_refuses_keeps_its_exact_bytes() {
        for (line, reason) in [
            (&br#"{"n":9007199254740993}"#[..], "integer_range"),
            (br#"{"n":123456789012345678901234567890}"#, "integer_range"),
            (br#"{"a":1,"a":2}"#, "duplicate_key"),
            (br#"{"s":"\ud800"}"#, "lone_surrogate"),
            (b"{\"s\":\"\xff\"}", "utf8"),
            (b"\xef\xbb\xbf{}", "bom"),
            (b"{\"a\":1}\0\0\0", "nul_padding"),
            (b"{\"s\":\"\xef\xbf\xbe\"}", "noncharacter"),
        ] {
            let record = record(line);
            assert_eq!(record.refused, Some(reason));
            let raw = match record.raw.unwrap().content {
                Content::Text(text) => text.into_bytes(),
                Content::Bytes(bytes) => bytes,
                Content::Json(_) => panic!("raw is never JSON"),
            };
            assert_eq!(raw, line);
        }
        assert!(record(br#"{"s":"\ud83d\ude00"}"#).strict());
    }

    #[test]
    fn lone_surrogates_are_mended_and_pairs_are_not() {
        let text = r#"{"a":"\ud800x","b":"\ud83d\ude00","c":"\\ud800","d":"\udc00\ud800"}"#;
        let record = record(text.as_bytes());
        assert_eq!(
            record.value,
            json!({"a": "\u{fffd}x", "b": "😀", "c": "\\ud800", "d": "\u{fffd}\u{fffd}"})
        );
    }

    #[test]
    fn what_is_no_object_is_torn() {
        for line in [
            &b"42"[..],
            b"[1,2,3]",
            b"{\"a\":\"cut",
            b"\0\0\0",
            b"{\"a\":1}{\"b\":2}",
        ] {
            assert!(matches!(read(line), Reading::Torn(_)), "{line:?}");
        }
        assert!(matches!(read(b" \t\r"), Reading::Blank));
        // Too deep for any reader: kept as it is, and no stack overflow.
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        assert!(matches!(read(&deep), Reading::Torn(_)));
    }

    #[test]
    fn a_list_is_read_where_one_is_asked_for() {
        assert!(matches!(read_list(b"[{\"a\":1}]"), Reading::Record(record) if record.strict()));
        assert!(matches!(read_list(b"7"), Reading::Torn(_)));
    }

    #[test]
    fn data_urls_become_their_bytes() {
        let mut frame = FrameRequest::new("observation", "k", Turn::Open);
        let mut value = json!([
            "data:image/png;base64,AAEC",
            "data:image/png;base64,AAE",
            "https://example.org/a.png",
            "data:;base64,AAEC",
            7
        ]);
        for slot in value.as_array_mut().unwrap() {
            extract_data_url(slot, &mut frame, "image");
        }
        let bytes = json!({"$frame": "k", "$payload": "image", "$as": "data_url"});
        assert_eq!(value[0], bytes);
        assert_eq!(value[1], json!({"$frame": "k", "$payload": "image_2"}));
        assert_eq!(frame.payloads[0].media.as_deref(), Some("image/png"));
        assert!(matches!(&frame.payloads[0].content, Content::Bytes(bytes) if bytes == &[0, 1, 2]));
        assert!(
            matches!(&frame.payloads[3].content, Content::Text(text) if text.starts_with("data:;"))
        );
    }

    #[test]
    fn payloads_leave_references() {
        let mut frame = FrameRequest::new("observation", "line/1", Turn::Open);
        let mut value = json!({"text": "hello", "image": "AAEC", "odd": "AAE", "none": null});
        extract(&mut value["text"], &mut frame, "text", true);
        extract_base64(&mut value["image"], &mut frame, "image", Some("image/png"));
        extract_base64(&mut value["odd"], &mut frame, "image", Some("image/png"));
        extract(&mut value["none"], &mut frame, "none", true);
        assert_eq!(
            value,
            json!({
                "text": {"$frame": "line/1", "$payload": "text"},
                "image": {"$frame": "line/1", "$payload": "image", "$as": "base64"},
                "odd": {"$frame": "line/1", "$payload": "image_2"},
                "none": null,
            })
        );
        assert_eq!(frame.payloads.len(), 3);
        assert!(matches!(&frame.payloads[1].content, Content::Bytes(bytes) if bytes == &[0, 1, 2]));
    }
}
