//! How far the ledger has stated runs that are open.

use super::id::Uuid;
use super::runs::{self, RunRow};
use super::{StoreError, Tx, signed};
use onrecord_core::id::{RunId, TenantId};
use sqlx::Row as _;

/// When the ledger is to state how far an open run is. 0 is never, for either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsEvery {
    /// Frames that it has grown by since it was stated last.
    pub frames: u64,
    /// Seconds since the first of those was recorded.
    pub seconds: u64,
}

/// Open runs that are to be stated.
pub(crate) struct Due {
    /// A row that contradicts the model is its run's affair alone.
    pub(crate) runs: Vec<Result<RunRow, StoreError>>,
    /// Behind which to look for more.
    pub(crate) last: Option<RunId>,
}

/// Open runs that are to be stated, at most so many, in the order of their ids, behind one of them.
pub(crate) async fn due(
    tx: &mut Tx,
    tenant: &TenantId,
    every: HeadsEvery,
    behind: Option<&RunId>,
    limit: u32,
) -> Result<Due, StoreError> {
    // The opening states one frame.
    let rows = sqlx::query(
        "select runs.* from runs left join run_heads on run_heads.run = runs.run
         where runs.tenant = $1 and runs.sealed_at is null and ($5::uuid is null or runs.run > $5) and runs.size > coalesce(run_heads.size, 1)
           and (($2 > 0 and runs.size - coalesce(run_heads.size, 1) >= $2)
             or ($3 > 0 and (select at from frames where frames.run = runs.run and frames.seq = coalesce(run_heads.size, 1))
               <= clock_timestamp() - make_interval(secs => $3::double precision)))
         order by runs.run limit $4",
    )
    .bind(tenant.as_str())
    .bind(signed(every.frames))
    .bind(signed(every.seconds))
    .bind(i64::from(limit))
    .bind(behind.map(Uuid::from))
    .fetch_all(&mut **tx)
    .await?;
    let last = rows.last().map(|row| row.try_get::<Uuid, _>("run"));
    Ok(Due {
        runs: rows.iter().map(runs::read).collect(),
        last: last.transpose()?.map(RunId::from),
    })
}

/// Writes how far runs are stated, with the ledger's indexes. The caller holds the tenant's lock.
pub(crate) async fn update(
    tx: &mut Tx,
    tenant: &TenantId,
    heads: &[(RunId, u64, u64)],
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into run_heads (run, tenant, size, ledger_index)
         select head.run, $1, head.size, head.index from unnest($2::uuid[], $3::bigint[], $4::bigint[]) as head (run, size, index)
         on conflict (run) do update set size = excluded.size, ledger_index = excluded.ledger_index",
    )
    .bind(tenant.as_str())
    .bind(heads.iter().map(|(run, ..)| Uuid::from(run)).collect::<Vec<_>>())
    .bind(heads.iter().map(|(_, size, _)| signed(*size)).collect::<Vec<_>>())
    .bind(heads.iter().map(|(.., index)| signed(*index)).collect::<Vec<_>>())
    .execute(&mut **tx)
    .await?;
    Ok(())
}
