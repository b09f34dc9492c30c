//! Chats of Grok's command line.

use onrecord::import::{Format, Reader};
use serde_json::json;

use crate::check::{
    Records, check_files, check_grows, check_nothing_lost, frame, kinds, link, payload, read,
};
use crate::shared::shared;
use crate::steady::{Copy, hostile, lines_grow};
use crate::{files, fixture};

const FOLDER: &str = "grok/019a7c31-5be2-7d04-91f6-3c8a5e20d706";
const CHILD: &str = "019a7c32-1aa0-7b53-8e02-6f4d7c9b1e07";

fn chat() -> std::path::PathBuf {
    fixture(FOLDER).join("chat_history.jsonl")
}

#[test]
fn a_chat_becomes_turns_calls_and_retrievals() {
    let read = read(&chat());
    check_nothing_lost(&chat(), &read);
    let opening = &read.openings[0];
    assert_eq!(
        opening.key,
        "import/grok/019a7c31-5be2-7d04-91f6-3c8a5e20d706"
    );
    assert_eq!(
        opening.occurred_at.as_deref(),
        Some("2026-03-05T06:30:00.000000Z")
    );
    let expected = [
        ("context", 3),
        ("model_result", 3),
        ("observation", 2),
        ("retrieval", 1),
        ("tool_call", 3),
        ("tool_result", 3),
        ("turn", 2),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    // 13 lines and the summary.
    assert_eq!((read.tally.records, read.tally.unmapped), (14, 1));
    let thinking = frame(&read, 0, "line/4");
    assert_eq!(
        payload(thinking, "thinking"),
        json!("After the last frost.")
    );
    let result = frame(&read, 0, "line/6");
    assert_eq!(result.links, [link("answers", "line/5/call/1")]);
    assert_eq!(result.body["status"], "not stated");
    let search = frame(&read, 0, "line/8");
    assert_eq!(payload(search, "query"), json!("last frost date"));
    assert_eq!(search.body["retriever"], "web_search");
    assert_eq!(frame(&read, 0, "line/9/result").body["status"], "error");
    assert_eq!(frame(&read, 0, "line/10").body["action"], "compact_summary");
    let picture = frame(&read, 0, "line/12");
    assert_eq!(payload(picture, "prompt"), json!("Like this one?"));
    let summary = read.frames[0].last().unwrap();
    assert_eq!(summary.body["repository"]["branch"], "beds");
}

#[test]
fn a_subagent_has_a_folder_of_its_own() {
    let parent = read(&chat());
    let call = Some("line/5/call/2".to_owned());
    assert_eq!(parent.children, [(CHILD.to_owned(), call)]);
    let folder = fixture(FOLDER).join("subagents").join(CHILD);
    let child = read(&folder.join("chat_history.jsonl"));
    let session = &child.openings[0].session;
    assert_eq!(session["session_kind"], "subagent");
    assert_eq!(
        session["parent_session_id"],
        "019a7c31-5be2-7d04-91f6-3c8a5e20d706"
    );
}

#[test]
fn a_summary_written_anew_is_another_frame() {
    let copy = Copy::of(&chat(), 0);
    let before = read(&copy.path);
    let file = copy.path.with_file_name("summary.json");
    let mut summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    summary["num_messages"] = json!(99);
    summary["head_commit"] = json!("00");
    std::fs::write(&file, summary.to_string()).unwrap();
    let mut after = read(&copy.path);
    // The older summary's frame stays in the run; the newer one is posted beside it.
    let old = before.frames[0].last().unwrap().clone();
    assert!(after.frames[0].iter().all(|frame| frame.key != old.key));
    after.frames[0].push(old);
    assert_eq!(check_grows(&before, &after), 1);
    std::fs::write(&file, "{").unwrap();
    let error = Reader::open(&copy.path, None, None);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("summary.json"), "{error}");
}

#[test]
fn a_chat_may_grow_and_be_hostile() {
    lines_grow(&chat());
    hostile(Format::Grok, &chat(), true);
    let error = Reader::open(&fixture("droid/store.jsonl"), Some(Format::Grok), None);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("chat_history.jsonl"), "{error}");
}

#[test]
fn every_shared_chat_maps() {
    if let Some(folder) = shared("data/agent-sessions/grok") {
        let paths = files(&folder, ".jsonl");
        check_files(Format::Grok, &Records::Lines, &paths);
        paths.iter().for_each(|path| lines_grow(path));
        let parent = read(&folder.join("chat_history.jsonl"));
        let child = "019f6851-7ec4-7ef0-97d3-03f3eee38756".to_owned();
        assert_eq!(parent.children, [(child, None)]);
    }
}
