//! What each file becomes, and that nothing of it is lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord::import::payload::{Content, Payload};
use onrecord::import::request::{FrameRequest, Link, Turn};
use onrecord::import::{Event, Format, Opening, Reader, Tally, detect};
use onrecord_core::frame::{Kind, Rel};
use onrecord_core::json::{Limits, canonicalize};
use serde_json::{Value, json};

use crate::shared::shared;
use crate::{SESSION, files, fixture};

/// Everything that a reader answers about a file.
pub struct Read {
    pub openings: Vec<Opening>,
    pub frames: Vec<Vec<FrameRequest>>,
    pub subagents: Vec<(String, Option<String>)>,
    pub notices: Vec<(u64, u64)>,
    pub tally: Tally,
}

pub fn read(path: &Path) -> Read {
    let mut reader = Reader::open(path, None, None).unwrap();
    let mut read = Read {
        openings: Vec::new(),
        frames: Vec::new(),
        subagents: Vec::new(),
        notices: Vec::new(),
        tally: Tally::default(),
    };
    let mut events = Vec::new();
    while reader.step(&mut events).unwrap() {
        for event in events.drain(..) {
            match event {
                Event::Open { thread, opening } => {
                    assert_eq!(thread, read.openings.len(), "threads are opened in order");
                    read.openings.push(opening);
                    read.frames.push(Vec::new());
                }
                Event::Frame { thread, frame } => {
                    let known: Vec<usize> = (0..read.frames.len()).collect();
                    check_links(&frame, thread, &known, &read.frames);
                    read.frames[thread].push(frame);
                }
                Event::Subagent { agent, call } => read.subagents.push((agent, call)),
                Event::Notice(notice) => read.notices.push((notice.line, notice.offset)),
            }
        }
    }
    let (done, total) = reader.progress();
    assert_eq!(done, total);
    read.tally = reader.tally();
    for (opening, frames) in read.openings.iter().zip(&read.frames) {
        check_opening(opening);
        check_frames(frames);
    }
    read
}

/// Links point to frames that were answered before, and only to frames whose receipts are kept.
fn check_links(frame: &FrameRequest, thread: usize, known: &[usize], frames: &[Vec<FrameRequest>]) {
    let find = |thread: usize, key: &str| frames[thread].iter().find(|other| other.key == key);
    for link in &frame.links {
        match link {
            Link::Key { rel, key } => {
                assert!(Rel::from_word(rel).is_some(), "{rel}");
                assert!(
                    find(thread, key).is_some(),
                    "{} links ahead to {key}",
                    frame.key
                );
            }
            Link::Thread { rel, thread, key } => {
                assert!(Rel::from_word(rel).is_some(), "{rel}");
                assert!(known.contains(thread));
                if let Some(key) = key {
                    assert!(
                        find(*thread, key).is_some_and(|other| other.linked_to),
                        "{key}"
                    );
                }
            }
            Link::Frame { .. } => panic!("a reader knows no hashes"),
        }
    }
}

fn check_opening(opening: &Opening) {
    check_key(&opening.key);
    let body = serde_json::to_vec(&opening.session).unwrap();
    canonicalize(&body, Limits::FRAME).unwrap();
    for taken in ["suite", "nonce", "run_no", "ledger"] {
        assert!(
            !opening.session.contains_key(taken),
            "the server adds {taken}"
        );
    }
    assert_eq!(opening.session["order"], "transcript");
    check_payloads(&opening.payloads);
}

fn check_key(key: &str) {
    assert!(key.len() <= 200 && !key.starts_with("onrecord/"), "{key}");
    assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
}

fn check_payloads(payloads: &[Payload]) {
    assert!(payloads.len() <= 64);
    let mut names = HashSet::new();
    for payload in payloads {
        let mut bytes = payload.name.bytes();
        assert!(
            bytes.next().is_some_and(|byte| byte.is_ascii_lowercase()),
            "{}",
            payload.name
        );
        assert!(payload.name.len() <= 64);
        assert!(bytes.all(|byte| byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || b"_.-".contains(&byte)));
        assert!(names.insert(&payload.name), "{} stands twice", payload.name);
        assert!(payload.len() <= 16 * 1024 * 1024);
        if let Content::Json(raw) = &payload.content {
            canonicalize(raw.get().as_bytes(), Limits::PAYLOAD).unwrap();
        }
    }
}

