//! A server and its witnesses, which are processes of their own with their own files.

use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::running::Server;
use crate::witness::Process;
use onrecord::anchor::{Config, Policy};
use onrecord::witness::Witness;
use onrecord_core::note::{Note, VerifierKey};
use onrecord_verify::{Code, Options, Report, Trust, verify};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A witness's folder and process.
pub struct Other {
    folder: TempDir,
    pub key: VerifierKey,
    process: Process,
}

impl Other {
    pub async fn start(name: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let key = Witness::init(name, folder.path()).unwrap();
        let process = Process::start(folder.path(), "127.0.0.1:0").await;
        Self {
            folder,
            key,
            process,
        }
    }

    pub fn pair(&self) -> String {
        format!("{}={}", self.process.url, self.key)
    }

    /// Has it witness the ledger of a server.
    pub async fn know(&self, trust: &str) {
        know(self.folder.path(), trust);
        self.process.hang_up();
        self.process.reloaded().await;
    }
}

fn know(folder: &Path, trust: &str) {
    let logs = trust.lines().filter(|line| line.starts_with("log "));
    let logs: String = logs.map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("logs.txt"), logs).unwrap();
}

/// The server's trust file with witnesses and a quorum in it.
pub fn with_witnesses(trust: &str, others: &[&Other], quorum: &str) -> String {
    let mut lines = trust.replace("quorum none\n", "");
    for (number, other) in (1..).zip(others) {
        lines += &format!("witness w{number} {}\n", other.key);
    }
    lines + quorum
}

pub async fn sealed(server: &Server) -> String {
    let run = server.api.any_run().await.run.to_string();
    let frame =
        json!({"kind": "observation", "key": "k", "payloads": [{"name": "p", "text": "words"}]});
    server.api.frame(&run, &frame).await.is(201);
    let path = format!("/v1/runs/{run}/seal");
    let seal = server.api.post(&path, &json!({})).await.is(201).json();
    // A seal waits for no witness.
    assert_eq!(seal["cosigned_by"], json!([]));
    run
}

async fn seal_of(server: &Server, run: &str) -> Value {
    let path = format!("/v1/runs/{run}/seal");
    server.api.get(&path).await.is(200).json()
}

