//! What the specification says is found, by whom it is said to be found: the operator plays with everything that it has, and
//! each party outside is a process of its own with nothing but its own files.
//!
//! | what is done | found by |
//! |---|---|
//! | edit, drop, reorder, insert, truncate, backdate a sealed run and sign everything anew | holder of a receipt, of a bundle with the ledger of today, a monitor; nobody who holds nothing |
//! | a whole run deleted, and the ledger signed anew | holder of its bundle, a monitor; of the last run nobody who holds nothing, of another one everybody who reads the ledger |
//! | the same without signing anew | everybody who verifies |
//! | the end of an open run cut off | holder of a receipt; everybody, once a head is in the ledger; nobody else before |
//! | a second seal in the ledger | holder of the bundle with the ledger of today, a monitor |
//! | a seal by a stolen key that is not in the ledger | everybody who verifies |
//! | a ledger that the witness saw otherwise | everybody who asks for the witness |
//! | two ledgers for two people | who compares a bundle of the one with the copy of the other; a monitor that sees both |
//! | an erasure under a hold, a key used after its end | a monitor |
//! | another tenant's or run's frames, another suite, other spelling | everybody who verifies |
//! | a payload swapped, in a bundle whose manifest and export are signed anew; a key brought along | everybody who verifies |
//!
//! Played by golden vectors instead: an inner node passed off as an entry, a seal that witnesses saw too early or too late, a
//! witness in league with the operator (`tests/vectors/tampered/`). A signed receipt: `open_runs`.

use crate::anchors::{Other, with_witnesses};
use crate::api::Api;
use crate::api::audit::{export, trust};
use crate::api::bundle::Bundle;
use crate::monitoring::{Auditor, Look};
use crate::operator::{Operator, says};
use crate::running::Server;
use onrecord::anchor::{Config, Policy};
use onrecord::audit::{Audit, State as AuditState, Told};
use onrecord::start::HeadsEvery;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::receipt::Receipt;
use onrecord_core::statement::{Erasure, Hold, HoldAction, Predicate};
use onrecord_core::timestamp::Timestamp;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// A server with two sealed runs and an open one, and those outside who looked before anything was done.
struct Case {
    server: Server,
    run: String,
    open: String,
    receipts: Vec<Receipt>,
    /// Who has the bundle of the run, its receipts and the trust file, and monitors the ledger.
    outside: Auditor,
}

async fn decide(api: &Api, run: &str, n: u64) -> Receipt {
    let frame = json!({"kind": "decision", "key": format!("k{n}"), "body": {"choice": n}});
    api.frame(run, &frame).await.is(201).receipt()
}

async fn seal(api: &Api, run: &str) {
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
}

async fn log_of(api: &Api) -> String {
    let ledger = api.get("/v1/ledger").await.is(200).json();
    format!("{}/t/{}", api.base, ledger["log"].as_str().unwrap())
}

/// Somebody with a folder, a trust file and an auditor's token.
async fn somebody(api: &Api) -> Auditor {
    let mut auditor = Auditor::new(&log_of(api).await, &trust(api).await);
    auditor.token = api.role("auditor").await.token;
    auditor
}

impl Case {
    async fn begin() -> Self {
        let server = Server::start().await;
        let api = &server.api;
        let (run, open) = (
            api.any_run().await.run.to_string(),
            api.any_run().await.run.to_string(),
        );
        let mut receipts = Vec::new();
        for n in 0..5 {
            receipts.push(decide(api, &run, n).await);
            decide(api, &open, n).await;
        }
        seal(api, &run).await;
        let later = api.any_run().await.run.to_string();
        seal(api, &later).await;
        let outside = somebody(api).await;
        std::fs::write(outside.path("run.tar"), export(api, &run).await).unwrap();
        let lines: String = receipts
            .iter()
            .map(|receipt| serde_json::to_string(receipt).unwrap() + "\n")
            .collect();
        std::fs::write(outside.path("receipts.ndjson"), lines).unwrap();
        let look = outside.look().await;
        assert_eq!(look.code, 0, "{look:?}");
        Self {
            server,
            run,
            open,
            receipts,
            outside,
        }
    }

