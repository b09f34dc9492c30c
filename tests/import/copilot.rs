//! Copilot CLI.

use onrecord::import::request::Link;
use onrecord::import::{Format, ImportError, Reader, detect};
use serde_json::{Value, json};

use crate::check::{Records, check_files, check_nothing_lost, frame, kinds, link, payload, read};
use crate::odd::{check_lines_grow, check_odd_lines};
use crate::shared::shared;
use crate::{files, fixture};

const SESSION: &str = "copilot/session.jsonl";

#[test]
fn every_event_has_the_frame_of_what_it_is() {
    let path = fixture(SESSION);
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (24, 1));
    let opening = &read.openings[0];
    assert_eq!(
        opening.key,
        "import/copilot/6b0f0a56-9a0c-4a53-b6a5-0c2f4e7d1a10"
    );
    assert_eq!(
        opening.session["pins"],
        json!({"repository": {"remote": "mara/till", "branch": "cents", "commit": "9f0b"}, "model": {"name": "gpt-5-mini"}})
    );
    let expected = [
        ("context", 3),
        ("decision", 3),
        ("file_version", 1),
        ("model_call", 2),
        ("model_result", 2),
        ("observation", 9),
        ("outcome", 1),
        ("tool_call", 4),
        ("tool_result", 4),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into());
    let turn = frame(&read, 0, "line/3");
    assert_eq!(payload(turn, "prompt"), json!("Rename the till."));
    assert_eq!(
        payload(turn, "transformed"),
        json!("<now>11:00</now> Rename the till.")
    );
    let answer = frame(&read, 0, "line/5");
    assert_eq!(answer.links, [link("answers", "line/5/model")]);
    assert_eq!(payload(answer, "thinking"), json!("List first."));
    assert_eq!(answer.body["usage"], json!({"output_tokens": 12}));
    let outcome = frame(&read, 0, "line/22");
    assert_eq!(
        (outcome.kind, &outcome.body["status"]),
        ("outcome", &json!("completed"))
    );
    assert_eq!(frame(&read, 0, "line/24").body["observation"], "unmapped");
}

#[test]
fn calls_are_answered_allowed_and_denied() {
    let read = read(&fixture(SESSION));
    let started = frame(&read, 0, "line/6");
    assert_eq!(started.body["observation"], "tool_started");
    assert_eq!(started.links, [link("observed_by", "line/5/call/1")]);
    let result = frame(&read, 0, "line/9");
    assert_eq!(result.links, [link("answers", "line/5/call/1")]);
    let told = ["status", "exit", "duration_ms"].map(|name| &result.body[name]);
    assert_eq!(told, [&json!("ok"), &json!(0), &json!(4)]);
    let version = frame(&read, 0, "line/10/file/1");
    assert_eq!(version.body["path"], "/home/mara/till/a.c");
    assert!(
        payload(version, "patch")
            .as_str()
            .unwrap()
            .starts_with("diff --git")
    );
    let approval = frame(&read, 0, "line/8");
    assert_eq!(approval.body["decision"], "approval");
    assert_eq!(approval.body["selected"], "approved");
    assert_eq!(approval.body.get("speaker"), None, "who it was is not said");
    assert_eq!(frame(&read, 0, "line/18").body["status"], "denied");
    let denied = frame(&read, 0, "line/18/decision");
    assert_eq!(denied.links, [link("cancelled", "line/11/call/2")]);
}

#[test]
fn a_subagent_is_a_run_linked_both_ways() {
    let read = read(&fixture(SESSION));
    assert!(read.openings[1].key.ends_with("/agent/t3"));
    let up = frame(&read, 1, "spawned-by/line/11/call/1");
    let call = Some("line/11/call/1".to_owned());
    let to = Link::Thread {
        rel: "derived_from",
        thread: 0,
        key: call,
    };
    assert_eq!(up.links, [to]);
    let down = frame(&read, 0, "subagent/t3/line/11/call/1");
    assert_eq!(down.body["observation"], "subagent_run");
    let expected = [
        ("model_result", 1),
        ("observation", 2),
        ("tool_call", 1),
        ("tool_result", 1),
    ];
    assert_eq!(kinds(&read.frames[1]), expected.into());
}

#[test]
fn a_session_that_grew_has_the_frames_that_it_had() {
    check_lines_grow(&fixture(SESSION), 1);
}

#[test]
fn whatever_a_member_is_nothing_breaks_and_nothing_is_lost() {
    check_odd_lines(&fixture(SESSION));
}

#[test]
fn what_is_no_session_is_refused_with_a_reason() {
    let path = fixture("not-a-transcript.json");
    let refused = Reader::open(&path, Some(Format::Copilot), None);
    assert!(matches!(refused, Err(ImportError::NotThisFormat { .. })));
    let folder = tempfile::tempdir().unwrap();
    let event = json!({"type": "user.message", "data": {"content": "x"}, "id": "a", "timestamp": "b", "parentId": null});
    let path = folder.path().join("events.jsonl");
    let detected = |event: &Value| {
        std::fs::write(&path, event.to_string()).unwrap();
        detect(&path).is_ok()
    };
    assert!(detected(&event));
    for member in ["type", "data", "id", "timestamp", "parentId"] {
        let mut other = event.clone();
        other.as_object_mut().unwrap().remove(member);
        assert!(!detected(&other), "without {member}");
    }
}

#[test]
fn a_session_without_its_start_is_named_by_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c0ffee").join("events.jsonl");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let event = json!({"type": "abort", "data": {}, "id": "a", "timestamp": "b", "parentId": null});
    std::fs::write(&path, event.to_string() + "\n").unwrap();
    assert_eq!(read(&path).openings[0].key, "import/copilot/c0ffee");
}

#[test]
fn other_peoples_sessions_are_mapped() {
    let Some(data) = shared("data/agent-sessions/copilot") else {
        return;
    };
    let paths = files(&data, ".jsonl");
    check_files(Format::Copilot, &Records::Lines, &paths);
    for path in &paths {
        check_lines_grow(path, 1);
    }
}
