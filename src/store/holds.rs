//! Holds, as the ledger's statements have them.

use super::id::Uuid;
use super::people::actor;
use super::time::Time;
use super::{StoreError, Tx, signed, unsigned};
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::HashMap;

/// A hold.
#[derive(Clone, Debug)]
pub(crate) struct HoldRow {
    /// The ledger's index of the statement that set it.
    pub(crate) index: u64,
    /// The run; `None` for the whole tenant.
    pub(crate) run: Option<RunId>,
    pub(crate) matter: String,
    pub(crate) reason: Option<String>,
    pub(crate) by: Actor,
    pub(crate) at: Timestamp,
    /// The order by which it was set.
    pub(crate) order: Option<RunId>,
    /// Whether somebody asked for it by itself.
    pub(crate) alone: bool,
    /// Since when somebody's request to release it waits for another person.
    pub(crate) requested: Option<(Timestamp, Actor)>,
    pub(crate) released: Option<ReleasedRow>,
}

/// The end of a hold.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedRow {
    pub(crate) index: u64,
    pub(crate) at: Timestamp,
    pub(crate) by: Actor,
    /// The second person, where two were needed.
    pub(crate) with: Option<Actor>,
}

/// Which holds a list is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoldFilter {
    /// Those too that were released.
    pub(crate) ever: bool,
    pub(crate) matter: Option<String>,
    /// Over this run.
    pub(crate) run: Option<RunId>,
    /// With higher numbers.
    pub(crate) after: Option<u64>,
}

/// A hold that is in the way of an erasure: its matter and number, which one that was ordered has not got before it is set.
pub(crate) type InTheWay = (String, Option<u64>);

/// What is in the way of erasing.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Over the whole tenant.
    pub(crate) tenant: Option<InTheWay>,
    /// Over runs.
    pub(crate) runs: HashMap<RunId, InTheWay>,
}

const SELECT: &str = "select holds.*, requested_at, hold_releases.by_type as requested_by_type, hold_releases.by_id as requested_by_id
  from holds left join hold_releases on hold_releases.tenant = holds.tenant and hold = ledger_index and ended is null
  where holds.tenant = $1";

/// What is in the way of erasing anything of some runs: holds over them and over the tenant, orders that have found them and
/// have not set their holds yet, and orders over subjects whom a payload of theirs is about. One query, however many they are.
pub(crate) async fn over(
    tx: &mut Tx,
    tenant: &TenantId,
    runs: &[RunId],
) -> Result<Held, StoreError> {
    // What a `lateral` is asked for each order over a subject, of which there are none mostly.
    let rows: Vec<(Option<Uuid>, String, Option<i64>)> = sqlx::query_as(
        "select run, matter, ledger_index from holds where run = any($1) and released_index is null
         union all
         select null, matter, ledger_index from holds where tenant = $2 and run is null and released_index is null
         union all
         select found.run, matter, null from hold_order_runs as found join hold_orders on id = hold_order
         where found.run = any($1) and state = 0
         union all
         select about.run, matter, null from hold_orders, lateral (
           select distinct run from payloads
           where run = any($1) and subjects is not null and subject_list(subjects) @> array[hold_orders.subject]
         ) as about
         where tenant = $2 and released_at is null and release_at is null and subject is not null
         order by 3 nulls last",
    )
    .bind(runs.iter().map(Uuid::from).collect::<Vec<_>>())
    .bind(tenant.as_str())
    .fetch_all(&mut **tx)
    .await?;
    let mut held = Held::default();
    for (run, matter, index) in rows {
        let index = index.map(|index| unsigned(index, "holds", "ledger_index"));
        let found = (matter, index.transpose()?);
        match run {
            Some(run) => {
                held.runs.entry(run.into()).or_insert(found);
            }
            None => {
                held.tenant.get_or_insert(found);
            }
        }
    }
    Ok(held)
}

/// Adds holds that the ledger has.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    holds: &[HoldRow],
) -> Result<(), StoreError> {
    macro_rules! column {
        ($row:pat => $value:expr) => {
            holds.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "insert into holds (tenant, ledger_index, run, matter, reason, set_at, by_type, by_id, hold_order, alone)
         select $1, * from unnest($2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[], $9::text[], $10::bool[])",
    )
    .bind(tenant.as_str())
    .bind(column!(hold => signed(hold.index)))
    .bind(column!(hold => hold.run.as_ref().map(Uuid::from)))
    .bind(column!(hold => hold.matter.as_str()))
    .bind(column!(hold => hold.reason.as_deref()))
    .bind(column!(hold => Time(hold.at)))
    .bind(column!(hold => hold.by.kind.as_str()))
    .bind(column!(hold => hold.by.id.as_str()))
    .bind(column!(hold => hold.order.as_ref().map(ToString::to_string)))
    .bind(column!(hold => hold.alone))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A hold by its number.
pub(crate) async fn find(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
) -> Result<Option<HoldRow>, StoreError> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!(
        "{SELECT} and ledger_index = $2"
    )))
    .bind(tenant.as_str())
    .bind(signed(index))
    .fetch_optional(&mut **tx)
    .await?;
    row.as_ref().map(read).transpose()
}

