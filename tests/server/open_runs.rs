//! Open runs: how far they are stands on the ledger, so that a tail that is cut shows.

use crate::api::Api;
use crate::api::audit::{audit, check, export, trust};
use crate::api::bundle::Bundle;
use crate::running::Server;
use onrecord::start::HeadsEvery;
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::{Code, Options, Trust, parse_receipts, verify};
use serde_json::{Value, json};
use sqlx::Executor as _;

const NEVER: HeadsEvery = HeadsEvery {
    frames: 0,
    seconds: 0,
};

fn every(frames: u64) -> HeadsEvery {
    HeadsEvery { frames, ..NEVER }
}

/// Sizes of the heads in a run's bundle, in their order.
fn heads(bundle: &[u8]) -> Vec<u64> {
    let bundle = Bundle::read(bundle);
    let lines = bundle.member("ledger.ndjson").split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let signed =
        entries.map(|line| Signed::parse(line["entry"].as_str().unwrap().as_bytes()).unwrap());
    let heads = signed.filter_map(|signed| match signed.predicate().unwrap() {
        Some(Predicate::RunHead(head)) => Some(head.state.size),
        _ => None,
    });
    heads.collect()
}

async fn grow(api: &Api, run: &str, frames: usize) {
    for _ in 0..frames {
        api.frame(run, &json!({"kind": "observation"}))
            .await
            .is(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stated_whenever_it_has_grown_by_so_much() {
    let server = Server::start().await;
    let (api, other) = (&server.api, server.api.new_tenant().await);
    let recorder = &server.app.recorder;
    let run = api.any_run().await.run.to_string();
    let theirs = other.any_run().await.run.to_string();
    let sealed = api.any_run().await.run.to_string();
    for (api, run) in [(api, &run), (&other, &theirs), (api, &sealed)] {
        grow(api, run, 4).await;
    }
    api.post(&format!("/v1/runs/{sealed}/seal"), &json!({}))
        .await
        .is(201);
    assert_eq!(recorder.state_heads(NEVER).await.unwrap(), 0);
    assert_eq!(recorder.state_heads(every(5)).await.unwrap(), 0);
    assert_eq!(recorder.state_heads(every(4)).await.unwrap(), 2);
    assert_eq!(
        recorder.state_heads(every(1)).await.unwrap(),
        0,
        "nothing is stated twice"
    );
    grow(api, &run, 1).await;
    assert_eq!(recorder.state_heads(every(2)).await.unwrap(), 0);
    assert_eq!(recorder.state_heads(every(1)).await.unwrap(), 1);
    for (api, run, expected) in [
        (api, &run, vec![5, 6]),
        (&other, &theirs, vec![5]),
        (api, &sealed, vec![]),
    ] {
        audit(api, run, &[]).await;
        assert_eq!(heads(&export(api, run).await), expected);
    }
    // They go with the run to its end.
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    assert_eq!(heads(&export(api, &run).await), [5, 6]);
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_waits_no_longer_than_it_may() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let recorder = &server.app.recorder;
    let hour = HeadsEvery {
        frames: 0,
        seconds: 3_600,
    };
    let mut owner = server.sql().await;
    // An hour passes.
    let pass = "alter table frames disable trigger user; update frames set at = at - interval '1 hour'; alter table frames enable trigger user";
    owner.execute(sqlx::raw_sql(pass)).await.unwrap();
    assert_eq!(
        recorder.state_heads(hour).await.unwrap(),
        0,
        "the opening states one frame"
    );
    grow(&server.api, &run, 1).await;
    assert_eq!(recorder.state_heads(hour).await.unwrap(), 0);
    owner.execute(sqlx::raw_sql(pass)).await.unwrap();
    // However little the last of them has waited.
    grow(&server.api, &run, 1).await;
    assert_eq!(recorder.state_heads(hour).await.unwrap(), 1);
    assert_eq!(recorder.state_heads(hour).await.unwrap(), 0);
    assert_eq!(heads(&export(&server.api, &run).await), [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_a_database_state_each_run_once() {
    let server = Server::start().await;
    let second = server.second().await;
    let mut runs = Vec::new();
    for _ in 0..8 {
        let run = server.api.any_run().await.run.to_string();
        grow(&server.api, &run, 2).await;
        runs.push(run);
    }
    let (one, two) = (&server.app.recorder, &second.app.recorder);
    let (seal, sealing) = (format!("/v1/runs/{}/seal", runs[0]), json!({}));
    let (first, other, sealed, _) = tokio::join!(
        one.state_heads(every(1)),
        two.state_heads(every(1)),
        second.api.post(&seal, &sealing),
        grow(&second.api, &runs[1], 5)
    );
    sealed.is(201);
    // One may have been sealed before, and one may have grown in between.
    let stated = first.unwrap() + other.unwrap();
    assert!((7..=9).contains(&stated), "{stated}");
    assert!(one.state_heads(every(1)).await.unwrap() <= 1);
    for run in &runs {
        let report = server.audit(run, &[]).await.0;
        let heads = heads(&export(&server.api, run).await);
        assert!(heads.is_sorted_by(|one, next| one < next), "{heads:?}");
        // The one that grew may be due for each of the three; the one that was sealed for none.
        let most = if run == &runs[1] { 3 } else { 1 };
        let least = usize::from(run != &runs[0]);
        assert!((least..=most).contains(&heads.len()), "{heads:?}");
        assert!(heads.iter().all(|size| Some(*size) <= report.facts.size));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_is_cut_off_an_open_run_shows_without_a_receipt() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    grow(&server.api, &run, 2).await;
    let mut owner = server.sql().await;
    owner
        .execute("create table kept as select * from runs")
        .await
        .unwrap();
    grow(&server.api, &run, 1).await;
    let cut = "alter table frames disable trigger user;
         delete from frames where seq = 3;
         update runs set size = kept.size, head = kept.head, last_at = kept.last_at, chain = kept.chain from kept;
         alter table frames enable trigger user;";
    let trust = trust(&server.api).await;
    assert_eq!(server.app.recorder.state_heads(every(1)).await.unwrap(), 1);
    server.audit(&run, &[]).await;
    owner.execute(sqlx::raw_sql(cut)).await.unwrap();
    let report = check(&export(&server.api, &run).await, &trust, &[]);
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::RunHead, 1)
    );
    // Nor does a seal over what is left hide it.
    server
        .api
        .post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let report = check(&export(&server.api, &run).await, &trust, &[]);
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::RunHead, 1)
    );
    let path = format!("/v1/runs/{run}/verification");
    let own = server.api.get(&path).await.is(200).json();
    assert_eq!(own["verdict"]["code"], "run_head");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_receipt_is_believed_by_others() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let trust = trust(api).await;
    grow(api, &run, 2).await;
    let mut owner = server.sql().await;
    owner
        .execute("create table kept as select * from runs")
        .await
        .unwrap();
    let path = format!("/v1/runs/{run}/frames?receipt=signed");
    // The answer as it came, and a head that was asked for later.
    let answer = api
        .post(&path, &json!({"kind": "observation"}))
        .await
        .is(201)
        .text();
    let head = api
        .get(&format!("/v1/runs/{run}/head?size=3"))
        .await
        .is(200)
        .text();
    let theirs = api.new_tenant().await;
    let stranger = theirs.any_run().await.run;
    let other = theirs
        .get(&format!("/v1/runs/{stranger}/head"))
        .await
        .is(200)
        .text();
    let with = |bytes: &[u8], lines: &str| {
        let receipts = parse_receipts(lines).unwrap();
        let options = Options {
            trust: Some(Trust::parse(&trust).unwrap()),
            receipts: receipts.plain,
            signed_receipts: receipts.signed,
            ..Options::default()
        };
        verify(bytes, &options)
    };
    let whole = export(api, &run).await;
    let report = with(&whole, &format!("{answer}\n{head}\n"));
    assert_eq!(
        report.verdict.code,
        Code::Unsealed,
        "{:#?}",
        report.findings
    );
    assert!(
        report.integrity.text.contains("3 receipts hold"),
        "{:?}",
        report.integrity
    );
    // What nobody that is trusted signed says nothing; what is false under a pinned key is said to be.
    assert!(
        with(&whole, &other)
            .findings
            .iter()
            .any(|one| one.code == Code::SignerUnknown)
    );
    let mut envelope: Value = serde_json::from_str(&head).unwrap();
    let sig = envelope["signatures"][0]["sig"].as_str().unwrap();
    let forged = if sig.starts_with('A') {
        sig.replacen('A', "B", 1)
    } else {
        format!("A{}", &sig[1..])
    };
    envelope["signatures"][0]["sig"] = forged.into();
    let report = with(&whole, &envelope.to_string());
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::Receipt, 1)
    );

    let cut = "alter table frames disable trigger user;
         delete from frames where seq = 3;
         update runs set size = kept.size, head = kept.head, last_at = kept.last_at, chain = kept.chain from kept where kept.run = runs.run;
         alter table frames enable trigger user;";
    owner.execute(sqlx::raw_sql(cut)).await.unwrap();
    let less = export(api, &run).await;
    let signed = serde_json::from_str::<Value>(&answer).unwrap()["signed"]
        .as_str()
        .unwrap()
        .to_owned();
    let report = with(&less, &signed);
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::Receipt, 1)
    );
    assert_eq!(with(&less, &head).verdict.code, Code::Unsealed);
}
