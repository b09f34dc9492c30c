//! `/v1/queries`: which questions over many runs were asked, by whom and why.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, NumberPath};
use crate::access::{READERS, Role};
use crate::record::query::QueryRow;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What was asked may name people.
const NO_STORE: [(header::HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];
const PAGE: u32 = 50;
const PAGE_MAX: u32 = 500;

/// Which questions.
#[derive(Deserialize, IntoParams)]
pub(crate) struct QueriesQuery {
    /// Only those entered below this index of the ledger: `next` of the page before.
    before: Option<u64>,
    /// 1 to 500, by default 50.
    limit: Option<u32>,
}

/// A question that was asked.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueryBody {
    /// Index of its entry in the ledger, whose subject is the text.
    index: u64,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Who asked, a person by a pseudonym.
    #[schema(value_type = Object)]
    by: Actor,
    /// Why, as a code.
    purpose: String,
    /// runs, frames or payload-records.
    resource: String,
    /// All of the question, as JSON, exactly as its digest on the ledger is of it.
    text: String,
}

/// Questions that were asked.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueriesBody {
    /// The last first.
    queries: Vec<QueryBody>,
    /// What `before` is to be for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

impl From<QueryRow> for QueryBody {
    fn from(row: QueryRow) -> Self {
        Self {
            index: row.ledger_index,
            at: row.at.to_string(),
            by: row.by,
            purpose: row.purpose,
            resource: row.resource,
            // Canonical JSON.
            text: String::from_utf8_lossy(&row.text).into_owned(),
        }
    }
}

/// Lists the questions over many runs that were asked, the last first. Those that somebody removed stand on the ledger only.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/queries", tag = "read", operation_id = "listQueries",
    params(QueriesQuery),
    responses(
        (status = 200, description = "The questions", body = QueriesBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_queries(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<QueriesQuery>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 500"));
    }
    let mut rows = app
        .recorder
        .queries(caller, query.before, limit + 1)
        .await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let last = rows.last().map(|row| row.ledger_index);
    let body = QueriesBody {
        queries: rows.into_iter().map(QueryBody::from).collect(),
        next: last.filter(|_| more),
    };
    Ok((NO_STORE, axum::Json(body)).into_response())
}

/// Removes what was asked, because its filter names somebody who is to be forgotten. The entry in the ledger stays, and says
/// who asked, when and why.
///
/// Needs the role admin.
#[utoipa::path(
    delete, path = "/v1/queries/{index}", tag = "administer", operation_id = "forgetQuery",
    params(("index" = u64, Path, description = "Index of its entry in the ledger")),
    responses(
        (status = 204, description = "Removed"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn forget_query(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(index): NumberPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    app.recorder.forget_query(caller, index).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
