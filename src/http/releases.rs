//! `POST /v1/releases`.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{Role, is_code};
use crate::record::release::{Decided, Decision};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const BODY_BYTES: usize = 65_536;
/// Frames that a decision may name: the statement has to fit into an entry.
const EVIDENCE: usize = 100;
const EXPECTED: &str = "{\"release\": \"…\", \"manifest\": SHA-256 in hex, \"decision\": \"promoted\" or \"rejected\", \"evidence\": [{\"run\": RUN, \"seq\": N}, …] of at most 100}";

/// The decision about a release.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReleaseRequest {
    /// Its name, as a code: it stands on the ledger.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    release: String,
    /// SHA-256 of its manifest, hex.
    #[schema(value_type = String)]
    manifest: Hash,
    /// promoted or rejected.
    decision: Verdict,
    /// The frames that it rests on: at most 100.
    #[serde(default)]
    evidence: Vec<FrameBody>,
}

/// What is decided.
#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// It may be used.
    Promoted,
    /// It may not.
    Rejected,
}

/// A frame.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrameBody {
    /// Its run.
    #[schema(value_type = String)]
    run: RunId,
    /// Its place.
    seq: u64,
}

/// A decision on the ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecidedBody {
    /// The ledger's index of the statement.
    index: u64,
    /// The release.
    release: String,
    /// promoted or rejected.
    decision: String,
    /// Who decided.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
}

impl From<Decided> for DecidedBody {
    fn from(decided: Decided) -> Self {
        let said = decided.statement;
        Self {
            index: decided.index,
            release: said.release,
            decision: said.decision,
            by: said.by,
            at: said.at.to_string(),
        }
    }
}

/// Enters on the ledger that a release was promoted or rejected, and the frames that the decision rests on.
#[utoipa::path(
    post, path = "/v1/releases", tag = "ledger", operation_id = "decideRelease",
    params(EncodingHeader),
    request_body(content = NewReleaseRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The decision", body = DecidedBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn decide_release(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance, Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let malformed = || Problem::parameter("the body", EXPECTED);
    let request: NewReleaseRequest = onrecord_core::json::typed(&bytes).map_err(|_| malformed())?;
    if request.evidence.len() > EVIDENCE {
        return Err(malformed());
    }
    if !is_code(&request.release) {
        return Err(Problem::code_expected("release"));
    }
    let evidence = request.evidence.into_iter();
    let decision = Decision {
        release: request.release,
        manifest: request.manifest,
        promoted: request.decision == Verdict::Promoted,
        evidence: evidence.map(|frame| (frame.run, frame.seq)).collect(),
    };
    let decided = app.recorder.decide_release(caller, decision).await?;
    Ok((StatusCode::CREATED, axum::Json(DecidedBody::from(decided))).into_response())
}
