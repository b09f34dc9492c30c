//! `POST /v1/runs`: opens a run.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::receipt::{self, AppendedBody};
use super::request::{Authenticated, has_media, idempotency_key, merge_key};
use super::schema::OpenRequest;
use crate::access::Role;
use crate::record::{intake, offload};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

/// Opens a run with its session frame. A retry with the same key answers the run that it opened.
#[utoipa::path(
    post, path = "/v1/runs", tag = "record", operation_id = "openRun",
    request_body(content = OpenRequest, content_type = "application/json"),
    params(("Idempotency-Key" = Option<String>, Header, description = "Key of the opening, instead of `key`"), EncodingHeader),
    responses(
        (status = 201, description = "The run is open", body = AppendedBody),
        (status = 200, description = "A retry: the run was open", body = AppendedBody),
        (status = "4XX", description = "Refused; nothing was stored", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; retry with the same key", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn open_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Agent])?;
    if !has_media(&headers, "application/json") {
        return Err(Problem::media_type("application/json"));
    }
    let (bytes, room) = super::body::read(&app, &headers, body, intake::REQUEST_BYTES).await?;
    let mut request = offload(bytes.len(), || intake::opening(&bytes))?;
    drop(bytes);
    merge_key(&mut request.key, idempotency_key(&headers)?)?;
    let appended = app.recorder.open(caller, request).await?;
    drop(room);
    Ok(receipt::response(appended))
}
