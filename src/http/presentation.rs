//! `POST /v1/runs/{run}/payloads/{commit}/presentation`: whether a payload is the one that was committed to.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, RunAndCommit};
use crate::record::present::Presentation;
use crate::record::{intake, offload};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// A payload that is shown: one of `salt` and `dek`, and one of `json`, `text` and `base64`.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "the document is made of the declaration, nobody makes a value"
)]
pub(crate) struct PresentationRequest {
    /// The salt of the commitment.
    #[schema(nullable = false, pattern = "^[0-9a-f]{64}$")]
    salt: Option<String>,
    /// The key that the salt comes from, 32 bytes in base64.
    #[schema(nullable = false)]
    dek: Option<String>,
    /// Any JSON value, in its canonical spelling.
    #[schema(nullable = false)]
    json: Option<serde_json::Value>,
    /// Text, as UTF-8.
    #[schema(nullable = false)]
    text: Option<String>,
    /// Bytes.
    #[schema(nullable = false)]
    base64: Option<String>,
}

/// What was found.
#[derive(Serialize, ToSchema)]
pub(crate) struct PresentationBody {
    /// Whether it is the payload that the frame committed to.
    matches: bool,
    /// The commitment.
    commit: String,
    /// The frame.
    seq: u64,
}

/// Says whether a payload is the one that a frame of the run committed to, such as one that its agent kept. Nothing of it
/// is stored.
#[utoipa::path(
    post, path = "/v1/runs/{run}/payloads/{commit}/presentation", tag = "verify", operation_id = "presentPayload",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
        ("commit" = String, Path, description = "The commitment, 64 hex digits", pattern = "^[0-9a-f]{64}$"), EncodingHeader),
    request_body(content = PresentationRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "What was found", body = PresentationBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn present_payload(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAndCommit(run, commit): RunAndCommit,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (bytes, room) = super::body::read(&app, &headers, body, intake::REQUEST_BYTES).await?;
    let shown = offload(bytes.len(), || Presentation::read(&bytes))?;
    drop(bytes);
    let found = app.recorder.present(caller, run, commit, shown).await?;
    drop(room);
    Ok(axum::Json(PresentationBody {
        matches: found.matches,
        commit: commit.hex(),
        seq: found.seq,
    })
    .into_response())
}
