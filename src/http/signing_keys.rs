//! `/v1/keys`: the keys that sign for the caller's tenant, and another seal key in the place of one.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{Role, is_name};
use crate::record::{SigningKeyRow, SigningKeys};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::digest::Hash;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const BODY_BYTES: usize = 16_384;
/// Characters of a reason.
const REASON_CHARS: usize = 200;

/// A key that signs, or did.
#[derive(Serialize, ToSchema)]
pub(crate) struct SigningKeyBody {
    /// Hex SHA-256 of the SPKI DER.
    keyid: String,
    /// The agent that signs with it; absent for a seal key.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    /// SPKI DER in base64, the middle line of its PEM.
    spki: String,
    /// Whether it signs now.
    in_force: bool,
    /// Index of its beginning in the ledger.
    added_index: u64,
    /// Index of its end in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_index: Option<u64>,
}

/// All keys of a tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct SigningKeysBody {
    /// The tenant, whose id an agent signs to show that it has its key.
    tenant: String,
    /// Seal keys, oldest first; one is in force.
    seal: Vec<SigningKeyBody>,
    /// Keys of agents, oldest first.
    agents: Vec<SigningKeyBody>,
    /// The ledger's key, a C2SP verifier key.
    ledger: String,
}

impl From<SigningKeys> for SigningKeysBody {
    fn from(found: SigningKeys) -> Self {
        let body = |key: SigningKeyRow| {
            let actor = key.actor().map(str::to_owned);
            SigningKeyBody {
                in_force: match &actor {
                    None => key.keyid == found.in_force,
                    Some(_) => key.revoked_index.is_none(),
                },
                keyid: key.keyid.hex(),
                actor,
                spki: key.spki,
                added_index: key.added_index,
                revoked_index: key.revoked_index,
            }
        };
        let (seal, agents) = found
            .keys
            .into_iter()
            .map(body)
            .partition(|key| key.actor.is_none());
        Self {
            tenant: found.tenant.to_string(),
            seal,
            agents,
            ledger: found.ledger,
        }
    }
}

/// Lists the keys that sign for the caller's tenant, those that are revoked too. Public halves only.
#[utoipa::path(
    get, path = "/v1/keys", tag = "administer", operation_id = "listSigningKeys",
    responses(
        (status = 200, description = "The keys", body = SigningKeysBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_signing_keys(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let keys = app.recorder.signing_keys(caller).await?;
    Ok(axum::Json(SigningKeysBody::from(keys)).into_response())
}

/// Why, and which key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotationRequest {
    /// Why the key in force ends, such as `rotation` or `compromised`; it stands in the ledger for ever.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// The key that is to end; by default whichever is in force. With it, a request that comes twice ends one key.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    keyid: Option<Hash>,
}

/// A rotation that is done.
#[derive(Serialize, ToSchema)]
pub(crate) struct RotationBody {
    /// The seal key in force now.
    keyid: String,
    /// The one that was revoked.
    revoked: String,
    /// Index of its end in the ledger: what it would sign from there on does not count.
    revoked_index: u64,
}

/// Makes another seal key and puts it in force; the one before it is revoked in the ledger, and its secret destroyed. What
/// it sealed verifies for ever.
#[utoipa::path(
    post, path = "/v1/keys/seal/rotation", tag = "administer", operation_id = "rotateSealKey",
    params(EncodingHeader),
    request_body(content = RotationRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "Done", body = RotationBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate_seal_key(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: RotationRequest = onrecord_core::json::typed(&bytes)
        .map_err(|_| Problem::parameter("the body", "{\"reason\": \"…\", \"keyid\"?: \"…\"}"))?;
    check_reason(&request.reason)?;
    let done = app
        .recorder
        .rotate_seal_key(caller, request.reason, request.keyid)
        .await?;
    let body = RotationBody {
        keyid: done.keyid.hex(),
        revoked: done.revoked.hex(),
        revoked_index: done.revoked_index,
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// Whether a reason may stand in the ledger.
pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    if is_name(reason, REASON_CHARS) {
        return Ok(());
    }
    Err(Problem::parameter(
        "reason",
        "1 to 200 characters, none of them a control character",
    ))
}
