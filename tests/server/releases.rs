//! Decisions about releases stand on the ledger, with the frames that they rest on.

use crate::api::audit::{check, trust};
use crate::running::Server;
use onrecord_core::digest::leaf_hash;
use onrecord_core::statement::{Predicate, Signed};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_stands_on_the_ledger_with_its_evidence() {
    let server = Server::start().await;
    let (api, compliance) = (&server.api, server.api.role("compliance").await);
    let run = api.any_run().await.run.to_string();
    let gate = json!({"kind": "observation", "body": {"passed": true}});
    let receipt = api.frame(&run, &gate).await.is(201).receipt();
    let wanted = json!({
        "release": "agent-2026.11", "manifest": "ab".repeat(32), "decision": "promoted",
        "evidence": [{"run": run, "seq": receipt.seq}],
    });
    let decided = compliance
        .post("/v1/releases", &wanted)
        .await
        .is(201)
        .json();
    assert_eq!(decided["by"], server.person("a compliance").await);
    let path = format!("/v1/ledger/entries/{}", decided["index"]);
    let entry = api.get(&path).await.is(200).bytes;
    let signed = Signed::parse(&entry).unwrap();
    assert_eq!(signed.subject, "agent-2026.11");
    assert_eq!(signed.digest.hex(), "ab".repeat(32));
    let Some(Predicate::Release(said)) = signed.predicate().unwrap() else {
        panic!("{signed:?}")
    };
    let evidence = said.evidence.unwrap();
    assert_eq!(evidence[0].run.to_string(), run);
    assert_eq!(evidence[0].hash, receipt.hash);
    let frame = api.get(&format!("/v1/runs/{run}/frames/1")).await;
    assert_eq!(leaf_hash(&frame.bytes), evidence[0].hash);
    let archive = api.get("/v1/ledger/archive").await.is(200).bytes;
    let report = check(&archive, &trust(api).await, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);

    let size = api.get("/v1/ledger").await.json()["size"].clone();
    let with = |name: &str, value: serde_json::Value| {
        let mut other = wanted.clone();
        other[name] = value;
        other
    };
    let nowhere = "01K7Q53Q0BT5J2N9R6F8W1C4KM";
    for (body, status, code) in [
        (with("release", json!("two words")), 400, "code_expected"),
        (with("decision", json!("maybe")), 400, "malformed_parameter"),
        (with("manifest", json!("ab")), 400, "malformed_parameter"),
        (with("more", json!(1)), 400, "malformed_parameter"),
        (
            with("evidence", json!([{"run": run, "seq": 9}])),
            404,
            "frame_not_found",
        ),
        (
            with("evidence", json!([{"run": nowhere, "seq": 0}])),
            404,
            "run_not_found",
        ),
    ] {
        compliance
            .post("/v1/releases", &body)
            .await
            .problem(status, code);
    }
    let agent = api.role("agent").await;
    agent
        .post("/v1/releases", &wanted)
        .await
        .problem(403, "role_missing");
    assert_eq!(api.get("/v1/ledger").await.json()["size"], size);
}
