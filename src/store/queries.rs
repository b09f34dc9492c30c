//! Questions over many runs: those that were asked, and filters that are kept under a name.

use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// A question that was asked.
#[derive(Clone, Debug)]
pub(crate) struct QueryRow {
    pub(crate) ledger_index: u64,
    pub(crate) at: Timestamp,
    pub(crate) resource: String,
    pub(crate) purpose: String,
    pub(crate) by: Actor,
    /// All of it, as canonical JSON.
    pub(crate) text: Vec<u8>,
}

/// A filter under a name.
#[derive(Clone, Debug)]
pub(crate) struct SavedRow {
    pub(crate) name: String,
    pub(crate) resource: String,
    pub(crate) filter: String,
    pub(crate) by: Actor,
    pub(crate) at: Timestamp,
}

/// Adds questions, in one statement.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    queries: &[QueryRow],
) -> Result<(), StoreError> {
    let each = queries.iter();
    sqlx::query(
        "insert into queries (tenant, ledger_index, at, resource, purpose, actor_type, actor_id, text)
         select $1, * from unnest($2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])",
    )
    .bind(tenant.as_str())
    .bind(Vec::from_iter(each.clone().map(|query| signed(query.ledger_index))))
    .bind(Vec::from_iter(each.clone().map(|query| Time(query.at))))
    .bind(Vec::from_iter(each.clone().map(|query| &query.resource[..])))
    .bind(Vec::from_iter(each.clone().map(|query| &query.purpose[..])))
    .bind(Vec::from_iter(each.clone().map(|query| query.by.kind.as_str())))
    .bind(Vec::from_iter(each.clone().map(|query| &query.by.id[..])))
    .bind(Vec::from_iter(each.map(|query| &query.text[..])))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The last questions below an index of the ledger, the last first: at most so many.
pub(crate) async fn page(
    tx: &mut Tx,
    tenant: &TenantId,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<QueryRow>, StoreError> {
    let rows = sqlx::query(
        "select * from queries where tenant = $1 and ledger_index < $2 order by ledger_index desc limit $3",
    )
    .bind(tenant.as_str())
    .bind(before.map_or(i64::MAX, signed))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    let read = |row: &PgRow| {
        Ok(QueryRow {
            ledger_index: unsigned(row.try_get("ledger_index")?, "queries", "ledger_index")?,
            at: row.try_get::<Time, _>("at")?.0,
            resource: row.try_get("resource")?,
            purpose: row.try_get("purpose")?,
            by: actor(row, "queries")?,
            text: row.try_get("text")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Removes the text of a question, in a transaction that may erase; false where there is none.
pub(crate) async fn forget(
    tx: &mut Tx,
    tenant: &TenantId,
    ledger_index: u64,
) -> Result<bool, StoreError> {
    let done = sqlx::query("delete from queries where tenant = $1 and ledger_index = $2")
        .bind(tenant.as_str())
        .bind(signed(ledger_index))
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Keeps a filter under its name, in place of what was kept there; whether nothing was.
pub(crate) async fn save(
    tx: &mut Tx,
    tenant: &TenantId,
    saved: &SavedRow,
) -> Result<bool, StoreError> {
    let is_new: bool = sqlx::query_scalar(
        "insert into saved_queries (tenant, name, resource, filter, actor_type, actor_id, at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (tenant, name) do update set resource = excluded.resource, filter = excluded.filter,
           actor_type = excluded.actor_type, actor_id = excluded.actor_id, at = excluded.at
         returning xmax = 0",
    )
    .bind(tenant.as_str())
    .bind(&saved.name)
    .bind(&saved.resource)
    .bind(&saved.filter)
    .bind(saved.by.kind.as_str())
    .bind(&saved.by.id)
    .bind(Time(saved.at))
    .fetch_one(&mut **tx)
    .await?;
    Ok(is_new)
}

/// Kept filters by their names, from behind a name on, at most so many; or the one of a name.
pub(crate) async fn saved(
    tx: &mut Tx,
    tenant: &TenantId,
    which: Which<'_>,
) -> Result<Vec<SavedRow>, StoreError> {
    let (name, after, limit) = match which {
        Which::Named(name) => (Some(name), "", 1),
        Which::After(after, limit) => (None, after, limit),
    };
    let rows = sqlx::query(
        "select * from saved_queries where tenant = $1 and name > $2 and ($3::text is null or name = $3) order by name limit $4",
    )
    .bind(tenant.as_str())
    .bind(after)
    .bind(name)
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    let read = |row: &PgRow| {
        Ok(SavedRow {
            name: row.try_get("name")?,
            resource: row.try_get("resource")?,
            filter: row.try_get("filter")?,
            by: actor(row, "saved_queries")?,
            at: row.try_get::<Time, _>("at")?.0,
        })
    };
    rows.iter().map(read).collect()
}

/// Which of the kept filters.
pub(crate) enum Which<'a> {
    /// The one of this name.
    Named(&'a str),
    /// Those behind this name, at most so many.
    After(&'a str, u32),
}

/// Removes a kept filter; false where there is none of that name.
pub(crate) async fn remove(tx: &mut Tx, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
    let done = sqlx::query("delete from saved_queries where tenant = $1 and name = $2")
        .bind(tenant.as_str())
        .bind(name)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

fn actor(row: &PgRow, table: &'static str) -> Result<Actor, StoreError> {
    let kind: String = row.try_get("actor_type")?;
    Ok(Actor {
        id: row.try_get("actor_id")?,
        keyid: None,
        kind: ActorType::from_word(&kind)
            .ok_or_else(|| contradiction(table, "actor_type", kind))?,
    })
}
