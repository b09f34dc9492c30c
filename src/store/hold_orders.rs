//! Orders of holds: what was ordered, what it found, and how far that is.

use super::holds::requested;
use super::id::Uuid;
use super::people::actor;
use super::search::condition::{Condition, Scope};
use super::time::Time;
use super::{StoreError, Tx, contradiction, unsigned};
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{QueryBuilder, Row as _};

/// What is to be held.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    /// Runs that a filter found.
    Filter(String),
    /// Runs with a payload about a subject, by its fingerprint.
    Subject([u8; 16]),
}

/// An order.
#[derive(Clone, Debug)]
pub(crate) struct OrderRow {
    /// Its id, a ULID as runs have them.
    pub(crate) id: RunId,
    pub(crate) over: Over,
    pub(crate) matter: String,
    pub(crate) reason: Option<String>,
    pub(crate) by: Actor,
    pub(crate) ordered_at: Timestamp,
    /// When all that it had found was on hold for the first time.
    pub(crate) done_at: Option<Timestamp>,
    /// When its release was decided, by whom, and the second person where two were needed.
    pub(crate) release: Option<(Timestamp, Actor, Option<Actor>)>,
    /// When the last of its runs was let go.
    pub(crate) released_at: Option<Timestamp>,
    /// Since when somebody's request to release it waits for another person.
    pub(crate) requested: Option<(Timestamp, Actor)>,
}

/// How far an order is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Runs that it found.
    pub(crate) found: u64,
    /// Those of them that are on hold.
    pub(crate) held: u64,
    /// Those that it let go.
    pub(crate) let_go: u64,
}

const SELECT: &str = "select hold_orders.*, requested_at, hold_releases.by_type as requested_by_type, hold_releases.by_id as requested_by_id
  from hold_orders left join hold_releases on hold_order = hold_orders.id and ended is null";

fn read(row: &PgRow) -> Result<OrderRow, StoreError> {
    let id: String = row.try_get("id")?;
    let wrong = |column| contradiction("hold_orders", column, &id);
    let filter: Option<String> = row.try_get("filter")?;
    let subject: Option<Vec<u8>> = row.try_get("subject")?;
    let over = match (filter, subject) {
        (Some(filter), None) => Over::Filter(filter),
        (None, Some(subject)) => Over::Subject(subject.try_into().map_err(|_| wrong("subject"))?),
        _ => return Err(wrong("filter")),
    };
    let time = |column: &str| {
        row.try_get::<Option<Time>, _>(column)
            .map(|time| time.map(|time| time.0))
    };
    let release = time("release_at")?.map(|at| {
        let with: Option<&str> = row.try_get("release_with_id")?;
        let with = with.map(|_| actor(row, "hold_orders", "release_with"));
        let by = actor(row, "hold_orders", "release_by")?;
        Ok::<_, StoreError>((at, by, with.transpose()?))
    });
    Ok(OrderRow {
        over,
        matter: row.try_get("matter")?,
        reason: row.try_get("reason")?,
        by: actor(row, "hold_orders", "by")?,
        ordered_at: row.try_get::<Time, _>("ordered_at")?.0,
        done_at: time("done_at")?,
        release: release.transpose()?,
        released_at: time("released_at")?,
        requested: requested(row, "hold_orders")?,
        id: id.parse().map_err(|_| wrong("id"))?,
    })
}

/// Finds the runs of an order that is not there yet: those that a condition is true of at this moment.
pub(crate) async fn find_runs(
    tx: &mut Tx,
    tenant: &TenantId,
    id: &RunId,
    condition: &Condition,
) -> Result<u64, StoreError> {
    // As long as it takes: nobody waits for a lock of this.
    sqlx::query("set local statement_timeout = 0")
        .execute(&mut **tx)
        .await?;
    let mut sql =
        QueryBuilder::new("insert into hold_order_runs (hold_order, tenant, run) select ");
    sql.push_bind(id.to_string());
    sql.push(", r.tenant, r.run from runs as r where r.tenant = ")
        .push_bind(tenant.as_str())
        .push(" and ");
    condition.push(&mut sql, Scope::of_all(tenant));
    let done = sql.build().persistent(false).execute(&mut **tx).await?;
    Ok(done.rows_affected())
}

