//! `POST /v1/runs/{run}/frames`: appends one frame, or many.

use super::App;
use super::body::Chunks;
use super::problem::Problem;
use super::receipt::{self, AppendedBody};
use super::request::{Authenticated, RunPath, has_media, idempotency_key, if_match, merge_key};
use super::schema::FrameBody;
use crate::access::{Caller, Role};
use crate::record::append::{Appended, Conditions};
use crate::record::intake::{self, FrameRequest};
use crate::record::{RecordError, Recorder};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

/// Media type of many frames.
const NDJSON: &str = "application/x-ndjson";
/// Frames that share a transaction, and their bytes.
const BATCH_FRAMES: usize = 256;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Answers that may wait for a client that sends before it reads.
const WAITING_ANSWERS: usize = 1_024;
/// How long answers may wait before the client counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to append.
#[derive(Deserialize, IntoParams)]
pub(crate) struct AppendQuery {
    /// `signed`: the receipt comes with a signed `run-head` at the frame.
    receipt: Option<String>,
}

/// A line of the answer to many frames.
#[derive(Serialize, ToSchema)]
pub(crate) struct LineResult {
    /// 201 for a new frame, 200 for a retry, else the problem's status.
    status: u16,
    #[serde(flatten)]
    appended: Option<AppendedBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// The last line of the answer to many frames: without it the answer is cut.
#[derive(Serialize, ToSchema)]
pub(crate) struct Done {
    /// Lines that have a result.
    done: u64,
    /// Of these the refused ones.
    failed: u64,
    /// Why not all lines of the body were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// Appends a frame (`application/json`), or many (`application/x-ndjson`, a result for each line,
/// streamed both ways).
///
/// Frames of one stream are placed in its order. A refused line takes no place and does not hinder
/// the others. The last line of the answer is `{"done", "failed"}`.
#[utoipa::path(
    post, path = "/v1/runs/{run}/frames", tag = "record", operation_id = "appendFrames",
    params(("run" = String, Path, description = "The run"), AppendQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Key of a single frame, instead of `key`"),
        ("If-Match" = Option<String>, Header, description = "The head that the writer saw; for a single frame")),
    request_body(content(
        (FrameBody = "application/json"),
        (String = "application/x-ndjson"),
    )),
    responses(
        (status = 201, description = "The frame is durable", body = AppendedBody),
        (status = 200, description = "A retry: the frame was there. For many frames: a result for each line", content(
            (AppendedBody = "application/json"),
            (LineResult = "application/x-ndjson"),
        )),
        (status = "4XX", description = "Refused; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; retry with the same key", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn append_frames(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<AppendQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[
        Role::Agent,
        Role::Gate,
        Role::Auditor,
        Role::Compliance,
        Role::Admin,
    ])?;
    let signed = match query.receipt.as_deref() {
        None => false,
        Some("signed") => true,
        Some(_) => return Err(Problem::parameter("receipt", "signed, or left out")),
    };
    if has_media(&headers, NDJSON) {
        if signed || headers.contains_key(header::IF_MATCH) {
            return Err(Problem::parameter(
                "receipt and If-Match",
                "a single frame: neither goes with many",
            ));
        }
        // Asked before the first line, so that a wrong address is an answer and not a stream.
        app.recorder.run(caller.clone(), run.clone()).await?;
        let chunks = Chunks::new(&headers, body, usize::MAX, app.body_idle)?;
        return Ok(stream(app.recorder.clone(), caller, run, chunks));
    }
    if !has_media(&headers, "application/json") {
        return Err(Problem::media_type(
            "application/json or application/x-ndjson",
        ));
    }
    let conditions = Conditions {
        head: if_match(&headers)?,
        signed,
    };
    let bytes = super::body::read(&headers, body, intake::REQUEST_BYTES, app.body_idle).await?;
    let mut request = intake::frame(&bytes)?;
    drop(bytes);
    merge_key(&mut request.key, idempotency_key(&headers)?)?;
    let mut results = app
        .recorder
        .append(caller, run, vec![request], conditions)
        .await?;
    let appended = results.pop().unwrap_or(Err(RecordError::CutOff))?;
    Ok(receipt::response(appended))
}

fn stream(recorder: Recorder, caller: Caller, run: RunId, chunks: Chunks) -> Response {
    let (sink, answers) = mpsc::channel::<Bytes>(WAITING_ANSWERS);
    tokio::spawn(async move {
        Stream {
            recorder,
            caller,
            run,
            sink,
            done: 0,
            failed: 0,
        }
        .run(chunks)
        .await
    });
    let answers = futures_util::stream::unfold(answers, |mut answers| async move {
        answers
            .recv()
            .await
            .map(|answer| (Ok::<_, Infallible>(answer), answers))
    });
    (
        [(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))],
        Body::from_stream(answers),
    )
        .into_response()
}

/// One stream of frames and the answers to it.
struct Stream {
    recorder: Recorder,
    caller: Caller,
    run: RunId,
    sink: mpsc::Sender<Bytes>,
    done: u64,
    failed: u64,
}

type Line = Result<FrameRequest, RecordError>;

/// The client does not take its answers.
struct Gone;

impl Stream {
    async fn run(mut self, chunks: Chunks) {
        let problem = match self.read(chunks).await {
            Ok(()) => None,
            Err(Some(problem)) => Some(problem),
            Err(None) => return,
        };
        let done = Done {
            done: self.done,
            failed: self.failed,
            problem,
        };
        let _ = self.send(&[done]).await;
    }

