//! `/v1/holds`: what may not be erased.

use super::App;
use super::encoding::EncodingHeader;
use super::hold_orders::{OrderBody, ordered};
use super::problem::Problem;
use super::request::{Authenticated, NumberPath};
use crate::access::{Role, is_code, is_name};
use crate::query;
use crate::retention::hold::{HoldFilter, HoldRow};
use crate::retention::order::What;
use crate::retention::release::Of;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use onrecord_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const BODY_BYTES: usize = 16_384;
/// Holds of a page, at most.
const PAGE: u32 = 1_000;
/// Characters of a subject.
const SUBJECT_CHARS: usize = 200;
const EXPECTED: &str = "{\"matter\": CODE, \"reason\": CODE} (the reason may be left out) and exactly one of \"run\": RUN, \"filter\": FILTER, \"subject\": ID, \"tenant\": true";

/// A hold to set: over exactly one of a run, the runs that a filter finds now, a subject, and the whole tenant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHoldRequest {
    /// What it is for, as a code: it stands on the ledger.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    matter: String,
    /// Why, as a code: it stands on the ledger.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    )]
    reason: Option<String>,
    /// The run.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    run: Option<RunId>,
    /// Over each run that this filter finds at this moment, in the language of the list of runs.
    #[serde(default)]
    filter: Option<String>,
    /// Over each run with a payload about this subject, now and later.
    #[serde(default)]
    subject: Option<String>,
    /// Whether it is over the whole tenant.
    #[serde(default)]
    tenant: bool,
}

/// A hold.
#[derive(Serialize, ToSchema)]
pub(crate) struct HoldBody {
    /// Its number: the ledger's index of the statement that set it.
    hold: u64,
    /// The run; absent where it is over the whole tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// What it is for.
    matter: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The order by which it was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<String>,
    /// Who set it.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// A request to release it that waits for another person.
    #[serde(skip_serializing_if = "Option::is_none")]
    release_requested: Option<ReleaseRequestBody>,
    /// Its end, where it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    released: Option<ReleaseBody>,
}

/// What was set: a hold, or an order of holds.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "it describes answers that are made where they are known"
)]
pub(crate) enum SetBody {
    /// Over one run, or over the tenant.
    Hold(HoldBody),
    /// Over what a filter found, or over a subject.
    Order(OrderBody),
}

/// The end of a hold.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleaseBody {
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Who released it.
    #[schema(value_type = Object)]
    by: Actor,
    /// The second person, where two were needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    with: Option<Actor>,
    /// Index of that statement in the ledger.
    index: u64,
}

/// A release that was decided.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleasedBody {
    /// When.
    #[schema(format = DateTime)]
    pub(super) at: String,
    /// Who released it.
    #[schema(value_type = Object)]
    pub(super) by: Actor,
    /// The second person, where two were needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) with: Option<Actor>,
}

/// A request to release something: one person asked, and another one has to.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleaseRequestBody {
    /// When it was asked for.
    #[schema(format = DateTime)]
    at: String,
    /// Who asked.
    #[schema(value_type = Object)]
    by: Actor,
    /// Who is still needed.
    needs: &'static str,
}

impl From<(Timestamp, Actor)> for ReleaseRequestBody {
    fn from((at, by): (Timestamp, Actor)) -> Self {
        Self {
            at: at.to_string(),
            by,
            needs: "somebody else with the role compliance, who asks for the same release",
        }
    }
}