/// Finds the runs with a payload about a subject that an order has not found yet.
pub(crate) async fn find_about(
    tx: &mut Tx,
    tenant: &TenantId,
    id: &RunId,
    subject: &[u8; 16],
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "insert into hold_order_runs (hold_order, tenant, run) select $1, $2, run from runs_about($3) as run
         where not exists (select from hold_order_runs as known where known.hold_order = $1 and known.run = run.run)
         on conflict do nothing",
    )
    .bind(id.to_string())
    .bind(tenant.as_str())
    .bind(&subject[..])
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected())
}

/// Adds an order, whose runs are found.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    order: &OrderRow,
) -> Result<(), StoreError> {
    let (filter, subject) = match &order.over {
        Over::Filter(filter) => (Some(filter.as_str()), None),
        Over::Subject(subject) => (None, Some(&subject[..])),
    };
    sqlx::query(
        "insert into hold_orders (id, tenant, filter, subject, matter, reason, by_type, by_id, ordered_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(order.id.to_string())
    .bind(tenant.as_str())
    .bind(filter)
    .bind(subject)
    .bind(&order.matter)
    .bind(order.reason.as_deref())
    .bind(order.by.kind.as_str())
    .bind(&order.by.id)
    .bind(Time(order.ordered_at))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// An order.
pub(crate) async fn find(tx: &mut Tx, id: &RunId) -> Result<Option<OrderRow>, StoreError> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!(
        "{SELECT} where hold_orders.id = $1"
    )))
    .bind(id.to_string())
    .fetch_optional(&mut **tx)
    .await?;
    row.as_ref().map(read).transpose()
}

