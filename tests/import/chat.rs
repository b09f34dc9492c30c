//! Plain chats.

use std::path::Path;

use onrecord::import::payload::Content;
use onrecord::import::request::{FrameRequest, Turn};
use onrecord::import::{Format, Reader, detect};
use serde_json::{Value, json};

use crate::check::{
    Read, check_grows, check_no_string_lost, check_nothing_lost, check_wrong_types, frame, kinds,
    link, payload, read, record,
};
use crate::fixture;

fn written(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The records of the frames that were taken out of a member: those with this key and a number, or
/// with a key below it.
fn taken(read: &Read, thread: usize, key: &str) -> Value {
    let frames = read.frames[thread].iter();
    let of = |frame: &&FrameRequest| {
        let below = frame
            .key
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('/'));
        below.is_some_and(|rest| !rest.contains('/'))
            && frame
                .payloads
                .iter()
                .any(|payload| payload.name == "record")
    };
    frames
        .filter(of)
        .map(|frame| record(read, thread, &frame.key))
        .collect()
}

/// The account of a conversation, with its messages put back.
fn rebuilt(read: &Read, thread: usize) -> Value {
    let account = read.frames[thread]
        .iter()
        .find(|frame| frame.key.starts_with("conversation/"))
        .unwrap();
    let mut whole = record(read, thread, &account.key);
    let put = |slot: &mut Value| {
        let Some(key) = slot
            .get("$frames")
            .and_then(Value::as_str)
            .map(str::to_owned)
        else {
            return;
        };
        *slot = match slot.get("$member").and_then(Value::as_str) {
            Some(member) => record(read, thread, &key)[member].clone(),
            None if read.frames[thread].iter().any(|frame| frame.key == key) => {
                record(read, thread, &key)
            }
            None => taken(read, thread, &key),
        };
    };
    for slot in whole.as_object_mut().unwrap().values_mut() {
        put(slot);
    }
    let nodes = whole.get_mut("mapping").and_then(Value::as_object_mut);
    for node in nodes.into_iter().flat_map(|nodes| nodes.values_mut()) {
        put(&mut node["message"]);
    }
    whole
}

fn bytes_of<'f>(frame: &'f FrameRequest, name: &str) -> (&'f [u8], Option<&'f str>) {
    let payload = frame
        .payloads
        .iter()
        .find(|payload| payload.name == name)
        .unwrap();
    match &payload.content {
        Content::Bytes(bytes) => (bytes, payload.media.as_deref()),
        other => panic!("{name} is no bytes: {other:?}"),
    }
}

#[test]
fn a_list_of_messages_is_a_conversation() {
    let path = fixture("chat/openai-list.json");
    let read = read(&path);
    assert_eq!(taken(&read, 0, "message"), written(&path));
    assert_eq!(
        Value::Object(read.openings[0].session.clone()),
        json!({
            "session_id": "openai-list",
            "imported": {"format": "chat", "importer": onrecord::import::MAPPING},
            "order": "transcript",
            "times": "writer",
        })
    );
    assert_eq!((read.tally.records, read.tally.unmapped), (12, 1));
    let expected = [
        ("context", 1),
        ("model_result", 4),
        ("observation", 1),
        ("tool_call", 3),
        ("tool_result", 4),
        ("turn", 2),
    ];
    assert_eq!(kinds(&read.frames[0]), expected.into_iter().collect());
    let system = frame(&read, 0, "message/1");
    assert_eq!(
        (&system.body["action"], system.turn),
        (&json!("system_prompt"), Turn::Run)
    );
    let asked = frame(&read, 0, "message/2");
    assert_eq!(
        payload(asked, "prompt"),
        "How many boats are in the harbour?"
    );
    assert_eq!(
        bytes_of(asked, "image"),
        (&b"\x89PNG\r\n\x1a\n"[..], Some("image/png"))
    );
    assert_eq!(payload(asked, "image_2"), "https://harbour.example/now.png");
    assert_eq!(bytes_of(asked, "audio"), (&b"RIFF"[..], Some("audio/wav")));
    assert_eq!(
        bytes_of(asked, "file"),
        (&b"%PDF-"[..], Some("application/pdf"))
    );
    assert_eq!(
        payload(frame(&read, 0, "message/3"), "thinking"),
        "The camera knows."
    );
    let call = frame(&read, 0, "message/3/tool-call/2");
    assert_eq!(
        (&call.body["name"], payload(call, "arguments")),
        (&json!("ask_captain"), json!("How many?"))
    );
    assert_eq!(call.links, [link("derived_from", "message/3")]);
    for (key, call) in [
        ("message/4", "message/3/tool-call/2"),
        ("message/5", "message/3/tool-call/1"),
        ("message/8", "message/7/function-call"),
    ] {
        assert_eq!(frame(&read, 0, key).links, [link("answers", call)]);
        assert_eq!(frame(&read, 0, key).body["status"], "not stated");
    }
    assert!(
        frame(&read, 0, "message/6").links.is_empty(),
        "nobody asked"
    );
    let refusal = frame(&read, 0, "message/10");
    assert_eq!(
        (&refusal.body["refused"], payload(refusal, "refusal")),
        (&json!(true), json!("I will not sink boats."))
    );
    assert_eq!(
        frame(&read, 0, "message/11").body["observation"],
        "unmapped"
    );
}