    /// Whether the operator's own audit finds something.
    async fn audit(&self) -> Vec<&'static str> {
        let audit = Audit {
            url: self.server.database.url.clone(),
            trusts: vec![onrecord_verify::Trust::parse(&trust(&self.server.api).await).unwrap()],
            jobs: 2,
        };
        let mut codes = Vec::new();
        let mut state = AuditState::none();
        let done = audit.run(&mut state, |told| {
            if let Told::Finding(finding) = told {
                codes.push(finding.code);
            }
        });
        done.await.unwrap();
        codes
    }

    /// What the server hands out today, as files of somebody.
    async fn fetch(&self, to: &Auditor) {
        let again = self.server.second().await;
        std::fs::write(to.path("now.tar"), export(&again.api, &self.run).await).unwrap();
        let copy = somebody(&again.api).await;
        copy.look().await;
        std::fs::copy(copy.path("monitor/ledger.tar"), to.path("ledger-now.tar")).unwrap();
        again.stop().await;
    }
}

/// `onrecord verify` with somebody's own files: the exit code and the verdict.
async fn verify(who: &Auditor, args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(["verify", "--json", "--trust", "trust.txt"])
        .args(args)
        .env_clear()
        .current_dir(who.folder.path())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = report["verdict"]["code"].as_str().unwrap().to_owned();
    (output.status.code().unwrap(), code)
}

const BY_LEDGER: [&str; 3] = ["--ledger", "ledger-now.tar", "run.tar"];
const BY_RECEIPTS: [&str; 3] = ["--receipts", "receipts.ndjson", "now.tar"];

fn found(look: &Look, code: &str) {
    assert_eq!(look.code, 1, "{look:?}");
    assert!(look.codes().contains(&code), "{code}: {look:?}");
}

/// Changes of a sealed run, after which everything is signed anew.
#[tokio::test(flavor = "multi_thread")]
async fn who_signs_everything_anew_is_found_by_those_who_hold_something() {
    type Change = fn(&mut Vec<Value>);
    let changes: [(&str, Change); 6] = [
        ("edit", |frames| frames[2]["body"]["choice"] = json!(77)),
        ("drop", |frames| drop(frames.remove(2))),
        ("reorder", |frames| {
            frames.swap(2, 3);
            let at = frames[2]["at"].clone();
            frames[2]["at"] = frames[3]["at"].clone();
            frames[3]["at"] = at;
        }),
        ("insert", |frames| {
            let mut more = frames[2].clone();
            more["key"] = json!("more");
            frames.insert(3, more);
        }),
        ("truncate", |frames| frames.truncate(4)),
        ("backdate", |frames| {
            for frame in frames.iter_mut().skip(1) {
                frame["at"] = frames_at_zero(frame);
            }
        }),
    ];
    for (name, change) in changes {
        let case = Case::begin().await;
        let mut operator = Operator::of(&case.server).await;
        let mut frames = operator.frames(&case.run).await;
        let first = frames[0]["at"].clone();
        change(&mut frames);
        for frame in &mut frames {
            if frame["at"].is_null() {
                frame["at"] = first.clone();
            }
        }
        let chain = operator.put_frames(&case.run, frames).await;
        let mut entries = operator.entries().await;
        let place = seal_place(&entries, &case.run);
        entries[place] = operator.seal_of(&entries[place], &chain, None);
        operator.put_ledger(entries).await;

        // Everything fits again: neither the operator's audit nor somebody who holds nothing finds it.
        assert_eq!(case.audit().await, Vec::<&str>::new(), "{name}");
        let newcomer = somebody(&case.server.api).await;
        assert_eq!(newcomer.look().await.code, 0, "{name}");
        case.fetch(&newcomer).await;
        let all = ["--ledger", "ledger-now.tar", "now.tar"];
        assert_eq!(
            verify(&newcomer, &all).await,
            (0, "verified".to_owned()),
            "{name}"
        );

        case.fetch(&case.outside).await;
        assert_eq!(
            verify(&case.outside, &BY_RECEIPTS).await,
            (1, "receipt".to_owned()),
            "{name}"
        );
        let (exit, code) = verify(&case.outside, &BY_LEDGER).await;
        assert_eq!(exit, 1, "{name}");
        assert!(
            ["split_view", "second_seal"].contains(&&*code),
            "{name}: {code}"
        );
        assert_eq!(
            verify(&case.outside, &["run.tar"]).await.0,
            0,
            "{name}: what is held holds"
        );
        found(&case.outside.look().await, "split_view");
    }
}

/// Marks a time that is to be that of frame 0.
fn frames_at_zero(_: &Value) -> Value {
    Value::Null
}

