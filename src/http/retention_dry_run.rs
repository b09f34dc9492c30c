//! `/v1/retention/dry-run`: what would go, when, how much and why.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use super::retention::document;
use crate::access::{Caller, Role};
use crate::query;
use crate::retention::dry_run::{DryRun, DryRunPage, Going, RUNS};
use crate::retention::policy::Document;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// When, and which page.
#[derive(Deserialize, IntoParams)]
pub(crate) struct DryRunQuery {
    /// What would be gone by then: RFC 3339, or a date; by default now.
    at: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Runs that are looked at, 1 to 1,000; by default 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What would go of some runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct DryRunBody {
    /// At which time.
    #[schema(format = DateTime)]
    at: String,
    /// The version of the policy under which; that of a policy that does not hold is one above the last. 0 for none.
    version: u64,
    /// Runs that were looked at.
    runs: u64,
    /// Sums over the page.
    totals: Vec<TotalBody>,
    /// What would go, by run and tier.
    going: Vec<GoingBody>,
    /// `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What would go of a tier under a schedule.
#[derive(Serialize, ToSchema)]
pub(crate) struct TotalBody {
    /// The schedule.
    schedule: String,
    /// The tier, 1 to 3.
    tier: u8,
    /// Runs.
    runs: u64,
    /// Payloads.
    payloads: u64,
    /// Their bytes, after padding.
    bytes: u64,
    /// Payloads of these that stay, since a hold is in force.
    held: u64,
}

/// A tier of a run that would go.
#[derive(Serialize, ToSchema)]
pub(crate) struct GoingBody {
    /// The run.
    run: String,
    /// The tier, 1 to 3.
    tier: u8,
    /// When it expires.
    #[schema(format = DateTime)]
    due: String,
    /// The schedule.
    schedule: String,
    /// The rule of the policy that chooses it, from 0; absent for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
    /// Whether it goes so early because the run is in no sample.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sampled_out: bool,
    /// Payloads.
    payloads: u64,
    /// Their bytes, after padding.
    bytes: u64,
    /// Matter of a hold for which it stays all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
}

impl From<DryRunPage> for DryRunBody {
    fn from(page: DryRunPage) -> Self {
        let mut totals: BTreeMap<(String, u8), TotalBody> = BTreeMap::new();
        for one in &page.going {
            let key = (one.schedule.clone(), one.tier);
            let total = totals.entry(key).or_insert_with(|| TotalBody {
                schedule: one.schedule.clone(),
                tier: one.tier,
                runs: 0,
                payloads: 0,
                bytes: 0,
                held: 0,
            });
            total.runs += 1;
            total.payloads += one.payloads;
            total.bytes += one.bytes;
            total.held += one.held.as_ref().map_or(0, |_| one.payloads);
        }
        Self {
            at: page.at.to_string(),
            version: page.version.unwrap_or(0),
            runs: page.runs,
            totals: totals.into_values().collect(),
            going: page.going.into_iter().map(GoingBody::from).collect(),
            next: page.next.map(|next| next.to_string()),
        }
    }
}

impl From<Going> for GoingBody {
    fn from(one: Going) -> Self {
        Self {
            run: one.run.to_string(),
            tier: one.tier,
            due: one.due.to_string(),
            schedule: one.schedule,
            rule: one.rule,
            sampled_out: one.sampled_out,
            payloads: one.payloads,
            bytes: one.bytes,
            held: one.held,
        }
    }
}

/// Says what would go under the policy that holds: when, how much and why. Nothing is erased.
#[utoipa::path(
    get, path = "/v1/retention/dry-run", tag = "retain", operation_id = "dryRunRetention",
    params(DryRunQuery),
    responses(
        (status = 200, description = "What would go of a page of runs", body = DryRunBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dry_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<DryRunQuery>,
) -> Result<Response, Problem> {
    answer(app, caller, query, None).await
}

/// Says what would go under another policy, were it put in the place of the one that holds.
#[utoipa::path(
    post, path = "/v1/retention/dry-run", tag = "retain", operation_id = "dryRunRetentionPolicy",
    params(DryRunQuery, EncodingHeader),
    request_body(content = Object, content_type = "application/json", description = "The policy, as docs/retention.md describes it"),
    responses(
        (status = 200, description = "What would go of a page of runs", body = DryRunBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dry_run_of(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<DryRunQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let document = document(&app, &headers, body).await?;
    answer(app, caller, query, Some(document)).await
}

async fn answer(
    app: App,
    caller: Caller,
    query: DryRunQuery,
    document: Option<Document>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let at = query.at.map(|at| {
        query::time(&at).ok_or_else(|| Problem::parameter("at", "a time in RFC 3339, or a date"))
    });
    let after = query.after.map(|after| after.parse()).transpose();
    let limit = query.limit.unwrap_or(RUNS);
    if !(1..=RUNS).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 1000"));
    }
    let asked = DryRun {
        at: at.transpose()?,
        after: after.map_err(|_| Problem::parameter("after", "`next` of the page before"))?,
        document,
        limit,
    };
    let page = app.recorder.retention_dry_run(caller, asked).await?;
    Ok(axum::Json(DryRunBody::from(page)).into_response())
}
