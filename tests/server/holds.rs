//! Holds: set and released on the ledger, by one person or by two.

use crate::api::{Answer, Api};
use crate::hold_orders::fits;
use crate::running::Server;
use onrecord_core::statement::{Predicate, Signed};
use reqwest::Method;
use serde_json::{Value, json};

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
        json!({"matter": "m", "run": run, "why": "?"}),
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

async fn choose(api: &Api, settings: Value) -> Answer {
    let request = api
        .request(Method::PUT, "/v1/settings")
        .header("content-type", "application/json")
        .body(settings.to_string());
    Answer::of(request).await
}

/// A person who may hold and release.
async fn compliance(server: &Server, id: &str) -> Api {
    let token = json!({"name": id, "roles": ["compliance"], "actor": {"type": "human", "id": id}});
    server.api.make_token(&token).await
}

async fn statement(api: &Api, index: &Value) -> Value {
    let entry = api
        .get(&format!("/v1/ledger/entries/{index}"))
        .await
        .is(200);
    let signed = Signed::parse(&entry.bytes).unwrap();
    let Some(Predicate::Hold(hold)) = signed.predicate().unwrap() else {
        panic!("entry {index} is about a hold");
    };
    serde_json::to_value(hold).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_takes_two_people_one_is_not_enough() {
    let server = Server::start().await;
    let (ada, bob) = (
        compliance(&server, "ada").await,
        compliance(&server, "bob").await,
    );
    let run = server.api.any_run().await.run.to_string();
    let two = json!({"hold_release_people": 2});
    let chosen = choose(&ada, two.clone()).await.is(201).json();
    assert_eq!(chosen["hold_release_people"], 2);
    // To need fewer takes somebody who may not release.
    choose(&ada, json!({})).await.problem(403, "role_missing");
    let three = json!({"hold_release_people": 3});
    choose(&ada, three)
        .await
        .problem(400, "malformed_parameter");

    let wanted = json!({"matter": "case-7", "run": run});
    let set = ada.post("/v1/holds", &wanted).await.is(201).json();
    let path = format!("/v1/holds/{}/release", set["hold"]);
    let asked = ada.post(&path, &json!({})).await.is(202).json();
    let (first, second) = (server.person("ada").await, async || {
        server.person("bob").await
    });
    assert_eq!(asked["release_requested"]["by"], first);
    assert_eq!(asked["released"], Value::Null);
    // The same person again is the same request, also with another token.
    assert_eq!(ada.post(&path, &json!({})).await.is(202).json(), asked);
    let again = compliance(&server, "ada").await;
    assert_eq!(again.post(&path, &json!({})).await.is(202).json(), asked);
    let list = bob.get("/v1/holds").await.is(200).json();
    assert_eq!(list["holds"], json!([asked]));
    let erasure = json!({"run": run, "tier": 2, "reason": "r"});
    let answer = server.api.post("/v1/erasures", &erasure).await;
    answer.problem(409, "held");
    server.audit(&run, &[]).await;
    // It can be taken back, and then the next request is a first one.
    bob.delete(&path).await.is(204);
    bob.delete(&path).await.problem(404, "release_not_found");
    let asked = bob.post(&path, &json!({})).await.is(202).json();
    assert_eq!(asked["release_requested"]["by"], second().await);
    let released = ada.post(&path, &json!({})).await.is(200).json();
    assert_eq!(released["released"]["by"], second().await);
    assert_eq!(released["released"]["with"], first);
    let said = statement(&ada, &released["released"]["index"]).await;
    assert_eq!((&said["by"], &said["with"]), (&second().await, &first));
    assert_eq!(ada.post(&path, &json!({})).await.is(200).json(), released);
    server.audit(&run, &[]).await;
    fits(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_take_two_people_too_and_nobody_is_two() {
    let server = Server::start().await;
    let (ada, bob) = (
        compliance(&server, "ada").await,
        compliance(&server, "bob").await,
    );
    let run = server.api.any_run().await.run.to_string();
    choose(&ada, json!({"hold_release_people": 2}))
        .await
        .is(201);
    let wanted = json!({"matter": "m", "filter": "agent = \"any\""});
    let order = ada.post("/v1/holds", &wanted).await.is(201).json();
    let path = format!(
        "/v1/hold-orders/{}/release",
        order["order"].as_str().unwrap()
    );
    let asked = ada.post(&path, &json!({})).await.is(202).json();
    assert_eq!(asked["state"], "in-force");
    // Who is forgotten and comes again has another pseudonym, and is no second person.
    let name = asked["release_requested"]["by"]["id"].as_str().unwrap();
    let answer = server.api.delete(&format!("/v1/people/{name}")).await;
    assert!(answer.status < 300, "{answer:?}");
    let asked = ada.post(&path, &json!({})).await.is(202).json();
    assert_ne!(asked["release_requested"]["by"]["id"], name);
    let released = bob.post(&path, &json!({})).await.is(200).json();
    assert_eq!(released["state"], "released");
    let (first, second) = (server.person("ada").await, server.person("bob").await);
    assert_eq!(released["release"]["by"], first);
    assert_eq!(released["release"]["with"], second);
    let list = ada.get("/v1/holds?state=all").await.is(200).json();
    let said = statement(&ada, &list["holds"][0]["released"]["index"]).await;
    assert_eq!((&said["by"], &said["with"]), (&first, &second));
    server.audit(&run, &[]).await;
    fits(&server).await;
}
