//! Writers that go on until the server does not.

use crate::api::{Answer, Api, receipt};
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The longest that writers may take for the next moment.
const PATIENCE: Duration = Duration::from_secs(300);

/// Counts acknowledgements, and tells at each of some moments.
pub struct Counter {
    count: AtomicUsize,
    moments: Vec<usize>,
    reached: Semaphore,
}

impl Counter {
    pub fn new(moments: &[usize]) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            moments: moments.to_vec(),
            reached: Semaphore::new(0),
        })
    }

    pub fn add(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.moments.contains(&count) {
            self.reached.add_permits(1);
        }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for the next of the moments.
    pub async fn reached(&self) {
        let reached = tokio::time::timeout(PATIENCE, self.reached.acquire()).await;
        let reached = reached.expect("the writers go on").expect("it is open");
        reached.forget();
    }
}

/// What a writer sent, with the receipt where there was an answer.
pub type Sent = (Value, Option<Receipt>);

pub fn frame(key: &str) -> Value {
    json!({"kind": "observation", "key": key, "body": {"of": key},
        "payloads": [{"name": "p", "text": format!("said by {key}")}]})
}

/// Posts frame after frame until the server is gone. The last one may or may not have been stored.
pub fn writer(api: Api, run: String, name: String, counter: Arc<Counter>) -> JoinHandle<Vec<Sent>> {
    tokio::spawn(async move {
        let mut sent = Vec::new();
        let path = format!("/v1/runs/{run}/frames");
        for n in 0.. {
            let frame = frame(&format!("{name}-{n}"));
            let request = api
                .request(reqwest::Method::POST, &path)
                .header("content-type", crate::api::JSON)
                .body(frame.to_string());
            match Answer::try_of(request).await {
                Ok(answer) if answer.status == 201 => {
                    sent.push((frame, Some(answer.receipt())));
                    counter.add();
                }
                // A server that is about to end may say so.
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{}", answer.text());
                    sent.push((frame, None));
                    break;
                }
                Err(_) => {
                    sent.push((frame, None));
                    break;
                }
            }
        }
        sent
    })
}

/// Sends streams of frames until the server is gone. Only whole lines of the answer count.
pub fn streamer(
    api: Api,
    run: String,
    name: String,
    counter: Arc<Counter>,
) -> JoinHandle<Vec<Sent>> {
    tokio::spawn(async move {
        let mut sent = Vec::new();
        let path = format!("/v1/runs/{run}/frames");
        'streams: for stream in 0.. {
            let frames: Vec<Value> = (0..20)
                .map(|n| frame(&format!("{name}-{stream}-{n}")))
                .collect();
            let body: String = frames.iter().map(|frame| format!("{frame}\n")).collect();
            let request = api
                .request(reqwest::Method::POST, &path)
                .header("content-type", crate::api::NDJSON)
                .body(body);
            let Ok(mut response) = request.send().await else {
                sent.extend(frames.into_iter().map(|frame| (frame, None)));
                break;
            };
            let mut buffer: Vec<u8> = Vec::new();
            let mut left = frames.into_iter();
            loop {
                let chunk = response.chunk().await;
                let ended = !matches!(chunk, Ok(Some(_)));
                buffer.extend_from_slice(&chunk.ok().flatten().unwrap_or_default());
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let line: Value = serde_json::from_slice(&line).expect("a line");
                    if line["status"] == 201 {
                        sent.push((left.next().expect("its frame"), Some(receipt(&line))));
                        counter.add();
                    } else if line.get("done").is_some() && left.len() == 0 {
                        continue 'streams;
                    }
                }
                if ended {
                    break;
                }
            }
            sent.extend(left.map(|frame| (frame, None)));
            break;
        }
        sent
    })
}

/// Sends everything again: what was acknowledged is answered with the same receipt, and what was not
/// is stored now or was before. Returns the receipts of all.
pub async fn retry_all(api: &Api, run: &str, sent: &[Sent]) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for (frame, acknowledged) in sent {
        let answer = api.frame(run, frame).await;
        match acknowledged {
            Some(receipt) => {
                let answer = answer.is(200);
                assert_eq!(answer.receipt(), *receipt);
                receipts.push(answer.receipt());
            }
            None => {
                assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
                receipts.push(answer.receipt());
            }
        }
    }
    receipts
}
