//! Ledgers: entries, the nodes of their trees, and checkpoints.

use super::id::Uuid;
use super::tenants::LockedTenant;
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use std::collections::HashMap;
use std::ops::Range;

/// What the columns of a new entry say of it.
pub(crate) struct NewEntry {
    pub(crate) name: &'static str,
    pub(crate) run: Option<RunId>,
    pub(crate) at: Timestamp,
}

/// An entry that has its place.
pub(crate) struct Appended {
    pub(crate) index: u64,
    pub(crate) leaf: Hash,
    /// The envelope.
    pub(crate) bytes: Vec<u8>,
}

/// Adds entries and the subtrees that they complete, as `(level, index, hash)`, and writes what the ledger has become: one
/// statement, however many they are.
pub(crate) async fn write(
    tx: &mut Tx,
    tenant: &LockedTenant,
    entries: &[(NewEntry, Appended)],
    nodes: &[(u8, u64, Hash)],
) -> Result<(), StoreError> {
    let frontier: Vec<u8> = tenant
        .ledger
        .nodes()
        .iter()
        .flat_map(|node| node.0)
        .collect();
    macro_rules! column {
        ($rows:expr, $row:pat => $value:expr) => {
            $rows.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "with entries as (
           insert into ledger_entries (tenant, idx, name, run, at, leaf, bytes)
           select $1, * from unnest($2::bigint[], $3::text[], $4::uuid[], $5::timestamptz[], $6::bytea[], $7::bytea[])
         ), nodes as (
           insert into ledger_nodes (tenant, level, idx, hash)
           select $1, * from unnest($8::smallint[], $9::bigint[], $10::bytea[])
         )
         update tenants set ledger_size = $11, ledger_nodes = $12, ledger_at = coalesce($13, ledger_at) where tenant = $1",
    )
    .bind(tenant.tenant.as_str())
    .bind(column!(entries, (_, one) => signed(one.index)))
    .bind(column!(entries, (one, _) => one.name))
    .bind(column!(entries, (one, _) => one.run.as_ref().map(Uuid::from)))
    .bind(column!(entries, (one, _) => Time(one.at)))
    .bind(column!(entries, (_, one) => &one.leaf.0[..]))
    .bind(column!(entries, (_, one) => one.bytes.as_slice()))
    .bind(column!(nodes, (level, ..) => i16::from(*level)))
    .bind(column!(nodes, (_, index, _) => signed(*index)))
    .bind(column!(nodes, (.., hash) => &hash.0[..]))
    .bind(signed(tenant.ledger.size()))
    .bind(frontier)
    .bind(tenant.ledger_at.map(Time))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Adds the signed checkpoint of a size.
pub(crate) async fn insert_checkpoint(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
    note: &str,
) -> Result<(), StoreError> {
    sqlx::query("insert into checkpoints (tenant, size, note) values ($1, $2, $3)")
        .bind(tenant.as_str())
        .bind(signed(size))
        .bind(note)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The newest checkpoint and its size.
pub(crate) async fn checkpoint(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<(u64, String), StoreError> {
    let row = sqlx::query(
        "select size, note from checkpoints where tenant = $1 order by size desc limit 1",
    )
    .bind(tenant.as_str())
    .fetch_one(&mut **tx)
    .await?;
    Ok((
        unsigned(row.try_get("size")?, "checkpoints", "size")?,
        row.try_get("note")?,
    ))
}

/// The note of the checkpoint of a size.
pub(crate) async fn checkpoint_of(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
) -> Result<String, StoreError> {
    let note = sqlx::query_scalar("select note from checkpoints where tenant = $1 and size = $2")
        .bind(tenant.as_str())
        .bind(signed(size))
        .fetch_one(&mut **tx)
        .await?;
    Ok(note)
}

/// The first checkpoint of a size or above, and its size.
pub(crate) async fn checkpoint_from(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
) -> Result<Option<(u64, String)>, StoreError> {
    let row = sqlx::query(
        "select size, note from checkpoints where tenant = $1 and size >= $2 order by size limit 1",
    )
    .bind(tenant.as_str())
    .bind(signed(size))
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| {
        Ok((
            unsigned(row.try_get("size")?, "checkpoints", "size")?,
            row.try_get("note")?,
        ))
    })
    .transpose()
}

/// The hashes of adjacent nodes of a level, one behind the other; all of them have to be there.
pub(crate) async fn hashes(
    tx: &mut Tx,
    tenant: &TenantId,
    level: u8,
    nodes: Range<u64>,
) -> Result<Vec<u8>, StoreError> {
    let hashes: Vec<Vec<u8>> = sqlx::query_scalar(
        "select hash from ledger_nodes where tenant = $1 and level = $2 and idx >= $3 and idx < $4 order by idx",
    )
    .bind(tenant.as_str())
    .bind(i16::from(level))
    .bind(signed(nodes.start))
    .bind(signed(nodes.end))
    .fetch_all(&mut **tx)
    .await?;
    let wrong = || {
        let row = format!("{tenant}/{level}/{}-{}", nodes.start, nodes.end);
        contradiction("ledger_nodes", "hash", row)
    };
    if hashes.len() as u64 != nodes.end - nodes.start || hashes.iter().any(|hash| hash.len() != 32)
    {
        return Err(wrong());
    }
    Ok(hashes.concat())
}

/// Nodes of the tree by level and index; all of them have to be there.
pub(crate) async fn nodes(
    tx: &mut Tx,
    tenant: &TenantId,
    wanted: &[(u8, u64)],
) -> Result<HashMap<(u8, u64), Hash>, StoreError> {
    // Each by the key, in whatever way the transaction has its statements planned.
    let rows = sqlx::query(
        "select node.level, node.idx, node.hash from unnest($2::smallint[], $3::bigint[]) as wanted (level, idx),
           lateral (select * from ledger_nodes where tenant = $1 and level = wanted.level and idx = wanted.idx limit 1) as node",
    )
    .bind(tenant.as_str())
    .bind(wanted.iter().map(|(level, _)| i16::from(*level)).collect::<Vec<_>>())
    .bind(wanted.iter().map(|(_, index)| signed(*index)).collect::<Vec<_>>())
    .fetch_all(&mut **tx)
    .await?;
    let mut found = HashMap::new();
    for row in &rows {
        let level = u8::try_from(row.try_get::<i16, _>("level")?)
            .map_err(|_| contradiction("ledger_nodes", "level", tenant))?;
        found.insert(
            (level, unsigned(row.try_get("idx")?, "ledger_nodes", "idx")?),
            hash(row.try_get("hash")?, "ledger_nodes", "hash")?,
        );
    }
    match wanted.iter().find(|node| !found.contains_key(node)) {
        Some((level, index)) => Err(contradiction(
            "ledger_nodes",
            "hash",
            format!("{tenant}/{level}/{index}"),
        )),
        None => Ok(found),
    }
}

/// The bytes of an entry.
pub(crate) async fn entry(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
) -> Result<Vec<u8>, StoreError> {
    Ok(
        sqlx::query_scalar("select bytes from ledger_entries where tenant = $1 and idx = $2")
            .bind(tenant.as_str())
            .bind(signed(index))
            .fetch_one(&mut **tx)
            .await?,
    )
}

/// An entry as it is kept.
pub(crate) struct EntryRow {
    pub(crate) index: u64,
    pub(crate) name: String,
    pub(crate) run: Option<RunId>,
    pub(crate) at: Timestamp,
    pub(crate) leaf: Hash,
    pub(crate) bytes: Vec<u8>,
}

/// The entries of some indexes; all of them have to be there.
pub(crate) async fn entries(
    tx: &mut Tx,
    tenant: &TenantId,
    indexes: Range<u64>,
) -> Result<Vec<EntryRow>, StoreError> {
    let rows = sqlx::query(
        "select idx, name, run, at, leaf, bytes from ledger_entries where tenant = $1 and idx >= $2 and idx < $3 order by idx",
    )
    .bind(tenant.as_str())
    .bind(signed(indexes.start))
    .bind(signed(indexes.end))
    .fetch_all(&mut **tx)
    .await?;
    if rows.len() as u64 != indexes.end.saturating_sub(indexes.start) {
        let row = format!("{tenant}/{}-{}", indexes.start, indexes.end);
        return Err(contradiction("ledger_entries", "idx", row));
    }
    rows.iter()
        .map(|row| {
            let (index, bytes) = read_entry(row)?;
            Ok(EntryRow {
                index,
                name: row.try_get("name")?,
                run: row.try_get::<Option<Uuid>, _>("run")?.map(RunId::from),
                at: row.try_get::<Time, _>("at")?.0,
                leaf: hash(row.try_get("leaf")?, "ledger_entries", "leaf")?,
                bytes,
            })
        })
        .collect()
}

/// What a bundle of a run says of the ledger: the entries about the run but its seal, and those about
/// the tenant's keys and holds, by index.
pub(crate) async fn about(
    tx: &mut Tx,
    tenant: &TenantId,
    run: &RunId,
    size: u64,
) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let rows = sqlx::query(
        "select idx, bytes from ledger_entries where tenant = $1 and idx < $3
           and ((run = $2 and name <> 'run-seal') or (run is null and name in ('key', 'hold')))
         order by idx",
    )
    .bind(tenant.as_str())
    .bind(Uuid::from(run))
    .bind(signed(size))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(read_entry).collect()
}

/// The erasures of a run, by index.
pub(crate) async fn erasures(
    tx: &mut Tx,
    tenant: &TenantId,
    run: &RunId,
) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let rows = sqlx::query(
        "select idx, bytes from ledger_entries where tenant = $1 and run = $2 and name = 'erasure' order by idx",
    )
    .bind(tenant.as_str())
    .bind(Uuid::from(run))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(read_entry).collect()
}

