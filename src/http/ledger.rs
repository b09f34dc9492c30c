//! `/v1/ledger`: the tenant's ledger, its entries and their proofs.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, NumberPath};
use crate::access::READERS;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Entries of a page, unless the request says otherwise.
const PAGE: u32 = 100;
/// Entries of a page at most: those of a tile, each of at most 64 KiB.
const PAGE_MAX: u32 = 256;
/// Entries never change, and are for those only who have a token.
pub(super) const KEEP_PRIVATE: [(header::HeaderName, &str); 2] = [
    (
        header::CACHE_CONTROL,
        "private, max-age=31536000, immutable",
    ),
    (header::VARY, "Authorization"),
];

/// A ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct LedgerBody {
    /// Its name, as frame 0 of each run and each checkpoint have it: `HOST/t/LOG`.
    origin: String,
    /// The id at the end of the origin: the log is served below `/t/LOG/`.
    log: String,
    /// Entries under the latest checkpoint.
    size: u64,
    /// RFC 9162 root over them, in base64 as in the checkpoint.
    root: String,
    /// The latest checkpoint, a C2SP signed note.
    checkpoint: String,
    /// The key that signs checkpoints, `NAME+ID+BASE64`.
    verifier_key: String,
}

/// Shows the tenant's ledger as it is now.
#[utoipa::path(
    get, path = "/v1/ledger", tag = "ledger", operation_id = "readLedger",
    responses(
        (status = 200, description = "The ledger", body = LedgerBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_ledger(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    let ledger = app.recorder.ledger(caller).await?;
    let log = ledger.origin.log().to_owned();
    let body = LedgerBody {
        log,
        origin: ledger.origin.to_string(),
        size: ledger.size,
        root: base64(&ledger.root),
        checkpoint: ledger.checkpoint,
        verifier_key: ledger.verifier_key,
    };
    Ok(axum::Json(body).into_response())
}

/// Which entries.
#[derive(Deserialize, IntoParams)]
pub(crate) struct EntriesQuery {
    /// The first index, 0 by default.
    from: Option<u64>,
    /// How many at most: 1 to 256, 100 by default.
    limit: Option<u32>,
}

/// An entry.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntryBody {
    /// Its place in the ledger, from 0.
    index: u64,
    /// Its hash in the tree: `SHA-256(0x00 ‖ entry)`.
    leaf: String,
    /// The short name of what it states, such as `run-open`.
    name: String,
    /// The run that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// The DSSE envelope, exactly as signed.
    entry: String,
}

/// Entries.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntriesBody {
    /// By index.
    entries: Vec<EntryBody>,
    /// Entries of the whole ledger.
    size: u64,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Lists entries by index.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/ledger/entries", tag = "ledger", operation_id = "listEntries",
    params(EntriesQuery),
    responses(
        (status = 200, description = "The entries", body = EntriesBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_entries(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<EntriesQuery>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 256"));
    }
    let from = query.from.unwrap_or(0);
    let (entries, size) = app.recorder.ledger_entries(caller, from, limit).await?;
    let end = entries.last().map_or(size, |entry| entry.index + 1);
    let entries = entries.into_iter().map(|entry| EntryBody {
        index: entry.index,
        leaf: entry.leaf.hex(),
        name: entry.name,
        run: entry.run.map(|run| run.to_string()),
        at: entry.at.to_string(),
        // Canonical JSON, as signed.
        entry: String::from_utf8_lossy(&entry.bytes).into_owned(),
    });
    let body = EntriesBody {
        entries: entries.collect(),
        size,
        next: (end < size).then_some(end),
    };
    Ok(axum::Json(body).into_response())
}

/// Reads an entry: the exact bytes that were signed and hashed.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/ledger/entries/{index}", tag = "ledger", operation_id = "readEntry",
    params(("index" = u64, Path, description = "Place in the ledger, from 0")),
    responses(
        (status = 200, description = "The DSSE envelope", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_entry(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(index): NumberPath,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let entry = app.recorder.ledger_entry(caller, index).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, KEEP_PRIVATE, entry).into_response())
}

/// Under which checkpoint.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ProofQuery {
    /// Size of the checkpoint; the latest by default.
    size: Option<u64>,
}

/// Proves that an entry is in the ledger: a C2SP `.tlog-proof`, complete with its checkpoint.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/ledger/entries/{index}/proof", tag = "ledger", operation_id = "proveEntry",
    params(("index" = u64, Path, description = "Place in the ledger, from 0"), ProofQuery),
    responses(
        (status = 200, description = "The proof", body = String, content_type = "text/plain"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn prove_entry(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    NumberPath(index): NumberPath,
    Query(query): Query<ProofQuery>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let proof = app.recorder.ledger_proof(caller, index, query.size).await?;
    Ok(proof.into_response())
}

/// Between which sizes.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ConsistencyQuery {
    /// The smaller size.
    from: u64,
    /// The larger size; the latest by default.
    to: Option<u64>,
}

/// A ledger at a size.
#[derive(Serialize, ToSchema)]
pub(crate) struct TreeBody {
    /// Entries.
    size: u64,
    /// RFC 9162 root over them, base64.
    root: String,
}

/// That a ledger is the beginning of a later one.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConsistencyBody {
    /// The earlier.
    from: TreeBody,
    /// The later.
    to: TreeBody,
    /// The path of RFC 9162, 2.1.4, each hash in base64; empty between equal sizes and from 0.
    hashes: Vec<String>,
}

/// Proves that the ledger of one size is the beginning of that of another.
#[utoipa::path(
    get, path = "/v1/ledger/consistency", tag = "ledger", operation_id = "proveConsistency",
    params(ConsistencyQuery),
    responses(
        (status = 200, description = "The proof", body = ConsistencyBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn prove_consistency(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<ConsistencyQuery>,
) -> Result<Response, Problem> {
    if query.to.is_some_and(|to| query.from > to) {
        return Err(Problem::parameter("from", "a size up to that of `to`"));
    }
    let found = app.recorder.consistency(caller, query.from, query.to);
    let found = found.await?;
    let tree = |size, root| TreeBody {
        size,
        root: base64(root),
    };
    let body = ConsistencyBody {
        from: tree(found.sizes.0, &found.roots.0),
        to: tree(found.sizes.1, &found.roots.1),
        hashes: found.path.iter().map(base64).collect(),
    };
    Ok(axum::Json(body).into_response())
}

/// Exports the whole ledger: a tar of checkpoint, hash tiles and entries that `onrecord verify` takes. What breaks off in
/// the middle does not verify.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/ledger/archive", tag = "ledger", operation_id = "exportLedger",
    responses(
        (status = 200, description = "The archive", body = Vec<u8>, content_type = "application/x-tar"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn export_ledger(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let pieces = app.recorder.ledger_archive(caller).await?;
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"ledger.tar\"",
        ),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// As checkpoints and proofs spell a hash.
fn base64(hash: &Hash) -> String {
    STANDARD.encode(hash.as_bytes())
}
