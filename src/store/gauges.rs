//! How much there is of some things, for whoever watches a server. Each is an index that is gone through, of what is open only.

use super::{StoreError, Tx, unsigned};
use onrecord_core::id::TenantId;
use sqlx::Row as _;

/// What a tenant has in the midst of something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    /// Entries of the ledger.
    pub(crate) entries: u64,
    /// Runs that are not sealed.
    pub(crate) open_runs: u64,
    /// Those of them of which the ledger has not stated all frames.
    pub(crate) unstated_runs: u64,
    /// Holds in force.
    pub(crate) holds: u64,
    /// Tiers of runs in which an erasure is not done.
    pub(crate) erasing: u64,
    /// Runs of which something has expired that is not erased yet.
    pub(crate) expired_runs: u64,
}

/// Reads them of a tenant.
pub(crate) async fn read(tx: &mut Tx, tenant: &TenantId) -> Result<Gauges, StoreError> {
    let row = sqlx::query(
        "select ledger_size as entries,
           (select count(*) from runs where tenant = $1 and sealed_at is null) as open_runs,
           (select count(*) from runs left join run_heads using (run)
             where runs.tenant = $1 and sealed_at is null and runs.size > coalesce(run_heads.size, 1)) as unstated_runs,
           (select count(*) from holds where tenant = $1 and released_index is null) as holds,
           (select count(*) from erasures join erasure_parts on erasure = id
             where erasures.tenant = $1 and final_at is null and removed_at is null and not removed) as erasing,
           (select count(*) from run_retention where tenant = $1 and look_at <= clock_timestamp() and look_at < 'infinity' and due <= clock_timestamp()) as expired_runs
         from tenants where tenant = $1",
    )
    .bind(tenant.as_str())
    .fetch_one(&mut **tx)
    .await?;
    let count = |name: &'static str| unsigned(row.try_get(name)?, "tenants", name);
    Ok(Gauges {
        entries: count("entries")?,
        open_runs: count("open_runs")?,
        unstated_runs: count("unstated_runs")?,
        holds: count("holds")?,
        erasing: count("erasing")?,
        expired_runs: count("expired_runs")?,
    })
}
