//! Seal keys rotate and are revoked; what they sealed verifies for ever, and what they would seal later does not.

use crate::api::Api;
use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::running::Server;
use onrecord_core::bundle::LedgerLine;
use onrecord_core::digest::Hash;
use onrecord_core::json;
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::{Code, Options, verify};
use serde_json::{Value, json};
use sqlx::Executor as _;
use std::path::PathBuf;

async fn keys(api: &Api) -> Value {
    api.get("/v1/keys").await.is(200).json()
}

async fn in_force(api: &Api) -> String {
    let keys = keys(api).await;
    let mut seal = keys["seal"].as_array().unwrap().iter();
    let key = seal.find(|key| key["in_force"] == true).unwrap();
    key["keyid"].as_str().unwrap().to_owned()
}

async fn rotate(api: &Api, reason: &str) -> Value {
    let request = json!({ "reason": reason });
    api.post("/v1/keys/seal/rotation", &request)
        .await
        .is(201)
        .json()
}

/// A sealed run with a payload.
async fn sealed(api: &Api) -> String {
    let run = api.any_run().await.run.to_string();
    let frame = json!({"kind": "observation", "payloads": [{"name": "p", "text": "words"}]});
    api.frame(&run, &frame).await.is(201);
    seal(api, &run).await;
    run
}

async fn seal(api: &Api, run: &str) {
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
}

fn signer(envelope: &[u8]) -> String {
    Signed::parse(envelope).unwrap().keyid.hex()
}

/// The key statements that a bundle has, as `(action, key, signer, reason)`.
fn key_statements(bundle: &Bundle) -> Vec<(String, String, String, Option<String>)> {
    let lines = bundle.member("ledger.ndjson").split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| json::typed::<LedgerLine>(line).ok());
    entries
        .filter_map(|line| {
            let signed = Signed::parse(line.entry.as_bytes()).unwrap();
            match signed.predicate().unwrap() {
                Some(Predicate::Key(key)) => Some((
                    format!("{:?} {:?}", key.action, key.role),
                    key.keyid.hex(),
                    signed.keyid.hex(),
                    key.reason,
                )),
                _ => None,
            }
        })
        .collect()
}

/// The trust file with the lines of these keys only.
async fn only(api: &Api, wanted: &[&str]) -> String {
    let keys = keys(api).await;
    let spki = |keyid: &&str| {
        let mut seal = keys["seal"].as_array().unwrap().iter();
        seal.find(|key| key["keyid"] == *keyid).unwrap()["spki"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let wanted: Vec<String> = wanted.iter().map(spki).collect();
    let keep = |line: &&str| {
        !line.starts_with("seal-key") || wanted.iter().any(|spki| line.contains(spki.as_str()))
    };
    let text = trust(api).await;
    text.lines()
        .filter(keep)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn verdict(bytes: &[u8], trust: &str) -> (Code, u8) {
    let verdict = check(bytes, trust, &[]).verdict;
    (verdict.code, verdict.exit_code)
}

fn key_files(server: &Server) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder(server))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("seal"))
        .collect();
    names.sort();
    names
}

