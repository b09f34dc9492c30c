//! The answer of an append.

use super::problem::Problem;
use crate::record::append::Appended;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onrecord_core::receipt::Receipt;
use serde::Serialize;
use utoipa::ToSchema;

/// Where a frame stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptBody {
    /// The run.
    #[schema(value_type = String, example = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8")]
    run: onrecord_core::id::RunId,
    /// Place in the run, from 0.
    seq: u64,
    /// Hash of the frame: `SHA-256(0x00 ‖ canonical bytes)`.
    #[schema(value_type = String)]
    hash: onrecord_core::digest::Hash,
    /// The store's time.
    #[schema(value_type = String, format = DateTime)]
    at: onrecord_core::timestamp::Timestamp,
}

impl From<Receipt> for ReceiptBody {
    fn from(receipt: Receipt) -> Self {
        Self {
            run: receipt.run,
            seq: receipt.seq,
            hash: receipt.hash,
            at: receipt.at,
        }
    }
}

/// The receipt of a frame, and of the result that was posted with it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct AppendedBody {
    #[serde(flatten)]
    receipt: ReceiptBody,
    /// Receipt of the `tool_result` of a tool call that was posted whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ReceiptBody>,
    /// A signed `run-head` envelope at this frame, where `receipt=signed` asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
}

impl AppendedBody {
    pub(crate) fn status(appended: &Appended) -> StatusCode {
        if appended.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        }
    }
}

impl From<Appended> for AppendedBody {
    fn from(appended: Appended) -> Self {
        Self {
            receipt: appended.receipt.into(),
            result: appended.result.map(ReceiptBody::from),
            signed: appended.signed,
        }
    }
}

/// A strong ETag of a hash.
pub(crate) fn etag(hash: &onrecord_core::digest::Hash) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Bytes of most answers.
const ANSWER_BYTES: usize = 256;
/// Members of the head of one, those included that every answer has.
const ANSWER_HEADERS: usize = 8;

/// The answer: 201 for a new frame, 200 for a retry, with the head as ETag and the frame as Location.
pub(crate) fn response(appended: Appended) -> Response {
    let status = AppendedBody::status(&appended);
    let last = appended.result.as_ref().unwrap_or(&appended.receipt);
    // One map with room for all: put together of parts it would be made three times.
    let mut headers = HeaderMap::with_capacity(ANSWER_HEADERS);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::ETAG, etag(&last.hash));
    let location = format!(
        "/v1/runs/{}/frames/{}",
        appended.receipt.run, appended.receipt.seq
    );
    if let Ok(location) = HeaderValue::try_from(location) {
        headers.insert(header::LOCATION, location);
    }
    let mut body = Vec::with_capacity(ANSWER_BYTES);
    if serde_json::to_writer(&mut body, &AppendedBody::from(appended)).is_err() {
        return Problem::internal().into_response();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
