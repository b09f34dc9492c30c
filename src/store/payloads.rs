//! Payloads: ciphertexts and their wrapped keys.

use super::id::Uuid;
use super::{StoreError, Tx, hash, signed, unsigned};
use futures_util::{StreamExt as _, TryStreamExt as _};
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use sqlx::{PgConnection, Row as _};
use std::collections::{HashMap, HashSet};

/// A payload with its frame.
#[derive(Clone, Copy)]
pub(crate) struct NewPayload<'a> {
    pub(crate) commit: Hash,
    pub(crate) seq: u64,
    pub(crate) place: i16,
    pub(crate) media: &'a str,
    pub(crate) tier: i16,
    pub(crate) size: u64,
    pub(crate) wrapped_dek: &'a [u8],
    /// Version of the run's key that wraps it.
    pub(crate) key_version: i16,
    pub(crate) ciphertext: &'a [u8],
    /// Fingerprints of its subjects, 16 bytes each.
    pub(crate) subjects: Option<&'a [u8]>,
}

/// What opens a payload, without the payload. Where the agent kept it, there is no key.
pub(crate) struct PayloadKey {
    pub(crate) commit: Hash,
    pub(crate) seq: u64,
    pub(crate) tier: i16,
    /// Version of the run's key that wraps this one.
    pub(crate) key_version: i16,
    /// Empty where the agent kept the payload, or it was destroyed.
    pub(crate) wrapped_dek: Vec<u8>,
    /// Whether the agent kept the payload, so that it has neither key nor ciphertext.
    pub(crate) kept: bool,
}

/// A payload as it is stored.
pub(crate) struct StoredPayload {
    pub(crate) key: PayloadKey,
    pub(crate) media: String,
    pub(crate) ciphertext: Vec<u8>,
}

/// Which of some commitments a run has.
pub(crate) async fn known(
    connection: &mut PgConnection,
    run: &RunId,
    commits: &[Hash],
) -> Result<HashSet<Hash>, StoreError> {
    let commits: Vec<&[u8]> = commits.iter().map(|commit| &commit.0[..]).collect();
    let found: Vec<Vec<u8>> =
        sqlx::query_scalar("select commit from payloads where run = $1 and commit = any($2)")
            .bind(Uuid::from(run))
            .bind(commits)
            .fetch_all(connection)
            .await?;
    found
        .iter()
        .map(|commit| hash(commit, "payloads", "commit"))
        .collect()
}

/// The frame of a commitment, and the length after padding; also of a payload that the agent kept.
pub(crate) async fn place(
    tx: &mut Tx,
    run: &RunId,
    commit: &Hash,
) -> Result<Option<(u64, u64)>, StoreError> {
    let row = sqlx::query("select seq, size from payloads where run = $1 and commit = $2")
        .bind(Uuid::from(run))
        .bind(&commit.0[..])
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| {
        Ok((
            unsigned(row.try_get("seq")?, "payloads", "seq")?,
            unsigned(row.try_get("size")?, "payloads", "size")?,
        ))
    })
    .transpose()
}

/// The keys of the payloads of some frames, each frame's in the order of its payloads.
pub(crate) async fn keys_of_frames(
    tx: &mut Tx,
    run: &RunId,
    seqs: &[u64],
) -> Result<HashMap<u64, Vec<PayloadKey>>, StoreError> {
    let seqs: Vec<i64> = seqs.iter().copied().map(signed).collect();
    let rows = sqlx::query("select commit, seq, tier, key_version, wrapped_dek, octet_length(ciphertext) = 0 as kept from payloads where run = $1 and seq = any($2) order by seq, place")
        .bind(Uuid::from(run))
        .bind(seqs)
        .fetch_all(&mut **tx)
        .await?;
    let mut keys: HashMap<u64, Vec<PayloadKey>> = HashMap::new();
    for row in &rows {
        let key = read_key(row)?;
        keys.entry(key.seq).or_default().push(key);
    }
    Ok(keys)
}

/// The keys of the payloads of the frames in the places from `from` to below `to`, in the order of the
/// frames.
pub(crate) async fn keys_between(
    tx: &mut Tx,
    run: &RunId,
    from: u64,
    to: u64,
) -> Result<Vec<PayloadKey>, StoreError> {
    let rows = sqlx::query("select commit, seq, tier, key_version, wrapped_dek, octet_length(ciphertext) = 0 as kept from payloads where run = $1 and seq >= $2 and seq < $3 order by seq, place")
        .bind(Uuid::from(run))
        .bind(signed(from))
        .bind(signed(to))
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read_key).collect()
}

fn read_key(row: &sqlx::postgres::PgRow) -> Result<PayloadKey, StoreError> {
    Ok(PayloadKey {
        commit: hash(row.try_get("commit")?, "payloads", "commit")?,
        seq: unsigned(row.try_get("seq")?, "payloads", "seq")?,
        tier: row.try_get("tier")?,
        key_version: row.try_get("key_version")?,
        wrapped_dek: row.try_get("wrapped_dek")?,
        kept: row.try_get("kept")?,
    })
}

fn read_stored(row: &sqlx::postgres::PgRow) -> Result<StoredPayload, StoreError> {
    Ok(StoredPayload {
        key: read_key(row)?,
        media: row.try_get("media")?,
        ciphertext: row.try_get("ciphertext")?,
    })
}

/// Payloads that the store has, of the frames below a size, after a commitment, in the order of their commitments: at most
/// `count` of them, and as many as have `bytes` bytes together, and one that goes beyond.
pub(crate) async fn page(
    tx: &mut Tx,
    run: &RunId,
    size: u64,
    after: Option<&Hash>,
    (count, bytes): (usize, usize),
) -> Result<Vec<StoredPayload>, StoreError> {
    // As long as the planner has no statistics of the run it takes it for a short one, which it would sort
    // for every page again. It lasts as long as the transaction.
    sqlx::query("set local enable_sort = off")
        .execute(&mut **tx)
        .await?;
    // The empty string is below every commitment: one comparison, which the index answers in any plan.
    // `seq + 0` keeps the planner from the other index, which is in another order.
    let rows = sqlx::query(
        "select commit, seq, tier, key_version, wrapped_dek, octet_length(ciphertext) = 0 as kept, media, ciphertext from (
           select *, sum(size) over (order by commit rows unbounded preceding) - size as before from (
             select * from payloads where run = $1 and commit > $2 and seq + 0 < $3 and wrapped_dek <> '' order by commit limit $4
           ) as next
         ) as sized where before < $5 order by commit",
    )
    .bind(Uuid::from(run))
    .bind(after.map_or(&[][..], |commit| &commit.0[..]))
    .bind(signed(size))
    .bind(i64::try_from(count).unwrap_or(i64::MAX))
    .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
    .fetch(&mut **tx);
    rows.map(|row| read_stored(&row?)).try_collect().await
}

/// One payload.
pub(crate) async fn one(
    tx: &mut Tx,
    run: &RunId,
    commit: &Hash,
) -> Result<Option<StoredPayload>, StoreError> {
    let row = sqlx::query("select commit, seq, tier, key_version, wrapped_dek, octet_length(ciphertext) = 0 as kept, media, ciphertext from payloads where run = $1 and commit = $2")
        .bind(Uuid::from(run))
        .bind(&commit.0[..])
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| read_stored(&row)).transpose()
}
