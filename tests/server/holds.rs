//! Holds: set and released on the ledger, and nothing else says what is in force.

use crate::running::Server;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_set_once_released_once_and_listed() {
    let server = Server::start().await;
    let compliance = server.api.role("compliance").await;
    let run = server.api.any_run().await.run.to_string();
    let wanted = json!({"matter": "case-7", "run": run});
    let set = compliance.post("/v1/holds", &wanted).await.is(201).json();
    let hold = set["hold"].as_u64().unwrap();
    assert_eq!(set["matter"], "case-7");
    assert_eq!(set["run"], json!(run));
    assert_eq!(set["by"], server.person("a compliance").await);
    server.audit(&run, &[]).await;
    let again = compliance.post("/v1/holds", &wanted).await.is(200).json();
    assert_eq!(again, set);
    // Another matter, or the whole tenant, is another hold.
    let tenant = json!({"matter": "case-7", "tenant": true});
    let whole = compliance.post("/v1/holds", &tenant).await.is(201).json();
    assert_eq!(whole["run"], json!(null));
    assert_eq!(
        compliance.get("/v1/holds").await.is(200).json()["holds"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    let path = format!("/v1/holds/{hold}/release");
    let released = compliance.post(&path, &json!({})).await.is(200).json();
    assert_eq!(released["hold"], json!(hold));
    assert!(released["released"]["index"].as_u64().unwrap() > hold);
    assert_eq!(
        compliance.post(&path, &json!({})).await.is(200).json(),
        released
    );
    server.audit(&run, &[]).await;
    let auditor = server.api.role("auditor").await;
    assert_eq!(
        auditor.get("/v1/holds").await.is(200).json()["holds"],
        json!([whole])
    );
    assert_eq!(
        auditor.get("/v1/holds?state=all").await.is(200).json()["holds"],
        json!([released, whole])
    );
    // Set again, it is a new one.
    let anew = compliance.post("/v1/holds", &wanted).await.is(201).json();
    assert!(anew["hold"].as_u64().unwrap() > hold);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_hold_is_refused() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let compliance = server.api.role("compliance").await;
    for wrong in [
        json!({"matter": "m"}),
        json!({"matter": "m", "run": run, "tenant": true}),
        json!({"matter": "m", "tenant": false}),
        json!({"run": run}),
        json!({"matter": "m", "run": "x"}),
        json!({"matter": "m", "run": run, "reason": "?"}),
    ] {
        compliance
            .post("/v1/holds", &wrong)
            .await
            .problem(400, "malformed_parameter");
    }
    for free in ["", "a\nb", "Doe v. Roe", "_a", "ü", &"x".repeat(65)] {
        compliance
            .post("/v1/holds", &json!({"matter": free, "run": run}))
            .await
            .problem(400, "code_expected");
    }
    let unknown = json!({"matter": "m", "run": "01K7Q4Z8V2N5R3T6Y9B1C0D4E8"});
    compliance
        .post("/v1/holds", &unknown)
        .await
        .problem(404, "run_not_found");
    compliance
        .post("/v1/holds/1/release", &json!({}))
        .await
        .problem(404, "hold_not_found");
    compliance
        .post("/v1/holds/x/release", &json!({}))
        .await
        .problem(400, "malformed_parameter");
    compliance
        .get("/v1/holds?state=some")
        .await
        .problem(400, "malformed_parameter");
    for role in ["agent", "gate", "auditor", "admin"] {
        let api = server.api.role(role).await;
        let wanted = json!({"matter": "m", "run": run});
        api.post("/v1/holds", &wanted)
            .await
            .problem(403, "role_missing");
    }
    let set = compliance
        .post("/v1/holds", &json!({"matter": "m", "run": run}))
        .await
        .is(201)
        .json();
    // Another tenant sees and releases none of them.
    let other = server.api.new_tenant().await;
    assert_eq!(
        other.get("/v1/holds").await.is(200).json(),
        json!({"holds": []})
    );
    let path = format!("/v1/holds/{}/release", set["hold"]);
    other
        .post(&path, &json!({}))
        .await
        .problem(404, "hold_not_found");
    other
        .post("/v1/holds", &json!({"matter": "m", "run": run}))
        .await
        .problem(404, "run_not_found");
}
