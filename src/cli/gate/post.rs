//! The frames of a gate: parts of the evidence while it grows, and the `gate_result` at the end.

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Turn;
use super::command::Grown;
use super::earlier::{Earlier, EarlierResult};
use super::evidence::{self, Member};
use super::job::Job;
use crate::client::{Client, ClientError};
use crate::gate::READER;
use crate::import::cut::LOOK_BYTES;
use crate::import::payload::{PART_BYTES, Payload};
use crate::import::request::{FRAME_PAYLOAD_BYTES, FRAME_PAYLOADS, Link, key_part};
use crate::import::text::travels;

/// Attempts that are tried because others took the ones before meanwhile.
const TRIES: u32 = 100;

/// Why it was not recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The evidence on disk.
    #[error("the evidence cannot be read: {0}")]
    Evidence(#[from] std::io::Error),
    /// The run takes nothing more.
    #[error("run {run} is {status}: it takes no verdict any more")]
    Closed {
        /// The run.
        run: String,
        /// `ended` or `sealed`.
        status: String,
    },
    /// Something else has the key.
    #[error(
        "the key {key:?} has another result or other evidence already; without --key and --attempt, \
         attempts are counted"
    )]
    Taken {
        /// The key.
        key: String,
    },
    /// Somebody does not want to wait.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

/// What the server answered.
#[derive(Deserialize)]
pub(super) struct Receipt {
    /// The run.
    pub run: String,
    /// The frame's number.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
    /// When it was recorded.
    pub at: String,
}

/// What was recorded.
pub(super) struct Recorded {
    /// The receipt of the `gate_result`.
    pub receipt: Receipt,
    /// Its key.
    pub key: String,
    /// Which attempt it is.
    pub attempt: u64,
    /// Whether the very same was there before.
    pub already: bool,
}

/// Records what has ended: the very same as an earlier attempt is found to be that attempt, anything
/// else is the next one.
pub(super) async fn record(client: &Client, job: &mut Job) -> Result<Recorded, Failure> {
    let earlier = Earlier::of(client, job).await?;
    // Where a key or an attempt was named or begun, there is nothing to look for.
    if job.key.is_none() && job.attempt.is_none() {
        for one in &earlier.results {
            if one.body != job.body {
                continue;
            }
            let mut recorder = Recorder::again(Recorder::next(client, job, &earlier), one);
            match recorder.finish(job).await {
                Err(Failure::Taken { .. }) => job.members.iter_mut().for_each(Member::forget),
                done => return done,
            }
        }
    }
    Recorder::next(client, job, &earlier).finish(job).await
}

/// A request of an append.
#[derive(Serialize)]
struct Request<'a> {
    kind: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<Turn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<Value>,
    body: Map<String, Value>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    payloads: &'a [Payload],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    links: &'a [Link],
}

/// Posts what belongs to one verdict.
pub(super) struct Recorder<'a> {
    client: &'a Client,
    path: String,
    turn: Option<Turn>,
    actor: Option<Value>,
    name: String,
    candidate: String,
    /// The key of the verdict, where it does not follow from the attempt.
    key: Option<String>,
    /// Whether another attempt may be taken where this one is another's.
    fixed: bool,
    attempt: u64,
    base: String,
    /// How often another attempt was taken instead.
    tries: u32,
}

impl<'a> Recorder<'a> {
    /// For a command that is to be run.
    pub(super) async fn begin(client: &'a Client, job: &Job) -> Result<Self, Failure> {
        let earlier = Earlier::of(client, job).await?;
        if earlier.status != "open" {
            return Err(Failure::Closed {
                run: job.run.clone(),
                status: earlier.status,
            });
        }
        Ok(Self::next(client, job, &earlier))
    }

    fn next(client: &'a Client, job: &Job, earlier: &Earlier) -> Self {
        let same_key = |one: &&EarlierResult| job.key.as_ref() == Some(&one.key);
        let known = earlier.results.iter().find(same_key).map(|one| one.attempt);
        let attempt = job.attempt.or(known).unwrap_or_else(|| earlier.next());
        let base = job.base.clone().or(job.key.clone());
        Self {
            client,
            path: format!("/v1/runs/{}/frames", job.run),
            turn: job.turn,
            actor: job
                .actor
                .as_ref()
                .map(|id| json!({"type": "verifier", "id": id})),
            name: job.name().to_owned(),
            candidate: job.candidate().to_owned(),
            key: job.key.clone(),
            fixed: job.fixed,
            attempt,
            base: base.unwrap_or_else(|| derived(job.name(), job.candidate(), attempt)),
            tries: 0,
        }
    }

    /// For what may be an earlier attempt: its keys and no others.
    fn again(next: Self, one: &EarlierResult) -> Self {
        Self {
            key: Some(one.key.clone()),
            fixed: true,
            attempt: one.attempt,
            base: one.base.clone(),
            ..next
        }
    }

