//! `GET /v1/runs/{run}/coverage` and `GET /v1/coverage`: which facts a record of use should have, and which runs have them.

use super::App;
use super::problem::Problem;
use super::report::report;
use super::request::{Authenticated, PurposeHeader, RunPath, purpose};
use super::search;
use crate::access::READERS;
use crate::query::{Resource, covered, of_runs};
use crate::record::query::Question;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::coverage::{Required, State as Found};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What this does not say.
const LIMITS: [&str; 2] = [
    "A list in the style of Article 12 of Regulation (EU) 2024/1689, of what was recorded. It is no legal advice, and no finding that a system complies.",
    "What was recorded may be false, and what was never sent cannot be seen.",
];

/// A fact, and whether a run has it.
#[derive(Serialize, ToSchema)]
pub(crate) struct FactBody {
    /// Its name: docs/coverage.md.
    fact: &'static str,
    /// recorded, absent, or not_applicable where nothing in the run asks for it.
    state: &'static str,
    /// The first frame that records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The provision in whose style it is asked for.
    source: &'static str,
    /// How a run records it.
    how: &'static str,
}

/// The coverage of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct CoverageBody {
    /// The run.
    run: String,
    /// Its number.
    run_no: u64,
    /// Whether it is sealed. What an open run lacks may come.
    sealed: bool,
    /// Frames that were read.
    size: u64,
    /// Each fact once.
    facts: Vec<FactBody>,
    /// What this does not say.
    limits: [&'static str; 2],
}

/// Of how many runs a fact is recorded.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShareBody {
    /// Its name.
    fact: &'static str,
    /// Runs that have it.
    recorded: u64,
    /// Runs that lack it.
    absent: u64,
    /// Runs in which nothing asks for it.
    not_applicable: u64,
    /// The provision in whose style it is asked for.
    source: &'static str,
    /// How a run records it.
    how: &'static str,
}

/// The coverage of many runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct SharesBody {
    /// Sealed runs that were counted.
    runs: u64,
    /// Facts that are known of each sealed run.
    facts: Vec<ShareBody>,
    /// Facts that only the coverage of each single run has.
    only_of_single_runs: Vec<&'static str>,
    /// What this does not say.
    limits: [&'static str; 2],
}

/// Which runs.
#[derive(Deserialize, IntoParams)]
pub(crate) struct CoverageQuery {
    /// Only sealed runs that this is true of: docs/queries.md. By default all sealed runs.
    filter: Option<String>,
    /// The filter that is kept under a name, in the place of one.
    saved: Option<String>,
    /// Why, as a code, if the header `Purpose` does not say so.
    purpose: Option<String>,
}

/// Says of each fact that a record of use should have whether a run records it, and with which frame first. Reads all of the
/// run's frames. In the style of Article 12 of Regulation (EU) 2024/1689; no legal advice.
#[utoipa::path(
    get, path = "/v1/runs/{run}/coverage", tag = "read", operation_id = "coverRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The facts", body = CoverageBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cover_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let report = report(&app, caller, run).await?;
    let body = CoverageBody {
        run: report.run.run.to_string(),
        run_no: report.run.run_no,
        sealed: report.run.sealed.is_some(),
        size: report.run.size,
        facts: facts(&report.coverage),
        limits: LIMITS,
    };
    let headers = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((headers, axum::Json(body)).into_response())
}

/// Counts the sealed runs that record each of the facts that are known of a run with its seal.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger. Without a filter it is counted from what is
/// kept of runs, in seconds at a million of them. What takes longer than counts may is refused: narrow the filter, best by
/// `opened_at`, such as to a month.
#[utoipa::path(
    get, path = "/v1/coverage", tag = "read", operation_id = "coverRuns", params(CoverageQuery, PurposeHeader),
    responses(
        (status = 200, description = "The shares", body = SharesBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cover_runs(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<CoverageQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let named = (query.filter, query.saved.clone());
    let filter = search::filter(&app, &caller, Resource::Runs, named).await?;
    // Read alone first: what is wrong with it is told by the places in it, and it is no part of another condition.
    filter.as_deref().map(of_runs).transpose()?;
    let purpose = purpose(&headers, query.purpose)?.ok_or_else(Problem::purpose_of_query)?;
    let question = Question {
        resource: Resource::Runs.as_str(),
        filter: filter.clone(),
        saved: query.saved,
        by: vec!["missing".to_owned()],
        count: true,
        format: Some("json"),
        ..Question::default()
    };
    let recorder = &app.recorder;
    recorder.enter_query(&caller, &purpose, &question).await?;
    let covered = covered(recorder, &caller, filter.as_deref()).await??;
    let runs = covered.runs;
    let share = |fact: Required| {
        let asked = match fact {
            Required::Model => covered.models,
            Required::ToolResults => covered.tool_calls,
            _ => runs,
        };
        let absent = covered.missing.get(fact.as_str());
        let absent = absent.copied().unwrap_or(0);
        ShareBody {
            fact: fact.as_str(),
            // Runs that were sealed between two counts are none that are taken away.
            recorded: asked.saturating_sub(absent),
            absent,
            not_applicable: runs.saturating_sub(asked),
            source: fact.source(),
            how: fact.how(),
        }
    };
    let single = Required::ALL.into_iter();
    let single = single.filter(|fact| !Required::AT_SEAL.contains(fact));
    let body = SharesBody {
        runs,
        facts: Required::AT_SEAL.into_iter().map(share).collect(),
        only_of_single_runs: single.map(Required::as_str).collect(),
        limits: LIMITS,
    };
    Ok((search::PAGE, axum::Json(body)).into_response())
}

/// The facts of a run, as they are answered.
pub(super) fn facts(coverage: &[(Required, Found)]) -> Vec<FactBody> {
    let body = |(fact, state): &(Required, Found)| FactBody {
        fact: fact.as_str(),
        state: state.as_str(),
        seq: match state {
            Found::Recorded { seq } => Some(*seq),
            _ => None,
        },
        source: fact.source(),
        how: fact.how(),
    };
    coverage.iter().map(body).collect()
}