fn check_frames(frames: &[FrameRequest]) {
    let mut keys = HashSet::new();
    for frame in frames {
        check_key(&frame.key);
        assert!(keys.insert(&frame.key), "{} stands twice", frame.key);
        assert!(Kind::from_word(frame.kind).is_some(), "{}", frame.kind);
        assert!(!matches!(
            frame.kind,
            "session" | "turn_end" | "session_end"
        ));
        let mut bare = frame.clone();
        bare.payloads.clear();
        bare.links
            .retain(|link| !matches!(link, Link::Thread { .. }));
        let line = serde_json::to_vec(&bare).unwrap();
        assert!(
            line.len() < 16 * 1024,
            "{} has a body of {} bytes",
            frame.key,
            line.len()
        );
        canonicalize(&line, Limits::FRAME).unwrap();
        check_payloads(&frame.payloads);
        if let Some(at) = &frame.occurred_at {
            at.parse::<onrecord_core::timestamp::Timestamp>().unwrap();
        }
    }
}

fn value_of(payload: &Payload) -> Value {
    match &payload.content {
        Content::Json(raw) => serde_json::from_str(raw.get()).unwrap(),
        Content::Text(text) if payload.media.as_deref() == Some("application/json") => {
            serde_json::from_str(text).unwrap()
        }
        Content::Text(text) => json!(text),
        Content::Bytes(bytes) => json!(STANDARD.encode(bytes)),
    }
}

/// Puts the payloads back where the references are.
fn restore(value: &mut Value, payloads: &HashMap<(String, String), &Payload>) {
    if let Some(name) = value.get("$payload").and_then(Value::as_str) {
        let frame = value["$frame"].as_str().unwrap();
        let payload = payloads[&(frame.to_owned(), name.to_owned())];
        let base64 = value.get("$as") == Some(&json!("base64"));
        assert_eq!(base64, matches!(payload.content, Content::Bytes(_)));
        *value = value_of(payload);
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, payloads)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|item| restore(item, payloads)),
        _ => {}
    }
}

/// Every record of a session comes back from the frames.
fn check_nothing_lost(path: &Path, read: &Read) {
    let frames: Vec<_> = read.frames.iter().flatten().collect();
    let mut payloads = HashMap::new();
    for frame in &frames {
        for payload in &frame.payloads {
            payloads.insert((frame.key.clone(), payload.name.clone()), payload);
        }
    }
    let bytes = std::fs::read(path).unwrap();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let key = format!("line/{}", index + 1);
        let of = |name: &str| payloads.get(&(key.clone(), name.to_owned()));
        if let Some(raw) = of("raw") {
            let kept = match &raw.content {
                Content::Text(text) => text.as_bytes(),
                Content::Bytes(bytes) => bytes,
                Content::Json(_) => panic!("raw is never JSON"),
            };
            assert!(kept == line, "{key} of {}", path.display());
            continue;
        }
        let mut record =
            value_of(of("record").unwrap_or_else(|| panic!("{key} of {}", path.display())));
        restore(&mut record, &payloads);
        let written: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(record, written, "{key} of {}", path.display());
    }
}

fn leaves(value: &Value, out: &mut HashSet<String>) {
    match value {
        Value::String(text) => {
            out.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, out)),
        Value::Object(members) => members.values().for_each(|item| leaves(item, out)),
        _ => {}
    }
}

/// Every string of a trajectory is in some payload or body.
fn check_no_string_lost(path: &Path, read: &Read) {
    let mut kept = HashSet::new();
    for frame in read.frames.iter().flatten() {
        leaves(&Value::Object(frame.body.clone()), &mut kept);
        for payload in &frame.payloads {
            leaves(&value_of(payload), &mut kept);
        }
    }
    let mut written = HashSet::new();
    leaves(
        &serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        &mut written,
    );
    // An answer's role and type are said by its frame's kind.
    for implied in ["assistant", "action"] {
        written.remove(implied);
    }
    for text in written {
        assert!(kept.contains(&text), "{}: {text:?} is lost", path.display());
    }
}

fn kinds(frames: &[FrameRequest]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for frame in frames {
        *kinds.entry(frame.kind).or_default() += 1;
    }
    kinds
}

fn frame<'a>(read: &'a Read, thread: usize, key: &str) -> &'a FrameRequest {
    let found = read.frames[thread].iter().find(|frame| frame.key == key);
    found.unwrap_or_else(|| panic!("no frame {key}"))
}

fn payload(frame: &FrameRequest, name: &str) -> Value {
    let found = frame.payloads.iter().find(|payload| payload.name == name);
    value_of(found.unwrap_or_else(|| panic!("no payload {name} in {}", frame.key)))
}

fn link(rel: &'static str, key: &str) -> Link {
    Link::Key {
        rel,
        key: key.to_owned(),
    }
}

