//! Problems (RFC 9457): the one place that knows status codes. Codes are part of the contract; what is
//! internal stays in the log, under the request's id. What requests are refused for is in `request`, what recording them came to in
//! `record`.

mod record;
mod request;

use super::encoding;
use super::envelope::{span, without_secrets};
use crate::query::{BadCursor, BadFilter};
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
        response.extensions_mut().insert(Code(self.code));
        response
    }
}

/// The code of a problem, beside the answer that it became.
#[derive(Clone)]
pub(super) struct Code(pub(super) String);

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
