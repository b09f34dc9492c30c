//! Payloads read one by one and withheld from exports: who read what and why is on the ledger first.

use crate::api::audit::trust;
use crate::api::bundle::Bundle;
use crate::api::{Api, JSON};
use crate::running::Server;
use onrecord_core::payload::Committer;
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::{Code, Options, Trust, verify};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A run with payloads of several names, tiers and kinds; it is sealed.
async fn run(api: &Api) -> String {
    let open = json!({"session": {"agent": "smith"}, "payloads": [{"name": "task", "text": "work", "tier": 1}]});
    let run = api.open(&open).await.run.to_string();
    for n in 0..2 {
        api.frame(&run, &json!({"kind": "turn", "payloads": [{"name": "prompt", "text": format!("prompt {n}")}]}))
            .await
            .is(201);
        let call = json!({"kind": "tool_call", "key": format!("c{n}"), "body": {"name": "shell"},
            "payloads": [{"name": "arguments", "json": {"n": n}, "tier": 3}],
            "result": {"payloads": [{"name": "result", "text": format!("result {n}"), "media": "text/html"}]}});
        api.frame(&run, &call).await.is(201);
    }
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    run
}

/// Entries of a name about a run, from its bundle: index and predicate.
fn entries(bundle: &Bundle, name: &str) -> Vec<Value> {
    let lines = bundle.member("ledger.ndjson").split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let entries = lines.map(|line| {
        let line: Value = serde_json::from_slice(line).unwrap();
        let signed = Signed::parse(line["entry"].as_str().unwrap().as_bytes()).unwrap();
        let predicate = signed.predicate().unwrap().unwrap();
        (predicate.name(), statement(&predicate))
    });
    entries
        .filter(|(one, _)| *one == name)
        .map(|(_, value)| value)
        .collect()
}

fn statement(predicate: &Predicate) -> Value {
    match predicate {
        Predicate::Access(one) => serde_json::to_value(one).unwrap(),
        _ => Value::Null,
    }
}

async fn export(api: &Api, run: &str, query: &str) -> Vec<u8> {
    let path = format!("/v1/runs/{run}/export?{query}");
    api.get(&path).await.is(200).bytes.to_vec()
}

