//! The keys of runs and the epochs that wrap them, which may be in a database of their own.
//!
//! Whoever has a connection to them waits for none to the evidence, so that nobody waits in a circle.

use super::id::Uuid;
use super::time::Time;
use super::{Store, StoreError, Tx};
use crate::vault::WrappedRunKey;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// What became of keys that were to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// They are durable.
    Done,
    /// Nothing: their epoch is closed, and a newer one is in the keys folder.
    EpochClosed,
}

impl Store {
    /// Begins a transaction over the keys of one tenant.
    pub(super) async fn begin_keys(&self, tenant: &TenantId) -> Result<Tx, StoreError> {
        let mut tx = self.key_pool().begin().await?;
        sqlx::query("select set_config('onrecord.tenant', $1, true)")
            .bind(tenant.as_str())
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }

    /// The keys of a run that were not erased; none where there is no such run.
    pub(crate) async fn run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<Vec<WrappedRunKey>, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        let rows = sqlx::query(
            "select tier, version, epoch, wrapped from keys.run_keys where run = $1 order by tier, version",
        )
        .bind(Uuid::from(run))
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.iter()
            .map(|row| {
                Ok(WrappedRunKey {
                    tier: row.try_get("tier")?,
                    version: row.try_get("version")?,
                    epoch: row.try_get("epoch")?,
                    wrapped: row.try_get("wrapped")?,
                })
            })
            .collect()
    }

    /// Whether the keys of a tenant's runs are in the database of keys, as far as that can be told at a glance.
    pub(crate) async fn check_keys(&self, tenant: &TenantId) -> Result<(), StoreError> {
        let mut tx = self.begin(tenant).await?;
        let has_runs: bool =
            sqlx::query_scalar("select exists (select from runs where tenant = $1)")
                .bind(tenant.as_str())
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        let mut tx = self.begin_keys(tenant).await?;
        let has_epochs: bool =
            sqlx::query_scalar("select exists (select from keys.epochs where tenant = $1)")
                .bind(tenant.as_str())
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        if has_runs && !has_epochs {
            return Err(StoreError::NoKeys(tenant.clone()));
        }
        Ok(())
    }

    /// Adds keys of a run, all under one epoch, and commits them.
    pub(crate) async fn add_run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
        keys: &[WrappedRunKey],
    ) -> Result<Added, StoreError> {
        let Some(epoch) = keys.first().map(|key| key.epoch) else {
            return Ok(Added::Done);
        };
        let mut tx = self.begin_keys(tenant).await?;
        if !lock_open(&mut tx, tenant, epoch).await? {
            tx.rollback().await?;
            return Ok(Added::EpochClosed);
        }
        sqlx::query(
            "insert into keys.run_keys (run, tenant, tier, version, epoch, wrapped)
             select $1, $2, * from unnest($3::smallint[], $4::smallint[], $5::int[], $6::bytea[])",
        )
        .bind(Uuid::from(run))
        .bind(tenant.as_str())
        .bind(keys.iter().map(|key| key.tier).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.version).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.epoch).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| &key.wrapped[..]).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Added::Done)
    }
}

impl Store {
    /// Removes the keys of a tier of a run that are older than a version, durable when this returns. Then none is wrapped by an
    /// epoch that is newer than the one that this returns.
    pub(crate) async fn remove_run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
        tier: i16,
        version: i16,
    ) -> Result<i32, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        sqlx::query("delete from keys.run_keys where run = $1 and tier = $2 and version < $3")
            .bind(Uuid::from(run))
            .bind(tier)
            .bind(version)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        // After it: an epoch that a rotation makes meanwhile may have wrapped the keys as well.
        let mut tx = self.begin_keys(tenant).await?;
        let epoch: Option<i32> =
            sqlx::query_scalar("select max(epoch) from keys.epochs where tenant = $1")
                .bind(tenant.as_str())
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(epoch.unwrap_or(1))
    }

    /// When the last of a tenant's epochs up to one was destroyed; `None` while one of them is there.
    pub(crate) async fn destroyed_up_to(
        &self,
        tenant: &TenantId,
        epoch: i32,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        let at: Option<Time> = sqlx::query_scalar(
            "select case when bool_and(destroyed_at is not null) then max(destroyed_at) end
             from keys.epochs where tenant = $1 and epoch <= $2",
        )
        .bind(tenant.as_str())
        .bind(epoch)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(at.map(|at| at.0))
    }
}

/// Whether keys may be wrapped under an epoch; it is not closed before the transaction ends. An epoch that the
/// table does not have is that of a new tenant.
async fn lock_open(tx: &mut Tx, tenant: &TenantId, epoch: i32) -> Result<bool, StoreError> {
    const LOCK: &str =
        "select closed_at is null from keys.epochs where tenant = $1 and epoch = $2 for share";
    let open: Option<bool> = sqlx::query_scalar(LOCK)
        .bind(tenant.as_str())
        .bind(epoch)
        .fetch_optional(&mut **tx)
        .await?;
    if let Some(open) = open {
        return Ok(open);
    }
    sqlx::query("insert into keys.epochs (tenant, epoch) values ($1, $2) on conflict do nothing")
        .bind(tenant.as_str())
        .bind(epoch)
        .execute(&mut **tx)
        .await?;
    let open = sqlx::query_scalar(LOCK)
        .bind(tenant.as_str())
        .bind(epoch)
        .fetch_one(&mut **tx)
        .await?;
    Ok(open)
}