#[test]
fn requests_and_answers_of_the_apis() {
    let path = fixture("chat/anthropic-request.json");
    let anthropic = read(&path);
    check_no_string_lost(&path, &anthropic);
    assert_eq!(rebuilt(&anthropic, 0), written(&path));
    assert_eq!(
        payload(frame(&anthropic, 0, "system"), "text"),
        "You bake bread."
    );
    let answer = frame(&anthropic, 0, "message/2");
    for (name, text) in [
        ("text", "I heat the oven."),
        ("thinking", "First the oven."),
        ("redacted_thinking", "c2VjcmV0"),
    ] {
        assert_eq!(payload(answer, name), text);
    }
    let failed = frame(&anthropic, 0, "message/3");
    assert_eq!(
        (failed.kind, &failed.body["status"]),
        ("tool_result", &json!("error"))
    );
    assert_eq!(failed.links, [link("answers", "message/2/call/4")]);
    let lit = frame(&anthropic, 0, "message/3/result/2");
    assert_eq!(bytes_of(lit, "image").1, Some("image/png"));
    assert_eq!(lit.body["status"], "not stated");
    assert_eq!(
        frame(&anthropic, 0, "message/3/note/3").body["observation"],
        "user_note"
    );
    let request = frame(&anthropic, 0, "request/4");
    assert_eq!(
        (request.kind, &request.body["max_tokens"]),
        ("model_call", &json!(1024))
    );
    assert_eq!(payload(request, "tools")[0]["name"], "oven");

    let path = fixture("chat/anthropic-answer.json");
    let answer = read(&path);
    assert_eq!(record(&answer, 0, "message/1"), written(&path));
    let answer = frame(&answer, 0, "message/1");
    assert_eq!(
        Value::Object(answer.body.clone()),
        json!({"speaker": "model", "model": "claude-test-1", "message_id": "msg_1", "stop_reason": "end_turn",
            "revision": "not_identifiable", "usage": {"input_tokens": 40, "output_tokens": 6}})
    );

    let path = fixture("chat/completion.json");
    let completion = read(&path);
    assert_eq!(rebuilt(&completion, 0), written(&path));
    let first = frame(&completion, 0, "choice/1");
    assert_eq!(
        (&first.body["finish_reason"], &first.body["response_id"]),
        (&json!("stop"), &json!("chatcmpl-1"))
    );
    assert_eq!(
        first.body["usage"],
        json!({"input_tokens": 9, "output_tokens": 2, "total_tokens": 11})
    );
    assert_eq!(first.links, [link("answers", "request/0")]);
    assert_eq!(
        frame(&completion, 0, "choice/2").body.get("usage"),
        None,
        "counted once"
    );
}

