//! Codex: sessions, and what `codex exec` prints.

use std::path::PathBuf;

use onrecord::import::request::Turn;
use onrecord::import::{Format, ImportError, Reader, detect};
use serde_json::{Value, json};

use crate::check::{
    Read, Records, check_files, check_no_string_lost, check_nothing_lost, frame, kinds, link,
    payload, read,
};
use crate::odd::{check_items_grow, check_lines_grow, check_odd_items, check_odd_lines};
use crate::shared::shared;
use crate::{files, fixture};

const ROLLOUT: &str =
    "codex/rollout-2026-03-04T10-00-00-0199aa10-7c1e-7b52-8f00-3d1c5b7a9e01.jsonl";
const CHILD: &str = "codex/rollout-2026-03-04T10-01-10-0199aa11-2222-7b52-8f00-3d1c5b7a9e02.jsonl";

fn body<'a>(read: &'a Read, key: &str, member: &str) -> &'a Value {
    frame(read, 0, key).body.get(member).unwrap_or(&Value::Null)
}

#[test]
fn a_session_is_opened_from_its_first_line() {
    let read = read(&fixture(ROLLOUT));
    let opening = &read.openings[0];
    assert_eq!(
        opening.key,
        "import/codex/0199aa10-7c1e-7b52-8f00-3d1c5b7a9e01"
    );
    let session = &opening.session;
    assert_eq!(session["agent_version"], "0.98.0");
    // The address of the repository has a password in it.
    let repository =
        json!({"branch": "cents", "commit": "9f0b6c1d2e3f405162738495a6b7c8d9e0f1a2b3"});
    assert_eq!(session["pins"], json!({ "repository": repository }));
    assert_eq!(
        opening.occurred_at.as_deref(),
        Some("2026-03-04T10:00:00.250000Z")
    );
    assert_eq!(opening.payloads[0].name, "cwd");
}

#[test]
fn every_record_has_the_frame_of_what_it_is() {
    let path = fixture(ROLLOUT);
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (42, 2));
    let expected = [
        ("context", 6),
        ("decision", 3),
        ("file_version", 3),
        ("model_result", 2),
        ("observation", 14),
        ("retrieval", 1),
        ("snapshot", 1),
        ("tool_call", 8),
        ("tool_result", 7),
        ("turn", 2),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into());
    for (key, member, class) in [
        ("line/1", "action", "session_meta"),
        ("line/2", "action", "developer_message"),
        ("line/3", "action", "environment_context"),
        ("line/5", "action", "turn_context"),
        ("line/13", "observation", "token_count"),
        ("line/14", "decision", "plan"),
        ("line/35", "action", "compacted"),
        ("line/37", "snapshot", "ghost_commit"),
        ("line/38", "decision", "approval"),
        ("line/39", "observation", "error"),
        ("line/40", "observation", "turn_aborted"),
        ("line/41", "observation", "unmapped"),
        ("line/42", "observation", "unmapped"),
    ] {
        assert_eq!(body(&read, key, member), class, "{key}");
    }
    assert_eq!(
        body(&read, "line/13", "usage"),
        &json!({"input_tokens": 900, "output_tokens": 40})
    );
    let compaction = frame(&read, 0, "line/35");
    assert_eq!(
        payload(compaction, "summary"),
        json!("The till rounds each line.")
    );
}

#[test]
fn a_prompt_that_stands_twice_opens_one_turn() {
    let read = read(&fixture(ROLLOUT));
    // The first was written as an item first, the second as an event, and in other words.
    for (first, again) in [("line/6", "line/7"), ("line/25", "line/26")] {
        assert_eq!(frame(&read, 0, first).kind, "turn");
        let again = frame(&read, 0, again);
        assert_eq!(again.body["observation"], "user_message");
        assert_eq!(again.links, [link("derived_from", first)]);
    }
    assert_eq!(frame(&read, 0, "line/5").turn, Turn::Run);
    assert_eq!(
        payload(frame(&read, 0, "line/25"), "prompt"),
        json!("Now let somebody else look.")
    );
}

#[test]
fn what_the_program_writes_as_the_user_opens_no_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    for text in [
        "<environment_context>\n",
        " # AGENTS.md instructions for /x",
    ] {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let event = json!({"type": "user_message", "message": text});
        let lines = [("response_item", item), ("event_msg", event)];
        let lines =
            lines.map(|(kind, payload)| json!({"type": kind, "payload": payload}).to_string());
        std::fs::write(&path, lines.join("\n")).unwrap();
        assert_eq!(kinds(&read(&path).frames[0]), [("context", 2)].into());
    }
}

