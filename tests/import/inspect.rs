//! Logs of Inspect.

use std::path::{Path, PathBuf};

use onrecord::import::request::{Link, Turn};
use onrecord::import::{Event, Format, Reader, detect};
use serde_json::{Value, json};

use crate::check::{Read, frame, kinds, link, payload, read};
use crate::restore::restored;
use crate::shared::shared;
use crate::{files, fixture};

pub fn log() -> PathBuf {
    fixture("inspect/log.json")
}

/// The samples of a log as they are written, in the order of the runs.
fn written_samples(path: &Path) -> Vec<Value> {
    if path.extension().is_some_and(|ending| ending == "json") {
        let mut log: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let samples = log["samples"].as_array_mut();
        return samples.map(std::mem::take).unwrap_or_default();
    }
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let names: Vec<String> = archive
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    let samples = names.iter().filter(|name| name.starts_with("samples/"));
    samples
        .map(|name| serde_json::from_reader(archive.by_name(name).unwrap()).unwrap())
        .collect()
}

/// What a sample keeps once for all of its events.
const KEPT_ONCE: [&str; 4] = [
    "/attachments",
    "/transcript/content",
    "/message_pool",
    "/call_pool",
];

/// The sample with its attachments and pools put in the places of their references.
fn resolved(mut sample: Value) -> Value {
    let [attachments, content, messages, calls] = KEPT_ONCE.map(|pointer| {
        let slot = sample.pointer_mut(pointer);
        slot.map(Value::take).unwrap_or_default()
    });
    for events in ["/events", "/transcript/events"] {
        let events = sample.pointer_mut(events).and_then(Value::as_array_mut);
        for event in events.into_iter().flatten() {
            if let Some(refs) = event.as_object_mut().unwrap().shift_remove("input_refs") {
                event["input"] = expand(&refs, &messages);
            }
            let call = event.get_mut("call").and_then(Value::as_object_mut);
            if let Some(call) = call
                && let Some(refs) = call.shift_remove("call_refs")
            {
                let key = call.shift_remove("call_key").unwrap();
                call["request"][key.as_str().unwrap()] = expand(&refs, &calls);
            }
        }
    }
    put(&mut sample, &[attachments, content]);
    sample
}

fn expand(ranges: &Value, pool: &Value) -> Value {
    let ranges = ranges.as_array().unwrap().iter();
    let bound = |range: &Value, at: usize| usize::try_from(range[at].as_u64().unwrap()).unwrap();
    let indices = ranges.flat_map(|range| bound(range, 0)..bound(range, 1));
    indices.map(|index| pool[index].clone()).collect()
}

fn put(value: &mut Value, attachments: &[Value; 2]) {
    match value {
        Value::String(text) => {
            let hash = text
                .strip_prefix("attachment://")
                .or(text.strip_prefix("tc://"));
            let found = hash.and_then(|hash| attachments.iter().find_map(|all| all.get(hash)));
            if let Some(found) = found {
                *value = found.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, attachments)),
        Value::Object(members) => members.values_mut().for_each(|item| put(item, attachments)),
        _ => {}
    }
}

/// The record of a sample put together again, and what it keeps once and was not used up.
fn sample_of(read: &Read, thread: usize) -> (Value, Vec<Value>) {
    let mut frames = read.frames[thread].iter();
    let last = frames
        .find(|frame| frame.key.starts_with("sample/"))
        .unwrap();
    let mut sample = restored(read, thread, &last.key, "record");
    let mut left = Vec::new();
    for pointer in KEPT_ONCE {
        if let Some(rest) = sample.pointer_mut(pointer) {
            left.push(rest.take());
        }
    }
    left.retain(|rest| *rest != json!({}) && *rest != json!([]));
    (sample, left)
}

