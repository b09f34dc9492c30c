//! Many frames in one request: lines in, a result for each line out, both while the other goes on.
//!
//! One task reads and takes lines apart, another appends whatever has come in the meantime: a lone line
//! never waits for company, and a fast writer shares its transactions with itself.

use super::App;
use super::body::{Chunks, Room};
use super::problem::Problem;
use super::receipt::AppendedBody;
use crate::access::Caller;
use crate::record::append::{Appended, Conditions, WhenFull};
use crate::record::intake::{self, FrameRequest};
use crate::record::{RecordError, Recorder, offload};
use bytes::Bytes;
use futures_util::Stream;
use onrecord_core::id::RunId;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use utoipa::ToSchema;

/// Frames from which on lines do not wait for more to share a transaction with.
const BATCH_FRAMES: usize = 256;
/// Parts of a body, of at most so many frames each, that may wait for the transaction before them.
const WAITING_LINES: usize = 4;
/// Bytes of lines that share a transaction, and as many again may wait meanwhile; a longer line goes alone.
const BATCH_BYTES: u32 = 4 * 1024 * 1024;
/// Bytes of the buffer that are kept from line to line.
const KEPT_BYTES: usize = 1024 * 1024;
/// Answers that may wait for a client that sends before it reads.
const WAITING_ANSWERS: usize = 1_024;
/// How long answers may wait before the client counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Begins to append the lines of a body; the answers, the last of which says that it is the last.
pub(crate) fn begin(
    app: &App,
    caller: Caller,
    run: RunId,
    chunks: Chunks,
) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let (sink, answers) = mpsc::channel::<Bytes>(WAITING_ANSWERS);
    let (line_sink, lines) = mpsc::channel(WAITING_LINES);
    let memory = app.body_memory.room(intake::REQUEST_BYTES);
    let reader = tokio::spawn(read_lines(chunks, memory, Passing::new(line_sink)));
    let mut appender = Appender {
        recorder: app.recorder.clone(),
        caller,
        run,
        sink,
        done: 0,
        failed: 0,
    };
    tokio::spawn(async move {
        if appender.append_all(lines).await.is_err() {
            // Nobody takes the answers: what was appended is, what was not read is not.
            reader.abort();
            return;
        }
        let problem = reader
            .await
            .unwrap_or_else(|_| Err(Problem::internal()))
            .err()
            // Of a single request nothing would be stored; of a stream everything that has a result is.
            .map(|problem| Problem {
                action: "Send the lines that have no result again, with the same keys.".to_owned(),
                ..problem
            });
        let done = Done {
            done: appender.done,
            failed: appender.failed,
            problem,
        };
        let _ = appender.send(&[done]).await;
    });
    futures_util::stream::unfold(answers, |mut answers| async move {
        answers.recv().await.map(|answer| (Ok(answer), answers))
    })
}

/// The requests of lines that came together, with their part of the bytes that may wait, and of the memory of all where a
/// line is long.
#[derive(Default)]
struct Lines {
    requests: Vec<Result<FrameRequest, RecordError>>,
    held: Vec<OwnedSemaphorePermit>,
}

impl Lines {
    fn hold(&mut self, permit: OwnedSemaphorePermit) {
        // One permit of many costs to give back what one of few does.
        match self.held.last_mut() {
            Some(last) if Arc::ptr_eq(last.semaphore(), permit.semaphore()) => last.merge(permit),
            _ => self.held.push(permit),
        }
    }
}

/// Takes a body apart into lines until it ends or the appender has gone.
async fn read_lines(
    mut chunks: Chunks,
    mut memory: Room,
    mut passing: Passing,
) -> Result<(), Problem> {
    // The beginning of a line whose end has not come yet.
    let mut begun: Vec<u8> = Vec::new();
    while let Some(chunk) = chunks.next().await? {
        if let Err(problem) = memory.hold(begun.len() + chunk.len()).await {
            chunks.drain();
            return Err(problem);
        }
        let mut rest = &chunk[..];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if begun.is_empty() {
                passing.add(line, memory.take()).await;
            } else {
                begun.extend_from_slice(line);
                passing.add(&begun, memory.take()).await;
                begun.clear();
                // What a long line needed is not kept for the short ones that follow.
                begun.shrink_to(KEPT_BYTES);
            }
            rest = after;
        }
        begun.extend_from_slice(rest);
        // What is complete does not wait for the rest of the body.
        passing.flush().await;
        if begun.len() > intake::REQUEST_BYTES {
            chunks.drain();
            return Err(Problem::line_too_large(intake::REQUEST_BYTES));
        }
    }
    passing.add(&begun, memory.take()).await;
    passing.flush().await;
    Ok(())
}

/// Lines on their way to the appender.
struct Passing {
    room: Arc<Semaphore>,
    lines: Lines,
    sink: mpsc::Sender<Lines>,
}

impl Passing {
    fn new(sink: mpsc::Sender<Lines>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(2 * BATCH_BYTES as usize)),
            lines: Lines::default(),
            sink,
        }
    }

    /// Adds a line, once there is room for it. Empty lines have no answer.
    async fn add(&mut self, line: &[u8], memory: Option<OwnedSemaphorePermit>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        let bytes = u32::try_from(line.len())
            .unwrap_or(BATCH_BYTES)
            .min(BATCH_BYTES);
        let permit = match self.room.clone().try_acquire_many_owned(bytes) {
            Ok(permit) => permit,
            Err(_) => {
                // Only what the appender has makes room.
                self.flush().await;
                match self.room.clone().acquire_many_owned(bytes).await {
                    Ok(permit) => permit,
                    // The semaphore is never closed.
                    Err(_) => return,
                }
            }
        };
        self.lines.hold(permit);
        memory
            .into_iter()
            .for_each(|permit| self.lines.hold(permit));
        let request = offload(line.len(), || intake::frame(line));
        self.lines.requests.push(request);
        if self.lines.requests.len() >= BATCH_FRAMES {
            self.flush().await;
        }
    }

    /// Hands over what there is. An appender that has gone ends this task.
    async fn flush(&mut self) {
        if !self.lines.requests.is_empty() {
            let _ = self.sink.send(std::mem::take(&mut self.lines)).await;
        }
    }
}

/// The client does not take its answers.
struct Gone;

/// Appends what has come, and answers it.
struct Appender {
    recorder: Recorder,
    caller: Caller,
    run: RunId,
    sink: mpsc::Sender<Bytes>,
    done: u64,
    failed: u64,
}

impl Appender {
    async fn append_all(&mut self, mut lines: mpsc::Receiver<Lines>) -> Result<(), Gone> {
        while let Some(mut batch) = lines.recv().await {
            while batch.requests.len() < BATCH_FRAMES
                && let Ok(more) = lines.try_recv()
            {
                batch.requests.extend(more.requests);
                batch.held.extend(more.held);
            }
            self.append(batch).await?;
        }
        Ok(())
    }

    /// Appends lines, and answers each. What they hold goes back when that is done, so that what waits meanwhile is bounded
    /// with it.
    async fn append(&mut self, lines: Lines) -> Result<(), Gone> {
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        for line in lines.requests {
            places.push(line.map(|request| requests.push(request)));
        }
        let _held = lines.held;
        let expected = requests.len();
        let results = match self
            .recorder
            .append(
                self.caller.clone(),
                self.run.clone(),
                requests,
                Conditions::default(),
                WhenFull::Wait,
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
