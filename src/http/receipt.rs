//! The answer of an append.

use crate::record::append::Appended;
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
        Self { run: receipt.run, seq: receipt.seq, hash: receipt.hash, at: receipt.at }
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
        if appended.created { StatusCode::CREATED } else { StatusCode::OK }
    }
}

impl From<Appended> for AppendedBody {
    fn from(appended: Appended) -> Self {
        Self { receipt: appended.receipt.into(), result: appended.result.map(ReceiptBody::from), signed: appended.signed }
    }
}

/// A strong ETag of a hash.
pub(crate) fn etag(hash: &onrecord_core::digest::Hash) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The answer: 201 for a new frame, 200 for a retry, with the head as ETag and the frame as Location.
pub(crate) fn response(appended: Appended) -> Response {
    let status = AppendedBody::status(&appended);
    let last = appended.result.as_ref().unwrap_or(&appended.receipt);
    let mut headers = HeaderMap::new();
    headers.insert(header::ETAG, etag(&last.hash));
    let location = format!("/v1/runs/{}/frames/{}", appended.receipt.run, appended.receipt.seq);
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    (status, headers, axum::Json(AppendedBody::from(appended))).into_response()
}