#[test]
fn every_shared_log_maps() {
    let Some(folder) = shared("data/inspect-ai") else {
        return;
    };
    let (mut records, mut unmapped) = (0, 0);
    for path in [files(&folder, ".json"), files(&folder, ".eval")].concat() {
        assert_eq!(
            detect(&path).unwrap(),
            Format::Inspect,
            "{}",
            path.display()
        );
        let read = read(&path);
        let all: Vec<_> = read.frames.iter().flatten().cloned().collect();
        eprintln!("{}: {:?} {:?}", path.display(), read.tally, kinds(&all));
        records += read.tally.records;
        unmapped += read.tally.unmapped;
        for (index, sample) in written_samples(&path).into_iter().enumerate() {
            let (kept, left) = sample_of(&read, index + 1);
            assert_eq!(kept, resolved(sample), "{} {index}", path.display());
            assert_eq!(left, [json!(null); 0]);
        }
    }
    assert!(
        unmapped * 20 <= records,
        "{unmapped} of {records} are unmapped"
    );
}

#[test]
fn a_log_is_a_run_and_each_sample_another() {
    let path = log();
    assert_eq!(detect(&path).unwrap(), Format::Inspect);
    let read = read(&path);
    let keys: Vec<_> = read
        .openings
        .iter()
        .map(|opening| opening.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "import/inspect/E1",
            "import/inspect/E1/sample/nest%2Fepoch%2F1",
            "import/inspect/E1/sample/2%2Fepoch%2F1",
            "import/inspect/E1/sample/3%2Fepoch%2F2",
        ]
    );
    let session = &read.openings[0].session;
    assert_eq!(session["agent_version"], "0.3.200");
    assert_eq!(
        session["pins"],
        json!({
            "model": {"name": "mock/one", "temperature": 0.5},
            "repository": {"remote": "git@example.org:birds.git", "commit": "abc1234", "dirty": true},
            "container": {"type": "docker"}
        })
    );
    assert_eq!(
        read.openings[0].occurred_at.as_deref(),
        Some("2026-04-02T08:00:00.000000Z")
    );
    assert_eq!(read.openings[1].session["sample_id"], "nest");
    assert_eq!(read.openings[1].session["parent_session_id"], "E1");
    let down = &frame(&read, 0, "subagent/nest%2Fepoch%2F1/session").links;
    assert!(
        matches!(down[..], [Link::Thread { thread: 1, .. }]),
        "{down:?}"
    );
    let all = kinds(&read.frames[0]);
    assert_eq!(
        all,
        [("context", 2), ("observation", 7), ("outcome", 1)].into()
    );
    let results = read.frames[0]
        .iter()
        .find(|frame| frame.body.get("metrics").is_some());
    assert_eq!(
        results.unwrap().body["metrics"],
        json!({"count/accuracy": 0.5})
    );
    assert_eq!(
        frame(&read, 0, "outcome/completed").body["status"],
        "completed"
    );
    // Nothing of the samples is lost, and nothing that the log says beside them.
    for (index, sample) in written_samples(&path).into_iter().enumerate() {
        let (kept, left) = sample_of(&read, index + 1);
        assert_eq!(kept, resolved(sample), "{index}");
        let unused = json!({"cc33": "Nobody refers to this."});
        assert_eq!(left, if index == 0 { vec![unused] } else { vec![] });
    }
    let rest = read.frames[0]
        .iter()
        .find(|frame| frame.key.starts_with("log/"))
        .unwrap();
    let rest = restored(&read, 0, &rest.key, "record");
    let mut written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    written["samples"] = json!({"$runs": 3});
    assert_eq!(rest, written);
}

