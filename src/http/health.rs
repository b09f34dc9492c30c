//! `/health/live` and `/health/ready`.

use super::App;
use super::envelope::span;
use super::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// How the server is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`
    status: &'static str,
    /// The server's version.
    version: &'static str,
}

const OK: Health = Health {
    status: "ok",
    version: env!("CARGO_PKG_VERSION"),
};

/// Whether the process runs.
#[utoipa::path(get, path = "/health/live", tag = "operate", operation_id = "live", security(()), responses((status = 200, description = "It runs", body = Health)))]
pub(crate) async fn live() -> Response {
    axum::Json(OK).into_response()
}

/// Whether the database answers and the keys are there.
#[utoipa::path(
    get, path = "/health/ready", tag = "operate", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "Ready", body = Health),
        (status = 503, description = "Not ready", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    let recorder = app.recorder.clone();
    let checked = app.recorder.detached(async move { recorder.ready().await });
    match checked.await {
        Ok(()) => Ok(axum::Json(OK).into_response()),
        Err(error) => {
            span().in_scope(|| tracing::warn!(%error, "not ready"));
            let problem = Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_ready",
                "The server is not ready",
                "the database or the keys are not there; the log says which",
                "Wait, or look at the server's log.",
            );
            Err(Problem {
                retry_after_s: Some(1),
                ..problem
            })
        }
    }
}