    /// The attempt under which the parts are.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// What the keys of the parts begin with.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Posts parts while a command writes them, until it has ended. What cannot be posted now is tried
    /// again at the end.
    pub(super) async fn while_running(&mut self, members: &mut [Member], grown: &Grown) {
        'again: loop {
            let ended = grown.has_ended();
            for index in 0..members.len() {
                match self.parts(members, index, false).await {
                    Ok(true) => {}
                    Ok(false) => continue 'again,
                    Err(_) => return,
                }
            }
            if ended {
                return;
            }
            grown.more().await;
        }
    }

    /// Posts what is left of the evidence, and then the verdict.
    pub(super) async fn finish(&mut self, job: &mut Job) -> Result<Recorded, Failure> {
        let mut payloads = job
            .notes
            .iter()
            .map(|(name, value)| Payload::json(name.as_str(), value, travels(&value.to_string())))
            .collect::<Vec<_>>();
        let notes = payloads.len();
        while !self.evidence(job, &mut payloads).await? {
            payloads.truncate(notes);
        }
        let keys = job.members.iter().flat_map(|member| &member.keys);
        let links: Vec<_> = keys
            .map(|key| Link::Key {
                rel: "uses",
                key: key.clone(),
            })
            .collect();
        self.verdict(&job.body, &payloads, &links).await
    }

    /// Adds what fits to the verdict's own payloads, and posts the rest in parts. `false` where it has
    /// to be begun again.
    async fn evidence(
        &mut self,
        job: &mut Job,
        payloads: &mut Vec<Payload>,
    ) -> Result<bool, Failure> {
        let mut room = FRAME_PAYLOAD_BYTES;
        let alone = job.members.len() == 1 && payloads.is_empty();
        for index in 0..job.members.len() {
            let member = &job.members[index];
            let length = member.length()?;
            let fits = length <= room.min(PART_BYTES) as u64 && payloads.len() < FRAME_PAYLOADS;
            if length == 0 && !alone {
                continue;
            }
            if member.done == 0 && fits {
                let bytes = evidence::part(&member.path, 0)?;
                // A full part that ends within a character is less than the whole.
                if bytes.len() as u64 == length {
                    room -= bytes.len();
                    payloads.push(evidence::payload(member.name.clone(), bytes, &member.media));
                    continue;
                }
            }
            if !self.parts(&mut job.members, index, true).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn verdict(
        &self,
        body: &Map<String, Value>,
        payloads: &[Payload],
        links: &[Link],
    ) -> Result<Recorded, Failure> {
        let (mut attempt, mut tries) = (self.attempt, self.tries);
        loop {
            let own = || derived(&self.name, &self.candidate, attempt);
            let key = self.key.clone().unwrap_or_else(own);
            let mut body = body.clone();
            body.insert("attempt".into(), attempt.into());
            match self.post("gate_result", &key, body, payloads, links).await {
                Ok((status, receipt)) => {
                    return Ok(Recorded {
                        receipt,
                        key,
                        attempt,
                        already: status == StatusCode::OK,
                    });
                }
                Err(Failure::Taken { .. }) if !self.fixed && tries < TRIES => {
                    tries += 1;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Posts the parts of a file that are not yet posted: all of them once it is `whole`, before that
    /// those that are certainly not the last. `false` where another has these keys: all parts then go
    /// under the next attempt's, from the first on.
    async fn parts(
        &mut self,
        members: &mut [Member],
        index: usize,
        whole: bool,
    ) -> Result<bool, Failure> {
        loop {
            let member = &mut members[index];
            let left = member.length()?.saturating_sub(member.done);
            // Where a part ends depends on what follows, which has to be there.
            if left == 0 || (!whole && left < (PART_BYTES + LOOK_BYTES) as u64) {
                return Ok(true);
            }
            let bytes = evidence::part(&member.path, member.done)?;
            let (length, number) = (bytes.len() as u64, member.keys.len() + 1);
            let is_last = whole && length == left;
            let name = match (is_last, number) {
                (true, 1) => member.name.clone(),
                _ => format!("{}.{number}", member.name),
            };
            let key = format!("{}/{}.{number}", self.base, member.name);
            let mut body = self.observation(&member.name, number);
            if is_last {
                body.insert("last".into(), true.into());
            }
            let payload = evidence::payload(name, bytes, &member.media);
            match self.post("observation", &key, body, &[payload], &[]).await {
                Ok(_) => {
                    member.done += length;
                    member.keys.push(key);
                }
                Err(Failure::Taken { .. }) if !self.fixed && self.tries < TRIES => {
                    self.tries += 1;
                    self.attempt += 1;
                    self.base = derived(&self.name, &self.candidate, self.attempt);
                    members.iter_mut().for_each(Member::forget);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn observation(&self, member: &str, part: usize) -> Map<String, Value> {
        let (tool, version) = READER.split_once('/').unwrap_or((READER, ""));
        let body = json!({
            "observation": "gate_evidence", "source": self.name, "tool": tool,
            "tool_version": version, "environment": { "candidate": self.candidate },
            "stream": member, "part": part,
        });
        match body {
            Value::Object(body) => body,
            _ => Map::new(),
        }
    }

    async fn post(
        &self,
        kind: &'static str,
        key: &str,
        body: Map<String, Value>,
        payloads: &[Payload],
        links: &[Link],
    ) -> Result<(StatusCode, Receipt), Failure> {
        let request = Request {
            kind,
            key,
            turn: self.turn,
            actor: self.actor.clone(),
            body,
            payloads,
            links,
        };
        let answer = self.client.post(&self.path, &request).await;
        answer.map_err(|error| match error.code() {
            Some("key_conflict") => Failure::Taken {
                key: key.to_owned(),
            },
            _ => Failure::Server(error),
        })
    }
}

/// The key of an attempt: equal calls derive equal keys.
fn derived(name: &str, candidate: &str, attempt: u64) -> String {
    format!("gate/{}/{candidate}/{attempt}", key_part(name))
}
