//! Frames: written once, read as they were written.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use futures_util::TryStreamExt as _;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::id::RunId;
use onrecord_core::limits;
use onrecord_core::receipt::Receipt;
use onrecord_core::timestamp::Timestamp;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;

/// What a retry is told by: the first 128 bits of an HMAC.
pub(crate) type Mac = [u8; 16];

/// A frame at its place, with the columns that are derived from its bytes.
pub(crate) struct NewFrame {
    pub(crate) seq: u64,
    pub(crate) kind: &'static str,
    pub(crate) turn: Option<u64>,
    pub(crate) key: String,
    pub(crate) at: Timestamp,
    pub(crate) hash: Hash,
    pub(crate) answers: Option<u64>,
    pub(crate) request_mac: Option<Mac>,
    pub(crate) bytes: Vec<u8>,
}

/// A frame that has a key already.
pub(crate) struct KeyedFrame {
    pub(crate) receipt: Receipt,
    pub(crate) request_mac: Option<Vec<u8>>,
}

/// The frames of a run that have one of these keys.
pub(crate) async fn with_keys(
    connection: &mut PgConnection,
    run: &RunId,
    keys: &[&str],
) -> Result<HashMap<String, KeyedFrame>, StoreError> {
    let rows = sqlx::query(
        "select seq, key, at, sha256('\\x00'::bytea || bytes) as hash, request_mac from frames where run = $1 and key = any($2)",
    )
    .bind(Uuid::from(run))
    .bind(keys)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let receipt = Receipt {
                at: row.try_get::<Time, _>("at")?.0,
                hash: hash(row.try_get("hash")?, "frames", "bytes")?,
                run: run.clone(),
                seq: unsigned(row.try_get("seq")?, "frames", "seq")?,
            };
            Ok((
                row.try_get("key")?,
                KeyedFrame {
                    receipt,
                    request_mac: row.try_get("request_mac")?,
                },
            ))
        })
        .collect()
}

/// The bytes of one frame, and its hash.
pub(crate) async fn bytes(
    connection: &mut PgConnection,
    run: &RunId,
    seq: u64,
) -> Result<Option<(Vec<u8>, Hash)>, StoreError> {
    let bytes: Option<Vec<u8>> =
        sqlx::query_scalar("select bytes from frames where run = $1 and seq = $2")
            .bind(Uuid::from(run))
            .bind(signed(seq))
            .fetch_optional(connection)
            .await?;
    Ok(bytes.map(|bytes| {
        let hash = leaf_hash(&bytes);
        (bytes, hash)
    }))
}

/// The bytes of up to `limit` frames from a place on, dense; none where the first of them is not there.
/// Why the range has two ends, says [`stored`].
pub(crate) async fn page(
    tx: &mut Tx,
    run: &RunId,
    from: u64,
    limit: u32,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let rows = sqlx::query(
        "select seq, bytes from frames where run = $1 and seq >= $2 and seq < $3 order by seq",
    )
    .bind(Uuid::from(run))
    .bind(signed(from))
    .bind(signed(from.saturating_add(u64::from(limit))))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .zip(from..)
        .map(|(row, expected)| {
            let seq = unsigned(row.try_get("seq")?, "frames", "seq")?;
            if seq == expected {
                Ok(row.try_get("bytes")?)
            } else {
                Err(contradiction("frames", "seq", format!("{run}/{expected}")))
            }
        })
        .collect()
}

/// How many bytes `frames.ndjson` has of the frames below a size, as they are stored.
pub(crate) async fn stored_bytes(tx: &mut Tx, run: &RunId, size: u64) -> Result<u64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(
        "select coalesce(sum(octet_length(bytes) + 1), 0)::bigint from frames where run = $1 and seq < $2",
    )
    .bind(Uuid::from(run))
    .bind(signed(size))
    .fetch_one(&mut **tx)
    .await?;
    unsigned(bytes, "frames", "bytes")
}

/// Frames as they are stored, whatever they are: what was altered or dropped is the verifier's to name.
pub(crate) struct StoredFrames {
    /// Their bytes, each with a newline behind it.
    pub(crate) lines: Vec<u8>,
    /// Where each line ends in `lines`, its newline included.
    pub(crate) ends: Vec<usize>,
    /// The place from which nothing was read.
    pub(crate) next: u64,
}

