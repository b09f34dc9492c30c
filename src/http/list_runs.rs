//! `GET /v1/runs`.

use super::App;
use super::problem::Problem;
use super::read_run::RunBody;
use super::request::{Authenticated, PurposeHeader};
use super::search::{self, Asked};
use crate::query::{Page, Resource, Rows, time};
use crate::record::read::{ListRequest, Moment};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A page of runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunsBody {
    /// In the order that was asked for.
    runs: Vec<RunBody>,
    /// What `cursor` is to be for the next page; absent on the last. A page with it may have fewer rows than were asked for, or
    /// none: so far nothing more was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    /// Only of this agent.
    agent: Option<String>,
    /// open or sealed.
    status: Option<String>,
    /// completed, failed, cancelled or unknown.
    outcome: Option<String>,
    /// Only runs opened at this time or later: RFC 3339, a date (its beginning in UTC), or how long ago by
    /// the database's clock, such as `90s`, `15m`, `2h`, `3d` or `2w`.
    since: Option<String>,
    /// Only runs opened before this time, written likewise.
    until: Option<String>,
    /// Only runs that this is true of, such as `agent = "coder" and outcome != "completed"`: docs/queries.md.
    filter: Option<String>,
    /// The filter that is kept under a name, in the place of one.
    saved: Option<String>,
    /// Only runs whose id begins so.
    prefix: Option<String>,
    /// `desc` (the default), the newest first, or `asc`.
    order: Option<String>,
    /// `next` of the page before, with all else as it was.
    cursor: Option<String>,
    /// 1 to 500, by default 50.
    limit: Option<u32>,
    /// `json` (the default), a page; or all that there is, as `ndjson`, `csv` or `parquet`.
    format: Option<String>,
    /// Why, as a code, if the header `Purpose` does not say so. Needed with a filter and for all that there is.
    purpose: Option<String>,
}

/// Lists runs, by the time of their opening.
///
/// With a filter, or as a file, this is a query: it needs a purpose, and stands on the ledger.
#[utoipa::path(
    get, path = "/v1/runs", tag = "read", operation_id = "listRuns", params(RunsQuery, PurposeHeader),
    responses(
        (status = 200, description = "A page, or a file of all of them", content(
            (RunsBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_runs(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<RunsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let list = list(&query)?;
    let beside = [
        ("agent", query.agent),
        ("status", query.status),
        ("outcome", query.outcome),
        ("since", query.since),
        ("until", query.until),
        ("prefix", query.prefix),
    ];
    let beside = beside
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)));
    let request = search::Request {
        resource: Resource::Runs,
        list: Some((list, beside.collect())),
        headers: &headers,
    };
    let asked = Asked {
        filter: query.filter,
        saved: query.saved,
        order: query.order,
        cursor: query.cursor,
        limit: query.limit,
        format: query.format,
        purpose: query.purpose,
    };
    search::answer(&app, caller, request, asked, page).await
}

/// What lists of runs take beside the filter.
fn list(query: &RunsQuery) -> Result<ListRequest, Problem> {
    let sealed = match query.status.as_deref() {
        None => None,
        Some("open") => Some(false),
        Some("sealed") => Some(true),
        Some(_) => return Err(Problem::parameter("status", "open or sealed")),
    };
    if query
        .outcome
        .as_deref()
        .is_some_and(|outcome| !["completed", "failed", "cancelled", "unknown"].contains(&outcome))
    {
        return Err(Problem::parameter(
            "outcome",
            "completed, failed, cancelled or unknown",
        ));
    }
    if query
        .agent
        .as_deref()
        .is_some_and(|agent| agent.contains('\0'))
    {
        return Err(Problem::parameter("agent", "text without U+0000"));
    }
    let prefix = query.prefix.clone().unwrap_or_default();
    if !RunId::may_begin_with(&prefix) {
        return Err(Problem::parameter(
            "prefix",
            "the beginning of a run's id: up to 26 of 0-9 and A-Z without I, L, O and U",
        ));
    }
    Ok(ListRequest {
        agent: query.agent.clone(),
        sealed,
        outcome: query.outcome.clone(),
        since: moment("since", query.since.as_deref())?,
        until: moment("until", query.until.as_deref())?,
        prefix,
        ..ListRequest::default()
    })
}

fn page(page: Page, next: Option<String>) -> Result<Vec<u8>, Problem> {
    let runs = match page.rows {
        Rows::Runs(runs) => runs,
        // The page is one of runs.
        Rows::Frames(_) | Rows::PayloadRecords(_) => Vec::new(),
    };
    let runs = runs.into_iter().map(|run| RunBody::new(run, None));
    let body = RunsBody {
        runs: runs.collect(),
        next,
    };
    serde_json::to_vec(&body).map_err(|_| Problem::internal())
}

/// A time, or how long ago.
fn moment(name: &str, text: Option<&str>) -> Result<Option<Moment>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let at = || time(text).map(Moment::At);
    ago(text).or_else(at).map(Some).ok_or_else(|| {
        Problem::parameter(
            name,
            "a time such as 2026-11-30T08:00:00Z or 2026-11-30, or how long ago, such as 2h or 3d",
        )
    })
}

fn ago(text: &str) -> Option<Moment> {
    let unit_s = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let count: u32 = text[..text.len() - 1].parse().ok()?;
    Some(Moment::Ago {
        seconds: u64::from(count) * unit_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let at = |text: &str| Some(Moment::At(text.parse().unwrap()));
        let ago = |seconds| Some(Moment::Ago { seconds });
        for (text, expected) in [
            ("2026-11-30T08:00:00Z", at("2026-11-30T08:00:00.000000Z")),
            (
                "2026-11-30T08:00:00.5+02:00",
                at("2026-11-30T06:00:00.500000Z"),
            ),
            ("2026-11-30", at("2026-11-30T00:00:00.000000Z")),
            ("90s", ago(90)),
            ("15m", ago(900)),
            ("2h", ago(7_200)),
            ("3d", ago(259_200)),
            ("2w", ago(1_209_600)),
            ("", None),
            ("h", None),
            ("-2h", None),
            ("2 h", None),
            ("yesterday", None),
            ("5000000000s", None),
            ("2026-11-30T08:00:00", None),
            ("2ü", None),
        ] {
            assert_eq!(
                moment("since", Some(text)).ok().flatten(),
                expected,
                "{text}"
            );
        }
    }
}
