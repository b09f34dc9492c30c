//! One writer that sends as fast as it can and one that hardly sends at all do not keep the others waiting.

use crate::api::raw::Raw;
use crate::api::{Api, NDJSON};
use crate::harness;
use crate::insist::{Client, Tally, singles};
use crate::load::frame;
use crate::process::{DataDir, Process};
use crate::processes::check_log;
use bytes::Bytes;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Single frames that each of eight clients posts.
const FRAMES: usize = 25;
/// Frames of the huge stream that may be stored before the others are through: many times as many as
/// theirs, for a batch of them costs about as much as one frame.
const STREAMED: usize = 50_000;
/// Bytes of each frame's payload: what waits in buffers is bounded in bytes, and so is few frames.
const BYTES: usize = 8 * 1024;

fn large(n: usize) -> Value {
    json!({"kind": "observation", "key": format!("flood-{n}"),
        "payloads": [{"name": "p", "text": "much ".repeat(BYTES / 5)}]})
}

/// A stream without an end, until it is told to.
struct Flood {
    enough: Arc<AtomicBool>,
    stored: watch::Receiver<usize>,
    task: JoinHandle<Vec<Receipt>>,
}

impl Flood {
    fn start(api: Api, run: String) -> Self {
        let (enough, stored) = (Arc::<AtomicBool>::default(), watch::Sender::new(0));
        let (told, count, stored) = (enough.clone(), stored.clone(), stored.subscribe());
        let task = tokio::spawn(async move {
            let lines = futures_util::stream::unfold(0, move |n| {
                let ended = told.load(Ordering::Relaxed);
                let lines: String = (n..n + 10).map(|n| format!("{}\n", large(n))).collect();
                async move { (!ended).then(|| (Ok::<_, Infallible>(Bytes::from(lines)), n + 10)) }
            });
            let path = format!("/v1/runs/{run}/frames");
            let request = api.request(reqwest::Method::POST, &path);
            let request = request
                .header("content-type", NDJSON)
                .body(reqwest::Body::wrap_stream(lines));
            let mut response = request.send().await.expect("an answer");
            let (mut buffer, mut receipts) = (Vec::new(), Vec::new());
            while let Some(chunk) = response.chunk().await.expect("it does not break off") {
                buffer.extend_from_slice(&chunk);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let line: Value = serde_json::from_slice(&line).expect("a line");
                    if line.get("done").is_some() {
                        assert_eq!(
                            (&line["done"], &line["failed"]),
                            (&receipts.len().into(), &0.into())
                        );
                        return receipts;
                    }
                    assert_eq!(line["status"], 201, "{line}");
                    receipts.push(crate::api::receipt(&line));
                    count.send_modify(|count| *count += 1);
                }
            }
            panic!("the answer has no end");
        });
        Self {
            enough,
            stored,
            task,
        }
    }

    /// Waits until so many of its frames are stored.
    async fn waits_for(&self, frames: usize) {
        let mut stored = self.stored.clone();
        let enough = stored.wait_for(|stored| *stored >= frames).await;
        enough.expect("it is under way");
    }

    fn stored(&self) -> usize {
        *self.stored.borrow()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_and_a_trickle_starve_nobody() {
    let database = harness::database().await;
    let data_dir = DataDir::new();
    let arguments = ["--database-url", &database.url, "--connections", "4"];
    let process = Process::start(&data_dir, &arguments);
    let api = process.api.clone();
    let (hot, other) = (api.any_run().await, api.any_run().await);
    let flood = Flood::start(api.clone(), hot.run.to_string());

    // The slow one: one byte of a frame for each that the others have stored.
    let token = api.token.as_deref().expect("a token");
    let mut slow = Raw::connect(api.address()).await;
    let headers = [
        "content-type: application/x-ndjson",
        "transfer-encoding: chunked",
    ];
    slow.head(
        &format!("POST /v1/runs/{}/frames", other.run),
        token,
        &headers,
    )
    .await;
    let line = format!("{}\n", frame("slow"));
    let mut bytes = line.as_bytes().chunks(1);

    flood.waits_for(1).await;
    let all: Vec<usize> = (1..=8 * FRAMES).collect();
    let tally = Tally::new(&all);
    // Half of them at the run that is flooded.
    let clients = (0..8).map(|n| {
        let run = if n % 2 == 0 { &hot } else { &other }.run.to_string();
        tokio::spawn(singles(
            Client::of(&api, &tally),
            run,
            format!("c{n}"),
            FRAMES,
        ))
    });
    let clients: Vec<_> = clients.collect();
    for _ in &all {
        tokio::select! {
            () = tally.acknowledged.reached() => {}
            () = flood.waits_for(STREAMED) => panic!("{tally} while {STREAMED} frames of one were"),
        }
        if bytes.len() > 1 {
            let byte = bytes.next().expect("a byte");
            slow.chunk(byte).await.expect("the server takes it");
        }
    }
    let streamed = flood.stored();
    assert!(!flood.task.is_finished(), "it is still under way");
    println!("{} single frames while {streamed} were streamed", all.len());

    // Nor are those two forgotten: the slow one is done while the other goes on.
    for byte in bytes {
        slow.chunk(byte).await.expect("the server takes it");
    }
    slow.send(b"0\r\n\r\n").await;
    assert!(slow.read_head().await.starts_with("HTTP/1.1 200"));
    let other = other.run.to_string();
    while api.size(&other).await < 2 + 4 * FRAMES as u64 {}
    flood.waits_for(streamed + 1).await;
    assert!(!flood.task.is_finished());
    flood.enough.store(true, Ordering::Relaxed);
    let flooded = flood.task.await.expect("it ends");
    let mut of_hot = vec![hot.clone()];
    of_hot.extend(flooded);
    for client in clients {
        let receipts = client.await.expect("no client gives up");
        of_hot.extend(
            receipts
                .into_iter()
                .filter(|receipt| receipt.run == hot.run),
        );
    }
    assert_eq!(tally.uncertain.load(Ordering::Relaxed), 0);
    crate::insist::account(&api, hot.run.as_str(), &of_hot).await;
    check_log(&process.stop());
}
