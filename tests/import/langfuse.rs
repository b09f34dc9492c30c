//! Traces of Langfuse.

use std::path::Path;

use onrecord::import::request::Turn;
use onrecord::import::{Format, Reader, detect};
use serde_json::{Value, json};

use crate::check::{
    Read, Records, check_files, check_grows, check_no_string_lost, check_wrong_types, frame, kinds,
    link, payload, read, record,
};
use crate::shared::shared;
use crate::{files, fixture};

const GARDEN: &str = "langfuse/garden.trace.json";

fn written(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Every observation comes back from the frames, and the trace with them.
fn check_restores(path: &Path, read: &Read) {
    let file = written(path);
    let frames = &read.frames[0];
    for (index, observation) in file["observations"].as_array().unwrap().iter().enumerate() {
        let found = frames.iter().any(|frame| {
            frame
                .payloads
                .iter()
                .any(|payload| payload.name == "record")
                && record(read, 0, &frame.key) == *observation
        });
        assert!(found, "{}: observation {index}", path.display());
    }
    let last = frames.last().unwrap();
    assert_eq!(last.body["observation"], "trace");
    let mut rest = record(read, 0, &last.key);
    let mut whole = file.clone();
    rest["observations"] = Value::Null;
    whole["observations"] = Value::Null;
    for (path, kind) in [("scores", "score"), ("corrections", "correction")] {
        let nested = whole.get("trace").is_some();
        let trace = if nested {
            &mut rest["trace"]
        } else {
            &mut rest
        };
        if trace[path] == json!({"$frames": kind}) {
            trace[path] = file.get("trace").unwrap_or(&file)[path].clone();
        }
    }
    assert_eq!(rest, whole, "{}", path.display());
}

#[test]
fn a_trace_becomes_frames_in_the_order_of_its_times() {
    let path = fixture(GARDEN);
    let read = read(&path);
    check_restores(&path, &read);
    check_no_string_lost(&path, &read);
    let opening = &read.openings[0];
    assert_eq!(opening.key, "import/langfuse/trace-7c1");
    assert_eq!(
        Value::Object(opening.session.clone()),
        json!({
            "agent": "garden help",
            "session_id": "trace-7c1",
            "imported": {"format": "langfuse", "importer": onrecord::import::MAPPING},
            "order": "time",
            "times": "writer",
            "agent_version": "1.4.0",
            "release": "r12",
            "environment": "test",
            "project_id": "project-1",
            "conversation_id": "garden-session-3",
        })
    );
    assert_eq!(opening.payloads[0].name, "user");
    assert_eq!((read.tally.records, read.tally.unmapped), (17, 1));
    let order: Vec<_> = read.frames[0]
        .iter()
        .map(|frame| frame.key.as_str())
        .collect();
    let expected = [
        "input",
        "observation/whole",
        "observation/agent",
        "observation/gen-1",
        "observation/gen-1/end",
        "observation/tool-1",
        "observation/tool-1/end",
        "observation/ret-1",
        "observation/emb-1",
        "observation/emb-1/end",
        "observation/ret-1/end",
        "observation/guard",
        "observation/guard/end",
        "observation/eval",
        "observation/eval/end",
        "observation/chain",
        "observation/chain/end",
        "observation/seen",
        "observation/late",
        "observation/odd",
        "observation/odd/end",
        "observation/elsewhere",
        "observation/elsewhere/end",
        "observation/agent/end",
        "observation/whole/end",
    ];
    assert_eq!(order[..expected.len()], expected);
    let rest: Vec<_> = order[expected.len()..]
        .iter()
        .map(|key| key.rsplit_once('/').unwrap().0)
        .collect();
    let expected = [
        "observation/late/unfinished",
        "score/score-1",
        "score/score-2",
        "correction/fix-1",
        "trace",
    ];
    assert_eq!(rest, expected);
    assert_eq!(
        kinds(&read.frames[0]),
        [
            ("decision", 1),
            ("model_call", 3),
            ("model_result", 2),
            ("observation", 19),
            ("retrieval", 2),
            ("tool_call", 1),
            ("tool_result", 1),
            ("turn", 1),
        ]
        .into_iter()
        .collect()
    );
}

#[test]
fn the_parts_of_an_observation_stand_in_the_right_places() {
    let read = read(&fixture(GARDEN));
    let turn = frame(&read, 0, "input");
    assert_eq!((turn.kind, turn.turn), ("turn", Turn::Open));
    assert_eq!(payload(turn, "prompt"), json!("\"When do I plant beans?\""));
    let call = frame(&read, 0, "observation/gen-1");
    assert_eq!(call.links, [link("derived_from", "observation/agent")]);
    assert_eq!(
        call.occurred_at.as_deref(),
        Some("2026-03-02T08:00:01.000000Z")
    );
    for (member, value) in [
        ("model", json!("model-a")),
        ("temperature", json!(0.5)),
        ("prompt_name", json!("gardener")),
        ("prompt_version", json!(3)),
        ("revision", json!("not_identifiable")),
    ] {
        assert_eq!(call.body[member], value, "{member}");
    }
    // Parameters may hold instructions, which are content.
    assert!(call.body.get("instructions").is_none());
    assert_eq!(
        payload(call, "parameters")["instructions"],
        "Be kind to gardeners."
    );
    assert_eq!(
        payload(call, "messages"),
        json!("[{\"role\":\"user\",\"content\":\"When do I plant beans?\"}]")
    );
    let answer = frame(&read, 0, "observation/gen-1/end");
    assert_eq!(
        (answer.kind, &answer.links),
        ("model_result", &vec![link("answers", "observation/gen-1")])
    );
    assert_eq!(
        answer.body["usage"],
        json!({"input_tokens": 12, "output_tokens": 7, "total_tokens": 19, "cache_read_input_tokens": 4, "cost_usd": 0.00002})
    );
    assert_eq!(
        (&answer.body["latency_ms"], &answer.body["first_token_ms"]),
        (&json!(2000), &json!(250))
    );
    let result = frame(&read, 0, "observation/tool-1/end");
    assert_eq!(
        (result.kind, &result.body["status"]),
        ("tool_result", &json!("error"))
    );
    assert_eq!(
        payload(result, "status_message"),
        "the almanac is out of print"
    );
    assert_eq!(result.links, [link("answers", "observation/tool-1")]);
    let decision = frame(&read, 0, "observation/guard/end");
    assert_eq!(
        (decision.kind, &decision.body["decision"]),
        ("decision", &json!("guardrail"))
    );
    assert_eq!(
        payload(frame(&read, 0, "observation/ret-1/end"), "chunks"),
        "[\"Beans fear frost.\"]"
    );
    // Its parent is in another service: named, not linked.
    let elsewhere = frame(&read, 0, "observation/elsewhere");
    assert!(elsewhere.links.is_empty());
    assert_eq!(elsewhere.body["parent_observation_id"], "not-in-this-file");
    let score = read.frames[0]
        .iter()
        .find(|frame| frame.key.starts_with("score/score-1/"))
        .unwrap();
    assert_eq!((&score.body["value"], score.turn), (&json!(0.9), Turn::Run));
    assert_eq!(score.links, [link("derived_from", "observation/gen-1")]);
    assert_eq!(payload(score, "comment"), "It helped.");
    // Nobody says that a tool's call went well.
    assert_eq!(
        frame(&read, 0, "observation/odd/end").body["observation"],
        "unmapped"
    );
}

#[test]
fn a_trace_with_everything_wrong_is_read_all_the_same() {
    let path = fixture("langfuse/flat.json");
    let read = read(&path);
    check_restores(&path, &read);
    assert_eq!(read.openings[0].key, "import/langfuse/trace%2F%C3%9F%202");
    assert_eq!(read.openings[0].session["agent"], "langfuse");
    assert!(read.openings[0].payloads.is_empty());
    // The trace, five observations, and a score that is no object.
    assert_eq!((read.tally.records, read.tally.unmapped), (7, 1));
    // Two are each other's parent: the circle is cut, and the second of one name goes by its place.
    assert!(frame(&read, 0, "observation/b").links.is_empty());
    assert_eq!(
        frame(&read, 0, "observation/same").links,
        [link("derived_from", "observation/b")]
    );
    assert_eq!(
        frame(&read, 0, "item/2").links,
        [link("derived_from", "observation/same")]
    );
    assert!(frame(&read, 0, "observation/self").links.is_empty());
    let call = frame(&read, 0, "observation/self");
    assert_eq!((call.kind, call.body.get("name")), ("tool_call", None));
    let answer = frame(&read, 0, "item/5/end");
    assert_eq!(
        answer.body["usage"],
        json!({"input_tokens": 3, "output": "many", "unit": "TOKENS"})
    );
    assert_eq!(
        (answer.body.get("status"), answer.body.get("latency_ms")),
        (None, None)
    );
}

#[test]
fn other_objects_are_refused_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.json");
    for (text, why) in [
        (
            r#"{"trace":{"id":"x","timestamp":"2026-01-01T00:00:00Z"}}"#,
            "`observations` is no list",
        ),
        (r#"{"observations":{}}"#, "`observations` is no list"),
        (
            r#"{"trace":{"timestamp":"2026-01-01T00:00:00Z"},"observations":[]}"#,
            "no `id`",
        ),
        (r#"{"trace":{"id":7},"observations":[]}"#, "no `id`"),
        ("[]", "not an object"),
        ("", "empty"),
        ("{\"trace\":", "not JSON"),
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(
            detect(&path).map_or(true, |format| format != Format::Langfuse),
            "{text}"
        );
        let error = Reader::open(&path, Some(Format::Langfuse), None)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    // Lists of observations that are not Langfuse's.
    std::fs::write(
        &path,
        r#"{"id":"x","timestamp":"y","observations":["dry","hot"]}"#,
    )
    .unwrap();
    assert!(detect(&path).is_err());
}

#[test]
fn any_member_may_be_of_any_type() {
    check_wrong_types(Format::Langfuse, &fixture(GARDEN));
    check_wrong_types(Format::Langfuse, &fixture("langfuse/flat.json"));
}

/// What an export at this moment would have said: observations that had begun, those that had not
/// ended without their end.
fn at(file: &Value, moment: &str) -> Value {
    let before = |value: &Value| value.as_str().is_some_and(|time| time <= moment);
    let mut file = file.clone();
    let observations = file["observations"].as_array_mut().unwrap();
    // Whatever the clocks say, a whole is there before its parts.
    let mut there: Vec<Value> = Vec::new();
    for observation in observations.iter().filter(|one| before(&one["startTime"])) {
        let mut next = Some(observation);
        while let Some(one) = next {
            there.push(one["id"].clone());
            next = observations
                .iter()
                .find(|other| other["id"] == one["parentObservationId"]);
        }
    }
    observations.retain(|observation| there.contains(&observation["id"]));
    for observation in observations
        .iter_mut()
        .filter(|one| one["type"] != "EVENT" && !before(&one["endTime"]))
    {
        for (member, value) in [
            ("endTime", json!(null)),
            ("output", json!(null)),
            ("latency", json!(null)),
            ("usageDetails", json!({})),
            ("level", json!("DEFAULT")),
        ] {
            observation[member] = value;
        }
    }
    file["trace"]["updatedAt"] = json!(moment);
    file["trace"]["output"] = json!(null);
    file["trace"]["scores"] = json!([]);
    file
}

fn check_growth(path: &Path) {
    let file = written(path);
    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("earlier.json");
    let whole = read(path);
    let all = file["observations"].as_array().unwrap();
    for observation in all {
        for member in ["startTime", "endTime"] {
            let Some(moment) = observation[member].as_str() else {
                continue;
            };
            let cut = at(&file, moment);
            std::fs::write(&earlier, cut.to_string()).unwrap();
            let mut shorter = read(&earlier);
            // What the trace said then, and what had not ended, stays as a frame of its own.
            shorter.frames[0].retain(|frame| {
                let passing = frame.key.contains("/unfinished/") || frame.key.starts_with("trace/");
                assert!(
                    !passing
                        || whole.frames[0]
                            .iter()
                            .all(|other| other.key != frame.key || other.key.contains("late"))
                );
                !passing
            });
            check_grows(&shorter, &whole);
        }
    }
}

#[test]
fn a_later_export_of_a_running_trace_adds_to_it() {
    check_growth(&fixture(GARDEN));
}

#[test]
fn every_shared_trace_maps() {
    let Some(folder) = shared("data/langfuse-framework-traces") else {
        return;
    };
    let paths = files(&folder, ".trace.json");
    check_files(Format::Langfuse, &Records::Document, &paths);
    for path in &paths {
        check_restores(path, &read(path));
        check_growth(path);
    }
}