#[test]
fn events_become_calls_results_and_decisions() {
    let read = read(&log());
    let of = |number: usize| frame(&read, 1, &format!("event/{number}"));
    assert_eq!((of(2).kind, of(2).turn), ("turn", Turn::Open));
    assert_eq!(payload(of(2), "prompt"), "How many eggs are in the nest?");
    let request = of(4);
    assert_eq!(
        (request.kind, &request.body["temperature"]),
        ("model_call", &json!(0.5))
    );
    let messages = payload(request, "messages");
    assert_eq!(
        messages[0]["content"],
        "You watch birds, and you answer in as few words as you can."
    );
    assert_eq!(
        payload(request, "tools")[0]["description"],
        "Looks somewhere."
    );
    let answer = frame(&read, 1, "event/4/answer");
    assert_eq!(answer.links, [link("answers", "event/4")]);
    assert_eq!(payload(answer, "text"), "I look into the nest.");
    assert_eq!(payload(answer, "thinking"), "I should look.");
    assert_eq!(answer.body["usage"]["output_tokens"], 5);
    let zone = &answer.body["occurred_at_written"];
    assert_eq!(
        (answer.occurred_at.as_deref(), zone),
        (
            Some("2026-04-02T08:00:04.000000Z"),
            &json!("2026-04-02T10:00:04.000000+02:00")
        )
    );
    // The approvals, and what they let through or not.
    assert_eq!(
        (of(5).kind, &of(5).body["decision"]),
        ("decision", &json!("approval"))
    );
    assert_eq!(of(6).body["decision"], "tool_denied");
    assert_eq!(of(6).links, [link("cancelled", "event/4/call/2")]);
    assert_eq!(of(6).body["speaker"], "user");
    assert_eq!(of(7).links, [link("answers", "event/4/call/1")]);
    assert_eq!(
        (&of(7).body["status"], &of(7).body["duration_ms"]),
        (&json!("ok"), &json!(500))
    );
    // Events within an event are numbered on.
    assert_eq!(
        (of(8).kind, &of(8).body["exit"]),
        ("observation", &json!(0))
    );
    assert_eq!(
        (of(9).kind, &of(9).body["operation"]),
        ("tool_call", &json!("subtask"))
    );
    assert_eq!(of(10).body["source"], "counter");
    assert_eq!(
        frame(&read, 1, "event/9/result").links,
        [link("answers", "event/9")]
    );
    assert_eq!(of(11).body["status"], "denied");
    let lone = frame(&read, 1, "event/12/result");
    assert_eq!(
        (of(12).kind, &lone.body["status"], &lone.body["error_type"]),
        ("tool_call", &json!("error"), &json!("timeout"))
    );
    let file = frame(&read, 1, "event/13/file");
    assert_eq!(
        (&file.body["path"], payload(file, "after")),
        (&json!("/nest/note.txt"), json!("three eggs\n"))
    );
    assert_eq!(
        (of(16).kind, &of(16).body["tokens_after"]),
        ("context", &json!(300))
    );
    assert_eq!(of(19).kind, "snapshot");
    // The second request has only what is new in it.
    assert_eq!(
        payload(of(21), "messages")[0],
        json!({"$frame": "event/4", "$payload": "messages", "$first": 2})
    );
    assert_eq!(payload(of(21), "messages").as_array().unwrap().len(), 3);
    assert!(
        of(21)
            .payloads
            .iter()
            .all(|payload| payload.name != "tools")
    );
    assert_eq!(frame(&read, 1, "event/22/answer").body["status"], "error");
    assert_eq!(of(24).body["value"], "C");
    assert_eq!(of(29).body["observation"], "unmapped");
    assert_eq!(read.tally.unmapped, 2);
}

#[test]
fn a_sample_says_how_it_ended() {
    let read = read(&log());
    let limit = frame(&read, 1, "outcome/failed");
    assert_eq!(limit.body["limit"], "token");
    frame(&read, 2, "outcome/failed");
    assert!(
        !kinds(&read.frames[3]).contains_key("outcome"),
        "nobody says so"
    );
    let scores: Vec<_> = read.frames[1]
        .iter()
        .filter(|frame| frame.key.starts_with("score/"))
        .collect();
    assert_eq!(scores[0].body["value"], "C");
    assert_eq!(
        payload(scores[1], "value"),
        json!({"eggs": 1.0, "nest": 0.5})
    );
    let all = read.frames.iter().flatten();
    assert!(all.clone().all(|frame| frame.kind != "gate_result"));
    let ended = all.filter(|frame| frame.body.get("observation") == Some(&json!("sample")));
    let errors: Vec<_> = ended
        .filter_map(|frame| {
            frame
                .payloads
                .iter()
                .find(|payload| payload.name == "error")
        })
        .collect();
    assert_eq!(errors.len(), 1);
}

