//! What is told of payloads whose time is past, before they are gone, and what a run says at its opening of how long it is kept.

use super::clock::stepped;
use super::{put, read, run_with, sweep, window};
use crate::api::Api;
use crate::erasing::{break_table, mend_table};
use crate::running::Server;
use serde_json::{Value, json};

/// The states of a run's payloads as a page has them, by tier; a file says the same.
async fn states(api: &Api, run: &str) -> Vec<String> {
    let path = "/v1/payload-records?order=asc&purpose=case-7";
    let page = api.get(&format!("{path}&limit=500")).await.is(200).json();
    let page = page["payload_records"].as_array().unwrap().clone();
    let file = api.get(&format!("{path}&format=ndjson")).await.is(200);
    let of = |rows: Vec<Value>| -> Vec<String> {
        let rows = rows.into_iter().filter(|row| row["run"] == run);
        rows.map(|row| row["state"].as_str().unwrap().to_owned())
            .collect()
    };
    let file = of(file.lines());
    let page = of(page);
    assert_eq!(page, file);
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_past_its_time_is_no_longer_stored_though_it_lies_there() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    put(api, &window("w", 9, 1)).await.is(201);
    let (run, commits) = run_with(api, json!({}), "a", true).await;
    let (held, _) = run_with(api, json!({}), "b", true).await;
    let hold = json!({"run": held, "matter": "case-7"});
    api.post("/v1/holds", &hold).await.is(201);
    let all = ["stored"; 4];
    assert_eq!(states(api, &run).await, all);
    clock.step_days(2).await;
    let past = ["stored", "stored", "stored", "expired"];
    // No sweeper came by; what is held stays.
    assert_eq!(states(api, &run).await, past);
    assert_eq!(states(api, &held).await, all);
    // Certified, and not removed: what expired, and what somebody had erased.
    let mut sql = server.sql().await;
    break_table(&mut sql, "delete", "payloads", "true").await;
    api.post("/v1/retention/sweep", &json!({})).await.is(500);
    let tier = json!({"run": run, "tier": 1, "reason": "request-17"});
    let erasure = api.post("/v1/erasures", &tier).await.is(201).json();
    assert_ne!(erasure["state"], "ciphertext_removed");
    assert_eq!(
        states(api, &run).await,
        ["stored", "erased", "stored", "expired"]
    );
    for (tier, code) in [(1, "payload_erased"), (3, "payload_expired")] {
        read(api, &run, &commits[tier]).await.problem(410, code);
    }
    mend_table(&mut sql, "payloads").await;
    let finality = server.app.finality;
    server.app.recorder.erase_pending(finality).await.unwrap();
    sweep(api).await;
    assert_eq!(
        states(api, &run).await,
        ["stored", "erased", "stored", "erased"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_which_version_of_the_policy_held_when_it_was_opened() {
    let server = Server::start().await;
    let api = &server.api;
    let said = async |session: Value| {
        let run = api.open(&json!({ "session": session })).await.run;
        let path = format!("/v1/runs/{run}/frames/0");
        let frame = api.get(&path).await.is(200).json();
        server.audit(&run, &[]).await;
        frame["body"]["retention"].clone()
    };
    assert_eq!(said(json!({})).await, json!({"policy": "none"}));
    for version in 1..3 {
        put(api, &window("w", 30, 10 + version)).await.is(201);
        let expected = json!({"policy": "retention", "version": version});
        assert_eq!(said(json!({})).await, expected);
    }
    let own = json!({"retention": "as my customer wants it"});
    assert_eq!(said(own.clone()).await, own["retention"]);
    let other = api.new_tenant().await;
    let run = other.any_run().await.run;
    let frame = other.get(&format!("/v1/runs/{run}/frames/0")).await;
    let body = frame.is(200).json()["body"].clone();
    assert_eq!(body["retention"], json!({"policy": "none"}));
}
