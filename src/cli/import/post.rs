//! One run being written: frames are gathered into batches, and the receipts that others link to are
//! kept.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::{Client, ClientError, Problem};
use crate::import::moved::{Parts, move_refused};
use crate::import::payload::Payload;
use crate::import::request::{FrameRequest, IMPORTER, Importer, Link};
use crate::import::{ImportError, Opening};

/// Frames of a batch.
const BATCH_FRAMES: usize = 200;
/// Bytes of a batch after which it is sent; one frame may be larger.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Why a file was not imported, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The file.
    #[error(transparent)]
    File(#[from] ImportError),
    /// The server.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The server refused a frame.
    #[error("{hint}frame `{key}` of {run}: {problem}")]
    Refused {
        /// The run, in words.
        run: String,
        /// The frame's key, which names the line.
        key: String,
        /// Why.
        problem: Box<Problem>,
        /// What that means for an import.
        hint: &'static str,
    },
    /// The server did not answer for every frame.
    #[error("the server answered for {answers} of {frames} frames")]
    Unanswered {
        /// Its answers.
        answers: usize,
        /// The frames.
        frames: usize,
    },
    /// What is in the file now belongs to another session.
    #[error("the file is of another session now")]
    OtherSession,
    /// A frame has no JSON form: a fault of the program.
    #[error("frame `{key}` cannot be written: {why}")]
    Unwritable {
        /// Its key.
        key: String,
        /// Why.
        why: String,
    },
}

impl Failure {
    /// The problem, where the server refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem, .. } | Self::Server(ClientError::Problem(problem)) => {
                Some(problem)
            }
            _ => None,
        }
    }

    /// Whether the run that was written to takes nothing more.
    pub fn is_closed(&self) -> bool {
        self.problem().is_some_and(closed)
    }

    /// Whether something else is on record under the same key.
    pub fn is_conflict(&self) -> bool {
        self.problem()
            .is_some_and(|problem| problem.status == 409 && !closed(problem))
    }
}

/// Whether a problem means that the run takes nothing more.
fn closed(problem: &Problem) -> bool {
    matches!(problem.code.as_str(), "run_sealed" | "run_ended")
}

/// Whether something was refused for a secret in it.
fn is_secret(problem: &Problem) -> bool {
    problem.code == "secret_in_metadata"
}

/// Where it is in the request.
fn at(problem: &Problem) -> &str {
    problem.pointer.as_deref().unwrap_or_default()
}

/// What an import means by a refusal of the API.
fn hint(problem: &Problem) -> &'static str {
    if closed(problem) {
        "the file has grown since its run was sealed, and a sealed run takes nothing more (`onrecord watch` opens another one for the rest): "
    } else if problem.status == 409 {
        "the file is not what it was when it was imported before, or another file has the same session id (give this one another with --session): "
    } else {
        ""
    }
}

/// The answer to an append.
#[derive(Deserialize)]
struct Receipt {
    run: String,
    hash: String,
}

#[derive(Serialize)]
struct OpenRequest<'a> {
    session: &'a Map<String, Value>,
    key: &'a str,
    actor: Importer,
    #[serde(skip_serializing_if = "Option::is_none")]
    occurred_at: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    payloads: &'a [Payload],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    links: &'a [Link],
}

/// Whose receipts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those of frames that other threads link to.
    LinkedTo,
    /// Those of all frames: the thread goes on in another run, from where they are linked to.
    All,
}

/// A run that is being written.
pub struct RunPost {
    /// Its id.
    pub run: String,
    /// The hash of its `session` frame.
    pub opening: String,
    /// Frames posted, the `session` frame among them.
    pub frames: u64,
    /// Frames that were there before.
    pub already: u64,
    /// Payloads posted.
    pub payloads: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Values with secrets that were moved into payloads.
    pub moved: u64,
    /// Keys that had a secret in them, and what they are instead.
    renamed: HashMap<String, String>,
    /// Frames that wait to be sent, or to be sent again: those that were not acknowledged.
    waiting: Vec<FrameRequest>,
    waiting_bytes: usize,
    keep: Keep,
    hashes: HashMap<String, String>,
}