    /// Reads lines and appends them in batches: whatever has come is not made to wait for more.
    async fn read(&mut self, mut chunks: Chunks) -> Result<(), Option<Problem>> {
        let mut buffer: Vec<u8> = Vec::new();
        let mut searched = 0;
        while let Some(chunk) = chunks.next().await.map_err(Some)? {
            buffer.extend_from_slice(&chunk);
            let (mut batch, mut bytes, mut start) = (Vec::new(), 0, 0);
            while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = &buffer[start..searched + end];
                bytes += line.len();
                batch.extend(read_line(line));
                start = searched + end + 1;
                searched = start;
                if batch.len() == BATCH_FRAMES || bytes >= BATCH_BYTES {
                    self.append(std::mem::take(&mut batch))
                        .await
                        .map_err(|Gone| None)?;
                    bytes = 0;
                }
            }
            self.append(batch).await.map_err(|Gone| None)?;
            buffer.drain(..start);
            searched = buffer.len();
            if buffer.len() > intake::REQUEST_BYTES {
                chunks.drain();
                return Err(Some(Problem::body_too_large(intake::REQUEST_BYTES)));
            }
        }
        self.append(read_line(&buffer).into_iter().collect())
            .await
            .map_err(|Gone| None)
    }

    async fn append(&mut self, lines: Vec<Line>) -> Result<(), Gone> {
        if lines.is_empty() {
            return Ok(());
        }
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        for line in lines {
            places.push(line.map(|request| requests.push(request)));
        }
        let expected = requests.len();
        let results = match self
            .recorder
            .append(
                self.caller.clone(),
                self.run.clone(),
                requests,
                Conditions::default(),
            )
            .await
        {
            Ok(results) => results
                .into_iter()
                .map(|result| result.map_err(Problem::from))
                .collect(),
            // The whole batch has one fate, and every line of it is told.
            Err(error) => vec![Err(Problem::from(error)); expected],
        };
        let mut results = results.into_iter();
        let mut answers = Vec::with_capacity(places.len());
        for place in places {
            let result = match place {
                Ok(()) => results.next().unwrap_or_else(|| Err(Problem::internal())),
                Err(error) => Err(Problem::from(error)),
            };
            answers.push(self.answer(result));
        }
        self.send(&answers).await
    }

    fn answer(&mut self, result: Result<Appended, Problem>) -> LineResult {
        self.done += 1;
        match result {
            Ok(appended) => LineResult {
                status: AppendedBody::status(&appended).as_u16(),
                appended: Some(appended.into()),
                problem: None,
            },
            Err(problem) => {
                self.failed += 1;
                LineResult {
                    status: problem.status,
                    appended: None,
                    problem: Some(problem),
                }
            }
        }
    }

    async fn send<T: Serialize>(&self, lines: &[T]) -> Result<(), Gone> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line).map_err(|_| Gone)?;
            bytes.push(b'\n');
        }
        self.sink
            .send_timeout(bytes.into(), PATIENCE)
            .await
            .map_err(|_| Gone)
    }
}

/// A line's request; none for an empty line.
fn read_line(line: &[u8]) -> Option<Line> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    (!line.is_empty()).then(|| intake::frame(line))
}
