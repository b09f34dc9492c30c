//! People in the ledger: under pseudonyms, which lead to them as long as somebody wants that.

use crate::api::Api;
use crate::api::audit::{check, trust};
use crate::running::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A name that is nowhere else.
const NAME: &str = "Ada Lovelace of the third floor";

/// What the ledger says, entry by entry.
async fn stated(api: &Api) -> Vec<Value> {
    let page = api.get("/v1/ledger/entries?limit=256").await.is(200).json();
    let entries = page["entries"].as_array().unwrap().iter();
    let payload = |entry: &Value| {
        let envelope: Value = serde_json::from_str(entry["entry"].as_str().unwrap()).unwrap();
        let payload = STANDARD.decode(envelope["payload"].as_str().unwrap());
        serde_json::from_slice(&payload.unwrap()).unwrap()
    };
    entries.map(payload).collect()
}

/// Who it says did something, in the order of the ledger.
async fn by(api: &Api) -> Vec<Value> {
    let all = stated(api).await.into_iter();
    all.filter_map(|one| one["predicate"].get("by").cloned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_stated_stands_there_under_a_pseudonym_until_forgotten() {
    let server = Server::start().await;
    let roles = json!(["auditor", "compliance", "admin", "agent"]);
    let ada = json!({"name": NAME, "roles": roles, "actor": {"type": "human", "id": NAME}});
    let ada = server.api.make_token(&ada).await;
    let run = server.api.any_run().await.run.to_string();
    let frame = json!({"kind": "observation", "payloads": [{"name": "p", "text": "said"}]});
    server.api.frame(&run, &frame).await.is(201);
    let frame = server.api.get(&format!("/v1/runs/{run}/frames/1")).await;
    let commit = frame.json()["payloads"][0]["commit"].clone();
    let payload = format!("/v1/runs/{run}/payloads/{}", commit.as_str().unwrap());

    // All that a person can have stated of them: reading, exporting, holding, changing rules, erasing.
    ada.get(&format!("{payload}?purpose=case-7")).await.is(200);
    let export = format!("/v1/runs/{run}/export?purpose=case-7");
    ada.get(&export).await.is(200);
    let hold = json!({"matter": "case-7", "run": run});
    let hold = ada.post("/v1/holds", &hold).await.is(201).json()["hold"].clone();
    let release = format!("/v1/holds/{hold}/release");
    ada.post(&release, &json!({})).await.is(200);
    let erase = json!({"run": run, "commits": [commit], "reason": "request-17"});
    ada.post("/v1/erasures", &erase).await;
    let someone = server.person(NAME).await;
    let all = by(&server.api).await;
    assert!(all.len() >= 5, "{all:?}");
    assert!(all.iter().all(|one| *one == someone), "{all:?}");
    let pseudonym = someone["id"].as_str().unwrap().to_owned();
    assert!(pseudonym.starts_with("p_") && pseudonym.len() == 18);

    // Nothing that leaves has the name: neither the ledger nor a bundle with its export statement.
    let archive = server.api.get("/v1/ledger/archive").await.is(200).bytes;
    let bundle = ada.get(&export).await.is(200).bytes;
    for bytes in [&archive, &bundle] {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(NAME) && !text.contains(&STANDARD.encode(NAME)));
    }
    let path = format!("/v1/people/{pseudonym}");
    let found = server.api.get(&path).await.is(200);
    assert_eq!(found.header("cache-control"), "no-store");
    assert_eq!(found.json()["person"], NAME);

    // Forgotten, it leads nowhere, all verifies as before, and whoever comes again is somebody else.
    let entries = stated(&server.api).await;
    assert_eq!(server.api.delete(&path).await.status, 204);
    server.api.get(&path).await.problem(404, "person_not_found");
    server
        .api
        .delete(&path)
        .await
        .problem(404, "person_not_found");
    assert_eq!(stated(&server.api).await, entries);
    let trusted = trust(&server.api).await;
    let archive = server.api.get("/v1/ledger/archive").await.is(200).bytes;
    let report = check(&archive, &trusted, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);
    ada.get(&export).await.is(200);
    let again = server.person(NAME).await;
    assert_ne!(again, someone);
    assert_eq!(by(&server.api).await.last(), Some(&again));
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_have_one_pseudonym_each_and_each_tenant_its_own() {
    let server = Server::start().await;
    let second = server.second().await;
    let other = server.api.new_tenant().await;
    let run = server.api.any_run().await.run.to_string();
    let elsewhere = other.any_run().await.run.to_string();
    let export = |api: &Api, run: &str| {
        let (api, path) = (api.clone(), format!("/v1/runs/{run}/export?payloads=none"));
        tokio::spawn(async move { api.get(&path).await.is(200) })
    };
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(export(&server.api, &run));
        all.push(export(&second.api, &run));
        all.push(export(&other, &elsewhere));
    }
    for one in all {
        one.await.unwrap();
    }
    let people = |answer: Value| answer["people"].as_array().unwrap().clone();
    let here = people(server.api.get("/v1/people").await.is(200).json());
    let there = people(other.get("/v1/people").await.is(200).json());
    assert_eq!((here.len(), there.len()), (1, 1), "{here:?} {there:?}");
    assert_eq!(here[0]["person"], there[0]["person"]);
    assert_ne!(here[0]["pseudonym"], there[0]["pseudonym"]);

    let path = format!("/v1/people/{}", here[0]["pseudonym"].as_str().unwrap());
    other.get(&path).await.problem(404, "person_not_found");
    other.delete(&path).await.problem(404, "person_not_found");
    for role in ["agent", "gate", "auditor"] {
        let api = server.api.role(role).await;
        api.get("/v1/people").await.problem(403, "role_missing");
        api.get(&path).await.problem(403, "role_missing");
        api.delete(&path).await.problem(403, "role_missing");
    }
    let compliance = server.api.role("compliance").await;
    compliance.get(&path).await.is(200);
    compliance.delete(&path).await.problem(403, "role_missing");
    for wrong in ["p_", "owner", "p_0123456789ABCDEF", "p_0123456789abcdef0"] {
        let path = format!("/v1/people/{wrong}");
        server
            .api
            .get(&path)
            .await
            .problem(400, "malformed_parameter");
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stands_there_as_it_is() {
    let server = Server::start().await;
    let agent =
        json!({"name": "coder", "roles": ["agent"], "actor": {"type": "agent", "id": "coder-2"}});
    let agent = server.api.make_token(&agent).await;
    let run = agent.any_run().await.run;
    let export = agent
        .get(&format!("/v1/runs/{run}/export?payloads=none"))
        .await;
    let bundle = crate::api::bundle::Bundle::read(&export.is(200).bytes);
    let envelope: Value = serde_json::from_slice(bundle.member("export.dsse.json")).unwrap();
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap());
    let export: Value = serde_json::from_slice(&payload.unwrap()).unwrap();
    assert_eq!(
        export["predicate"]["by"],
        json!({"type": "agent", "id": "coder-2"})
    );
    let people = server.api.get("/v1/people").await.is(200).json();
    assert_eq!(people, json!({"people": []}));
}