#[test]
fn items_of_responses() {
    let path = fixture("chat/responses.json");
    let read = read(&path);
    check_no_string_lost(&path, &read);
    assert_eq!(rebuilt(&read, 0), written(&path));
    assert_eq!((read.tally.records, read.tally.unmapped), (14, 1));
    assert_eq!(
        payload(frame(&read, 0, "input/1"), "prompt"),
        "When is high water?"
    );
    assert_eq!(frame(&read, 0, "request/2").body["effort"], "low");
    let thought = frame(&read, 0, "output/1");
    assert_eq!(
        (thought.kind, payload(thought, "thinking")),
        ("model_result", json!("Look it up."))
    );
    assert_eq!(thought.links, [link("answers", "request/2")]);
    assert_eq!(frame(&read, 0, "output/2").body["name"], "web_search");
    assert_eq!(
        frame(&read, 0, "output/4").links,
        [link("answers", "output/3")]
    );
    let failed = frame(&read, 0, "output/5/result");
    assert_eq!(
        (&failed.body["status"], payload(failed, "error")),
        (&json!("error"), json!("no moon"))
    );
    let found = frame(&read, 0, "output/6/result");
    assert_eq!(
        (payload(found, "result"), &found.body["status"]),
        (json!([{"text": "twice a month"}]), &json!("not stated"))
    );
    assert_eq!(
        bytes_of(frame(&read, 0, "output/7/result"), "image").0,
        b"\x89PNG\r\n\x1a\n"
    );
    let no = frame(&read, 0, "output/9");
    assert_eq!((no.kind, &no.body["approved"]), ("decision", &json!(false)));
    let answer = frame(&read, 0, "output/10");
    assert_eq!(
        (payload(answer, "text"), &answer.body["refused"]),
        (json!("At 06:12."), &json!(true))
    );
    assert_eq!(answer.body["model"], "gpt-test-2");
    assert_eq!(frame(&read, 0, "output/11").body["observation"], "unmapped");
}

#[test]
fn each_line_of_a_training_file_is_a_run() {
    let path = fixture("chat/finetune.jsonl");
    let read = read(&path);
    check_nothing_lost_but_the_cut_line(&path, &read);
    assert_eq!(
        (read.tally.records, read.tally.unmapped, read.tally.torn),
        (10 + 8 + 12 + 2, 2, 1)
    );
    assert!(read.tally.left_out_bytes > 0);
    assert_eq!(read.openings.len(), 10);
    assert_eq!(read.openings[0].key, "import/chat/finetune/lines");
    assert_eq!(read.openings[2].key, "import/chat/finetune/lines/2");
    let expected = [
        ("model_result", 2),
        ("observation", 3),
        ("tool_call", 1),
        ("tool_result", 1),
        ("turn", 1),
    ];
    assert_eq!(kinds(&read.frames[2]), expected.into_iter().collect());
    assert_eq!(
        frame(&read, 2, "line/2/message/4").body["observation"],
        "unmapped"
    );
    assert_eq!(
        frame(&read, 2, "line/2/message/3").links,
        [link("answers", "line/2/message/2/tool-call/1")]
    );
    assert_eq!(frame(&read, 0, "line/9").body["observation"], "unmapped");
    assert_eq!(frame(&read, 9, "line/11").body["refused"], "integer_range");
}

/// As [`check_nothing_lost`], for a file whose last line is cut off and left out.
fn check_nothing_lost_but_the_cut_line(path: &Path, read: &Read) {
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.jsonl");
    std::fs::write(&whole, &bytes[..end]).unwrap();
    check_nothing_lost(&whole, read);
}

#[test]
fn a_message_a_line_is_one_conversation() {
    let path = fixture("chat/messages.jsonl");
    let read = read(&path);
    check_nothing_lost(&path, &read);
    assert_eq!(read.openings.len(), 1);
    assert_eq!((read.tally.records, read.tally.unmapped), (9, 1));
    let answer = frame(&read, 0, "line/3");
    assert_eq!(
        answer.occurred_at.as_deref(),
        Some("2026-04-01T10:00:01.000000Z")
    );
    assert_eq!(frame(&read, 0, "line/9").body["observation"], "unmapped");
}

