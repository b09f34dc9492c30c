//! What OpenHands writes: events, histories, states, completions and evaluations.

use std::path::{Path, PathBuf};

use onrecord::import::request::{Link, Turn};
use onrecord::import::{Format, Reader, detect};
use serde_json::{Value, json};

use crate::check::{
    Read, Records, check_files, check_grows, check_no_string_lost, check_nothing_lost, frame,
    kinds, link, payload, read, record,
};
use crate::fixture;
use crate::restore::restored;
use crate::shared::shared;

fn ours(name: &str) -> PathBuf {
    fixture(&format!("openhands/{name}"))
}

/// Every line of an evaluation's output comes back from the run of its instance.
fn check_output(path: &Path, read: &Read) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut thread = 0;
    for (index, written) in lines.enumerate() {
        let written: Value = written;
        let instance = written["history"].is_array();
        thread += usize::from(instance);
        let of = if instance { thread } else { 0 };
        let key = format!("line/{}", index + 1);
        assert_eq!(restored(read, of, &key, "record"), written, "{key}");
    }
}

#[test]
fn every_shared_file_maps() {
    let Some(folder) = shared("data/openhands") else {
        return;
    };
    let events = [folder.join("events.jsonl")];
    check_files(Format::OpenHands, &Records::Lines, &events);
    let documents = [
        "base_state.json",
        "litellm_proxy__anthropic__claude-sonnet-4-20250514-1757015046.707.json",
        "litellm_proxy__deepseek__deepseek-chat-1757015076.651.json",
        "example_model_output.json",
    ];
    let documents = documents.map(|name| folder.join(name));
    check_files(Format::OpenHands, &Records::Document, &documents);
    let output = folder.join("output.jsonl");
    assert_eq!(detect(&output).unwrap(), Format::OpenHands);
    let read = read(&output);
    eprintln!("{}: {:?}", output.display(), read.tally);
    assert_eq!((read.tally.records, read.tally.unmapped), (225, 0));
    assert_eq!(read.openings.len(), 4);
    check_output(&output, &read);
}

#[test]
fn events_of_the_sdk_become_calls_and_results() {
    let path = ours("events.jsonl");
    assert_eq!(detect(&path).unwrap(), Format::OpenHands);
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!((read.tally.records, read.tally.unmapped), (21, 1));
    let of = |line: usize| frame(&read, 0, &format!("line/{line}"));
    assert_eq!(payload(of(2), "prompt"), "The brake squeaks. Why?");
    assert_eq!((of(2).kind, of(2).turn), ("turn", Turn::Open));
    // Two calls of one answer are two events: the second has the call only.
    assert_eq!(payload(of(3), "text"), "I look at the brake.");
    assert_eq!(of(4).kind, "tool_call");
    assert_eq!(of(4).links, [link("derived_from", "line/3")]);
    assert_eq!(of(5).links, [link("answers", "line/3/call")]);
    assert_eq!(of(5).body["exit"], 0);
    assert_eq!(record(&read, 0, "line/5")["action_id"], "e03");
    let file = frame(&read, 0, "line/6/file");
    assert_eq!(file.body["path"], "/shop/brake.txt");
    assert_eq!(payload(file, "after"), "pad: new\n");
    assert_eq!(of(8).body["status"], "denied");
    let decision = frame(&read, 0, "line/8/decision");
    assert_eq!(decision.links, [link("cancelled", "line/7/call")]);
    assert_eq!(frame(&read, 0, "line/9/call").body["executable"], false);
    assert_eq!(
        (of(10).kind, &of(10).body["status"]),
        ("tool_result", &json!("error"))
    );
    assert_eq!(of(11).body["observation"], "error", "no call waits for it");
    assert_eq!(of(13).body["forgotten"], 2);
    assert_eq!((of(15).kind, of(17).kind), ("tool_call", "tool_result"));
    assert_eq!(of(16).body["observation"], "tool_progress");
    assert_eq!(of(19).body["observation"], "unmapped");
    assert_eq!(
        (of(21).kind, &of(21).body["status"]),
        ("outcome", &json!("completed"))
    );
    // The file names no zone, so that its times are nobody's instants.
    assert_eq!(of(2).occurred_at, None);
    assert_eq!(
        of(2).body["occurred_at_written"],
        "2026-03-01T09:00:02.500000"
    );
}

