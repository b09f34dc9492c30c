//! `GET /v1/runs/{run}`, and what every answer says of a run.

use super::App;
use super::flags::FlagBody;
use super::problem::Problem;
use super::receipt::etag;
use super::request::{Authenticated, RunPath};
use crate::record::read::RunSummary;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A run, as its frames say.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunBody {
    /// The run.
    run: String,
    /// Its number in the tenant, dense from 1.
    run_no: u64,
    /// The tenant.
    tenant: String,
    /// `session.body.agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// open (frames may follow), ended (only the seal may) or sealed.
    status: &'static str,
    /// Status of the last outcome frame, or unknown.
    outcome: &'static str,
    /// Time of the first frame.
    #[schema(format = DateTime)]
    opened_at: String,
    /// Time of the last frame.
    #[schema(format = DateTime)]
    last_at: String,
    /// Frames.
    size: u64,
    /// Hash of the last frame.
    head: String,
    /// RFC 9162 root of all frames.
    root: String,
    /// Number of the open turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_turn: Option<u64>,
    /// Turns.
    turns: u64,
    /// Frames of each kind.
    kinds: BTreeMap<String, u64>,
    /// Payloads.
    payloads: u64,
    /// Payloads that were erased.
    erased: u64,
    /// Bytes of `frames.ndjson`.
    bytes: u64,
    /// Position in the ledger.
    ledger: PositionBody,
    /// Time of the seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    sealed_at: Option<String>,
    /// Tool calls that nothing answers: whether they had an effect is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_outcomes: Option<UnknownBody>,
    /// Flags that stand on it; where runs are listed, they are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<FlagBody>,
}

/// Where a run stands in the ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct PositionBody {
    /// Index of the opening.
    open_index: u64,
    /// Index of the seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    seal_index: Option<u64>,
}

/// Tool calls of unknown outcome.
#[derive(Serialize, ToSchema)]
pub(crate) struct UnknownBody {
    /// How many.
    count: u64,
    /// The first 100 of them.
    frames: Vec<u64>,
}

impl RunBody {
    pub(super) fn new(run: RunSummary, unknown: Option<UnknownBody>) -> Self {
        let status = run.status();
        Self {
            run: run.run.to_string(),
            run_no: run.run_no,
            tenant: run.tenant.to_string(),
            agent: run.agent,
            status,
            outcome: run.outcome.unwrap_or("unknown"),
            opened_at: run.opened_at.to_string(),
            last_at: run.last_at.to_string(),
            size: run.size,
            head: run.head.hex(),
            root: run.root.hex(),
            open_turn: run.open_turn,
            turns: run.turns,
            kinds: run
                .kinds
                .into_iter()
                .map(|(kind, count)| (kind.to_string(), count))
                .collect(),
            payloads: run.payloads,
            erased: run.erased,
            bytes: run.bytes,
            ledger: PositionBody {
                open_index: run.open_index,
                seal_index: run.sealed.map(|(_, index)| index),
            },
            sealed_at: run.sealed.map(|(at, _)| at.to_string()),
            unknown_outcomes: unknown,
            flags: Vec::new(),
        }
    }
}

/// Reads a run. The ETag is its head.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "read", operation_id = "readRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The run", body = RunBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let flags = app
        .recorder
        .flags(caller.clone(), run.clone(), false)
        .await?;
    let (run, frames, count) = app.recorder.run(caller, run).await?;
    let head = etag(&run.head);
    let unknown = (count > 0).then_some(UnknownBody { count, frames });
    let mut body = RunBody::new(run, unknown);
    body.flags = flags.into_iter().map(FlagBody::from).collect();
    Ok(([(header::ETAG, head)], axum::Json(body)).into_response())
}