/// The hold of a matter that is in force over the whole tenant.
pub(crate) async fn of_tenant(
    tx: &mut Tx,
    tenant: &TenantId,
    matter: &str,
) -> Result<Option<HoldRow>, StoreError> {
    let sql = format!("{SELECT} and matter = $2 and run is null and released_index is null");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(matter)
        .fetch_optional(&mut **tx)
        .await?;
    row.as_ref().map(read).transpose()
}

/// The holds of a matter that are in force over some runs.
pub(crate) async fn of_runs(
    tx: &mut Tx,
    tenant: &TenantId,
    matter: &str,
    runs: &[RunId],
) -> Result<HashMap<RunId, HoldRow>, StoreError> {
    let sql = format!("{SELECT} and matter = $2 and run = any($3) and released_index is null");
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(matter)
        .bind(runs.iter().map(Uuid::from).collect::<Vec<_>>())
        .fetch_all(&mut **tx)
        .await?;
    let mut holds = HashMap::new();
    for row in &rows {
        let hold = read(row)?;
        holds.extend(hold.run.clone().map(|run| (run, hold)));
    }
    Ok(holds)
}

/// Notes that somebody asked for a hold by itself which an order had set.
pub(crate) async fn ask_alone(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
) -> Result<(), StoreError> {
    sqlx::query("update holds set alone = true where tenant = $1 and ledger_index = $2")
        .bind(tenant.as_str())
        .bind(signed(index))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes the ends of holds, by their numbers.
pub(crate) async fn release(
    tx: &mut Tx,
    tenant: &TenantId,
    ends: &[(u64, ReleasedRow)],
) -> Result<(), StoreError> {
    macro_rules! column {
        ($row:pat => $value:expr) => {
            ends.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "update holds set released_index = ended.index, released_at = ended.at, released_by_type = ended.by_type,
           released_by_id = ended.by_id, released_with_type = ended.with_type, released_with_id = ended.with_id
         from unnest($2::bigint[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[])
           as ended (hold, index, at, by_type, by_id, with_type, with_id)
         where tenant = $1 and ledger_index = ended.hold and released_index is null",
    )
    .bind(tenant.as_str())
    .bind(column!((hold, _) => signed(*hold)))
    .bind(column!((_, end) => signed(end.index)))
    .bind(column!((_, end) => Time(end.at)))
    .bind(column!((_, end) => end.by.kind.as_str()))
    .bind(column!((_, end) => end.by.id.as_str()))
    .bind(column!((_, end) => end.with.as_ref().map(|with| with.kind.as_str())))
    .bind(column!((_, end) => end.with.as_ref().map(|with| with.id.as_str())))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Holds in the order in which they were set.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    filter: &HoldFilter,
    limit: u32,
) -> Result<Vec<HoldRow>, StoreError> {
    let sql = format!(
        "{SELECT} and ($2 or released_index is null) and ($3::text is null or matter = $3)
           and ($4::uuid is null or run = $4) and ledger_index > $5 order by ledger_index limit $6"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(filter.ever)
        .bind(filter.matter.as_deref())
        .bind(filter.run.as_ref().map(Uuid::from))
        .bind(filter.after.map_or(-1, signed))
        .bind(i64::from(limit))
        // Planned for its values each time, since which index serves depends on them.
        .persistent(false)
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// Who asked to release something, in a row that is joined with the request.
pub(super) fn requested(
    row: &PgRow,
    table: &'static str,
) -> Result<Option<(Timestamp, Actor)>, StoreError> {
    let at: Option<Time> = row.try_get("requested_at")?;
    at.map(|at| Ok((at.0, actor(row, table, "requested_by")?)))
        .transpose()
}

fn read(row: &PgRow) -> Result<HoldRow, StoreError> {
    let released: Option<i64> = row.try_get("released_index")?;
    let released = released.map(|index| {
        let with: Option<&str> = row.try_get("released_with_id")?;
        Ok::<_, StoreError>(ReleasedRow {
            index: unsigned(index, "holds", "released_index")?,
            at: row.try_get::<Time, _>("released_at")?.0,
            by: actor(row, "holds", "released_by")?,
            with: with
                .map(|_| actor(row, "holds", "released_with"))
                .transpose()?,
        })
    });
    let order: Option<String> = row.try_get("hold_order")?;
    Ok(HoldRow {
        index: unsigned(row.try_get("ledger_index")?, "holds", "ledger_index")?,
        run: row.try_get::<Option<Uuid>, _>("run")?.map(RunId::from),
        matter: row.try_get("matter")?,
        reason: row.try_get("reason")?,
        by: actor(row, "holds", "by")?,
        at: row.try_get::<Time, _>("set_at")?.0,
        order: order.and_then(|order| order.parse().ok()),
        alone: row.try_get("alone")?,
        requested: requested(row, "holds")?,
        released: released.transpose()?,
    })
}
