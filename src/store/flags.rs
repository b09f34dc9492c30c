//! Flags of runs, as the ledger's statements have them.

use super::id::Uuid;
use super::people::actor;
use super::time::Time;
use super::{StoreError, Tx, signed, unsigned};
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// A flag of a run.
#[derive(Clone, Debug)]
pub(crate) struct FlagRow {
    /// The ledger's index of the statement that set it.
    pub(crate) index: u64,
    pub(crate) flag: String,
    pub(crate) incident: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) by: Actor,
    pub(crate) at: Timestamp,
    /// When and by whom it was cleared, and the index of that statement.
    pub(crate) cleared: Option<(Timestamp, Actor, u64)>,
}

/// The flags of a run in the order in which they were set: all that ever were, or those that stand.
pub(crate) async fn of_run(
    tx: &mut Tx,
    run: &RunId,
    ever: bool,
) -> Result<Vec<FlagRow>, StoreError> {
    let rows = sqlx::query(
        "select * from run_flags where run = $1 and ($2 or cleared_index is null) order by set_index",
    )
    .bind(Uuid::from(run))
    .bind(ever)
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            let cleared: Option<i64> = row.try_get("cleared_index")?;
            let cleared = cleared.map(|index| {
                let index = unsigned(index, "run_flags", "cleared_index")?;
                let at = row.try_get::<Time, _>("cleared_at")?.0;
                Ok::<_, StoreError>((at, actor(row, "run_flags", "cleared_by")?, index))
            });
            Ok(FlagRow {
                index: unsigned(row.try_get("set_index")?, "run_flags", "set_index")?,
                flag: row.try_get("flag")?,
                incident: row.try_get("incident")?,
                reason: row.try_get("reason")?,
                by: actor(row, "run_flags", "by")?,
                at: row.try_get::<Time, _>("at")?.0,
                cleared: cleared.transpose()?,
            })
        })
        .collect()
}

/// Adds a flag that the ledger has.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    run: &RunId,
    flag: &FlagRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into run_flags (run, tenant, flag, incident, reason, set_index, at, by_type, by_id)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(Uuid::from(run))
    .bind(tenant.as_str())
    .bind(&flag.flag)
    .bind(flag.incident.as_deref())
    .bind(flag.reason.as_deref())
    .bind(signed(flag.index))
    .bind(Time(flag.at))
    .bind(flag.by.kind.as_str())
    .bind(&flag.by.id)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes that a flag was cleared.
pub(crate) async fn clear(
    tx: &mut Tx,
    tenant: &TenantId,
    set_index: u64,
    (at, by, index): (Timestamp, &Actor, u64),
) -> Result<(), StoreError> {
    sqlx::query(
        "update run_flags set cleared_index = $3, cleared_at = $4, cleared_by_type = $5, cleared_by_id = $6
         where tenant = $1 and set_index = $2 and cleared_index is null",
    )
    .bind(tenant.as_str())
    .bind(signed(set_index))
    .bind(signed(index))
    .bind(Time(at))
    .bind(by.kind.as_str())
    .bind(&by.id)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
