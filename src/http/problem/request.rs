//! What a request is refused for before anything is done: its form, and who sent it.

use super::{Problem, database, internal};
use crate::access::AccessError;
use crate::http::envelope::without_secrets;
use crate::record::intake::{IntakeCode, IntakeError};
use axum::http::StatusCode;

impl From<IntakeError> for Problem {
    fn from(error: IntakeError) -> Self {
        let IntakeError {
            code,
            pointer,
            detail,
        } = error;
        let json_code;
        let (status, code, title, action) = match code {
            IntakeCode::Json(reason) => {
                json_code = format!("json_{}", reason.as_str());
                let syntax = matches!(reason.as_str(), "syntax" | "utf8" | "bom");
                let status = if syntax {
                    StatusCode::BAD_REQUEST
                } else {
                    StatusCode::UNPROCESSABLE_ENTITY
                };
                (
                    status,
                    json_code.as_str(),
                    "The JSON cannot be kept exactly",
                    "Correct the value at the pointer; numbers beyond 2^53-1 go as strings, bytes that are no text as base64 payloads.",
                )
            }
            IntakeCode::UnknownMember => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "unknown_member",
                "A member is not known",
                "Leave it out, or put it into `body`.",
            ),
            IntakeCode::MissingMember => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "missing_member",
                "A member is missing",
                "Add it.",
            ),
            IntakeCode::Shape => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "malformed_member",
                "A member is malformed",
                "Correct the member at the pointer.",
            ),
            IntakeCode::PayloadTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                "A payload is too large",
                "Send it in parts, as several payloads or frames.",
            ),
            IntakeCode::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "The request is too large",
                "Put what is long into payloads; a frame without its payloads has at most 65,536 bytes.",
            ),
            IntakeCode::SecretInMetadata => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "secret_in_metadata",
                "A secret stands outside of the payloads",
                "Move the value into a payload, where it is redacted; what is no payload can never be erased.",
            ),
            IntakeCode::SecretInSigned => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "secret_in_signed_frame",
                "A secret stands in a payload that is committed to",
                "Take the value out before you commit to the payload and sign the frame.",
            ),
            IntakeCode::Commitment => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "commitment_false",
                "The payload does not fit its commitment",
                "Commit to the bytes that are stored: JSON in its canonical spelling, text as UTF-8; `onrecord commit` does it.",
            ),
            IntakeCode::Reserved => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "reserved",
                "A name is the store's own",
                "Leave it out or choose another.",
            ),
        };
        let problem = Self::new(status, code, title, detail, action);
        Self {
            pointer: Some(without_secrets(pointer)),
            ..problem
        }
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        let detail = error.to_string();
        match error {
            AccessError::Unauthenticated => Self::new(
                StatusCode::UNAUTHORIZED,
                "unauthenticated",
                "No valid token",
                detail,
                "Send `Authorization: Bearer TOKEN`; the first token is in DIR/admin.token of the server's data folder.",
            ),
            AccessError::Signature(_) => Self::new(
                StatusCode::UNAUTHORIZED,
                "http_signature",
                "The request's signature is not taken",
                detail,
                "Sign the request anew, as docs/api.md says under \"Requests that are signed\".",
            ),
            AccessError::OtherTenant => Self::new(
                StatusCode::FORBIDDEN,
                "other_tenant",
                "The ledger is another tenant's",
                detail,
                "Use a token of the tenant whose ledger it is.",
            ),
            AccessError::Role(_) => Self::new(
                StatusCode::FORBIDDEN,
                "role_missing",
                "The token has not the role",
                detail,
                "Use a token with one of these roles.",
            ),
            AccessError::Actor(_) => Self::new(
                StatusCode::FORBIDDEN,
                "actor_not_yours",
                "The token may not speak for that actor",
                detail,
                "Use a token that names the actor, or leave `actor` out.",
            ),
            AccessError::Malformed(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "malformed_member",
                "A member is malformed",
                detail,
                "Correct it.",
            ),
            AccessError::Store(error) => {
                database(error.is_storage_full(), error.is_transient(), &error)
            }
            AccessError::Vault(error) => internal(&error),
        }
    }
}
