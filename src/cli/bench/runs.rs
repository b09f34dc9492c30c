//! Runs to load: opened with a turn, counted before and after, and sealed where they stay.

use super::request::Shape;
use crate::client::Client;
use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

/// Who the runs say they are of, so that lists can tell them from others.
const AGENT: &str = "onrecord-bench";
/// Requests at a time, before and after a measurement.
const AT_A_TIME: usize = 16;
/// Bytes of text in the frame that is tried first.
const TRIED_BYTES: usize = 16;

#[derive(Deserialize)]
struct Receipt {
    run: String,
    seq: u64,
}

/// What is in runs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Held {
    /// Frames.
    pub size: u64,
    /// Their canonical bytes.
    pub bytes: u64,
}

/// Opens so many runs with an open turn each.
pub(super) async fn open(client: &Client, count: u32) -> anyhow::Result<Vec<String>> {
    stream::iter(0..count)
        .map(|_| async {
            let session = json!({"session": {"agent": AGENT}});
            let (_, opened): (_, Receipt) = client.post("/v1/runs", &session).await?;
            let turn = json!({"kind": "turn", "key": "turn/1"});
            let path = format!("/v1/runs/{}/frames", opened.run);
            let (_, _): (_, Receipt) = client.post(&path, &turn).await?;
            Ok(opened.run)
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await
}

/// What is in some runs in all.
pub(super) async fn held(client: &Client, runs: &[String]) -> anyhow::Result<Held> {
    stream::iter(runs)
        .map(|run| async move {
            let held: Held = client.read(&format!("/v1/runs/{run}")).await?;
            anyhow::Ok(held)
        })
        .buffer_unordered(AT_A_TIME)
        .try_fold(Held::default(), |sum, one| async move {
            Ok(Held {
                size: sum.size + one.size,
                bytes: sum.bytes + one.bytes,
            })
        })
        .await
}

/// Seals runs as interrupted: nobody's work came to its end there.
pub(super) async fn seal(client: &Client, runs: &[String]) -> anyhow::Result<()> {
    stream::iter(runs)
        .map(|run| async move {
            let path = format!("/v1/runs/{run}/seal");
            let (_, _): (_, Value) = client.post(&path, &json!({"interrupted": true})).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await
}

/// A frame of a known size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sized {
    /// What to send.
    pub shape: Shape,
    /// The payload as it is stored, 0 for none: padded and encrypted.
    pub stored_payload: usize,
}

/// Finds out what to send for a frame of exactly so many canonical bytes, by trying it in a run.
///
/// # Errors
/// A frame with nothing in it is longer.
pub(super) async fn sized(
    client: &Client,
    run: &str,
    frame_bytes: usize,
    payload_bytes: usize,
) -> anyhow::Result<Sized> {
    let shape = |body_bytes| Shape {
        body_bytes,
        payload_bytes,
    };
    // Keys of frames have as many characters as these.
    let (tried, _) = post(client, run, shape(TRIED_BYTES), "size-of-a-frame1").await?;
    let overhead = tried - TRIED_BYTES;
    ensure!(
        frame_bytes > overhead,
        "--frame-bytes must be {} or more: so long is a frame {} with one letter in it",
        overhead + 1,
        if payload_bytes > 0 {
            "with a payload"
        } else {
            "without a payload"
        }
    );
    let shape = shape(frame_bytes - overhead);
    let (bytes, stored_payload) = post(client, run, shape, "size-of-a-frame2").await?;
    ensure!(
        bytes == frame_bytes,
        "a frame that should have {frame_bytes} bytes has {bytes}"
    );
    Ok(Sized {
        shape,
        stored_payload,
    })
}

/// Posts a frame and reads it back: its bytes, and its payload's as they are stored.
async fn post(
    client: &Client,
    run: &str,
    shape: Shape,
    key: &str,
) -> anyhow::Result<(usize, usize)> {
    /// What encryption adds.
    const TAG_BYTES: usize = 16;
    let path = format!("/v1/runs/{run}/frames");
    let request: Value = serde_json::from_str(&shape.json(key, 0))?;
    let (_, receipt): (_, Receipt) = client.post(&path, &request).await?;
    let bytes = client
        .read_bytes(&format!("{path}/{}", receipt.seq))
        .await?;
    let frame: Value = serde_json::from_slice(&bytes).context("a frame is no JSON")?;
    let padded = frame["payloads"][0]["size"].as_u64();
    let padded = padded.map_or(0, |size| usize::try_from(size).unwrap_or(0) + TAG_BYTES);
    Ok((bytes.trim_ascii_end().len(), padded))
}
