//! `/v1/agent-keys`: the keys that agents sign their frames with.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use super::signing_keys::check_reason;
use crate::access::{Role, is_name};
use crate::record::NewAgentKey;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::digest::Hash;
use onrecord_core::frame::signature;
use onrecord_core::limits;
use onrecord_verify::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const BODY_BYTES: usize = 16_384;

/// A key to register.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentKeyRequest {
    /// Id of the agent, as an actor of type `agent`.
    #[schema(min_length = 1, max_length = 200)]
    actor: String,
    /// The public half of an Ed25519 key, SPKI PEM.
    spki: String,
    /// The key's signature over `onrecord/agent-key/1`, the tenant and the actor's id, each with a line feed behind it; 64
    /// bytes in base64.
    proof: String,
    /// Whether the actor may have written frames that it did not sign: they become faults under the trust file.
    #[serde(default)]
    unsigned_before: bool,
}

/// A key that is registered.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentKeyBody {
    /// Hex SHA-256 of the SPKI DER.
    keyid: String,
    /// The agent.
    actor: String,
    /// Index of its beginning in the ledger.
    added_index: u64,
}

/// Registers a key that an agent signs its frames with. From then on each of its frames has to be signed.
#[utoipa::path(
    post, path = "/v1/agent-keys", tag = "administer", operation_id = "addAgentKey",
    params(EncodingHeader),
    request_body(content = AgentKeyRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "Registered", body = AgentKeyBody),
        (status = 200, description = "It was registered for the agent before", body = AgentKeyBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn add_agent_key(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request = read_request(&bytes)?;
    let (key, created) = app.recorder.add_agent_key(caller, request).await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = AgentKeyBody {
        keyid: key.keyid.hex(),
        actor: key.actor().unwrap_or_default().to_owned(),
        added_index: key.added_index,
    };
    Ok((status, axum::Json(body)).into_response())
}

fn read_request(bytes: &[u8]) -> Result<NewAgentKey, Problem> {
    let request: AgentKeyRequest = onrecord_core::json::typed(bytes).map_err(|_| {
        let expected = "{\"actor\": \"…\", \"spki\": \"PEM\", \"proof\": \"BASE64\", \"unsigned_before\"?: true}";
        Problem::parameter("the body", expected)
    })?;
    // It is the rest of a line in a trust file.
    let actor = request.actor;
    if !is_name(&actor, limits::ACTOR_CHARS) || actor.trim() != actor {
        return Err(Problem::parameter(
            "actor",
            "1 to 200 characters, none of them a control character, no space at its ends",
        ));
    }
    let spki = spki(&request.spki)
        .ok_or_else(|| Problem::parameter("spki", "the PEM of an Ed25519 public key"))?;
    let proof = signature(&request.proof)
        .ok_or_else(|| Problem::parameter("proof", "64 bytes in base64"))?;
    Ok(NewAgentKey {
        actor,
        spki,
        proof,
        unsigned_before: request.unsigned_before,
    })
}

/// The one line of a PEM file, if it is a key that can be trusted: an Ed25519 point, and none of small order.
fn spki(pem: &str) -> Option<String> {
    let mut lines = pem.lines();
    let spki = match (lines.next(), lines.next(), lines.next(), lines.next()) {
        (
            Some("-----BEGIN PUBLIC KEY-----"),
            Some(spki),
            Some("-----END PUBLIC KEY-----"),
            None,
        ) => spki,
        _ => return None,
    };
    PublicKey::from_spki(spki).ok()?;
    Some(spki.to_owned())
}

/// Why a key ends.
#[derive(Deserialize, IntoParams)]
pub(crate) struct RevocationQuery {
    /// Stands in the ledger for ever; 1 to 200 characters.
    reason: Option<String>,
}

/// Revokes an agent's key: it signs nothing from now on. The agent still has to sign, with another key.
#[utoipa::path(
    delete, path = "/v1/agent-keys/{id}", tag = "administer", operation_id = "revokeAgentKey",
    params(("id" = String, Path, description = "Key id, 64 hex digits"), RevocationQuery),
    responses(
        (status = 204, description = "Revoked"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke_agent_key(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
    Query(query): Query<RevocationQuery>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let keyid: Hash = id
        .parse()
        .map_err(|_| Problem::parameter("id", "a key id, 64 lower-case hex digits"))?;
    if let Some(reason) = &query.reason {
        check_reason(reason)?;
    }
    app.recorder
        .revoke_agent_key(caller, keyid, query.reason)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
