//! Sessions of Gemini CLI in both shapes, and recorded answers of its model.

use onrecord::import::child::is_child_file;
use onrecord::import::{Format, Reader};
use serde_json::{Value, json};

use crate::check::{
    Read, Records, check_files, check_grows, check_no_string_lost, check_nothing_lost, frame,
    kinds, link, payload, read, record,
};
use crate::shared::shared;
use crate::steady::{Copy, hostile, lines_grow};
use crate::{files, fixture};

#[test]
fn lines_become_turns_answers_and_calls() {
    let path = fixture("gemini/session.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!(
        read.openings[0].key,
        "import/gemini-cli/c4d81f26-3e07-4a9b-8b52-7f1e6d0c9a09"
    );
    let expected = [
        ("context", 2),
        ("decision", 2),
        ("file_version", 1),
        ("memory", 1),
        ("model_result", 3),
        ("observation", 8),
        ("tool_call", 5),
        ("tool_result", 5),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (15, 1));
    // The same message four times: said once, its counts and results as they came.
    assert_eq!(frame(&read, 0, "line/4").body.get("usage"), None);
    let counted = frame(&read, 0, "line/5");
    assert_eq!(counted.body["observation"], "message_revised");
    assert_eq!(counted.body["usage"]["reasoning_tokens"], 3);
    assert_eq!(counted.links, [link("derived_from", "line/4")]);
    assert_eq!(
        frame(&read, 0, "line/6/call/1").links,
        [link("derived_from", "line/4")]
    );
    let shell = frame(&read, 0, "line/6/call/1/result");
    assert_eq!(
        (&shell.body["status"], &shell.body["exit"]),
        (&json!("ok"), &json!(2))
    );
    // The second call was running in line 6, and was over in line 7.
    let late = frame(&read, 0, "line/7/call/2/result");
    assert_eq!(late.links, [link("answers", "line/6/call/2")]);
    assert_eq!(
        late.occurred_at.as_deref(),
        Some("2026-03-07T10:00:05.500000Z")
    );
    let version = frame(&read, 0, "line/7/call/2/file");
    assert_eq!(version.body["path"], "/home/mara/sea/chart.txt");
    assert_eq!(payload(version, "after"), json!("N 54\n"));
    assert_eq!(
        frame(&read, 0, "line/8/call/1/result").body["status"],
        "denied"
    );
    assert_eq!(
        frame(&read, 0, "line/8/call/1/decision").links,
        [link("cancelled", "line/8/call/1")]
    );
    // A call that has no time of its own has that of its message, not of the result before it.
    assert_eq!(
        frame(&read, 0, "line/8/call/2").occurred_at.as_deref(),
        Some("2026-03-07T10:00:06.000000Z")
    );
    assert_eq!(frame(&read, 0, "line/10").body["action"], "rewind");
    let approval = frame(&read, 0, "line/15/call/1/decision");
    assert_eq!(
        (&approval.body["decision"], &approval.body["selected"]),
        (&json!("approval"), &json!("approved"))
    );
}

#[test]
fn a_subagent_is_named_by_its_call() {
    let read = read(&fixture("gemini/session.jsonl"));
    let call = Some("line/8/call/2".to_owned());
    assert_eq!(
        read.children,
        [("codebase_investigator-77ab".to_owned(), call)]
    );
    let folder = fixture("gemini/c4d81f26-3e07-4a9b-8b52-7f1e6d0c9a09");
    let file = folder.join("codebase_investigator-77ab.jsonl");
    assert!(is_child_file(&file) && !is_child_file(&fixture("gemini/session.jsonl")));
    let child = crate::check::read(&file);
    assert_eq!(
        child.openings[0].session["parent_session_id"],
        "c4d81f26-3e07-4a9b-8b52-7f1e6d0c9a09"
    );
}

#[test]
fn a_document_leaves_out_what_is_not_over() {
    let path = fixture("gemini/session.json");
    let read = read(&path);
    assert_eq!((read.tally.records, read.tally.unmapped), (6, 1));
    assert!(read.tally.left_out_bytes > 0);
    assert_eq!(read.notices, [(0, 0)]);
    assert!(
        read.frames[0]
            .iter()
            .all(|frame| frame.key != "message/3/call/2")
    );
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut message = document["messages"][1].clone();
    let parts = message.as_object_mut().unwrap();
    assert_eq!(
        record(&read, 0, "message/2/usage"),
        parts.remove("tokens").unwrap()
    );
    let calls = parts.remove("toolCalls").unwrap();
    for index in [0, 1] {
        let key = format!("message/2/call/{}", index + 1);
        assert_eq!(record(&read, 0, &key), calls[index]);
    }
    assert_eq!(record(&read, 0, "message/2"), message);
}

/// What a document with these messages is read as, at one place.
fn with(copy: &Copy, document: &Value, messages: &[Value]) -> Read {
    let mut document = document.clone();
    document["messages"] = messages.into();
    std::fs::write(&copy.path, document.to_string()).unwrap();
    read(&copy.path)
}

