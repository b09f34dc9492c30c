//! `/v1/saved-queries`: filters under names, for who asks the same again.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, has_media};
use crate::access::{READERS, is_code};
use crate::query::{self, Resource};
use crate::record::query::SavedRow;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A filter may name people.
const NO_STORE: [(header::HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];
/// Bytes of a request: a filter of the longest, each character written as six.
const BODY_BYTES: usize = 32_768;
const EXPECTED: &str =
    "{\"resource\": \"runs\", \"frames\" or \"payload-records\", \"filter\": \"…\"}";
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 500;

/// A filter that is to be kept.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaveRequest {
    /// runs, frames or payload-records.
    resource: String,
    /// The filter: docs/queries.md.
    #[schema(min_length = 1, max_length = 4096)]
    filter: String,
}

/// A filter that is kept.
#[derive(Serialize, ToSchema)]
pub(crate) struct SavedBody {
    /// Its name.
    name: String,
    /// runs, frames or payload-records.
    resource: String,
    /// As it was written.
    filter: String,
    /// Who saved it last, a person by a pseudonym.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
}

/// Filters that are kept.
#[derive(Serialize, ToSchema)]
pub(crate) struct SavedListBody {
    /// By name.
    saved: Vec<SavedBody>,
    /// What `after` is to be for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which filters.
#[derive(Deserialize, IntoParams)]
pub(crate) struct SavedQuery {
    /// Only names behind this: `next` of the page before.
    after: Option<String>,
    /// 1 to 500, by default 100.
    limit: Option<u32>,
}

impl From<SavedRow> for SavedBody {
    fn from(row: SavedRow) -> Self {
        Self {
            name: row.name,
            resource: row.resource,
            filter: row.filter,
            by: row.by,
            at: row.at.to_string(),
        }
    }
}

/// Keeps a filter under a name, in place of what was kept there.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    put, path = "/v1/saved-queries/{name}", tag = "read", operation_id = "saveQuery",
    params(("name" = String, Path, description = "A code", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), EncodingHeader),
    request_body(content = SaveRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "Nothing was kept there before", body = SavedBody),
        (status = 200, description = "In place of what was kept there", body = SavedBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn save_query(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    check(&name)?;
    if !has_media(&headers, "application/json") {
        return Err(Problem::media_type("application/json"));
    }
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let malformed = |_| Problem::parameter("the body", EXPECTED);
    let request: SaveRequest = onrecord_core::json::typed(&bytes).map_err(malformed)?;
    let resource: Resource = request
        .resource
        .parse()
        .map_err(|()| Problem::parameter("the body", EXPECTED))?;
    query::check(resource, &request.filter)?;
    let saved = app
        .recorder
        .save_query(caller, (name, resource.as_str()), request.filter)
        .await?;
    let status = if saved.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, NO_STORE, axum::Json(SavedBody::from(saved.row))).into_response())
}

/// Reads a filter that is kept.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/saved-queries/{name}", tag = "read", operation_id = "readSavedQuery",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The filter", body = SavedBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_saved_query(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    check(&name)?;
    let row = app.recorder.saved_query(caller, name).await?;
    Ok((NO_STORE, axum::Json(SavedBody::from(row))).into_response())
}

/// Removes a filter that is kept. What was asked with it stays as it was.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    delete, path = "/v1/saved-queries/{name}", tag = "read", operation_id = "removeSavedQuery",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "Removed"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_saved_query(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    check(&name)?;
    app.recorder.remove_saved_query(caller, name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lists the filters that are kept, by name.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/saved-queries", tag = "read", operation_id = "listSavedQueries",
    params(SavedQuery),
    responses(
        (status = 200, description = "The filters", body = SavedListBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_saved_queries(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<SavedQuery>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 500"));
    }
    let after = query.after.unwrap_or_default();
    if after.contains('\0') {
        return Err(Problem::parameter("after", "a name"));
    }
    let mut rows = app.recorder.saved_queries(caller, after, limit + 1).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let last = rows.last().map(|row| row.name.clone());
    let body = SavedListBody {
        saved: rows.into_iter().map(SavedBody::from).collect(),
        next: last.filter(|_| more),
    };
    Ok((NO_STORE, axum::Json(body)).into_response())
}

/// Whether a name may be one.
pub(super) fn check(name: &str) -> Result<(), Problem> {
    if is_code(name) {
        Ok(())
    } else {
        Err(Problem::code_expected("name"))
    }
}