/// Holds.
#[derive(Serialize, ToSchema)]
pub(crate) struct HoldsBody {
    /// In the order in which they were set.
    holds: Vec<HoldBody>,
    /// `after` of the next page, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

impl From<HoldRow> for HoldBody {
    fn from(hold: HoldRow) -> Self {
        Self {
            hold: hold.index,
            run: hold.run.map(|run| run.to_string()),
            matter: hold.matter,
            reason: hold.reason,
            order: hold.order.map(|order| order.to_string()),
            by: hold.by,
            at: hold.at.to_string(),
            release_requested: hold.requested.map(ReleaseRequestBody::from),
            released: hold.released.map(|end| ReleaseBody {
                at: end.at.to_string(),
                by: end.by,
                with: end.with,
                index: end.index,
            }),
        }
    }
}

/// Sets a hold: nothing of the run, or of the tenant, is erased while it is in force. One that is in force for the same
/// matter is answered as it is. Over what a filter finds, or over a subject, it becomes an order: each run that it finds is
/// on hold from the answer on, and the holds are entered in the ledger one after the other.
#[utoipa::path(
    post, path = "/v1/holds", tag = "retain", operation_id = "setHold",
    params(EncodingHeader),
    request_body(content = NewHoldRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The hold, or the order, all of whose holds are set", body = SetBody),
        (status = 200, description = "It was in force before", body = SetBody),
        (status = 202, description = "The order, whose holds are being set", body = OrderBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_hold(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: NewHoldRequest =
        onrecord_core::json::typed(&bytes).map_err(|_| Problem::parameter("the body", EXPECTED))?;
    let ways = [
        request.run.is_some(),
        request.filter.is_some(),
        request.subject.is_some(),
        request.tenant,
    ];
    if ways.iter().filter(|way| **way).count() != 1 {
        return Err(Problem::parameter("the body", EXPECTED));
    }
    if !is_code(&request.matter) {
        return Err(Problem::code_expected("matter"));
    }
    let (matter, reason) = (request.matter, request.reason);
    if reason.as_deref().is_some_and(|reason| !is_code(reason)) {
        return Err(Problem::code_expected("reason"));
    }
    let what = match (request.filter, request.subject) {
        (Some(filter), _) => {
            let condition = query::of_runs(&filter)?;
            Some(What::Filter(filter, condition))
        }
        (None, Some(subject)) if is_name(&subject, SUBJECT_CHARS) => Some(What::Subject(subject)),
        (None, Some(_)) => return Err(Problem::parameter("subject", "1 to 200 characters")),
        (None, None) => None,
    };
    if let Some(what) = what {
        let recorder = &app.recorder;
        let (order, created) = recorder.order_hold(caller, what, matter, reason).await?;
        return Ok(ordered(order, created));
    }
    let recorder = &app.recorder;
    let (hold, created) = recorder
        .set_hold(caller, request.run, matter, reason)
        .await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(HoldBody::from(hold))).into_response())
}

/// Releases a hold. One that is released already is answered as it is; one that an order wants ends with the order. Where the
/// tenant's settings ask for two people, the first one's request waits for another.
#[utoipa::path(
    post, path = "/v1/holds/{hold}/release", tag = "retain", operation_id = "releaseHold",
    params(("hold" = u64, Path, description = "Number of the hold")),
    responses(
        (status = 200, description = "The hold with its end", body = HoldBody),
        (status = 202, description = "The hold is in force: another person has to ask for the same", body = HoldBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release_hold(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(hold): NumberPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let hold = app.recorder.release_hold(caller, hold).await?;
    let status = match hold.released {
        Some(_) => StatusCode::OK,
        None => StatusCode::ACCEPTED,
    };
    Ok((status, axum::Json(HoldBody::from(hold))).into_response())
}

/// Takes back a request to release a hold, whoever made it.
#[utoipa::path(
    delete, path = "/v1/holds/{hold}/release", tag = "retain", operation_id = "keepHold",
    params(("hold" = u64, Path, description = "Number of the hold")),
    responses(
        (status = 204, description = "Nobody is waited for any longer"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn keep_hold(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(hold): NumberPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let recorder = &app.recorder;
    recorder.withdraw_release(caller, Of::Hold(hold)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Which holds.
#[derive(Deserialize, IntoParams)]
pub(crate) struct HoldsQuery {
    /// `in-force` (the default), or `all` that ever were.
    state: Option<String>,
    /// Only for this matter.
    matter: Option<String>,
    /// Only over this run itself.
    #[param(value_type = Option<String>)]
    run: Option<RunId>,
    /// Only those with higher numbers.
    after: Option<u64>,
    /// At most so many, 1 to 1,000, which is the default.
    limit: Option<u32>,
}

/// Whether those are asked for too that ended.
pub(super) fn ever(state: Option<&str>) -> Result<bool, Problem> {
    match state {
        None | Some("in-force") => Ok(false),
        Some("all") => Ok(true),
        Some(_) => Err(Problem::parameter("state", "in-force or all")),
    }
}

/// Lists holds in the order in which they were set.
#[utoipa::path(
    get, path = "/v1/holds", tag = "retain", operation_id = "listHolds",
    params(HoldsQuery),
    responses(
        (status = 200, description = "The holds", body = HoldsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_holds(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<HoldsQuery>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let filter = HoldFilter {
        ever: ever(query.state.as_deref())?,
        matter: query.matter,
        run: query.run,
        after: query.after.filter(|after| *after < 1 << 53),
    };
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 1000"));
    }
    let mut holds = app.recorder.holds(caller, filter, limit + 1).await?;
    let more = holds.len() > limit as usize;
    holds.truncate(limit as usize);
    let next = holds.last().filter(|_| more).map(|hold| hold.index);
    let holds = holds.into_iter().map(HoldBody::from).collect();
    Ok(axum::Json(HoldsBody { holds, next }).into_response())
}
