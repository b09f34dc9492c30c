//! Bodies: bounded in bytes and in patience.

use super::App;
use super::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of a body that is too large is read on, so that its sender gets to read the answer.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
const DRAIN: Duration = Duration::from_secs(5);
/// Bytes of a body that need no room.
const FREE_BYTES: usize = 1024 * 1024;
/// How long a body waits for room.
const ROOM_WAIT: Duration = Duration::from_secs(30);

/// Reads a whole body of at most `limit` bytes, with the room that it takes until it is recorded.
pub(crate) async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Vec<u8>, Room), Problem> {
    let mut chunks = Chunks::new(headers, body, limit, app.body_idle)?;
    let mut bytes = Vec::new();
    let mut room = app
        .body_memory
        .room(length(headers).unwrap_or(limit).min(limit));
    while let Some(chunk) = chunks.next().await? {
        let length = bytes.len() + chunk.len();
        let fits = if length > limit {
            Err(Problem::body_too_large(limit))
        } else {
            room.hold(length).await
        };
        if let Err(problem) = fits {
            chunks.drain();
            return Err(problem);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, room))
}

/// What the body says of its length.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Memory for bodies, in MiB, that all requests share: however many come at once, the process keeps to a
/// bound, and who finds no room is told to come again.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Semaphore>);

impl Memory {
    /// So many MiB.
    pub fn new(mebibytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(mebibytes)))
    }

    /// Room for one body, none held yet. `most` are its bytes, or what they may be at most.
    pub(crate) fn room(&self, most: usize) -> Room {
        Room {
            memory: self.clone(),
            most,
            held: None,
        }
    }
}

/// The part of the memory that one body holds; given back when dropped.
pub(crate) struct Room {
    memory: Memory,
    most: usize,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Sees to it that there is room for so many bytes. The first MiB is free; beyond it the room is
    /// taken at once and for the whole, since bodies that hold a part and wait for the rest would
    /// wait for each other.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        if bytes <= FREE_BYTES || self.held.is_some() {
            return Ok(());
        }
        let mebibytes = u32::try_from(self.most.div_ceil(FREE_BYTES)).unwrap_or(u32::MAX);
        let permit = self.memory.0.clone().acquire_many_owned(mebibytes);
        let permit = tokio::time::timeout(ROOM_WAIT, permit).await;
        self.held = Some(
            permit
                .map_err(|_| Problem::busy())?
                .map_err(|_| Problem::busy())?,
        );
        Ok(())
    }

    /// What is held, for whoever goes on with the bytes; this one holds nothing any more.
    pub(crate) fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        self.held.take()
    }
}

/// A body chunk by chunk.
pub(crate) struct Chunks {
    stream: Option<axum::body::BodyDataStream>,
    idle: Duration,
}

impl Chunks {
    /// Refuses what is encoded, and what says of itself that it is over `limit` bytes.
    pub(crate) fn new(
        headers: &HeaderMap,
        body: Body,
        limit: usize,
        idle: Duration,
    ) -> Result<Self, Problem> {
        if headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|encoding| encoding != "identity")
        {
            return Err(Problem::media_type("an uncompressed body"));
        }
        let mut chunks = Self {
            stream: Some(body.into_data_stream()),
            idle,
        };
        if length(headers).is_some_and(|length| length > limit) {
            // Who waits to be told to go on has sent nothing, and is told not to by the answer itself.
            if !headers.contains_key(header::EXPECT) {
                chunks.drain();
            }
            return Err(Problem::body_too_large(limit));
        }
        Ok(chunks)
    }

    /// The next bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        match tokio::time::timeout(self.idle, stream.next()).await {
            Err(_) => Err(Problem::body_timeout(self.idle)),
            Ok(None) => Ok(None),
            Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
            Ok(Some(Err(_))) => Err(Problem::body_broken()),
        }
    }

    /// Reads on for a while in the background, and keeps nothing. A connection that is closed on unread
    /// bytes is reset, and the sender would lose the answer.
    pub(crate) fn drain(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        tokio::spawn(tokio::time::timeout(DRAIN, async move {
            let mut left = DRAIN_BYTES;
            while let Some(Ok(chunk)) = stream.next().await {
                left = left.saturating_sub(chunk.len());
                if left == 0 {
                    break;
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn a_large_body_waits_for_room_and_a_small_one_does_not() {
        let memory = Memory::new(3);
        let (mut first, mut second, mut small) =
            (memory.room(2 * MIB), memory.room(3 * MIB), memory.room(MIB));
        assert!(first.hold(2 * MIB).await.is_ok());
        assert!(small.hold(MIB).await.is_ok());
        assert!(second.hold(MIB).await.is_ok());
        assert!(second.hold(MIB + 1).now_or_never().is_none());
        drop(first);
        assert!(second.hold(MIB + 1).await.is_ok());
        // What it holds is for the whole body.
        assert!(second.hold(3 * MIB).await.is_ok());
        drop(second.take());
        assert!(memory.room(3 * MIB).hold(2 * MIB).await.is_ok());
    }
}
