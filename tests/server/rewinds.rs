//! A database that was put back from a backup: what was published since is missed, by the server itself and by witnesses,
//! and nothing is recorded until somebody accepts it.

use crate::anchors::{Other, sealed};
use crate::api::audit::{check, export, trust};
use crate::running::Server;
use onrecord::anchor::{Config, Policy};
use onrecord_verify::Code;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

async fn state(server: &Server) -> Value {
    server.api.get("/v1/ledger/anchors").await.is(200).json()
}

/// The file of what was published.
fn file(server: &Server) -> PathBuf {
    let folder = server.data_dir.path().join("published");
    let files = fs::read_dir(folder).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    let file = files.next().expect("a file");
    assert_eq!(files.next(), None, "one ledger");
    file
}

fn size(note: &str) -> u64 {
    note.lines().nth(1).unwrap().parse().unwrap()
}

/// That nothing is recorded, and that all is read.
async fn closed(server: &Server, run: &str, open: &str) {
    let api = &server.api;
    let refused = [
        api.post("/v1/runs", &json!({"session": {"agent": "a"}}))
            .await,
        api.frame(open, &json!({"kind": "observation"})).await,
        api.post(&format!("/v1/runs/{open}/seal"), &json!({})).await,
        api.post("/v1/holds", &json!({"run": run, "matter": "m"}))
            .await,
    ];
    for answer in refused {
        let problem = answer.problem(503, "rewound");
        let action = problem["action"].as_str().unwrap();
        assert!(action.contains("accept-rewind"), "{action}");
    }
    api.get("/health/ready").await.is(200);
    api.run(run).await;
    api.get(&format!("/v1/runs/{run}/frames")).await.is(200);
    let path = format!("/v1/runs/{run}/export?purpose=audit&payloads=none");
    let bytes = api.get(&path).await.is(200).bytes;
    let report = check(&bytes, &trust(api).await, &[]);
    assert_eq!(
        report.verdict.code,
        Code::PayloadWithheld,
        "{:#?}",
        report.findings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_put_back_is_noticed_and_accepted_on_the_ledger() {
    let server = Server::start().await;
    let run = sealed(&server).await;
    let open = server.api.any_run().await.run.to_string();
    server.app.anchors.round().await;
    let (server, backup) = server.backed_up().await;
    let other_backup = {
        // A second one of the same moment, for later.
        let lost = sealed(&server).await;
        server.app.anchors.round().await;
        let kept = fs::read_to_string(file(&server)).unwrap();
        assert!(kept.contains("/t/"), "{kept}");
        lost
    };
    let published = size(&fs::read_to_string(file(&server)).unwrap());

    let server = server.moved_to(backup, None).await;
    closed(&server, &run, &open).await;
    let found = state(&server).await;
    assert_eq!(found["rewound"], true);
    assert_eq!(found["rewinds"][0]["told_by"], "published");
    assert_eq!(found["rewinds"][0]["published_size"], published);
    assert!(found["rewinds"][0]["size"].as_u64().unwrap() < published);
    // A start, or a round, forgets nothing of it, and the file says what it said.
    let server = server.restart().await;
    server.app.anchors.round().await;
    closed(&server, &run, &open).await;
    assert_eq!(size(&fs::read_to_string(file(&server)).unwrap()), published);
    assert_eq!(state(&server).await["rewinds"].as_array().unwrap().len(), 1);

    // Only an admin accepts, and says why.
    let auditor = server.api.role("auditor").await;
    let reason = json!({"reason": "restored after a disk failure"});
    auditor
        .post("/v1/ledger/rewind", &reason)
        .await
        .problem(403, "role_missing");
    let answer = server
        .api
        .post("/v1/ledger/rewind", &json!({"reason": ""}))
        .await;
    answer.problem(400, "malformed_parameter");
    let accepted = server
        .api
        .post("/v1/ledger/rewind", &reason)
        .await
        .is(201)
        .json();
    assert_eq!(accepted["published_sizes"], json!([published]));
    let again = server.api.post("/v1/ledger/rewind", &reason).await;
    again.problem(409, "not_rewound");

    // The ledger says it for ever.
    let entry: Vec<u8> =
        sqlx::query_scalar("select bytes from ledger_entries where name = 'rewind'")
            .fetch_one(&mut server.sql().await)
            .await
            .unwrap();
    let signed = onrecord_core::statement::Signed::parse(&entry).unwrap();
    let Ok(Some(onrecord_core::statement::Predicate::Rewind(rewind))) = signed.predicate() else {
        panic!("no rewind");
    };
    assert_eq!(rewind.published[0].size, published);
    assert_eq!(rewind.reason, "restored after a disk failure");
    assert_eq!(rewind.size, accepted["index"].as_u64().unwrap());

    // And recording goes on, also after a start; the lost run is gone, and everybody can see since when.
    server
        .api
        .frame(&open, &json!({"kind": "observation"}))
        .await
        .is(201);
    server.app.anchors.round().await;
    let server = server.restart().await;
    server.app.anchors.round().await;
    let next = sealed(&server).await;
    for run in [&run, &next] {
        server.audit(run, &[]).await;
    }
    server
        .api
        .get(&format!("/v1/runs/{other_backup}"))
        .await
        .problem(404, "run_not_found");
    assert_eq!(state(&server).await["rewound"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_history_of_the_same_length_is_noticed() {
    let server = Server::start().await;
    let run = sealed(&server).await;
    let open = server.api.any_run().await.run.to_string();
    server.app.anchors.round().await;
    let (server, backup) = server.backed_up().await;
    sealed(&server).await;
    server.app.anchors.round().await;
    let published = fs::read_to_string(file(&server)).unwrap();

    // Put back where nobody remembers, gone on for longer, and then brought together with what was published.
    let away = server.data_dir.path().join("away");
    fs::rename(server.data_dir.path().join("published"), &away).unwrap();
    let server = server.moved_to(backup, None).await;
    for _ in 0..3 {
        sealed(&server).await;
    }
    server.app.anchors.round().await;
    let longer = fs::read_to_string(file(&server)).unwrap();
    assert!(size(&longer) > size(&published));
    fs::write(file(&server), &published).unwrap();
    let server = server.restart().await;
    closed(&server, &run, &open).await;
    assert_eq!(
        state(&server).await["rewinds"][0]["published_size"],
        size(&published)
    );

    // A file that says nothing is not taken for one that says that nothing was published.
    fs::write(file(&server), "nonsense").unwrap();
    let config = server.database.config(server.data_dir.path());
    let refused = onrecord::start::start(&config).await.err().unwrap();
    assert!(refused.to_string().contains("no checkpoint"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_knows_what_server_and_backup_forgot() {
    let one = Other::start("w.example/1").await;
    let config = Config {
        witnesses: Some(Policy::of_all(&[one.pair()]).unwrap()),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    one.know(&trust(&server.api).await).await;
    let run = sealed(&server).await;
    let open = server.api.any_run().await.run.to_string();
    server.app.anchors.round().await;
    let (server, backup) = server.backed_up().await;
    sealed(&server).await;
    server.app.anchors.round().await;
    let known = state(&server).await["witnesses"][0]["cosigned"]["number"]
        .as_u64()
        .unwrap();

    // The whole folder is put back, so that nothing here knows of it.
    fs::remove_file(file(&server)).unwrap();
    let server = server.moved_to(backup, None).await;
    let frame = json!({"kind": "observation"});
    server.api.frame(&open, &frame).await.is(201);
    // Something to be cosigned, since nobody is asked about what is cosigned already.
    let between = server.api.any_run().await.run.to_string();
    server.app.anchors.round().await;
    closed(&server, &run, &open).await;
    let found = state(&server).await;
    assert_eq!(found["rewinds"][0]["told_by"], one.key.to_string());
    assert_eq!(found["rewinds"][0]["published_size"], known);

    let reason = json!({"reason": "restored"});
    server.api.post("/v1/ledger/rewind", &reason).await.is(201);
    server.app.anchors.round().await;
    // It will not cosign this history, and says so; recording goes on nevertheless.
    for run in [&between, &open] {
        server.api.frame(run, &frame).await.is(201);
    }
    let next = sealed(&server).await;
    let server = server.restart().await;
    server.app.anchors.round().await;
    let found = state(&server).await;
    assert_eq!(found["rewound"], false, "{found}");
    assert!(found["witnesses"][0]["problem"].is_string(), "{found}");
    let bytes = export(&server.api, &next).await;
    assert_eq!(
        check(&bytes, &trust(&server.api).await, &[]).verdict.code,
        Code::Verified
    );
}

/// Whatever was written last before a kill, it is nothing that the database has not.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_is_no_rewind() {
    let server = Server::start().await;
    let open = server.api.any_run().await.run.to_string();
    let mut notes = Vec::new();
    for _ in 0..3 {
        sealed(&server).await;
        server.app.anchors.round().await;
        notes.push(fs::read_to_string(file(&server)).unwrap());
    }
    // Killed before the file was written: it says any of the earlier ones, or is not there.
    let mut server = server;
    for note in &notes {
        fs::write(file(&server), note).unwrap();
        server = server.restart().await;
        assert_eq!(state(&server).await["rewound"], false);
        server
            .api
            .frame(&open, &json!({"kind": "observation"}))
            .await
            .is(201);
        // The start writes the newest.
        assert_eq!(&fs::read_to_string(file(&server)).unwrap(), &notes[2]);
    }
    fs::remove_file(file(&server)).unwrap();
    let server = server.restart().await;
    assert_eq!(state(&server).await["rewound"], false);
    // Two processes write the same file, each what it has seen last.
    let second = server.second().await;
    sealed(&second).await;
    second.app.anchors.round().await;
    sealed(&server).await;
    server.app.anchors.round().await;
    second.app.anchors.round().await;
    for one in [&server, &second] {
        assert_eq!(state(one).await["rewound"], false);
        one.api.any_run().await;
    }
}
