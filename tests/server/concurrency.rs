//! Several servers on one database, and many writers at once.

use crate::api::receipt;
use crate::running::Server;
use onrecord_core::receipt::Receipt;
use serde_json::json;

/// Seqs of receipts are those of the run, each once.
fn assert_dense(receipts: &[Receipt], first: u64) {
    let mut seqs: Vec<u64> = receipts.iter().map(|receipt| receipt.seq).collect();
    seqs.sort_unstable();
    let expected: Vec<u64> = (first..).take(seqs.len()).collect();
    assert_eq!(seqs, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_of_two_servers_make_one_chain() {
    const WRITERS: usize = 16;
    const FRAMES: usize = 15;
    let one = Server::start().await;
    let two = one.second().await;
    let hot = one.api.any_run().await.run.to_string();
    let mut cold = Vec::new();
    for _ in 0..4 {
        cold.push(one.api.any_run().await.run.to_string());
    }
    let writers = (0..WRITERS).map(|writer| {
        let api = if writer % 2 == 0 { &one.api } else { &two.api }.clone();
        let (hot, own) = (hot.clone(), cold[writer % cold.len()].clone());
        tokio::spawn(async move {
            let mut receipts = Vec::new();
            for n in 0..FRAMES {
                // Some post one by one, some in streams; each also writes to a quieter run.
                let frame = json!({"kind": "observation", "key": format!("w{writer}-{n}"),
                    "payloads": [{"name": "p", "text": format!("{writer} {n}")}]});
                if writer % 4 == 3 {
                    let lines = api.frames(&hot, format!("{frame}\n")).await;
                    assert_eq!(lines[0]["status"], 201);
                    receipts.push(receipt(&lines[0]));
                } else {
                    receipts.push(api.frame(&hot, &frame).await.is(201).receipt());
                }
                if n % 3 == 0 {
                    receipts.push(api.frame(&own, &frame).await.is(201).receipt());
                }
            }
            receipts
        })
    });
    let mut receipts = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        receipts.extend(writer.await.unwrap());
    }
    for run in std::iter::once(&hot).chain(&cold) {
        let of_run: Vec<Receipt> = receipts
            .iter()
            .filter(|receipt| receipt.run.as_str() == run)
            .cloned()
            .collect();
        assert_dense(&of_run, 1);
        assert_eq!(one.api.size(run).await, of_run.len() as u64 + 1);
        // Time does not go back along the chain.
        let mut ordered = of_run.clone();
        ordered.sort_by_key(|receipt| receipt.seq);
        assert!(ordered.is_sorted_by_key(|receipt| receipt.at));
        one.audit(run, &of_run).await;
        two.audit(run, &of_run).await;
    }
    assert_eq!(one.api.size(&hot).await, (WRITERS * FRAMES + 1) as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_opened_at_once_are_numbered_densely() {
    let one = Server::start().await;
    let two = one.second().await;
    let opens = (0..24).map(|n| {
        let api = if n % 2 == 0 { &one.api } else { &two.api }.clone();
        tokio::spawn(async move { api.open(&json!({"session": {"n": n}})).await })
    });
    let mut receipts = Vec::new();
    for open in opens.collect::<Vec<_>>() {
        receipts.push(open.await.unwrap());
    }
    let mut numbers = Vec::new();
    for receipt in &receipts {
        let path = format!("/v1/runs/{}/frames/0", receipt.run);
        let frame = one.api.get(&path).await.is(200).json();
        numbers.push(frame["body"]["run_no"].as_u64().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=24).collect::<Vec<u64>>());
    for receipt in receipts.iter().step_by(8) {
        one.audit(&receipt.run, std::slice::from_ref(receipt)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_sealed_once_whoever_asks() {
    let one = Server::start().await;
    let two = one.second().await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(one.api.any_run().await.run.to_string());
    }
    for run in &runs {
        let path = format!("/v1/runs/{run}/seal");
        let seals = (0..8).map(|n| {
            let api = if n % 2 == 0 { &one.api } else { &two.api }.clone();
            let path = path.clone();
            let body = json!({"interrupted": n % 3 == 0});
            tokio::spawn(async move { api.post(&path, &body).await })
        });
        // Writers race with the seal: what was acknowledged is in it.
        let writers = (0..8).map(|n| {
            let (api, run) = (two.api.clone(), run.clone());
            let frame = json!({"kind": "observation", "key": format!("k{n}")});
            tokio::spawn(async move { api.frame(&run, &frame).await })
        });
        let (seals, writers): (Vec<_>, Vec<_>) = (seals.collect(), writers.collect());
        let mut answers = Vec::new();
        for seal in seals {
            answers.push(seal.await.unwrap());
        }
        let mut receipts = Vec::new();
        for writer in writers {
            let answer = writer.await.unwrap();
            match answer.status {
                201 => receipts.push(answer.receipt()),
                _ => drop(answer.problem(409, "run_sealed")),
            }
        }
        let created = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(created, 1);
        for answer in &answers {
            assert!(
                answer.status == 200 || answer.status == 201,
                "{}",
                answer.text()
            );
            assert_eq!(answer.bytes, answers[0].bytes);
        }
        one.audit(run, &receipts).await;
    }
    let entries: i64 =
        sqlx::query_scalar("select count(*) from ledger_entries where name = 'run-seal'")
            .fetch_one(&mut one.sql().await)
            .await
            .unwrap();
    assert_eq!(entries, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_start_on_one_empty_database() {
    let database = crate::harness::database().await;
    let data_dir = tempfile::TempDir::new().unwrap();
    let config = database.config(data_dir.path());
    let starts = (0..4).map(|_| onrecord::start::start(&config));
    let mut tokens = Vec::new();
    for started in futures_util::future::join_all(starts).await {
        let started = started.unwrap_or_else(|error| panic!("each of them starts: {error}"));
        tokens.extend(started.token.map(|(_, token)| token));
    }
    // One of them made the first tenant, and its token is in the file.
    assert_eq!(tokens.len(), 1);
    let file = std::fs::read_to_string(data_dir.path().join("admin.token")).unwrap();
    assert_eq!(file.trim(), tokens[0]);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(data_dir.path().join("admin.token"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
