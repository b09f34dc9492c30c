//! `GET /v1/runs/{run}/frames` and `GET /v1/runs/{run}/frames/{seq}`: exact canonical bytes.

use super::App;
use super::problem::Problem;
use super::receipt::etag;
use super::request::{Authenticated, RunAnd, RunPath};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Deserialize;
use utoipa::IntoParams;

/// Frames that are read at once.
const PAGE: u64 = 500;

/// Which frames.
#[derive(Deserialize, IntoParams)]
pub(crate) struct FramesQuery {
    /// The first place, by default 0.
    from: Option<u64>,
    /// At most so many; by default all that there are.
    limit: Option<u64>,
}

/// Streams frames, a line each, in their exact canonical bytes. The header `Onrecord-Frames` says how
/// many lines there are: fewer mean that the answer was cut.
#[utoipa::path(
    get, path = "/v1/runs/{run}/frames", tag = "read", operation_id = "readFrames",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), FramesQuery),
    responses(
        (status = 200, description = "The frames", body = String, content_type = "application/x-ndjson"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_frames(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<FramesQuery>,
) -> Result<Response, Problem> {
    let summary = app.recorder.summary(caller.clone(), run.clone()).await?;
    let from = query.from.unwrap_or(0).min(summary.size);
    let end = query.limit.map_or(summary.size, |limit| {
        summary.size.min(from.saturating_add(limit))
    });
    let recorder = app.recorder.clone();
    let pages = futures_util::stream::try_unfold(from, move |next| {
        let (recorder, caller, run) = (recorder.clone(), caller.clone(), run.clone());
        async move {
            if next >= end {
                return Ok(None);
            }
            let limit = u32::try_from((end - next).min(PAGE)).unwrap_or(1);
            let page = recorder.frames(caller, run, next, limit).await?;
            let mut bytes = Vec::with_capacity(page.iter().map(|frame| frame.len() + 1).sum());
            for frame in &page {
                bytes.extend_from_slice(frame);
                bytes.push(b'\n');
            }
            // An empty page would go on for ever: the frames below the head are all there, or it breaks off.
            let read = page.len() as u64;
            if read == 0 {
                Err(crate::record::RecordError::CutOff)
            } else {
                Ok(Some((Bytes::from(bytes), next + read)))
            }
        }
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        ),
        (
            header::HeaderName::from_static("onrecord-frames"),
            HeaderValue::from(end - from),
        ),
        (header::ETAG, etag(&summary.head)),
    ];
    Ok((headers, Body::from_stream(pages)).into_response())
}

/// Reads one frame: its exact canonical bytes. They never change; the ETag is its hash.
#[utoipa::path(
    get, path = "/v1/runs/{run}/frames/{seq}", tag = "read", operation_id = "readFrame",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), ("seq" = u64, Path, description = "Place in the run, from 0")),
    responses(
        (status = 200, description = "The frame", body = serde_json::Value, content_type = "application/json"),
        (status = 304, description = "The client has it"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_frame(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAnd(run, seq): RunAnd,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (bytes, hash) = app.recorder.frame(caller, run, seq).await?;
    let tag = etag(&hash);
    let known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|value| *value == tag);
    let answer = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::ETAG, tag),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=31536000, immutable"),
        ),
    ];
    Ok(if known {
        (StatusCode::NOT_MODIFIED, answer).into_response()
    } else {
        (answer, bytes).into_response()
    })
}
