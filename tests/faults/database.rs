//! The database goes away under load, and comes back.

use crate::api::audit::audit;
use crate::api::{Answer, PROBLEM};
use crate::load::{Counter, frame};
use crate::process::{DataDir, Process};
use onrecord::postgres::{Cluster, Durability};
use onrecord_core::receipt::Receipt;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::sync::Arc;

/// Acknowledgements after which the database crashes.
const CRASHES: [usize; 3] = [20, 90, 160];

/// Brings the whole database down: PostgreSQL ends all sessions and recovers when one is killed.
pub async fn crash(url: &str) {
    // The crash before may not be over: sessions are refused, or end at once.
    let (mut connection, pid) = loop {
        let Ok(mut connection) = PgConnection::connect(url).await else {
            continue;
        };
        let pid = sqlx::query_scalar("select pg_backend_pid()");
        if let Ok(pid) = pid.fetch_one(&mut connection).await {
            break (connection, pid);
        }
    };
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    // The session is seen to be gone before the load goes on.
    while connection.execute("select 1").await.is_ok() {}
}

/// Posts frames, each until it is stored, and counts how often the server was not able to.
async fn insist(
    api: crate::api::Api,
    run: String,
    name: String,
    counter: Arc<Counter>,
) -> (Vec<Receipt>, u64) {
    let (mut receipts, mut refusals) = (Vec::new(), 0);
    let path = format!("/v1/runs/{run}/frames");
    for n in 0..60 {
        let frame = frame(&format!("{name}-{n}")).to_string();
        loop {
            let request = api
                .request(reqwest::Method::POST, &path)
                .header("content-type", crate::api::JSON)
                .body(frame.clone());
            let answer = Answer::try_of(request)
                .await
                .expect("the server itself stays");
            if answer.status == 201 || answer.status == 200 {
                receipts.push(answer.receipt());
                counter.add();
                break;
            }
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert_eq!(answer.header("content-type"), PROBLEM);
            assert!(!answer.header("retry-after").is_empty());
            refusals += 1;
        }
    }
    (receipts, refusals)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_outlives_its_database() {
    let cluster_dir = DataDir::new();
    // A disposable one would rightly lose what it had acknowledged.
    let cluster = Cluster::start(cluster_dir.path(), Durability::Durable, None)
        .await
        .unwrap();
    let mut admin = PgConnection::connect(cluster.url()).await.unwrap();
    admin.execute("create database records").await.unwrap();
    drop(admin);
    let url = cluster.database_url("records");
    let data_dir = DataDir::new();
    let process = Process::start(&data_dir, &["--database-url", &url, "--connections", "4"]);
    assert!(
        data_dir.postmaster().is_none(),
        "it uses that database and nothing else"
    );
    let opened = process.api.any_run().await;
    let run = opened.run.to_string();
    let counter = Counter::new(&CRASHES);
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (api, run, counter) = (process.api.clone(), run.clone(), counter.clone());
            tokio::spawn(insist(api, run, format!("w{n}"), counter))
        })
        .collect();
    for _ in CRASHES {
        counter.reached().await;
        crash(cluster.url()).await;
    }
    let mut kept = vec![opened];
    for writer in writers {
        kept.extend(writer.await.unwrap().0);
    }
    assert_eq!(kept.len(), 241);
    assert_eq!(process.api.size(&run).await, 241);
    audit(&process.api, &run, &kept).await;
    process.api.get("/health/ready").await.is(200);
    let log = process.stop();
    assert!(!log.contains("panicked"), "{log}");
    cluster.stop().await.unwrap();
}