impl RunPost {
    /// Opens the run, or finds the one that an earlier import opened.
    pub async fn open(
        client: &Client,
        opening: &Opening,
        links: &[Link],
        keep: Keep,
    ) -> Result<Self, Failure> {
        let mut opening = opening.clone();
        let parts = Parts {
            member: "session",
            body: &mut opening.session,
            key: &mut opening.key,
            payloads: &mut opening.payloads,
            links: &mut [],
        };
        let mut moved = parts.move_out();
        // A member is moved once, so that this ends.
        let (status, receipt) = loop {
            let request = OpenRequest {
                session: &opening.session,
                key: &opening.key,
                actor: IMPORTER,
                occurred_at: opening.occurred_at.as_deref(),
                payloads: &opening.payloads,
                links,
            };
            let answer = client.post::<_, Receipt>("/v1/runs", &request).await;
            let problem = match answer {
                Ok(opened) => break opened,
                Err(ClientError::Problem(problem)) => problem,
                Err(other) => return Err(Failure::Server(other)),
            };
            let (body, payloads) = (&mut opening.session, &mut opening.payloads);
            if !is_secret(&problem) || !move_refused("session", body, payloads, at(&problem)) {
                return Err(Failure::Refused {
                    run: "the run to be opened".to_owned(),
                    key: opening.key.clone(),
                    hint: hint(&problem),
                    problem,
                });
            }
            moved += 1;
        };
        let mut post = Self::of(receipt.run, receipt.hash, keep);
        post.already = u64::from(status.as_u16() == 200);
        post.moved = moved;
        post.count(&opening.payloads);
        Ok(post)
    }

    /// A run that is known to be there, with the hash of its `session` frame.
    pub fn of(run: String, opening: String, keep: Keep) -> Self {
        Self {
            run,
            opening,
            frames: 1,
            already: 1,
            payloads: 0,
            payload_bytes: 0,
            moved: 0,
            renamed: HashMap::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            keep,
            hashes: HashMap::new(),
        }
    }

    fn count(&mut self, payloads: &[Payload]) {
        self.payloads += payloads.len() as u64;
        self.payload_bytes += payloads
            .iter()
            .map(|payload| payload.len() as u64)
            .sum::<u64>();
    }

    /// Puts a frame into the batch, with what has a secret in it moved into a payload. Answers whether the batch is
    /// full and should be sent.
    pub fn push(&mut self, mut frame: FrameRequest) -> bool {
        let key = frame.key.clone();
        self.moved += frame.move_out();
        if frame.key != key {
            self.renamed.insert(key, frame.key.clone());
        }
        self.count(&frame.payloads);
        self.waiting_bytes += frame.payloads.iter().map(Payload::len).sum::<usize>();
        self.waiting.push(frame);
        self.waiting.len() >= BATCH_FRAMES || self.waiting_bytes >= BATCH_BYTES
    }

    /// Takes the frames that wait out of the batch.
    pub fn take_waiting(&mut self) -> Vec<FrameRequest> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Sends what waits. What is not acknowledged goes on waiting, whatever the failure. Where the server refuses a
    /// member of a body for a secret that only its own rules know, that is moved too and sent again.
    pub async fn flush(&mut self, client: &Client) -> Result<(), Failure> {
        // A member is moved once, so that this ends.
        loop {
            match self.flush_once(client).await {
                Err(failure) if self.moves(&failure) => {}
                done => return done,
            }
        }
    }

    /// Whether what the server refused could be moved.
    fn moves(&mut self, failure: &Failure) -> bool {
        let Failure::Refused { key, problem, .. } = failure else {
            return false;
        };
        let mut frames = self.waiting.iter_mut();
        let moved = is_secret(problem)
            && frames.any(|frame| frame.key == *key && frame.move_refused(at(problem)));
        self.moved += u64::from(moved);
        moved
    }

