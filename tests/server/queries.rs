//! Queries over many runs: each stands on the ledger with its purpose, and filters are kept under names.

use crate::api::Api;
use crate::api::audit::{check, trust};
use crate::running::Server;
use onrecord::record::query::Question;
use onrecord_core::digest::Hash;
use onrecord_core::statement::{Predicate, QUERY_SUBJECT, Signed};
use serde_json::{Value, json};

/// Whoever has a token, as the server sees them.
async fn caller(server: &Server, api: &Api) -> onrecord::access::Caller {
    let token = api.token.as_deref().unwrap();
    let callers = server.app.recorder.callers();
    callers.look_up(token).await.unwrap()
}

fn question(filter: &str) -> Question {
    Question {
        resource: "frames",
        filter: Some(filter.to_owned()),
        by: vec!["day".to_owned(), "verdict".to_owned()],
        format: Some("csv"),
        ..Question::default()
    }
}

async fn put(api: &Api, name: &str, body: &Value) -> crate::api::Answer {
    let path = format!("/v1/saved-queries/{name}");
    let request = api.request(reqwest::Method::PUT, &path);
    let request = request.header("content-type", "application/json");
    crate::api::Answer::of(request.body(body.to_string())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_question_stands_on_the_ledger_and_what_it_asked_beside_it() {
    let server = Server::start().await;
    let auditor = server.api.role("auditor").await;
    let caller = caller(&server, &auditor).await;
    // Many at once share a transaction; each has an entry of its own.
    let asked = (0..20).map(|number| {
        let (recorder, caller) = (server.app.recorder.clone(), caller.clone());
        tokio::spawn(async move {
            let question = question(&format!("actor = \"person {number}\""));
            let index = recorder.enter_query(&caller, "case-7", &question).await;
            (number, index.unwrap())
        })
    });
    let mut asked = futures_util::future::join_all(asked)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect::<Vec<_>>();
    asked.sort_by_key(|(_, index)| *index);

    // In pages, the last first; what is listed is what the ledger's digest is of.
    let (mut path, mut listed) = ("/v1/queries?limit=7".to_owned(), Vec::new());
    loop {
        let page = auditor.get(&path).await.is(200).json();
        listed.extend(page["queries"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        path = format!("/v1/queries?limit=7&before={next}");
    }
    listed.reverse();
    assert_eq!(listed.len(), asked.len());
    let by = server.person("a auditor").await;
    let mut nonces = std::collections::BTreeSet::new();
    for (row, (number, index)) in listed.iter().zip(&asked) {
        assert_eq!(row["index"], *index);
        assert_eq!((&row["by"], &row["purpose"]), (&by, &json!("case-7")));
        let text = row["text"].as_str().unwrap();
        let said: Value = serde_json::from_str(text).unwrap();
        assert_eq!(said["filter"], format!("actor = \"person {number}\""));
        assert_eq!(said["by"], json!(["day", "verdict"]));
        assert_eq!(
            (&said["format"], &said["resource"]),
            (&json!("csv"), &json!("frames"))
        );
        nonces.insert(said["nonce"].as_str().unwrap().to_owned());
        let entry = auditor.get(&format!("/v1/ledger/entries/{index}")).await;
        let signed = Signed::parse(&entry.is(200).bytes).unwrap();
        assert_eq!(signed.subject, QUERY_SUBJECT);
        assert_eq!(signed.digest, Hash::of(&[text.as_bytes()]));
        let Some(Predicate::Query(query)) = signed.predicate().unwrap() else {
            panic!("{signed:?}")
        };
        assert_eq!(
            (&query.resource[..], &query.purpose[..]),
            ("frames", "case-7")
        );
        assert_eq!(query.at.to_string(), row["at"]);
    }
    assert_eq!(
        nonces.len(),
        asked.len(),
        "each has a random member of its own"
    );
    let archive = auditor.get("/v1/ledger/archive").await.is(200).bytes;
    assert!(!String::from_utf8_lossy(&archive).contains("person 7"));
    let report = check(&archive, &trust(&server.api).await, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_is_removed_and_the_entry_stays() {
    let server = Server::start().await;
    let compliance = server.api.role("compliance").await;
    let caller = caller(&server, &compliance).await;
    let recorder = &server.app.recorder;
    let question = question("actor = \"Ada\"");
    let index = recorder
        .enter_query(&caller, "dsr-3", &question)
        .await
        .unwrap();
    let kept = recorder
        .enter_query(&caller, "dsr-4", &question)
        .await
        .unwrap();
    let entry = format!("/v1/ledger/entries/{index}");
    let before = compliance.get(&entry).await.is(200).bytes;

    let path = format!("/v1/queries/{index}");
    compliance.delete(&path).await.problem(403, "role_missing");
    let other = server.api.new_tenant().await;
    other.delete(&path).await.problem(404, "query_not_found");
    server.api.delete(&path).await.is(204);
    server
        .api
        .delete(&path)
        .await
        .problem(404, "query_not_found");
    let left = compliance.get("/v1/queries").await.is(200).json();
    let left = left["queries"].as_array().unwrap();
    assert_eq!((left.len(), &left[0]["index"]), (1, &json!(kept)));
    assert_eq!(compliance.get(&entry).await.is(200).bytes, before);
    let archive = server.api.get("/v1/ledger/archive").await.is(200).bytes;
    let report = check(&archive, &trust(&server.api).await, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);

    let agent = server.api.role("agent").await;
    agent.get("/v1/queries").await.problem(403, "role_missing");
    for wrong in ["limit=0", "limit=501", "limit=x", "before=-1"] {
        let path = format!("/v1/queries?{wrong}");
        compliance
            .get(&path)
            .await
            .problem(400, "malformed_parameter");
    }
    let nobody = json!({"queries": []});
    assert_eq!(other.get("/v1/queries").await.is(200).json(), nobody);
    // What is a secret is not looked for by name.
    let secret = Question {
        filter: Some("label = \"ghp_016C7e2fX9bQ4sL8vR1tY6uW3zA5dE0hJ2kN\"".to_owned()),
        ..question
    };
    let refused = recorder.enter_query(&caller, "leak-1", &secret).await;
    assert!(refused.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_kept_under_names() {
    let server = Server::start().await;
    let auditor = server.api.role("auditor").await;
    let failed = json!({"resource": "runs", "filter": "outcome = failed"});
    let made = put(&auditor, "failed", &failed).await.is(201).json();
    assert_eq!(
        (&made["name"], &made["filter"]),
        (&json!("failed"), &failed["filter"])
    );
    assert!(
        made["by"]["id"].as_str().unwrap().starts_with("p_"),
        "{made}"
    );
    put(&auditor, "failed", &failed).await.is(200);
    let changed = json!({"resource": "runs", "filter": "outcome in (failed, cancelled)"});
    put(&auditor, "failed", &changed).await.is(200);
    put(
        &auditor,
        "Open.runs_2",
        &json!({"resource": "runs", "filter": "status = open"}),
    )
    .await
    .is(201);
    let read = auditor.get("/v1/saved-queries/failed").await.is(200).json();
    assert_eq!(read["filter"], changed["filter"]);
    let first = auditor
        .get("/v1/saved-queries?limit=1")
        .await
        .is(200)
        .json();
    assert_eq!(first["saved"][0]["name"], "Open.runs_2");
    let path = format!(
        "/v1/saved-queries?after={}",
        first["next"].as_str().unwrap()
    );
    let rest = auditor.get(&path).await.is(200).json();
    assert_eq!(rest["saved"], json!([read]));
    assert_eq!(rest.get("next"), None);

    // A filter that is none is refused with its place, and leaves what is kept.
    let wrong = json!({"resource": "runs", "filter": "outcome = lost"});
    let problem = put(&auditor, "failed", &wrong)
        .await
        .problem(400, "malformed_filter");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("at character 11: "), "{detail}");
    for (name, body, code) in [
        ("two%20words", &failed, "code_expected"),
        (
            "x",
            &json!({"resource": "payloads", "filter": "size = 1"}),
            "malformed_parameter",
        ),
        ("x", &json!({"filter": "size = 1"}), "malformed_parameter"),
        (
            "x",
            &json!({"resource": "runs", "filter": ""}),
            "malformed_filter",
        ),
        (
            "x",
            &json!({"resource": "runs", "filter": "size = 1", "more": 1}),
            "malformed_parameter",
        ),
    ] {
        put(&auditor, name, body).await.problem(400, code);
    }
    let agent = server.api.role("agent").await;
    put(&agent, "failed", &failed)
        .await
        .problem(403, "role_missing");
    for path in ["/v1/saved-queries", "/v1/saved-queries/failed"] {
        agent.get(path).await.problem(403, "role_missing");
    }
    let other = server.api.new_tenant().await;
    other
        .get("/v1/saved-queries/failed")
        .await
        .problem(404, "saved_query_not_found");
    let path = "/v1/saved-queries/failed";
    assert_eq!(auditor.get(path).await.is(200).json(), read);
    auditor.delete(path).await.is(204);
    auditor
        .delete(path)
        .await
        .problem(404, "saved_query_not_found");
}