#[test]
fn a_session_becomes_turns_calls_and_results() {
    let path = fixture(SESSION);
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!(
        read.openings[0].key,
        "import/claude-code/5f0c9a52-6d1e-4b7a-9c35-0e8d2a4b6c01"
    );
    assert_eq!(read.openings[0].session["agent_version"], "2.1.40");
    assert_eq!(
        read.openings[0].session["pins"],
        json!({"repository": {"branch": "basket-total"}})
    );
    assert_eq!(
        read.openings[0].occurred_at.as_deref(),
        Some("2026-02-03T09:01:00.250000Z")
    );
    assert_eq!(
        (read.tally.records, read.tally.unmapped, read.tally.torn),
        (37, 1, 0)
    );
    let counted = kinds(&read.frames[0]);
    let expected = [
        ("context", 5),
        ("decision", 1),
        ("file_version", 2),
        ("memory", 1),
        ("model_call", 6),
        ("model_result", 8),
        ("observation", 10),
        ("snapshot", 1),
        ("tool_call", 6),
        ("tool_result", 6),
        ("turn", 3),
    ];
    assert_eq!(counted, BTreeMap::from(expected));
}

#[test]
fn the_parts_of_a_record_stand_in_the_right_places() {
    let read = read(&fixture(SESSION));
    let turn = frame(&read, 0, "line/4");
    assert_eq!((turn.kind, turn.turn), ("turn", Turn::Open));
    assert_eq!(
        payload(turn, "prompt"),
        json!("The basket total is off by one cent. Please fix it.")
    );
    assert_eq!(
        frame(&read, 0, "line/3").turn,
        Turn::Run,
        "before the first prompt there is no turn"
    );
    // One message of the model over three records answers one call.
    for line in [5, 6, 7] {
        assert_eq!(
            frame(&read, 0, &format!("line/{line}")).links,
            [link("answers", "line/5/call")]
        );
    }
    let usage = &frame(&read, 0, "line/5").body["usage"];
    assert_eq!(usage["output_tokens"], 96);
    let call = frame(&read, 0, "line/7/call/1");
    assert_eq!(
        payload(call, "arguments"),
        json!({"command": "make test", "timeout": 60000})
    );
    let result = frame(&read, 0, "line/8");
    assert_eq!(result.links, [link("answers", "line/7/call/1")]);
    assert_eq!(
        (&result.body["status"], &result.body["exit"]),
        (&json!("error"), &json!(2))
    );
    let versions = [
        frame(&read, 0, "line/10/file"),
        frame(&read, 0, "line/12/file"),
    ];
    assert_eq!(versions[0].body["path"], "/home/mara/shop/basket.c");
    assert_eq!(
        payload(versions[0], "before"),
        json!("sum += round(line);\n")
    );
    assert_eq!(
        payload(versions[1], "after"),
        json!("sum += line;\nreturn round(sum);\n")
    );
    assert_eq!(
        versions[1].links,
        [
            link("derived_from", "line/12"),
            link("replaced", "line/10/file")
        ]
    );
    let refusal = read.frames[0]
        .iter()
        .find(|frame| frame.kind == "decision")
        .unwrap();
    assert_eq!(refusal.links, [link("cancelled", "line/21/call/1")]);
    assert_eq!(frame(&read, 0, "line/22").body["status"], "denied");
    let picture = frame(&read, 0, "line/24");
    assert_eq!(picture.payloads[1].media.as_deref(), Some("image/png"));
    assert_eq!(
        picture.occurred_at.as_deref(),
        Some("2026-02-03T10:00:00.000000Z")
    );
    assert_eq!(
        picture.body["occurred_at_written"],
        "2026-02-03T11:00:00+01:00"
    );
    assert_eq!(frame(&read, 0, "line/37").body["observation"], "unmapped");
}

#[test]
fn a_subagent_between_the_records_is_a_run_of_its_own_linked_both_ways() {
    let read = read(&fixture(SESSION));
    assert_eq!(read.openings.len(), 2);
    assert!(
        read.openings[1].key.ends_with("/sidechain/line/14"),
        "{}",
        read.openings[1].key
    );
    let call = "line/13/call/1";
    assert_eq!(
        read.frames[1][0].links,
        [Link::Thread {
            rel: "derived_from",
            thread: 0,
            key: Some(call.to_owned())
        }]
    );
    let pointer = read.frames[0]
        .iter()
        .find(|frame| frame.key.starts_with("subagent/"))
        .unwrap();
    assert_eq!(
        pointer.links,
        [
            Link::Thread {
                rel: "caused",
                thread: 1,
                key: None
            },
            link("derived_from", call)
        ]
    );
    let kinds: Vec<_> = read.frames[1].iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds[1..4], ["turn", "model_call", "model_result"]);
    assert_eq!(
        read.subagents,
        [("a51f0e2".to_owned(), Some("line/19/call/1".to_owned()))]
    );
}

