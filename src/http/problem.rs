//! Problems (RFC 9457): the one place that knows status codes. Codes are part of the contract; what is
//! internal stays in the log, under the request's id.

use super::encoding;
use super::envelope::{span, without_secrets};
use crate::access::AccessError;
use crate::anchor::AnchorError;
use crate::query::{BadCursor, BadFilter};
use crate::record::RecordError;
use crate::record::intake::{IntakeCode, IntakeError};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of a problem.
pub const MEDIA: &str = "application/problem+json";
const TYPE_BASE: &str = "https://onrecord.dev/problems/";

/// What went wrong: RFC 9457 with a stable code and a line that says what to do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `https://onrecord.dev/problems/CODE`
    #[serde(rename = "type")]
    pub kind: String,
    /// Short, the same for every problem of the code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// RFC 6901 pointer into the request's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// What to do.
    pub action: String,
    /// The run's head, where the head that the writer saw is not it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The next count of the key, where a signed frame has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// The character of the filter, from 1, that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<usize>,
    /// Whether, and after how many seconds, to try again.
    #[serde(skip)]
    pub retry_after_s: Option<u32>,
    /// The encodings that are taken, where the body's is none of them.
    #[serde(skip)]
    pub accept_encoding: Option<&'static str>,
}

impl Problem {
    /// A problem of a code. What the detail repeats of a request is redacted.
    pub fn new(
        status: StatusCode,
        code: &str,
        title: &str,
        detail: impl Into<String>,
        action: &str,
    ) -> Self {
        Self {
            kind: format!("{TYPE_BASE}{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: without_secrets(detail.into()),
            pointer: None,
            action: action.to_owned(),
            head: None,
            n: None,
            at: None,
            retry_after_s: None,
            accept_encoding: None,
        }
    }

    /// A member of the query, the path or the headers that is malformed.
    pub fn parameter(name: &str, expected: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "malformed_parameter",
            "A parameter is malformed",
            format!("{name}: expected {expected}"),
            "Correct the parameter and send the request again.",
        )
    }

    /// A filter is malformed.
    fn filter(error: &BadFilter) -> Self {
        let problem = Self::new(
            StatusCode::BAD_REQUEST,
            "malformed_filter",
            "The filter is malformed",
            error.to_string(),
            "Correct the filter where the detail says; how one is written stands in docs/queries.md.",
        );
        Self {
            at: Some(error.at()),
            ..problem
        }
    }

    /// A query came without its purpose.
    pub(crate) fn purpose_of_query() -> Self {
        let problem = Self::purpose_required();
        Self {
            detail: "what is asked over many runs is answered for a stated purpose only, which stands on the ledger".to_owned(),
            action: "Say why in the header `Purpose`, or in `purpose` of the query.".to_owned(),
            ..problem
        }
    }

