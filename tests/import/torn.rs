//! Files that a crash left behind, and files that are still being written.

use std::io::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord::import::payload::Content;
use serde_json::Value;

use crate::check::{Read, read};
use crate::shared::shared;

const PROMPT: &[u8] =
    br#"{"type":"user","uuid":"u1","sessionId":"s","message":{"role":"user","content":"hi"}}"#;

fn read_bytes(bytes: &[u8]) -> Read {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("session.jsonl");
    std::fs::write(&path, bytes).unwrap();
    read(&path)
}

#[test]
fn a_torn_line_is_kept_and_named_and_the_rest_is_read() {
    let glued = br#"{"type":"user","uuid":"x","mess{"type":"user","uuid":"y","message":{"role":"user","content":"glued"}}"#;
    let nuls = [0; 64];
    let lines: [&[u8]; 5] = [PROMPT, glued, &nuls, b"[1,2,3]", PROMPT];
    let read = read_bytes(&[&lines.join(&b'\n')[..], b"\n"].concat());
    assert_eq!((read.tally.records, read.tally.torn), (2, 3));
    let offset = PROMPT.len() as u64 + 1;
    assert_eq!(read.notices[0], (2, offset));
    assert_eq!(read.notices[1], (3, offset + glued.len() as u64 + 1));
    for (line, bytes) in [(2, &glued[..]), (3, &nuls), (4, b"[1,2,3]")] {
        let frame = &read.frames[0][line - 1];
        assert_eq!(frame.key, format!("line/{line}"));
        assert_eq!(frame.body["observation"], "torn_line");
        assert!(matches!(&frame.payloads[0].content, Content::Bytes(kept) if kept == bytes));
        // Nothing is made up from a record that was glued to another.
        assert!(!frame.body.contains_key("uuid"));
    }
}

#[test]
fn a_cut_last_line_waits_for_its_end() {
    let cut = &PROMPT[..40];
    let torn = read_bytes(&[PROMPT, b"\n", cut].concat());
    assert_eq!(
        (
            torn.tally.records,
            torn.tally.torn,
            torn.tally.left_out_bytes
        ),
        (1, 0, 40)
    );
    assert_eq!(torn.frames[0].len(), 1);
    assert_eq!(torn.notices, [(2, PROMPT.len() as u64 + 1)]);
    // Whole, but not ended yet: it is a record.
    let whole = read_bytes(&[PROMPT, b"\n", PROMPT].concat());
    assert_eq!((whole.tally.records, whole.tally.left_out_bytes), (2, 0));
    // No object: it may become another value with its next byte.
    let number = read_bytes(&[PROMPT, b"\n4"].concat());
    assert_eq!((number.tally.torn, number.tally.left_out_bytes), (0, 1));
}

#[test]
fn line_ends_marks_and_padding_are_no_faults() {
    let bytes = [
        b"\xef\xbb\xbf",
        PROMPT,
        b"\r\n\r\n",
        PROMPT,
        b"\0\0\0\n",
        PROMPT,
        b"\r\n",
    ]
    .concat();
    let read = read_bytes(&bytes);
    assert_eq!((read.tally.records, read.tally.torn), (3, 0));
    let refused: Vec<_> = read.frames[0]
        .iter()
        .map(|frame| frame.body.get("refused").cloned())
        .collect();
    assert_eq!(
        refused,
        [Some("bom".into()), Some("nul_padding".into()), None]
    );
}

#[test]
fn numbers_and_surrogates_that_json_readers_lose_are_kept_exactly() {
    let line = br#"{"type":"assistant","uuid":"a","message":{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"x","input":{"n":12345678901234567890,"s":"\udead"}}]}}"#;
    let read = read_bytes(&[PROMPT, b"\n", &line[..], b"\n"].concat());
    let answer = &read.frames[0][1];
    assert_eq!(answer.body["refused"], "integer_range");
    let raw = answer
        .payloads
        .iter()
        .find(|payload| payload.name == "raw")
        .unwrap();
    assert!(matches!(&raw.content, Content::Text(text) if text.as_bytes() == line));
    let arguments = &read.frames[0][2].payloads[0];
    assert_eq!(arguments.media.as_deref(), Some("application/json"));
    assert!(
        matches!(&arguments.content, Content::Text(text) if text.contains("12345678901234567890"))
    );
}

#[test]
fn the_case_of_torn_transcripts() {
    let Some(path) = shared("cases/33-torn-jsonl-import.json") else {
        return;
    };
    let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let lines: Vec<Vec<u8>> = case["input"]["lines_b64"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| STANDARD.decode(line.as_str().unwrap()).unwrap())
        .collect();
    let read = read_bytes(&lines.join(&b'\n'));
    assert_eq!(read.tally.torn, 3, "glued, NULs, no object");
    assert_eq!(read.tally.records, 4);
    assert!(read.tally.left_out_bytes > 0);
    let bodies = read.frames[0].iter().map(|frame| frame.body.get("uuid"));
    assert!(
        bodies.flatten().all(|uuid| uuid != "3"),
        "uuid 3 stands in a glued line only"
    );
}

#[test]
fn a_line_of_forty_megabytes_is_cut_into_frames() {
    let mut image = PROMPT[..PROMPT.len() - 4].to_vec();
    image.resize(image.len() + 40_000_000, b'x');
    image.extend_from_slice(b"\"}}\n");
    let read = read_bytes(&[PROMPT, b"\n", &image, PROMPT, b"\n"].concat());
    assert_eq!((read.tally.records, read.tally.torn), (3, 0));
    let parts: usize = read.frames[0]
        .iter()
        .flat_map(|frame| &frame.payloads)
        .filter(|payload| payload.name.starts_with("prompt."))
        .map(|payload| payload.len())
        .sum();
    assert_eq!(
        parts, 40_000_001,
        "the letters and the `h` of `hi` before them"
    );
}

#[test]
fn a_file_that_grows_while_it_is_read_ends_where_it_ended_when_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    std::fs::write(&path, [PROMPT, b"\n"].concat()).unwrap();
    let mut reader = onrecord::import::Reader::open(&path, None, None).unwrap();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    file.write_all(&[PROMPT, b"\n"].concat()).unwrap();
    let mut events = Vec::new();
    while reader.step(&mut events).unwrap() {}
    assert_eq!(reader.tally().records, 1);
}
