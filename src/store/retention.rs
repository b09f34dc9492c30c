//! Retention: policies of tenants, what of runs they ask for, and the sweeper's list of work.

use super::facts::field_no;
use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::facts::FactField;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::HashMap;

/// A version of a tenant's policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRow {
    pub(crate) version: u64,
    pub(crate) at: Timestamp,
    pub(crate) by: Actor,
    pub(crate) ledger_index: u64,
    pub(crate) document: Vec<u8>,
}

/// All versions, from the first.
pub(crate) async fn policies(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<PolicyRow>, StoreError> {
    let rows = sqlx::query("select * from retention_policies where tenant = $1 order by version")
        .bind(tenant.as_str())
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read_policy).collect()
}

/// The document that holds, with its version.
pub(crate) async fn last_policy(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let sql = "select version, document from retention_policies where tenant = $1 order by version desc limit 1";
    Ok(sqlx::query_as(sql)
        .bind(tenant.as_str())
        .fetch_optional(&mut **tx)
        .await?)
}

/// Whether the tenant has a policy.
pub(crate) async fn has_policy(tx: &mut Tx, tenant: &TenantId) -> Result<bool, StoreError> {
    let sql = "select exists (select from retention_policies where tenant = $1)";
    Ok(sqlx::query_scalar(sql)
        .bind(tenant.as_str())
        .fetch_one(&mut **tx)
        .await?)
}

/// Adds a version.
pub(crate) async fn insert_policy(
    tx: &mut Tx,
    tenant: &TenantId,
    row: &PolicyRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into retention_policies (tenant, version, at, actor_type, actor_id, ledger_index, document)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(tenant.as_str())
    .bind(signed(row.version))
    .bind(Time(row.at))
    .bind(row.by.kind.as_str())
    .bind(&row.by.id)
    .bind(signed(row.ledger_index))
    .bind(&row.document)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn read_policy(row: &PgRow) -> Result<PolicyRow, StoreError> {
    let kind: String = row.try_get("actor_type")?;
    Ok(PolicyRow {
        version: unsigned(row.try_get("version")?, "retention_policies", "version")?,
        at: row.try_get::<Time, _>("at")?.0,
        by: Actor {
            id: row.try_get("actor_id")?,
            keyid: None,
            kind: ActorType::from_word(&kind)
                .ok_or_else(|| contradiction("retention_policies", "actor_type", kind))?,
        },
        ledger_index: unsigned(
            row.try_get("ledger_index")?,
            "retention_policies",
            "ledger_index",
        )?,
        document: row.try_get("document")?,
    })
}

/// What a run is, as far as retention goes by it.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    pub(crate) run: RunId,
    pub(crate) opened_at: Timestamp,
    pub(crate) last_at: Timestamp,
    pub(crate) sealed_at: Option<Timestamp>,
    /// When payloads of it were read last, as the ledger says.
    pub(crate) accessed_at: Option<Timestamp>,
    pub(crate) outcome: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) release: Option<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) failed_gates: Vec<String>,
    pub(crate) flags: Vec<String>,
    /// Tiers of which it has payloads, or had: 2 for tier 1, and so on.
    pub(crate) tiers: i16,
}

/// What is to be read of runs besides their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// What frame 0 says.
    pub(crate) session: bool,
    /// Which gates failed.
    pub(crate) gates: bool,
    /// What it is flagged with.
    pub(crate) flags: bool,
    /// When it was read last.
    pub(crate) access: bool,
}