    /// A cursor leads nowhere.
    pub(crate) fn cursor(error: BadCursor) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "malformed_cursor",
            "The cursor leads nowhere",
            error.to_string(),
            "Send `next` of the page before as it is, with everything else as it was; or begin again without a cursor.",
        )
    }

    /// The request's media type is none that the endpoint takes.
    pub fn media_type(expected: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type",
            "The media type is not taken here",
            format!("expected {expected}"),
            "Set Content-Type to what the body is.",
        )
    }

    /// The body is encoded as is not taken here.
    pub fn encoding(detail: impl Into<String>) -> Self {
        let problem = Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_encoding",
            "The encoding is not taken here",
            detail,
            "Send the body as gzip or zstd and say so in Content-Encoding, or send it as it is.",
        );
        Self {
            accept_encoding: Some(encoding::TAKEN),
            ..problem
        }
    }

    /// The body cannot be decoded.
    pub fn encoding_broken(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "encoding_broken",
            "The encoding is broken",
            detail,
            "Compress the body anew, or send it as it is; nothing of it was stored.",
        )
    }

    /// The body is larger than the endpoint takes.
    pub fn body_too_large(limit: usize) -> Self {
        Self::too_large(format!(
            "a request of this kind has at most {limit} bytes, before and after it is decoded"
        ))
    }

    /// A line of the body is larger than a request of its own could be.
    pub fn line_too_large(limit: usize) -> Self {
        Self::too_large(format!("a line has at most {limit} bytes, decoded"))
    }

    fn too_large(detail: String) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "The request is too large",
            detail,
            "Send less at once: several frames, or payloads in parts.",
        )
    }

    /// The body stopped coming.
    pub fn body_timeout(idle: std::time::Duration) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            "The body stopped coming",
            format!("no byte of the body came for {} s", idle.as_secs_f32()),
            "Send the request again; nothing of it was stored.",
        )
    }

    /// The body is not the one that its digest is of.
    pub fn digest_mismatch() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "content_digest",
            "The body is not that of its digest",
            "the SHA-256 of the body is not that of Content-Digest",
            "Send the body that the digest is of; nothing of it was stored, but lines of many that have their results.",
        )
    }

    /// The body broke off.
    pub fn body_broken() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "body_broken",
            "The body broke off",
            "the body ended before its end",
            "Send the request again; nothing of it was stored.",
        )
    }

    /// Something of ours failed; the log says what.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The server failed",
            "the server could not do this; its log says why, under this request's id",
            "Ask the operator, with the value of the X-Request-Id header. A write may be retried with the same key.",
        )
    }

    /// Too much is being done at once.
    pub fn busy() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "The server is busy",
            "too many large requests are being served",
            "Send the request again in a moment, or send less at once; nothing of it was stored.",
        );
        Self {
            retry_after_s: Some(2),
            ..problem
        }
    }

    /// As many streams of events as there may be are open.
    pub fn too_many_streams() -> Self {
        Self {
            detail: "as many clients follow runs as may at once".to_owned(),
            action: "Try again in a moment, or read the frames without following them.".to_owned(),
            ..Self::busy()
        }
    }

    /// A code is expected: what stands on the ledger is for ever.
    pub fn code_expected(name: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "code_expected",
            "A code is expected",
            format!(
                "{name}: a code of 1 to 64 letters, digits, dots, underscores and hyphens that begins with a letter or a digit"
            ),
            "It stands on the ledger for ever, so that no free text is taken: name the ticket, the case or the purpose by a code, and keep elsewhere what it means.",
        )
    }

    /// Payloads are asked for without a reason.
    pub fn purpose_required() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "purpose_required",
            "A purpose is needed",
            "payloads are disclosed for a stated purpose only, which stands on the ledger",
            "Say why in the header `Purpose` (or `purpose` of the query), or leave payloads out with payloads=none.",
        )
    }

    /// As many frames wait as may.
    fn queue_full() -> Self {
        Self {
            detail: "as many frames wait to be written as may".to_owned(),
            ..Self::busy()
        }
    }

    fn outcome_unknown() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "outcome_unknown",
            "It is not known whether the write was stored",
            "the database did not say whether the write was stored, and could not be asked again",
            "Retry with the same key: if it was stored, its receipt is answered, and nothing is stored twice.",
        );
        Self {
            retry_after_s: Some(1),
            ..problem
        }
    }

    fn unavailable() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "database_unavailable",
            "The database does not answer",
            "the database could not be reached, is restarting or took too long; nothing was stored",
            "Send the request again in a moment.",
        );
        Self {
            retry_after_s: Some(1),
            ..problem
        }
    }

    fn key_service_unavailable() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "key_service_unavailable",
            "The service that has the root key does not do its part",
            "it is away, sealed, or refuses the server's token; nothing was stored",
            "Send the request again when the operator has mended it; the server's log says what it said.",
        );
        Self {
            retry_after_s: Some(30),
            ..problem
        }
    }

    fn storage_full() -> Self {
        let problem = Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "storage_full",
            "The database's disk is full",
            "the database has no room to write on its disk",
            "Free space on the database's disk, then retry with the same key.",
        );
        Self {
            retry_after_s: Some(5),
            ..problem
        }
    }
}

