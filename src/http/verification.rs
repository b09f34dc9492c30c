//! Checking: a run here, an uploaded file, one turn alone, and the keys to check under.

use super::App;
use super::body::Chunks;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, Disclosing, PurposeHeader, RunAnd, RunPath};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::mpsc;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Verifies a run: its bundle goes through the same verifier that everybody has, under the tenant's
/// own keys. `verdict.exit_code` is 0 for verified, 1 altered, 2 incomplete, 3 unusable.
#[utoipa::path(
    get, path = "/v1/runs/{run}/verification", tag = "verify", operation_id = "verifyRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The report", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn verify_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _one = app
        .verifications
        .try_acquire()
        .map_err(|_| Problem::busy())?;
    Ok(axum::Json(app.recorder.verification(caller, run).await?).into_response())
}

/// Verifies an uploaded bundle, turn proof or ledger, under the keys of the caller's tenant.
#[utoipa::path(
    post, path = "/v1/verify", tag = "verify", operation_id = "verifyFile",
    params(EncodingHeader),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The report", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn verify_file(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut chunks = Chunks::new(&app, &headers, body, app.upload_bytes)?;
    let Ok(_one) = app.verifications.try_acquire() else {
        chunks.drain();
        return Err(Problem::busy());
    };
    let (sink, pieces) = mpsc::channel::<Result<bytes::Bytes, std::io::Error>>(8);
    let recorder = app.recorder.clone();
    let report = tokio::spawn(async move { recorder.verify_stream(caller, pieces).await });
    while let Some(chunk) = chunks.next().await? {
        // The verifier may have seen enough; what is left of the body is read and dropped.
        if sink.send(Ok(chunk)).await.is_err() {
            chunks.as_they_come();
        }
    }
    drop(sink);
    let report = report.await.map_err(|_| Problem::internal())??;
    Ok(axum::Json(report).into_response())
}

/// Proves one turn of a sealed run alone: its frames, their path to the seal, and the seal.
#[utoipa::path(
    get, path = "/v1/runs/{run}/turns/{turn}/proof", tag = "verify", operation_id = "proveTurn",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), ("turn" = u64, Path, description = "Number of the turn, from 1"), Disclosing, PurposeHeader),
    responses(
        (status = 200, description = "The proof, `turn-N.turn-proof.json`", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn prove_turn(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAnd(run, turn): RunAnd,
    Query(query): Query<Disclosing>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = query.request(&caller, &headers)?;
    let proof = app.recorder.turn_proof(caller, run, turn, request).await?;
    Ok(attached(format!("turn-{turn}.turn-proof.json"), proof))
}

/// Proves one frame alone: the frame, its path, and the seal; or, while the run is open, a head that is signed for it.
/// No payload comes along. Of any run it costs the same.
#[utoipa::path(
    get, path = "/v1/runs/{run}/frames/{seq}/proof", tag = "verify", operation_id = "proveFrame",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"), ("seq" = u64, Path, description = "Place in the run, from 0")),
    responses(
        (status = 200, description = "The proof, `frame-SEQ.frame-proof.json`", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn prove_frame(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunAnd(run, seq): RunAnd,
) -> Result<Response, Problem> {
    let proof = app.recorder.frame_proof(caller, run, seq).await?;
    Ok(attached(format!("frame-{seq}.frame-proof.json"), proof))
}

/// A proof as a file of a name.
fn attached(name: String, proof: Vec<u8>) -> Response {
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (
            header::CONTENT_DISPOSITION,
            disposition.unwrap_or(HeaderValue::from_static("attachment")),
        ),
    ];
    (headers, proof).into_response()
}

/// The trust file of the caller's tenant: what an auditor pins, over a channel that he trusts.
#[utoipa::path(
    get, path = "/v1/trust", tag = "verify", operation_id = "readTrust",
    responses(
        (status = 200, description = "The trust file", body = String, content_type = "text/plain"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_trust(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    let text = app.recorder.trust(caller).await?;
    Ok((
        [(header::CONTENT_TYPE, HeaderValue::from_static(PLAIN))],
        text,
    )
        .into_response())
}
