//! Bodies: bounded in bytes and in patience.

use super::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;
use std::time::Duration;

/// How much of a body that is too large is read on, so that its sender gets to read the answer.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
const DRAIN: Duration = Duration::from_secs(5);

/// Reads a whole body of at most `limit` bytes, each piece of which may take `idle`.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    idle: Duration,
) -> Result<Vec<u8>, Problem> {
    let mut chunks = Chunks::new(headers, body, limit, idle)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await? {
        if bytes.len() + chunk.len() > limit {
            chunks.drain();
            return Err(Problem::body_too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
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
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > limit as u64) {
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
