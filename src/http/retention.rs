//! `/v1/retention`: how long what is kept, and how far the sweeper is.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, has_media};
use super::settings::ChosenBy;
use crate::access::Role;
use crate::retention::policies::StandingPolicy;
use crate::retention::policy::{DOCUMENT_BYTES, Document};
use crate::retention::presets::presets;
use crate::retention::sweep::SweepStatus;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A tenant's retention policy.
#[derive(Serialize, ToSchema)]
pub(crate) struct PolicyBody {
    /// Its version, from 1; 0 where the tenant has none, and nothing expires.
    version: u64,
    /// The document, as docs/retention.md describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    policy: Option<Document>,
    /// From when on it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    at: Option<String>,
    /// Who chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<ChosenBy>,
    /// Index of the ledger's entry whose subject it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl From<Option<StandingPolicy>> for PolicyBody {
    fn from(standing: Option<StandingPolicy>) -> Self {
        let Some(standing) = standing else {
            return Self {
                version: 0,
                policy: None,
                at: None,
                by: None,
                index: None,
            };
        };
        Self {
            version: standing.version,
            policy: Some(standing.document),
            at: Some(standing.at.to_string()),
            by: Some(ChosenBy::from(standing.by)),
            index: Some(standing.index),
        }
    }
}

/// Which version.
#[derive(Deserialize, IntoParams)]
pub(crate) struct PolicyQuery {
    /// An earlier version; by default the one that holds.
    version: Option<u64>,
}

/// Reads the tenant's retention policy.
#[utoipa::path(
    get, path = "/v1/retention/policy", tag = "retain", operation_id = "readRetentionPolicy",
    params(PolicyQuery),
    responses(
        (status = 200, description = "The policy", body = PolicyBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_policy(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<PolicyQuery>,
) -> Result<Response, Problem> {
    let standing = app.recorder.retention_policy(caller, query.version).await?;
    Ok(axum::Json(PolicyBody::from(standing)).into_response())
}

/// Puts a retention policy in the place of the one that holds. Every version is kept, and stands in the ledger. Floors of
/// earlier versions go on for the runs that were recorded under them.
#[utoipa::path(
    put, path = "/v1/retention/policy", tag = "retain", operation_id = "changeRetentionPolicy",
    params(EncodingHeader),
    request_body(content = Object, content_type = "application/json", description = "The document, as docs/retention.md describes it"),
    responses(
        (status = 201, description = "It holds now", body = PolicyBody),
        (status = 200, description = "It held already", body = PolicyBody),
        (status = "4XX", description = "Refused; nothing was changed", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; send it again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change_policy(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin, Role::Compliance])?;
    let document = document(&app, &headers, body).await?;
    let standing = app
        .recorder
        .change_retention_policy(caller, document)
        .await?;
    let status = if standing.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(PolicyBody::from(Some(standing)))).into_response())
}

/// Reads a policy from a request's body.
pub(super) async fn document(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<Document, Problem> {
    if !has_media(headers, "application/json") {
        return Err(Problem::media_type("application/json"));
    }
    let (bytes, _) = super::body::read(app, headers, body, DOCUMENT_BYTES).await?;
    Ok(Document::read(&bytes)?)
}

/// Policies to begin with.
#[derive(Serialize, ToSchema)]
pub(crate) struct PresetsBody {
    /// Each with one schedule, which states its source.
    #[schema(value_type = Vec<Object>)]
    presets: Vec<Document>,
}

/// Lists policies to begin with, each with the law that it comes from.
#[utoipa::path(
    get, path = "/v1/retention/presets", tag = "retain", operation_id = "listRetentionPresets",
    responses(
        (status = 200, description = "The presets", body = PresetsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_presets(_: Authenticated) -> Response {
    axum::Json(PresetsBody { presets: presets() }).into_response()
}

/// How far the sweeper is.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetentionBody {
    /// Version of the policy that holds; 0 where there is none, and nothing expires.
    version: u64,
    /// Runs that the sweeper does not know yet.
    unlisted: u64,
    /// Runs of which something expired that the sweeper has not come to. None of it can be read.
    due: u64,
    /// For how many seconds the first of these is due.
    lag_seconds: u64,
    /// When it was seen last that nothing is left to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    idle_at: Option<String>,
    /// The last round that erased something.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<RoundBody>,
}

/// A round of the sweeper.
#[derive(Serialize, ToSchema)]
pub(crate) struct RoundBody {
    /// When it began.
    #[schema(format = DateTime)]
    begun_at: String,
    /// Runs of which something was erased.
    runs: u64,
    /// Payloads that were erased.
    payloads: u64,
    /// Milliseconds of work, without pauses.
    busy_ms: u64,
    /// Payloads a second of work.
    payloads_per_second: u64,
}

impl From<SweepStatus> for RetentionBody {
    fn from(status: SweepStatus) -> Self {
        let lag = status.now.zip(status.since);
        let lag = lag.map_or(0, |(now, since)| now.micros() - since.micros());
        Self {
            version: status.version.unwrap_or(0),
            unlisted: status.unlisted,
            due: status.due,
            lag_seconds: u64::try_from(lag / 1_000_000).unwrap_or(0),
            idle_at: status.ended_at.map(|at| at.to_string()),
            last: status
                .last
                .map(|(begun, runs, payloads, busy_ms)| RoundBody {
                    begun_at: begun.to_string(),
                    runs,
                    payloads,
                    busy_ms,
                    payloads_per_second: (payloads * 1_000).checked_div(busy_ms).unwrap_or(0),
                }),
        }
    }
}

/// Says how far the sweeper is: what is due, and what its last round did.
#[utoipa::path(
    get, path = "/v1/retention", tag = "retain", operation_id = "readRetention",
    responses(
        (status = 200, description = "How far it is", body = RetentionBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_retention(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let status = app.recorder.sweep_status(caller).await?;
    Ok(axum::Json(RetentionBody::from(status)).into_response())
}

/// What a sweep did.
#[derive(Serialize, ToSchema)]
pub(crate) struct SweptBody {
    /// Runs of which something was erased.
    runs: u64,
    /// Payloads that were erased.
    payloads: u64,
    /// Whether there is more to do at once, or another server does it.
    more: bool,
}

/// Erases what expired now, and not when the sweeper comes by: one round of it, at most 10,000 runs.
#[utoipa::path(
    post, path = "/v1/retention/sweep", tag = "retain", operation_id = "sweep",
    responses(
        (status = 200, description = "What was done", body = SweptBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn sweep(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let swept = app.recorder.sweep(caller.tenant, app.sweeping).await?;
    let body = SweptBody {
        runs: swept.runs,
        payloads: swept.payloads,
        more: swept.more,
    };
    Ok(axum::Json(body).into_response())
}
