//! `/v1/runs/{run}/flags`: runs that somebody marked.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, RunAndCode, RunPath};
use crate::access::{READERS, is_code};
use crate::retention::flag::FlagRow;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const BODY_BYTES: usize = 16_384;
const EXPECTED: &str =
    "{\"flag\": CODE}, with \"incident\": CODE and \"reason\": CODE if there are";

/// A flag to put on a run. All of it stands on the ledger.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFlagRequest {
    /// The flag, as a code.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    flag: String,
    /// The incident that it is about, as a code.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    incident: Option<String>,
    /// Why, as a code.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    reason: Option<String>,
}

/// A flag of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlagBody {
    /// The flag.
    flag: String,
    /// The incident that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Who set it.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Index of that statement in the ledger.
    index: u64,
    /// Its end, where it was cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleared: Option<ClearedBody>,
}

/// The end of a flag.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClearedBody {
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Who cleared it.
    #[schema(value_type = Object)]
    by: Actor,
    /// Index of that statement in the ledger.
    index: u64,
}

/// Flags of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlagsBody {
    /// In the order in which they were set.
    flags: Vec<FlagBody>,
}

impl From<FlagRow> for FlagBody {
    fn from(flag: FlagRow) -> Self {
        Self {
            flag: flag.flag,
            incident: flag.incident,
            reason: flag.reason,
            by: flag.by,
            at: flag.at.to_string(),
            index: flag.index,
            cleared: flag.cleared.map(|(at, by, index)| ClearedBody {
                at: at.to_string(),
                by,
                index,
            }),
        }
    }
}

fn flags(flags: Vec<FlagRow>) -> Response {
    let flags = flags.into_iter().map(FlagBody::from).collect();
    axum::Json(FlagsBody { flags }).into_response()
}

/// Puts a flag on a run, open or sealed: any token may. One that stands already for the same incident is answered as it is.
#[utoipa::path(
    post, path = "/v1/runs/{run}/flags", tag = "retain", operation_id = "setFlag",
    params(EncodingHeader, ("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    request_body(content = NewFlagRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The flag", body = FlagBody),
        (status = 200, description = "It stood before", body = FlagBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_flag(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: NewFlagRequest =
        onrecord_core::json::typed(&bytes).map_err(|_| Problem::parameter("the body", EXPECTED))?;
    for (name, code) in [
        ("flag", Some(&request.flag)),
        ("incident", request.incident.as_ref()),
        ("reason", request.reason.as_ref()),
    ] {
        if code.is_some_and(|code| !is_code(code)) {
            return Err(Problem::code_expected(name));
        }
    }
    let (flag, incident, reason) = (request.flag, request.incident, request.reason);
    let (flag, created) = app
        .recorder
        .set_flag(caller, run, flag, incident, reason)
        .await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(FlagBody::from(flag))).into_response())
}

/// Which flags.
#[derive(Deserialize, IntoParams)]
pub(crate) struct FlagsQuery {
    /// `standing` (the default), or `all` that ever were.
    state: Option<String>,
}

/// Lists the flags of a run in the order in which they were set.
#[utoipa::path(
    get, path = "/v1/runs/{run}/flags", tag = "retain", operation_id = "listFlags",
    params(FlagsQuery, ("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The flags", body = FlagsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_flags(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<FlagsQuery>,
) -> Result<Response, Problem> {
    let ever = match query.state.as_deref() {
        None | Some("standing") => false,
        Some("all") => true,
        Some(_) => return Err(Problem::parameter("state", "standing or all")),
    };
    Ok(flags(app.recorder.flags(caller, run, ever).await?))
}

/// Why a flag is cleared, and which.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ClearQuery {
    /// Only the flag of this incident; without it each that has the name.
    incident: Option<String>,
    /// Why, as a code: it stands on the ledger.
    reason: Option<String>,
}

/// Takes a flag off a run: people may, and neither agents nor gates.
#[utoipa::path(
    delete, path = "/v1/runs/{run}/flags/{flag}", tag = "retain", operation_id = "clearFlag",
    params(
        ClearQuery,
        ("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
        ("flag" = String, Path, description = "The flag"),
    ),
    responses(
        (status = 200, description = "The flags that ended", body = FlagsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn clear_flag(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAndCode(run, flag): RunAndCode,
    Query(query): Query<ClearQuery>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    for (name, code) in [("incident", &query.incident), ("reason", &query.reason)] {
        if code.as_deref().is_some_and(|code| !is_code(code)) {
            return Err(Problem::code_expected(name));
        }
    }
    let ended = app
        .recorder
        .clear_flag(caller, run, flag, query.incident, query.reason)
        .await?;
    Ok(flags(ended))
}
