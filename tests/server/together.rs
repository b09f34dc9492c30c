//! Openings, seals and readings that come at the same time go into the ledger together, and each has its own answer.

use crate::api::audit::{check, trust};
use crate::api::{Answer, Api};
use crate::retention::clock::stepped;
use crate::running::Server;
use serde_json::{Value, json};
use sqlx::{Executor as _, PgConnection};
use tokio::task::JoinHandle;

fn post(api: &Api, path: String, body: Value) -> JoinHandle<Answer> {
    let api = api.clone();
    tokio::spawn(async move { api.post(&path, &body).await })
}

fn get(api: &Api, path: String) -> JoinHandle<Answer> {
    let api = api.clone();
    tokio::spawn(async move { api.get(&path).await })
}

fn seal(api: &Api, run: &str) -> JoinHandle<Answer> {
    post(api, format!("/v1/runs/{run}/seal"), json!({}))
}

/// A run with a payload, and the address of that.
async fn run(api: &Api) -> (String, String) {
    let run = api.any_run().await.run.to_string();
    let frame = json!({"kind": "turn", "payloads": [{"name": "p", "text": "said"}]});
    api.frame(&run, &frame).await.is(201);
    let frame = api.get(&format!("/v1/runs/{run}/frames/1")).await.json();
    let commit = frame["payloads"][0]["commit"].as_str().unwrap();
    let path = format!("/v1/runs/{run}/payloads/{commit}?purpose=test");
    (run, path)
}

/// Keeps everybody from the ledgers until the connection commits.
async fn stop_ledgers(server: &Server) -> PgConnection {
    let mut owner = server.sql().await;
    owner.execute("begin").await.unwrap();
    owner
        .execute("select from tenants for update")
        .await
        .unwrap();
    owner
}

/// Waits until somebody waits for a ledger, and lets them.
async fn go_on(server: &Server, mut owner: PgConnection) {
    let mut look = server.sql().await;
    let waiting = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(waiting)
        .fetch_one(&mut look)
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
    owner.execute("commit").await.unwrap();
}

/// Entries of all ledgers, and checkpoints.
async fn counts(server: &Server) -> (i64, i64) {
    let both = "select (select count(*) from ledger_entries), (select count(*) from checkpoints)";
    sqlx::query_as(both)
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap()
}

