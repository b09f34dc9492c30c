//! `/v1/holds`: what may not be erased.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, NumberPath};
use crate::access::{Role, is_code};
use crate::retention::hold::Hold;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const BODY_BYTES: usize = 16_384;
const EXPECTED: &str = "{\"matter\": \"…\", \"run\": RUN} or {\"matter\": \"…\", \"tenant\": true}";

/// A hold to set: over a run, or over the whole tenant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHoldRequest {
    /// What it is for, as a code: it stands on the ledger.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    matter: String,
    /// The run.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    run: Option<RunId>,
    /// Whether it is over the whole tenant.
    #[serde(default)]
    tenant: bool,
}

/// A hold.
#[derive(Serialize, ToSchema)]
pub(crate) struct HoldBody {
    /// Its number: the ledger's index of the statement that set it.
    hold: u64,
    /// The run; absent where it is over the whole tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// What it is for.
    matter: String,
    /// Who set it.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Its end, where it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    released: Option<ReleaseBody>,
}

/// The end of a hold.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleaseBody {
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Who released it.
    #[schema(value_type = Object)]
    by: Actor,
    /// Index of that statement in the ledger.
    index: u64,
}

/// Holds.
#[derive(Serialize, ToSchema)]
pub(crate) struct HoldsBody {
    /// In the order in which they were set.
    holds: Vec<HoldBody>,
}

impl From<Hold> for HoldBody {
    fn from(hold: Hold) -> Self {
        Self {
            hold: hold.index,
            run: hold.run.map(|run| run.to_string()),
            matter: hold.matter,
            by: hold.by,
            at: hold.at.to_string(),
            released: hold.released.map(|(at, by, index)| ReleaseBody {
                at: at.to_string(),
                by,
                index,
            }),
        }
    }
}

/// Sets a hold: nothing of the run, or of the tenant, is erased while it is in force. One that is in force for the same
/// matter is answered as it is.
#[utoipa::path(
    post, path = "/v1/holds", tag = "retain", operation_id = "setHold",
    params(EncodingHeader),
    request_body(content = NewHoldRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The hold", body = HoldBody),
        (status = 200, description = "It was in force before", body = HoldBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_hold(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: NewHoldRequest =
        onrecord_core::json::typed(&bytes).map_err(|_| Problem::parameter("the body", EXPECTED))?;
    if request.run.is_some() == request.tenant {
        return Err(Problem::parameter("the body", EXPECTED));
    }
    if !is_code(&request.matter) {
        return Err(Problem::code_expected("matter"));
    }
    let (hold, created) = app
        .recorder
        .set_hold(caller, request.run, request.matter)
        .await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(HoldBody::from(hold))).into_response())
}

/// Releases a hold. One that is released already is answered as it is.
#[utoipa::path(
    post, path = "/v1/holds/{hold}/release", tag = "retain", operation_id = "releaseHold",
    params(("hold" = u64, Path, description = "Number of the hold")),
    responses(
        (status = 200, description = "The hold with its end", body = HoldBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release_hold(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(hold): NumberPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let hold = app.recorder.release_hold(caller, hold).await?;
    Ok(axum::Json(HoldBody::from(hold)).into_response())
}

/// Which holds.
#[derive(Deserialize, IntoParams)]
pub(crate) struct HoldsQuery {
    /// `in-force` (the default), or `all` that ever were.
    state: Option<String>,
}

/// Lists holds in the order in which they were set.
#[utoipa::path(
    get, path = "/v1/holds", tag = "retain", operation_id = "listHolds",
    params(HoldsQuery),
    responses(
        (status = 200, description = "The holds", body = HoldsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_holds(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<HoldsQuery>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let ever = match query.state.as_deref() {
        None | Some("in-force") => false,
        Some("all") => true,
        Some(_) => return Err(Problem::parameter("state", "in-force or all")),
    };
    let holds = app.recorder.holds(caller, ever).await?;
    let holds = holds.into_iter().map(HoldBody::from).collect();
    Ok(axum::Json(HoldsBody { holds }).into_response())
}
