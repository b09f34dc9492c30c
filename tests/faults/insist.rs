//! Clients that do not give up: each frame is sent until it is acknowledged, by whichever server answers
//! there by then.

use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::api::{Answer, Api, JSON, NDJSON, PROBLEM, receipt};
use crate::load::{Counter, frame};
use onrecord_core::digest::leaf_hash;
use onrecord_core::receipt::Receipt;
use onrecord_verify::Code;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What a client leaves between two attempts.
const PAUSE: Duration = Duration::from_millis(25);
/// The longest that a server may be away, or take for an answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What happened to all clients of a test.
pub struct Tally {
    pub acknowledged: Arc<Counter>,
    /// Answers that said that it is not known, or that there is no room.
    pub uncertain: AtomicUsize,
    /// Requests that had no answer.
    pub lost: AtomicUsize,
    /// Frames that a retry found stored.
    pub found: AtomicUsize,
}

impl Tally {
    /// Tells at each of some numbers of acknowledgements.
    pub fn new(moments: &[usize]) -> Arc<Self> {
        Arc::new(Self {
            acknowledged: Counter::new(moments),
            uncertain: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
        })
    }

    fn add(&self, status: u64) {
        self.acknowledged.add();
        if status == 200 {
            self.found.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        write!(
            formatter,
            "{} frames acknowledged ({} of them found by a retry), {} answers uncertain, {} requests without an answer",
            self.acknowledged.count(),
            number(&self.found),
            number(&self.uncertain),
            number(&self.lost)
        )
    }
}

/// A client of a server that may be another process from one request to the next.
#[derive(Clone)]
pub struct Client {
    pub server: watch::Receiver<Api>,
    pub tally: Arc<Tally>,
}

impl Client {
    /// A client of one server that stays.
    pub fn of(api: &Api, tally: &Arc<Tally>) -> Self {
        Self {
            server: watch::Sender::new(api.clone()).subscribe(),
            tally: tally.clone(),
        }
    }

    /// Posts a frame until it is stored. Nothing but that it is not known may be answered meanwhile.
    pub async fn post(&mut self, run: &str, frame: &Value) -> Receipt {
        let path = format!("/v1/runs/{run}/frames");
        let body = frame.to_string();
        loop {
            let Some(answer) = self.try_send(&path, JSON, &body).await else {
                continue;
            };
            if matches!(answer.status, 200 | 201) {
                self.tally.add(answer.status.into());
                return answer.receipt();
            }
            self.uncertain(answer).await;
        }
    }

    /// Sends frames as one stream, and what had no receipt again, until all are stored.
    pub async fn stream(&mut self, run: &str, frames: &[Value]) -> Vec<Receipt> {
        let path = format!("/v1/runs/{run}/frames");
        let mut receipts: Vec<Option<Receipt>> = vec![None; frames.len()];
        while receipts.contains(&None) {
            let left = (0..frames.len()).filter(|n| receipts[*n].is_none());
            let left: Vec<usize> = left.collect();
            let body: String = left.iter().map(|n| format!("{}\n", frames[*n])).collect();
            let api = self.server.borrow_and_update().clone();
            let request = api.request(reqwest::Method::POST, &path);
            let request = request.header("content-type", NDJSON).body(body);
            let Ok(mut response) = request.send().await else {
                self.wait_for_server().await;
                continue;
            };
            if response.status() != 200 {
                let answer = Answer::try_from_response(response).await;
                self.uncertain(answer.expect("a problem")).await;
                continue;
            }
            let (mut buffer, mut left, mut failed) = (Vec::new(), left.into_iter(), false);
            // A line that came whole counts, also where the rest never comes.
            let lost = loop {
                let Ok(chunk) = response.chunk().await else {
                    break true;
                };
                let Some(chunk) = chunk else { break false };
                buffer.extend_from_slice(&chunk);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let line: Value = serde_json::from_slice(&line).expect("a line");
                    if line.get("done").is_some() {
                        continue;
                    }
                    let n = left.next().expect("its frame");
                    match line["status"].as_u64() {
                        Some(status @ (200 | 201)) => {
                            receipts[n] = Some(receipt(&line));
                            self.tally.add(status);
                        }
                        _ => {
                            assert!(is_uncertain(&line["problem"]), "{line}");
                            failed = true;
                        }
                    }
                }
            };
            if lost {
                self.wait_for_server().await;
            } else if failed {
                self.tally.uncertain.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        }
        receipts.into_iter().flatten().collect()
    }

