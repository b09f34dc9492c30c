//! `/v1/keys/rotations`: epochs of the caller's tenant, and the way from one to the next.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, RunPath};
use crate::access::Role;
use crate::record::Rotations;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// An epoch of the tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct EpochBody {
    /// Its number, from 1.
    epoch: i32,
    /// When it was first used.
    #[schema(format = DateTime)]
    made_at: String,
    /// Since when no new key is under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    closed_at: Option<String>,
    /// When its key was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    destroyed_at: Option<String>,
    /// Keys of runs that are under it.
    keys: u64,
}

/// The epochs of a tenant, and how far the move to the newest one is.
#[derive(Serialize, ToSchema)]
pub(crate) struct RotationsBody {
    /// `rotating` as long as the key of an older epoch is not destroyed, else `idle`.
    state: &'static str,
    /// Whether the server process that answers works on it.
    here: bool,
    /// Keys of runs under the newest epoch.
    done: u64,
    /// Keys of runs.
    of: u64,
    /// In their order; none before the first run.
    epochs: Vec<EpochBody>,
}

impl From<Rotations> for RotationsBody {
    fn from(rotations: Rotations) -> Self {
        let progress = rotations.progress;
        let epochs = progress.epochs.into_iter().map(|(epoch, keys)| EpochBody {
            epoch: epoch.epoch,
            made_at: epoch.made_at.to_string(),
            closed_at: epoch.closed_at.map(|at| at.to_string()),
            destroyed_at: epoch.destroyed_at.map(|at| at.to_string()),
            keys,
        });
        let rotating = progress.unfinished || rotations.here;
        Self {
            state: if rotating { "rotating" } else { "idle" },
            here: rotations.here,
            done: progress.done,
            of: progress.of,
            epochs: epochs.collect(),
        }
    }
}

/// Moves the caller's tenant to a new epoch: the keys of its runs are wrapped again, then the old epoch's key is
/// destroyed. A move that was begun is finished instead. It goes on after the answer.
#[utoipa::path(
    post, path = "/v1/keys/rotations", tag = "administer", operation_id = "rotateKeys",
    responses(
        (status = 202, description = "It begins, or goes on", body = RotationsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    app.recorder.rotate(caller.tenant.clone());
    let rotations = app.recorder.rotations(caller.tenant).await?;
    Ok((
        StatusCode::ACCEPTED,
        axum::Json(RotationsBody::from(rotations)),
    )
        .into_response())
}

/// What became of a run's keys.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenewedBody {
    /// The run.
    run: String,
    /// Keys of payloads that were wrapped again.
    rewrapped: u64,
}

/// Renews the keys of a run: the keys of its payloads are wrapped with new ones, and the older ones are removed. No ciphertext is
/// touched. Done again where it was cut off, it goes on.
#[utoipa::path(
    post, path = "/v1/runs/{run}/keys/rotation", tag = "administer", operation_id = "renewRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "Done", body = RenewedBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not to its end; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let rewrapped = app.recorder.renew_run(caller, run.clone()).await?;
    let run = run.to_string();
    Ok(axum::Json(RenewedBody { run, rewrapped }).into_response())
}

/// Reads the epochs of the caller's tenant, and how far the move to the newest one is.
#[utoipa::path(
    get, path = "/v1/keys/rotations", tag = "administer", operation_id = "readRotations",
    responses(
        (status = 200, description = "The epochs", body = RotationsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_rotations(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let rotations = app.recorder.rotations(caller.tenant).await?;
    Ok(axum::Json(RotationsBody::from(rotations)).into_response())
}
