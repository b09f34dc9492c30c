//! Recording: keys and sameness, who may write what, and texts that could not be signed.
#![cfg(test)]

mod harness;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use harness::TestDatabase;
use onrecord::http::{App, Envelope, router};
use onrecord::start::start;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tower::ServiceExt as _;

struct Server {
    app: App,
    router: Envelope,
    owner: String,
    database: TestDatabase,
    _data: TempDir,
}

impl Server {
    async fn start() -> Self {
        let (database, data) = (harness::database().await, TempDir::new().unwrap());
        let started = start(&database.config(data.path())).await.unwrap();
        Self {
            router: router(started.app.clone()),
            app: started.app,
            owner: started.token.unwrap().1,
            database,
            _data: data,
        }
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path} {body}");
        let bytes = to_bytes(response.into_body(), 1 << 26).await.unwrap();
        (
            status.as_u16(),
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    async fn run(&self) -> String {
        let opened = self
            .send(&self.owner, "POST", "/v1/runs", &json!({"session": {}}))
            .await;
        opened.1["run"].as_str().unwrap().to_owned()
    }

    async fn append(&self, token: &str, run: &str, frame: Value) -> (u16, Value) {
        let path = format!("/v1/runs/{run}/frames");
        self.send(token, "POST", &path, &frame).await
    }

    async fn token(&self, name: &str, role: &str, actor: Value) -> String {
        let body = json!({"name": name, "roles": [role], "actor": actor});
        let made = self.send(&self.owner, "POST", "/v1/tokens", &body).await;
        made.1["token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_keeps_the_receipt_of_a_result_with_its_own_key() {
    let server = Server::start().await;
    let (owner, run) = (&server.owner, server.run().await);
    let call = |key: Value| json!({"kind": "tool_call", "key": "c", "body": {"name": "t"}, "result": {"key": key}});
    let (status, first) = server.append(owner, &run, call(json!("r"))).await;
    assert_eq!((status, &first["result"]["seq"]), (201, &json!(2)));
    let again = server.append(owner, &run, call(json!("r"))).await;
    assert_eq!(again, (200, first));
    let other = server.append(owner, &run, call(json!("s"))).await;
    assert_eq!((other.0, &other.1["code"]), (409, &json!("key_conflict")));

    // A call without a result is not given a frame that is only named like one.
    let call = json!({"kind": "tool_call", "key": "d", "body": {"name": "t"}});
    let (_, first) = server.append(owner, &run, call.clone()).await;
    let named = json!({"kind": "observation", "key": "d/result"});
    assert_eq!(server.append(owner, &run, named).await.0, 201);
    assert_eq!(server.append(owner, &run, call).await, (200, first));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_words_of_another_writer_are_another_frame() {
    let server = Server::start().await;
    let run = server.run().await;
    let verdict = json!({"kind": "gate_result", "key": "v", "body": {"verdict": "PASS"}});
    let one = server.token("one", "gate", Value::Null).await;
    let two = server.token("two", "gate", Value::Null).await;
    assert_eq!(server.append(&one, &run, verdict.clone()).await.0, 201);
    assert_eq!(server.append(&one, &run, verdict.clone()).await.0, 200);
    let refused = server.append(&two, &run, verdict).await;
    assert_eq!(
        (refused.0, &refused.1["code"]),
        (409, &json!("key_conflict"))
    );
}

/// Whoever has the database and all keys that are left must not be able to try what an erased result said.
#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_goes_with_the_payload_of_the_result() {
    let server = Server::start().await;
    let (owner, run) = (&server.owner, server.run().await);
    let call = |text: &str| json!({"kind": "tool_call", "key": "c", "body": {"name": "t"}, "result": {"payloads": [{"name": "answer", "text": text}]}});
    let (status, first) = server.append(owner, &run, call("yes")).await;
    assert_eq!(status, 201);
    let other = server.append(owner, &run, call("no")).await;
    assert_eq!(other.0, 409);
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    sqlx::query("delete from payloads where run = run_uuid($1) and seq = 2")
        .bind(&run)
        .execute(&mut connection)
        .await
        .unwrap();
    for text in ["yes", "no"] {
        let again = server.append(owner, &run, call(text)).await;
        assert_eq!(again, (200, first.clone()), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_is_refused_before_the_database_sees_it() {
    let server = Server::start().await;
    let run = server.run().await;
    let frame = json!({"kind": "observation", "links": [{"rel": "uses", "key": "a\u{0}"}]});
    let (status, problem) = server.append(&server.owner, &run, frame).await;
    assert_eq!((status, &problem["pointer"]), (422, &json!("/links/0/key")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_writes_what_its_roles_are_for() {
    let server = Server::start().await;
    let run = server.run().await;
    let gate = server.token("gate", "gate", Value::Null).await;
    let auditor = server.token("auditor", "auditor", Value::Null).await;
    let agent = server.token("agent", "agent", Value::Null).await;
    let smith = server
        .token("smith", "agent", json!({"type": "agent", "id": "smith"}))
        .await;
    let tool = server
        .token("tool", "agent", json!({"type": "tool", "id": "shell"}))
        .await;
    let importer = json!({"type": "importer", "id": "any"});
    let cases = [
        (&gate, json!({"kind": "turn"}), "role_missing"),
        (&auditor, json!({"kind": "turn_end"}), "role_missing"),
        (&auditor, json!({"kind": "session_end"}), "role_missing"),
        (&agent, json!({"kind": "gate_result"}), "actor_not_yours"),
        (
            &agent,
            json!({"kind": "gate_result", "actor": importer}),
            "actor_not_yours",
        ),
        (
            &tool,
            json!({"kind": "observation", "actor": {"type": "tool", "id": "other"}}),
            "actor_not_yours",
        ),
        (
            &smith,
            json!({"kind": "observation", "actor": {"type": "agent", "id": "jones"}}),
            "actor_not_yours",
        ),
    ];
    for (token, frame, code) in cases {
        let (status, problem) = server.append(token, &run, frame.clone()).await;
        assert_eq!((status, &problem["code"]), (403, &json!(code)), "{frame}");
    }
    let allowed = [
        (&auditor, json!({"kind": "decision"})),
        (&tool, json!({"kind": "observation"})),
        (
            &smith,
            json!({"kind": "observation", "actor": {"type": "tool", "id": "any"}}),
        ),
        (&agent, json!({"kind": "session_end"})),
    ];
    for (token, frame) in allowed {
        let (status, _) = server.append(token, &run, frame.clone()).await;
        assert_eq!(status, 201, "{frame}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_signed_is_refused_before_the_first_byte() {
    let server = Server::start().await;
    let (owner, run) = (&server.owner, server.run().await);
    let path = format!("/v1/runs/{run}/export?purpose=%EF%BF%BF");
    let (status, problem) = server.send(owner, "GET", &path, &Value::Null).await;
    assert_eq!((status, &problem["code"]), (400, &json!("code_expected")));
    for name in ["a\u{ffff}", "a\u{0}", "a\u{1b}[2J", ""] {
        let body = json!({"name": name, "roles": ["agent"]});
        let (status, _) = server.send(owner, "POST", "/v1/tokens", &body).await;
        assert_eq!(status, 422, "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_that_cannot_be_sealed_does_not_hinder_the_others() {
    let server = Server::start().await;
    let (bad, good) = (server.run().await, server.run().await);
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    sqlx::query("update runs set head = decode(repeat('00', 32), 'hex') where run = run_uuid($1)")
        .bind(&bad)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(server.app.recorder.seal_idle(Some(0)).await.unwrap(), 1);
    let path = format!("/v1/runs/{good}/seal");
    let (status, seal) = server.send(&server.owner, "GET", &path, &Value::Null).await;
    assert_eq!(
        (status, &seal["completeness"]),
        (200, &json!("interrupted"))
    );
}

/// A proof is made in memory; a turn of any length must not be.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_too_large_is_refused_before_it_is_read() {
    let server = Server::start().await;
    let (owner, run) = (&server.owner, server.run().await);
    server.append(owner, &run, json!({"kind": "turn"})).await;
    let frame = json!({"kind": "observation", "payloads": [{"name": "p", "text": "x"}]});
    server.append(owner, &run, frame).await;
    let seal = format!("/v1/runs/{run}/seal");
    server.send(owner, "POST", &seal, &json!({})).await;
    let proof = format!("/v1/runs/{run}/turns/1/proof?purpose=test");
    assert_eq!(server.send(owner, "GET", &proof, &Value::Null).await.0, 200);
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    sqlx::query("update payloads set size = 100000000000 where run = run_uuid($1)")
        .bind(&run)
        .execute(&mut connection)
        .await
        .unwrap();
    let (status, problem) = server.send(owner, "GET", &proof, &Value::Null).await;
    assert_eq!((status, &problem["code"]), (409, &json!("turn_too_large")));
    let withheld = format!("{proof}&payloads=none");
    assert_eq!(
        server.send(owner, "GET", &withheld, &Value::Null).await.0,
        200
    );
}

/// What somebody did to the rows is the verifier's to name, so the server has to hand it all of them.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_altered_in_the_database_is_named_and_not_unreadable() {
    let server = Server::start().await;
    let owner = &server.owner;
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    sqlx::query("alter table frames disable trigger user")
        .execute(&mut connection)
        .await
        .unwrap();
    for (change, code, seq) in [
        (
            "update frames set bytes = bytes || ' ' where run = run_uuid($1) and seq = 2",
            "frame_canonical",
            2,
        ),
        (
            "update frames set bytes = 'xx' where run = run_uuid($1) and seq = 2",
            "frame_json",
            2,
        ),
        (
            "update payloads set ciphertext = '\\x00' || substr(ciphertext, 2) where run = run_uuid($1) and seq = 2",
            "payload_commit",
            2,
        ),
        (
            "delete from frames where run = run_uuid($1) and seq = 2",
            "frame_seq",
            2,
        ),
    ] {
        let run = server.run().await;
        for _ in 0..3 {
            let frame = json!({"kind": "observation", "payloads": [{"name": "p", "text": "x"}]});
            server.append(owner, &run, frame).await;
        }
        let seal = format!("/v1/runs/{run}/seal");
        assert_eq!(server.send(owner, "POST", &seal, &json!({})).await.0, 201);
        sqlx::query(change)
            .bind(&run)
            .execute(&mut connection)
            .await
            .unwrap();
        let path = format!("/v1/runs/{run}/verification");
        let (status, report) = server.send(owner, "GET", &path, &Value::Null).await;
        let verdict = &report["verdict"];
        assert_eq!(
            (status, &verdict["status"], &verdict["code"]),
            (200, &json!("altered"), &json!(code)),
            "{verdict}"
        );
        assert_eq!(verdict["first_bad_seq"], json!(seq), "{verdict}");
    }
}