/// The erasures of runs, by index.
pub(crate) async fn erasures_of(
    tx: &mut Tx,
    tenant: &TenantId,
    runs: &[RunId],
) -> Result<Vec<(RunId, u64, Vec<u8>)>, StoreError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    // Of each run by itself: asked for in the order of the ledger, PostgreSQL would read the ledger.
    let rows = sqlx::query(
        "select wanted.run, idx, bytes from unnest($2::uuid[]) as wanted (run), lateral (
           select idx, bytes from ledger_entries
           where tenant = $1 and ledger_entries.run = wanted.run and name = 'erasure' order by idx offset 0) as found",
    )
    .bind(tenant.as_str())
    .bind(runs.iter().map(Uuid::from).collect::<Vec<_>>())
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            let (index, bytes) = read_entry(row)?;
            Ok((row.try_get::<Uuid, _>("run")?.into(), index, bytes))
        })
        .collect()
}

/// The indexes of erasures from an index on, with the runs that they are about.
pub(crate) async fn erasures_from(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
) -> Result<Vec<(u64, RunId)>, StoreError> {
    let rows: Vec<(i64, Uuid)> = sqlx::query_as(
        "select idx, run from ledger_entries where tenant = $1 and idx >= $2 and name = 'erasure' and run is not null",
    )
    .bind(tenant.as_str())
    .bind(signed(index))
    .fetch_all(&mut **tx)
    .await?;
    let read =
        |(index, run): (i64, Uuid)| Ok((unsigned(index, "ledger_entries", "idx")?, run.into()));
    rows.into_iter().map(read).collect()
}

fn read_entry(row: &sqlx::postgres::PgRow) -> Result<(u64, Vec<u8>), StoreError> {
    Ok((
        unsigned(row.try_get("idx")?, "ledger_entries", "idx")?,
        row.try_get("bytes")?,
    ))
}