#[test]
fn trajectories_of_three_generations_become_steps() {
    for (name, unmapped, expected) in [
        (
            "text-actions",
            0,
            vec![
                ("context", 2),
                ("model_call", 3),
                ("model_result", 3),
                ("outcome", 1),
                ("tool_call", 3),
                ("tool_result", 3),
                ("turn", 1),
            ],
        ),
        (
            "functions",
            0,
            vec![
                ("context", 1),
                ("model_call", 3),
                ("model_result", 3),
                ("outcome", 1),
                ("tool_call", 3),
                ("tool_result", 3),
                ("turn", 1),
            ],
        ),
        (
            "history-only",
            1,
            vec![
                ("context", 1),
                ("model_result", 2),
                ("observation", 2),
                ("tool_call", 2),
                ("tool_result", 2),
                ("turn", 1),
            ],
        ),
    ] {
        let path = fixture(&format!("swe/{name}.traj"));
        let read = read(&path);
        check_no_string_lost(&path, &read);
        assert_eq!(
            kinds(&read.frames[0]),
            expected.into_iter().collect(),
            "{name}"
        );
        assert_eq!(read.tally.unmapped, unmapped, "{name}");
        assert_eq!(read.openings[0].key, format!("import/swe-agent/{name}"));
    }
    let functions = read(&fixture("swe/functions.traj"));
    assert_eq!(
        functions.openings[0].session["pins"]["model"]["name"],
        "gpt-test"
    );
    let call = frame(&functions, 0, "step/2/call/1");
    assert_eq!(
        payload(call, "arguments"),
        json!("{\"command\": \"sed -i s/helo/hello/ hello.sh\"}")
    );
    assert_eq!(
        frame(&functions, 0, "step/2/result").links,
        [link("answers", "step/2/call/1")]
    );
    assert_eq!(
        frame(&functions, 0, "outcome").body["status"],
        "failed",
        "a limit ended it"
    );
    let text = read(&fixture("swe/text-actions.traj"));
    assert_eq!(frame(&text, 0, "outcome").body["status"], "completed");
    assert_eq!(
        payload(frame(&text, 0, "step/1/result"), "result"),
        json!("echo \"helo\"\n")
    );
    let alone = read(&fixture("swe/history-only.traj"));
    assert_eq!(
        frame(&alone, 0, "history/4").links,
        [link("answers", "history/3/call/1")]
    );
}

#[test]
fn formats_are_told_by_content_and_others_are_refused() {
    assert_eq!(detect(&fixture(SESSION)).unwrap(), Format::ClaudeCode);
    assert_eq!(
        detect(&fixture("swe/functions.traj")).unwrap(),
        Format::SweAgent
    );
    let error = detect(&fixture("not-a-transcript.json"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("claude-code, swe-agent"), "{error}");
    assert!(
        detect(&fixture("no-such-file"))
            .unwrap_err()
            .to_string()
            .contains("no-such-file")
    );
    assert!(
        detect(&fixture("claude"))
            .unwrap_err()
            .to_string()
            .contains("folder")
    );
}

#[test]
fn every_shared_session_maps() {
    let (mut records, mut unmapped) = (0, 0);
    for folder in [
        "agent-sessions/claude",
        "agentsview/claude",
        "claude-code-log",
        "claude-code-transcripts",
    ] {
        let Some(folder) = shared(&format!("data/{folder}")) else {
            return;
        };
        for path in files(&folder, ".jsonl") {
            assert_eq!(
                detect(&path).unwrap(),
                Format::ClaudeCode,
                "{}",
                path.display()
            );
            let read = read(&path);
            check_nothing_lost(&path, &read);
            eprintln!("{}: {:?}", path.display(), read.tally);
            records += read.tally.records;
            unmapped += read.tally.unmapped;
        }
    }
    assert!(
        records > 100 && unmapped * 20 <= records,
        "{unmapped} of {records} are unmapped"
    );
}

#[test]
fn every_shared_trajectory_maps() {
    let Some(folder) = shared("data/swe-agent") else {
        return;
    };
    let (mut records, mut unmapped) = (0, 0);
    for path in files(&folder, ".traj") {
        assert_eq!(
            detect(&path).unwrap(),
            Format::SweAgent,
            "{}",
            path.display()
        );
        let read = read(&path);
        check_no_string_lost(&path, &read);
        eprintln!(
            "{}: {:?} {:?}",
            path.display(),
            read.tally,
            kinds(&read.frames[0])
        );
        records += read.tally.records;
        unmapped += read.tally.unmapped;
    }
    assert!(
        records > 100 && unmapped * 20 <= records,
        "{unmapped} of {records} are unmapped"
    );
}