fn seal_place(entries: &[Vec<u8>], run: &str) -> usize {
    let is_seal = |entry: &Vec<u8>| matches!(says(entry), Predicate::RunSeal(seal) if seal.state.run.to_string() == run);
    entries.iter().position(is_seal).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_deleted_is_missed_by_those_who_knew_of_it() {
    let case = Case::begin().await;
    let mut operator = Operator::of(&case.server).await;
    let run = &case.run;
    for table in ["runs", "frames", "payloads", "run_facts"] {
        operator
            .execute(&format!(
                "delete from {table} where run = run_uuid('{run}')"
            ))
            .await;
    }
    // Rows alone: the ledger tells of it, and the operator's audit finds it.
    assert!(case.audit().await.contains(&"row_missing"));
    // And now the ledger.
    let entries = operator.entries().await;
    let mut entries = entries;
    entries.retain(|entry| says(entry).run().is_none_or(|one| one.to_string() != *run));
    operator.put_ledger(entries).await;
    // Who leaves the numbers of later runs as they are is found by everybody who reads the ledger.
    let newcomer = somebody(&case.server.api).await;
    found(&newcomer.look().await, "run_gap");
    found(&case.outside.look().await, "split_view");
    std::fs::copy(
        newcomer.path("monitor/ledger.tar"),
        case.outside.path("ledger-now.tar"),
    )
    .unwrap();
    assert_eq!(verify(&case.outside, &BY_LEDGER).await.0, 1);

    // The last run, which has no later one: whoever looks for the first time finds nothing.
    let case = Case::begin().await;
    let mut operator = Operator::of(&case.server).await;
    let mut entries = operator.entries().await;
    let last = entries.iter().rev().find_map(|entry| match says(entry) {
        Predicate::RunOpen(open) => Some(open.state.run.to_string()),
        _ => None,
    });
    let last = last.unwrap();
    entries.retain(|entry| says(entry).run().is_none_or(|run| run.to_string() != last));
    for table in ["runs", "frames", "payloads", "run_facts"] {
        operator
            .execute(&format!(
                "delete from {table} where run = run_uuid('{last}')"
            ))
            .await;
    }
    operator.put_ledger(entries).await;
    assert_eq!(case.audit().await, Vec::<&str>::new());
    let newcomer = somebody(&case.server.api).await;
    assert_eq!(newcomer.look().await.code, 0);
    found(&case.outside.look().await, "split_view");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_changed_in_the_database_is_found_by_everybody() {
    let case = Case::begin().await;
    let other = case.server.api.new_tenant().await;
    let theirs = other.any_run().await.run.to_string();
    decide(&other, &theirs, 1).await;
    let mut operator = Operator::of(&case.server).await;
    operator
        .execute("create table kept as select * from frames; create table kept_runs as select * from runs")
        .await;
    let run = format!("run_uuid('{}')", case.run);
    let text = "convert_from(bytes, 'UTF8')";
    for (change, code) in [
        (
            format!(
                "update frames set bytes = replace({text}, '\"choice\":2', '\"choice\":7')::bytea where run = {run} and seq = 3"
            ),
            "frame_prev",
        ),
        (
            format!(
                "update frames set bytes = replace({text}, '\"choice\":2', '\"choice\":2,\"choice\":2')::bytea where run = {run} and seq = 3"
            ),
            "frame_json",
        ),
        (
            format!(
                "update frames set bytes = replace({text}, '\"choice\":2', '\"choice\": 2')::bytea where run = {run} and seq = 3"
            ),
            "frame_canonical",
        ),
        (
            format!(
                "update frames set bytes = replace({text}, 'onrecord-v1', 'onrecord-v0')::bytea where run = {run} and seq = 0"
            ),
            "suite",
        ),
        (
            format!(
                "delete from frames where run = {run} and seq = 3; update frames set seq = seq - 1 where run = {run} and seq > 3"
            ),
            "frame_seq",
        ),
        (
            format!(
                "update frames set seq = -seq where run = {run} and seq in (3, 4); update frames set seq = 7 + seq where run = {run} and seq < 0"
            ),
            "frame_seq",
        ),
        // The frames of another tenant's run, and of another run.
        (
            format!(
                "update frames set bytes = (select bytes from frames where run = run_uuid('{theirs}') and seq = 1) where run = {run} and seq = 1"
            ),
            "frame_scope",
        ),
        (
            format!(
                "update frames set bytes = (select bytes from frames where run = run_uuid('{}') and seq = 1) where run = {run} and seq = 1",
                case.open
            ),
            "frame_scope",
        ),
    ] {
        operator.execute(&change).await;
        let answer = case
            .server
            .api
            .get(&format!("/v1/runs/{}/export?purpose=audit", case.run))
            .await;
        assert_eq!(answer.status, 200, "{change}: {}", answer.text());
        std::fs::write(case.outside.path("now.tar"), answer.bytes).unwrap();
        assert_eq!(
            verify(&case.outside, &["now.tar"]).await,
            (1, code.to_owned()),
            "{change}"
        );
        assert_ne!(case.audit().await, Vec::<&str>::new(), "{change}");
        operator
            .execute(
                "delete from frames;
                 insert into frames (seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, verdict, name)
                   select seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, verdict, name from kept",
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_out_otherwise_is_found_by_everybody() {
    let case = Case::begin().await;
    let api = &case.server.api;
    let run = api.any_run().await.run.to_string();
    let payload = json!({"name": "answer", "text": "yes"});
    let frame = json!({"kind": "observation", "payloads": [payload]});
    api.frame(&run, &frame).await.is(201);
    seal(api, &run).await;
    let mut bundle = Bundle::read(&export(api, &run).await);
    let name = bundle
        .0
        .iter()
        .find(|(name, _)| name.starts_with("payloads/"));
    let name = name.unwrap().0.clone();
    assert_eq!(bundle.member(&name), b"yes");
    let operator = Operator::of(&case.server).await;
    for (text, expected) in [("yes", (0, "verified")), ("no", (1, "payload_commit"))] {
        bundle.set(&name, text);
        let manifest = bundle.manifest();
        let says = says(bundle.member("export.dsse.json"));
        let digest = Hash::of(&[manifest.as_bytes()]);
        let signed = operator.sign_of(&says, ("MANIFEST.sha256", digest));
        bundle.set("MANIFEST.sha256", manifest);
        bundle.set("export.dsse.json", signed);
        std::fs::write(case.outside.path("now.tar"), bundle.write()).unwrap();
        let (exit, code) = verify(&case.outside, &["now.tar"]).await;
        assert_eq!((exit, &*code), expected, "{text}");
    }

    // Whole and signed, with its key in it; nobody pinned that.
    let other = Server::start().await;
    let theirs = other.api.any_run().await.run.to_string();
    seal(&other.api, &theirs).await;
    std::fs::write(
        case.outside.path("now.tar"),
        export(&other.api, &theirs).await,
    )
    .unwrap();
    let (exit, code) = verify(&case.outside, &["now.tar"]).await;
    assert_eq!((exit, &*code), (2, "signer_unknown"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_open_run_is_missed_by_who_has_a_receipt() {
    let case = Case::begin().await;
    let api = &case.server.api;
    let last = decide(api, &case.open, 9).await;
    let mut operator = Operator::of(&case.server).await;
    let mut frames = operator.frames(&case.open).await;
    frames.truncate(4);
    operator.put_frames(&case.open, frames).await;
    let again = case.server.second().await;
    std::fs::write(
        case.outside.path("now.tar"),
        export(&again.api, &case.open).await,
    )
    .unwrap();
    let line = serde_json::to_string(&last).unwrap() + "\n";
    std::fs::write(case.outside.path("receipts.ndjson"), line).unwrap();
    assert_eq!(
        verify(&case.outside, &BY_RECEIPTS).await,
        (1, "receipt".to_owned())
    );
    // Without it nobody knows, as long as no head of the run is in the ledger.
    assert_eq!(
        verify(&case.outside, &["now.tar"]).await,
        (2, "unsealed".to_owned())
    );
    assert_eq!(case.outside.look().await.code, 0);
    assert_eq!(case.audit().await, Vec::<&str>::new());

    // With a head there it is seen by everybody, and who removes that is seen by a monitor.
    let case = Case::begin().await;
    let every = HeadsEvery {
        frames: 1,
        seconds: 0,
    };
    case.server.app.recorder.state_heads(every).await.unwrap();
    assert_eq!(case.outside.look().await.code, 0);
    let mut operator = Operator::of(&case.server).await;
    let mut frames = operator.frames(&case.open).await;
    frames.truncate(4);
    operator.put_frames(&case.open, frames).await;
    let again = case.server.second().await;
    std::fs::write(
        case.outside.path("now.tar"),
        export(&again.api, &case.open).await,
    )
    .unwrap();
    let alone = verify(&case.outside, &["now.tar"]).await;
    assert_eq!(alone, (1, "run_head".to_owned()));
    assert!(case.audit().await.contains(&"run_head"));
    let mut entries = operator.entries().await;
    entries.retain(|entry| !matches!(says(entry), Predicate::RunHead(_)));
    operator.put_ledger(entries).await;
    operator.execute("delete from run_heads").await;
    assert_eq!(case.audit().await, Vec::<&str>::new());
    found(&case.outside.look().await, "split_view");
}

/// A history that the witness did not see before: whoever asks for its signature does not get it.
#[tokio::test(flavor = "multi_thread")]
async fn a_witness_does_not_sign_another_past() {
    let one = Other::start("w.example/1").await;
    let config = Config {
        witnesses: Some(Policy::of_all(&[one.pair()]).unwrap()),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    let own = trust(&server.api).await;
    one.know(&own).await;
    let run = server.api.any_run().await.run.to_string();
    for n in 0..5 {
        decide(&server.api, &run, n).await;
    }
    seal(&server.api, &run).await;
    server.app.anchors.round().await;
    let pinned = with_witnesses(&own, &[&one], "quorum w1\n");
    let outside = somebody(&server.api).await;
    std::fs::write(outside.path("trust.txt"), &pinned).unwrap();
    let look = outside.look().await;
    assert_eq!(look.code, 0, "{look:?}");
    std::fs::write(outside.path("run.tar"), export(&server.api, &run).await).unwrap();
    assert_eq!(verify(&outside, &["run.tar"]).await.0, 0);

    let mut operator = Operator::of(&server).await;
    let mut frames = operator.frames(&run).await;
    frames[2]["body"]["choice"] = json!(77);
    let chain = operator.put_frames(&run, frames).await;
    let mut entries = operator.entries().await;
    let place = seal_place(&entries, &run);
    entries[place] = operator.seal_of(&entries[place], &chain, None);
    operator
        .execute("delete from cosigned_proofs; delete from cosigned_checkpoints; delete from cosignatures")
        .await;
    operator.put_ledger(entries).await;
    // It is asked for the other history, and does not sign it. What the server itself noticed, the operator removes.
    server.app.anchors.round().await;
    operator.execute("delete from rewinds").await;
    std::fs::remove_dir_all(server.data_dir.path().join("published")).unwrap();
    let count: i64 = sqlx::query_scalar("select count(*) from cosignatures")
        .fetch_one(&mut operator.sql)
        .await
        .unwrap();
    assert_eq!(count, 0);
    let again = server.second().await;
    // A newcomer, who pins the witness and holds nothing else.
    let newcomer = somebody(&again.api).await;
    std::fs::write(newcomer.path("trust.txt"), &pinned).unwrap();
    std::fs::write(newcomer.path("now.tar"), export(&again.api, &run).await).unwrap();
    let asked = verify(&newcomer, &["now.tar"]).await;
    assert_eq!(asked, (2, "witness_quorum".to_owned()));
    found(&newcomer.look().await, "witness_quorum");
    // One who does not ask for it finds nothing.
    std::fs::write(newcomer.path("trust.txt"), &own).unwrap();
    assert_eq!(verify(&newcomer, &["now.tar"]).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_seal_is_seen_in_the_ledger_and_one_beside_it_by_everybody() {
    let case = Case::begin().await;
    let mut operator = Operator::of(&case.server).await;
    let mut frames = operator.frames(&case.run).await;
    frames[2]["body"]["choice"] = json!(77);
    let chain = operator.put_frames(&case.run, frames).await;
    let mut entries = operator.entries().await;
    let place = seal_place(&entries, &case.run);
    let forged = operator.seal_of(&entries[place], &chain, None);
    // A thief of the seal key alone: a bundle with the forged seal and the old proof.
    let again = case.server.second().await;
    let mut bundle = Bundle::read(&export(&again.api, &case.run).await);
    bundle.set("seal.dsse.json", forged.clone());
    let manifest = bundle.manifest();
    bundle.set("MANIFEST.sha256", manifest);
    std::fs::write(case.outside.path("now.tar"), bundle.write()).unwrap();
    assert_eq!(
        verify(&case.outside, &["now.tar"]).await,
        (1, "ledger_inclusion".to_owned())
    );
    // With the ledger's key it is one entry more.
    let at = says(entries.last().unwrap()).at();
    let second = operator.seal_of(&entries[place], &chain, Some(at));
    entries.push(second);
    operator.put_ledger(entries).await;
    found(&case.outside.look().await, "second_seal");
    case.fetch(&case.outside).await;
    assert_eq!(
        verify(&case.outside, &BY_LEDGER).await,
        (1, "second_seal".to_owned())
    );
    assert!(case.audit().await.contains(&"second_seal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_ledgers_are_found_by_who_compares_them() {
    let case = Case::begin().await;
    let mut operator = Operator::of(&case.server).await;
    let (truth, frames) = (operator.entries().await, operator.frames(&case.run).await);
    let mut lies = frames.clone();
    lies[2]["body"]["choice"] = json!(77);
    let chain = operator.put_frames(&case.run, lies).await;
    let mut entries = truth.clone();
    let place = seal_place(&entries, &case.run);
    entries[place] = operator.seal_of(&entries[place], &chain, None);
    operator.put_ledger(entries).await;
    // The other one is shown the other ledger, and the first one the first, each time they look.
    let other = somebody(&case.server.api).await;
    assert_eq!(other.look().await.code, 0);
    case.fetch(&other).await;
    operator.put_frames(&case.run, frames).await;
    operator.put_ledger(truth).await;
    // Neither sees it by itself.
    assert_eq!(case.outside.look().await.code, 0);
    assert_eq!(
        verify(&other, &["--ledger", "ledger-now.tar", "now.tar"])
            .await
            .0,
        0
    );
    // Together they do, with what each of them has.
    std::fs::copy(
        case.outside.path("monitor/ledger.tar"),
        other.path("theirs.tar"),
    )
    .unwrap();
    let (exit, code) = verify(&other, &["--ledger", "theirs.tar", "now.tar"]).await;
    assert_eq!(exit, 1);
    assert!(["split_view", "second_seal"].contains(&&*code), "{code}");
    // And so does one who is shown both.
    found(&other.look().await, "split_view");
}

#[tokio::test(flavor = "multi_thread")]
async fn erasures_under_a_hold_and_keys_after_their_end_are_seen_in_the_ledger() {
    let case = Case::begin().await;
    let mut operator = Operator::of(&case.server).await;
    let by = Actor {
        id: "operator".to_owned(),
        keyid: None,
        kind: ActorType::Human,
    };
    let mut entries = operator.entries().await;
    let at = says(entries.last().unwrap()).at();
    let Predicate::RunSeal(sealed) = says(&entries[seal_place(&entries, &case.run)]) else {
        panic!("no seal")
    };
    let hold = Hold {
        action: HoldAction::Set,
        at,
        by: by.clone(),
        matter: "case-7".to_owned(),
        reason: None,
        run: None,
        with: None,
    };
    entries.push(operator.sign(&Predicate::Hold(hold), None));
    let erasure = Erasure {
        at,
        by,
        commits: None,
        count: 0,
        method: "crypto-shredding".to_owned(),
        policy: "p".to_owned(),
        reason: "r".to_owned(),
        state: sealed.state,
        tier: Some(2),
        tiers: None,
    };
    entries.push(operator.sign(&Predicate::Erasure(erasure), None));
    operator.put_ledger(entries).await;
    found(&case.outside.look().await, "erasure_held");

    // A key that ended, of which somebody kept the secret.
    let case = Case::begin().await;
    let mut thief = Operator::of(&case.server).await;
    let rotation = json!({"reason": "compromised"});
    case.server
        .api
        .post("/v1/keys/seal/rotation", &rotation)
        .await
        .is(201);
    let mut entries = thief.entries().await;
    let at: Timestamp = says(entries.last().unwrap()).at();
    let Predicate::RunOpen(mut open) = says(&entries[2]) else {
        panic!("no opening")
    };
    open.run_no = 4;
    open.at = at;
    open.state.run = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap();
    entries.push(thief.sign(&Predicate::RunOpen(open), Some(Hash::of(&[b"x"]))));
    thief.put_ledger(entries).await;
    std::fs::write(
        case.outside.path("trust.txt"),
        trust(&case.server.api).await,
    )
    .unwrap();
    found(&case.outside.look().await, "key_revoked");
    assert!(!case.receipts.is_empty() && Path::new(&case.outside.path("run.tar")).exists());
}
