//! What all sealed runs of a tenant together have of what a record of use should have: counted by what is said of runs, which is an
//! index alone, so that it takes seconds at a million runs.

use super::SECONDS_OF_COUNTS;
use crate::store::facts::field_no;
use crate::store::{StoreError, Tx, unsigned};
use onrecord_core::coverage::OF_MODELS;
use onrecord_core::facts::FactField;
use onrecord_core::frame::Kind;
use onrecord_core::id::TenantId;
use std::collections::BTreeMap;

/// Sealed runs, and what of them lack something or ask for something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    pub(crate) runs: u64,
    /// Those that lack a fact, by its name.
    pub(crate) missing: BTreeMap<String, u64>,
    /// Those with a call of a tool.
    pub(crate) tool_calls: u64,
    /// Those with a frame that names a model.
    pub(crate) models: u64,
}

/// Counts all sealed runs.
pub(crate) async fn all(tx: &mut Tx, tenant: &TenantId) -> Result<Covered, StoreError> {
    sqlx::query(
        "select set_config('statement_timeout', $1, true), set_config('work_mem', '64MB', true)",
    )
    .bind(format!("{SECONDS_OF_COUNTS}s"))
    .execute(&mut **tx)
    .await?;
    let runs: i64 =
        sqlx::query_scalar("select count(*) from runs where tenant = $1 and sealed_at is not null")
            .bind(tenant.as_str())
            .fetch_one(&mut **tx)
            .await?;
    // Nothing is said to be missing of an open run.
    let missing: Vec<(String, i64)> = sqlx::query_as(
        "select value, count(*) from run_facts where tenant = $1 and field = $2 group by value",
    )
    .bind(tenant.as_str())
    .bind(field_no(FactField::Missing))
    .fetch_all(&mut **tx)
    .await?;
    let count = |(fact, count)| Ok((fact, unsigned(count, "run_facts", "value")?));
    let missing: Result<_, StoreError> = missing.into_iter().map(count).collect();
    Ok(Covered {
        runs: unsigned(runs, "runs", "sealed_at")?,
        missing: missing?,
        tool_calls: with_kinds(tx, tenant, &[Kind::ToolCall]).await?,
        models: with_kinds(tx, tenant, &OF_MODELS).await?,
    })
}

/// Sealed runs with a frame of one of these kinds: kind by kind, those with none of the kinds before, which is an index that is gone
/// through; less those that are open, which are few.
async fn with_kinds(tx: &mut Tx, tenant: &TenantId, kinds: &[Kind]) -> Result<u64, StoreError> {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let mut sum = 0;
    for (place, word) in words.iter().enumerate() {
        let is_new = match place {
            0 => "$4::text[] is not null",
            _ => {
                "not exists (select from run_facts e where e.tenant = $1 and e.field = $2 and e.value = any($4) and e.run = f.run)"
            }
        };
        let said = "f.tenant = $1 and f.field = $2 and f.value = $3";
        let sql = format!(
            "select (select count(*) from run_facts f where {said} and {is_new})
               - (select count(*) from runs r join run_facts f on f.run = r.run
                  where r.tenant = $1 and r.sealed_at is null and {said} and {is_new})"
        );
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(tenant.as_str())
            .bind(field_no(FactField::Kind))
            .bind(word)
            .bind(&words[..place])
            .persistent(false)
            .fetch_one(&mut **tx)
            .await?;
        sum += unsigned(count, "run_facts", "run")?;
    }
    Ok(sum)
}