    /// An answer, or that the server went away; then it waits for the next one.
    pub async fn try_send(
        &mut self,
        path: &str,
        media: &'static str,
        body: &str,
    ) -> Option<Answer> {
        let api = self.server.borrow_and_update().clone();
        let request = api.request(reqwest::Method::POST, path);
        let request = request.header("content-type", media).body(body.to_owned());
        let answer = tokio::time::timeout(PATIENCE, Answer::try_of(request)).await;
        let answer = answer.expect("every request is answered").ok();
        if answer.is_none() {
            self.wait_for_server().await;
        }
        answer
    }

    async fn wait_for_server(&mut self) {
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
        let next = tokio::time::timeout(PATIENCE, self.server.changed()).await;
        let next = next.expect("the server comes back");
        next.expect("a server that nobody kills answers");
    }

    /// Fails where an answer is more than uncertain, and leaves a pause.
    pub async fn uncertain(&self, answer: Answer) {
        let text = answer.text();
        assert_eq!(answer.header("content-type"), PROBLEM, "{text}");
        assert!(is_uncertain(&answer.json()), "{text}");
        assert!(!answer.header("retry-after").is_empty());
        self.tally.uncertain.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is no refusal of the frame: that it is not known, that the database is away, that there is no room.
pub fn is_uncertain(problem: &Value) -> bool {
    let codes = [
        (503, "busy"),
        (503, "database_unavailable"),
        (503, "outcome_unknown"),
        (507, "storage_full"),
    ];
    codes
        .iter()
        .any(|(status, code)| problem["status"] == *status && problem["code"] == *code)
}

/// Sends some frames alone, each after the one before is stored, under names that begin with this one.
pub async fn singles(mut client: Client, run: String, name: String, frames: usize) -> Vec<Receipt> {
    let mut receipts = Vec::with_capacity(frames);
    for n in 0..frames {
        let frame = frame(&format!("{name}-{n}"));
        receipts.push(client.post(&run, &frame).await);
    }
    receipts
}

/// Sends as many frames as a stream.
pub async fn batch(mut client: Client, run: String, name: String, frames: usize) -> Vec<Receipt> {
    let frames = (0..frames).map(|n| frame(&format!("{name}-{n}")));
    let frames: Vec<Value> = frames.collect();
    client.stream(&run, &frames).await
}

/// Waits until a server has its database.
pub async fn ready(api: &Api) {
    let ready = async {
        while api.get("/health/ready").await.status != 200 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, ready).await;
    waited.expect("the database comes back");
}

/// The audit of a run whose every frame has a receipt here: the verifier finds no fault in the export
/// under all receipts, and the run is these frames, each once, and nothing else.
pub async fn account(api: &Api, run: &str, receipts: &[Receipt]) {
    let bytes = export(api, run).await;
    let report = check(&bytes, &trust(api).await, receipts);
    let codes: Vec<Code> = report.findings.iter().map(|found| found.code).collect();
    assert_eq!(codes, [Code::Unsealed], "{:#?}", report.findings);
    let frames = Bundle::read(&bytes).frames();
    let mut places = HashSet::new();
    for receipt in receipts {
        let place = usize::try_from(receipt.seq).expect("a place");
        assert_eq!(receipt.run.as_str(), run);
        assert!(places.insert(place), "frame {place} was given twice");
        let frame = frames.get(place);
        let frame =
            frame.unwrap_or_else(|| panic!("frame {place} was acknowledged and is not there"));
        assert_eq!(leaf_hash(frame), receipt.hash, "frame {place}");
    }
    assert_eq!(frames.len(), receipts.len(), "nothing else is there");
    let key = |frame: &Vec<u8>| {
        let frame: Value = serde_json::from_slice(frame).expect("a frame is JSON");
        frame["key"].as_str().map(str::to_owned)
    };
    let keys: HashSet<_> = frames.iter().map(key).collect();
    assert_eq!(keys.len(), frames.len(), "each key is there once");
}
