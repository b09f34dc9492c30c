//! Redaction in the server: nothing of a secret is recorded, and what was taken out stands on the frame.
#![cfg(test)]

#[path = "../api/mod.rs"]
mod api;
mod cases;
#[path = "../harness/mod.rs"]
mod harness;
mod measure;
mod nowhere;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../faults/process.rs"]
mod process;
mod recorders;
mod rules;
#[path = "../../src/redact/tests/samples.rs"]
mod samples;
#[path = "../shared/mod.rs"]
mod shared;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use harness::TestDatabase;
use onrecord::http::{Envelope, router};
use onrecord::start::{Config, start};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tower::ServiceExt as _;

struct Server {
    router: Envelope,
    owner: String,
    config: Config,
    database: TestDatabase,
    data: TempDir,
}

impl Server {
    async fn start(redaction: bool) -> Self {
        let (database, data) = (harness::database().await, TempDir::new().unwrap());
        let config = Config {
            redaction,
            ..database.config(data.path())
        };
        let started = start(&config).await.unwrap();
        Self {
            router: router(started.app),
            owner: started.token.unwrap().1,
            config,
            database,
            data,
        }
    }

    async fn bytes(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.request(method, path, "application/json", body).await
    }

    async fn request(&self, method: &str, path: &str, media: &str, body: String) -> (u16, Vec<u8>) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.owner))
            .header("content-type", media)
            .body(Body::from(body))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 1 << 26).await.unwrap();
        (status, bytes.to_vec())
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, bytes) = self.bytes(method, path, &body).await;
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    async fn run(&self) -> String {
        let opened = self.send("POST", "/v1/runs", json!({"session": {}})).await;
        opened.1["run"].as_str().unwrap().to_owned()
    }

    async fn append(&self, run: &str, frame: Value) -> (u16, Value) {
        self.send("POST", &format!("/v1/runs/{run}/frames"), frame)
            .await
    }

    /// The redactions of a payload of a frame.
    async fn redactions(&self, run: &str, seq: u64, payload: usize) -> Value {
        let (_, bytes) = self
            .bytes("GET", &format!("/v1/runs/{run}/frames"), &Value::Null)
            .await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let frames: Vec<Value> = match serde_json::from_str::<Value>(&text) {
            Ok(page) => page["frames"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![page]),
            Err(_) => text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        };
        let frame = frames.iter().map(|frame| {
            if frame["frame"].is_object() {
                &frame["frame"]
            } else {
                frame
            }
        });
        let frame = frame.into_iter().find(|frame| frame["seq"] == json!(seq));
        frame.unwrap()["payloads"][payload]["redactions"].clone()
    }
}

