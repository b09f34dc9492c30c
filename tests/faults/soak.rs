//! Everything for a long time: two servers on one database, one of the three killed now and then, and an
//! account of every frame at the end.
//!
//! `ONRECORD_SOAK_SECONDS=600 cargo test --release --test faults -- --ignored --nocapture soak`

use crate::chance::Chance;
use crate::insist::{Client, Tally, account, ready};
use crate::load::frame;
use crate::process::DataDir;
use crate::processes::Servers;
use crate::restart::cluster;
use onrecord_core::receipt::Receipt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Clients of each of the two servers.
const CLIENTS: usize = 8;
/// Runs that a few clients write to each; the first one takes half of the load.
const RUNS: u64 = 8;
/// Frames after which a run is left alone and another one takes its place, so that the account of one
/// run fits into memory.
const LONGEST: u64 = 20_000;
/// Milliseconds between two kills.
const BETWEEN_MS: std::ops::Range<u64> = 500..4_000;

/// The runs that are written to, and all receipts of each run that there was.
struct Runs {
    present: Vec<String>,
    receipts: BTreeMap<String, Vec<Receipt>>,
}

impl Runs {
    fn add(&mut self, place: usize, opened: Receipt) {
        let run = opened.run.to_string();
        self.present[place].clone_from(&run);
        self.receipts.insert(run, vec![opened]);
    }
}

/// Opens a run, however often that takes.
async fn open(client: &mut Client, key: &str) -> Receipt {
    let body = json!({"key": key, "session": {"agent": "soak"}}).to_string();
    loop {
        let answer = client.try_send("/v1/runs", crate::api::JSON, &body).await;
        match answer {
            Some(answer) if matches!(answer.status, 200 | 201) => return answer.receipt(),
            Some(answer) => client.uncertain(answer).await,
            None => {}
        }
    }
}

/// A frame of one of the shapes that agents send.
fn any_frame(chance: &mut Chance, key: &str) -> Value {
    match chance.of(0..4) {
        0 => json!({"kind": "observation", "key": key, "body": {"of": key}}),
        1 => {
            let output =
                "a line of output\n".repeat(usize::try_from(chance.of(1..2_000)).expect("few"));
            json!({"kind": "observation", "key": key, "payloads": [{"name": "output", "text": output}]})
        }
        _ => frame(key),
    }
}

/// Appends until the time is over: single frames, and now and then a stream.
async fn write(
    mut client: Client,
    runs: Arc<Mutex<Runs>>,
    mut chance: Chance,
    name: String,
    until: Instant,
) {
    let mut n = 0;
    let mut key = move || {
        n += 1;
        format!("{name}-{n}")
    };
    while Instant::now() < until {
        let place = if chance.of(0..2) == 0 {
            0
        } else {
            chance.of(0..RUNS)
        };
        let place = usize::try_from(place).expect("few");
        let run = runs.lock().expect("no panic").present[place].clone();
        let receipts = if chance.of(0..6) == 0 {
            let frames = (0..chance.of(2..60)).map(|_| any_frame(&mut chance, &key()));
            let frames: Vec<Value> = frames.collect();
            client.stream(&run, &frames).await
        } else {
            vec![client.post(&run, &any_frame(&mut chance, &key())).await]
        };
        let last = receipts.last().expect("one at least").seq;
        runs.lock()
            .expect("no panic")
            .receipts
            .get_mut(&run)
            .expect("the run is known")
            .extend(receipts);
        if last >= LONGEST && runs.lock().expect("no panic").present[place] == run {
            let next = open(&mut client, &format!("after-{run}")).await;
            let mut runs = runs.lock().expect("no panic");
            // Whoever comes second was given the same run by the key.
            if runs.present[place] == run {
                runs.add(place, next);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as ONRECORD_SOAK_SECONDS says"]
async fn soak() {
    let length = Duration::from_secs(crate::setting("ONRECORD_SOAK_SECONDS").unwrap_or(20));
    let mut chance = Chance::new("soak");
    let cluster_dir = DataDir::new();
    let mut database = cluster(&cluster_dir).await;
    let mut admin = PgConnection::connect(database.url()).await.unwrap();
    admin.execute("create database records").await.unwrap();
    drop(admin);
    let mut servers = Servers::start(2, &database.database_url("records"), "error");
    let tally = Tally::new(&[]);
    let runs = Arc::new(Mutex::new(Runs {
        present: vec![String::new(); usize::try_from(RUNS).unwrap()],
        receipts: BTreeMap::new(),
    }));
    let mut client = servers.client(0, &tally);
    for place in 0..usize::try_from(RUNS).unwrap() {
        let opened = open(&mut client, &format!("run-{place}")).await;
        runs.lock().unwrap().add(place, opened);
    }

    let until = Instant::now() + length;
    let writers = (0..2 * CLIENTS).map(|n| {
        let client = servers.client(n % 2, &tally);
        let chance = chance.child();
        tokio::spawn(write(client, runs.clone(), chance, format!("w{n}"), until))
    });
    let writers: Vec<_> = writers.collect();
    let mut kills = [0; 4];
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(chance.of(BETWEEN_MS))).await;
        let victim = usize::try_from(chance.of(0..4)).unwrap();
        kills[victim] += 1;
        let postmaster = Pid::from_raw(database.pid().cast_signed()).unwrap();
        match victim {
            0 | 1 => {
                servers.kill(victim);
                servers.restart(victim);
            }
            2 => {
                kill_process(postmaster, Signal::KILL).unwrap();
                database.exited().await;
                drop(database);
                database = cluster(&cluster_dir).await;
            }
            _ => {
                crate::database::crash(database.url()).await;
                // A server that starts expects its database to be there.
                while PgConnection::connect(database.url()).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
            }
        }
    }
    for writer in writers {
        writer.await.expect("no client gives up");
    }
    println!("{tally}");
    println!(
        "killed: {} and {} times a server, {} times PostgreSQL, {} times a session of it",
        kills[0], kills[1], kills[2], kills[3]
    );
    let runs = std::mem::take(&mut runs.lock().unwrap().receipts);
    let frames: usize = runs.values().map(Vec::len).sum();
    assert_eq!(frames, tally.acknowledged.count() + runs.len());
    ready(&servers.api(0)).await;
    for (run, receipts) in &runs {
        account(&servers.api(0), run, receipts).await;
    }
    println!(
        "{frames} frames in {} runs: none missing, none twice, no fork, each run verified",
        runs.len()
    );
    servers.stop();
    database.stop().await.unwrap();
}
