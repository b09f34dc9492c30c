//! The database is restarted under load, its sessions are ended, its statements are cut short: writers
//! are told 503 and when to come back, and go on afterwards.

use crate::harness;
use crate::insist::{Client, Tally, account, batch, ready, singles};
use crate::process::{DataDir, Process};
use crate::processes::check_log;
use crate::proxy::{Fault, Moment, Proxy};
use onrecord::postgres::{Cluster, Durability};
use onrecord_core::receipt::Receipt;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinHandle;

/// What each of eight clients sends.
const FRAMES: usize = 30;

/// Eight clients at one run, two of which send streams.
pub fn load(process: &Process, run: &str, tally: &Arc<Tally>) -> Vec<JoinHandle<Vec<Receipt>>> {
    let clients = (0..8).map(|n| {
        let client = Client::of(&process.api, tally);
        let (run, name) = (run.to_owned(), format!("c{n}"));
        if n < 2 {
            tokio::spawn(batch(client, run, name, FRAMES))
        } else {
            tokio::spawn(singles(client, run, name, FRAMES))
        }
    });
    clients.collect()
}

/// Waits for the clients, and accounts for all frames of the run.
pub async fn settle(
    process: &Process,
    opened: Receipt,
    clients: Vec<JoinHandle<Vec<Receipt>>>,
    tally: &Tally,
) {
    let run = opened.run.to_string();
    let mut receipts = vec![opened];
    for client in clients {
        receipts.extend(client.await.expect("no client gives up"));
    }
    assert_eq!(receipts.len(), 1 + 8 * FRAMES);
    ready(&process.api).await;
    account(&process.api, &run, &receipts).await;
    println!("{tally}");
    assert_eq!(tally.lost.load(Ordering::Relaxed), 0, "the server stays");
}

/// A cluster that keeps what it acknowledged, in a folder of its own.
pub async fn cluster(data_dir: &DataDir) -> Cluster {
    let cluster = Cluster::start(data_dir.path(), Durability::Durable, None);
    cluster.await.expect("a cluster")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_restarted_under_load() {
    let cluster_dir = DataDir::new();
    let mut database = cluster(&cluster_dir).await;
    let url = database.database_url("records");
    let mut admin = PgConnection::connect(database.url()).await.unwrap();
    admin.execute("create database records").await.unwrap();
    drop(admin);
    let data_dir = DataDir::new();
    let arguments = ["--database-url", &url, "--connections", "4"];
    let process = Process::start(&data_dir, &arguments);
    let opened = process.api.any_run().await;
    let tally = Tally::new(&[20, 70, 150]);
    let clients = load(&process, opened.run.as_str(), &tally);
    // Fast, immediate, and as if the machine had lost its power.
    for signal in [Signal::INT, Signal::QUIT, Signal::KILL] {
        tally.acknowledged.reached().await;
        let postmaster = Pid::from_raw(database.pid().cast_signed()).unwrap();
        kill_process(postmaster, signal).unwrap();
        database.exited().await;
        drop(database);
        database = cluster(&cluster_dir).await;
    }
    settle(&process, opened, clients, &tally).await;
    check_log(&process.stop());
    database.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_ended_and_statements_are_cancelled_under_load() {
    let database = harness::database().await;
    let data_dir = DataDir::new();
    let arguments = ["--database-url", &database.url, "--connections", "4"];
    let process = Process::start(&data_dir, &arguments);
    let opened = process.api.any_run().await;
    let moments: Vec<usize> = (1..=6).map(|n| n * 30).collect();
    let tally = Tally::new(&moments);
    let clients = load(&process, opened.run.as_str(), &tally);
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    for n in 0..moments.len() {
        tally.acknowledged.reached().await;
        let what = ["pg_terminate_backend", "pg_cancel_backend"][n % 2];
        let all = format!(
            "select {what}(pid) from pg_stat_activity
             where datname = current_database() and application_name = 'onrecord'"
        );
        admin.execute(sqlx::AssertSqlSafe(all)).await.unwrap();
    }
    settle(&process, opened, clients, &tally).await;
    check_log(&process.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_take_too_long_are_retried() {
    let database = harness::database().await;
    let proxy = Proxy::before(&database.url).await;
    let data_dir = DataDir::new();
    let arguments = ["--database-url", proxy.url(), "--connections", "4"];
    let process = Process::start(&data_dir, &arguments);
    let opened = process.api.any_run().await;
    let tally = Tally::new(&[20]);
    let clients = load(&process, opened.run.as_str(), &tally);
    tally.acknowledged.reached().await;
    proxy.arm(Moment::Write, Fault::Answer("57014"), 10);
    settle(&process, opened, clients, &tally).await;
    assert_eq!(proxy.disarm(), 10);
    assert!(tally.uncertain.load(Ordering::Relaxed) > 0);
    check_log(&process.stop());
}
