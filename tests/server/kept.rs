//! Payloads that an agent keeps: their commitments are recorded, and they can be presented later.

use crate::api::Api;
use crate::api::audit::{check, export, trust};
use crate::running::Server;
use crate::signing_agent::{commit, kept, salt, size};
use onrecord_core::digest::Hash;
use onrecord_verify::{Code, Options, Presented, Report, Trust, verify};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

const WORDS: &str = "what nobody sees";
const DEK: [u8; 32] = [7; 32];

/// A sealed run of an agent that does not sign, with two payloads that it kept and one that it sent.
async fn recorded(api: &Api) -> (String, u64) {
    let opening = json!({"session": {}, "payloads": [kept("task", "the task", [1; 32])]});
    let run = api.open(&opening).await.run.to_string();
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let call = json!({"kind": "tool_call", "key": "c", "body": {"name": "sh"}, "payloads": [{"name": "arguments", "text": "ls"}],
        "result": {"payloads": [kept("output", WORDS, DEK)]}});
    let answer = api.frame(&run, &call).await.is(201).json();
    // A retry is the same, another commitment is not.
    assert_eq!(api.frame(&run, &call).await.is(200).json(), answer);
    let mut other = call.clone();
    other["result"]["payloads"][0] = kept("output", WORDS, [8; 32]);
    api.frame(&run, &other).await.problem(409, "key_conflict");
    let path = format!("/v1/runs/{run}/seal");
    api.post(&path, &json!({})).await.is(201);
    (run, answer["result"]["seq"].as_u64().unwrap())
}

fn presented(text: &str, dek: [u8; 32], of: &str, of_dek: [u8; 32]) -> Presented {
    Presented {
        commit: commit(of_dek, of.as_bytes()).parse().unwrap(),
        salt: Hash(salt(dek)),
        data: text.as_bytes().to_vec(),
    }
}

