//! mini-swe-agent.

use onrecord::import::{Format, ImportError, Reader, detect};
use serde_json::{Value, json};

use crate::check::{
    Records, check_files, check_no_string_lost, frame, kinds, link, payload, read, record,
};
use crate::odd::{check_items_grow, check_odd_items};
use crate::shared::shared;
use crate::{files, fixture};

const LIST: &str = "mini-swe/list.traj.json";
const OBJECT: &str = "mini-swe/object.traj.json";

#[test]
fn a_list_of_messages_becomes_a_task_with_calls_and_results() {
    let path = fixture(LIST);
    let read = read(&path);
    check_no_string_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (8, 0));
    assert_eq!(read.openings[0].key, "import/mini-swe-agent/list");
    assert_eq!(read.openings[0].session["times"], "none");
    let expected = [
        ("context", 2),
        ("model_result", 3),
        ("tool_call", 2),
        ("tool_result", 2),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into());
    let call = frame(&read, 0, "message/3/call/1");
    assert_eq!(payload(call, "arguments"), json!("ls"));
    assert_eq!(call.body.get("tool_call_id"), None, "the file has no ids");
    let result = frame(&read, 0, "message/4");
    assert_eq!(result.links, [link("answers", "message/3/call/1")]);
    assert_eq!(
        (&result.body["status"], &result.body["exit"]),
        (&json!("ok"), &json!(0))
    );
    // The answer before had no command: what the program says to it is the result of nothing.
    assert_eq!(frame(&read, 0, "message/6").kind, "context");
    let last = frame(&read, 0, "message/8");
    assert_eq!(last.body["status"], "not stated");
}

#[test]
fn an_object_says_what_was_run_and_how_it_ended() {
    let path = fixture(OBJECT);
    let read = read(&path);
    check_no_string_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (9, 1));
    let session = &read.openings[0].session;
    assert_eq!(session["agent_version"], "2.0.0");
    assert_eq!(session["pins"]["container"], json!({"image": "till:1"}));
    let call = frame(&read, 0, "message/3/model");
    assert_eq!(call.body["response_id"], "resp_1");
    assert_eq!(call.body["temperature"], 0.0);
    let answer = frame(&read, 0, "message/3");
    assert_eq!(answer.links, [link("answers", "message/3/model")]);
    assert_eq!(
        answer.body["usage"],
        json!({"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.01})
    );
    assert_eq!(
        answer.occurred_at.as_deref(),
        Some("2026-03-05T08:40:02.250000Z")
    );
    let result = frame(&read, 0, "message/4");
    assert_eq!(result.links, [link("answers", "message/3/call/2")]);
    assert_eq!(result.body["exit"], 1);
    let outcome = frame(&read, 0, "outcome");
    assert_eq!(outcome.body["status"], "completed");
    assert_eq!(
        [&outcome.body["cost_usd"], &outcome.body["usage"]],
        [&json!(0.02), &json!({"api_calls": 2})]
    );
}

#[test]
fn every_message_comes_back_from_its_frame() {
    let mut paths = vec![(fixture(LIST), ""), (fixture(OBJECT), "/messages")];
    if let Some(data) = shared("data/mini-swe-agent") {
        paths.extend(files(&data, ".json").into_iter().map(|path| (path, "")));
    }
    for (path, list) in paths {
        let read = read(&path);
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let messages = file.pointer(list).unwrap().as_array().unwrap();
        for (index, message) in messages.iter().enumerate() {
            let key = format!("message/{}", index + 1);
            assert_eq!(&record(&read, 0, &key), message, "{key}");
        }
    }
}

#[test]
fn a_trajectory_that_grew_has_the_frames_that_it_had() {
    check_items_grow(&fixture(LIST), "", 1, |_| ());
    check_items_grow(&fixture(OBJECT), "/messages", 1, |file| {
        let info = file["info"].as_object_mut().unwrap();
        info.remove("exit_status");
        info.remove("submission");
        info["model_stats"] = json!({"instance_cost": 0.01, "api_calls": 1});
    });
}

#[test]
fn how_it_ended_is_said_in_the_formats_words() {
    let written = std::fs::read_to_string(fixture(OBJECT)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (exit, status) in [
        ("Submitted", "completed"),
        ("LimitsExceeded", "failed"),
        ("UserInterruption", "cancelled"),
    ] {
        let path = folder.path().join("x.traj.json");
        let exit = format!("\"exit_status\": \"{exit}\"");
        std::fs::write(
            &path,
            written.replace("\"exit_status\": \"Submitted\"", &exit),
        )
        .unwrap();
        assert_eq!(frame(&read(&path), 0, "outcome").body["status"], status);
    }
}

#[test]
fn whatever_a_member_is_nothing_breaks() {
    check_odd_items(&fixture(LIST), "");
    check_odd_items(&fixture(OBJECT), "/messages");
}

#[test]
fn what_is_no_trajectory_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let refused = |content: &str| {
        std::fs::write(&path, content).unwrap();
        matches!(
            Reader::open(&path, Some(Format::MiniSweAgent), None),
            Err(ImportError::NotThisFormat { .. })
        )
    };
    for content in ["", "[1", "{}", "{\"messages\":{}}", "7"] {
        assert!(refused(content), "{content}");
    }
    let plain =
        "[{\"role\":\"system\",\"content\":\"Help.\"},{\"role\":\"user\",\"content\":\"Hi\"}]";
    std::fs::write(&path, plain).unwrap();
    assert!(!matches!(detect(&path), Ok(Format::MiniSweAgent)));
}

#[test]
fn other_peoples_trajectories_are_mapped() {
    let Some(data) = shared("data/mini-swe-agent") else {
        return;
    };
    let paths = files(&data, ".json");
    check_files(Format::MiniSweAgent, &Records::Document, &paths);
    for path in &paths {
        check_items_grow(path, "", 1, |_| ());
    }
}
