//! `GET /v1/runs/{run}/export`: the bundle.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, Disclosing, PurposeHeader, RunPath};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// Exports a run: a tar that anyone can check offline. What breaks off in the middle does not verify.
///
/// Disclosing payloads needs the role auditor, compliance or admin, and a purpose; who exported what and why is on the
/// ledger before the first byte leaves.
#[utoipa::path(
    get, path = "/v1/runs/{run}/export", tag = "verify", operation_id = "exportRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), Disclosing, PurposeHeader),
    responses(
        (status = 200, description = "The bundle, `run-RUN.onrecord.tar`", body = Vec<u8>, content_type = "application/x-tar"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn export_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
    Query(query): Query<Disclosing>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = query.request(&caller, &headers)?;
    let name = format!("attachment; filename=\"run-{run}.onrecord.tar\"");
    let pieces = app.recorder.export(caller, run, request).await?;
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-tar"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment")),
        ),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
