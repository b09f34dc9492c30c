//! Transcripts of Cursor.

use onrecord::import::{Format, Reader};
use serde_json::json;

use crate::check::{Records, check_files, check_nothing_lost, frame, kinds, link, payload, read};
use crate::shared::shared;
use crate::steady::{hostile, lines_grow};
use crate::{files, fixture};

const SESSION: &str =
    "cursor/3a1f7c52-08be-4d6c-9a17-52c0e6f4b901/3a1f7c52-08be-4d6c-9a17-52c0e6f4b901.jsonl";

#[test]
fn messages_become_turns_answers_and_calls() {
    let path = fixture(SESSION);
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!(
        read.openings[0].key,
        "import/cursor/3a1f7c52-08be-4d6c-9a17-52c0e6f4b901"
    );
    assert_eq!(read.openings[0].session["times"], "none");
    let expected = [
        ("decision", 1),
        ("model_result", 2),
        ("observation", 5),
        ("tool_call", 3),
        ("tool_result", 1),
        ("turn", 2),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (9, 1));
    let answer = frame(&read, 0, "line/2");
    assert_eq!(payload(answer, "thinking"), json!("Look at the loader."));
    assert_eq!(answer.body["model"], "cursor-small");
    let result = frame(&read, 0, "line/3");
    assert_eq!(result.links, [link("answers", "line/2/call/4")]);
    assert_eq!(result.body["status"], "ok");
    let note = frame(&read, 0, "line/3/note");
    assert_eq!(payload(note, "text"), json!("Hurry, please."));
    let plan = frame(&read, 0, "line/4/call/2/plan");
    assert_eq!(plan.body["decision"], "plan");
    assert_eq!(plan.links, [link("derived_from", "line/4/call/2")]);
    for (key, class) in [
        ("line/5", "turn_ended"),
        ("line/7", "error"),
        ("line/8", "interrupted"),
        ("line/9", "unmapped"),
    ] {
        assert_eq!(frame(&read, 0, key).body["observation"], class);
    }
}

#[test]
fn a_subagent_is_found_by_what_it_was_told() {
    let parent = read(&fixture(SESSION));
    let name = "b0d27e14-6a53-49f8-8c11-7e9d30a5f402";
    let call = "line/2/call/4";
    assert_eq!(parent.children, [(name.to_owned(), Some(call.to_owned()))]);
    assert!(frame(&parent, 0, call).linked_to);
    let folder = fixture(SESSION).parent().unwrap().join("subagents");
    let child = read(&folder.join(format!("{name}.jsonl")));
    let session = &child.openings[0].session;
    assert_eq!(
        session["parent_session_id"],
        "3a1f7c52-08be-4d6c-9a17-52c0e6f4b901"
    );
}

#[test]
fn a_transcript_may_grow_and_be_hostile() {
    lines_grow(&fixture(SESSION));
    hostile(Format::Cursor, &fixture(SESSION), true);
}

#[test]
fn what_has_no_messages_is_refused() {
    for name in ["droid/store.jsonl", "not-a-transcript.json"] {
        let error = Reader::open(&fixture(name), Some(Format::Cursor), None);
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("no file of the format cursor: no line"),
            "{error}"
        );
    }
}

#[test]
fn every_shared_transcript_maps() {
    if let Some(folder) = shared("data/agent-sessions/cursor") {
        let paths = files(&folder, ".jsonl");
        check_files(Format::Cursor, &Records::Lines, &paths);
        paths.iter().for_each(|path| lines_grow(path));
        let parent = read(&folder.join("subagent/parent.jsonl"));
        let call = Some("line/2/call/2".to_owned());
        assert_eq!(parent.children, [("child".to_owned(), call)]);
    }
}