#[test]
fn answers_are_items_and_events_repeat_them() {
    let read = read(&fixture(ROLLOUT));
    let thinking = frame(&read, 0, "line/8");
    assert_eq!(thinking.kind, "model_result");
    assert_eq!(
        payload(thinking, "thinking"),
        json!("Look at the sum first.")
    );
    assert_eq!(thinking.body["model"], "gpt-5.2-codex");
    assert_eq!(thinking.body["revision"], "not_identifiable");
    assert_eq!(
        body(&read, "line/9", "observation"),
        &json!("agent_reasoning")
    );
    assert_eq!(
        payload(frame(&read, 0, "line/22"), "text"),
        json!("Done: each line is rounded.")
    );
    assert_eq!(
        body(&read, "line/23", "observation"),
        &json!("agent_message")
    );
}

#[test]
fn a_call_is_answered_by_what_the_model_was_shown() {
    let read = read(&fixture(ROLLOUT));
    let call = frame(&read, 0, "line/10");
    assert_eq!(call.links, [link("derived_from", "line/8")]);
    assert_eq!(payload(call, "arguments"), json!("{\"cmd\":\"make test\"}"));
    let event = frame(&read, 0, "line/11");
    assert_eq!(event.kind, "observation");
    assert_eq!(event.links, [link("observed_by", "line/10")]);
    assert_eq!(payload(event, "stdout"), json!("1 failed\n"));
    let result = frame(&read, 0, "line/12");
    assert_eq!(result.links, [link("answers", "line/10")]);
    let told = ["status", "exit", "duration_ms"].map(|name| &result.body[name]);
    assert_eq!(told, [&json!("error"), &json!(2), &json!(1500)]);
    assert_eq!(body(&read, "line/29", "status"), "not stated");
}

#[test]
fn calls_that_only_events_tell_of_are_calls_too() {
    let read = read(&fixture(ROLLOUT));
    assert_eq!(body(&read, "line/30", "server"), "ledger");
    let result = frame(&read, 0, "line/30/result");
    assert_eq!(result.links, [link("answers", "line/30")]);
    assert_eq!(result.body["status"], "ok");
    assert_eq!(frame(&read, 0, "line/33").kind, "tool_call");
    let result = frame(&read, 0, "line/34");
    assert_eq!(
        (result.kind, &result.links[..]),
        ("tool_result", &[link("answers", "line/33")][..])
    );
    let found = frame(&read, 0, "line/32");
    assert_eq!(found.kind, "retrieval");
    assert_eq!(found.links, [link("derived_from", "line/31")]);
}

#[test]
fn files_are_versions_where_a_patch_was_applied() {
    let read = read(&fixture(ROLLOUT));
    let versions: Vec<_> = read.frames[0]
        .iter()
        .filter(|frame| frame.kind == "file_version")
        .map(|frame| (frame.key.as_str(), frame.body["path"].as_str().unwrap()))
        .collect();
    // The first patch's event tells of its files, so that the result does not; the second has no event;
    // the third was not allowed.
    let expected = [
        ("line/16/file/1", "/home/mara/till/src/till.c"),
        ("line/16/file/2", "/home/mara/till/tests/cents.c"),
        ("line/19/file/1", "src/till.c"),
    ];
    assert_eq!(versions, expected);
    let created = frame(&read, 0, "line/16/file/2");
    assert_eq!(created.body["change"], "create");
    assert_eq!(
        payload(created, "after"),
        json!("int main(void) { return 0; }\n")
    );
    assert_eq!(body(&read, "line/19/file/1", "moved_to"), "src/sum.c");
    assert_eq!(body(&read, "line/21", "status"), "denied");
    let denied = frame(&read, 0, "line/21/decision");
    assert_eq!(denied.body["decision"], "tool_denied");
    assert_eq!(denied.links, [link("cancelled", "line/20")]);
}

#[test]
fn a_child_session_is_found_beside_its_parent_and_names_it() {
    let parent = read(&fixture(ROLLOUT));
    let child = "0199aa11-2222-7b52-8f00-3d1c5b7a9e02".to_owned();
    assert_eq!(parent.children, [(child, Some("line/27".to_owned()))]);
    assert!(frame(&parent, 0, "line/27").linked_to);
    let child = read(&fixture(CHILD));
    let session = &child.openings[0].session;
    assert_eq!(
        session["parent_session_id"],
        "0199aa10-7c1e-7b52-8f00-3d1c5b7a9e01"
    );
    assert_eq!(session["agent_role"], "reviewer");
}

