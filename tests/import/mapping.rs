//! What each file becomes, and that nothing of it is lost.

use std::collections::BTreeMap;

use onrecord::import::request::{Link, Turn};
use onrecord::import::{Format, detect};
use serde_json::json;

use crate::check::{
    Records, check_files, check_no_string_lost, check_nothing_lost, frame, kinds, link, payload,
    read,
};
use crate::shared::shared;
use crate::{SESSION, files, fixture};

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
        read.children,
        [
            ("a51f0e2".to_owned(), Some("line/19/call/1".to_owned())),
            // No record names it: its file stands beside the session's.
            ("b77c310".to_owned(), None),
        ]
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
    assert!(
        error.contains("claude-code, codex, ") && error.contains("swe-agent, "),
        "{error}"
    );
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
    let folders = [
        "data/agent-sessions/claude",
        "data/agentsview/claude",
        "data/claude-code-log",
        "data/claude-code-transcripts",
    ];
    let folders = folders.into_iter().filter_map(shared);
    let paths: Vec<_> = folders
        .flat_map(|folder| files(&folder, ".jsonl"))
        .collect();
    if !paths.is_empty() {
        check_files(Format::ClaudeCode, &Records::Lines, &paths);
    }
}

#[test]
fn every_shared_trajectory_maps() {
    if let Some(folder) = shared("data/swe-agent") {
        check_files(
            Format::SweAgent,
            &Records::Document,
            &files(&folder, ".traj"),
        );
    }
}

/// The formats of the folders of shared files, the more exact place last. What is not here is of none.
const FORMATS: &[(&str, &str)] = &[
    ("agent-sessions/antigravity/", "antigravity"),
    ("agent-sessions/claude/", "claude-code"),
    (
        "agent-sessions/claude/subagent/0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f/subagents/agent-a0ad4f44468bdf20d.meta.json",
        "none",
    ),
    ("agent-sessions/codex", "codex"),
    ("agent-sessions/copilot/", "copilot"),
    ("agent-sessions/cursor/", "cursor"),
    ("agent-sessions/droid/", "droid"),
    ("agent-sessions/gemini/", "gemini-cli"),
    ("agent-sessions/grok/", "grok"),
    ("agent-sessions/grok/summary.json", "none"),
    ("agent-sessions/grok/subagent/summary.json", "none"),
    ("agent-sessions/opencode/", "opencode"),
    ("agent-sessions/opencode/storage_v2/migration", "none"),
    // Parts of a message that say nothing of where they belong.
    (
        "agent-sessions/opencode/storage_v2/part/m_assistant_small/002.json",
        "none",
    ),
    (
        "agent-sessions/opencode/storage_v2/part/m_user_small/",
        "none",
    ),
    ("agentsview/claude/", "claude-code"),
    ("agentsview/codex/", "codex"),
    ("claude-code-log/", "claude-code"),
    ("claude-code-transcripts/", "claude-code"),
    ("gemini-cli-recordings/", "gemini-cli"),
    ("inspect-ai/", "inspect"),
    ("langfuse-framework-traces/", "langfuse"),
    ("mini-swe-agent/", "mini-swe-agent"),
    ("openhands/", "openhands"),
    ("strands-live-spans/codex_exec_json.json", "codex-exec"),
    ("strands-live-spans/codex_session_rollout.json", "codex"),
    ("swe-agent/", "swe-agent"),
];

#[test]
fn every_shared_file_is_told_or_refused() {
    let Some(data) = shared("data") else { return };
    for path in files(&data, "") {
        let name = path.strip_prefix(&data).unwrap().to_string_lossy();
        let place = FORMATS.iter().rfind(|(place, _)| name.starts_with(place));
        let expected = place.map_or("none", |(_, format)| format);
        let found = detect(&path).map(Format::as_str).unwrap_or("none");
        assert_eq!(found, expected, "{name}");
    }
}