#[test]
fn conversations_of_chatgpt_are_trees() {
    let path = fixture("chat/chatgpt.json");
    let read = read(&path);
    check_no_string_lost(&path, &read);
    let file = written(&path);
    for thread in 1..=3 {
        assert_eq!(rebuilt(&read, thread), file[thread - 1], "{thread}");
    }
    let keys: Vec<_> = read
        .openings
        .iter()
        .map(|opening| opening.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "import/chat/chatgpt",
            "import/chat/chatgpt/conversation/c0ffee-1",
            "import/chat/chatgpt/conversation/c0ffee-2",
            "import/chat/chatgpt/conversation/place/3",
        ]
    );
    assert_eq!(
        read.openings[1].occurred_at.as_deref(),
        Some("2026-02-03T06:26:40.500000Z")
    );
    assert_eq!(read.openings[1].session["agent"], "chatgpt");
    // Ten messages and three conversations.
    assert_eq!((read.tally.records, read.tally.unmapped), (13, 1));
    let order: Vec<_> = read.frames[1]
        .iter()
        .map(|frame| frame.key.as_str())
        .collect();
    assert_eq!(
        order[..11],
        [
            "spawned-by/session",
            "node/n-sys",
            "node/n-ctx",
            "node/n-user",
            "node/n-ans-1",
            "node/n-ans-1/call",
            "node/n-tool",
            "node/n-last",
            "node/n-odd",
            "node/n-ans-2",
            order[10],
        ]
    );
    assert_eq!(
        frame(&read, 1, "node/n-ctx").body["action"],
        "user_editable_context"
    );
    let call = frame(&read, 1, "node/n-ans-1/call");
    assert_eq!(
        (&call.body["name"], payload(call, "arguments")),
        (&json!("python"), json!("print('Tib')"))
    );
    assert_eq!(
        frame(&read, 1, "node/n-tool").links,
        [
            link("answers", "node/n-ans-1/call"),
            link("derived_from", "node/n-ans-1")
        ]
    );
    assert_eq!(
        payload(frame(&read, 1, "node/n-last"), "thinking")[0]["content"],
        "It is short."
    );
    assert_eq!(
        frame(&read, 1, "node/n-ans-2").links,
        [link("derived_from", "node/n-user")]
    );
    assert_eq!(frame(&read, 1, "node/n-ans-2").body["model"], "gpt-test-3");
    // Two follow each other: the circle is cut.
    assert!(frame(&read, 2, "node/b").links.is_empty());
    assert_eq!(
        frame(&read, 2, "node/a").links,
        [link("derived_from", "node/b")]
    );
}

#[test]
fn a_list_may_have_conversations_of_all_kinds_and_other_things() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.json");
    let turn = json!({"messages": [{"role": "user", "content": "x"}]});
    let mut list = vec![turn.clone(); 8];
    list[1]["id"] = json!("a/b");
    list.push(json!({"conversation_id": "empty", "mapping": {}}));
    list.push(json!({"messages": []}));
    list.push(json!("text"));
    list.push(json!([{"role": "user", "content": "a list in a list"}]));
    std::fs::write(&path, json!(list).to_string()).unwrap();
    let read = read(&path);
    assert_eq!(read.openings[2].key, "import/chat/mixed/conversation/a%2Fb");
    assert_eq!(read.openings[9].key, "import/chat/mixed/conversation/empty");
    // Eight of a message and its conversation, one without messages, three that are none.
    assert_eq!((read.tally.records, read.tally.unmapped), (20, 3));
    for (item, key) in [(9, "item/10"), (10, "item/11"), (11, "item/12")] {
        assert_eq!(record(&read, 0, key), list[item]);
    }
}