#[test]
fn a_document_that_grows_contradicts_nothing() {
    let path = fixture("gemini/session.json");
    let copy = Copy::of(&path, 0);
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let all = document["messages"].as_array().unwrap().clone();
    let mut versions = Vec::new();
    for count in 1..=all.len() {
        let mut shorter = all[..count].to_vec();
        let calls = shorter[count - 1]["toolCalls"].take();
        let counts = shorter[count - 1]["tokens"].take();
        versions.push(with(&copy, &document, &shorter));
        shorter[count - 1]["tokens"] = counts;
        versions.push(with(&copy, &document, &shorter));
        if let Some(calls) = calls.as_array() {
            let mut running = calls.clone();
            running[0]["status"] = json!("executing");
            shorter[count - 1]["toolCalls"] = running.into();
            versions.push(with(&copy, &document, &shorter));
            shorter[count - 1]["toolCalls"] = calls.clone().into();
            versions.push(with(&copy, &document, &shorter));
        }
    }
    for version in &mut versions {
        // The head is another frame for each version.
        version.frames[0].retain(|frame| !frame.key.starts_with("session/"));
    }
    for pair in versions.windows(2) {
        check_grows(&pair[0], &pair[1]);
    }
}

#[test]
fn recorded_answers_become_results_and_calls() {
    let path = fixture("gemini/answers.responses");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (5, 1));
    let stream = frame(&read, 0, "line/1");
    assert_eq!(payload(stream, "text"), json!("The tide turns."));
    assert_eq!(payload(stream, "thinking"), json!("**Plan**"));
    assert_eq!(stream.body["usage"]["output_tokens"], 7);
    assert_eq!(stream.body["finish_reason"], "STOP");
    let call = frame(&read, 0, "line/1/call/1");
    assert_eq!(payload(call, "arguments"), json!({"file_path": "tide.txt"}));
    assert_eq!(frame(&read, 0, "line/2").body["model"], "gemini-test");
    assert_eq!(frame(&read, 0, "line/3").body["observation"], "token_count");
    assert_eq!(frame(&read, 0, "line/4").body["block_reason"], "SAFETY");
    assert_eq!(frame(&read, 0, "line/5").body["observation"], "unmapped");
}

#[test]
fn sessions_may_grow_and_be_hostile() {
    for name in ["gemini/session.jsonl", "gemini/answers.responses"] {
        lines_grow(&fixture(name));
        hostile(Format::GeminiCli, &fixture(name), true);
    }
    hostile(Format::GeminiCli, &fixture("gemini/session.json"), false);
    let error = Reader::open(
        &fixture("swe/functions.traj"),
        Some(Format::GeminiCli),
        None,
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains("neither a session"), "{error}");
}

#[test]
fn every_shared_session_and_recording_maps() {
    if let Some(folder) = shared("data/agent-sessions/gemini") {
        let documents: Vec<_> = files(&folder, ".json");
        check_files(Format::GeminiCli, &Records::Document, &documents);
        let lines = files(&folder, ".jsonl");
        check_files(Format::GeminiCli, &Records::Lines, &lines);
        lines.iter().for_each(|path| lines_grow(path));
        let drift = folder.join("schema_drift.json");
        let read = read(&drift);
        check_no_string_lost(&drift, &read);
        let kinds = kinds(&read.frames[0]);
        assert_eq!((kinds["turn"], kinds["model_result"]), (1, 1));
    }
    if let Some(folder) = shared("data/gemini-cli-recordings") {
        let paths = files(&folder, ".responses");
        check_files(Format::GeminiCli, &Records::Lines, &paths);
    }
}

#[test]
fn a_result_is_not_read_for_what_only_a_file_or_an_output_says() {
    let call = |name: &str, status: &str, output: &str| {
        json!({"id": name, "name": name, "args": {}, "status": status,
            "result": [{"functionResponse": {"id": name, "name": name, "response": {"output": output}}}]})
    };
    let session = json!({"sessionId": "s", "projectHash": "p", "startTime": "2026-03-07T10:00:00.000Z",
        "lastUpdated": "2026-03-07T10:00:09.000Z", "messages": [
        {"id": "1", "type": "user", "timestamp": "2026-03-07T10:00:00.000Z", "content": "go"},
        {"id": "2", "type": "gemini", "timestamp": "2026-03-07T10:00:01.000Z", "content": "", "toolCalls": [
            call("read_file", "success", "the manual says Exit Code: 7 is rare"),
            call("run_shell_command", "success", "Output: Exit Code: 7\nExit Code: 0\nSignal: (none)"),
            call("grep", "cancelled", "cat: key: Permission denied"),
        ]},
    ]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.json");
    std::fs::write(&path, session.to_string()).unwrap();
    let read = read(&path);
    let result = |call: usize| &frame(&read, 0, &format!("message/2/call/{call}/result")).body;
    assert_eq!(result(1).get("exit"), None);
    assert_eq!(result(2)["exit"], 0);
    assert_eq!(
        (&result(3)["status"], &result(3)["cancelled"]),
        (&json!("error"), &json!(true))
    );
    assert_eq!(kinds(&read.frames[0]).get("decision"), None);
}
