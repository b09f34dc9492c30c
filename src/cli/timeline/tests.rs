//! Exact lines of fixed runs.

use super::*;
use serde_json::json;

fn frame(seq: u64, second: u64, kind: &str, rest: Value) -> Value {
    let mut frame = json!({
        "seq": seq, "kind": kind, "body": {}, "key": format!("k{seq}"),
        "at": format!("2026-11-30T08:00:{second:02}.250000Z"),
        "actor": {"type": "agent", "id": "coder"},
    });
    for (name, value) in rest.as_object().unwrap() {
        frame[name] = value.clone();
    }
    frame
}

/// A run of two turns, with a call that is answered late and one that is not.
fn run() -> Vec<Value> {
    vec![
        frame(
            0,
            0,
            "session",
            json!({
                "body": {"agent": "coder", "nonce": "00", "pins": {"repository": {"dirty": false}}},
                "payloads": [{"name": "task"}]}),
        ),
        frame(
            1,
            1,
            "turn",
            json!({"turn": 1, "body": {"label": "build\u{1b}[2J"},
                "payloads": [{"name": "prompt"}]}),
        ),
        frame(
            2,
            2,
            "tool_call",
            json!({"turn": 1, "body": {"name": "shell"},
                "payloads": [{"name": "arguments"}]}),
        ),
        frame(
            3,
            4,
            "tool_result",
            json!({"turn": 1, "body": {"exit": 2},
                "actor": {"type": "tool", "id": "shell"}, "links": [{"rel": "answers", "seq": 2}],
                "payloads": [{"name": "result", "media": "text/plain", "size": 256, "tier": 2, "commit": "ca67"}]}),
        ),
        frame(
            4,
            4,
            "tool_call",
            json!({"turn": 1, "body": {"name": "deploy"}}),
        ),
        frame(
            5,
            5,
            "tool_call",
            json!({"turn": 1, "body": {"name": "shell"}}),
        ),
        frame(
            6,
            6,
            "observation",
            json!({"turn": 1, "body": {"tools": ["a", "b"], "rows": [{}, {}]}}),
        ),
        frame(
            7,
            7,
            "tool_result",
            json!({"turn": 1, "body": {"status": "ok"},
                "links": [{"rel": "answers", "seq": 5}]}),
        ),
        frame(
            8,
            8,
            "gate_result",
            json!({"turn": 1, "body": {"name": "unit tests", "verdict": "fail", "exit": 1},
                "actor": {"type": "verifier", "id": "ci"}}),
        ),
        frame(
            9,
            9,
            "turn_end",
            json!({"turn": 1, "body": {"count": 8, "root": "00"},
                "actor": {"type": "system", "id": "onrecord"}}),
        ),
        frame(
            10,
            10,
            "outcome",
            json!({"body": {"status": "failed"},
                "links": [{"rel": "verified_by", "seq": 8}, {"rel": "derived_from", "run": "01M8", "hash": "00"}]}),
        ),
    ]
}

fn lines(screen: Screen, full: bool, frames: &[Value]) -> String {
    let mut timeline = Timeline::new(screen, full, &frames[0]).unknown([4]);
    frames.iter().map(|frame| timeline.lines(frame)).collect()
}

const PLAIN: Screen = Screen {
    width: None,
    coloured: false,
};

#[test]
fn a_run_is_told_line_by_line() {
    let expected = "        2026-11-30
     0  08:00:00.250  session         coder [task] pins.repository.dirty=false

turn 1  build\\u{1b}[2J
     1  08:00:01.250  turn            [prompt]
     2  08:00:02.250    tool_call     shell [arguments]
     3  08:00:04.250    └ tool_result exit 2 2.0 s [result]
     4  08:00:04.250    tool_call     OUTCOME UNKNOWN deploy
     5  08:00:05.250    tool_call     shell
     6  08:00:06.250    observation   tools=a,b rows=(2)
     7  08:00:07.250    └ tool_result ok 2.0 s of 5 shell
     8  08:00:08.250    gate_result   FAIL unit tests by verifier:ci exit=1
     9  08:00:09.250  turn_end        count=8
    10  08:00:10.250  outcome         FAILED verified_by→8 derived_from→run 01M8
";
    assert_eq!(lines(PLAIN, false, &run()), expected);
}

#[test]
fn a_narrow_terminal_gets_the_beginning_of_each_line() {
    let narrow = Screen {
        width: Some(44),
        ..PLAIN
    };
    let text = lines(narrow, false, &run());
    for line in text.lines() {
        assert!(line.chars().count() <= 44, "{line:?}");
    }
    assert!(
        text.contains("     4  08:00:04    tool_call     OUTCOME U…\n"),
        "{text}"
    );
    let coloured = Screen {
        coloured: true,
        ..narrow
    };
    assert!(lines(coloured, true, &run()).contains("\u{1b}[1m\u{1b}[31mexit 2\u{1b}[0m"));
    assert!(!lines(narrow, true, &run()).contains('\u{1b}'));
}

#[test]
fn nothing_of_a_frame_is_left_out_in_full() {
    let text = lines(PLAIN, true, &run()[..4]);
    let expected = r#"
     3  08:00:04.250    └ tool_result exit 2 2.0 s [result]
          by tool:shell, key k3, recorded 2026-11-30T08:00:04.250000Z
          {
            "exit": 2
          }
          payload result: text/plain, 256 bytes, tier 2, ca67
          link answers: frame 2
"#;
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_transcript_has_its_own_clock() {
    let occurred = |seq, time: &str| {
        frame(
            seq,
            0,
            "observation",
            json!({"occurred_at": format!("2025-06-14T{time}.000000Z")}),
        )
    };
    let session = frame(
        0,
        0,
        "session",
        json!({"body": {"imported": {"format": "x"}}}),
    );
    let frames = [
        session,
        occurred(1, "10:00:00"),
        occurred(2, "10:00:01"),
        frame(3, 1, "observation", json!({})),
    ];
    let expected = "     0                session         imported.format=x
        2025-06-14
     1  10:00:00.000  observation     recorded 2026-11-30 08:00:00
     2  10:00:01.000  observation
     3                observation
";
    assert_eq!(lines(PLAIN, false, &frames), expected);
}
