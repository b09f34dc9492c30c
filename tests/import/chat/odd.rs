//! Chats that are none, that are broken, and that grow.

use super::*;

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
