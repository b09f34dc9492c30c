//! The verdicts that a run has already, which attempts are counted by.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::job::Job;
use crate::client::{Client, ClientError};

/// Frames that are fetched at once.
const PAGE: u64 = 1_000;

/// What a run has of a gate and a candidate.
pub(super) struct Earlier {
    /// The run's status.
    pub status: String,
    /// Its verdicts by this gate on this candidate, in their order.
    pub results: Vec<EarlierResult>,
}

/// A verdict that is there.
pub(super) struct EarlierResult {
    /// Which attempt it is.
    pub attempt: u64,
    /// Its body, without `attempt`.
    pub body: Map<String, Value>,
    /// Its key.
    pub key: String,
    /// What the keys of its parts begin with.
    pub base: String,
}

/// A frame, as far as it matters here.
#[derive(Deserialize)]
struct Seen {
    seq: u64,
    key: String,
    kind: String,
    body: Map<String, Value>,
    #[serde(default)]
    links: Vec<SeenLink>,
}

#[derive(Deserialize)]
struct SeenLink {
    rel: String,
    seq: Option<u64>,
}

impl Earlier {
    /// Reads the run's frames, unless it has no verdict at all.
    pub(super) async fn of(client: &Client, job: &Job) -> Result<Self, ClientError> {
        let path = format!("/v1/runs/{}", job.run);
        let run: Value = client.read(&path).await?;
        let mut earlier = Self {
            status: run["status"].as_str().unwrap_or("").to_owned(),
            results: Vec::new(),
        };
        let verdicts = run["kinds"]["gate_result"].as_u64().unwrap_or(0);
        let size = if verdicts == 0 {
            0
        } else {
            run["size"].as_u64().unwrap_or(0)
        };
        let mut parts = HashMap::new();
        for from in (0..size).step_by(PAGE as usize) {
            let page = format!("{path}/frames?from={from}&limit={PAGE}");
            let page = client.read_bytes(&page).await?;
            for line in page.split(|byte| *byte == b'\n') {
                if let Ok(seen) = serde_json::from_slice::<Seen>(line) {
                    earlier.see(seen, &mut parts, job);
                }
            }
        }
        Ok(earlier)
    }

    fn see(&mut self, mut seen: Seen, parts: &mut HashMap<u64, String>, job: &Job) {
        let is = |member: &str, value: &str| seen.body.get(member).is_some_and(|is| is == value);
        if seen.kind == "observation" && is("observation", "gate_evidence") {
            parts.insert(seen.seq, seen.key);
        } else if seen.kind == "gate_result"
            && is("name", job.name())
            && is("candidate", job.candidate())
        {
            let uses = seen.links.iter().filter(|link| link.rel == "uses");
            let part = uses.filter_map(|link| parts.get(&link.seq?)).next();
            let base = part
                .and_then(|key| key.rsplit_once('/'))
                .map(|(base, _)| base.to_owned());
            let attempt = seen
                .body
                .shift_remove("attempt")
                .and_then(|number| number.as_u64());
            self.results.push(EarlierResult {
                // One that was posted without a number still is one.
                attempt: attempt.unwrap_or(self.results.len() as u64 + 1),
                body: seen.body,
                base: base.unwrap_or_else(|| seen.key.clone()),
                key: seen.key,
            });
        }
    }

    /// The number of the next attempt.
    pub(super) fn next(&self) -> u64 {
        let last = self.results.iter().map(|one| one.attempt).max();
        last.unwrap_or(0).saturating_add(1)
    }
}
