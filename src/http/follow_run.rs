//! `GET /v1/runs/{run}/events`: a run's frames as they come, as server-sent events.
//!
//! A reader holds no connection to the database: a page is read, sent, and only then the next one. Each
//! page is read anew under the token, so that a revocation ends the stream.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, RunPath};
use super::seal_run::SealBody;
use crate::access::{self, AccessError, Caller};
use crate::record::follow::Follower;
use crate::record::{RecordError, Recorder};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use onrecord_core::id::RunId;
use serde::Deserialize;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

/// Streams at once, unless a test says otherwise.
const STREAMS: usize = 512;
/// Frames that are read at once: at most 6.4 MiB that wait for a slow reader.
const PAGE: u64 = 100;
/// How long a stream stays silent at most, unless a test says otherwise.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a page may wait before its reader counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all event streams of a server share.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Places for streams.
    pub places: Arc<Semaphore>,
    /// How long a stream stays silent at most.
    pub keep_alive: Duration,
    stopping: CancellationToken,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(STREAMS)),
            keep_alive: KEEP_ALIVE,
            stopping: CancellationToken::new(),
        }
    }
}

impl Streams {
    /// Ends all streams, and those that begin later.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }
}

/// Where to begin.
#[derive(Deserialize, IntoParams)]
pub(crate) struct EventsQuery {
    /// The first place, by default 0; at most the run's size. `Last-Event-ID` wins over it.
    from: Option<u64>,
}

/// Follows a run: its frames as server-sent events, those that are there and then each new one.
///
/// An event `frame` has the frame's place as its `id` and its exact canonical bytes as its `data`. After
/// the last frame of a sealed run comes one event `sealed`, whose `data` is the answer of
/// `GET /v1/runs/{run}/seal`, and the stream ends. A stream that ends otherwise (the server stops, the
/// token is revoked) is taken up again with `Last-Event-ID`. A comment comes every 15 s.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "read", operation_id = "followRun",
    params(
        ("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
        EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Place of the last frame that the client has"),
    ),
    responses(
        (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn follow_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let next = match last_event(&headers)? {
        Some(last) => last + 1,
        None => query.from.unwrap_or(0),
    };
    let place = app.streams.places.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::too_many_streams())?;
    let mut follower = app
        .recorder
        .follow(caller.tenant.clone(), run.clone())
        .await?;
    let size = follower.progress().size;
    // Whoever has seen more than there is has seen what a restored database lost: not to be waited for.
    if next > size {
        return Err(Problem::parameter(
            "from or Last-Event-ID",
            &format!("a place in the run, which has {size} frames"),
        ));
    }
    let (sink, events) = mpsc::channel(1);
    let stream = Stream {
        recorder: app.recorder.clone(),
        caller,
        run,
        next,
        follower,
        sink,
        _place: place,
    };
    tokio::spawn(stream.run(app.streams));
    let events = futures_util::stream::unfold(events, |mut events| async move {
        events.recv().await.map(|piece| (piece, events))
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // For proxies that would wait for more.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    Ok((headers, Body::from_stream(events)).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let place = value.to_str().ok().and_then(|text| text.parse().ok());
    place
        .filter(|place| *place < 1 << 53)
        .map(Some)
        .ok_or_else(|| Problem::parameter("Last-Event-ID", "the place of a frame, digits"))
}

/// The task behind one answer.
struct Stream {
    recorder: Recorder,
    caller: Caller,
    run: RunId,
    next: u64,
    follower: Follower,
    sink: mpsc::Sender<Result<Bytes, RecordError>>,
    _place: OwnedSemaphorePermit,
}

/// Nobody takes the events any more.
struct Gone;

impl Stream {
    /// Sends events until the run is sealed, the reader is gone, or the server stops.
    async fn run(mut self, streams: Streams) {
        let sink = self.sink.clone();
        let error = tokio::select! {
            () = streams.stopping.cancelled() => return,
            // Before anything is found to be sent, and while nothing is.
            () = sink.closed() => return,
            done = self.send_all(streams.keep_alive) => done.err(),
        };
        if let Some(error) = error {
            tracing::warn!(%error, "an event stream broke off");
            let _ = sink.send_timeout(Err(error), PATIENCE).await;
        }
    }

    async fn send_all(&mut self, keep_alive: Duration) -> Result<(), RecordError> {
        // At once, so that the client knows that it follows, also where there is nothing yet.
        let mut piece = b":\n\n".to_vec();
        loop {
            let now = self.follower.progress();
            loop {
                if self.send(std::mem::take(&mut piece)).await.is_err() {
                    return Ok(());
                }
                if self.next >= now.size {
                    break;
                }
                piece = self.page(now.size).await?;
            }
            if now.sealed {
                let _ = self.send(self.sealed().await?).await;
                return Ok(());
            }
            if tokio::time::timeout(keep_alive, self.follower.changed())
                .await
                .is_err()
            {
                self.check_token().await?;
                piece = b":\n\n".to_vec();
            }
        }
    }

    async fn send(&self, piece: Vec<u8>) -> Result<(), Gone> {
        if piece.is_empty() {
            return Ok(());
        }
        let sent = self.sink.send_timeout(Ok(piece.into()), PATIENCE).await;
        sent.map_err(|_| Gone)
    }

    /// The next frames below a size, as events.
    async fn page(&mut self, size: u64) -> Result<Vec<u8>, RecordError> {
        self.check_token().await?;
        let limit = u32::try_from((size - self.next).min(PAGE)).unwrap_or(1);
        let (caller, run) = (self.caller.clone(), self.run.clone());
        let frames = self.recorder.frames(caller, run, self.next, limit).await?;
        if frames.is_empty() {
            return Err(RecordError::CutOff);
        }
        let mut piece = Vec::with_capacity(frames.iter().map(|frame| frame.len() + 64).sum());
        for frame in frames {
            // Writing to memory does not fail, and canonical bytes are one line.
            let _ = write!(piece, "id: {}\nevent: frame\ndata: ", self.next);
            piece.extend_from_slice(&frame);
            piece.extend_from_slice(b"\n\n");
            self.next += 1;
        }
        Ok(piece)
    }

    async fn sealed(&self) -> Result<Vec<u8>, RecordError> {
        self.check_token().await?;
        let (caller, run) = (self.caller.clone(), self.run.clone());
        let seal = SealBody::from(self.recorder.seal_of(caller, run).await?);
        let json = serde_json::to_string(&seal).map_err(|_| RecordError::CutOff)?;
        Ok(format!("event: sealed\ndata: {json}\n\n").into_bytes())
    }

    async fn check_token(&self) -> Result<(), RecordError> {
        let (store, caller) = (self.recorder.store().clone(), self.caller.clone());
        self.recorder
            .detached(async move {
                if access::still_opens(&store, &caller).await? {
                    Ok(())
                } else {
                    Err(AccessError::Unauthenticated.into())
                }
            })
            .await
    }
}
