//! Our own recorders: what they read has secrets where no payload is, and nothing of it is refused, lost or recorded.

use crate::api::Api;
use crate::process::{DataDir, Process};
use crate::samples::{any, hex};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const SESSION: &str =
    include_str!("../fixtures/import/claude/5f0c9a52-6d1e-4b7a-9c35-0e8d2a4b6c01.jsonl");

/// The command line against a server.
fn onrecord(api: &Api, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(arguments)
        .env("ONRECORD_URL", &api.base)
        .env("ONRECORD_TOKEN", api.token.as_deref().unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    output
}

/// The frames of a run.
async fn frames(api: &Api, run: &str) -> Vec<Value> {
    api.get(&format!("/v1/runs/{run}/frames"))
        .await
        .is(200)
        .lines()
}

/// Seals and exports a run, and checks the file; answers its text.
async fn exported(api: &Api, run: &str, folder: &Path) -> String {
    api.post(&format!("/v1/runs/{run}/seal"), &json!({})).await;
    let file = folder.join("run.tar").display().to_string();
    onrecord(api, &["export", run, "-o", &file, "--purpose", "test"]);
    let trust = folder.join("trust.txt");
    std::fs::write(&trust, onrecord(api, &["trust"]).stdout).unwrap();
    let trust = trust.display().to_string();
    onrecord(api, &["verify", "--trust", &trust, &file]);
    String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_moves_what_would_be_refused_and_can_be_repeated() {
    let (data_dir, folder) = (DataDir::new(), tempfile::tempdir().unwrap());
    let process = Process::start_logging(&data_dir, "127.0.0.1:0", &[], "warn");
    let api = process.api.clone();
    // What only the tenant's own rules find is moved when the server refuses it.
    let rules = json!({"token": [{"id": "badge", "kind": "badge", "anchors": ["BADGE-"], "pattern": "BADGE-[0-9]{6}"}]});
    let rules = api
        .request(reqwest::Method::PUT, "/v1/redaction/rules")
        .header("content-type", "application/json")
        .body(rules.to_string());
    crate::api::Answer::of(rules).await.is(201);
    let (branch, model) = (format!("glpat-{}", any(20, 5)), "s3cr3t-pass9");
    let session = format!("ghp_{}", any(36, 6));
    let text = SESSION
        .replace("basket-total", &branch)
        .replace("claude-test-1", &format!("--password={model}"))
        .replace("2.1.40", "BADGE-123456")
        .replace("tool_use", "BADGE-654321")
        .replace("5f0c9a52-6d1e-4b7a-9c35-0e8d2a4b6c01", &session);
    let path = folder.path().join("session.jsonl");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let import = || {
        let output = onrecord(&api, &["import", "claude-code", &path, "--json"]);
        let line = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<Value>(line.lines().last().unwrap()).unwrap()
    };
    let first = import();
    assert!(first["moved"].as_u64() > Some(2), "{first}");
    let second = import();
    assert_eq!(second["already"], second["frames"], "{second}");
    assert_eq!(
        (&second["run"], &second["moved"]),
        (&first["run"], &first["moved"])
    );

    let run = first["run"].as_str().unwrap();
    let recorded = frames(&api, run).await;
    let moved: Vec<&Value> = recorded
        .iter()
        .flat_map(|frame| frame["payloads"].as_array().into_iter().flatten())
        .filter(|payload| payload["name"] == "moved")
        .collect();
    assert!(moved.len() > 2);
    for payload in moved {
        let redactions = payload["redactions"].as_array().unwrap();
        assert!(redactions[0]["fingerprint"].is_string(), "{payload}");
    }
    let bundle = exported(&api, run, folder.path()).await;
    for secret in [&branch, model, &session, "BADGE-123456", "BADGE-654321"] {
        assert!(!bundle.contains(secret), "{secret}");
    }
    assert!(bundle.contains("--password=[redacted:password]"));
    process.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_whose_name_has_a_secret_is_recorded_without_it() {
    let (data_dir, folder) = (DataDir::new(), tempfile::tempdir().unwrap());
    let process = Process::start_logging(&data_dir, "127.0.0.1:0", &[], "warn");
    let api = process.api.clone();
    let run = api.any_run().await.run.to_string();
    let secret = format!("glpat-{}", any(20, 8));
    let name = format!("tests with {secret}");
    let commit = hex(40, 1);
    let arguments = [
        "gate",
        "--run",
        &run,
        "--candidate",
        &commit,
        "--name",
        &name,
        "--exit",
        "0",
        "--format",
        "plain",
    ];
    let report = folder.path().join("log");
    std::fs::write(&report, format!("GITLAB_TOKEN={secret}\nfine\n")).unwrap();
    let report = report.display().to_string();
    let arguments = [&arguments[..], &[&report]].concat();
    onrecord(&api, &arguments);
    let again = onrecord(&api, &arguments);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.contains("already recorded"), "{again}");
    let recorded = frames(&api, &run).await;
    let result = &recorded[1];
    assert_eq!(result["body"]["name"], "tests with [redacted:gitlab_token]");
    assert_eq!(result["payloads"][0]["name"], "moved");
    assert!(!exported(&api, &run, folder.path()).await.contains(&secret));
    process.stop();
}

/// Case 47: what was streamed in pieces is redacted as a whole, and so is what lies where a long payload is cut.
#[tokio::test(flavor = "multi_thread")]
async fn no_recorder_cuts_a_secret_in_two() {
    let (data_dir, folder) = (DataDir::new(), tempfile::tempdir().unwrap());
    let process = Process::start_logging(&data_dir, "127.0.0.1:0", &[], "warn");
    let api = process.api.clone();
    let token = format!("ghp_{}", any(36, 12));
    let text = format!("token is {token} done");
    let line = |kind: &str, payload: Value| {
        let line =
            json!({"timestamp": "2026-05-01T10:00:00.000Z", "type": kind, "payload": payload});
        format!("{line}\n")
    };
    let mut lines = line(
        "session_meta",
        json!({"id": "0197f3a0-1111-7222-8333-444455556666", "timestamp": "2026-05-01T10:00:00.000Z",
            "cwd": "/x", "originator": "codex_cli_rs", "cli_version": "0.50.0"}),
    );
    for piece in text.as_bytes().chunks(5) {
        let piece = String::from_utf8_lossy(piece);
        lines += &line(
            "event_msg",
            json!({"type": "agent_message_delta", "delta": piece}),
        );
    }
    // A tool's output over 8 MiB, with the token across the place where a payload ends.
    const PART: usize = 8 * 1024 * 1024;
    let filler = "all is well with it\n";
    let mut output = filler.repeat(PART / filler.len());
    output.truncate(PART - 20);
    output += &format!(" {token} {}", filler.repeat(10_000));
    lines += &line(
        "response_item",
        json!({"type": "function_call_output", "call_id": "c1", "output": output}),
    );
    let path = folder
        .path()
        .join("rollout-2026-05-01T10-00-00-0197f3a0-1111-7222-8333-444455556666.jsonl");
    std::fs::write(&path, lines).unwrap();
    let import = onrecord(
        &api,
        &["import", "codex", &path.display().to_string(), "--json"],
    );
    let report: Value = serde_json::from_slice(&import.stdout).unwrap();
    let run = report["run"].as_str().unwrap();
    let bundle = exported(&api, run, folder.path()).await;
    let recorded = frames(&api, run).await;
    let marks = |payload: &Value| payload["redactions"].as_array().map_or(0, Vec::len);
    let payloads = recorded
        .iter()
        .flat_map(|frame| frame["payloads"].as_array().into_iter().flatten());
    assert_eq!(payloads.map(marks).sum::<usize>(), 2);
    for cut in 8..token.len() - 7 {
        assert!(!bundle.contains(&token[..cut]), "{cut}");
        assert!(!bundle.contains(&token[cut..]), "{cut}");
    }

    // A gate's command, which writes the same.
    let run = api.any_run().await.run.to_string();
    let file = folder.path().join("output");
    std::fs::write(&file, &output).unwrap();
    let commit = hex(40, 1);
    let file = file.display().to_string();
    onrecord(
        &api,
        &[
            "gate",
            "--run",
            &run,
            "--candidate",
            &commit,
            "--name",
            "tests",
            "--",
            "cat",
            &file,
        ],
    );
    let bundle = exported(&api, &run, folder.path()).await;
    assert!(bundle.contains("[redacted:github_token]"));
    for cut in 8..token.len() - 7 {
        assert!(
            !bundle.contains(&token[..cut]) && !bundle.contains(&token[cut..]),
            "{cut}"
        );
    }
    process.stop();
}