/// What runs are; those that are not there are left out. What is not needed is empty.
pub(crate) async fn facts(
    tx: &mut Tx,
    tenant: &TenantId,
    runs: &[RunId],
    needs: Needs,
) -> Result<HashMap<RunId, RunFacts>, StoreError> {
    let ids: Vec<Uuid> = runs.iter().map(Uuid::from).collect();
    let rows = sqlx::query(
        "select run, opened_at, last_at, sealed_at, outcome from runs where run = any($1)",
    )
    .bind(&ids)
    .fetch_all(&mut **tx)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let run: RunId = row.try_get::<Uuid, _>("run")?.into();
        let facts = RunFacts {
            run: run.clone(),
            opened_at: row.try_get::<Time, _>("opened_at")?.0,
            last_at: row.try_get::<Time, _>("last_at")?.0,
            sealed_at: row.try_get::<Option<Time>, _>("sealed_at")?.map(|at| at.0),
            accessed_at: None,
            outcome: row.try_get("outcome")?,
            agent: None,
            profile: None,
            release: None,
            labels: Vec::new(),
            failed_gates: Vec::new(),
            flags: Vec::new(),
            tiers: 0,
        };
        found.insert(run, facts);
    }
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select run, value from run_facts where tenant = $1 and field = $2 and value in ('1', '2', '3') and run = any($3)",
    )
    .bind(tenant.as_str())
    .bind(field_no(FactField::Tier))
    .bind(&ids)
    .fetch_all(&mut **tx)
    .await?;
    for (run, tier) in rows {
        if let (Some(facts), Ok(tier)) = (found.get_mut(&run.into()), tier.parse::<u8>()) {
            facts.tiers |= 1 << tier;
        }
    }
    if needs.session || needs.gates {
        let fields = [
            FactField::Agent,
            FactField::Profile,
            FactField::Release,
            FactField::Label,
            FactField::FailedGate,
        ];
        let sql = "select run, field, value from run_facts where run = any($1) and field = any($2)";
        let rows: Vec<(Uuid, i16, String)> = sqlx::query_as(sql)
            .bind(&ids)
            .bind(fields.map(field_no).to_vec())
            .fetch_all(&mut **tx)
            .await?;
        for (run, field, value) in rows {
            let field = fields.into_iter().find(|one| field_no(*one) == field);
            let (Some(facts), Some(field)) = (found.get_mut(&run.into()), field) else {
                continue;
            };
            match field {
                FactField::Agent => facts.agent = Some(value),
                FactField::Profile => facts.profile = Some(value),
                FactField::Release => facts.release = Some(value),
                FactField::Label => facts.labels.push(value),
                _ => facts.failed_gates.push(value),
            }
        }
    }
    if needs.flags {
        let sql = "select distinct run, flag from run_flags where run = any($1) and cleared_index is null";
        let rows: Vec<(Uuid, String)> = sqlx::query_as(sql).bind(&ids).fetch_all(&mut **tx).await?;
        for (run, flag) in rows {
            if let Some(facts) = found.get_mut(&run.into()) {
                facts.flags.push(flag);
            }
        }
    }
    if needs.access {
        // The last of each run alone, by the index of runs' entries.
        let sql = "select run, at from unnest($2::uuid[]) as wanted (run), lateral (
             select at from ledger_entries where tenant = $1 and ledger_entries.run = wanted.run and name = 'access'
             order by idx desc limit 1) as last";
        let rows: Vec<(Uuid, Time)> = sqlx::query_as(sql)
            .bind(tenant.as_str())
            .bind(&ids)
            .fetch_all(&mut **tx)
            .await?;
        for (run, at) in rows {
            if let Some(facts) = found.get_mut(&run.into()) {
                facts.accessed_at = Some(at.0);
            }
        }
    }
    Ok(found)
}

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
    let rows: Vec<(Uuid, i16)> = sqlx::query_as(
        "select run, done from run_retention where tenant = $1 and version < $2 order by version limit $3",
    )
    .bind(tenant.as_str())
    .bind(signed(version))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(run, done)| (run.into(), done))
        .collect())
}

/// Runs that are to be looked at, the most overdue first, with what their rows say is done.
pub(crate) async fn to_look_at(
    tx: &mut Tx,
    tenant: &TenantId,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(RunId, i16)>, StoreError> {
    let rows: Vec<(Uuid, i16)> = sqlx::query_as(
        "select run, done from run_retention where tenant = $1 and look_at <= $2 order by look_at limit $3",
    )
    .bind(tenant.as_str())
    .bind(Time(now))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(run, done)| (run.into(), done))
        .collect())
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
        "select count(*) as due, min(due) as since from run_retention where tenant = $1 and look_at <= $2 and due <= $2",
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