#[test]
fn messages_are_mapped_where_there_are_no_events() {
    let read = read(&log());
    let of = |number: usize| frame(&read, 2, &format!("message/{number}"));
    let kinds = [1, 2, 3, 4, 5, 6, 7].map(|number| of(number).kind);
    assert_eq!(
        kinds,
        [
            "context",
            "turn",
            "model_result",
            "tool_result",
            "tool_result",
            "model_result",
            "observation"
        ]
    );
    assert_eq!(of(4).links, [link("answers", "message/3/call/1")]);
    assert_eq!(
        (&of(4).body["status"], &of(5).body["status"]),
        (&json!("ok"), &json!("denied"))
    );
    // The first versions have their events and texts elsewhere, and no event with the prompt.
    assert_eq!(
        payload(frame(&read, 3, "prompt"), "prompt"),
        "Is it spring?"
    );
    assert_eq!(
        frame(&read, 3, "event/1/answer").links,
        [link("answers", "event/1")]
    );
}

#[test]
fn a_log_that_was_edited_is_the_same_run_with_another_score() {
    let folder = tempfile::tempdir().unwrap();
    let mut log: Value = serde_json::from_slice(&std::fs::read(log()).unwrap()).unwrap();
    let path = folder.path().join("log.json");
    std::fs::write(&path, log.to_string()).unwrap();
    let first = read(&path);
    log["samples"][1]["scores"]["count"]["value"] = "C".into();
    log["results"]["scores"][0]["metrics"]["accuracy"]["value"] = 1.0.into();
    std::fs::write(&path, log.to_string()).unwrap();
    let edited = read(&path);
    let mut new = 0;
    for (before, now) in first.frames.iter().zip(&edited.frames) {
        for frame in now {
            match before.iter().find(|earlier| earlier.key == frame.key) {
                Some(earlier) => assert_eq!(format!("{earlier:?}"), format!("{frame:?}")),
                None => new += 1,
            }
        }
    }
    assert_eq!(new, 4, "a score, its sample, the results and the log");
    log["status"] = "started".into();
    std::fs::write(&path, log.to_string()).unwrap();
    assert!(!kinds(&read(&path).frames[0]).contains_key("outcome"));
}

#[test]
fn numbers_that_are_none_are_read_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.json");
    let text = std::fs::read_to_string(log()).unwrap();
    let text = text.replace("\"value\": 0.5", "\"value\": NaN");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(detect(&path).unwrap(), Format::Inspect);
    let read = read(&path);
    let last = read.frames[0]
        .iter()
        .find(|frame| frame.key.starts_with("log/"))
        .unwrap();
    assert_eq!(last.body["refused"], "not_a_number");
    assert_eq!(payload(last, "raw"), json!(text));
    assert_eq!(read.openings.len(), 4);
}

