//! Proofs of single frames and turns, and the nodes that they are made of.

use crate::api::Api;
use crate::api::audit::{check, trust};
use crate::running::Server;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::json::to_canonical;
use onrecord_core::merkle::Frontier;
use onrecord_verify::{Code, What};
use serde_json::{Value, json};
use sqlx::{Executor as _, Row as _};
use std::collections::BTreeMap;

/// Appends observations in one request.
async fn fill(api: &Api, run: &str, frames: std::ops::Range<u64>) {
    let lines: String = frames
        .clone()
        .map(|n| {
            format!(
                "{}\n",
                json!({"kind": "observation", "key": format!("k{n}"), "body": {"n": n}})
            )
        })
        .collect();
    let answers = api.frames(run, lines).await;
    let done = answers.last().unwrap();
    assert_eq!(done["done"], frames.count(), "{done}");
}

async fn proof(api: &Api, run: &str, seq: u64) -> Vec<u8> {
    let path = format!("/v1/runs/{run}/frames/{seq}/proof");
    api.get(&path).await.is(200).bytes.to_vec()
}

/// The nodes that the table has of a run, and those that it should have by the run's frames.
async fn nodes(server: &Server, run: &str) -> [BTreeMap<(i64, i64), Vec<u8>>; 2] {
    let mut sql = server.sql().await;
    let rows =
        sqlx::query("select level::bigint, idx, hash from run_nodes where run = run_uuid($1)")
            .bind(run)
            .fetch_all(&mut sql)
            .await
            .unwrap();
    let stored = rows
        .iter()
        .map(|row| ((row.get(0), row.get(1)), row.get(2)));
    let frames = server
        .api
        .get(&format!("/v1/runs/{run}/frames"))
        .await
        .is(200);
    let mut expected = BTreeMap::new();
    let mut tree = Frontier::new();
    for line in frames
        .bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        tree.push_with(leaf_hash(line), |level, index, hash: Hash| {
            if level >= 6 {
                let index = i64::try_from(index).unwrap();
                expected.insert((i64::from(level), index), hash.0.to_vec());
            }
        });
    }
    [stored.collect(), expected]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_is_proven_whatever_wrote_its_run() {
    let server = Server::start().await;
    let second = server.second().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let trust = trust(api).await;
    // In one request, alone over the boundary of a node, by another process, and with payloads.
    fill(api, &run, 1..60).await;
    for n in 60..66 {
        let frame = json!({"kind": "observation", "key": format!("k{n}"), "body": {"n": n}});
        api.frame(&run, &frame).await.is(201);
    }
    fill(&second.api, &run, 66..200).await;
    for n in 200..260 {
        let frame = json!({"kind": "observation", "key": format!("k{n}"), "payloads": [{"name": "p", "text": "x"}]});
        second.api.frame(&run, &frame).await.is(201);
    }
    // A retry completes nothing again.
    fill(api, &run, 1..260).await;
    let [stored, expected] = nodes(&server, &run).await;
    assert_eq!(stored, expected);
    assert_eq!(stored.len(), 4 + 2 + 1);
    for seq in [0, 1, 63, 64, 127, 128, 200, 255, 256, 259] {
        let proof = proof(api, &run, seq).await;
        let report = check(&proof, &trust, &[]);
        let codes: Vec<Code> = report.findings.iter().map(|one| one.code).collect();
        let withheld = if seq >= 200 {
            vec![Code::Unsealed, Code::PayloadWithheld]
        } else {
            vec![Code::Unsealed]
        };
        assert_eq!(codes, withheld, "frame {seq}: {:#?}", report.findings);
        assert_eq!(
            (report.facts.what, report.facts.seq, report.facts.size),
            (What::Frame, Some(seq), Some(260))
        );
        let path = serde_json::from_slice::<Value>(&proof).unwrap()["path"]
            .as_array()
            .unwrap()
            .len();
        assert!(path <= 9, "{path} hashes for 260 frames");
    }
    api.get(&format!("/v1/runs/{run}/frames/260/proof"))
        .await
        .problem(404, "frame_not_found");
    // The seal adds its own frame.
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let mut proofs = Vec::new();
    for seq in 0..261 {
        let proof = proof(api, &run, seq).await;
        let report = check(&proof, &trust, &[]);
        assert!(
            matches!(report.verdict.code, Code::Verified | Code::PayloadWithheld),
            "{:#?}",
            report.findings
        );
        assert_eq!(
            (report.facts.seq, report.facts.size),
            (Some(seq), Some(261))
        );
        proofs.push(proof);
    }
    // What follows from the frames may be wrong, or not be there: it is they that count.
    let mut owner = server.sql().await;
    for change in [
        "update run_nodes set hash = sha256(hash) where idx = 1",
        "delete from run_nodes",
    ] {
        owner.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "alter table run_nodes disable trigger user; {change}; alter table run_nodes enable trigger user"
        )))).await.unwrap();
        for (seq, before) in (0..).zip(&proofs).step_by(37) {
            assert_eq!(
                proof(api, &run, seq).await,
                *before,
                "frame {seq} after {change}"
            );
        }
    }
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_does_not_hinder_an_append() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let mut owner = server.sql().await;
    owner.execute(sqlx::AssertSqlSafe(format!(
        "insert into run_nodes (run, tenant, level, idx, hash) select run, tenant, 6, 0, sha256('') from runs where run = run_uuid('{run}')"
    ))).await.unwrap();
    fill(&server.api, &run, 1..70).await;
    let report = check(
        &proof(&server.api, &run, 65).await,
        &trust(&server.api).await,
        &[],
    );
    assert_eq!(
        report.verdict.code,
        Code::Unsealed,
        "{:#?}",
        report.findings
    );
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_altered_byte_of_a_frame_proof_verifies() {
    let server = Server::start().await;
    let api = &server.api;
    let trust = trust(api).await;
    let run = api.any_run().await.run.to_string();
    fill(api, &run, 1..5).await;
    let open = proof(api, &run, 2).await;
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let sealed = proof(api, &run, 2).await;
    assert_eq!(check(&sealed, &trust, &[]).verdict.code, Code::Verified);
    for (name, whole) in [("open", open), ("sealed", sealed)] {
        let mut altered = whole.clone();
        for place in 0..whole.len() {
            altered[place] ^= 1 << (place % 7);
            let verdict = check(&altered, &trust, &[]).verdict;
            assert!(
                matches!(verdict.exit_code, 1 | 3) || verdict.code == Code::SignerUnknown,
                "{name}, byte {place}: {verdict:?}"
            );
            altered[place] = whole[place];
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proofs_put_together_from_others_show() {
    let server = Server::start().await;
    let api = &server.api;
    let trust = trust(api).await;
    let run = api.any_run().await.run.to_string();
    fill(api, &run, 1..9).await;
    let head: Value = serde_json::from_slice(&proof(api, &run, 3).await).unwrap();
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let other = api.any_run().await.run.to_string();
    fill(api, &other, 1..9).await;
    api.post(&format!("/v1/runs/{other}/seal"), &json!({}))
        .await
        .is(201);
    let of = async |run: &str, seq| {
        serde_json::from_slice::<Value>(&proof(api, run, seq).await).unwrap()
    };
    let (three, four, theirs) = (of(&run, 3).await, of(&run, 4).await, of(&other, 3).await);
    let with = |changes: &[(&str, &Value)]| {
        let mut mixed = three.clone();
        for (name, value) in changes {
            mixed[*name] = (*value).clone();
        }
        let verdict = check(&to_canonical(&mixed).unwrap(), &trust, &[]).verdict;
        (verdict.code, verdict.exit_code)
    };
    assert_eq!(with(&[]), (Code::Verified, 0));
    assert_eq!(
        with(&[("frame", &four["frame"])]),
        (Code::FrameInclusion, 1)
    );
    assert_eq!(with(&[("path", &four["path"])]), (Code::FrameInclusion, 1));
    assert_eq!(with(&[("path", &json!([]))]), (Code::FrameInclusion, 1));
    assert_eq!(
        with(&[("seal", &theirs["seal"]), ("proof", &theirs["proof"])]),
        (Code::SealScope, 1)
    );
    assert_eq!(with(&[("frame", &theirs["frame"])]), (Code::SealScope, 1));
    assert_eq!(
        with(&[("proof", &theirs["proof"])]),
        (Code::LedgerInclusion, 1)
    );
    // One of the two signs, and a head has no place in the ledger.
    assert_eq!(with(&[("head", &head["head"])]), (Code::Input, 3));
    assert_eq!(with(&[("seal", &head["head"])]), (Code::Statement, 1));
    let mut less = three.clone();
    less.as_object_mut().unwrap().remove("seal");
    assert_eq!(
        check(&to_canonical(&less).unwrap(), &trust, &[])
            .verdict
            .code,
        Code::Input
    );
    less.as_object_mut().unwrap().remove("proof");
    less["head"] = three["seal"].clone();
    let verdict = check(&to_canonical(&less).unwrap(), &trust, &[]).verdict;
    assert_eq!((verdict.code, verdict.exit_code), (Code::Statement, 1));
    server.audit(&run, &[]).await;
}
