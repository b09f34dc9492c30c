//! Sessions of OpenCode: folders of small files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use onrecord::import::child::is_child_file;
use onrecord::import::{Format, Reader, detect};
use serde_json::{Value, json};

use crate::check::{Read, check_grows, frame, kinds, link, payload, read, record, value_of};
use crate::shared::shared;
use crate::steady::{Copy, survives, variants};
use crate::{files, fixture};

const SESSION: &str = "opencode/storage/session/proj1/ses_71c0a9f4e001.json";

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Changes a file of a session's folder.
fn change(copy: &Copy, file: &str, by: impl FnOnce(&mut Value)) {
    let path = root(&copy.path).join(file);
    let mut value = json_of(&path);
    by(&mut value);
    std::fs::write(&path, value.to_string()).unwrap();
}

fn root(session: &Path) -> PathBuf {
    session.ancestors().nth(3).unwrap().to_owned()
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

/// Every string of these files is in some payload or body.
fn check_files_kept(read: &Read, files: &[PathBuf]) {
    let mut kept = HashSet::new();
    for frame in read.frames.iter().flatten() {
        leaves(&Value::Object(frame.body.clone()), &mut kept);
        let payloads = frame.payloads.iter();
        payloads.for_each(|payload| leaves(&value_of(payload), &mut kept));
    }
    for file in files {
        let mut written = HashSet::new();
        leaves(&json_of(file), &mut written);
        for text in written {
            assert!(kept.contains(&text), "{}: {text:?} is lost", file.display());
        }
    }
}

#[test]
fn messages_and_parts_become_turns_answers_and_calls() {
    let path = fixture(SESSION);
    let read = read(&path);
    assert_eq!(read.openings[0].key, "import/opencode/ses_71c0a9f4e001");
    assert_eq!(read.openings[0].session["agent_version"], "1.2.3");
    let expected = [
        ("context", 3),
        ("decision", 2),
        ("file_version", 2),
        ("model_result", 3),
        ("observation", 5),
        ("snapshot", 1),
        ("tool_call", 5),
        ("tool_result", 5),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    assert_eq!((read.tally.records, read.tally.unmapped), (26, 1));
    let turn = frame(&read, 0, "message/msg_001");
    assert_eq!(payload(turn, "prompt"), json!("Turn the mill stones."));
    assert_eq!(payload(turn, "synthetic"), json!("Called the Read tool."));
    // A message of two steps is two answers, each with its counts.
    let steps = ["message/msg_002", "message/msg_002/prt_110"];
    let [first, second] = steps.map(|key| frame(&read, 0, key));
    assert_eq!(payload(first, "thinking"), json!("Look before turning."));
    assert_eq!(payload(second, "text"), json!("They are by the river."));
    assert_eq!(first.body["usage"]["cost_usd"], 0.01);
    assert_eq!(second.body["finish_reason"], "stop");
    let result = frame(&read, 0, "message/msg_002/prt_104/result");
    assert_eq!(result.links, [link("answers", "message/msg_002/prt_104")]);
    assert_eq!(
        (&result.body["exit"], &result.body["duration_ms"]),
        (&json!(1), &json!(100))
    );
    let version = frame(&read, 0, "message/msg_002/prt_105/file");
    assert_eq!(payload(version, "before"), json!("1\n"));
    let denied = frame(&read, 0, "message/msg_002/prt_106/decision");
    assert_eq!(denied.links, [link("cancelled", "message/msg_002/prt_106")]);
    let agreed = frame(&read, 0, "message/msg_002/prt_107a/decision");
    assert_eq!(agreed.body["decision"], "approval");
    let patch = frame(&read, 0, "message/msg_002/prt_109/file/1");
    let before = "message/msg_002/prt_105/file";
    assert!(patch.links.contains(&link("replaced", before)));
    assert_eq!(
        frame(&read, 0, "message/msg_003").body["action"],
        "compacted"
    );
    let summary = frame(&read, 0, "message/msg_004");
    assert_eq!(
        (summary.kind, &summary.body["action"]),
        ("context", &json!("compact_summary"))
    );
    let stopped = frame(&read, 0, "message/msg_005/error");
    assert_eq!(stopped.body["observation"], "interrupted");
}

#[test]
fn nothing_is_lost_but_what_is_still_being_written() {
    let path = fixture(SESSION);
    let read = read(&path);
    let all = files(&root(&path), ".json");
    let growing = |file: &PathBuf| {
        let name = file.to_string_lossy();
        name.contains("msg_006") || name.contains("_101/") || name.contains("e002")
    };
    let done: Vec<_> = all.into_iter().filter(|file| !growing(file)).collect();
    check_files_kept(&read, &done);
    // A record comes back from its frames.
    let part = root(&path).join("part/msg_002/prt_105.json");
    assert_eq!(record(&read, 0, "message/msg_002/prt_105"), json_of(&part));
    assert!(read.tally.left_out_bytes > 0);
    assert_eq!(read.notices, [(0, 0)]);
}

#[test]
fn a_child_is_named_by_its_call_and_names_its_parent() {
    let parent = read(&fixture(SESSION));
    let call = "message/msg_002/prt_107";
    let child = "ses_71c0a9f4e002".to_owned();
    assert_eq!(parent.children, [(child, Some(call.to_owned()))]);
    assert!(frame(&parent, 0, call).linked_to);
    let child = read(&fixture(
        "opencode/storage/session/proj1/ses_71c0a9f4e002.json",
    ));
    let session = &child.openings[0].session;
    assert_eq!(session["parent_session_id"], "ses_71c0a9f4e001");
    // Of files named together the parent's comes first, whatever their names: its run is linked to.
    let folder = fixture("opencode/storage/session/proj1");
    let is_child = |name: &str| is_child_file(&folder.join(name));
    assert!(is_child("ses_71c0a9f4e002.json") && !is_child("ses_71c0a9f4e001.json"));
}

#[test]
fn a_session_that_goes_on_contradicts_nothing() {
    let copy = Copy::of(&fixture(SESSION), 3);
    let message = |name: &str| root(&copy.path).join(format!("message/ses_71c0a9f4e001/{name}"));
    let mut versions = vec![read(&copy.path)];
    // What OpenCode changes later: titles, summaries of messages, outputs that it no longer sends.
    change(&copy, "session/proj1/ses_71c0a9f4e001.json", |own| {
        own["title"] = json!("Mill");
        own["time"]["updated"] = json!(1_772_870_499_000_u64);
    });
    change(&copy, "message/ses_71c0a9f4e001/msg_003.json", |info| {
        info["summary"] = json!({"title": "Later", "diffs": []});
    });
    change(&copy, "part/msg_002/prt_105.json", |part| {
        part["state"]["time"]["compacted"] = json!(1_772_870_499_000_u64);
    });
    versions.push(read(&copy.path));
    // The message that was being written is complete, and a prompt follows.
    change(&copy, "part/msg_006/prt_117.json", |part| {
        part["text"] = json!("Now I turn them.");
    });
    std::fs::write(message("msg_007.json"), r#"{"id":"msg_007","sessionID":"ses_71c0a9f4e001","role":"user","time":{"created":1772870407000}}"#).unwrap();
    versions.push(read(&copy.path));
    assert!(
        versions[2].frames[0]
            .iter()
            .all(|frame| frame.key != "message/msg_007")
    );
    change(&copy, "message/ses_71c0a9f4e001/msg_006.json", |info| {
        info["time"]["completed"] = json!(1_772_870_406_900_u64);
    });
    versions.push(read(&copy.path));
    assert_eq!(versions[3].tally.left_out_bytes, 0);
    let answer = frame(&versions[3], 0, "message/msg_006");
    assert_eq!(payload(answer, "text"), json!("Now I turn them."));
    for version in &mut versions {
        version.frames[0].retain(|frame| !frame.key.starts_with("session/"));
    }
    for pair in versions.windows(2) {
        check_grows(&pair[0], &pair[1]);
    }
}

#[test]
fn a_torn_file_is_left_if_it_may_be_complete_later_and_kept_raw_if_not() {
    let copy = Copy::of(&fixture(SESSION), 3);
    let file = root(&copy.path).join("part/msg_001/prt_001.json");
    std::fs::write(&file, "{\"id\":\"prt").unwrap();
    let torn = read(&copy.path);
    assert_eq!(torn.tally.torn, 1);
    let raw = frame(&torn, 0, "message/msg_001/prt_001");
    assert_eq!(payload(raw, "raw"), json!("{\"id\":\"prt"));
    let file = root(&copy.path).join("message/ses_71c0a9f4e001/msg_006.json");
    std::fs::write(&file, "{").unwrap();
    let left = read(&copy.path);
    assert_eq!((left.tally.torn, left.tally.left_out_bytes), (1, 1));
}

#[test]
fn another_file_of_the_folder_is_refused_with_the_one_to_name() {
    for file in [
        "message/ses_71c0a9f4e001/msg_001.json",
        "part/msg_001/prt_001.json",
    ] {
        let path = fixture("opencode/storage").join(file);
        assert_eq!(detect(&path).unwrap(), Format::OpenCode);
        let error = Reader::open(&path, None, None).err().unwrap().to_string();
        assert!(error.contains("name `session/PROJECT/ses_"), "{error}");
    }
}

#[test]
fn hostile_files_are_survived() {
    let copy = Copy::of(&fixture(SESSION), 3);
    for path in files(&root(&copy.path), ".json") {
        let whole = std::fs::read(&path).unwrap();
        for changed in variants(&serde_json::from_slice(&whole).unwrap()) {
            std::fs::write(&path, changed.to_string()).unwrap();
            survives(Format::OpenCode, &copy.path);
        }
        std::fs::write(&path, whole).unwrap();
    }
}

#[test]
fn every_shared_session_maps() {
    let Some(folder) = shared("data/agent-sessions/opencode") else {
        return;
    };
    let (mut records, mut unmapped) = (0, 0);
    for storage in ["storage_v2", "storage_legacy"] {
        let root = folder.join(storage);
        let sessions = files(&root.join("session"), ".json");
        let mut frames = Vec::new();
        let mut whole = Vec::new();
        for session in &sessions {
            assert_eq!(detect(session).unwrap(), Format::OpenCode);
            let read = read(session);
            eprintln!(
                "{}: {:?} {:?}",
                session.display(),
                read.tally,
                kinds(&read.frames[0])
            );
            assert_eq!((read.tally.torn, read.tally.left_out_bytes), (0, 0));
            records += read.tally.records;
            unmapped += read.tally.unmapped;
            frames.extend(read.frames.iter().flatten().cloned());
            whole.push(read);
        }
        // All files of the folder are those of its sessions.
        let mut all = whole.remove(0);
        all.frames = vec![frames];
        check_files_kept(&all, &files(&root, ".json"));
    }
    assert!(unmapped * 20 <= records, "{unmapped} of {records}");
}

#[test]
fn a_folder_that_cannot_be_read_is_no_empty_one() {
    let copy = Copy::of(&fixture(SESSION), 2);
    let folder = root(&copy.path).join("message/ses_71c0a9f4e001");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "no folder").unwrap();
    let error = Reader::open(&copy.path, None, None).err().unwrap();
    assert!(error.to_string().contains("ses_71c0a9f4e001: "), "{error}");
}
