//! `GET /v1/payload-records`.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, PurposeHeader};
use super::search::{self, Asked};
use crate::access::READERS;
use crate::query::Resource;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

/// A page of records of payloads of all runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct PayloadRecordsBody {
    /// In the order that was asked for.
    payload_records: Vec<PayloadRecordBody>,
    /// What `cursor` is to be for the next page; absent on the last. A page with it may have fewer rows than were asked for, or
    /// none: so far nothing more was found.
    next: Option<String>,
}

/// What is recorded of a payload; what it says is read by `GET /v1/runs/{run}/payloads/{commit}`.
#[derive(Serialize, ToSchema)]
pub(crate) struct PayloadRecordBody {
    /// Its run.
    run: String,
    /// The place of its frame in the run.
    seq: u64,
    /// Its place in the frame, from 0.
    place: u64,
    /// Its commitment.
    commit: String,
    /// Its media type.
    media: String,
    /// Its retention tier, 0 to 3.
    tier: u64,
    /// Its length after padding, in bytes.
    size: u64,
    /// What reading it would say: stored, kept (by its agent), erased; or expired, before what is left of it is removed. Filters
    /// and counts take what lies there: one that is expired is stored until then.
    state: String,
    /// Index of the ledger's entry that certifies the erasure.
    ledger_index: Option<u64>,
    /// When what was left of it was removed.
    #[schema(format = DateTime)]
    erased_at: Option<String>,
    /// When its frame was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// The kind of its frame.
    kind: String,
    /// Number of the run.
    run_no: u64,
    /// Agent of the run.
    agent: Option<String>,
}

/// Searches what is recorded of the payloads of all runs, by their runs and their places in them; never what they say.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger. What is not there is left out.
#[utoipa::path(
    get, path = "/v1/payload-records", tag = "read", operation_id = "listPayloadRecords", params(Asked, PurposeHeader),
    responses(
        (status = 200, description = "A page, or a file of all of them", content(
            (PayloadRecordsBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_payload_records(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let resource = Resource::PayloadRecords;
    let request = search::Request {
        resource,
        list: None,
        headers: &headers,
    };
    search::answer(&app, caller, request, asked, |page, next| {
        search::rows(resource, &page, next.as_deref())
    })
    .await
}
