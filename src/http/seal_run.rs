//! `POST` and `GET /v1/runs/{run}/seal`, and `GET /v1/runs/{run}/head`.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, RunPath};
use crate::access::Role;
use crate::record::seal::Seal;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const SEAL_BYTES: usize = 4_096;

/// How to seal.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealRequest {
    /// Whether the run broke off: then no `session_end` is written, and the seal says `interrupted`.
    #[serde(default)]
    interrupted: bool,
}

/// A seal: the signed envelope, its proof in the ledger, and what it says.
#[derive(Serialize, ToSchema)]
pub(crate) struct SealBody {
    /// The run.
    run: String,
    /// Its number in the tenant.
    run_no: u64,
    /// Frames.
    size: u64,
    /// Hash of the last frame.
    head: String,
    /// RFC 9162 root of all frames.
    root: String,
    /// When.
    #[schema(format = DateTime)]
    sealed_at: String,
    /// full or interrupted.
    #[schema(value_type = String)]
    completeness: onrecord_core::statement::Completeness,
    /// completed, failed, cancelled or unknown.
    #[schema(value_type = String)]
    outcome: onrecord_core::statement::Outcome,
    /// Index in the ledger.
    index: u64,
    /// The DSSE envelope, exactly as signed.
    seal: String,
    /// Its C2SP `.tlog-proof`: under the log's own checkpoint, and later under the first cosigned one that has it.
    proof: String,
    /// Witnesses that cosigned the proof's checkpoint; empty until enough of those that the server asks did.
    cosigned_by: Vec<String>,
    /// When the time-stamping authority stamped the seal, by its own clock; absent until it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    stamped_at: Option<String>,
}

impl From<Seal> for SealBody {
    fn from(seal: Seal) -> Self {
        let statement = seal.statement;
        Self {
            run: statement.state.run.to_string(),
            run_no: statement.run_no,
            size: statement.state.size,
            head: statement.state.head.hex(),
            root: statement.state.root.hex(),
            sealed_at: statement.sealed_at.to_string(),
            completeness: statement.completeness,
            outcome: statement.outcome,
            index: seal.index,
            seal: seal.envelope,
            proof: seal.proof,
            cosigned_by: seal.cosigned_by,
            stamped_at: seal.stamped_at.map(|at| at.to_string()),
        }
    }
}

/// Seals a run: closes its turn, writes `session_end` unless interrupted, signs the whole and appends
/// the seal to the ledger. A sealed run keeps its seal, which is answered again.
#[utoipa::path(
    post, path = "/v1/runs/{run}/seal", tag = "record", operation_id = "sealRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), EncodingHeader),
    request_body(content = Option<SealRequest>, content_type = "application/json"),
    responses(
        (status = 201, description = "Sealed", body = SealBody),
        (status = 200, description = "It was sealed before", body = SealBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn seal_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Agent, Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, SEAL_BYTES).await?;
    let request: SealRequest = if bytes.is_empty() {
        SealRequest::default()
    } else {
        onrecord_core::json::typed(&bytes)
            .map_err(|_| Problem::parameter("the body", "{\"interrupted\": true}, {} or nothing"))?
    };
    let seal = app.recorder.seal(caller, run, request.interrupted).await?;
    let status = if seal.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(SealBody::from(seal))).into_response())
}

/// Reads the seal of a run.
#[utoipa::path(
    get, path = "/v1/runs/{run}/seal", tag = "read", operation_id = "readSeal",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The seal", body = SealBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_seal(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let seal = app.recorder.seal_of(caller, run).await?;
    Ok(axum::Json(SealBody::from(seal)).into_response())
}

/// Which head.
#[derive(Deserialize, IntoParams)]
pub(crate) struct HeadQuery {
    /// Frames; by default all.
    size: Option<u64>,
}

/// Signs how far a run is, now or at a size: a `run-head` envelope. Whoever keeps it can prove a
/// truncation before the seal.
#[utoipa::path(
    get, path = "/v1/runs/{run}/head", tag = "read", operation_id = "signHead",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), HeadQuery),
    responses(
        (status = 200, description = "The envelope", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn sign_head(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<HeadQuery>,
) -> Result<Response, Problem> {
    let envelope = app.recorder.head(caller, run, query.size).await?;
    Ok((
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        envelope,
    )
        .into_response())
}
