//! `GET /v1/frames`.

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

/// A page of frames of all runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct FoundFramesBody {
    /// In the order that was asked for.
    frames: Vec<FoundFrameBody>,
    /// What `cursor` is to be for the next page; absent on the last. A page with it may have fewer rows than were asked for, or
    /// none: so far nothing more was found.
    next: Option<String>,
}

/// What is kept of a frame for looking it up. Its exact bytes: `GET /v1/runs/{run}/frames/{seq}`.
#[derive(Serialize, ToSchema)]
pub(crate) struct FoundFrameBody {
    /// Its run.
    run: String,
    /// Its place in the run.
    seq: u64,
    /// When it was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// Its kind.
    kind: String,
    /// The tool, the gate, the model or the file that it is about.
    name: Option<String>,
    /// What the gate said: pass, fail, error or skipped.
    verdict: Option<String>,
    /// The turn that it is in.
    turn: Option<u64>,
    /// The frame that it answers.
    answers: Option<u64>,
    /// Its writer's key.
    key: String,
    /// Number of the run.
    run_no: u64,
    /// Agent of the run.
    agent: Option<String>,
}

/// Searches the frames of all runs, by the time that they were recorded at.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger. What is not there is left out.
#[utoipa::path(
    get, path = "/v1/frames", tag = "read", operation_id = "listFrames", params(Asked, PurposeHeader),
    responses(
        (status = 200, description = "A page, or a file of all of them", content(
            (FoundFramesBody = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_frames(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let resource = Resource::Frames;
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
