//! The database's disk is full: a clear answer, and service as soon as there is room.

use crate::api::audit::{audit, trust};
use crate::api::{Answer, Api, JSON, assert_problem};
use crate::harness;
use crate::load::frame;
use crate::process::{DataDir, Process};
use crate::processes::check_log;
use crate::proxy::{Fault, Moment, Proxy};
use onrecord_verify::{Code, Options, Trust, verify};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

/// MiB of a disk that has room for a new cluster and little else.
const DISK_MIB: u32 = 128;

fn is_full(answer: Answer) {
    answer.problem(507, "storage_full");
    assert_eq!(answer.header("retry-after"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_problem_of_its_own_and_passes() {
    let database = harness::database().await;
    let proxy = Proxy::before(&database.url).await;
    let data_dir = DataDir::new();
    let process = Process::start(&data_dir, &["--database-url", proxy.url()]);
    let api = &process.api;
    let opened = api.any_run().await;
    let run = opened.run.to_string();
    proxy.arm(Moment::Write, Fault::Answer("53100"), usize::MAX);
    let opening = json!({"session": {"agent": "any"}, "key": "another"});
    is_full(api.post("/v1/runs", &opening).await);
    for key in ["a", "a", "b"] {
        is_full(api.frame(&run, &frame(key)).await);
    }
    let lines = format!("{}\n{}\n", frame("c"), frame("d"));
    let answers = api.frames(&run, lines.clone()).await;
    for answer in &answers[..2] {
        assert_problem(&answer["problem"], 507, "storage_full");
    }
    assert_eq!(answers[2], json!({"done": 2, "failed": 2}));
    // What is there can be read.
    audit(api, &run, std::slice::from_ref(&opened)).await;
    assert_eq!(api.size(&run).await, 1);

    proxy.disarm();
    let mut kept = vec![opened];
    for key in ["a", "b"] {
        kept.push(api.frame(&run, &frame(key)).await.is(201).receipt());
    }
    let answers = api.frames(&run, lines).await;
    kept.extend(answers[..2].iter().map(crate::api::receipt));
    audit(api, &run, &kept).await;
    api.post("/v1/runs", &opening).await.is(201);
    check_log(&process.stop());
}

/// Takes all room on a disk until it is dropped.
struct Filler(PathBuf);

impl Filler {
    fn new(data_dir: &DataDir) -> Self {
        let filler = Self(data_dir.path().join("filler"));
        let mut file = File::create(&filler.0).expect("a file");
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        filler
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it is there");
    }
}

/// A frame that needs new pages.
fn long(key: &str) -> Value {
    let text = "no room for this ".repeat(20_000);
    json!({"kind": "observation", "key": key, "payloads": [{"name": "p", "text": text}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_cannot_grow_are_a_full_disk() {
    let Some(data_dir) = DataDir::on_small_disk(DISK_MIB) else {
        return;
    };
    let process = Process::start(&data_dir, &[]);
    let api = &process.api;
    let opened = api.any_run().await;
    let before = api
        .frame(&opened.run, &long("before"))
        .await
        .is(201)
        .receipt();
    // Whoever exports has a pseudonym from then on, which is a row.
    let path = format!("/v1/runs/{}/export?payloads=none", opened.run);
    api.get(&path).await.is(200);
    let filler = Filler::new(&data_dir);
    for key in ["a", "b", "a"] {
        is_full(api.frame(&opened.run, &long(key)).await);
    }
    let kept = [opened, before];
    // What is there can be read. Disclosing a payload is an entry of the ledger first, for which there is no room.
    let bundle = api.get(&path).await.is(200).bytes;
    let options = Options {
        trust: Some(Trust::parse(&trust(api).await).expect("a trust file")),
        receipts: kept.to_vec(),
        ..Options::default()
    };
    let findings = verify(&bundle[..], &options).findings;
    let codes: Vec<Code> = findings.iter().map(|found| found.code).collect();
    assert_eq!(codes, [Code::Unsealed], "{findings:#?}");
    drop(filler);
    let after = api.frame(&kept[0].run, &long("a")).await.is(201).receipt();
    let [opened, before] = kept;
    audit(api, &after.run, &[opened, before, after.clone()]).await;
    check_log(&process.stop());
}

/// Has PostgreSQL begin a new file of its journal with the next thing that it writes.
async fn switch_journal(data_dir: &DataDir) {
    let pid_file = fs::read_to_string(data_dir.path().join("postgres/postmaster.pid"));
    let pid_file = pid_file.expect("it runs");
    let folder = pid_file.lines().nth(4).expect("the socket's folder");
    let url = format!("postgres:///onrecord?host={folder}&user=postgres");
    let mut sql = PgConnection::connect(&url).await.expect("a connection");
    sql.execute("select pg_switch_wal()")
        .await
        .expect("it does");
}

async fn try_frame(api: &Api, run: &str, body: &Value) -> Option<Answer> {
    let path = format!("/v1/runs/{run}/frames");
    let request = api.request(reqwest::Method::POST, &path);
    let request = request.header("content-type", JSON).body(body.to_string());
    Answer::try_of(request).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_cannot_grow_ends_the_server_and_loses_nothing() {
    let Some(data_dir) = DataDir::on_small_disk(DISK_MIB) else {
        return;
    };
    let process = Process::start(&data_dir, &[]);
    let api = process.api.clone();
    let opened = api.any_run().await;
    let run = opened.run.to_string();
    let before = api.frame(&run, &frame("before")).await.is(201).receipt();
    let filler = Filler::new(&data_dir);
    switch_journal(&data_dir).await;
    // PostgreSQL gives up with the error of a full disk, and whether it had committed is not known.
    if let Some(answer) = try_frame(&api, &run, &frame("a")).await {
        assert!(matches!(answer.status, 503 | 507), "{}", answer.text());
    }
    // It needs room to recover, has none, and ends; and its server with it.
    let (status, log) = process.wait();
    assert!(!status.success());
    assert!(log.contains("No space left on device"), "{log}");
    check_log(&log);
    drop(filler);
    let process = Process::start(&data_dir, &[]);
    let kept = [opened, before];
    audit(&process.api, &run, &kept).await;
    let after = process.api.frame(&run, &frame("a")).await;
    assert!(matches!(after.status, 200 | 201), "{}", after.text());
    let [opened, before] = kept;
    audit(&process.api, &run, &[opened, before, after.receipt()]).await;
    check_log(&process.stop());
}