#[test]
fn sessions_before_lines_had_types_are_read() {
    let path = fixture("codex/old-lines.jsonl");
    let lines = read(&path);
    check_nothing_lost(&path, &lines);
    assert_eq!(lines.openings[0].key, "import/codex/b7d0");
    assert_eq!(body(&lines, "line/5", "status"), "ok");
    assert_eq!(body(&lines, "line/5", "duration_ms"), 200);
    let path = fixture("codex/old-items.json");
    let items = read(&path);
    check_no_string_lost(&path, &items);
    assert_eq!(items.openings[0].key, "import/codex/old-1");
    let result = frame(&items, 0, "items/3");
    assert_eq!(result.links, [link("answers", "items/2")]);
    assert_eq!(result.body["exit"], 1);
}

#[test]
fn events_of_exec_become_calls_results_and_plans() {
    let path = fixture("codex-exec/events.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (17, 1));
    assert_eq!(
        read.openings[0].key,
        "import/codex-exec/0199aa12-3333-7b52-8f00-3d1c5b7a9e03"
    );
    assert_eq!(read.openings[0].session["times"], "none");
    assert_eq!(body(&read, "line/2", "prompt"), "not stated");
    let result = frame(&read, 0, "line/5");
    assert_eq!(result.links, [link("answers", "line/4")]);
    assert_eq!(payload(result, "result"), json!("a\nb\n"));
    assert_eq!(body(&read, "line/8", "decision"), "plan");
    assert_eq!(body(&read, "line/7/file/1", "change"), "create");
    assert_eq!(body(&read, "line/10", "status"), "error");
    assert_eq!(body(&read, "line/11/result", "status"), "denied");
    assert_eq!(
        frame(&read, 0, "line/11/decision").links,
        [link("cancelled", "line/11")]
    );
    assert_eq!(body(&read, "line/15", "usage")["output_tokens"], 9);
    assert_eq!(body(&read, "line/17", "observation"), "error");
}

#[test]
fn a_session_that_grew_has_the_frames_that_it_had() {
    for name in [ROLLOUT, CHILD, "codex-exec/events.jsonl"] {
        check_lines_grow(&fixture(name), 1);
    }
    check_lines_grow(&fixture("codex/old-lines.jsonl"), 2);
    check_items_grow(&fixture("codex/old-items.json"), "/items", 1, |_| ());
    check_items_grow(&fixture("codex-exec/events.json"), "/events", 1, |_| ());
}

#[test]
fn whatever_a_member_is_nothing_breaks_and_nothing_is_lost() {
    for name in [ROLLOUT, "codex-exec/events.jsonl", "codex/old-lines.jsonl"] {
        check_odd_lines(&fixture(name));
    }
    check_odd_items(&fixture("codex/old-items.json"), "/items");
    check_odd_items(&fixture("codex-exec/events.json"), "/events");
}

#[test]
fn what_is_no_session_is_refused_with_a_reason() {
    let path = fixture("not-a-transcript.json");
    for format in [Format::Codex, Format::CodexExec] {
        let refused = Reader::open(&path, Some(format), None);
        assert!(matches!(refused, Err(ImportError::NotThisFormat { .. })));
    }
    let folder = tempfile::tempdir().unwrap();
    for content in [
        "",
        "{\"items\":[]}",
        "{\"items\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"events\":[{\"type\":\"click\"}]}",
        "{\"type\":\"event_msg\",\"payload\":\"x\"}",
        "{\"type\":\"item.started\"}",
        "{\"id\":\"a\",\"timestamp\":\"b\",\"git\":{}}",
        "{\"type\":\"function_call\",\"call_id\":\"c\"}",
    ] {
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        assert!(detect(&path).is_err(), "{content}");
    }
}

#[test]
fn other_peoples_sessions_are_mapped() {
    let Some(data) = shared("data") else { return };
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["agent-sessions/codex", "agentsview/codex"] {
        paths.extend(files(&data.join(folder), ".jsonl"));
    }
    for name in ["050_legacy", "051_usage", "052_raw", "053_rate_limit"] {
        paths.push(data.join(format!("agent-sessions/codex_{name}.jsonl")));
    }
    check_files(Format::Codex, &Records::Lines, &paths);
    for path in &paths {
        check_lines_grow(
            path,
            if path.ends_with("schema_drift.jsonl") {
                5
            } else {
                1
            },
        );
    }
    let items = data.join("strands-live-spans/codex_session_rollout.json");
    check_files(
        Format::Codex,
        &Records::Document,
        std::slice::from_ref(&items),
    );
    check_items_grow(&items, "/items", 1, |_| ());
    let events = data.join("strands-live-spans/codex_exec_json.json");
    check_files(
        Format::CodexExec,
        &Records::Document,
        std::slice::from_ref(&events),
    );
    check_items_grow(&events, "/events", 1, |_| ());
}