/// The commitment of a payload of a frame.
async fn commit(api: &Api, run: &str, seq: u64, name: &str) -> String {
    let frame = api
        .get(&format!("/v1/runs/{run}/frames/{seq}"))
        .await
        .is(200)
        .json();
    let payloads = frame["payloads"].as_array().unwrap().clone();
    let named = payloads
        .into_iter()
        .find(|one| one["name"] == name)
        .unwrap();
    named["commit"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_read_for_a_purpose_that_stands_on_the_ledger() {
    let server = Server::start().await;
    let run = run(&server.api).await;
    let auditor = server.api.role("auditor").await;
    let commit = commit(&auditor, &run, 3, "result").await;
    let path = format!("/v1/runs/{run}/payloads/{commit}");
    let before = entries(
        &Bundle::read(&export(&server.api, &run, "payloads=none").await),
        "access",
    );
    assert_eq!(before.len(), 0, "nobody has read a payload yet");

    let request = auditor
        .request(Method::GET, &path)
        .header("purpose", "matter-7.Ueberpruefung");
    let answer = crate::api::Answer::of(request).await.is(200);
    assert_eq!(&answer.bytes[..], b"result 0");
    assert_eq!(answer.header("content-type"), "text/html");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(
        answer.header("content-security-policy"),
        "sandbox; default-src 'none'"
    );
    assert_eq!(answer.header("content-disposition"), "attachment");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("onrecord-seq"), "3");
    let mut salt = [0; 32];
    assert!(onrecord_core::digest::unhex(
        answer.header("onrecord-salt"),
        &mut salt
    ));
    let mut committer = Committer::new(&salt);
    committer.update(&answer.bytes);
    assert_eq!(
        committer.finish().hex(),
        commit,
        "anybody can check what was read"
    );

    let bundle = Bundle::read(&export(&server.api, &run, "payloads=none").await);
    let access = entries(&bundle, "access");
    assert_eq!(access.len(), 1);
    assert_eq!(access[0]["purpose"], "matter-7.Ueberpruefung");
    assert_eq!(access[0]["commits"], json!([commit]));
    assert_eq!(access[0]["role"], "auditor");
    assert_eq!(access[0]["by"], server.person("a auditor").await);
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_without_role_and_purpose_and_what_is_refused_is_not_on_the_ledger() {
    let server = Server::start().await;
    let run = run(&server.api).await;
    let commit = commit(&server.api, &run, 3, "result").await;
    let path = format!("/v1/runs/{run}/payloads/{commit}");
    for role in ["agent", "gate"] {
        let api = server.api.role(role).await;
        api.get(&format!("{path}?purpose=x"))
            .await
            .problem(403, "role_missing");
    }
    server.api.get(&path).await.problem(400, "purpose_required");
    server
        .api
        .get(&format!("{path}?purpose={}", "x".repeat(64)))
        .await
        .is(200);
    let long = "x".repeat(65);
    for free in [
        "",
        &long,
        "for%20Ada",
        "a%0Ab",
        "%C3%BCber",
        "-a",
        ".a",
        "a/b",
        "%EF%BF%BF",
    ] {
        let answer = server.api.get(&format!("{path}?purpose={free}")).await;
        let problem = answer.problem(400, "code_expected");
        assert!(problem["action"].as_str().unwrap().contains("elsewhere"));
    }
    let twice = server
        .api
        .request(Method::GET, &format!("{path}?purpose=a"))
        .header("purpose", "b");
    crate::api::Answer::of(twice)
        .await
        .problem(400, "malformed_parameter");
    let broken = server
        .api
        .request(Method::GET, &path)
        .header("purpose", &b"\xff\xfe"[..]);
    crate::api::Answer::of(broken)
        .await
        .problem(400, "code_expected");
    let other = server.api.new_tenant().await;
    other
        .get(&format!("{path}?purpose=x"))
        .await
        .problem(404, "run_not_found");
    let unknown = format!("/v1/runs/{run}/payloads/{}?purpose=x", "0".repeat(64));
    server
        .api
        .get(&unknown)
        .await
        .problem(404, "payload_not_found");
    let bundle = Bundle::read(&export(&server.api, &run, "payloads=none").await);
    assert_eq!(
        entries(&bundle, "access").len(),
        1,
        "the one that was not refused"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_somebody_removed_is_said_to_be_missing() {
    let server = Server::start().await;
    let run = run(&server.api).await;
    let commit = commit(&server.api, &run, 3, "result").await;
    let mut sql = server.sql().await;
    sqlx::query("delete from payloads where commit = decode($1, 'hex')")
        .bind(&commit)
        .execute(&mut sql)
        .await
        .unwrap();
    let path = format!("/v1/runs/{run}/payloads/{commit}?purpose=x");
    server.api.get(&path).await.problem(404, "payload_missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_export_that_discloses_is_on_the_ledger_and_in_the_bundle_itself() {
    let server = Server::start().await;
    let run = run(&server.api).await;
    let bundle = Bundle::read(&export(&server.api, &run, "purpose=review").await);
    let access = entries(&bundle, "access");
    assert_eq!(access.len(), 1);
    assert_eq!(
        (&access[0]["scope"], &access[0]["purpose"]),
        (&json!("run"), &json!("review"))
    );
    // The verdict of the server's own verifier discloses nothing.
    server
        .api
        .get(&format!("/v1/runs/{run}/verification"))
        .await
        .is(200);
    let turn = format!("/v1/runs/{run}/turns/1/proof");
    server
        .api
        .get(&format!("{turn}?payloads=none"))
        .await
        .is(200);
    server
        .api
        .get(&format!("{turn}?purpose=turn"))
        .await
        .is(200);
    let bundle = Bundle::read(&export(&server.api, &run, "payloads=none").await);
    let access = entries(&bundle, "access");
    assert_eq!(access.len(), 2);
    assert_eq!(access[1]["commits"].as_array().unwrap().len(), 3);
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_withhold_by_name_tier_kind_and_run_of_frames_and_list_it() {
    let server = Server::start().await;
    let run = run(&server.api).await;
    let text = trust(&server.api).await;
    let options = || Options {
        trust: Some(Trust::parse(&text).unwrap()),
        ..Options::default()
    };
    for (rules, withheld) in [
        ("name:prompt", vec!["prompt 0", "prompt 1"]),
        ("tier:3", vec![r#"{"n":0}"#, r#"{"n":1}"#]),
        ("kind:tool_result", vec!["result 0", "result 1"]),
        ("frames:0-1", vec!["work", "prompt 0"]),
        (
            "name:prompt,frames:0-0,tier:3",
            vec!["work", "prompt 0", "prompt 1", r#"{"n":0}"#, r#"{"n":1}"#],
        ),
    ] {
        let bytes = export(&server.api, &run, &format!("purpose=p&withhold={rules}")).await;
        let report = verify(&bytes[..], &options());
        assert_eq!(
            report.verdict.code,
            Code::Verified,
            "{rules}: {:#?}",
            report.findings
        );
        let count = withheld.len() as u64;
        assert_eq!(
            (report.payloads.count, report.payloads.withheld),
            (7, count),
            "{rules}"
        );
        let bundle = Bundle::read(&bytes);
        let inside: Vec<_> = bundle
            .0
            .iter()
            .filter(|(name, _)| name.starts_with("payloads/"))
            .collect();
        assert_eq!(inside.len() as u64, 7 - count, "{rules}");
        for secret in withheld {
            assert!(
                !inside.iter().any(|(_, bytes)| bytes == secret.as_bytes()),
                "{rules}: {secret}"
            );
        }
        let lines = String::from_utf8_lossy(bundle.member("disclosures.ndjson")).into_owned();
        assert_eq!(
            lines.matches("\"withheld\"").count() as u64,
            count,
            "each of them is listed"
        );
    }
    // The same rules for one turn alone.
    let path = format!("/v1/runs/{run}/turns/1/proof?purpose=p&withhold=kind:tool_result");
    let proof = server.api.get(&path).await.is(200);
    assert!(!proof.text().contains("\"cmVzdWx0IDA=\""));
    let report = verify(&proof.bytes[..], &options());
    assert_eq!(
        report.verdict.code,
        Code::Verified,
        "{:#?}",
        report.findings
    );
    assert_eq!((report.payloads.count, report.payloads.withheld), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_read_and_record_at_once_and_the_ledger_holds() {
    let server = Server::start().await;
    let second = server.second().await;
    let run = run(&server.api).await;
    let commit = commit(&server.api, &run, 3, "result").await;
    let path = format!("/v1/runs/{run}/payloads/{commit}?purpose=x");
    let mut tasks = Vec::new();
    for n in 0..24 {
        let api = [&server.api, &second.api][n % 2].clone();
        let path = path.clone();
        tasks.push(tokio::spawn(async move {
            if n % 3 == 0 {
                api.send("/v1/runs", JSON, json!({"session": {}}).to_string())
                    .await
                    .is(201);
                return None;
            }
            let answer = api.get(&path).await.is(200);
            Some(answer.header("onrecord-ledger-index").to_owned())
        }));
    }
    let mut indexes = BTreeMap::new();
    for task in tasks {
        if let Some(index) = task.await.unwrap() {
            *indexes.entry(index).or_insert(0) += 1;
        }
    }
    assert_eq!(indexes.len(), 16, "each reading has an entry of its own");
    server.audit(&run, &[]).await;
}