#[test]
fn actions_and_observations_of_the_server_become_calls_and_results() {
    let path = ours("trajectory.json");
    assert_eq!(detect(&path).unwrap(), Format::OpenHands);
    let read = read(&path);
    let written: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (index, event) in written.iter().enumerate() {
        let key = format!("item/{}", index + 1);
        assert_eq!(restored(&read, 0, &key, "record"), *event, "{key}");
    }
    assert_eq!((read.tally.records, read.tally.unmapped), (18, 1));
    let of = |id: usize| frame(&read, 0, &format!("item/{}", id + 1));
    assert_eq!(read.openings[0].session["agent_version"], "0.40.0");
    assert_eq!((of(2).kind, of(3).kind), ("retrieval", "retrieval"));
    let request = frame(&read, 0, "item/5/request");
    assert_eq!(
        (request.kind, &request.body["model"]),
        ("model_call", &json!("mule-2"))
    );
    assert_eq!(of(4).links, [link("answers", "item/5/request")]);
    assert_eq!(
        of(4).body["usage"],
        json!({"total_tokens": 57, "input_tokens": 50, "output_tokens": 7})
    );
    assert_eq!(
        of(5).kind,
        "tool_call",
        "the second call of the same answer"
    );
    assert_eq!(of(6).links, [link("answers", "item/5/call")]);
    assert_eq!(of(6).body["tool_call_id"], "k1");
    let file = frame(&read, 0, "item/8/file");
    assert_eq!(
        (&file.body["change"], payload(file, "patch")),
        (&json!("create"), json!("+water"))
    );
    assert_eq!(of(7).body["status"], "not stated");
    assert_eq!(of(9).body["status"], "denied");
    assert_eq!(of(11).links, [link("answers", "item/11/call")]);
    assert_eq!(of(12).body["observation"], "error");
    assert_eq!(of(15).body["observation"], "unmapped");
    assert_eq!(
        frame(&read, 0, "item/17/outcome").body["status"],
        "completed"
    );
    assert_eq!(of(17).kind, "observation", "the same end once more");
}

#[test]
fn an_evaluation_is_a_run_that_lists_its_instances() {
    let path = ours("output.jsonl");
    assert_eq!(detect(&path).unwrap(), Format::OpenHands);
    let read = read(&path);
    check_output(&path, &read);
    let keys: Vec<_> = read
        .openings
        .iter()
        .map(|opening| opening.key.as_str())
        .collect();
    let run = "import/openhands/out%2Fgarden-bench%2FCodeActAgent%2Fmule-2_maxiter_30";
    let instances = ["garden-1", "garden-2", "garden-1%2F2"];
    assert_eq!(keys[0], run);
    assert_eq!(
        keys[1..],
        instances.map(|name| format!("{run}/instance/{name}"))
    );
    assert_eq!(
        read.openings[1].session["pins"],
        json!({
            "repository": {"remote": "green/garden", "commit": "9f8e7d6"},
            "model": {"name": "mule-2", "temperature": 0.5}
        })
    );
    assert_eq!(
        read.openings[1].session["parent_session_id"],
        "mule-2_maxiter_30"
    );
    let down = &frame(&read, 0, "subagent/garden-1/session").links;
    assert!(
        matches!(down[..], [Link::Thread { thread: 1, .. }]),
        "{down:?}"
    );
    let up = &frame(&read, 2, "spawned-by/session").links;
    assert!(matches!(up[..], [Link::Thread { thread: 0, .. }]), "{up:?}");
    let first = frame(&read, 1, "line/1");
    assert_eq!(
        (first.kind, &first.body["cost_usd"]),
        ("observation", &json!(0.02))
    );
    assert_eq!(
        frame(&read, 1, "line/1/event/9/outcome").body["status"],
        "completed"
    );
    let score = frame(&read, 1, "line/1/score");
    assert_eq!(
        (&score.body["name"], &score.body["value"]),
        (&json!("resolved"), &json!(true))
    );
    let failed = frame(&read, 2, "line/2");
    assert_eq!(
        (failed.kind, &failed.body["status"]),
        ("outcome", &json!("failed"))
    );
    assert_eq!(
        frame(&read, 2, "line/2/prompt").kind,
        "turn",
        "no event has the prompt"
    );
    assert_eq!(
        frame(&read, 2, "line/2/event/2").links,
        [link("answers", "line/2/event/1/call")]
    );
    assert_eq!(
        kinds(&read.frames[3]).get("outcome"),
        None,
        "nobody says how it ended"
    );
    assert_eq!(frame(&read, 0, "line/4").body["observation"], "unmapped");
}

