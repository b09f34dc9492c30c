//! What a tenant chooses for itself: when idle runs are sealed.

use crate::api::{Answer, Api};
use crate::running::Server;
use onrecord_core::digest::Hash;
use onrecord_core::statement::{Predicate, Signed};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor as _;

async fn put(api: &Api, body: &Value) -> Answer {
    let request = api
        .request(Method::PUT, "/v1/settings")
        .header("content-type", "application/json")
        .body(body.to_string());
    Answer::of(request).await
}

async fn read(api: &Api) -> Value {
    api.get("/v1/settings").await.is(200).json()
}

/// Everything in the database happened so many seconds earlier.
async fn pass(server: &Server, seconds: u64) {
    // Heads go by the row, which the frames no longer agree with; so this is for runs that are only sealed or looked at.
    let sql = format!(
        "update runs set last_at = last_at - interval '{seconds} s' where sealed_at is null"
    );
    server
        .sql()
        .await
        .execute(sqlx::AssertSqlSafe(sql))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_stands_in_the_ledger_and_is_made_by_those_who_may() {
    let server = Server::start().await;
    let api = &server.api;
    assert_eq!(read(api).await, json!({"version": 0}));
    let hour = json!({"seal_idle_seconds": 3_600});
    let chosen = put(api, &hour).await.is(201).json();
    assert_eq!(
        (&chosen["version"], &chosen["seal_idle_seconds"]),
        (&json!(1), &json!(3_600))
    );
    assert_eq!(chosen["by"], json!({"type": "human", "id": "owner"}));
    assert_eq!(put(api, &hour).await.is(200).json(), chosen);
    assert_eq!(read(&api.role("agent").await).await, chosen);
    for (role, status) in [
        ("agent", 403),
        ("gate", 403),
        ("auditor", 403),
        ("compliance", 201),
    ] {
        let asked = json!({"seal_idle_seconds": 7});
        put(&api.role(role).await, &asked).await.is(status);
    }
    assert_eq!(read(api).await["version"], 2);
    for (index, document) in [
        (&chosen["index"], r#"{"seal_idle_seconds":3600}"#),
        (&read(api).await["index"], r#"{"seal_idle_seconds":7}"#),
    ] {
        let bytes: Vec<u8> = sqlx::query_scalar("select bytes from ledger_entries where idx = $1")
            .bind(index.as_i64().unwrap())
            .fetch_one(&mut server.sql().await)
            .await
            .unwrap();
        let signed = Signed::parse(&bytes).unwrap();
        assert_eq!(
            (signed.subject.as_str(), signed.digest),
            ("settings", Hash::of(&[document.as_bytes()]))
        );
        assert!(
            matches!(signed.predicate().unwrap(), Some(Predicate::Policy(policy)) if policy.policy == "settings")
        );
    }
    // What is left out goes back to the server's.
    assert_eq!(
        put(api, &json!({}))
            .await
            .is(201)
            .json()
            .get("seal_idle_seconds"),
        None
    );
    for wrong in [
        json!({"seal_idle_seconds": -1}),
        json!({"seal_idle_seconds": "1h"}),
        json!({"seal_idle_seconds": 1_u64 << 53}),
        json!({"other": 1}),
        json!([]),
    ] {
        put(api, &wrong).await.problem(400, "malformed_parameter");
    }
    // Another tenant chose nothing.
    assert_eq!(read(&api.new_tenant().await).await, json!({"version": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_runs_are_sealed_when_their_tenant_says() {
    let server = Server::start().await;
    let (api, other) = (&server.api, server.api.new_tenant().await);
    let recorder = &server.app.recorder;
    let day = Some(24 * 3_600);
    let run = api.any_run().await.run.to_string();
    let theirs = other.any_run().await.run.to_string();
    put(api, &json!({"seal_idle_seconds": 60})).await.is(201);
    assert_eq!(recorder.seal_idle(day).await.unwrap(), 0);
    let status =
        async |api: &Api, run: &str| api.run(run).await["status"].as_str().unwrap().to_owned();
    // For ever is a choice too, whatever the server has.
    put(api, &json!({"seal_idle_seconds": 0})).await.is(201);
    put(&other, &json!({"seal_idle_seconds": 0})).await.is(201);
    assert_eq!(recorder.seal_idle(Some(0)).await.unwrap(), 0);
    put(&other, &json!({})).await.is(201);
    assert_eq!(recorder.seal_idle(None).await.unwrap(), 0);
    assert_eq!(recorder.seal_idle(Some(0)).await.unwrap(), 1);
    assert_eq!(status(&other, &theirs).await, "sealed");
    assert_eq!(status(api, &run).await, "open");
    let seal = other
        .get(&format!("/v1/runs/{theirs}/seal"))
        .await
        .is(200)
        .json();
    assert_eq!(seal["completeness"], "interrupted");
    crate::api::audit::audit(&other, &theirs, &[]).await;
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_keeps_the_run_and_several_servers_seal_it_once() {
    let server = Server::start().await;
    let second = server.second().await;
    let (one, two) = (&server.app.recorder, &second.app.recorder);
    put(&server.api, &json!({"seal_idle_seconds": 600}))
        .await
        .is(201);
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(server.api.any_run().await.run.to_string());
    }
    pass(&server, 900).await;
    // The list is made by the row; what counts under the lock is the last frame, which is of now.
    assert_eq!(one.seal_idle(None).await.unwrap(), 0);
    put(&server.api, &json!({"seal_idle_seconds": 0}))
        .await
        .is(201);
    put(&server.api, &json!({})).await.is(201);
    let late = json!({"kind": "observation"});
    let (first, other, appended) = tokio::join!(
        one.seal_idle(Some(0)),
        two.seal_idle(Some(0)),
        second.api.frame(&runs[3], &late)
    );
    assert_eq!(
        first.unwrap() + other.unwrap() + one.seal_idle(Some(0)).await.unwrap(),
        6
    );
    assert!(matches!(appended.status, 201 | 409), "{}", appended.text());
    for run in &runs {
        let (report, _) = server.audit(run, &[]).await;
        let written = u64::from(appended.status == 201 && run == &runs[3]);
        assert_eq!(report.facts.size, Some(1 + written));
    }
}