/// The keys folder of the first tenant.
fn folder(server: &Server) -> PathBuf {
    let keys = server.data_dir.path().join("keys");
    let mut folders = std::fs::read_dir(keys)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    folders.find(|path| path.is_dir()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rotations_and_what_was_sealed_in_between() {
    let server = Server::start().await;
    let api = &server.api;
    let one = in_force(api).await;
    assert_eq!(key_files(&server), ["seal.key"]);
    let a = sealed(api).await;
    server.audit(&a, &[]).await;
    let done = rotate(api, "rotation").await;
    let two = in_force(api).await;
    assert_eq!(
        (&done["revoked"], &done["keyid"]),
        (&json!(one), &json!(two))
    );
    assert_eq!(key_files(&server), ["seal-2.key"], "the old secret is gone");
    server.audit(&a, &[]).await;
    let b = sealed(api).await;
    server.audit(&b, &[]).await;
    rotate(api, "compromised").await;
    let three = in_force(api).await;
    assert_eq!(key_files(&server), ["seal-3.key"]);

    // (a) With all keys both verify, each naming its own.
    let (report_a, bundle_a) = server.audit(&a, &[]).await;
    let (report_b, bundle_b) = server.audit(&b, &[]).await;
    let named = |found: Option<Hash>| found.unwrap().hex();
    assert_eq!(named(report_a.facts.signer), one);
    assert_eq!(named(report_b.facts.signer), two);
    for bundle in [&bundle_a, &bundle_b] {
        assert_eq!(signer(bundle.member("export.dsse.json")), three);
        assert_eq!(
            key_statements(bundle)[..1],
            [("Added Seal".to_owned(), one.clone(), one.clone(), None)]
        );
        assert_eq!(
            key_statements(bundle)[2..],
            [
                ("Added Seal".to_owned(), two.clone(), one.clone(), None),
                (
                    "Revoked Seal".to_owned(),
                    one.clone(),
                    two.clone(),
                    Some("rotation".to_owned())
                ),
                ("Added Seal".to_owned(), three.clone(), two.clone(), None),
                (
                    "Revoked Seal".to_owned(),
                    two.clone(),
                    three.clone(),
                    Some("compromised".to_owned())
                ),
            ]
        );
        // All keys that sign something in it lie in it.
        for key in [&one, &two, &three] {
            assert!(bundle.has(&format!("keys/{key}.pem")), "{key}");
        }
    }
    // (b) Only the newest: unknown, which is told from false. (c) None. (d) What lies in the bundle is no trust.
    let (a, b) = (bundle_a.write(), bundle_b.write());
    let newest = only(api, &[&three]).await;
    for bytes in [&a, &b] {
        assert_eq!(verdict(bytes, &newest), (Code::SignerUnknown, 2));
        assert_eq!(
            verdict(bytes, &only(api, &[]).await),
            (Code::SignerUnknown, 2)
        );
        let report = verify(&bytes[..], &Options::default());
        assert_eq!(
            (report.verdict.code, report.verdict.exit_code),
            (Code::NoTrust, 2)
        );
    }
    // An export from before a rotation is as good as ever, under the keys of then and under those of now.
    let text = trust(api).await;
    assert_eq!(text.matches(" until ").count(), 2);
    assert_eq!(verdict(&a, &text), (Code::Verified, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_under_another_key_id_is_refused() {
    let server = Server::start().await;
    let api = &server.api;
    let one = in_force(api).await;
    sealed(api).await;
    rotate(api, "rotation").await;
    let two = in_force(api).await;
    let b = sealed(api).await;
    let (_, bundle) = server.audit(&b, &[]).await;
    let text = trust(api).await;
    let envelope = String::from_utf8(bundle.member("seal.dsse.json").to_vec()).unwrap();
    assert_eq!(signer(envelope.as_bytes()), two);
    // Outside alone: it has to be the one inside.
    let mut outside = bundle.clone();
    outside.set("seal.dsse.json", envelope.replace(&two, &one));
    assert_eq!(verdict(&outside.write(), &text), (Code::Statement, 1));
    // Outside and inside: what was signed is another statement then.
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let mut value: Value = serde_json::from_str(&envelope).unwrap();
    let payload = base64.decode(value["payload"].as_str().unwrap()).unwrap();
    let payload = String::from_utf8(payload).unwrap().replace(&two, &one);
    value["payload"] = base64.encode(payload).into();
    value["signatures"][0]["keyid"] = one.into();
    let mut both = bundle.clone();
    both.set("seal.dsse.json", value.to_string());
    assert_eq!(verdict(&both.write(), &text), (Code::SealSignature, 1));
}

/// Whoever kept the old secret, and the database, can have the server sign with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_seal_by_a_revoked_key_is_found() {
    let server = Server::start().await;
    let api = &server.api;
    let kept = std::fs::read(folder(&server).join("seal.key")).unwrap();
    let one = in_force(api).await;
    let run = api.any_run().await.run.to_string();
    rotate(api, "compromised").await;
    let two = in_force(api).await;
    std::fs::write(folder(&server).join("seal.key"), kept).unwrap();
    let force = |keyid: &str| format!("update tenants set seal_key = '\\x{keyid}'");
    let mut sql = server.sql().await;
    sql.execute(sqlx::AssertSqlSafe(force(&one))).await.unwrap();
    seal(api, &run).await;
    sql.execute(sqlx::AssertSqlSafe(force(&two))).await.unwrap();
    let bytes = export(api, &run).await;
    let text = trust(api).await;
    assert_eq!(signer(Bundle::read(&bytes).member("seal.dsse.json")), one);
    assert_eq!(verdict(&bytes, &text), (Code::KeyRevoked, 1));
    // By the evidence alone, where the trust file is from before.
    let until = |line: &str| line.split(" until ").next().unwrap().to_owned();
    let before: Vec<String> = text.lines().map(until).collect();
    assert_eq!(
        verdict(&bytes, &(before.join("\n") + "\n")),
        (Code::KeyRevoked, 1)
    );
    // The server says the same of itself.
    let path = format!("/v1/runs/{run}/verification");
    let own = api.get(&path).await.is(200).json();
    assert_eq!(own["verdict"]["code"], "key_revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_knows_another_key_signs_with_the_one_in_force() {
    let server = Server::start().await;
    let other = server.second().await;
    // The other process has the first key open.
    sealed(&other.api).await;
    let run = other.api.any_run().await.run.to_string();
    for _ in 0..3 {
        rotate(&server.api, "rotation").await;
        let key = in_force(&server.api).await;
        let next = sealed(&other.api).await;
        for api in [&server.api, &other.api] {
            let bundle = Bundle::read(&export(api, &next).await);
            assert_eq!(signer(bundle.member("seal.dsse.json")), key);
            assert_eq!(signer(bundle.member("export.dsse.json")), key);
        }
        let head = other.api.get(&format!("/v1/runs/{run}/head")).await.is(200);
        assert_eq!(signer(&head.bytes), key);
        let frame = json!({"kind": "observation"});
        let path = format!("/v1/runs/{run}/frames?receipt=signed");
        let signed = other.api.post(&path, &frame).await;
        assert!(signed.status < 300, "{}", signed.text());
        server.audit(&next, &[]).await;
        other.audit(&next, &[]).await;
    }
    seal(&other.api, &run).await;
    server.audit(&run, &[]).await;
}

/// Openings, seals and exports of two processes while keys rotate in both.
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_opened_and_sealed_while_keys_rotate() {
    let server = Server::start().await;
    let other = server.second().await;
    let mut work = tokio::task::JoinSet::new();
    for index in 0..6 {
        let api = if index % 2 == 0 {
            &server.api
        } else {
            &other.api
        };
        let api = api.clone();
        work.spawn(async move {
            let mut runs = Vec::new();
            for _ in 0..4 {
                let run = sealed(&api).await;
                export(&api, &run).await;
                runs.push(run);
            }
            runs
        });
    }
    for index in 0..6 {
        let api = if index % 2 == 0 {
            &server.api
        } else {
            &other.api
        };
        rotate(api, "rotation").await;
    }
    let runs = work.join_all().await.concat();
    assert_eq!(runs.len(), 24);
    for run in &runs {
        server.audit(run, &[]).await;
    }
    assert_eq!(key_files(&server).len(), 1);
    assert_eq!(keys(&server.api).await["seal"].as_array().unwrap().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_is_cut_off_leaves_nothing_that_signs() {
    let server = Server::start().await;
    let api = server.api.clone();
    let one = in_force(&api).await;
    let old = std::fs::read(folder(&server).join("seal.key")).unwrap();
    // After the key file was made, the transaction fails.
    let mut sql = server.sql().await;
    sql.execute("revoke insert on checkpoints from onrecord_app")
        .await
        .unwrap();
    let failed = api
        .post("/v1/keys/seal/rotation", &json!({"reason": "rotation"}))
        .await;
    assert_eq!(failed.status, 500);
    sql.execute("grant insert on checkpoints to onrecord_app")
        .await
        .unwrap();
    assert_eq!(key_files(&server), ["seal-2.key", "seal.key"]);
    assert_eq!(in_force(&api).await, one);
    let run = sealed(&api).await;
    let (_, bundle) = server.audit(&run, &[]).await;
    assert_eq!(signer(bundle.member("seal.dsse.json")), one);
    // A restart does not make it a key either, and the next rotation makes one of its own.
    let server = server.restart().await;
    let api = server.api.clone();
    assert_eq!(in_force(&api).await, one);
    rotate(&api, "rotation").await;
    assert_eq!(key_files(&server), ["seal-2.key", "seal-3.key"]);
    // After the commit, the process ends before the secret is destroyed: the next start does it.
    std::fs::write(folder(&server).join("seal.key"), old).unwrap();
    let server = server.restart().await;
    assert_eq!(key_files(&server), ["seal-2.key", "seal-3.key"]);
    server.audit(&run, &[]).await;
    server.audit(&sealed(&server.api).await, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_force_whose_file_is_gone_is_named() {
    let server = Server::start().await;
    rotate(&server.api, "rotation").await;
    let (data_dir, database) = (server.data_dir.clone(), server.database.clone());
    std::fs::remove_file(folder(&server).join("seal-2.key")).unwrap();
    let keyid = in_force(&server.api).await;
    server.stop().await;
    let started = onrecord::start::start(&database.config(data_dir.path())).await;
    let refused = started.err().unwrap().to_string();
    assert!(refused.contains(&keyid), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_rotate_and_with_which_words() {
    let server = Server::start().await;
    let path = "/v1/keys/seal/rotation";
    for role in ["agent", "gate", "auditor", "compliance"] {
        let api = server.api.role(role).await;
        api.get("/v1/keys").await.problem(403, "role_missing");
        let refused = api.post(path, &json!({"reason": "x"})).await;
        refused.problem(403, "role_missing");
    }
    for body in [
        json!({}),
        json!({"reason": ""}),
        json!({"reason": "x".repeat(201)}),
        json!({"reason": "a\nb"}),
        json!({"reason": 1}),
        json!({"reason": "x", "keyid": "abc"}),
        json!({"reason": "x", "more": 1}),
        json!([]),
    ] {
        let refused = server.api.post(path, &body).await;
        refused.problem(400, "malformed_parameter");
    }
    // A request that comes twice revokes one key.
    let keyid = in_force(&server.api).await;
    let named = json!({"reason": "x", "keyid": keyid});
    server.api.post(path, &named).await.is(201);
    let again = server.api.post(path, &named).await;
    again.problem(409, "key_not_in_force");
    // Another tenant has its own.
    let other = server.api.new_tenant().await;
    let theirs = in_force(&other).await;
    rotate(&server.api, "rotation").await;
    assert_eq!(in_force(&other).await, theirs);
    assert_eq!(keys(&other).await["seal"].as_array().unwrap().len(), 1);
    let run = sealed(&other).await;
    let path = format!("/v1/runs/{run}/verification");
    let own = other.get(&path).await.is(200).json();
    assert_eq!(own["verdict"]["code"], "verified");
}
