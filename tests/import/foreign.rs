//! Files that look alike and are not of any format.

use onrecord::import::detect;
use serde_json::{Value, json};

fn lines(record: Value) -> String {
    format!("{record}\n").repeat(3)
}

#[test]
fn what_only_looks_alike_is_not_taken() {
    let time = "2026-01-01T00:00:00Z";
    let cases = [
        ("a package", json!({"name": "x", "version": "1.0.0", "type": "module", "messages": []}).to_string()),
        ("a log", lines(json!({"type": "info", "message": "started", "timestamp": time}))),
        ("a log of errors", lines(json!({"type": "error", "message": {"text": "x"}, "timestamp": time}))),
        ("a log of a system", lines(json!({"type": "system", "subtype": "boot", "message": "x"}))),
        ("a log of logins", lines(json!({"type": "user", "user": "mara", "message": "signed in"}))),
        ("roles", lines(json!({"type": "user", "content": "login", "role": "admin"}))),
        ("analytics", lines(json!({"type": "session_start", "id": "7", "user": "u"}))),
        ("cloud events", lines(json!({"specversion": "1.0", "type": "session.start", "source": "/a", "id": "7", "data": {}}))),
        ("orders", lines(json!({"type": "item.completed", "item": {"sku": 1}}))),
        ("a sensor", lines(json!({"step_index": 1, "source": "probe", "type": "READ"}))),
        ("remote calls", lines(json!({"jsonrpc": "2.0", "method": "generateContent", "id": 1}))),
        ("spans", json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a", "name": "chat"}]}]}]}).to_string()),
        ("weather", json!({"id": "s", "observations": [{"id": "1", "type": "RAIN", "startTime": time}]}).to_string()),
        ("clicks", json!([{"id": 0, "timestamp": time, "source": "web", "message": "click", "action": "click"}]).to_string()),
        ("a shell", json!({"history": ["ls", "cd"]}).to_string()),
        ("an audit", json!({"history": [{"role": "admin", "at": time}]}).to_string()),
        ("a body in space", json!({"trajectory": [[0, 1], [1, 2]], "info": {"mass": 2}}).to_string()),
        ("a game", json!({"trajectory": [{"x": 1, "action": "left"}], "history": []}).to_string()),
        ("editors", json!([{"role": "editor", "content": "x"}, {"role": "viewer", "content": "y"}]).to_string()),
        ("a README", "# Shop\n\n## User\n\nThe manual.\n\n## Install\n\nRun it.\n".to_owned()),
        ("an interview", "User: hello\nSupport: hi\nUser: bye\n".to_owned()),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (what, content) in cases {
        for ending in ["json", "jsonl", "md"] {
            let path = folder.path().join(format!("file.{ending}"));
            std::fs::write(&path, &content).unwrap();
            if let Ok(format) = detect(&path) {
                panic!("{what} is taken as {}", format.as_str());
            }
        }
    }
}
