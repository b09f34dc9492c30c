//! Sessions of Droid, in both shapes.

use onrecord::import::request::Turn;
use onrecord::import::{Format, Reader};
use serde_json::json;

use crate::check::{Records, check_files, check_nothing_lost, frame, kinds, link, payload, read};
use crate::shared::shared;
use crate::steady::{hostile, lines_grow};
use crate::{files, fixture};

#[test]
fn the_session_store_becomes_turns_calls_and_results() {
    let path = fixture("droid/store.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    let session = &read.openings[0].session;
    assert_eq!(session["agent_version"], "0.90.2");
    assert_eq!(
        session["parent_session_id"],
        "a11e0c5d-7b26-4e39-8f40-6d9b2c7e1a04"
    );
    let expected = [
        ("context", 2),
        ("file_version", 1),
        ("model_result", 1),
        ("observation", 4),
        ("tool_call", 2),
        ("tool_result", 2),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (9, 1));
    // What only the program put in is no prompt; beside a person's words it is a part of theirs.
    let reminder = frame(&read, 0, "line/2");
    assert_eq!((reminder.kind, reminder.turn), ("context", Turn::Run));
    let prompt = frame(&read, 0, "line/3");
    assert_eq!(
        payload(prompt, "prompt_2"),
        json!("Write the span into span.txt.")
    );
    let version = frame(&read, 0, "line/5/file");
    assert_eq!(version.body["path"], "/home/mara/bridge/span.txt");
    assert_eq!(version.body["change"], "create");
    assert_eq!(version.links, [link("derived_from", "line/5")]);
    // The edit that failed made no version.
    assert_eq!(frame(&read, 0, "line/5/result/2").body["status"], "error");
    let summary = frame(&read, 0, "line/7");
    assert_eq!(summary.body["action"], "compact_summary");
}

#[test]
fn the_stream_becomes_the_same_frames_and_an_outcome() {
    let path = fixture("droid/stream.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    let expected = [
        ("file_version", 1),
        ("model_result", 2),
        ("observation", 3),
        ("outcome", 1),
        ("tool_call", 2),
        ("tool_result", 2),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (11, 1));
    let result = frame(&read, 0, "line/6");
    assert_eq!(result.links, [link("answers", "line/5")]);
    assert_eq!(
        (&result.body["status"], &result.body["exit"]),
        (&json!("ok"), &json!(0))
    );
    assert_eq!(payload(result, "stdout"), json!("4\n"));
    assert_eq!(
        result.occurred_at.as_deref(),
        Some("2026-03-04T08:00:04.000000Z")
    );
    assert_eq!(result.body["occurred_at_written"], "1772611204000");
    let outcome = frame(&read, 0, "line/9");
    assert_eq!(outcome.body["status"], "completed");
    assert_eq!(payload(outcome, "summary"), json!("There are four."));
    assert_eq!(frame(&read, 0, "line/10").body["observation"], "error");
}

#[test]
fn a_session_may_grow_and_be_hostile() {
    for name in ["droid/store.jsonl", "droid/stream.jsonl"] {
        lines_grow(&fixture(name));
        hostile(Format::Droid, &fixture(name), true);
    }
    let error = Reader::open(&fixture("gemini/session.jsonl"), Some(Format::Droid), None);
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("no file of the format droid: no line"),
        "{error}"
    );
}

#[test]
fn every_shared_session_maps() {
    if let Some(folder) = shared("data/agent-sessions/droid") {
        let paths = files(&folder, ".jsonl");
        check_files(Format::Droid, &Records::Lines, &paths);
        paths.iter().for_each(|path| lines_grow(path));
    }
}
