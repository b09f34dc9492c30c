//! `onrecord gate` in a process of its own against a real server: what is in the run afterwards.

use std::path::Path;
use std::process::{Output, Stdio};

use onrecord_core::receipt::Receipt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::api::Api;
use crate::api::bundle::Bundle;
use crate::running::Server;

mod command;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const PART: usize = 8 * 1024 * 1024;

/// A server, a run that an agent opened, and a gate with a token of its own.
pub(crate) struct Place {
    server: Server,
    agent: Api,
    gate: Api,
    pub run: Receipt,
    pub folder: TempDir,
}

impl Place {
    pub async fn new() -> Self {
        let server = Server::start().await;
        let token = |role: &str, kind: &str, id: &str| json!({"name": id, "roles": [role], "actor": {"type": kind, "id": id}});
        let agent = server
            .api
            .make_token(&token("agent", "agent", "coder"))
            .await;
        let gate = server
            .api
            .make_token(&token("gate", "verifier", "ci"))
            .await;
        let run = agent.open(&json!({"session": {"agent": "coder"}})).await;
        Self {
            server,
            agent,
            gate,
            run,
            folder: TempDir::new().unwrap(),
        }
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onrecord"));
        command
            .args(["gate", "--url", &self.gate.base])
            .env("ONRECORD_TOKEN", self.gate.token.as_deref().unwrap())
            .env("TMPDIR", self.folder.path())
            .current_dir(self.folder.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// `gate --run … --candidate …` and more.
    pub fn gate(&self, arguments: &[&str]) -> Command {
        let run = self.run.run.to_string();
        self.command(&[&["--run", &run, "--candidate", COMMIT], arguments].concat())
    }

    /// What it printed as JSON to standard output, when it was recorded.
    pub async fn recorded(&self, arguments: &[&str]) -> Value {
        let done = self
            .gate(&[&["--json"], arguments].concat())
            .output()
            .await
            .unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", err(&done));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    async fn frames(&self) -> Vec<Value> {
        let path = format!("/v1/runs/{}/frames", self.run.run);
        self.gate.get(&path).await.is(200).lines()
    }

    pub async fn last(&self) -> Value {
        self.frames().await.pop().unwrap()
    }

    /// Seals it, and has it verified from outside without any warning.
    async fn sealed(&self) -> Bundle {
        let path = format!("/v1/runs/{}/seal", self.run.run);
        self.agent.post(&path, &json!({})).await.is(201);
        let (report, bundle) = self.server.audit(&self.run.run, &[]).await;
        assert_eq!(report.meaning.warnings, [], "the verifier warns of nothing");
        bundle
    }
}

pub(crate) fn err(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// The content of a frame's payload.
fn payload<'a>(bundle: &'a Bundle, frame: &Value, name: &str) -> &'a [u8] {
    let all = frame["payloads"].as_array().unwrap();
    let found = all.iter().find(|payload| payload["name"] == name);
    let commit = found.unwrap_or_else(|| panic!("no {name} in {frame}"))["commit"].as_str();
    bundle.payload(commit.unwrap())
}

fn starts(bytes: &[u8], with: &[u8]) {
    assert!(
        bytes.starts_with(with),
        "{:?}",
        String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
    );
}

const JUNIT: &str = "<testsuite tests='3' time='0.25'><testcase name='a'/><testcase name='b'><failure message='secret words'/></testcase><testcase name='c'><skipped/></testcase></testsuite>";

#[tokio::test(flavor = "multi_thread")]
async fn a_report_becomes_a_verdict_with_its_evidence() {
    let place = Place::new().await;
    let report = place.file("unit.xml", JUNIT);
    let said = place.recorded(&[&report]).await;
    let frame = place.last().await;
    assert_eq!(frame["kind"], "gate_result");
    assert_eq!(frame["actor"], json!({"type": "verifier", "id": "ci"}));
    assert_eq!(
        frame["body"],
        json!({
            "name": "unit", "candidate": COMMIT, "verdict": "fail", "attempt": 1, "format": "junit",
            "counts": {"passed": 1, "failed": 1, "errors": 0, "skipped": 1, "total": 3},
            "duration_ms": 250, "verifier": "onrecord-gate", "verifier_version": "1",
            "reader": "onrecord-gate/1",
        })
    );
    assert_eq!(
        (&said["seq"], &said["verdict"]),
        (&frame["seq"], &json!("fail"))
    );
    // The outcome rests on the gate that passed, and the verifier follows it there.
    let good = place.file("unit.xml", "<testsuite><testcase name='a'/></testsuite>");
    let passed = place.recorded(&[&good]).await;
    assert_eq!(passed["attempt"], 2);
    let outcome = json!({"kind": "outcome", "body": {"status": "completed", "candidate": COMMIT},
        "links": [{"rel": "verified_by", "seq": passed["seq"]}]});
    place.agent.frame(&place.run.run, &outcome).await.is(201);
    let bundle = place.sealed().await;
    assert_eq!(payload(&bundle, &frame, "evidence"), JUNIT.as_bytes());
    let failures = payload(&bundle, &frame, "failures");
    starts(
        failures,
        br#"{"failures":[{"kind":"failed","message":"secret words","name":"b"}],"more":0"#,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_report_again_adds_nothing() {
    let place = Place::new().await;
    let report = place.file("unit.xml", JUNIT);
    let first = place.recorded(&[&report]).await;
    assert_eq!(
        (&first["attempt"], &first["already"]),
        (&json!(1), &json!(false))
    );
    let again = place.recorded(&[&report]).await;
    assert_eq!(
        (&again["seq"], &again["already"]),
        (&first["seq"], &json!(true))
    );
    // Another result is another attempt, also where only the log differs and no count.
    let other = place.file("other.xml", JUNIT.replace("secret", "other"));
    let second = place.recorded(&["--name", "unit", &other]).await;
    assert_eq!(
        (&second["attempt"], &second["already"]),
        (&json!(2), &json!(false))
    );
    // Both are still found.
    for (path, seq) in [(&report, &first["seq"]), (&other, &second["seq"])] {
        assert_eq!(&place.recorded(&["--name", "unit", path]).await["seq"], seq);
    }
    // Another gate, and another candidate, count for themselves.
    assert_eq!(
        place.recorded(&["--name", "lint", &report]).await["attempt"],
        1
    );
    // A key and an attempt that are named are kept, or refused.
    let named = place
        .recorded(&["--name", "k", "--key", "mine", &report])
        .await;
    assert_eq!(
        (&named["key"], &named["attempt"]),
        (&json!("mine"), &json!(1))
    );
    assert_eq!(
        place
            .recorded(&["--name", "k", "--key", "mine", &report])
            .await["already"],
        true
    );
    let third = place.file("third.xml", "<testsuite><testcase/></testsuite>");
    for arguments in [
        ["--name", "k", "--key", "mine"],
        ["--name", "unit", "--attempt", "1"],
    ] {
        let done = place
            .gate(&[&arguments[..], &[&third]].concat())
            .output()
            .await
            .unwrap();
        assert_eq!(done.status.code(), Some(1));
        assert!(err(&done).contains("has another result"), "{}", err(&done));
    }
    assert_eq!(place.frames().await.len(), 5);
    place.sealed().await;
    // A sealed run knows what it has, and takes nothing more.
    assert_eq!(
        place.recorded(&["--name", "unit", &other]).await["already"],
        true
    );
    let done = place.gate(&[&third]).output().await.unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", err(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_evidence_goes_in_parts_and_is_found_again() {
    let place = Place::new().await;
    // Characters of two bytes across the cuts, and a last part of its own.
    let mut log = "x".to_owned();
    log.push_str(&"ä".repeat(PART / 2 + 10));
    log.push_str("\n===== 4 passed in 1.00s =====\n");
    let report = place.file("long.log", &log);
    let first = place.recorded(&[&report]).await;
    assert_eq!(first["verdict"], "pass");
    assert_eq!(place.recorded(&[&report]).await["already"], true);
    // The same beginning, another end.
    let other = place.file("long.log", log.replace("4 passed", "5 passed"));
    let second = place.recorded(&[&other]).await;
    assert_eq!(
        (&second["attempt"], &second["already"]),
        (&json!(2), &json!(false))
    );
    let frames = place.frames().await;
    assert_eq!(frames.len(), 1 + 2 * 3);
    let result = &frames[3];
    let links: Vec<_> = result["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| link["seq"].clone())
        .collect();
    assert_eq!(
        (result["kind"].as_str(), links),
        (Some("gate_result"), vec![json!(1), json!(2)])
    );
    let bundle = place.sealed().await;
    let mut joined = Vec::new();
    for (index, frame) in frames[1..3].iter().enumerate() {
        assert_eq!(frame["body"]["observation"], "gate_evidence");
        let part = payload(&bundle, frame, &format!("evidence.{}", index + 1));
        assert!(part.len() <= PART && std::str::from_utf8(part).is_ok());
        joined.extend_from_slice(part);
    }
    assert!(joined == log.as_bytes(), "the parts make the whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_an_attempt_that_broke_off_are_not_in_the_way() {
    let place = Place::new().await;
    let part = "x".repeat(PART);
    // What a call leaves that ended after its first part, or after its second.
    for number in [1, 2] {
        let body = json!({
            "observation": "gate_evidence", "source": "long", "tool": "onrecord-gate", "tool_version": "1",
            "environment": {"candidate": COMMIT}, "stream": "evidence", "part": number,
        });
        let payload = json!({"name": format!("evidence.{number}"), "text": part,
            "media": "text/plain; charset=utf-8"});
        let key = format!("gate/long/{COMMIT}/1/evidence.{number}");
        let frame = json!({"kind": "observation", "key": key, "body": body, "payloads": [payload]});
        place.gate.frame(&place.run.run, &frame).await.is(201);
    }
    let report = place.file("long.log", format!("{part}\n1 passed in 0.1s\n"));
    let said = place.recorded(&[&report]).await;
    assert_eq!(
        (&said["attempt"], &said["already"]),
        (&json!(2), &json!(false))
    );
    let frame = place.last().await;
    let links: Vec<_> = frame["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| &link["seq"])
        .collect();
    assert_eq!(links, [3, 4], "the parts of this attempt alone");
    assert_eq!(place.recorded(&[&report]).await["already"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_right_is_refused_before_anything_happens() {
    let place = Place::new().await;
    let junit = place.file("unit.xml", JUNIT);
    let log = place.file("some.log", "hello\n");
    let run = place.run.run.to_string();
    let touched = place.folder.path().join("touched");
    let touch = touched.display().to_string();
    for (arguments, code, why) in [
        (
            vec!["--run", &run, "--candidate", "main", &junit],
            1,
            "names no one thing",
        ),
        (
            vec!["--run", &run, "--candidate", COMMIT, &log],
            1,
            "none of the formats that were tried (junit, trx",
        ),
        (
            vec![
                "--run",
                &run,
                "--candidate",
                COMMIT,
                "--format",
                "plain",
                &log,
            ],
            1,
            "give the exit code",
        ),
        (
            vec![
                "--run",
                &run,
                "--candidate",
                COMMIT,
                "--format",
                "nonsense",
                &log,
            ],
            2,
            "possible values",
        ),
        (
            vec!["--run", &run, "--candidate", COMMIT, "no-such-file"],
            1,
            "no-such-file",
        ),
        (
            vec!["--run", &run, "--candidate", COMMIT],
            1,
            "give a report",
        ),
        (vec!["--candidate", COMMIT, &junit], 2, "--run"),
        (vec!["--run", &run, &junit], 2, "--candidate"),
        (
            vec![
                "--run",
                &run,
                "--candidate",
                COMMIT,
                "--name",
                "a\nb",
                &junit,
            ],
            1,
            "control character",
        ),
        (
            vec!["--run", &run, "--candidate", COMMIT, "--key", "ä", &junit],
            1,
            "printable ASCII",
        ),
        (
            vec!["--run", &run, "--candidate", "HEAD", "--", "touch", &touch],
            125,
            "git",
        ),
        (
            vec![
                "--run",
                "01K7Q4Z8V2N5R3T6Y9B1C0D4E8",
                "--candidate",
                COMMIT,
                "--",
                "touch",
                &touch,
            ],
            125,
            "run_not_found",
        ),
        (
            vec![
                "--run",
                &run,
                "--candidate",
                COMMIT,
                "--",
                "/no/such/program",
            ],
            125,
            "cannot be run",
        ),
    ] {
        let done = place.command(&arguments).output().await.unwrap();
        assert_eq!(
            done.status.code(),
            Some(code),
            "{arguments:?}: {}",
            err(&done)
        );
        assert!(err(&done).contains(why), "{arguments:?}: {}", err(&done));
    }
    let path = format!("/v1/runs/{run}/seal");
    place.agent.post(&path, &json!({})).await.is(201);
    let late = place.gate(&["--", "touch", &touch]).output().await.unwrap();
    assert_eq!(late.status.code(), Some(125));
    assert!(err(&late).contains("is sealed"), "{}", err(&late));
    assert!(!touched.exists(), "no command was run");
    let exit = place.file("exit.log", "hello\n");
    assert_eq!(
        place
            .gate(&["--exit", "0", &exit])
            .output()
            .await
            .unwrap()
            .status
            .code(),
        Some(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_and_several_files_are_one_gate() {
    let place = Place::new().await;
    let one = place.file("one.xml", "<testsuite><testcase/></testsuite>");
    let two = place.file("two.tap", "1..1\nok 1\n");
    let said = place.recorded(&["--name", "both", &one, &two]).await;
    assert_eq!(
        (&said["format"], &said["counts"]["total"]),
        (&json!("junit+tap"), &json!(2))
    );
    let log = place.file("plain.log", b"gr\xfcn\n");
    let input = std::fs::File::open(&log).unwrap();
    let done = place
        .gate(&[
            "--name",
            "input",
            "--exit",
            "4",
            "--turn",
            "none",
            "--candidate",
            COMMIT,
            "-",
        ])
        .stdin(input)
        .output()
        .await;
    let done = done.unwrap();
    // The candidate was given twice.
    assert_eq!(done.status.code(), Some(2), "{}", err(&done));
    let input = std::fs::File::open(&log).unwrap();
    let mut gate = place.gate(&[
        "--name", "input", "--exit", "4", "--turn", "none", "--fail", "-",
    ]);
    let done = gate.stdin(input).output().await.unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", err(&done));
    let frame = place.last().await;
    assert_eq!(
        (&frame["body"]["verdict"], &frame["payloads"][0]["media"]),
        (&json!("fail"), &json!("text/plain"))
    );
    let bundle = place.sealed().await;
    assert_eq!(payload(&bundle, &frame, "evidence"), b"gr\xfcn\n");
}