async fn verify_ledger(api: &Api) {
    let archive = api.get("/v1/ledger/archive").await.is(200).bytes;
    let report = check(&archive, &trust(api).await, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_has_its_own_answer() {
    let server = Server::start().await;
    let second = server.second().await;
    let (api, other) = (&server.api, &second.api);
    let (first, payload) = run(api).await;
    let (last, _) = run(api).await;
    let opening = |key: &str, agent: &str| json!({"key": key, "session": {"agent": agent}});
    let open =
        |api: &Api, key: &str, agent: &str| post(api, "/v1/runs".to_owned(), opening(key, agent));

    let stopped = stop_ledgers(&server).await;
    let new: Vec<_> = (0..12)
        .map(|n| open(if n % 3 == 0 { other } else { api }, &format!("k{n}"), "a"))
        .collect();
    let same: Vec<_> = (0..4).map(|_| open(api, "same", "a")).collect();
    let differing: Vec<_> = ["x", "y"].map(|agent| open(api, "differing", agent)).into();
    let seals: Vec<_> = [api, api, other].map(|api| seal(api, &first)).into();
    let sealed = seal(api, &last);
    let nobodys = seal(api, "01K7Q4Z8V2N5R3T6Y9B1C0D4E8");
    let reads: Vec<_> = (0..8).map(|_| get(api, payload.clone())).collect();
    let missing = get(api, payload.replace(&payload[60..70], "0000000000"));
    go_on(&server, stopped).await;

    let mut runs = vec![first.clone(), last.clone()];
    let mut numbers = Vec::new();
    for one in new {
        runs.push(one.await.unwrap().is(201).receipt().run.to_string());
    }
    let mut answers = Vec::new();
    for one in same {
        let answer = one.await.unwrap();
        answers.push((answer.status, answer.receipt()));
    }
    answers.sort_by_key(|(status, _)| std::cmp::Reverse(*status));
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [201, 200, 200, 200]);
    assert!(answers.iter().all(|(_, receipt)| *receipt == answers[0].1));
    runs.push(answers[0].1.run.to_string());
    let mut statuses = Vec::new();
    for one in differing {
        let answer = one.await.unwrap();
        statuses.push(answer.status);
        match answer.status {
            201 => runs.push(answer.receipt().run.to_string()),
            _ => drop(answer.problem(409, "key_conflict")),
        }
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
    let mut envelopes = Vec::new();
    for one in seals {
        let answer = one.await.unwrap();
        envelopes.push((answer.status, answer.json()["seal"].clone()));
    }
    assert_eq!(envelopes.iter().filter(|one| one.0 == 201).count(), 1);
    assert!(envelopes.iter().all(|one| one.1 == envelopes[0].1));
    sealed.await.unwrap().is(201);
    nobodys.await.unwrap().problem(404, "run_not_found");
    for one in reads {
        assert_eq!(&one.await.unwrap().is(200).bytes[..], b"said");
    }
    missing.await.unwrap().problem(404, "payload_not_found");

    for run in &runs {
        numbers.push(api.run(run).await["run_no"].as_u64().unwrap());
        server.audit(run, &[]).await;
    }
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(1..=runs.len() as u64));
    verify_ledger(api).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_together_has_one_checkpoint() {
    let server = Server::start().await;
    let (_, payload) = run(&server.api).await;
    // How many of them are in time is chance, but for none at all to be is a defect.
    for _ in 0..50 {
        let (entries, checkpoints) = counts(&server).await;
        let stopped = stop_ledgers(&server).await;
        let reads: Vec<_> = (0..16).map(|_| get(&server.api, payload.clone())).collect();
        go_on(&server, stopped).await;
        for one in reads {
            one.await.unwrap().is(200);
        }
        let after = counts(&server).await;
        assert_eq!(after.0, entries + 16);
        if after.1 < checkpoints + 16 {
            return verify_ledger(&server.api).await;
        }
    }
    panic!("each had a transaction of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_the_database_refuses_does_not_hinder_the_others() {
    let server = Server::start().await;
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(run(&server.api).await.0);
    }
    let bad = runs.swap_remove(3);
    let refuse = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
         create trigger refuse before update of sealed_at on runs for each row when (new.run = run_uuid('{bad}')) execute function refuse();"
    );
    let mut owner = server.sql().await;
    owner.execute(sqlx::AssertSqlSafe(refuse)).await.unwrap();
    let stopped = stop_ledgers(&server).await;
    let refused = seal(&server.api, &bad);
    let seals: Vec<_> = runs.iter().map(|run| seal(&server.api, run)).collect();
    go_on(&server, stopped).await;
    refused.await.unwrap().problem(500, "internal");
    for one in seals {
        one.await.unwrap().is(201);
    }
    for run in &runs {
        server.audit(run, &[]).await;
    }
    assert_eq!(server.api.run(&bad).await["status"], "open");
    owner.execute("drop trigger refuse on runs").await.unwrap();
    seal(&server.api, &bad).await.unwrap().is(201);
    server.audit(&bad, &[]).await;
    verify_ledger(&server.api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_takes_long_is_not_taken_for_a_wrong_clock() {
    let (server, _clock) = stepped().await;
    let run = run(&server.api).await.0;
    // Minutes pass once it has its locks.
    let wait = "
        create function stepped.pass() returns trigger language plpgsql security definer as
          $$ begin update stepped.ahead set days = days + 0.1; return new; end $$;
        create trigger pass after insert on runs for each row execute function stepped.pass();
        create trigger pass before insert on frames for each row execute function stepped.pass();";
    let mut owner = server.sql().await;
    owner.execute(sqlx::raw_sql(wait)).await.unwrap();
    let opened = server.api.any_run().await.run.to_string();
    seal(&server.api, &run).await.unwrap().is(201);
    owner
        .execute(sqlx::raw_sql(
            "drop trigger pass on runs; drop trigger pass on frames",
        ))
        .await
        .unwrap();
    for run in [&run, &opened] {
        server.audit(run, &[]).await;
    }
    verify_ledger(&server.api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_between_the_opening_of_a_payload_and_its_entry_is_not_given_out() {
    let server = Server::start().await;
    let compliance = server.api.role("compliance").await;
    // Whichever is first: nobody has what the ledger says was erased before it was read.
    for _ in 0..6 {
        let (run, payload) = run(&server.api).await;
        let stopped = stop_ledgers(&server).await;
        let erase = json!({"run": run, "tier": 2, "reason": "request-17"});
        let erased = post(&compliance, "/v1/erasures".to_owned(), erase);
        let reads: Vec<_> = (0..6).map(|_| get(&server.api, payload.clone())).collect();
        go_on(&server, stopped).await;
        assert!(erased.await.unwrap().status < 300);
        let mut read = Vec::new();
        for one in reads {
            let answer = one.await.unwrap();
            match answer.status {
                200 => read.push(
                    answer
                        .header("onrecord-ledger-index")
                        .parse::<u64>()
                        .unwrap(),
                ),
                _ => drop(answer.problem(410, "payload_erased")),
            }
        }
        let page = server.api.get("/v1/ledger/entries?limit=256").await.json();
        let entries = page["entries"].as_array().unwrap();
        let of_run = entries.iter().filter(|entry| entry["run"] == run.as_str());
        let erasure = of_run.clone().find(|entry| entry["name"] == "erasure");
        let erasure = erasure.unwrap()["index"].as_u64().unwrap();
        assert!(
            read.iter().all(|index| *index < erasure),
            "{read:?} {erasure}"
        );
        server.audit(&run, &[]).await;
    }
    verify_ledger(&server.api).await;
}