#[test]
fn conversations_of_claude_ai() {
    let path = fixture("chat/claude-ai.json");
    let read = read(&path);
    check_no_string_lost(&path, &read);
    let account = rebuilt(&read, 1);
    let mut file = written(&path)[0].clone();
    let messages = file["chat_messages"].take();
    for message in messages.as_array().unwrap() {
        let found = read.frames[1].iter().any(|frame| {
            frame
                .payloads
                .iter()
                .any(|payload| payload.name == "record")
                && record(&read, 1, &frame.key) == *message
        });
        assert!(found, "{message}");
    }
    assert_eq!(account["account"], file["account"]);
    assert_eq!((read.tally.records, read.tally.unmapped), (6, 1));
    let asked = frame(&read, 1, "message/m-1");
    assert_eq!(
        (payload(asked, "prompt"), payload(asked, "attachment")),
        (json!("Which knot?"), json!("ten metres"))
    );
    let answer = frame(&read, 1, "message/m-22");
    assert_eq!(answer.links, [link("derived_from", "message/m-1")]);
    let result = frame(&read, 1, "message/m-22/result/4");
    assert_eq!(
        (&result.body["status"], &result.links),
        (&json!("ok"), &vec![link("answers", "message/m-22/call/3")])
    );
    assert_eq!(
        payload(frame(&read, 1, "message/m-333"), "prompt"),
        "Old export"
    );
    assert_eq!(frame(&read, 1, "place/4").kind, "model_result");
}

