//! One run being written: frames are gathered into batches, and the receipts that others link to are
//! kept.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::{Client, ClientError, Problem};
use crate::import::payload::Payload;
use crate::import::request::{FrameRequest, IMPORTER, Importer};
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
    /// A frame has no JSON form: a fault of the program.
    #[error("frame `{key}` cannot be written: {why}")]
    Unwritable {
        /// Its key.
        key: String,
        /// Why.
        why: String,
    },
}

/// What an import means by a refusal of the API.
fn hint(problem: &Problem) -> &'static str {
    if problem.code.contains("sealed") {
        "the file has grown since its run was sealed, and a sealed run takes nothing more: "
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
}

/// A frame that waits for its answer.
struct Waiting {
    key: String,
    linked_to: bool,
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
    batch: Vec<u8>,
    waiting: Vec<Waiting>,
    hashes: HashMap<String, String>,
}

impl RunPost {
    /// Opens the run, or finds the one that an earlier import opened.
    pub async fn open(client: &Client, opening: &Opening) -> Result<Self, Failure> {
        let request = OpenRequest {
            session: &opening.session,
            key: &opening.key,
            actor: IMPORTER,
            occurred_at: opening.occurred_at.as_deref(),
            payloads: &opening.payloads,
        };
        let answer = client.post::<_, Receipt>("/v1/runs", &request).await;
        let (status, receipt) = answer.map_err(|error| match error {
            ClientError::Problem(problem) => Failure::Refused {
                run: "the run to be opened".to_owned(),
                key: opening.key.clone(),
                hint: hint(&problem),
                problem,
            },
            other => Failure::Server(other),
        })?;
        let mut post = Self {
            run: receipt.run,
            opening: receipt.hash,
            frames: 1,
            already: u64::from(status.as_u16() == 200),
            payloads: 0,
            payload_bytes: 0,
            batch: Vec::new(),
            waiting: Vec::new(),
            hashes: HashMap::new(),
        };
        post.count(&opening.payloads);
        Ok(post)
    }

    fn count(&mut self, payloads: &[Payload]) {
        self.payloads += payloads.len() as u64;
        self.payload_bytes += payloads
            .iter()
            .map(|payload| payload.len() as u64)
            .sum::<u64>();
    }

    /// Puts a frame into the batch, and sends the batch when it is full.
    pub async fn push(&mut self, client: &Client, frame: FrameRequest) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.batch, &frame).map_err(|error| Failure::Unwritable {
            key: frame.key.clone(),
            why: error.to_string(),
        })?;
        self.batch.push(b'\n');
        self.count(&frame.payloads);
        self.waiting.push(Waiting {
            key: frame.key,
            linked_to: frame.linked_to,
        });
        if self.waiting.len() >= BATCH_FRAMES || self.batch.len() >= BATCH_BYTES {
            self.flush(client).await?;
        }
        Ok(())
    }

    /// Sends what waits. A refused frame ends the import of the file: what came before it is kept.
    pub async fn flush(&mut self, client: &Client) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.batch).into();
        let waiting = std::mem::take(&mut self.waiting);
        let path = format!("/v1/runs/{}/frames", self.run);
        let answers = client.post_lines(&path, lines).await?;
        for (frame, answer) in waiting.iter().zip(&answers) {
            if !matches!(answer.status, 200 | 201) {
                let problem = Box::new(answer.problem.clone().unwrap_or_default());
                return Err(Failure::Refused {
                    run: format!("run {}", self.run),
                    key: frame.key.clone(),
                    hint: hint(&problem),
                    problem,
                });
            }
            self.frames += 1;
            self.already += u64::from(answer.status == 200);
            if let Some(hash) = answer.hash.as_ref().filter(|_| frame.linked_to) {
                self.hashes.insert(frame.key.clone(), hash.clone());
            }
        }
        if answers.len() < waiting.len() {
            return Err(Failure::Unanswered {
                answers: answers.len(),
                frames: waiting.len(),
            });
        }
        Ok(())
    }

    /// The hash of a frame that others link to, once it is acknowledged.
    pub async fn hash_of(&mut self, client: &Client, key: &str) -> Result<Option<String>, Failure> {
        if !self.hashes.contains_key(key) {
            self.flush(client).await?;
        }
        Ok(self.hashes.get(key).cloned())
    }

    /// Seals the run. One that is sealed already is fine: nothing was added to it.
    pub async fn seal(&self, client: &Client) -> Result<Value, Failure> {
        let path = format!("/v1/runs/{}/seal", self.run);
        let answer = client.post::<_, Value>(&path, &Map::new()).await;
        match answer {
            Ok((_, seal)) => Ok(seal),
            Err(error) if error.code().is_some_and(|code| code.contains("sealed")) => Ok(client
                .read::<Value>(&format!("/v1/runs/{}", self.run))
                .await?),
            Err(error) => Err(error.into()),
        }
    }
}
