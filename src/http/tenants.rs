//! `/v1/tenants`: new tenants.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{Role, is_name};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const BODY_BYTES: usize = 16_384;

/// A tenant to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTenantRequest {
    /// What people call it; never in evidence.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
}

/// A new tenant and its owner's token, shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewTenantBody {
    /// The tenant.
    tenant: String,
    /// Its owner's token.
    token: String,
}

/// Makes a tenant with keys and a ledger of its own. Only an administrator of the server's first tenant may.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "administer", operation_id = "createTenant",
    params(EncodingHeader),
    request_body(content = NewTenantRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The tenant", body = NewTenantBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_tenant(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: NewTenantRequest = onrecord_core::json::typed(&bytes)
        .map_err(|_| Problem::parameter("the body", "{\"name\": \"…\"}"))?;
    if !is_name(&request.name, 200) {
        return Err(Problem::parameter(
            "name",
            "1 to 200 characters, none of them a control character",
        ));
    }
    let (tenant, token) = app
        .recorder
        .add_tenant(caller, app.public_host.to_string(), request.name)
        .await?;
    let body = NewTenantBody {
        tenant: tenant.to_string(),
        token: token.token.0,
    };
    Ok((
        StatusCode::CREATED,
        [(header::CACHE_CONTROL, "no-store")],
        axum::Json(body),
    )
        .into_response())
}