    async fn flush_once(&mut self, client: &Client) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let path = format!("/v1/runs/{}/frames", self.run);
        let answers = client.post_lines(&path, self.lines()?).await?;
        let frames = self.take_waiting();
        let unanswered = Failure::Unanswered {
            answers: answers.len(),
            frames: frames.len(),
        };
        let missing = answers.len() < frames.len();
        let mut answers = answers.into_iter();
        let mut refusals: Vec<(String, Problem)> = Vec::new();
        for frame in frames {
            let answer = answers.next();
            if let Some(answer) = &answer
                && matches!(answer.status, 200 | 201)
            {
                self.frames += 1;
                self.already += u64::from(answer.status == 200);
                if let Some(hash) = &answer.hash
                    && (frame.linked_to || self.keep == Keep::All)
                {
                    self.hashes.insert(frame.key, hash.clone());
                }
                continue;
            }
            if let Some(answer) = answer {
                refusals.push((frame.key.clone(), answer.problem.unwrap_or_default()));
            }
            self.waiting_bytes += frame.payloads.iter().map(Payload::len).sum::<usize>();
            self.waiting.push(frame);
        }
        // That a run is closed is told of each frame; what else is wrong says more.
        let worst = refusals.iter().position(|(_, problem)| !closed(problem));
        if refusals.is_empty() {
            return if missing { Err(unanswered) } else { Ok(()) };
        }
        let (key, problem) = refusals.swap_remove(worst.unwrap_or(0));
        Err(Failure::Refused {
            run: format!("run {}", self.run),
            key,
            hint: hint(&problem),
            problem: Box::new(problem),
        })
    }

    /// The frames that wait as lines of JSON.
    fn lines(&self) -> Result<Bytes, Failure> {
        let mut lines = Vec::with_capacity(self.waiting_bytes + 512 * self.waiting.len());
        for frame in &self.waiting {
            serde_json::to_writer(&mut lines, frame).map_err(|error| Failure::Unwritable {
                key: frame.key.clone(),
                why: error.to_string(),
            })?;
            lines.push(b'\n');
        }
        Ok(lines.into())
    }

    /// The hash of a frame whose receipt was kept.
    pub fn hash_of(&self, key: &str) -> Option<&String> {
        self.hashes
            .get(self.renamed.get(key).map_or(key, String::as_str))
    }

    /// Seals the run. One that is sealed already is fine: nothing was added to it.
    pub async fn seal(&self, client: &Client) -> Result<Value, Failure> {
        seal(client, &self.run).await
    }
}

/// Seals a run. One that is sealed already is fine.
pub async fn seal(client: &Client, run: &str) -> Result<Value, Failure> {
    let path = format!("/v1/runs/{run}/seal");
    let answer = client.post::<_, Value>(&path, &Map::new()).await;
    match answer {
        Ok((_, seal)) => Ok(seal),
        Err(error) if error.code().is_some_and(|code| code.contains("sealed")) => {
            Ok(client.read::<Value>(&format!("/v1/runs/{run}")).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// What became of a single frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on record.
    Recorded,
    /// The run takes nothing more.
    Closed,
    /// Another frame has its key.
    Conflict,
}

/// Posts one frame whose refusal need not stop anything.
pub async fn send(client: &Client, run: &str, frame: &FrameRequest) -> Result<Sent, Failure> {
    let mut frame = frame.clone();
    frame.move_out();
    let line = serde_json::to_vec(&frame).map_err(|error| Failure::Unwritable {
        key: frame.key.clone(),
        why: error.to_string(),
    })?;
    let path = format!("/v1/runs/{run}/frames");
    let answers = client.post_lines(&path, line.into()).await?;
    let Some(answer) = answers.into_iter().next() else {
        let (answers, frames) = (0, 1);
        return Err(Failure::Unanswered { answers, frames });
    };
    if matches!(answer.status, 200 | 201) {
        return Ok(Sent::Recorded);
    }
    let problem = answer.problem.unwrap_or_default();
    let failure = Failure::Server(ClientError::Problem(Box::new(problem)));
    match (failure.is_closed(), failure.is_conflict()) {
        (true, _) => Ok(Sent::Closed),
        (_, true) => Ok(Sent::Conflict),
        _ => Err(failure),
    }
}
