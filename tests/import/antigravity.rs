//! Transcripts and artifacts of Antigravity.

use onrecord::import::{Format, Reader, detect};
use serde_json::json;

use crate::check::{Records, check_files, check_nothing_lost, frame, kinds, link, payload, read};
use crate::shared::shared;
use crate::steady::{Copy, hostile, lines_grow};
use crate::{files, fixture};

const FOLDER: &str = "antigravity/brain/6b3e9d10-4f72-4c85-b9a1-0d5c7e2f8308";

#[test]
fn steps_become_turns_answers_and_results() {
    let path = fixture(FOLDER).join("transcript.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!(
        read.openings[0].key,
        "import/antigravity/6b3e9d10-4f72-4c85-b9a1-0d5c7e2f8308"
    );
    let expected = [
        ("context", 2),
        ("decision", 1),
        ("file_version", 1),
        ("model_result", 2),
        ("observation", 2),
        ("retrieval", 1),
        ("tool_call", 1),
        ("tool_result", 5),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (14, 1));
    for (key, name, status) in [
        ("line/4", "grep_search", "not stated"),
        ("line/5", "run_command", "error"),
        ("line/6", "run_command", "ok"),
        ("line/7", "code_action", "ok"),
        ("line/12", "browser_click_element", "error"),
    ] {
        let body = &frame(&read, 0, key).body;
        assert_eq!(
            (&body["name"], &body["status"]),
            (&json!(name), &json!(status))
        );
        // Which call a step answers is not written.
        assert!(frame(&read, 0, key).links.is_empty());
    }
    let version = frame(&read, 0, "line/7/file");
    assert_eq!(version.body["path"], "/home/mara/ferry/name.txt");
    assert_eq!(version.body["change"], "create");
    assert_eq!(version.links, [link("derived_from", "line/7")]);
    assert_eq!(frame(&read, 0, "line/11").body["decision"], "approval");
}

#[test]
fn an_artifact_is_one_frame_keyed_by_its_text() {
    let path = fixture(FOLDER).join("implementation_plan.md");
    let before = read(&path);
    assert_eq!(
        before.openings[0].key,
        "import/antigravity/6b3e9d10-4f72-4c85-b9a1-0d5c7e2f8308/file/implementation_plan"
    );
    let [plan] = before.frames[0].as_slice() else {
        panic!("one frame")
    };
    assert_eq!(
        (plan.kind, &plan.body["decision"]),
        ("decision", &json!("plan"))
    );
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(payload(plan, "plan"), json!(text));
    let copy = Copy::of(&path, 3);
    std::fs::write(&copy.path, text + "3. Paint it.\n").unwrap();
    let after = read(&copy.path);
    assert_ne!(after.frames[0][0].key, plan.key);
    std::fs::write(&copy.path, b"# caf\xe9\n").unwrap();
    assert_eq!(
        payload(&read(&copy.path).frames[0][0], "plan"),
        json!("IyBjYWbpCg==")
    );
}

#[test]
fn markdown_from_elsewhere_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    std::fs::write(&path, "# Notes\n").unwrap();
    assert!(detect(&path).is_err());
    // Who names the format knows better.
    assert!(Reader::open(&path, Some(Format::Antigravity), None).is_ok());
    let error = Reader::open(
        &fixture("droid/store.jsonl"),
        Some(Format::Antigravity),
        None,
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains("step_index"), "{error}");
}

#[test]
fn a_transcript_may_grow_and_be_hostile() {
    let path = fixture(FOLDER).join("transcript.jsonl");
    lines_grow(&path);
    hostile(Format::Antigravity, &path, true);
}

#[test]
fn every_shared_transcript_maps() {
    if let Some(folder) = shared("data/agent-sessions/antigravity") {
        let paths = files(&folder, ".jsonl");
        check_files(Format::Antigravity, &Records::Lines, &paths);
        paths.iter().for_each(|path| lines_grow(path));
        for path in files(&folder, ".md") {
            assert_eq!(detect(&path).unwrap(), Format::Antigravity);
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(payload(&read(&path).frames[0][0], "text"), json!(text));
        }
    }
}
