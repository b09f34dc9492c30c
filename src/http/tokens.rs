//! `/v1/tokens`: API tokens of the caller's tenant.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{Role, TokenRequest};
use crate::record::TokenRow;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::ActorType;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const BODY_BYTES: usize = 16_384;

/// A token to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTokenRequest {
    /// What people call it.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// agent, gate, auditor, compliance, admin.
    #[schema(min_items = 1)]
    roles: Vec<String>,
    /// The actor that it may speak for; by default any that its roles allow.
    #[serde(default)]
    actor: Option<ActorBinding>,
    /// From when it opens nothing.
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// The actor that a token may speak for.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorBinding {
    /// agent, human, tool, verifier or importer; by default any.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// By default any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// A new token; it is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewTokenBody {
    /// Public part.
    id: String,
    /// The whole token.
    token: String,
}

/// A token without its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenBody {
    /// Public part.
    id: String,
    /// What people call it.
    name: String,
    /// What it may do.
    roles: Vec<String>,
    /// For whom it may speak.
    actor: ActorBinding,
    /// Made.
    #[schema(format = DateTime)]
    created_at: String,
    /// From when it opens nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Since when it opens nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    revoked_at: Option<String>,
}

impl From<TokenRow> for TokenBody {
    fn from(token: TokenRow) -> Self {
        Self {
            id: token.id,
            name: token.name,
            roles: token.roles,
            actor: ActorBinding {
                kind: token.actor_type,
                id: token.actor_id,
            },
            created_at: token.created_at.to_string(),
            expires_at: token.expires_at.map(|at| at.to_string()),
            revoked_at: token.revoked_at.map(|at| at.to_string()),
        }
    }
}

/// The tokens of a tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokensBody {
    /// Oldest first.
    tokens: Vec<TokenBody>,
}

fn read_request(bytes: &[u8]) -> Result<TokenRequest, Problem> {
    let wrong = |detail: String| crate::access::AccessError::Malformed(detail);
    let request: NewTokenRequest = onrecord_core::json::typed(bytes).map_err(|error| {
        wrong(format!(
            "expected {{name, roles, actor?, expires_at?}}: {error}"
        ))
    })?;
    let roles = request
        .roles
        .iter()
        .map(|word| {
            Role::from_word(word).ok_or_else(|| {
                wrong(format!(
                    "{word:?} is no role; roles are agent, gate, auditor, compliance, admin"
                ))
            })
        })
        .collect::<Result<_, _>>()?;
    let actor = request.actor.unwrap_or(ActorBinding {
        kind: None,
        id: None,
    });
    let actor_type = actor
        .kind
        .map(|word| {
            ActorType::from_word(&word).ok_or_else(|| wrong(format!("{word:?} is no actor type")))
        })
        .transpose()?;
    let expires_at = request.expires_at.map(|text| {
        let time: Option<jiff::Timestamp> = text.parse().ok();
        time.and_then(|time| {
            onrecord_core::timestamp::Timestamp::from_micros(time.as_microsecond())
        })
        .ok_or_else(|| wrong("expires_at is an RFC 3339 time".to_owned()))
    });
    Ok(TokenRequest {
        name: request.name,
        roles,
        actor_type,
        actor_id: actor.id,
        expires_at: expires_at.transpose()?,
    })
}

/// Makes a token in the caller's tenant.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "administer", operation_id = "createToken",
    params(EncodingHeader),
    request_body(content = NewTokenRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The token, shown this once", body = NewTokenBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_token(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request = read_request(&bytes)?;
    let new = app.recorder.create_token(caller.tenant, request).await?;
    let body = NewTokenBody {
        id: new.id,
        token: new.token.0,
    };
    Ok((
        StatusCode::CREATED,
        [(header::CACHE_CONTROL, "no-store")],
        axum::Json(body),
    )
        .into_response())
}

/// Lists the tokens of the caller's tenant, without their secrets.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "administer", operation_id = "listTokens",
    responses(
        (status = 200, description = "The tokens", body = TokensBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_tokens(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let tokens = app.recorder.tokens(caller.tenant).await?;
    Ok(axum::Json(TokensBody {
        tokens: tokens.into_iter().map(TokenBody::from).collect(),
    })
    .into_response())
}

/// Reads a token of the caller's tenant, without its secret. Any token may read itself, an admin's all.
#[utoipa::path(
    get, path = "/v1/tokens/{id}", tag = "administer", operation_id = "readToken",
    params(("id" = String, Path, description = "Public part of the token")),
    responses(
        (status = 200, description = "The token", body = TokenBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_token(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    if id != caller.token {
        caller.needs(&[Role::Admin])?;
    }
    let tokens = app.recorder.tokens(caller.tenant).await?;
    let token = tokens.into_iter().find(|token| token.id == id);
    let token = token.ok_or_else(no_token)?;
    Ok(axum::Json(TokenBody::from(token)).into_response())
}

fn no_token() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "token_not_found",
        "No such token",
        "the tenant has no token of that id",
        "List them: GET /v1/tokens.",
    )
}

/// Revokes a token of the caller's tenant: from now on it opens nothing.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "administer", operation_id = "revokeToken",
    params(("id" = String, Path, description = "Public part of the token")),
    responses(
        (status = 204, description = "Revoked"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke_token(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    if id.contains('\0') || !app.recorder.revoke_token(caller.tenant, id).await? {
        return Err(no_token());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