const SECRET: &str = "s3cr3t-pass9";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_payload_is_nowhere_in_the_run_and_stands_on_the_frame() {
    let server = Server::start(true).await;
    let run = server.run().await;
    let call = json!({
        "kind": "tool_call", "key": "c", "body": {"name": "shell"},
        "payloads": [{"name": "arguments", "json": {"env": {"DB_PASSWORD": SECRET}, "path": "/x"}}],
        "result": {"payloads": [{"name": "result", "text": format!("PGPASSWORD={SECRET} psql\n")}, {"name": "clean", "text": "nothing"}]},
    });
    let (status, first) = server.append(&run, call.clone()).await;
    assert_eq!(status, 201, "{first}");
    let of_call = server.redactions(&run, 1, 0).await;
    let of_result = server.redactions(&run, 2, 0).await;
    assert_eq!(of_call[0]["pointer"], "/env/DB_PASSWORD");
    assert_eq!(of_call[0]["kind"], "password");
    assert_eq!(
        (&of_call[0]["rule"], &of_call[0]["rules"]),
        (&json!("password-name"), &json!("builtin/1"))
    );
    assert_eq!(of_result[0]["range"], json!([11, 30]));
    assert_eq!(of_call[0]["fingerprint"], of_result[0]["fingerprint"]);
    assert_eq!(of_call[0]["fingerprint"].as_str().unwrap().len(), 64);
    assert_eq!(server.redactions(&run, 2, 1).await, Value::Null);

    // A retry is known by what was sent; another secret is another request.
    assert_eq!(server.append(&run, call.clone()).await, (200, first));
    let mut other = call;
    other["payloads"][0]["json"]["env"]["DB_PASSWORD"] = json!("an0ther-pass9");
    assert_eq!(server.append(&run, other).await.0, 409);

    // In another run the fingerprint is another.
    let second = server.run().await;
    let frame = json!({"kind": "observation", "key": "o", "payloads": [{"name": "text", "json": {"DB_PASSWORD": SECRET}}]});
    assert_eq!(server.append(&second, frame).await.0, 201);
    let elsewhere = server.redactions(&second, 1, 0).await;
    assert_ne!(elsewhere[0]["fingerprint"], of_call[0]["fingerprint"]);

    server
        .send("POST", &format!("/v1/runs/{run}/seal"), Value::Null)
        .await;
    let (status, bundle) = server
        .bytes(
            "GET",
            &format!("/v1/runs/{run}/export?purpose=test"),
            &Value::Null,
        )
        .await;
    assert_eq!(status, 200);
    assert!(!String::from_utf8_lossy(&bundle).contains(SECRET));
    assert!(String::from_utf8_lossy(&bundle).contains("PGPASSWORD=[redacted:password] psql"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_outside_of_the_payloads_is_refused_and_not_repeated() {
    let server = Server::start(true).await;
    let run = server.run().await;
    let token = format!("glpat-{}", "x9Kd2mQ7vB4nR8tY1wZ5");
    for (frame, pointer) in [
        (
            json!({"kind": "tool_call", "key": "a", "body": {"name": "shell", "command": format!("curl -H 'PRIVATE-TOKEN: {token}'")}}),
            "/body/command",
        ),
        (
            json!({"kind": "tool_call", "key": "a", "body": {"name": "shell"}, "result": {"body": {"error": format!("bad {token}")}}}),
            "/result/body/error",
        ),
        (json!({"kind": "observation", "key": token.clone()}), "/key"),
        (
            json!({"kind": "observation", "key": "a", "body": {token.clone(): 1}}),
            "/body/[redacted:gitlab_token]",
        ),
        (
            json!({"kind": "observation", "key": "a", "actor": {"type": "tool", "id": token.clone()}}),
            "/actor/id",
        ),
        (
            json!({"kind": "observation", "key": "a", "payloads": [{"name": "t", "text": "t", "media": format!("text/plain; x={token}")}]}),
            "/payloads/0/media",
        ),
    ] {
        let (status, problem) = server.append(&run, frame.clone()).await;
        assert_eq!(
            (status, &problem["code"]),
            (422, &json!("secret_in_metadata")),
            "{frame} {problem}"
        );
        assert_eq!(problem["pointer"], pointer);
        assert!(!problem.to_string().contains(&token), "{problem}");
    }
    let opening = json!({"session": {"pins": {"repository": {"remote": format!("https://ci:{SECRET}@git.example/x")}}}});
    let (status, problem) = server.send("POST", "/v1/runs", opening).await;
    assert_eq!(
        (status, &problem["pointer"]),
        (422, &json!("/session/pins/repository/remote"))
    );
    assert!(!problem.to_string().contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_full_of_secrets_fits_its_frame() {
    let server = Server::start(true).await;
    let run = server.run().await;
    let lines: String = (0..2_000)
        .map(|n| format!("password=Qz7{n}xk-{n}\n"))
        .collect();
    let frame =
        json!({"kind": "observation", "key": "o", "payloads": [{"name": "text", "text": lines}]});
    assert_eq!(server.append(&run, frame).await.0, 201);
    let redactions = server.redactions(&run, 1, 0).await;
    let redactions = redactions.as_array().unwrap();
    assert_eq!(redactions.len(), 101);
    let (last, all) = (&redactions[99]["range"], &redactions[100]["range"]);
    assert!(
        all[0].as_u64() > last[1].as_u64() && all[1].as_u64() > Some(50_000),
        "{last} {all}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_redact_says_nothing_of_it() {
    let server = Server::start(false).await;
    let run = server.run().await;
    let frame = json!({"kind": "observation", "key": "o", "body": {"password": SECRET}, "payloads": [{"name": "text", "json": {"password": SECRET}}]});
    assert_eq!(server.append(&run, frame).await.0, 201);
    assert_eq!(server.redactions(&run, 1, 0).await, Value::Null);
}

/// Files in a folder, and below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