impl From<BadFilter> for Problem {
    fn from(error: BadFilter) -> Self {
        Self::filter(&error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"onrecord\""),
            );
        }
        if let Some(taken) = self.accept_encoding {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(taken));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

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

/// The database failed: for want of room, for now, or for a reason that waiting does not mend.
fn database(full: bool, transient: bool, error: &dyn std::fmt::Display) -> Problem {
    if full {
        span().in_scope(|| tracing::error!(%error, "the database's disk is full"));
        Problem::storage_full()
    } else if transient {
        span().in_scope(|| tracing::warn!(%error, "the database does not answer"));
        Problem::unavailable()
    } else {
        internal(error)
    }
}

fn internal(error: &dyn std::fmt::Display) -> Problem {
    span().in_scope(|| tracing::error!(%error, "a request failed"));
    Problem::internal()
}

impl From<AnchorError> for Problem {
    fn from(error: AnchorError) -> Self {
        match error {
            AnchorError::Record(error) => error.into(),
            other => internal(&other),
        }
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let detail = error.to_string();
        let conflict = |code: &str, title: &str, action: &str| {
            Self::new(StatusCode::CONFLICT, code, title, &detail, action)
        };
        let missing = |code: &str, title: &str| {
            Self::new(
                StatusCode::NOT_FOUND,
                code,
                title,
                &detail,
                "Check the address; a token sees its own tenant's runs only.",
            )
        };
        match error {
            RecordError::Intake(error) => error.into(),
            RecordError::Access(error) => error.into(),
            RecordError::NoRun(_) => missing("run_not_found", "No such run"),
            RecordError::NoFrame { .. } => missing("frame_not_found", "No such frame"),
            RecordError::NoPayload { .. } => missing("payload_not_found", "No such payload"),
            RecordError::Held { .. } => conflict(
                "held",
                "A hold is in force",
                "Release the hold first, where that is right; see GET /v1/holds.",
            ),
            RecordError::Floor { .. } => conflict(
                "retention_floor",
                "It has to be kept for longer",
                "Ask again after that time; see GET /v1/retention/policy for the schedule.",
            ),
            RecordError::NoPolicy(_) => {
                missing("policy_not_found", "No such version of the policy")
            }
            RecordError::BadPolicy { ref pointer, .. } => {
                let problem = Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "malformed_policy",
                    "The retention policy cannot be used",
                    detail,
                    "Correct what is at the pointer; nothing was changed. Policies are described in docs/retention.md.",
                );
                Self {
                    pointer: Some(without_secrets(pointer.clone())),
                    ..problem
                }
            }
            RecordError::ErasureKey(_) => conflict(
                "key_conflict",
                "The key was used for another request",
                "A retry sends the same request; another erasure needs another key.",
            ),
            RecordError::NoErasure(_) => missing("erasure_not_found", "No such erasure"),
            RecordError::NoHold(_) => missing("hold_not_found", "No such hold"),
            RecordError::NoHoldOrder(_) => {
                missing("hold_order_not_found", "No such order of holds")
            }
            RecordError::NoHoldRelease => missing("release_not_found", "No request to release it"),
            RecordError::NoFlag { .. } => missing("flag_not_found", "No such flag"),
            RecordError::HoldOfOrder { .. } => conflict(
                "hold_of_order",
                "An order wants the hold",
                "Release the order, where that is right; see GET /v1/hold-orders.",
            ),
            RecordError::NotKept { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "payload_not_kept",
                "The payload was never sent",
                detail,
                "Ask whoever runs the agent for it; it can be checked against the commitment.",
            ),
            RecordError::Missing { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "payload_missing",
                "The payload is lost",
                detail,
                "Ask the operator: somebody removed it from the database without a certificate.",
            ),
            RecordError::Erased { .. } => Self::new(
                StatusCode::GONE,
                "payload_erased",
                "The payload was erased",
                detail,
                "Nobody can bring it back; the run's evidence verifies without it.",
            ),
            RecordError::Expired { .. } => Self::new(
                StatusCode::GONE,
                "payload_expired",
                "The payload expired",
                detail,
                "Nobody can bring it back; GET /v1/retention/policy has the schedule, and the run's evidence verifies without it.",
            ),
            RecordError::NoTurn { .. } => missing("turn_not_found", "No such turn"),
            RecordError::NoPerson(_) => missing("person_not_found", "No such person"),
            RecordError::NoQuery(_) => missing("query_not_found", "No such query"),
            RecordError::NoSavedQuery(_) => missing("saved_query_not_found", "No such saved query"),
            RecordError::NoLog(_) => Self::new(
                StatusCode::NOT_FOUND,
                "ledger_not_found",
                "No such ledger",
                detail,
                "Check the address: it ends as the origin of the ledger does, which frame 0 of each run names.",
            ),
            RecordError::BeyondCheckpoint { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "beyond_checkpoint",
                "The ledger does not reach so far",
                detail,
                "Read the checkpoint, and ask for what is below its size; a tile that is not full is asked for by its width, as in tile/0/000.p/5.",
            ),
            RecordError::NoCheckpoint { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "checkpoint_not_found",
                "No checkpoint of that size",
                detail,
                "Ask for the size that is named, or leave `size` out for the latest checkpoint.",
            ),
            RecordError::Unsigned { .. } => Self::new(
                StatusCode::FORBIDDEN,
                "frame_unsigned",
                "The agent signs its frames",
                detail,
                "Sign the frame with a key of the agent, or write as another actor.",
            ),
            RecordError::AgentKey { .. } => Self::new(
                StatusCode::FORBIDDEN,
                "agent_key_unknown",
                "The key signs nothing of this agent",
                detail,
                "Register the key, POST /v1/agent-keys, or sign with one that counts.",
            ),
            RecordError::FalseSignature => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "signature_false",
                "The signature is false",
                detail,
                "Sign exactly the frame as it will stand there: docs/spec/frames.md, \"Submitted frames\".",
            ),
            RecordError::WrongCount { expected, .. } => {
                let problem = conflict(
                    "wrong_count",
                    "The key does not count on",
                    "Sign the frame again with the `n` of this problem, after the frames before it have their receipts.",
                );
                Self {
                    n: Some(expected),
                    ..problem
                }
            }
            RecordError::CommitUsed(_) => conflict(
                "commitment_used",
                "The commitment is in the run already",
                "Commit to each payload with a key of its own.",
            ),
            RecordError::AgentKeyTaken(_) => conflict(
                "agent_key_taken",
                "The key was registered before",
                "Make a new key: one that signed for another, or that was revoked, is not taken again.",
            ),
            RecordError::WroteUnsigned { .. } => conflict(
                "actor_wrote_unsigned",
                "The actor wrote frames that it did not sign",
                "Give the agent that signs an id of its own. With `\"unsigned_before\": true` the key is taken nevertheless, and those frames become faults under the trust file.",
            ),
            RecordError::NoAgentKey(_) => missing("agent_key_not_found", "No such agent's key"),
            RecordError::KeyNotInForce { .. } => conflict(
                "key_not_in_force",
                "Another seal key is in force",
                "If your rotation was answered by nobody, it was done. Look: GET /v1/keys.",
            ),
            RecordError::Sealed(_) => conflict(
                "run_sealed",
                "The run is sealed",
                "Open a run of its own and link it to this one; a sealed run does not change.",
            ),
            RecordError::Open(_) => conflict(
                "run_open",
                "The run is not sealed",
                "Seal it first: POST /v1/runs/{run}/seal.",
            ),
            RecordError::Ended(_) => conflict(
                "run_ended",
                "The run has ended",
                "Seal it; what comes later is a run of its own, linked to this one.",
            ),
            RecordError::TurnNotOpen { .. } => conflict(
                "turn_not_open",
                "The turn is not open",
                "Post the frame in the open turn (leave `turn` out) with a link `answers` to what it answers; a parallel subagent is a run of its own, linked to this one.",
            ),
            RecordError::TurnNumber { .. } => conflict(
                "turn_number",
                "Turns are numbered densely",
                "Leave `turn` out: the store numbers turns.",
            ),
            RecordError::TurnTooLarge { .. } => conflict(
                "turn_too_large",
                "The turn is too large for a proof of its own",
                "Export the run, whose bundle has no such limit, or ask with payloads=none.",
            ),
            RecordError::KeyConflict { .. } => conflict(
                "key_conflict",
                "The key was used for another request",
                "A retry sends the same request; another frame needs another key.",
            ),
            RecordError::HeadMoved { head, .. } => {
                let problem = Self::new(
                    StatusCode::PRECONDITION_FAILED,
                    "head_moved",
                    "The run's head moved",
                    detail,
                    "Read what was appended since, then decide again with If-Match of the present head.",
                );
                Self {
                    head: Some(head.hex()),
                    ..problem
                }
            }
            RecordError::NoLink { pointer, .. } => {
                let problem = Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "link_not_found",
                    "A link points to nothing",
                    detail,
                    "Links in a run point to earlier frames, by `seq` or by `key`.",
                );
                Self {
                    pointer: Some(without_secrets(pointer)),
                    ..problem
                }
            }
            RecordError::FrameTooLarge { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "frame_too_large",
                "The frame is too large",
                detail,
                "Put what is long into payloads; a frame without its payloads has at most 65,536 bytes.",
            ),
            RecordError::Fault(fault) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                fault.code.as_str(),
                "The frame may not stand here",
                detail,
                "Correct the frame; the specification names the rule by this code.",
            ),
            RecordError::ClockBehind { .. } => {
                let problem = Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "clock_behind",
                    "The database's clock is behind",
                    detail,
                    "Set the clock of the database's machine; nothing was stored.",
                );
                Self {
                    retry_after_s: Some(5),
                    ..problem
                }
            }
            RecordError::Rewound => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "rewound",
                "The ledger was put back",
                detail,
                "Nothing was stored. Put back a newer backup, or let an admin accept it: `onrecord ledger accept-rewind`.",
            ),
            RecordError::NotRewound => Self::new(
                StatusCode::CONFLICT,
                "not_rewound",
                "There is nothing to accept",
                detail,
                "Leave it; `GET /v1/ledger/anchors` says how it stands.",
            ),
            RecordError::TooSlow => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "query_too_slow",
                "The query takes too long",
                detail,
                "Ask for less: a bound on the time, or a field that is indexed, as docs/queries.md has them; what few rows are is found only by looking at many otherwise.",
            ),
            RecordError::Store(error) => {
                database(error.is_storage_full(), error.is_transient(), &error)
            }
            RecordError::NotStored(error) => {
                database(error.is_storage_full(), error.is_transient(), &error)
            }
            RecordError::BadRules(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "malformed_rules",
                "The rules cannot be used",
                detail,
                "Correct the rule that is named; nothing was changed.",
            ),
            RecordError::NoRules(_) => Self::new(
                StatusCode::NOT_FOUND,
                "rules_not_found",
                "No such version of the rules",
                detail,
                "Leave `version` out for the document that holds; versions count from 1.",
            ),
            RecordError::Busy => Self::queue_full(),
            RecordError::Stopping => Self {
                detail: "the server is stopping".to_owned(),
                ..Self::busy()
            },
            RecordError::Unknown => Self::outcome_unknown(),
            RecordError::Vault(error) if error.is_service() => {
                span().in_scope(|| tracing::error!(%error, "the root key's service failed"));
                Self::key_service_unavailable()
            }
            RecordError::NoTenant(_)
            | RecordError::Vault(_)
            | RecordError::Rotation(_)
            | RecordError::StoredRules(_)
            | RecordError::CutOff => internal(&error),
        }
    }
}