fn verified(bytes: &[u8], trust: &str, presented: Vec<Presented>) -> Report {
    let options = Options {
        trust: Some(Trust::parse(trust).unwrap()),
        presented,
        ..Options::default()
    };
    verify(bytes, &options)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_keeps_is_presented_offline() {
    let server = Server::start().await;
    let api = &server.api;
    let (run, seq) = recorded(api).await;
    let (report, bundle) = server.audit(&run, &[]).await;
    assert_eq!(
        (report.payloads.not_kept, report.payloads.disclosed),
        (2, 1)
    );
    let not_checked = |report: &Report| report.not_checked.join("\n");
    assert!(not_checked(&report).contains("2 payloads that the agent kept"));
    let states = String::from_utf8(bundle.member("disclosures.ndjson").to_vec()).unwrap();
    assert_eq!(states.matches("not_kept").count(), 2, "{states}");
    assert!(
        bundle
            .0
            .iter()
            .all(|(_, member)| member != WORDS.as_bytes())
    );

    let (bytes, text) = (export(api, &run).await, trust(api).await);
    let good = || presented(WORDS, DEK, WORDS, DEK);
    let report = verified(&bytes, &text, vec![good()]);
    assert_eq!(report.verdict.code, Code::Verified, "{:?}", report.findings);
    assert_eq!((report.presented.len(), report.presented[0].seq), (1, seq));
    assert!(not_checked(&report).contains("1 payloads that the agent kept"));
    assert!(onrecord_verify::render(&report).contains("Presented "));
    // Twice is once, and one that was sent may be presented too, by whoever has its salt.
    let report = verified(
        &bytes,
        &text,
        vec![
            good(),
            good(),
            presented("the task", [1; 32], "the task", [1; 32]),
        ],
    );
    assert_eq!(report.verdict.code, Code::Verified);
    assert!(!not_checked(&report).contains("kept"));
    for (what, wrong) in [
        (
            "another payload",
            presented("what nobody saw", DEK, WORDS, DEK),
        ),
        ("another salt", presented(WORDS, [8; 32], WORDS, DEK)),
        (
            "of another bucket",
            presented(&WORDS.repeat(40), DEK, WORDS, DEK),
        ),
        ("in no frame", presented(WORDS, [9; 32], WORDS, [9; 32])),
    ] {
        let verdict = verified(&bytes, &text, vec![good(), wrong]).verdict;
        assert_eq!(
            (verdict.code, verdict.exit_code),
            (Code::PayloadCommit, 1),
            "{what}"
        );
    }
    // A turn alone; and a ledger has no payloads, nor a broken run all of its own.
    let path = format!("/v1/runs/{run}/turns/1/proof?purpose=test");
    let proof = api.get(&path).await.is(200).bytes;
    assert_eq!(check(&proof, &text, &[]).verdict.exit_code, 0);
    let report = verified(&proof, &text, vec![good()]);
    assert_eq!((report.verdict.exit_code, report.presented.len()), (0, 1));
    let mut torn = bundle.clone();
    let frames = torn.member("frames.ndjson").to_vec();
    torn.set("frames.ndjson", &frames[..frames.len() / 3]);
    let report = verified(&torn.write(), &text, vec![good()]);
    assert_eq!(report.verdict.exit_code, 1);
    assert!(
        report
            .findings
            .iter()
            .all(|found| found.code != Code::PayloadCommit),
        "{:?}",
        report.findings
    );
    assert!(not_checked(&report).contains("presented payload"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_keeps_is_presented_to_the_server() {
    let server = Server::start().await;
    let api = &server.api;
    let (run, seq) = recorded(api).await;
    let hex = |bytes: [u8; 32]| Hash(bytes).hex();
    use base64::Engine as _;
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let commitment = commit(DEK, WORDS.as_bytes());
    let path = |commit: &str| format!("/v1/runs/{run}/payloads/{commit}/presentation");
    let path_of = path(&commitment);
    let agent = api.role("agent").await;
    for (request, matches) in [
        (json!({"salt": hex(salt(DEK)), "text": WORDS}), true),
        (json!({"dek": base64(&DEK), "text": WORDS}), true),
        (
            json!({"dek": base64(&DEK), "base64": base64(WORDS.as_bytes())}),
            true,
        ),
        (json!({"salt": hex(salt(DEK)), "text": "other"}), false),
        (json!({"salt": hex(DEK), "text": WORDS}), false),
        (json!({"dek": base64(&DEK), "json": WORDS}), false),
    ] {
        let answer = agent.post(&path_of, &request).await.is(200).json();
        assert_eq!(
            answer,
            json!({"matches": matches, "commit": commitment, "seq": seq}),
            "{request}"
        );
    }
    let good = json!({"dek": base64(&DEK), "text": WORDS});
    for (request, code, pointer) in [
        (json!({}), "missing_member", ""),
        (json!({"text": WORDS}), "missing_member", ""),
        (json!({"dek": base64(&DEK)}), "missing_member", ""),
        (
            json!({"dek": base64(&DEK), "salt": hex(DEK), "text": WORDS}),
            "malformed_member",
            "/salt",
        ),
        (
            json!({"dek": base64(&DEK[1..]), "text": WORDS}),
            "malformed_member",
            "/dek",
        ),
        (
            json!({"salt": "x", "text": WORDS}),
            "malformed_member",
            "/salt",
        ),
        (
            json!({"dek": base64(&DEK), "text": WORDS, "base64": ""}),
            "malformed_member",
            "/base64",
        ),
        (
            json!({"dek": base64(&DEK), "text": 1}),
            "malformed_member",
            "/text",
        ),
        (
            json!({"dek": base64(&DEK), "base64": "?"}),
            "malformed_member",
            "/base64",
        ),
        (
            json!({"dek": base64(&DEK), "text": WORDS, "more": 1}),
            "unknown_member",
            "/more",
        ),
        (
            json!({"dek": base64(&DEK), "json": 9007199254740993_u64}),
            "json_integer_range",
            "/json",
        ),
    ] {
        let problem = agent.post(&path_of, &request).await.problem(422, code);
        assert_eq!(problem["pointer"], pointer, "{request}");
    }
    agent
        .post(&path_of, &json!([]))
        .await
        .problem(422, "json_not_object");
    agent
        .post(&path(&"0".repeat(64)), &good)
        .await
        .problem(404, "payload_not_found");
    agent
        .post(&path("x"), &good)
        .await
        .problem(400, "malformed_parameter");
    let other = api.new_tenant().await;
    other
        .post(&path_of, &good)
        .await
        .problem(404, "run_not_found");
    // One that the store has, by what its bundle discloses.
    let (_, bundle) = server.audit(&run, &[]).await;
    let states = String::from_utf8(bundle.member("disclosures.ndjson").to_vec()).unwrap();
    let sent = states.lines().find(|line| line.contains("salt")).unwrap();
    let sent: Value = serde_json::from_str(sent).unwrap();
    let path = path(sent["commit"].as_str().unwrap());
    let answer = agent
        .post(&path, &json!({"salt": sent["salt"], "text": "ls"}))
        .await
        .is(200)
        .json();
    assert_eq!(answer["matches"], true);
    // Nothing of what was shown is kept or told.
    let rows: Vec<(i64, i64)> = sqlx::query_as("select count(*), coalesce(sum(octet_length(ciphertext)), 0)::bigint from payloads where wrapped_dek = ''")
        .fetch_all(&mut server.sql().await)
        .await
        .unwrap();
    assert_eq!(rows, [(2, 0)]);
    assert!(!crate::log::text().contains(WORDS));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_be_said_of_a_payload_that_is_kept() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run;
    let with = |change: Value| {
        let mut payload = kept("p", WORDS, DEK);
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(payload.as_object_mut().unwrap().remove(name)),
                value => payload[name] = value.clone(),
            }
        }
        json!({"kind": "observation", "payloads": [payload]})
    };
    for (change, code, pointer) in [
        (json!({"commit": null}), "missing_member", "/payloads/0"),
        (json!({"size": null}), "missing_member", "/payloads/0"),
        (json!({"media": null}), "missing_member", "/payloads/0"),
        (json!({"name": null}), "missing_member", "/payloads/0"),
        (
            json!({"kept": null}),
            "malformed_member",
            "/payloads/0/size",
        ),
        (
            json!({"kept": true}),
            "malformed_member",
            "/payloads/0/kept",
        ),
        (json!({"kept": 0}), "malformed_member", "/payloads/0/kept"),
        (json!({"text": "x"}), "malformed_member", "/payloads/0/kept"),
        (
            json!({"json": null, "base64": ""}),
            "malformed_member",
            "/payloads/0/kept",
        ),
        (
            json!({"dek": "A".repeat(43) + "="}),
            "malformed_member",
            "/payloads/0/dek",
        ),
        (json!({"size": 0}), "malformed_member", "/payloads/0/size"),
        (json!({"size": 255}), "malformed_member", "/payloads/0/size"),
        (
            json!({"size": 65_792}),
            "malformed_member",
            "/payloads/0/size",
        ),
        (
            json!({"size": -256}),
            "malformed_member",
            "/payloads/0/size",
        ),
        (
            json!({"size": 9_007_199_254_740_992_u64}),
            "json_integer_range",
            "/payloads/0/size",
        ),
        (
            json!({"commit": "AB".repeat(32)}),
            "malformed_member",
            "/payloads/0/commit",
        ),
        (json!({"tier": 4}), "malformed_member", "/payloads/0/tier"),
        (json!({"salt": "x"}), "unknown_member", "/payloads/0/salt"),
    ] {
        let problem = server
            .api
            .frame(&run, &with(change.clone()))
            .await
            .problem(422, code);
        assert_eq!(problem["pointer"], pointer, "{change} {problem}");
    }
    assert_eq!(server.api.size(&run).await, 1);
    // Larger than any that is sent, and of any tier.
    let large = with(json!({"size": 1_u64 << 40, "tier": 0}));
    server.api.frame(&run, &large).await.is(201);
    server.audit(&run, &[]).await;
}

fn onrecord(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = onrecord(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_is_made_and_presented_by_command() {
    let server = Server::start().await;
    let api = &server.api;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let payload = file("payload", b"\x00\xff bytes");
    let made: Value = serde_json::from_str(&printed(&["commit", &payload, "--json"])).unwrap();
    use base64::Engine as _;
    let standard = base64::engine::general_purpose::STANDARD;
    let text = made["dek"].as_str().unwrap().to_owned();
    let dek: [u8; 32] = standard.decode(&text).unwrap().try_into().unwrap();
    // As anybody would make it.
    assert_eq!(made["commit"], commit(dek, b"\x00\xff bytes"));
    assert_eq!(made["salt"], Hash(salt(dek)).hex());
    assert_eq!(made["size"], size(b"\x00\xff bytes"));
    let again: Value = serde_json::from_str(&printed(&["commit", &payload, "--json"])).unwrap();
    assert_ne!(again["commit"], made["commit"]);
    let same = ["commit", &payload, "--json", "--dek", &text];
    assert_eq!(
        serde_json::from_str::<Value>(&printed(&same)).unwrap(),
        made
    );
    let words = printed(&["commit", &payload, "--dek", &text]);
    assert!(words.contains(made["commit"].as_str().unwrap()), "{words}");
    for args in [
        &["commit", &payload, "--dek", "AAAA"][..],
        &["commit", &payload, "--presentation"],
        &[
            "commit",
            &payload,
            "--presentation",
            "--json",
            "--dek",
            &text,
        ],
        &["commit", "/nowhere"],
    ] {
        assert!(!onrecord(args).status.success(), "{args:?}");
    }

    let run = api.any_run().await.run;
    let frame = json!({"kind": "observation", "payloads": [{"name": "p", "media": "application/octet-stream", "kept": false,
        "commit": made["commit"], "size": made["size"]}]});
    api.frame(&run, &frame).await.is(201);
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let bundle = file("run.tar", &export(api, &run).await);
    let trust = file("trust.txt", trust(api).await.as_bytes());
    let line = printed(&["commit", &payload, "--presentation", "--dek", &text]);
    let good = file("good.ndjson", line.as_bytes());
    let other = printed(&["commit", &trust, "--presentation", "--dek", &text]);
    let other = file("other.ndjson", other.as_bytes());
    let verify = |more: &[&str]| {
        let output =
            onrecord(&[&["verify", "--trust", &trust, "--json"], more, &[&bundle]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report)
    };
    let (code, report) = verify(&["--present", &good]);
    assert_eq!(
        (code, &report["presented"][0]["commit"]),
        (0, &made["commit"]),
        "{report}"
    );
    let (code, report) = verify(&[]);
    assert_eq!((code, report.get("presented")), (0, None));
    let inline = format!("--present={other}");
    let (code, report) = verify(&["--present", &good, &inline]);
    assert_eq!(
        (code, &report["verdict"]["code"]),
        (1, &json!("payload_commit"))
    );
    for wrong in [
        &["--present"][..],
        &["--present", "/nowhere"],
        &["--present", &trust],
    ] {
        assert_eq!(verify(wrong).0, 3, "{wrong:?}");
    }
}
