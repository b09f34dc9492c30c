//! `POST /v1/runs/{run}/frames`: appends one frame, or many.

use super::App;
use super::body::Chunks;
use super::encoding::EncodingHeader;
use super::frame_stream::{self, LineResult};
use super::problem::Problem;
use super::receipt::{self, AppendedBody};
use super::request::{Authenticated, RunPath, has_media, idempotency_key, if_match, merge_key};
use super::schema::FrameBody;
use crate::access::Role;
use crate::record::append::{Conditions, WhenFull};
use crate::record::{RecordError, intake, offload};
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::IntoParams;

/// Media type of many frames.
const NDJSON: &str = "application/x-ndjson";

/// How to append.
#[derive(Deserialize, IntoParams)]
pub(crate) struct AppendQuery {
    /// `signed`: the receipt comes with a signed `run-head` at the frame.
    receipt: Option<String>,
}

/// Appends a frame (`application/json`), or many (`application/x-ndjson`, a result for each line,
/// streamed both ways).
///
/// Frames of one stream are placed in its order. A refused line takes no place and does not hinder
/// the others. The last line of the answer is `{"done", "failed"}`.
#[utoipa::path(
    post, path = "/v1/runs/{run}/frames", tag = "record", operation_id = "appendFrames",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), AppendQuery, EncodingHeader,
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
    request: Request,
) -> Result<Response, Problem> {
    // Taken apart: an extractor of headers would copy them.
    let (Parts { headers, .. }, body) = request.into_parts();
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
        let single =
            headers.contains_key(header::IF_MATCH) || headers.contains_key("idempotency-key");
        if caller.signs() {
            // Lines are recorded as they come, before it is known whether the body is the one that was signed.
            return Err(Problem::media_type(
                "application/json: a request that is signed has one frame",
            ));
        }
        if signed || single {
            return Err(Problem::parameter(
                "receipt, If-Match and Idempotency-Key",
                "a single frame: none of them goes with many",
            ));
        }
        // Asked before the first line, so that a wrong address is an answer and not a stream. Boxed, as what is rare
        // is everywhere on the way of a frame: the future of a request is moved as a whole.
        Box::pin(app.recorder.find(&caller, &run)).await?;
        let chunks = Chunks::new(&app, &headers, body, usize::MAX)?;
        let answers = frame_stream::begin(&app, caller, run, chunks);
        return Ok((
            [(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))],
            Body::from_stream(answers),
        )
            .into_response());
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
    let (bytes, room) = super::body::read(&app, &headers, body, intake::REQUEST_BYTES).await?;
    let mut request = offload(bytes.len(), || intake::frame(&bytes))?;
    drop(bytes);
    merge_key(&mut request.key, idempotency_key(&headers)?)?;
    let append = app
        .recorder
        .append(caller, run, vec![request], conditions, WhenFull::Refuse);
    let mut results = Box::pin(append).await?;
    drop(room);
    let appended = results.pop().unwrap_or(Err(RecordError::CutOff))?;
    Ok(receipt::response(appended))
}
