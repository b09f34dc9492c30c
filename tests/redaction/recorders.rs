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
    let (branch, model) = (format!("glpat-{}", any(20, 5)), "s3cr3t-pass9");
    let session = format!("ghp_{}", any(36, 6));
    let text = SESSION
        .replace("basket-total", &branch)
        .replace("claude-test-1", &format!("--password={model}"))
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
    for secret in [&branch, model, &session] {
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