#[test]
fn references_are_resolved_within_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.json");
    let mut log: Value = serde_json::from_slice(&std::fs::read(log()).unwrap()).unwrap();
    let many = vec![json!("attachment://ff00"); 100];
    log["samples"] = json!([{
        "id": 1, "epoch": 1, "attachments": {"ff00": "x".repeat((1 << 20) + 1), "ok": "fine"},
        "message_pool": [{"role": "user", "content": "y".repeat(1 << 20)}],
        "events": [
            {"event": "info", "data": many, "source": "attachment://ok"},
            {"event": "model", "input": [], "input_refs": vec![json!([0, 1]); 100]},
            {"event": "model", "input": [], "input_refs": [[0, 9]]},
            {"event": "model", "input": [], "input_refs": [[5, 2], "x", -1]},
        ]
    }]);
    std::fs::write(&path, log.to_string()).unwrap();
    let read = read(&path);
    let total: usize = read.frames[1]
        .iter()
        .flat_map(|frame| &frame.payloads)
        .map(onrecord::import::payload::Payload::len)
        .sum();
    assert!(total < 40 << 20, "{total} bytes");
    // What was not resolved everywhere is kept.
    let last = read.frames[1]
        .iter()
        .find(|frame| frame.key.starts_with("sample/"));
    let rest = payload(last.unwrap(), "record");
    assert_eq!(
        rest["attachments"],
        json!({"ff00": "x".repeat((1 << 20) + 1)})
    );
    let written = &log["samples"][0];
    assert_eq!(rest["message_pool"], written["message_pool"]);
    let event = payload(frame(&read, 1, "event/2"), "record");
    assert_eq!(event["input_refs"], written["events"][1]["input_refs"]);
}

#[test]
fn odd_samples_are_kept_and_nothing_is_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.json");
    let mut log: Value = serde_json::from_slice(&std::fs::read(log()).unwrap()).unwrap();
    let mut deep = json!({"event": "tool", "events": []});
    for _ in 0..40 {
        deep = json!({"event": "tool", "id": 1, "error": "odd", "events": [deep, "x", null]});
    }
    let odd = json!([
        7, "text", null, [], {},
        {"id": {"a": 1}, "epoch": "x", "events": 3, "messages": 4, "scores": [], "attachments": [], "model_usage": 1},
        {"id": "a".repeat(500), "epoch": 1, "events": [1, null, "s", [], {}, {"event": 5}, {"event": "model"}, {"event": "score"}, {"event": "approval"}, {"event": "sample_init"}, {"event": "sandbox", "file": 1}, {"event": "logger"}, {"event": "subtask"}, deep]},
        {"id": 1, "epoch": 1, "messages": [1, null, {"role": "assistant", "tool_calls": [1, {"id": []}]}, {"role": "tool", "tool_call_id": 4}]},
        {"id": 1, "epoch": 1, "error": null, "limit": "odd", "scores": null, "output": {"choices": []}},
    ]);
    log["samples"] = odd.clone();
    log["results"] = "none".into();
    log["status"] = 3.into();
    std::fs::write(&path, log.to_string()).unwrap();
    let named = Reader::open(&path, None, Some(&"s".repeat(300)));
    let mut events = Vec::new();
    let mut named = named.unwrap();
    while named.step(&mut events).unwrap() {}
    let keys = events.iter().filter_map(|event| match event {
        Event::Open { opening, .. } => Some(opening.key.len()),
        _ => None,
    });
    assert!(keys.max().unwrap() <= 200, "also with long names");
    let read = read(&path);
    assert_eq!(read.openings.len(), 10);
    assert!(
        read.frames
            .iter()
            .flatten()
            .all(|frame| frame.kind != "outcome")
    );
    for (index, written) in odd.as_array().unwrap().iter().enumerate() {
        if written.is_object() {
            let last = read.frames[index + 1]
                .iter()
                .rfind(|frame| frame.key.starts_with("sample/"))
                .unwrap();
            assert_eq!(
                restored(&read, index + 1, &last.key, "record"),
                *written,
                "{index}"
            );
        }
    }
    for text in [
        "{\"version\": 2, \"status\": \"success\", \"eval\": {}}",
        "{\"eval\": {\"task\": \"x\"}}",
        "{",
        "[]",
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(detect(&path).is_err(), "{text}");
        assert!(
            Reader::open(&path, Some(Format::Inspect), None).is_err(),
            "{text}"
        );
    }
}
