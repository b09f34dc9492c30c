//! `GET /v1/runs/{run}/payloads/{commit}`: one payload.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, PurposeHeader, RunAndCommit, purpose};
use crate::access::READERS;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::IntoParams;

/// Why.
#[derive(Deserialize, IntoParams)]
pub(crate) struct PurposeQuery {
    /// Why, as a code, if the header `Purpose` does not say so: 1 to 64 letters, digits, `.`, `_` and `-`.
    purpose: Option<String>,
}

/// Reads a payload. Who reads it, in which role and why, is on the ledger before the first byte leaves.
///
/// Needs the role auditor, compliance or admin, and a purpose. `Onrecord-Salt` opens the commitment:
/// `SHA-256("onrecord/payload/1\n" ‖ salt ‖ payload)`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/payloads/{commit}", tag = "read", operation_id = "readPayload",
    params(
        ("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
        ("commit" = String, Path, description = "The payload's commitment", pattern = "^[0-9a-f]{64}$"),
        PurposeQuery, PurposeHeader,
    ),
    responses(
        (status = 200, description = "The payload, under its own media type", body = Vec<u8>, content_type = "application/octet-stream",
            headers(
                ("onrecord-salt" = String, description = "Salt of the commitment, hex"),
                ("onrecord-seq" = u64, description = "Place of its frame"),
                ("onrecord-ledger-index" = u64, description = "Index of the entry about this reading"),
            )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_payload(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAndCommit(run, commit): RunAndCommit,
    Query(query): Query<PurposeQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let purpose = purpose(&headers, query.purpose)?.ok_or_else(Problem::purpose_required)?;
    let read = app
        .recorder
        .read_payload(caller, run, commit, purpose)
        .await?;
    let media = HeaderValue::from_str(&read.media);
    let headers = [
        // An agent chose it: whatever it is, nothing of it is to run in a browser.
        (
            header::CONTENT_TYPE,
            media.unwrap_or(HeaderValue::from_static("application/octet-stream")),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("sandbox; default-src 'none'"),
        ),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            HeaderName::from_static("onrecord-salt"),
            HeaderValue::from_str(&read.salt.hex()).unwrap_or(HeaderValue::from_static("")),
        ),
        (
            HeaderName::from_static("onrecord-seq"),
            HeaderValue::from(read.seq),
        ),
        (
            HeaderName::from_static("onrecord-ledger-index"),
            HeaderValue::from(read.index),
        ),
    ];
    Ok((headers, read.bytes).into_response())
}