impl StoredFrames {
    /// The bytes of each frame.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.lines[start..end - 1])
    }
}

/// Frames of a run in the places from `from` to below `to`: as many as have `bytes` bytes together, and
/// one that goes beyond.
///
/// The range has two ends because the planner, as long as it has no statistics of the run, sorts all that
/// an open one has, for every page again.
pub(crate) async fn stored(
    tx: &mut Tx,
    run: &RunId,
    (from, to): (u64, u64),
    bytes: usize,
) -> Result<StoredFrames, StoreError> {
    let mut rows = sqlx::query(
        "select seq, bytes from (
           select seq, bytes, sum(octet_length(bytes)) over (order by seq rows unbounded preceding) - octet_length(bytes) as before
           from frames where run = $1 and seq >= $2 and seq < $3
         ) as sized where before < $4 order by seq",
    )
    .bind(Uuid::from(run))
    .bind(signed(from))
    .bind(signed(to))
    .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
    .fetch(&mut **tx);
    let mut page = StoredFrames {
        lines: Vec::with_capacity(bytes + limits::FRAME_BYTES),
        ends: Vec::new(),
        next: to,
    };
    let mut last = from;
    while let Some(row) = rows.try_next().await? {
        last = unsigned(row.try_get(0)?, "frames", "seq")?;
        page.lines.extend_from_slice(row.try_get(1)?);
        page.lines.push(b'\n');
        page.ends.push(page.lines.len());
    }
    if page.lines.len() - page.ends.len() >= bytes {
        page.next = last + 1;
    }
    Ok(page)
}

/// The hashes of all frames below a size, in order.
pub(crate) async fn hashes(tx: &mut Tx, run: &RunId, size: u64) -> Result<Vec<Hash>, StoreError> {
    let rows: Vec<Vec<u8>> =
        sqlx::query_scalar("select sha256('\\x00'::bytea || bytes) from frames where run = $1 and seq < $2 order by seq")
            .bind(Uuid::from(run))
            .bind(signed(size))
            .fetch_all(&mut **tx)
            .await?;
    rows.iter()
        .map(|bytes| hash(bytes, "frames", "bytes"))
        .collect()
}

/// The bytes of a turn's frames and of its `turn_end`, in order.
pub(crate) async fn of_turn(
    tx: &mut Tx,
    run: &RunId,
    turn: u64,
) -> Result<Vec<Vec<u8>>, StoreError> {
    Ok(
        sqlx::query_scalar("select bytes from frames where run = $1 and turn = $2 order by seq")
            .bind(Uuid::from(run))
            .bind(signed(turn))
            .fetch_all(&mut **tx)
            .await?,
    )
}

/// Bytes of a turn's frames and, if they are wanted, of its payloads.
pub(crate) async fn turn_bytes(
    tx: &mut Tx,
    run: &RunId,
    turn: u64,
    payloads: bool,
) -> Result<u64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(
        "select (coalesce(sum(octet_length(bytes)), 0) + coalesce(sum((
           select sum(size) from payloads where $3 and payloads.run = frames.run and payloads.seq = frames.seq
         )), 0))::bigint from frames where run = $1 and turn = $2",
    )
    .bind(Uuid::from(run))
    .bind(signed(turn))
    .bind(payloads)
    .fetch_one(&mut **tx)
    .await?;
    unsigned(bytes, "payloads", "size")
}

/// Tool calls that nothing answers: their outcome is unknown. At most `limit` of them, and how many
/// there are.
///
/// A difference of sets, which is linear in every plan: an anti-join is a nested loop as long as the
/// table's statistics do not know the run, and took half a minute for 8,000 calls.
pub(crate) async fn unanswered(
    tx: &mut Tx,
    run: &RunId,
    limit: u32,
) -> Result<(Vec<u64>, u64), StoreError> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "select seq, count(*) over () from (
           select seq from frames where run = $1 and kind = 'tool_call'
           except select answers from frames where run = $1 and kind = 'tool_result' and answers is not null
         ) as unknown
         order by seq limit $2",
    )
    .bind(Uuid::from(run))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    let count = rows.first().map_or(0, |(_, count)| *count);
    let seqs = rows
        .iter()
        .map(|(seq, _)| unsigned(*seq, "frames", "seq"))
        .collect::<Result<_, _>>()?;
    Ok((seqs, unsigned(count, "frames", "seq")?))
}