#[test]
fn a_line_alone_is_an_evaluation_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output.jsonl");
    let text = std::fs::read_to_string(ours("output.jsonl")).unwrap();
    std::fs::write(&path, text.lines().next().unwrap()).unwrap();
    assert_eq!(
        detect(&path).unwrap(),
        Format::OpenHands,
        "and no trajectory with a history"
    );
}

#[test]
fn a_conversation_is_named_by_its_state() {
    let path = ours("shop/base_state.json");
    assert_eq!(detect(&path).unwrap(), Format::OpenHands);
    let read = read(&path);
    assert_eq!(
        read.openings[0].key,
        "import/openhands/5b1c0e4e-0000-4000-8000-000000000001"
    );
    assert_eq!(read.openings[0].payloads[0].name, "cwd");
    assert_eq!(
        frame(&read, 0, "event/3").links,
        [link("answers", "event/2/call")]
    );
    let state = read.frames[0]
        .iter()
        .find(|frame| frame.kind == "snapshot")
        .unwrap();
    assert_eq!(
        (&state.body["model"], &state.body["status"]),
        (&json!("mule-3"), &json!("finished"))
    );
    let outcome = frame(&read, 0, &format!("{}/outcome", state.key));
    assert_eq!(outcome.body["status"], "completed");
    assert_eq!(read.tally.records, 5);
    let event = ours("shop/events/event-00001-e01.json");
    assert_eq!(detect(&event).unwrap(), Format::OpenHands);
    let refused = Reader::open(&event, None, None).err().unwrap().to_string();
    assert!(refused.contains("shop/base_state.json"), "{refused}");
}

#[test]
fn an_older_conversation_is_named_by_its_first_event() {
    let read = read(&ours("garden/events/0.json"));
    assert_eq!(read.openings[0].key, "import/openhands/garden");
    assert_eq!(read.tally.records, 4);
    let refused = Reader::open(&ours("garden/events/2.json"), None, None);
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("events/0.json"), "{refused}");
}

#[test]
fn a_folder_says_what_is_missing_or_torn() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("talk/events");
    std::fs::create_dir_all(&events).unwrap();
    let copy = |from: usize, to: usize| {
        let from = ours(&format!("garden/events/{from}.json"));
        std::fs::copy(from, events.join(format!("{to}.json"))).unwrap();
    };
    copy(0, 0);
    copy(1, 2);
    std::fs::write(events.join("3.json"), "{\"id\": 3,").unwrap();
    std::fs::write(events.join("notes.json"), "{}").unwrap();
    let shorter = read(&events.join("0.json"));
    assert_eq!(
        shorter.notices.len(),
        2,
        "one is missing, and the last is not whole yet"
    );
    assert_eq!(
        (shorter.tally.records, shorter.tally.left_out_bytes),
        (2, 9)
    );
    copy(2, 4);
    let longer = read(&events.join("0.json"));
    assert_eq!((longer.tally.torn, longer.tally.left_out_bytes), (1, 0));
    assert_eq!(
        frame(&longer, 0, "event/3").body["observation"],
        "torn_file"
    );
    assert_eq!(check_grows(&shorter, &longer), 2);
}

