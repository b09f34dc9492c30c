//! One thing has one word, whatever the format: the vocabulary of `docs/importing.md`, over all files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onrecord::import::request::FrameRequest;
use onrecord::import::{Format, Reader, detect};
use serde_json::{Map, Value, json};

use crate::check::{read, read_all};
use crate::shared::shared;
use crate::{files, fixture};

/// Words that formats have for what has another word in frames.
const OTHER_WORDS: [&str; 12] = [
    "stop_reason",
    "seconds",
    "approved",
    "model_provider",
    "reasoning_effort",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cached_input_tokens",
    "cache_read_tokens",
    "thinking_tokens",
    "reasoning_output_tokens",
];

/// What a member may say, of a kind or of all (`*`).
const VALUES: [(&str, &str, &[&str]); 7] = [
    (
        "*",
        "speaker",
        &["user", "model", "program", "tool", "agent"],
    ),
    (
        "tool_result",
        "status",
        &["ok", "error", "denied", "not stated"],
    ),
    ("outcome", "status", &["completed", "failed", "cancelled"]),
    (
        "file_version",
        "change",
        &["create", "update", "write", "delete"],
    ),
    ("retrieval", "phase", &["begin", "end"]),
    ("memory", "action", &["read", "written"]),
    ("model_result", "revision", &["not_identifiable"]),
];

/// Names of payloads that a kind, or a class of it, has not.
const OTHER_PAYLOADS: [(&str, &str, &[&str]); 5] = [
    ("observation", "error", &["message", "content", "detail"]),
    ("context", "compact_summary", &["summary", "content"]),
    (
        "turn",
        "",
        &["text", "content", "message", "data", "image_url"],
    ),
    (
        "model_result",
        "",
        &["content", "message", "reasoning", "data"],
    ),
    ("tool_call", "", &["input", "args", "parameters"]),
];

fn said<'a>(body: &'a Map<String, Value>, member: &str) -> &'a str {
    body.get(member).and_then(Value::as_str).unwrap_or("")
}

fn class(frame: &FrameRequest) -> &str {
    match frame.kind {
        "context" | "memory" => said(&frame.body, "action"),
        kind => said(&frame.body, kind),
    }
}

fn members(value: &Value, out: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        out.insert(name.clone());
        members(value, out);
    }
}

fn check(frame: &FrameRequest, path: &Path) {
    let at = || format!("{} of {}", frame.key, path.display());
    let mut names = BTreeSet::new();
    members(&Value::Object(frame.body.clone()), &mut names);
    for word in OTHER_WORDS {
        assert!(!names.contains(word), "{word} in {}", at());
    }
    for (kind, member, values) in VALUES {
        if (kind == "*" || kind == frame.kind)
            && let Some(value) = frame.body.get(member)
        {
            let known = value.as_str().is_some_and(|value| values.contains(&value));
            assert!(known, "{member} is {value} in {}", at());
        }
    }
    for (kind, of, words) in OTHER_PAYLOADS {
        if kind == frame.kind && (of.is_empty() || of == class(frame)) {
            for payload in &frame.payloads {
                let name = payload.name.as_str();
                assert!(!words.contains(&name), "{name} in {}", at());
            }
        }
    }
    let compaction = frame.kind == "context" && class(frame) == "compaction";
    assert!(!compaction, "{}", at());
}

/// The files of a folder that are of a format and can be read.
fn readable(folder: &Path) -> Vec<PathBuf> {
    let mut files = files(folder, "");
    files.retain(|path| detect(path).is_ok() && Reader::open(path, None, None).is_ok());
    files
}

#[test]
fn one_thing_has_one_word_in_all_formats() {
    let mut seen = BTreeSet::new();
    let folders = [Some(fixture("")), shared("data")];
    for path in folders.iter().flatten().flat_map(|folder| readable(folder)) {
        seen.insert(detect(&path).unwrap().as_str());
        for frame in read(&path).frames.iter().flatten() {
            check(frame, &path);
        }
    }
    assert_eq!(seen.len(), Format::ALL.len(), "{seen:?}");
}

#[test]
fn one_message_has_the_same_payloads_in_all_formats_that_have_blocks() {
    let content = json!([
        {"type": "text", "text": "Look."},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]);
    let message = json!({"role": "user", "content": content});
    let records = [
        json!({"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-03-07T10:00:00Z", "message": message}),
        json!({"role": "user", "message": {"content": content}}),
        json!({"type": "message", "id": "m", "message": message}),
        message,
    ];
    let formats = [
        Format::ClaudeCode,
        Format::Cursor,
        Format::Droid,
        Format::Chat,
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.jsonl");
    for (format, record) in formats.into_iter().zip(records) {
        let begin = json!({"type": "session_start", "id": "s", "cwd": "/"});
        let lines = match format {
            Format::Droid => format!("{begin}\n{record}\n"),
            Format::Chat => format!("[{record}]"),
            _ => format!("{record}\n"),
        };
        std::fs::write(&path, lines).unwrap();
        let read = read_all(Reader::open(&path, Some(format), None).unwrap());
        let turn = read.frames[0].iter().find(|frame| frame.kind == "turn");
        let payloads = turn.unwrap().payloads.iter();
        let names: Vec<_> = payloads.map(|payload| payload.name.as_str()).collect();
        let wanted = ["prompt", "document", "image", "image_2", "record"];
        assert_eq!(names, wanted, "{}", format.as_str());
    }
}