#[test]
fn speakers_of_a_text() {
    let read_text = |name: &str| {
        let path = fixture(name);
        let read = read(&path);
        // The parts make the text again, but for blank lines at its end.
        let mut text = String::new();
        for frame in &read.frames[0] {
            for payload in &frame.payloads {
                match &payload.content {
                    Content::Text(part) => text.push_str(part),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(
            text,
            std::fs::read_to_string(&path)
                .unwrap()
                .trim_end()
                .to_owned()
                + if text.ends_with('\n') { "\n" } else { "" }
        );
        assert_eq!(read.openings[0].session["times"], "none");
        read
    };
    let kinds = |read: &Read| {
        read.frames[0]
            .iter()
            .map(|frame| frame.kind)
            .collect::<Vec<_>>()
    };
    let headings = read_text("chat/headings.md");
    assert_eq!(
        kinds(&headings),
        [
            "context",
            "context",
            "turn",
            "model_result",
            "tool_result",
            "turn",
            "model_result"
        ]
    );
    assert_eq!(frame(&headings, 0, "message/1").body["action"], "preamble");
    let asked = payload(frame(&headings, 0, "message/3"), "prompt");
    let asked = asked.as_str().unwrap();
    assert!(
        asked.contains("## Assistant\n```\n\nUser: this is no speaker either."),
        "{asked}"
    );
    assert_eq!(
        payload(frame(&headings, 0, "message/4"), "gap"),
        "\n\n---\n\n"
    );
    let bold = read_text("chat/bold.md");
    assert_eq!(
        kinds(&bold),
        ["turn", "model_result", "turn", "model_result"]
    );
    assert_eq!(
        payload(frame(&bold, 0, "message/2"), "text"),
        "Not yet.\nIt will be."
    );
    assert_eq!(
        payload(frame(&bold, 0, "message/4"), "text"),
        "Yes.\n**Note** well."
    );
    let plain = read_text("chat/plain.txt");
    assert_eq!(
        kinds(&plain),
        ["turn", "model_result", "turn", "model_result"]
    );
}

#[test]
fn what_is_no_chat_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for text in [
        "",
        "[]",
        "{}",
        "42",
        "[1,2]",
        r#"{"messages":[]}"#,
        r#"{"messages":"none"}"#,
        r#"{"messages":[{"role":"user"}]}"#,
        r#"{"messages":[{"role":"user","content":7}]}"#,
        r#"{"messages":[{"role":"guest","content":"x"}]}"#,
        r#"{"messages":[{"level":"info","content":"x"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"},{"level":"info"}]}"#,
        r#"[{"role":"admin","content":"x"}]"#,
        r#"[{"role":"user","name":"x"}]"#,
        r#"[{"type":"message","id":"x"}]"#,
        r#"[{"type":"function_call"}]"#,
        r#"{"choices":[{"message":"x"}]}"#,
        r#"{"choices":[{"text":"x"}]}"#,
        r#"{"input":"x","model":"y"}"#,
        r#"{"output":[{"type":"reasoning"}]}"#,
        r#"{"mapping":{}}"#,
        r#"{"mapping":{"a":{"id":"a"}}}"#,
        r#"{"chat_messages":[{"text":"x"}],"uuid":"y"}"#,
        r#"[{"messages":[{"role":"user","content":"x"}]},{"other":1}]"#,
        "{\"role\":\"user\",\"content\":\"x\"}\n{\"event\":1}\n",
        "[\n{\"role\":\"user\",\"content\":\"x\"},\n{\"role\":\"assistant\",\"content\":\"y\"}\n",
        "# User\n\nonly one speaks\n",
        "## Assistant\n\nx\n\n## Assistant\n\ny\n",
        "## Assistant\n\nx\n\n## User\n\nnobody answers\n",
        "```\n## User\n\nx\n\n## Assistant\n\ny\n```\n",
        "user: root\nassistant: none\n",
        "  User: x\n  Assistant: y\n",
        "Users: 3\nAssistants: 4\n",
        "| User: | Assistant: |\n",
        "**User** of the system\n**Assistant** to the director\n",
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(detect(&path).is_err(), "{text}");
        let error = Reader::open(&path, Some(Format::Chat), None);
        // A first line that is a message is enough where the format is named.
        if !text.starts_with("{\"role\"") && !text.starts_with("[\n") {
            let error = error.err().unwrap_or_else(|| panic!("{text}")).to_string();
            assert!(error.contains("no file of the format chat: "), "{error}");
        }
    }
    std::fs::write(&path, b"## User\n\xff\n## Assistant\nx\n").unwrap();
    let error = Reader::open(&path, Some(Format::Chat), None)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("UTF-8"), "{error}");
}

#[test]
fn members_of_wrong_types_are_kept_and_nothing_is_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.json");
    let value = json!([
        {"role": "user", "content": [7, null, [], {"type": "text"}, {"type": 1, "text": 2}, {"type": "image"}, {"type": "image", "source": "x"}, {"type": "image", "source": {"type": "base64", "data": 5}}, {"type": "image_url", "image_url": [1]}, {"type": "input_audio", "input_audio": {"data": {}}}, {"type": "file", "file": {"file_data": 1}}, "bare"]},
        {"role": "assistant", "content": [{"type": "tool_use"}, {"type": "tool_use", "id": 5, "name": {}, "input": null}, {"type": "tool_result", "tool_use_id": 5, "is_error": "yes"}], "tool_calls": [1, {}, {"id": "", "function": 4}, {"function": {"name": 3, "arguments": {"a": 1}}}], "function_call": {"name": null}, "usage": [], "model": {}, "refusal": 4, "reasoning": {"effort": 1}},
        {"role": "tool", "tool_call_id": 9, "content": {"a": [1]}},
        {"role": "function", "content": null, "name": []},
        {"role": "USER", "content": "loud", "timestamp": "yesterday", "created_at": {}},
        {"role": 4, "content": "x"},
        {"type": "reasoning", "summary": 5, "content": [[]]},
        {"type": "function_call", "call_id": "c", "arguments": {"deep": [[[[1]]]]}},
        {"type": "mcp_call", "id": "m", "output": {}, "error": []},
        {"type": "image_generation_call", "id": "i", "result": 3},
        {"type": "function_call_output", "call_id": {}, "output": [1, {"type": "input_image", "image_url": "data:image/png;base64,@"}]},
        "a string",
        null,
    ]);
    std::fs::write(&path, value.to_string()).unwrap();
    let mut reader = Reader::open(&path, Some(Format::Chat), None);
    assert!(reader.is_err(), "the first of them are not all messages");
    let mut sane = value.as_array().unwrap().clone();
    for at in [5, 2] {
        let odd = sane.remove(at);
        sane.push(odd);
    }
    std::fs::write(&path, Value::from(sane.clone()).to_string()).unwrap();
    reader = Reader::open(&path, Some(Format::Chat), None);
    assert!(reader.is_ok());
    let read = read(&path);
    assert_eq!(taken(&read, 0, "message"), Value::from(sane));
    assert_eq!((read.tally.records, read.tally.unmapped), (13, 3));
    for frame in &read.frames[0] {
        assert!(frame.occurred_at.is_none());
        assert!(
            frame.body.values().all(|value| !value.is_null()),
            "{}",
            frame.key
        );
    }
    let audible = frame(&read, 0, "message/4");
    assert_eq!(
        (audible.kind, payload(audible, "prompt")),
        ("turn", json!("loud"))
    );
}