#[test]
fn a_completion_is_a_request_and_an_answer() {
    let path = ours("completion.json");
    assert_eq!(detect(&path).unwrap(), Format::OpenHands);
    let read = read(&path);
    check_no_string_lost(&path, &read);
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(restored(&read, 0, "request", "record"), written);
    assert_eq!((read.tally.records, read.tally.unmapped), (7, 1));
    let request = frame(&read, 0, "request");
    assert_eq!(
        (&request.body["temperature"], &request.body["max_tokens"]),
        (&json!(0.2), &json!(900))
    );
    assert_eq!(
        request.occurred_at.as_deref(),
        Some("2026-03-01T09:00:00.250000Z")
    );
    let answer = frame(&read, 0, "response");
    assert_eq!(answer.links, [link("answers", "request")]);
    assert_eq!(
        (&answer.body["latency_ms"], payload(answer, "text")),
        (&json!(1500), json!("In it goes."))
    );
    assert_eq!(
        frame(&read, 0, "message/4").links,
        [link("answers", "message/3/call/1")]
    );
    assert_eq!(
        frame(&read, 0, "message/5").kind,
        "tool_result",
        "told as the user's text"
    );
    assert_eq!(
        frame(&read, 0, "response/call/1").body["tool_call_id"],
        "b2"
    );
}

#[test]
fn predictions_are_kept_as_such() {
    let read = read(&ours("predictions.json"));
    assert_eq!(kinds(&read.frames[0]), [("observation", 2)].into());
    assert_eq!(frame(&read, 0, "item/1").body["instance_id"], "garden-1");
}

#[test]
fn files_that_grow_add_frames_and_change_none() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["events.jsonl", "output.jsonl"];
    let theirs = shared("data/openhands");
    let theirs = theirs
        .iter()
        .flat_map(|folder| names.map(|name| folder.join(name)));
    for file in names.map(ours).into_iter().chain(theirs) {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let path = folder.path().join(file.file_name().unwrap());
        let mut before: Option<Read> = None;
        for end in 1..=lines.len() {
            std::fs::write(&path, lines[..end].concat()).unwrap();
            let now = read(&path);
            if let Some(before) = before {
                assert!(check_grows(&before, &now) > 0);
            }
            before = Some(now);
        }
    }
    let events: Vec<Value> =
        serde_json::from_slice(&std::fs::read(ours("trajectory.json")).unwrap()).unwrap();
    let path = folder.path().join("trajectory.json");
    let write = |end: usize| {
        std::fs::write(&path, json!(events[..end]).to_string()).unwrap();
        read(&path)
    };
    for end in 1..events.len() {
        assert!(check_grows(&write(end), &write(events.len())) > 0);
    }
}

#[test]
fn odd_events_are_kept_and_nothing_is_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.jsonl");
    let first = json!({"id": "e0", "timestamp": "2026-03-01T09:00:00", "source": "user", "kind": "PauseEvent"});
    let odd = [
        json!({"kind": "ActionEvent", "source": 7, "thought": {"a": 1}, "tool_call": [], "llm_response_id": [1]}),
        json!({"kind": "ObservationEvent", "observation": "text", "tool_call_id": {"x": 1}, "source": []}),
        json!({"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"text": ["deep"]}]}}),
        json!({"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": {"finished": true}}),
        json!({"kind": "ACPToolCallEvent", "status": "completed"}),
        json!({"action": "run", "id": "none", "args": [], "tool_call_metadata": {"model_response": 1}}),
        json!({"observation": "run", "cause": 99, "extras": 4, "content": {"a": []}}),
        json!({"observation": {"a": 1}, "action": {"b": 2}}),
        json!({"action": "message"}),
        json!({"kind": 12}),
        json!({}),
    ];
    let lines: Vec<String> = odd.iter().map(Value::to_string).collect();
    std::fs::write(&path, format!("{first}\n{}\n", lines.join("\n"))).unwrap();
    let odd = read(&path);
    check_nothing_lost(&path, &odd);
    assert_eq!(odd.tally.records, 12);
    assert!(!kinds(&odd.frames[0]).contains_key("outcome"));
    let result = frame(&odd, 0, "line/8");
    assert_eq!(
        (&result.body["status"], result.links.len()),
        (&json!("not stated"), 0)
    );

    let other = folder.path().join("other.json");
    for text in [
        "[]",
        "[1, 2]",
        "{\"messages\": []}",
        "[{\"instance_id\": \"x\", \"model_patch\": \"\"}]",
        "",
    ] {
        std::fs::write(&other, text).unwrap();
        assert!(detect(&other).is_err(), "{text}");
        let refused = Reader::open(&other, Some(Format::OpenHands), None);
        assert!(refused.is_err(), "{text}");
    }
}
