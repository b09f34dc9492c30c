//! Several server processes on one database: whoever loses a race gets the next place (case 11), and
//! whoever is killed is missed by nobody.

use crate::api::Api;
use crate::chance::Chance;
use crate::harness;
use crate::insist::{Client, Tally, account, batch, singles};
use crate::process::{DataDir, Process};
use onrecord_core::receipt::Receipt;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Clients of each process.
const CLIENTS: usize = 16;

/// Server processes with one database and one folder of keys.
pub struct Servers {
    data_dir: DataDir,
    arguments: Vec<String>,
    log_level: &'static str,
    places: Vec<Place>,
}

/// Where a process is, or the one that came after it.
struct Place {
    process: Option<Process>,
    api: watch::Sender<Api>,
}

impl Servers {
    pub fn start(count: usize, url: &str, log_level: &'static str) -> Self {
        let arguments = ["--database-url", url, "--connections", "8"].map(str::to_owned);
        let mut servers = Self {
            data_dir: DataDir::new(),
            arguments: arguments.to_vec(),
            log_level,
            places: Vec::new(),
        };
        for _ in 0..count {
            let process = servers.launch();
            servers.places.push(Place {
                api: watch::Sender::new(process.api.clone()),
                process: Some(process),
            });
        }
        servers
    }

    fn launch(&self) -> Process {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Process::start_logging(&self.data_dir, "127.0.0.1:0", &arguments, self.log_level)
    }

    pub fn api(&self, place: usize) -> Api {
        self.places[place].api.borrow().clone()
    }

    /// A client of whatever server is at a place.
    pub fn client(&self, place: usize, tally: &Arc<Tally>) -> Client {
        Client {
            server: self.places[place].api.subscribe(),
            tally: tally.clone(),
        }
    }

    /// Kills the server of a place with -9.
    pub fn kill(&mut self, place: usize) {
        let process = self.places[place].process.take().expect("it runs");
        check_log(&process.kill());
    }

    /// Starts another one, and tells the clients where it is.
    pub fn restart(&mut self, place: usize) {
        let process = self.launch();
        self.places[place].api.send_replace(process.api.clone());
        self.places[place].process = Some(process);
    }

    pub fn stop(self) {
        for place in self.places {
            check_log(&place.process.expect("it runs").stop());
        }
    }
}

/// A server may warn that its database is away, and nothing worse.
pub fn check_log(log: &str) {
    // Of the database's words and not of its codes: five digits stand in a time as well.
    for bad in [
        "panicked",
        "contradicts the model",
        "current transaction is aborted",
        "already a transaction in progress",
    ] {
        let line = log.lines().find(|line| line.contains(bad));
        assert_eq!(line, None, "{log}");
    }
}

/// Clients at all places that append to these runs, one in four of them as streams.
fn load(
    servers: &Servers,
    runs: &[String],
    frames: usize,
    tally: &Arc<Tally>,
) -> Vec<JoinHandle<Vec<Receipt>>> {
    let count = servers.places.len() * CLIENTS;
    let clients = (0..count).map(|n| {
        let client = servers.client(n % servers.places.len(), tally);
        // A client's places and runs are not in step, so that each run is written to by all processes.
        let run = runs[(n / servers.places.len()) % runs.len()].clone();
        let name = format!("c{n}");
        if n % 4 == 0 {
            tokio::spawn(batch(client, run, name, frames))
        } else {
            tokio::spawn(singles(client, run, name, frames))
        }
    });
    clients.collect()
}

/// Opens runs, each by all processes at once and with one key: all of them get the same one.
async fn open(servers: &Servers, runs: usize) -> Vec<Receipt> {
    let mut opened = Vec::new();
    for run in 0..runs {
        let body = json!({"key": format!("run-{run}-of-{runs}"), "session": {"agent": "any"}});
        let calls = (0..servers.places.len()).map(|place| {
            let (api, body) = (servers.api(place), body.clone());
            async move { api.post("/v1/runs", &body).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(made, 1, "one of them opens it");
        let receipts: Vec<Receipt> = answers.iter().map(|answer| answer.receipt()).collect();
        assert!(receipts.iter().all(|receipt| *receipt == receipts[0]));
        assert_eq!(receipts[0].seq, 0);
        opened.extend(receipts.into_iter().next());
    }
    opened
}

/// Waits for all clients, and accounts for every frame of the runs at every server.
async fn settle(servers: &Servers, opened: Vec<Receipt>, clients: Vec<JoinHandle<Vec<Receipt>>>) {
    let mut receipts = opened.clone();
    for client in clients {
        receipts.extend(client.await.expect("no client gives up"));
    }
    for (n, run) in opened.iter().enumerate() {
        let of_run = receipts.iter().filter(|receipt| receipt.run == run.run);
        let of_run: Vec<Receipt> = of_run.cloned().collect();
        let api = servers.api(n % servers.places.len());
        account(&api, run.run.as_str(), &of_run).await;
    }
}

fn names(opened: &[Receipt]) -> Vec<String> {
    opened.iter().map(|opened| opened.run.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_make_one_chain_of_one_run_and_of_sixteen() {
    let database = harness::database().await;
    let servers = Servers::start(3, &database.url, "warn");
    for runs in [1, 16] {
        let tally = Tally::new(&[]);
        let opened = open(&servers, runs).await;
        let clients = load(&servers, &names(&opened), frames(), &tally);
        settle(&servers, opened, clients).await;
        assert_eq!(tally.acknowledged.count(), 3 * CLIENTS * frames());
        assert_eq!(tally.uncertain.load(Ordering::Relaxed), 0, "{tally}");
        assert_eq!(tally.lost.load(Ordering::Relaxed), 0, "{tally}");
    }
    servers.stop();
}

/// What each client sends; 50 in the case itself.
fn frames() -> usize {
    let frames = crate::setting("ONRECORD_FAULTS_FRAMES").unwrap_or(10);
    usize::try_from(frames).expect("a number of frames")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_processes_are_killed_and_nothing_is_missing() {
    let mut chance = Chance::new("two of three processes killed");
    let database = harness::database().await;
    let mut servers = Servers::start(3, &database.url, "warn");
    let opened = open(&servers, 4).await;
    let all = 3 * CLIENTS * frames();
    // Each is killed twice, the last time well before the end.
    let mut number = || usize::try_from(chance.of(1..all as u64 * 3 / 4)).expect("a number");
    let mut moments = [number(), number(), number(), number()];
    moments.sort_unstable();
    let tally = Tally::new(&moments);
    // The first run is hot, the others are of a few clients each.
    let mut runs = names(&opened);
    runs.extend(vec![runs[0].clone(); 4]);
    let clients = load(&servers, &runs, frames(), &tally);
    for round in 0..moments.len() {
        tally.acknowledged.reached().await;
        servers.kill(round % 2);
        servers.restart(round % 2);
    }
    settle(&servers, opened, clients).await;
    println!("{tally}");
    servers.stop();
}