/// The order over a subject for a matter that is in force.
pub(crate) async fn of_subject(
    tx: &mut Tx,
    tenant: &TenantId,
    subject: &[u8; 16],
    matter: &str,
) -> Result<Option<OrderRow>, StoreError> {
    let sql = format!(
        "{SELECT} where hold_orders.tenant = $1 and subject = $2 and matter = $3 and release_at is null limit 1"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(&subject[..])
        .bind(matter)
        .fetch_optional(&mut **tx)
        .await?;
    row.as_ref().map(read).transpose()
}

/// Orders, newest first, before one: all that ever were, or those of which not all is let go.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    ever: bool,
    before: Option<&RunId>,
    limit: u32,
) -> Result<Vec<OrderRow>, StoreError> {
    let sql = format!(
        "{SELECT} where hold_orders.tenant = $1 and ($2 or released_at is null) and ($3::text is null or hold_orders.id < $3)
         order by hold_orders.id desc limit $4"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(ever)
        .bind(before.map(ToString::to_string))
        .bind(i64::from(limit))
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// The orders on which something may be to be done, oldest first: those that are not through, that are over a subject, or
/// whose release is decided.
pub(crate) async fn open(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<OrderRow>, StoreError> {
    let sql = format!(
        "{SELECT} where hold_orders.tenant = $1 and released_at is null
           and (done_at is null or subject is not null or release_at is not null) order by hold_orders.id"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// How far an order is.
pub(crate) async fn progress(tx: &mut Tx, id: &RunId) -> Result<Progress, StoreError> {
    let (found, held, let_go): (i64, i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where state = 1), count(*) filter (where state = 2)
         from hold_order_runs where hold_order = $1",
    )
    .bind(id.to_string())
    .fetch_one(&mut **tx)
    .await?;
    let count = |count| unsigned(count, "hold_order_runs", "state");
    Ok(Progress {
        found: count(found)?,
        held: count(held)?,
        let_go: count(let_go)?,
    })
}

/// Runs of an order that wait for their hold.
pub(crate) async fn waiting(tx: &mut Tx, id: &RunId, limit: u32) -> Result<Vec<RunId>, StoreError> {
    let sql =
        "select run from hold_order_runs where hold_order = $1 and state = 0 order by run limit $2";
    some_runs(tx, sql, id, limit).await
}

/// Runs of an order that it has not let go yet.
pub(crate) async fn kept(tx: &mut Tx, id: &RunId, limit: u32) -> Result<Vec<RunId>, StoreError> {
    let sql =
        "select run from hold_order_runs where hold_order = $1 and state < 2 order by run limit $2";
    some_runs(tx, sql, id, limit).await
}

async fn some_runs(
    tx: &mut Tx,
    sql: &'static str,
    id: &RunId,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let runs: Vec<Uuid> = sqlx::query_scalar(sql)
        .bind(id.to_string())
        .bind(i64::from(limit))
        .fetch_all(&mut **tx)
        .await?;
    Ok(runs.into_iter().map(RunId::from).collect())
}

/// Which of some runs are wanted by an order for a matter, other than one.
pub(crate) async fn wanted(
    tx: &mut Tx,
    matter: &str,
    runs: &[RunId],
    but: Option<&RunId>,
) -> Result<Vec<(RunId, String)>, StoreError> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select run, hold_order from hold_order_runs join hold_orders on id = hold_order
         where run = any($1) and state < 2 and matter = $2 and ($3::text is null or hold_order <> $3) order by hold_order",
    )
    .bind(runs.iter().map(Uuid::from).collect::<Vec<_>>())
    .bind(matter)
    .bind(but.map(ToString::to_string))
    .fetch_all(&mut **tx)
    .await?;
    let rows = rows.into_iter().map(|(run, order)| (run.into(), order));
    Ok(rows.collect())
}

/// Writes that runs of an order are on hold.
pub(crate) async fn held(tx: &mut Tx, id: &RunId, runs: &[RunId]) -> Result<(), StoreError> {
    set_state(tx, id, runs, 1).await
}

/// Writes that an order let runs go.
pub(crate) async fn let_go(tx: &mut Tx, id: &RunId, runs: &[RunId]) -> Result<(), StoreError> {
    set_state(tx, id, runs, 2).await
}

async fn set_state(tx: &mut Tx, id: &RunId, runs: &[RunId], state: i16) -> Result<(), StoreError> {
    sqlx::query("update hold_order_runs set state = $3 where hold_order = $1 and run = any($2)")
        .bind(id.to_string())
        .bind(runs.iter().map(Uuid::from).collect::<Vec<_>>())
        .bind(state)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes that all that an order had found is on hold.
pub(crate) async fn done(tx: &mut Tx, id: &RunId, at: Timestamp) -> Result<(), StoreError> {
    sqlx::query("update hold_orders set done_at = $2 where id = $1 and done_at is null")
        .bind(id.to_string())
        .bind(Time(at))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes that an order's release is decided.
pub(crate) async fn decide_release(
    tx: &mut Tx,
    id: &RunId,
    at: Timestamp,
    by: &Actor,
    with: Option<&Actor>,
) -> Result<(), StoreError> {
    sqlx::query(
        "update hold_orders set release_at = $2, release_by_type = $3, release_by_id = $4,
           release_with_type = $5, release_with_id = $6 where id = $1 and release_at is null",
    )
    .bind(id.to_string())
    .bind(Time(at))
    .bind(by.kind.as_str())
    .bind(&by.id)
    .bind(with.map(|with| with.kind.as_str()))
    .bind(with.map(|with| with.id.as_str()))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes that an order has let all its runs go.
pub(crate) async fn released(tx: &mut Tx, id: &RunId, at: Timestamp) -> Result<(), StoreError> {
    sqlx::query("update hold_orders set released_at = $2 where id = $1 and released_at is null")
        .bind(id.to_string())
        .bind(Time(at))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