fn verdict(bytes: &[u8], trust: &str) -> Report {
    let options = Options {
        trust: Some(Trust::parse(trust).unwrap()),
        full: true,
        ..Options::default()
    };
    verify(bytes, &options)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_witnesses_saw_verifies_under_a_quorum_and_without_one_does_not() {
    let (one, two) = tokio::join!(Other::start("w.example/1"), Other::start("w.example/2"));
    let policy = Policy::of_all(&[one.pair(), two.pair()]).unwrap();
    let config = Config {
        witnesses: Some(policy),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    let own = trust(&server.api).await;
    let both = with_witnesses(&own, &[&one, &two], "group both all w1 w2\nquorum both\n");
    let any = with_witnesses(&own, &[&one, &two], "group any any w1 w2\nquorum any\n");
    let run = sealed(&server).await;

    // Neither knows the ledger: they say so, and nothing else changes.
    server.app.anchors.round().await;
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    for witness in state["witnesses"].as_array().unwrap() {
        let problem = witness["problem"].as_str().unwrap();
        assert!(
            problem.contains("404") && problem.contains("log"),
            "{problem}"
        );
    }
    assert_eq!(state.get("cosigned_size"), None);
    server.api.get("/health/ready").await.is(200);
    let bytes = export(&server.api, &run).await;
    assert_eq!(check(&bytes, &own, &[]).verdict.code, Code::Verified);
    let report = verdict(&bytes, &any);
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::WitnessQuorum, 2)
    );

    // One of them knows it: that is not enough for the server, and what it signed is kept.
    one.know(&own).await;
    let server = server.restart().await;
    server.app.anchors.round().await;
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    assert!(
        state["witnesses"][0]["cosigned"]["number"].is_u64(),
        "{state}"
    );
    assert_eq!(state["witnesses"][0].get("problem"), None);
    assert_eq!(state.get("cosigned_size"), None);
    assert_eq!(seal_of(&server, &run).await["cosigned_by"], json!([]));

    // Both do: the kept proof is one under what they signed, once and for good.
    two.know(&own).await;
    let server = server.restart().await;
    let before = seal_of(&server, &run).await;
    server.app.anchors.round().await;
    let seal = seal_of(&server, &run).await;
    assert_eq!(seal["cosigned_by"], json!(["w.example/1", "w.example/2"]));
    assert_ne!(seal["proof"], before["proof"]);
    assert_eq!(seal["seal"], before["seal"]);
    let bytes = export(&server.api, &run).await;
    for trust in [&own, &both, &any] {
        let report = verdict(&bytes, trust);
        assert_eq!(
            report.verdict.code,
            Code::Verified,
            "{:#?}",
            report.findings
        );
    }
    let report = verdict(&bytes, &both);
    assert!(
        report
            .ledger
            .text
            .contains("cosigned by w.example/1, w.example/2")
    );
    let bundle = Bundle::read(&bytes);
    for other in [&one, &two] {
        let member = format!("keys/{:08x}.vkey", other.key.key_id());
        assert_eq!(
            bundle.member(&member),
            format!("{}\n", other.key).as_bytes()
        );
    }
    // The audit that every story is followed by.
    server.audit(&run, &[]).await;

    // What is published is what they cosigned, also the ledger as a whole.
    let (_, log) = own.split_once("/t/").unwrap();
    let log = log.split('+').next().unwrap();
    let published = server
        .api
        .anonymous()
        .get(&format!("/t/{log}/checkpoint"))
        .await
        .is(200);
    let note = Note::parse(&published.text()).unwrap();
    assert_eq!(
        note.signatures_of(&one.key).count() + note.signatures_of(&two.key).count(),
        2
    );
    let archive = server.api.get("/v1/ledger/archive").await.is(200).bytes;
    let report = verdict(&archive, &both);
    assert_eq!(
        report.verdict.code,
        Code::Verified,
        "{:#?}",
        report.findings
    );

    // A later checkpoint changes nothing of it, and the next seal has its own.
    let next = sealed(&server).await;
    server.app.anchors.round().await;
    assert_eq!(seal_of(&server, &run).await, seal);
    assert_eq!(
        seal_of(&server, &next).await["cosigned_by"],
        seal["cosigned_by"]
    );
    let report = verdict(&export(&server.api, &next).await, &both);
    assert_eq!(
        report.verdict.code,
        Code::Verified,
        "{:#?}",
        report.findings
    );

    // A third that nobody pinned is ignored; one that is demanded and did not sign is missed.
    let three = Other::start("w.example/3").await;
    let all = with_witnesses(
        &own,
        &[&one, &two, &three],
        "group all all w1 w2 w3\nquorum all\n",
    );
    let report = verdict(&export(&server.api, &next).await, &all);
    assert_eq!(report.verdict.code, Code::WitnessQuorum);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_that_is_away_holds_nothing_up() {
    let (one, two) = tokio::join!(Other::start("w.example/1"), Other::start("w.example/2"));
    let lines = format!(
        "witness a {} {}\nwitness b {} {}\ngroup any any a b\nquorum any\n",
        one.key, one.process.url, two.key, two.process.url
    );
    let config = Config {
        witnesses: Some(Policy::parse(&lines).unwrap()),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    let own = trust(&server.api).await;
    one.know(&own).await;
    two.know(&own).await;
    let first = sealed(&server).await;
    server.app.anchors.round().await;
    assert_eq!(
        seal_of(&server, &first).await["cosigned_by"],
        json!(["w.example/1", "w.example/2"])
    );

    two.process.kill().await;
    let second = sealed(&server).await;
    server.app.anchors.round().await;
    // The other is enough by the file.
    assert_eq!(
        seal_of(&server, &second).await["cosigned_by"],
        json!(["w.example/1"])
    );
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    assert!(state["witnesses"][1]["problem"].is_string(), "{state}");
    assert_eq!(state["rewound"], false);
    server.api.get("/health/ready").await.is(200);

    one.process.kill().await;
    let third = sealed(&server).await;
    server.app.anchors.round().await;
    assert_eq!(seal_of(&server, &third).await["cosigned_by"], json!([]));
    assert_eq!(
        check(&export(&server.api, &third).await, &own, &[])
            .verdict
            .code,
        Code::Verified
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_witness_is_its_signature() {
    let one = Other::start("w.example/1").await;
    // At the address of one answers another, under its own key.
    let stranger = Other::start("w.example/1").await;
    let pair = format!("{}={}", stranger.process.url, one.key);
    let config = Config {
        witnesses: Some(Policy::of_all(&[pair]).unwrap()),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    stranger.know(&trust(&server.api).await).await;
    let run = sealed(&server).await;
    server.app.anchors.round().await;
    assert_eq!(seal_of(&server, &run).await["cosigned_by"], json!([]));
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    let problem = state["witnesses"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("no cosignature"), "{problem}");

    // Only those who may read the ledger see it.
    let agent = server.api.role("agent").await;
    agent
        .get("/v1/ledger/anchors")
        .await
        .problem(403, "role_missing");
    let other = server.api.new_tenant().await;
    let state = other.get("/v1/ledger/anchors").await.is(200).json();
    assert_eq!(state["witnesses"][0].get("problem"), None);
}

/// A proof's note has the log's signature first.
#[tokio::test(flavor = "multi_thread")]
async fn a_cosigned_proof_leads_to_the_checkpoint_that_was_signed() {
    let one = Other::start("w.example/1").await;
    let config = Config {
        witnesses: Some(Policy::of_all(&[one.pair()]).unwrap()),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    one.know(&trust(&server.api).await).await;
    let run = sealed(&server).await;
    server.app.anchors.round().await;
    let seal = seal_of(&server, &run).await;
    let proof = onrecord_core::note::TlogProof::parse(seal["proof"].as_str().unwrap()).unwrap();
    let note = Note::parse(&proof.checkpoint).unwrap();
    assert_eq!(note.signatures.len(), 2);
    assert_eq!(note.signatures_of(&one.key).count(), 1);
    // What the witness keeps is the same checkpoint, with the log's signature.
    let kept = fs::read_dir(one.folder.path()).unwrap();
    let kept = kept.map(|entry| entry.unwrap().path());
    let kept = kept.filter(|path| path.extension().is_some_and(|end| end == "checkpoint"));
    let kept = fs::read_to_string(kept.last().unwrap()).unwrap();
    assert_eq!(Note::parse(&kept).unwrap().text, note.text);
}
