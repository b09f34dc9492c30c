//! `GET /v1/runs/counts`, `/v1/frames/counts` and `/v1/payload-records/counts`.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, PurposeHeader, purpose};
use super::search::{self, PAGE};
use crate::access::{Caller, READERS};
use crate::query::format::{self, Format, Writer};
use crate::query::{Counts, Resource};
use crate::record::query::Question;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// Says of a file that it has not all groups.
const CUT_OFF: HeaderName = HeaderName::from_static("onrecord-cut-off");

/// What is counted, and by what.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountsQuery {
    /// Only what this is true of: docs/queries.md. By default everything.
    filter: Option<String>,
    /// The filter that is kept under a name, in the place of one.
    saved: Option<String>,
    /// Up to 3 fields, or hour, day, week or month, separated by commas: docs/queries.md. By default all are counted together.
    by: Option<String>,
    /// json (the default), ndjson, csv or parquet.
    format: Option<String>,
    /// Why, as a code, if the header `Purpose` does not say so.
    purpose: Option<String>,
}

/// Counts.
#[derive(Serialize, ToSchema)]
pub(crate) struct CountsBody {
    /// The groups in the order of what they have in common, 1,000 at most: each with a member for each of `by` that it has,
    /// and `count`.
    counts: Vec<Map<String, Value>>,
    /// Whether there are more groups than are answered.
    cut_off: bool,
}

/// Counts runs in groups.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger.
#[utoipa::path(
    get, path = "/v1/runs/counts", tag = "read", operation_id = "countRuns", params(CountsQuery, PurposeHeader),
    responses(
        (status = 200, description = "The groups", content(
            (CountsBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn count_runs(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<CountsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    count(&app, &caller, Resource::Runs, query, &headers).await
}

/// Counts frames in groups; times are those of the frames.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger.
#[utoipa::path(
    get, path = "/v1/frames/counts", tag = "read", operation_id = "countFrames", params(CountsQuery, PurposeHeader),
    responses(
        (status = 200, description = "The groups", content(
            (CountsBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn count_frames(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<CountsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    count(&app, &caller, Resource::Frames, query, &headers).await
}

/// Counts records of payloads in groups; times are those of their runs' openings.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger.
#[utoipa::path(
    get, path = "/v1/payload-records/counts", tag = "read", operation_id = "countPayloadRecords", params(CountsQuery, PurposeHeader),
    responses(
        (status = 200, description = "The groups", content(
            (CountsBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn count_payload_records(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<CountsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    count(&app, &caller, Resource::PayloadRecords, query, &headers).await
}

async fn count(
    app: &App,
    caller: &Caller,
    resource: Resource,
    query: CountsQuery,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let format = search::format(query.format.as_deref())?;
    let named = (query.filter, query.saved.clone());
    let filter = search::filter(app, caller, resource, named).await?;
    let by = query.by.unwrap_or_default();
    let counts = Counts::new(resource, filter.as_deref(), &by)?;
    let counts = counts.map_err(|expected| Problem::parameter("by", &expected))?;
    let purpose = purpose(headers, query.purpose)?.ok_or_else(Problem::purpose_of_query)?;
    let question = Question {
        resource: resource.as_str(),
        filter,
        saved: query.saved,
        by: counts.by(),
        count: true,
        format: Some(format.map_or("json", Format::extension)),
        ..Question::default()
    };
    let recorder = &app.recorder;
    recorder.enter_query(caller, &purpose, &question).await?;
    let counted = counts.count(recorder, caller).await?;
    let Some(format) = format else {
        let cut_off = format!(",\"cut_off\":{}}}", counted.cut_off);
        let page = format::json::page("counts", &counted.columns, &counted.rows, None);
        let mut page = page.map_err(|_| Problem::internal())?;
        // In the place of the brace that closes it.
        page.pop();
        page.extend_from_slice(cut_off.as_bytes());
        return Ok((PAGE, page).into_response());
    };
    let file = || {
        let mut writer = Writer::new(format, &counted.columns)?;
        let mut bytes = writer.write(&counted.rows)?;
        bytes.extend(writer.end()?);
        Ok::<_, format::FormatError>(bytes)
    };
    let bytes = file().map_err(|_| Problem::internal())?;
    let name = format!(
        "attachment; filename=\"{}-counts.{}\"",
        resource.as_str(),
        format.extension()
    );
    let attached = HeaderValue::from_static("attachment");
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(format.media()),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&name).unwrap_or(attached),
        ),
        (
            CUT_OFF,
            HeaderValue::from_static(if counted.cut_off { "true" } else { "false" }),
        ),
    ];
    Ok((headers, bytes).into_response())
}
