//! Retention: policies of tenants, and what of runs they ask for.

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

/// The version that holds; `None` where the tenant has no policy.
pub(crate) async fn last_version(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<Option<u64>, StoreError> {
    let sql = "select max(version) from retention_policies where tenant = $1";
    let version: Option<i64> = sqlx::query_scalar(sql)
        .bind(tenant.as_str())
        .fetch_one(&mut **tx)
        .await?;
    let version = version.map(|version| unsigned(version, "retention_policies", "version"));
    version.transpose()
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
    tiers(tx, tenant, &ids, &mut found).await?;
    if needs.session || needs.gates {
        said(tx, &ids, &mut found).await?;
    }
    if needs.flags {
        flags(tx, &ids, &mut found).await?;
    }
    if needs.access {
        accesses(tx, tenant, &ids, &mut found).await?;
    }
    Ok(found)
}

/// Of which tiers they have payloads.
async fn tiers(
    tx: &mut Tx,
    tenant: &TenantId,
    ids: &[Uuid],
    found: &mut HashMap<RunId, RunFacts>,
) -> Result<(), StoreError> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select run, value from run_facts where tenant = $1 and field = $2 and value in ('1', '2', '3') and run = any($3)",
    )
    .bind(tenant.as_str())
    .bind(field_no(FactField::Tier))
    .bind(ids)
    .fetch_all(&mut **tx)
    .await?;
    for (run, tier) in rows {
        if let (Some(facts), Ok(tier)) = (found.get_mut(&run.into()), tier.parse::<u8>()) {
            facts.tiers |= 1 << tier;
        }
    }
    Ok(())
}

/// What their frames say that rules ask for.
async fn said(
    tx: &mut Tx,
    ids: &[Uuid],
    found: &mut HashMap<RunId, RunFacts>,
) -> Result<(), StoreError> {
    let fields = [
        FactField::Agent,
        FactField::Profile,
        FactField::Release,
        FactField::Label,
        FactField::FailedGate,
    ];
    let sql = "select run, field, value from run_facts where run = any($1) and field = any($2)";
    let rows: Vec<(Uuid, i16, String)> = sqlx::query_as(sql)
        .bind(ids)
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
    Ok(())
}

/// Their flags that stand.
async fn flags(
    tx: &mut Tx,
    ids: &[Uuid],
    found: &mut HashMap<RunId, RunFacts>,
) -> Result<(), StoreError> {
    let sql =
        "select distinct run, flag from run_flags where run = any($1) and cleared_index is null";
    let rows: Vec<(Uuid, String)> = sqlx::query_as(sql).bind(ids).fetch_all(&mut **tx).await?;
    for (run, flag) in rows {
        if let Some(facts) = found.get_mut(&run.into()) {
            facts.flags.push(flag);
        }
    }
    Ok(())
}

/// When they were read last: of each run its last entry alone, by the index of runs' entries.
async fn accesses(
    tx: &mut Tx,
    tenant: &TenantId,
    ids: &[Uuid],
    found: &mut HashMap<RunId, RunFacts>,
) -> Result<(), StoreError> {
    let sql = "select run, at from unnest($2::uuid[]) as wanted (run), lateral (
         select at from ledger_entries where tenant = $1 and ledger_entries.run = wanted.run and name = 'access'
         order by idx desc limit 1) as last";
    let rows: Vec<(Uuid, Time)> = sqlx::query_as(sql)
        .bind(tenant.as_str())
        .bind(ids)
        .fetch_all(&mut **tx)
        .await?;
    for (run, at) in rows {
        if let Some(facts) = found.get_mut(&run.into()) {
            facts.accessed_at = Some(at.0);
        }
    }
    Ok(())
}