#[test]
fn any_member_may_be_of_any_type() {
    for name in [
        "openai-list",
        "anthropic-request",
        "anthropic-answer",
        "completion",
        "responses",
        "chatgpt",
        "claude-ai",
    ] {
        check_wrong_types(Format::Chat, &fixture(&format!("chat/{name}.json")));
    }
}

#[test]
fn a_refused_file_keeps_its_exact_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "list.json",
            "\u{feff}[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"y\"}]",
        ),
        (
            "object.json",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":1,\"n\":2}",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let read = read(&path);
        let last = read.frames[0].last().unwrap();
        assert_eq!(payload(last, "raw"), text, "{name}");
        assert!(last.body.contains_key("refused"));
    }
}

#[test]
fn a_conversation_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.json");
    let grown = |value: &Value| {
        std::fs::write(&path, value.to_string()).unwrap();
        let mut read = read(&path);
        // What is only said of the conversation as it was is a frame of its own each time.
        for frames in &mut read.frames {
            frames.retain(|frame| {
                !frame.key.starts_with("conversation/") && !frame.key.starts_with("request/")
            });
        }
        read
    };
    let list = written(&fixture("chat/openai-list.json"));
    let whole = grown(&list);
    for count in 2..list.as_array().unwrap().len() {
        let shorter = grown(&list.as_array().unwrap()[..count].into());
        assert!(check_grows(&shorter, &whole) > 0, "{count}");
    }
    let request = written(&fixture("chat/anthropic-request.json"));
    let whole = grown(&request);
    for count in 1..3 {
        let mut shorter = request.clone();
        shorter["messages"] = request["messages"].as_array().unwrap()[..count].into();
        assert!(check_grows(&grown(&shorter), &whole) > 0);
    }
    // In an export a conversation goes on, a branch is added, another conversation begins.
    let export = written(&fixture("chat/chatgpt.json"));
    let whole = grown(&export);
    let mut shorter = export.as_array().unwrap()[..2].to_vec();
    let nodes = shorter[0]["mapping"].as_object_mut().unwrap();
    for gone in ["n-ans-2", "n-odd", "n-last"] {
        nodes.remove(gone);
    }
    nodes["n-user"]["children"] = json!(["n-ans-1"]);
    shorter[0]["current_node"] = json!("n-tool");
    assert!(check_grows(&grown(&shorter.into()), &whole) > 0);
    let export = written(&fixture("chat/claude-ai.json"));
    let whole = grown(&export);
    let mut shorter = export.clone();
    shorter[0]["chat_messages"]
        .as_array_mut()
        .unwrap()
        .truncate(2);
    assert!(check_grows(&grown(&shorter), &whole) > 0);
}

#[test]
fn lines_and_texts_grow() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "finetune.jsonl",
        "messages.jsonl",
        "headings.md",
        "bold.md",
        "plain.txt",
    ] {
        let bytes = std::fs::read(fixture("chat").join(name)).unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let whole = read(&path);
        let text = String::from_utf8(bytes).unwrap();
        let mut cuts = 0;
        for (end, _) in text.match_indices('\n') {
            // Between records: after a line, or before the next speaker.
            let next = &text[end + 1..];
            let speaks = [
                "## ",
                "**User",
                "**You",
                "**Claude",
                "**Assistant",
                "Assistant:",
                "Human:",
                "AI:",
            ];
            let between =
                name.ends_with(".jsonl") || speaks.iter().any(|name| next.starts_with(name));
            let fenced = text[..end].matches("```").count() % 2 == 1;
            std::fs::write(&path, &text[..=end]).unwrap();
            // Two lines at least: a file of one is one conversation, and another run.
            if between && !fenced && text[..end].matches('\n').count() > 0 && detect(&path).is_ok()
            {
                let shorter = read(&path);
                if shorter.openings[0].key == whole.openings[0].key {
                    check_grows(&shorter, &whole);
                    cuts += 1;
                }
            }
        }
        assert!(cuts > 0, "{name}");
    }
}
