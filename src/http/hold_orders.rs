//! `/v1/hold-orders`: holds over many runs, ordered at once and set one after the other.

use super::App;
use super::holds::{ReleaseRequestBody, ReleasedBody};
use super::problem::Problem;
use super::request::{Authenticated, OrderPath};
use crate::access::Role;
use crate::retention::order::{Order, Over};
use crate::retention::release::Of;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// An order of holds, and how far it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct OrderBody {
    /// Its id.
    order: String,
    /// `holding` while something that it found is not on the ledger yet (and may not be erased all the same), `in-force`,
    /// `releasing`, or `released`.
    state: &'static str,
    /// The filter whose result is held; absent for a subject, whose name is kept nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// `filter` or `subject`.
    over: &'static str,
    /// What it is for.
    matter: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Who ordered it.
    #[schema(value_type = Object)]
    by: Actor,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Runs that it found.
    found: u64,
    /// Those of them that are on hold.
    held: u64,
    /// Those that it let go.
    let_go: u64,
    /// When all that it had found was on hold for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    done_at: Option<String>,
    /// A request to release it that waits for another person.
    #[serde(skip_serializing_if = "Option::is_none")]
    release_requested: Option<ReleaseRequestBody>,
    /// Its release, where that is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<ReleasedBody>,
    /// When it had let the last of its runs go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    released_at: Option<String>,
}

impl From<Order> for OrderBody {
    fn from(order: Order) -> Self {
        let Order { row, progress } = order;
        let waiting = progress.found - progress.held - progress.let_go;
        let state = match (row.released_at, &row.release) {
            (Some(_), _) => "released",
            (None, Some(_)) => "releasing",
            (None, None) if row.done_at.is_none() || waiting > 0 => "holding",
            (None, None) => "in-force",
        };
        let (over, filter) = match row.over {
            Over::Filter(filter) => ("filter", Some(filter)),
            Over::Subject(_) => ("subject", None),
        };
        Self {
            order: row.id.to_string(),
            state,
            filter,
            over,
            matter: row.matter,
            reason: row.reason,
            by: row.by,
            at: row.ordered_at.to_string(),
            found: progress.found,
            held: progress.held,
            let_go: progress.let_go,
            done_at: row.done_at.map(|at| at.to_string()),
            release_requested: row.requested.map(ReleaseRequestBody::from),
            release: row.release.map(|(at, by, with)| ReleasedBody {
                at: at.to_string(),
                by,
                with,
            }),
            released_at: row.released_at.map(|at| at.to_string()),
        }
    }
}

/// The answer to an order: 202 while something is to be done about it.
pub(super) fn ordered(order: Order, created: bool) -> Response {
    let body = OrderBody::from(order);
    let status = match (body.state, created) {
        ("holding", _) => StatusCode::ACCEPTED,
        (_, true) => StatusCode::CREATED,
        (_, false) => StatusCode::OK,
    };
    (status, axum::Json(body)).into_response()
}

/// Orders of holds.
#[derive(Serialize, ToSchema)]
pub(crate) struct OrdersBody {
    /// Newest first.
    orders: Vec<OrderBody>,
    /// `before` of the next page, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which orders.
#[derive(Deserialize, IntoParams)]
pub(crate) struct OrdersQuery {
    /// `in-force` (the default): those of which not all is released; or `all` that ever were.
    state: Option<String>,
    /// Only those before this one.
    #[param(value_type = Option<String>)]
    before: Option<RunId>,
    /// At most so many, 1 to 500; 100 by default.
    limit: Option<u32>,
}

/// Lists orders of holds, newest first.
#[utoipa::path(
    get, path = "/v1/hold-orders", tag = "retain", operation_id = "listHoldOrders",
    params(OrdersQuery),
    responses(
        (status = 200, description = "The orders", body = OrdersBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_orders(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<OrdersQuery>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let ever = super::holds::ever(query.state.as_deref())?;
    let limit = query.limit.unwrap_or(100);
    if !(1..=500).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 500"));
    }
    let recorder = &app.recorder;
    let mut orders = recorder
        .hold_orders(caller.tenant, ever, query.before, limit + 1)
        .await?;
    let more = orders.len() > limit as usize;
    orders.truncate(limit as usize);
    let next = orders.last().filter(|_| more);
    let next = next.map(|order| order.row.id.to_string());
    let orders = orders.into_iter().map(OrderBody::from).collect();
    Ok(axum::Json(OrdersBody { orders, next }).into_response())
}

/// Reads an order of holds: how far it is.
#[utoipa::path(
    get, path = "/v1/hold-orders/{order}", tag = "retain", operation_id = "readHoldOrder",
    params(("order" = String, Path, description = "The order")),
    responses(
        (status = 200, description = "The order", body = OrderBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_order(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    OrderPath(order): OrderPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?;
    let order = app.recorder.hold_order(caller.tenant, order).await?;
    Ok(axum::Json(OrderBody::from(order)).into_response())
}

/// Releases an order: its holds end one after the other, but for those that another order for the same matter wants, or that
/// somebody set by themselves. Where the tenant's settings ask for two people, the first one's request waits for another.
#[utoipa::path(
    post, path = "/v1/hold-orders/{order}/release", tag = "retain", operation_id = "releaseHoldOrder",
    params(("order" = String, Path, description = "The order")),
    responses(
        (status = 200, description = "It is released", body = OrderBody),
        (status = 202, description = "Its holds are being released, or another person has to ask for the same; `state` and `release_requested` say which", body = OrderBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release_order(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    OrderPath(order): OrderPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let order = app.recorder.release_order(caller, order).await?;
    let body = OrderBody::from(order);
    let status = match body.state {
        "released" => StatusCode::OK,
        _ => StatusCode::ACCEPTED,
    };
    Ok((status, axum::Json(body)).into_response())
}

/// Takes back a request to release an order, whoever made it.
#[utoipa::path(
    delete, path = "/v1/hold-orders/{order}/release", tag = "retain", operation_id = "keepHoldOrder",
    params(("order" = String, Path, description = "The order")),
    responses(
        (status = 204, description = "Nobody is waited for any longer"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn keep_order(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    OrderPath(order): OrderPath,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let recorder = &app.recorder;
    recorder.withdraw_release(caller, Of::Order(order)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
