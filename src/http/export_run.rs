//! `GET /v1/runs/{run}/export`: the bundle.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, RunPath};
use crate::access::{Role, is_name};
use crate::export::ExportRequest;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::IntoParams;

/// What to export and why.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ExportQuery {
    /// Why, for the signed export statement: 1 to 500 characters, by default `export`.
    purpose: Option<String>,
    /// `all` (the default) discloses payloads, `none` withholds them.
    payloads: Option<String>,
}

/// Exports a run: a tar that anyone can check offline. What breaks off in the middle does not verify.
///
/// Disclosing payloads needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/runs/{run}/export", tag = "verify", operation_id = "exportRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), ExportQuery),
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
    Query(query): Query<ExportQuery>,
) -> Result<Response, Problem> {
    let payloads = match query.payloads.as_deref() {
        None | Some("all") => true,
        Some("none") => false,
        Some(_) => return Err(Problem::parameter("payloads", "all or none")),
    };
    if payloads {
        caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    }
    let purpose = query.purpose.unwrap_or_else(|| "export".to_owned());
    if !is_name(&purpose, 500) {
        return Err(Problem::parameter(
            "purpose",
            "1 to 500 characters, none of them a control character or a noncharacter",
        ));
    }
    let name = format!("attachment; filename=\"run-{run}.onrecord.tar\"");
    let pieces = app
        .recorder
        .export(caller, run, ExportRequest { purpose, payloads })
        .await?;
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
