//! Bodies: decoded, and bounded in bytes and in patience.

use super::App;
use super::encoding::{Decoder, Encoding};
use super::problem::Problem;
use super::signature;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;
use onrecord_core::digest::Hash;
use sha2::{Digest as _, Sha256};
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
    let mut chunks = Chunks::new(app, headers, body, limit)?;
    let mut bytes = Vec::new();
    // What is encoded may be of any length; its own says nothing of it.
    let most = length(headers).filter(|_| chunks.decoder.is_none());
    let mut room = app.body_memory.room(most.unwrap_or(limit).min(limit));
    while let Some(chunk) = chunks.next().await? {
        if let Err(problem) = room.hold(bytes.len() + chunk.len()).await {
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
pub struct Memory {
    bodies: Arc<Semaphore>,
    /// Half as much again, apart: a body holds its window while it waits for room.
    windows: Arc<Semaphore>,
}

impl Memory {
    /// So many MiB.
    pub fn new(mebibytes: usize) -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(mebibytes)),
            windows: Arc::new(Semaphore::new(mebibytes / 2)),
        }
    }

    /// Room for the window of an encoded body that has so many bytes beside `held`, if there is any;
    /// windows of one MiB and less are free.
    pub(crate) fn window(
        &self,
        bytes: usize,
        held: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), Problem> {
        let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let needs = bytes.div_ceil(FREE_BYTES);
        if needs <= 1 || needs <= has {
            return Ok(());
        }
        let more = u32::try_from(needs - has).unwrap_or(u32::MAX);
        let more = self.windows.clone().try_acquire_many_owned(more);
        let more = more.map_err(|_| Problem::busy())?;
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
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
        let permit = self.memory.bodies.clone().acquire_many_owned(mebibytes);
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

/// A body chunk by chunk, decoded.
pub(crate) struct Chunks {
    stream: Option<axum::body::BodyDataStream>,
    /// What the content has to come to, where its sender says so, and what has come.
    digest: Option<(Hash, Sha256)>,
    decoder: Option<Decoder>,
    idle: Duration,
    limit: usize,
    /// Bytes that came, and bytes that were handed on. The limit is for both: what decodes to nothing
    /// could come for ever.
    came: usize,
    handed: usize,
}

impl Chunks {
    /// Refuses an encoding that is not taken, and what says of itself that it is over `limit` bytes.
    pub(crate) fn new(
        app: &App,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<Self, Problem> {
        let decoder =
            Encoding::of(headers)?.map(|encoding| Decoder::new(encoding, &app.body_memory));
        let digest = signature::digest(headers).map_err(|_| {
            Problem::parameter("Content-Digest", "sha-256=:BASE64: and no other algorithm")
        })?;
        let mut chunks = Self {
            digest: digest.map(|digest| (digest, Sha256::new())),
            stream: Some(body.into_data_stream()),
            decoder: decoder.transpose()?,
            idle: app.body_idle,
            limit,
            came: 0,
            handed: 0,
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

    /// The next bytes; `None` at the end. Refuses what is over the limit the moment that it is.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(chunk) = self.decoded().await? else {
            return Ok(None);
        };
        self.handed = self.handed.saturating_add(chunk.len());
        if self.handed > self.limit {
            self.drain();
            return Err(Problem::body_too_large(self.limit));
        }
        Ok(Some(chunk))
    }

    async fn decoded(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(decoder) = self.decoder.as_mut().filter(|decoder| decoder.has_work()) {
                let step = decoder.step().inspect_err(|_| self.drain())?;
                // Others get their turn between two steps, however much a body inflates to.
                tokio::task::yield_now().await;
                if !step.is_empty() {
                    return Ok(Some(step));
                }
                continue;
            }
            let chunk = self.received().await?;
            match (&mut self.decoder, chunk) {
                (None, chunk) => return Ok(chunk),
                (Some(decoder), Some(chunk)) => decoder.feed(chunk),
                (Some(decoder), None) => return decoder.end().map(|()| None),
            }
        }
    }

    async fn received(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let chunk = match tokio::time::timeout(self.idle, stream.next()).await {
            Err(_) => return Err(Problem::body_timeout(self.idle)),
            Ok(None) => {
                let differs = |(said, came): (Hash, Sha256)| Hash(came.finalize().into()) != said;
                return match self.digest.take().is_some_and(differs) {
                    true => Err(Problem::digest_mismatch()),
                    false => Ok(None),
                };
            }
            Ok(Some(chunk)) => chunk.map_err(|_| Problem::body_broken())?,
        };
        if let Some((_, came)) = &mut self.digest {
            came.update(&chunk);
        }
        self.came = self.came.saturating_add(chunk.len());
        if self.came > self.limit {
            self.drain();
            return Err(Problem::body_too_large(self.limit));
        }
        Ok(Some(chunk))
    }

    /// Nobody needs the bytes any more: they are not decoded, so that they cost only what they weigh.
    pub(crate) fn as_they_come(&mut self) {
        self.decoder = None;
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
