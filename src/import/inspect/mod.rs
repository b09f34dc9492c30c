//! Logs of Inspect: one JSON object, or an `.eval` archive with a member for each sample.
//!
//! The log is a run: the evaluation, its plan, and what came out. Each sample of each epoch is a run of its
//! own, linked with the log's. The records are the log's members, the samples, and the events of a sample (its
//! messages, where it has no events). What the log says of the evaluation as a whole, and of a sample after
//! its events, is written anew with every change, so that the keys of these frames have a digest in them.

mod answer;
mod archive;
mod event;
mod head;
mod lists;
mod log;
mod message;
mod model;
mod sample;
mod store;

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use super::record::{self, Reading};
use super::sample::Sample;
use super::{ImportError, Transcript};

/// Whether the file is a log of Inspect.
pub(super) fn fits(sample: &Sample) -> bool {
    if archive::is_archive(&sample.members) {
        return true;
    }
    match &sample.document {
        Some(document) => log::is_log(document),
        // Python writes NaN into JSON, so that no strict reader takes the log for a document.
        None => {
            let members = [
                "\"version\"",
                "\"status\"",
                "\"eval\"",
                "\"run_id\"",
                "\"task_id\"",
            ];
            let has = |name: &&str| sample.text.contains(*name);
            sample.text.starts_with('{') && sample.records.is_empty() && members.iter().all(has)
        }
    }
}

/// Opens a log.
///
/// # Errors
/// The file cannot be read, is too large, or is no log; or its archive has a member that cannot be read.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if sample.text.trim_start().starts_with('{') {
        log::open(path, session)
    } else {
        archive::open(path, session)
    }
}

/// Reads a JSON object as Python writes it: with `NaN` and `Infinity`, for which JSON has no word. They are
/// read as `null`, and the exact bytes are kept beside the record.
fn read(bytes: &[u8]) -> Reading {
    let reading = record::read(bytes);
    let Reading::Torn(_) = reading else {
        return reading;
    };
    let Cow::Owned(mended) = without_constants(bytes) else {
        return reading;
    };
    match record::read(&mended) {
        Reading::Record(mut record) => {
            record.refused = Some("not_a_number");
            record.raw = Some(record::raw_payload(bytes));
            Reading::Record(record)
        }
        _ => reading,
    }
}

/// The bytes with `null` for each of Python's constants outside of strings.
fn without_constants(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    let mut in_string = false;
    while at < bytes.len() {
        let constant = ["-Infinity", "Infinity", "NaN"]
            .into_iter()
            .find(|constant| !in_string && bytes[at..].starts_with(constant.as_bytes()));
        at += match (constant, bytes[at]) {
            (Some(constant), _) => {
                out.extend_from_slice(&bytes[copied..at]);
                out.extend_from_slice(b"null");
                copied = at + constant.len();
                constant.len()
            }
            (None, b'\\') if in_string => 2,
            (None, b'"') => {
                in_string = !in_string;
                1
            }
            (None, _) => 1,
        };
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[copied..]);
    Cow::Owned(out)
}

/// The text of a member.
fn text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_python_are_read_as_null() {
        let text = br#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" Infinity"}"#;
        let Reading::Record(record) = read(text) else {
            panic!("no record");
        };
        let value = serde_json::json!({"a": null, "b": [null, null], "c": "NaN \" Infinity"});
        assert_eq!(record.value, value);
        assert_eq!(record.refused, Some("not_a_number"));
        assert!(record.raw.is_some_and(|raw| raw.len() == text.len()));
        for torn in [&b"{\"a\": NaN"[..], b"NaN", b"{\"a\": nan}", b"\"\\"] {
            assert!(matches!(read(torn), Reading::Torn(_)));
        }
    }
}
