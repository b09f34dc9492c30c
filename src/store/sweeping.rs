//! The sweeper's list of work, and how far it is.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, signed, unsigned};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// How far the sweeper of a tenant is, and what its last round did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SweepRow {
    /// Number of the last run that is listed.
    pub(crate) listed: u64,
    /// Runs and payloads of the last round that erased something, and the milliseconds of work that it took.
    pub(crate) runs: u64,
    pub(crate) payloads: u64,
    pub(crate) busy_ms: u64,
    pub(crate) begun_at: Option<Timestamp>,
    /// When it was seen last that nothing is left to do.
    pub(crate) ended_at: Option<Timestamp>,
}

/// What the sweeper notes of a run.
#[derive(Clone, Debug)]
pub(crate) struct WorkRow {
    pub(crate) run: RunId,
    /// `None` for never.
    pub(crate) due: Option<Timestamp>,
    /// `None` for not before the policy changes.
    pub(crate) look_at: Option<Timestamp>,
    pub(crate) version: u64,
    pub(crate) schedule: Option<String>,
    /// Tiers of which nothing is left, as bits.
    pub(crate) done: i16,
}

/// How far the sweeper is.
pub(crate) async fn sweep(tx: &mut Tx, tenant: &TenantId) -> Result<SweepRow, StoreError> {
    let row = sqlx::query("select * from retention_sweeps where tenant = $1")
        .bind(tenant.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else {
        return Ok(SweepRow::default());
    };
    let number = |column| unsigned(row.try_get(column)?, "retention_sweeps", "listed");
    let time = |column| Ok::<_, StoreError>(row.try_get::<Option<Time>, _>(column)?.map(|at| at.0));
    Ok(SweepRow {
        listed: number("listed")?,
        runs: number("runs")?,
        payloads: number("payloads")?,
        busy_ms: number("busy_ms")?,
        begun_at: time("begun_at")?,
        ended_at: time("ended_at")?,
    })
}

/// Writes how far the sweeper is.
pub(crate) async fn update_sweep(
    tx: &mut Tx,
    tenant: &TenantId,
    row: &SweepRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into retention_sweeps (tenant, listed, runs, payloads, busy_ms, begun_at, ended_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (tenant) do update set listed = excluded.listed, runs = excluded.runs, payloads = excluded.payloads,
           busy_ms = excluded.busy_ms, begun_at = excluded.begun_at, ended_at = excluded.ended_at",
    )
    .bind(tenant.as_str())
    .bind(signed(row.listed))
    .bind(signed(row.runs))
    .bind(signed(row.payloads))
    .bind(signed(row.busy_ms))
    .bind(row.begun_at.map(Time))
    .bind(row.ended_at.map(Time))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The next runs that have no row yet, in the order of their numbers, with these.
pub(crate) async fn unlisted(
    tx: &mut Tx,
    tenant: &TenantId,
    after: u64,
    limit: u32,
) -> Result<Vec<(u64, RunId)>, StoreError> {
    let rows: Vec<(i64, Uuid)> = sqlx::query_as(
        "select run_no, run from runs where tenant = $1 and run_no > $2 order by run_no limit $3",
    )
    .bind(tenant.as_str())
    .bind(signed(after))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(no, run): (i64, Uuid)| Ok((unsigned(no, "runs", "run_no")?, run.into()));
    rows.into_iter().map(read).collect()
}

/// Runs of the tenant after one, in the order of their ids.
pub(crate) async fn runs_after(
    tx: &mut Tx,
    tenant: &TenantId,
    after: Option<&RunId>,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let sql = "select run from runs where tenant = $1 and run > $2 order by run limit $3";
    let runs: Vec<Uuid> = sqlx::query_scalar(sql)
        .bind(tenant.as_str())
        .bind(after.map_or(Uuid::MIN, Uuid::from))
        .bind(i64::from(limit))
        .fetch_all(&mut **tx)
        .await?;
    Ok(runs.into_iter().map(RunId::from).collect())
}

/// Runs whose rows are of an older version of the policy, with what they say is done.
pub(crate) async fn outdated(
    tx: &mut Tx,
    tenant: &TenantId,
    version: u64,
    limit: u32,
) -> Result<Vec<(RunId, i16)>, StoreError> {
    along(tx, true).await?;
    let rows: Vec<(Uuid, i16)> = sqlx::query_as(
        "select run, done from run_retention where tenant = $1 and version < $2 order by version limit $3",
    )
    .bind(tenant.as_str())
    .bind(signed(version))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    along(tx, false).await?;
    Ok(with_done(rows))
}

/// A run that is to be looked at, as its row has it.
pub(crate) struct Listed {
    pub(crate) run: RunId,
    pub(crate) done: i16,
    /// Whether something of it expired, by the row.
    pub(crate) is_due: bool,
    pub(crate) look_at: Timestamp,
}

/// Runs that are to be looked at, the most overdue first, from one that is overdue since `from`.
pub(crate) async fn to_look_at(
    tx: &mut Tx,
    tenant: &TenantId,
    (from, now): (Option<Timestamp>, Timestamp),
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    along(tx, true).await?;
    // `from` saves reading what this round has done: it is in the index until somebody cleans up. `infinity` is what the index
    // leaves out.
    let rows: Vec<(Uuid, i16, bool, Time)> = sqlx::query_as(
        "select run, done, due <= $2, look_at from run_retention
         where tenant = $1 and look_at <= $2 and look_at < 'infinity' and look_at >= $4
         order by look_at limit $3",
    )
    .bind(tenant.as_str())
    .bind(Time(now))
    .bind(i64::from(limit))
    .bind(from.or(Timestamp::from_micros(0)).map(Time))
    .fetch_all(&mut **tx)
    .await?;
    along(tx, false).await?;
    let read = |(run, done, is_due, look_at): (Uuid, i16, bool, Time)| Listed {
        run: run.into(),
        done,
        is_due,
        look_at: look_at.0,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Has the next statement read along an index, in its order, or ends that: of a list that PostgreSQL has no statistics of yet it
/// would sort all that is overdue, for each page anew.
async fn along(tx: &mut Tx, is_so: bool) -> Result<(), StoreError> {
    sqlx::query("select set_config(name, $1, true) from unnest(array['enable_bitmapscan', 'enable_sort']) as name")
        .bind(if is_so { "off" } else { "on" })
        .execute(&mut **tx)
        .await?;
    Ok(())
}

fn with_done(rows: Vec<(Uuid, i16)>) -> Vec<(RunId, i16)> {
    rows.into_iter()
        .map(|(run, done)| (run.into(), done))
        .collect()
}

/// Writes what is noted of runs, whether they have rows or not.
pub(crate) async fn note(
    tx: &mut Tx,
    tenant: &TenantId,
    rows: &[WorkRow],
) -> Result<(), StoreError> {
    macro_rules! column {
        ($row:ident => $value:expr) => {
            rows.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "insert into run_retention (tenant, run, due, look_at, version, schedule, done)
         select $1, run, coalesce(due, 'infinity'), coalesce(look_at, 'infinity'), version, schedule, done
         from unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[], $7::smallint[])
           as new (run, due, look_at, version, schedule, done)
         order by run
         on conflict (run) do update set due = excluded.due, look_at = excluded.look_at, version = excluded.version,
           schedule = excluded.schedule, done = excluded.done",
    )
    .bind(tenant.as_str())
    .bind(column!(row => Uuid::from(&row.run)))
    .bind(column!(row => row.due.map(Time)))
    .bind(column!(row => row.look_at.map(Time)))
    .bind(column!(row => signed(row.version)))
    .bind(column!(row => row.schedule.as_deref()))
    .bind(column!(row => row.done))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Has the sweeper look at runs when it comes by next, or at all runs of which something is due: what kept them may have gone, or
/// other rules may be true of them.
pub(crate) async fn look_soon(
    tx: &mut Tx,
    tenant: &TenantId,
    runs: Option<&[RunId]>,
) -> Result<(), StoreError> {
    let runs: Option<Vec<Uuid>> = runs.map(|runs| runs.iter().map(Uuid::from).collect());
    // In the order in which the sweeper writes them.
    sqlx::query(
        "update run_retention set look_at = clock_timestamp() from (
           select run from run_retention
           where tenant = $1 and look_at > clock_timestamp() and ($2::uuid[] is null and due <= clock_timestamp() or run = any($2))
           order by run for update
         ) as those where run_retention.run = those.run",
    )
    .bind(tenant.as_str())
    .bind(runs)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The number of the last run that was opened.
pub(crate) async fn opened(tx: &mut Tx, tenant: &TenantId) -> Result<u64, StoreError> {
    let sql = "select next_run_no - 1 from tenants where tenant = $1";
    let opened: i64 = sqlx::query_scalar(sql)
        .bind(tenant.as_str())
        .fetch_one(&mut **tx)
        .await?;
    unsigned(opened, "tenants", "next_run_no")
}

/// Of how many runs something is due that the sweeper has not come to, and since when.
pub(crate) async fn backlog(
    tx: &mut Tx,
    tenant: &TenantId,
    now: Timestamp,
) -> Result<(u64, Option<Timestamp>), StoreError> {
    let row = sqlx::query(
        "select count(*) as due, min(due) as since from run_retention where tenant = $1 and look_at <= $2 and look_at < 'infinity' and due <= $2",
    )
    .bind(tenant.as_str())
    .bind(Time(now))
    .fetch_one(&mut **tx)
    .await?;
    Ok((
        unsigned(row.try_get("due")?, "run_retention", "due")?,
        row.try_get::<Option<Time>, _>("since")?.map(|at| at.0),
    ))
}
