//! Retention: policies of tenants, what of runs they ask for, and the sweeper's list of work.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::facts::{FactField, Facts};
use onrecord_core::frame::{Actor, ActorType, Frame};
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
        };
        found.insert(run, facts);
    }
    if needs.session {
        sessions(tx, &ids, &mut found).await?;
    }
    if needs.gates {
        let sql = "select distinct run, name from frames where run = any($1) and kind_no = 6 and verdict in (2, 3) and name is not null";
        let rows: Vec<(Uuid, String)> = sqlx::query_as(sql).bind(&ids).fetch_all(&mut **tx).await?;
        for (run, gate) in rows {
            if let Some(facts) = found.get_mut(&run.into()) {
                facts.failed_gates.push(gate);
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

/// What frames 0 say.
async fn sessions(
    tx: &mut Tx,
    ids: &[Uuid],
    found: &mut HashMap<RunId, RunFacts>,
) -> Result<(), StoreError> {
    let sql = "select run, bytes from frames where run = any($1) and seq = 0";
    let rows: Vec<(Uuid, Vec<u8>)> = sqlx::query_as(sql).bind(ids).fetch_all(&mut **tx).await?;
    for (run, bytes) in rows {
        let run = RunId::from(run);
        let frame = Frame::parse(&bytes).map_err(|_| contradiction("frames", "bytes", &run))?;
        let said = Facts::of(
            frame.kind,
            frame.actor.kind,
            frame.body.as_bytes(),
            frame.payloads(),
        );
        let Some(facts) = found.get_mut(&run) else {
            continue;
        };
        for fact in said.of_run {
            match fact.field {
                FactField::Agent => facts.agent = Some(fact.value),
                FactField::Profile => facts.profile = Some(fact.value),
                FactField::Release => facts.release = Some(fact.value),
                FactField::Label => facts.labels.push(fact.value),
                _ => {}
            }
        }
    }
    Ok(())
}
