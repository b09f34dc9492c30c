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

/// Frames that share a transaction.
const BATCH_FRAMES: usize = 256;
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
    let (line_sink, lines) = mpsc::channel(BATCH_FRAMES);
    let memory = app.body_memory.room(intake::REQUEST_BYTES);
    let reader = tokio::spawn(read_lines(chunks, memory, line_sink));
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

/// A line's request, with its part of the bytes that may wait, and of the memory of all where it is long.
type Line = (Result<FrameRequest, RecordError>, Held);
type Held = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Takes a body apart into lines until it ends or the appender has gone.
async fn read_lines(
    mut chunks: Chunks,
    mut memory: Room,
    sink: mpsc::Sender<Line>,
) -> Result<(), Problem> {
    let room = Arc::new(Semaphore::new(2 * BATCH_BYTES as usize));
    let mut buffer: Vec<u8> = Vec::new();
    let mut searched = 0;
    while let Some(chunk) = chunks.next().await? {
        if let Err(problem) = memory.hold(buffer.len() + chunk.len()).await {
            chunks.drain();
            return Err(problem);
        }
        buffer.extend_from_slice(&chunk);
        let mut start = 0;
        while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[start..searched + end];
            pass(line, &room, memory.take(), &sink).await;
            start = searched + end + 1;
            searched = start;
        }
        buffer.drain(..start);
        // What a long line needed is not kept for the short ones that follow.
        buffer.shrink_to(buffer.len().max(KEPT_BYTES));
        searched = buffer.len();
        if buffer.len() > intake::REQUEST_BYTES {
            chunks.drain();
            return Err(Problem::line_too_large(intake::REQUEST_BYTES));
        }
    }
    pass(&buffer, &room, memory.take(), &sink).await;
    Ok(())
}

/// Hands a line on, once there is room for it. Empty lines have no answer.
async fn pass(
    line: &[u8],
    room: &Arc<Semaphore>,
    memory: Option<OwnedSemaphorePermit>,
    sink: &mpsc::Sender<Line>,
) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return;
    }
    let bytes = u32::try_from(line.len())
        .unwrap_or(BATCH_BYTES)
        .min(BATCH_BYTES);
    // The semaphore is never closed, and an appender that has gone ends this task.
    if let Ok(permit) = room.clone().acquire_many_owned(bytes).await {
        let request = offload(line.len(), || intake::frame(line));
        let _ = sink.send((request, (permit, memory))).await;
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
    async fn append_all(&mut self, mut lines: mpsc::Receiver<Line>) -> Result<(), Gone> {
        let mut batch = Vec::new();
        while lines.recv_many(&mut batch, BATCH_FRAMES).await > 0 {
            self.append(std::mem::take(&mut batch)).await?;
        }
        Ok(())
    }

    async fn append(&mut self, lines: Vec<Line>) -> Result<(), Gone> {
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        // The permits go back when the batch is done: what waits meanwhile is bounded with it.
        let mut permits = Vec::with_capacity(lines.len());
        for (line, permit) in lines {
            places.push(line.map(|request| requests.push(request)));
            permits.push(permit);
        }
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
