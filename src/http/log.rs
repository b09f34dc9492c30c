//! `/t/{log}/…`: the ledger as a transparency log in the layout of C2SP tlog-tiles.
//!
//! Checkpoint and hash tiles tell nothing but hashes and sizes, and are for everybody; entries are for their tenant's
//! readers.

use super::App;
use super::ledger::KEEP_PRIVATE;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{AccessError, READERS};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::digest::Hash;
use onrecord_core::note::Tile;

/// What a tile of hashes is for everybody, for ever.
const KEEP: (header::HeaderName, &str) =
    (header::CACHE_CONTROL, "public, max-age=31536000, immutable");
const BYTES: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/octet-stream");

/// Reads the latest checkpoint of a ledger: a C2SP signed note. Open to all.
#[utoipa::path(
    get, path = "/t/{log}/checkpoint", tag = "ledger", operation_id = "readCheckpoint",
    security(()),
    params(("log" = String, Path, description = "The id at the end of the ledger's origin")),
    responses(
        (status = 200, description = "The checkpoint", body = String, content_type = "text/plain"),
        (status = 304, description = "It is still that of `If-None-Match`"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_checkpoint(
    State(app): State<App>,
    Path(log): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tenant = app.recorder.log(&log).await?;
    let note = app.recorder.checkpoint(tenant).await?;
    let tag = format!("\"{}\"", Hash::of(&[note.as_bytes()]));
    let answer = [
        (header::ETAG, tag.as_str()),
        (header::CACHE_CONTROL, "public, no-cache"),
    ];
    let has = headers.get_all(header::IF_NONE_MATCH).iter();
    if has.filter_map(|value| value.to_str().ok()).any(|value| {
        value == "*"
            || value
                .split(',')
                .any(|one| one.trim().trim_start_matches("W/") == tag)
    }) {
        return Ok((StatusCode::NOT_MODIFIED, answer).into_response());
    }
    Ok((answer, note).into_response())
}

/// Reads a tile of hashes. Open to all, and the same for ever: a cache may keep it.
#[utoipa::path(
    get, path = "/t/{log}/tile/{level}/{index}", tag = "ledger", operation_id = "readTile",
    security(()),
    params(
        ("log" = String, Path, description = "The id at the end of the ledger's origin"),
        ("level" = u8, Path, description = "0 to 7; a tile has nodes of level 8 × this of the tree"),
        ("index" = String, Path, description = "Place in the level in groups of three digits, all but the last as a step of its own with an `x` before it: `x001/067`; `.p/WIDTH` behind it where the tile is not full"),
    ),
    responses(
        (status = 200, description = "1 to 256 hashes of 32 bytes", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_tile(
    State(app): State<App>,
    Path((log, level, index)): Path<(String, String, String)>,
) -> Result<Response, Problem> {
    let tile = tile(&format!("tile/{level}/{index}"))?;
    let tenant = app.recorder.log(&log).await?;
    let bytes = app.recorder.tile(tenant, tile).await?;
    Ok(([BYTES, KEEP], bytes).into_response())
}

/// Reads a tile of entries: the envelopes, each with its length before it in two bytes.
///
/// Needs a token of the ledger's tenant with the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/t/{log}/tile/entries/{index}", tag = "ledger", operation_id = "readEntryTile",
    params(
        ("log" = String, Path, description = "The id at the end of the ledger's origin"),
        ("index" = String, Path, description = "Place in groups of three digits, as of a tile of hashes"),
    ),
    responses(
        (status = 200, description = "1 to 256 entries", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_entry_tile(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path((log, index)): Path<(String, String)>,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let tile = tile(&format!("tile/entries/{index}"))?;
    let tenant = app.recorder.log(&log).await?;
    if tenant != caller.tenant {
        return Err(AccessError::OtherTenant.into());
    }
    let bytes = app.recorder.tile(tenant, tile).await?;
    Ok(([BYTES], KEEP_PRIVATE, bytes).into_response())
}

fn tile(path: &str) -> Result<Tile, Problem> {
    Tile::parse(path).map_err(|bad| Problem::parameter("the tile", &bad.to_string()))
}
