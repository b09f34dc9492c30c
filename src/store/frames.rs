//! Frames: written once, read as they were written.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use futures_util::TryStreamExt as _;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::facts::Facts;
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::receipt::Receipt;
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection, Row as _};
use std::collections::HashMap;

/// What a retry is told by: the first 128 bits of an HMAC.
pub(crate) type Mac = [u8; 16];

/// A frame at its place, with the columns that are derived from its bytes.
pub(crate) struct NewFrame {
    pub(crate) seq: u64,
    pub(crate) kind: Kind,
    pub(crate) turn: Option<u64>,
    pub(crate) key: String,
    pub(crate) at: Timestamp,
    pub(crate) hash: Hash,
    pub(crate) answers: Option<u64>,
    pub(crate) request_mac: Option<Mac>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) facts: Facts,
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

/// The bytes of some frames by their places; those that are not there are left out.
pub(crate) async fn some(
    connection: &mut PgConnection,
    run: &RunId,
    seqs: &[u64],
) -> Result<HashMap<u64, Vec<u8>>, StoreError> {
    let rows = sqlx::query("select seq, bytes from frames where run = $1 and seq = any($2)")
        .bind(Uuid::from(run))
        .bind(seqs.iter().copied().map(signed).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let read = |row: &PgRow| {
        let seq = unsigned(row.try_get("seq")?, "frames", "seq")?;
        Ok((seq, row.try_get("bytes")?))
    };
    rows.iter().map(read).collect()
}

/// The frame that commits to a payload, where one does. Goes through the run, which is for what is not among the
/// payloads any more.
pub(crate) async fn committing(
    connection: &mut PgConnection,
    run: &RunId,
    commit: &Hash,
) -> Result<Option<Vec<u8>>, StoreError> {
    let named = format!("\"commit\":\"{commit}\"").into_bytes();
    let found = "select bytes from frames where run = $1 and position($2::bytea in bytes) > 0 order by seq limit 1";
    Ok(sqlx::query_scalar(found)
        .bind(Uuid::from(run))
        .bind(named)
        .fetch_optional(connection)
        .await?)
}

/// The bytes of up to `limit` frames from a place on, dense; none where the first of them is not there.
/// The range has two ends because the planner, as long as it has no statistics of the run, sorts all that
/// an open one has, for every page again.
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

/// Consecutive places of a run, and what stands in them.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) from: u64,
    /// The place behind the last.
    pub(crate) to: u64,
    /// Bytes of its lines of `frames.ndjson`, as they are stored rather than as they should be.
    pub(crate) bytes: u64,
}

/// Places whose frames come as one value: a row a frame costs PostgreSQL and us more than the frame does.
const TOGETHER: u64 = 64;

/// The frames in the places from `from` to below `to`, in stretches of up to `bytes` bytes, of [`TOGETHER`]
/// places at least.
pub(crate) async fn stretches(
    tx: &mut Tx,
    run: &RunId,
    (from, to): (u64, u64),
    bytes: u64,
) -> Result<Vec<Stretch>, StoreError> {
    along_the_index(tx).await?;
    let mut sizes = sqlx::query_scalar(
        "select (
           select coalesce(sum(line), 0)::bigint from (
             select octet_length(bytes) + 1 as line
             from frames where run = $1 and seq >= place and seq < least(place + $4, $3) order by seq
           ) as frame
         ) from generate_series($2, $3 - 1, $4) as place",
    )
    .bind(Uuid::from(run))
    .bind(signed(from))
    .bind(signed(to))
    .bind(signed(TOGETHER))
    .fetch(&mut **tx);
    let (mut stretches, mut next): (Vec<Stretch>, _) = (Vec::new(), from);
    while let Some(more) = sizes.try_next().await? {
        let more = unsigned(more, "frames", "bytes")?;
        let from = next;
        next = to.min(next + TOGETHER);
        match stretches.last_mut() {
            Some(last) if last.bytes + more <= bytes => {
                last.to = next;
                last.bytes += more;
            }
            _ => stretches.push(Stretch {
                from,
                to: next,
                bytes: more,
            }),
        }
    }
    Ok(stretches)
}

/// The lines of a stretch, whatever they are: what was altered or dropped is the verifier's to name.
pub(crate) async fn lines(
    tx: &mut Tx,
    run: &RunId,
    stretch: Stretch,
) -> Result<Vec<u8>, StoreError> {
    along_the_index(tx).await?;
    let mut parts = sqlx::query(
        "select (
           select string_agg(bytes, '\\x0a') from (
             select bytes from frames where run = $1 and seq >= place and seq < least(place + $4, $3) order by seq
           ) as frame
         ) from generate_series($2, $3 - 1, $4) as place",
    )
    .bind(Uuid::from(run))
    .bind(signed(stretch.from))
    .bind(signed(stretch.to))
    .bind(signed(TOGETHER))
    .fetch(&mut **tx);
    let mut lines = Vec::with_capacity(usize::try_from(stretch.bytes).unwrap_or(0));
    while let Some(part) = parts.try_next().await? {
        if let Some(part) = part.try_get::<Option<&[u8]>, _>(0)? {
            lines.extend_from_slice(part);
            lines.push(b'\n');
        }
    }
    if lines.len() as u64 == stretch.bytes {
        Ok(lines)
    } else {
        let row = format!("{run}/{} to {}", stretch.from, stretch.to);
        Err(contradiction("frames", "bytes", row))
    }
}

/// Has statements that ask for a run's frames in their order read them along the index of that order, as long as
/// the transaction lasts. A planner that has no statistics of the run takes it for a few rows, which it would sort,
/// or look for in another index: that goes through all of the run for each of its parts.
async fn along_the_index(tx: &mut Tx) -> Result<(), StoreError> {
    tx.execute("set local enable_sort = off; set local enable_bitmapscan = off; set local enable_seqscan = off")
        .await?;
    Ok(())
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
             and wrapped_dek <> ''
         )), 0))::bigint from frames where run = $1 and turn = $2",
    )
    .bind(Uuid::from(run))
    .bind(signed(turn))
    .bind(payloads)
    .fetch_one(&mut **tx)
    .await?;
    unsigned(bytes, "payloads", "size")
}

/// Whether an agent wrote frames that it did not sign, sessions aside, which nobody signs. Reads all frames of the tenant
/// in the worst case, for which a statement may not have the time.
pub(crate) async fn has_unsigned(
    tx: &mut Tx,
    tenant: &TenantId,
    actor: &str,
) -> Result<bool, StoreError> {
    // Canonical bytes begin with the actor; a signed frame's has a key id after its id.
    let mut begins = br#"{"actor":{"id":"#.to_vec();
    onrecord_core::json::write_string(&mut begins, actor);
    begins.extend_from_slice(br#","type":"agent"},"#);
    Ok(sqlx::query_scalar(
        "select exists (select from frames where tenant = $1 and kind_no <> 1 and substr(bytes, 1, octet_length($2)) = $2)",
    )
    .bind(tenant.as_str())
    .bind(begins)
    .fetch_one(&mut **tx)
    .await?)
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
           select seq from frames where run = $1 and kind_no = 4
           except select answers from frames where run = $1 and kind_no = 5 and answers is not null
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
