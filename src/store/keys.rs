//! The keys of runs and the epochs that wrap them, which may be in a database of their own.
//!
//! Whoever has a connection to them waits for none to the evidence, so that nobody waits in a circle.

use super::id::Uuid;
use super::permit::Certified;
use super::time::Time;
use super::{Store, StoreError, Tx, unsigned};
use crate::vault::WrappedRunKey;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::BTreeMap;

/// What became of keys that were to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// They are durable.
    Done,
    /// Nothing: their epoch is closed, and a newer one is in the keys folder.
    EpochClosed,
}

/// An epoch of a tenant.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: i32,
    /// When it was first seen.
    pub made_at: Timestamp,
    /// Since when no new key is wrapped under it.
    pub closed_at: Option<Timestamp>,
    /// When its key was destroyed, and no key of a run was left under it.
    pub destroyed_at: Option<Timestamp>,
}

/// Keys of runs under older epochs, locked until the transaction ends.
pub(crate) struct OldKeys {
    tx: Tx,
    tenant: TenantId,
    pub(crate) keys: Vec<(RunId, WrappedRunKey)>,
}

/// Where a walk over the keys of a tenant is: epoch, run, tier and version of the last one.
#[derive(Clone, Debug)]
pub(crate) struct KeyCursor(i32, Uuid, i16, i16);

impl KeyCursor {
    /// Before all of them.
    pub(crate) const START: Self = Self(0, Uuid::MIN, -1, -1);

    /// After a key.
    pub(crate) fn after(run: &RunId, key: &WrappedRunKey) -> Self {
        Self(key.epoch, Uuid::from(run), key.tier, key.version)
    }
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
        rows.iter().map(read).collect()
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

    /// Adds keys of runs, all under one epoch, and commits them.
    pub(crate) async fn add_run_keys(
        &self,
        tenant: &TenantId,
        runs: &[(&RunId, &[WrappedRunKey])],
    ) -> Result<Added, StoreError> {
        let keys = || {
            runs.iter().flat_map(|(run, keys)| {
                let run = Uuid::from(*run);
                keys.iter().map(move |key| (run, key))
            })
        };
        let Some(epoch) = keys().next().map(|(_, key)| key.epoch) else {
            return Ok(Added::Done);
        };
        let mut tx = self.begin_keys(tenant).await?;
        if !lock_open(&mut tx, tenant, epoch).await? {
            tx.rollback().await?;
            return Ok(Added::EpochClosed);
        }
        sqlx::query(
            "insert into keys.run_keys (run, tenant, tier, version, epoch, wrapped)
             select run, $1, tier, version, epoch, wrapped
             from unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::int[], $6::bytea[]) as new (run, tier, version, epoch, wrapped)",
        )
        .bind(tenant.as_str())
        .bind(keys().map(|(run, _)| run).collect::<Vec<_>>())
        .bind(keys().map(|(_, key)| key.tier).collect::<Vec<_>>())
        .bind(keys().map(|(_, key)| key.version).collect::<Vec<_>>())
        .bind(keys().map(|(_, key)| key.epoch).collect::<Vec<_>>())
        .bind(keys().map(|(_, key)| &key.wrapped[..]).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Added::Done)
    }
}

impl Store {
    /// Removes the keys of a tier of a run that are older than a version, durable when this returns: what they wrap still is
    /// erased with them. Then none is wrapped by an epoch that is newer than the one that this returns.
    pub(crate) async fn remove_run_keys(
        &self,
        tenant: &TenantId,
        part: &Certified,
        version: i16,
    ) -> Result<i32, StoreError> {
        self.remove_outlived_run_keys(tenant, part.run(), part.tier(), version)
            .await
    }

    /// The same of keys that wrap nothing any longer: all that they had wrapped was wrapped again, and nothing is erased.
    pub(crate) async fn remove_outlived_run_keys(
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

    /// The epochs of a tenant, in their order; none before its first run.
    pub(crate) async fn epochs(&self, tenant: &TenantId) -> Result<Vec<Epoch>, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        let rows: Vec<(i32, Time, Option<Time>, Option<Time>)> = sqlx::query_as(
            "select epoch, made_at, closed_at, destroyed_at from keys.epochs where tenant = $1 order by epoch",
        )
        .bind(tenant.as_str())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let rows = rows.into_iter().map(|row| Epoch {
            epoch: row.0,
            made_at: row.1.0,
            closed_at: row.2.map(|at| at.0),
            destroyed_at: row.3.map(|at| at.0),
        });
        Ok(rows.collect())
    }

    /// How many keys of runs each epoch of a tenant wraps; those that wrap none are left out.
    pub(crate) async fn keys_by_epoch(
        &self,
        tenant: &TenantId,
    ) -> Result<BTreeMap<i32, u64>, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        let rows: Vec<(i32, i64)> = sqlx::query_as(
            "select epoch, count(*) from keys.run_keys where tenant = $1 group by epoch",
        )
        .bind(tenant.as_str())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter()
            .map(|(epoch, count)| Ok((epoch, unsigned(count, "keys.run_keys", "epoch")?)))
            .collect()
    }

    /// Notes epochs, and closes those below one: keys that are being added under them are durable when this
    /// returns, and none are added afterwards.
    pub(crate) async fn close_epochs(
        &self,
        tenant: &TenantId,
        epochs: &[i32],
        below: i32,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        sqlx::query(
            "insert into keys.epochs (tenant, epoch) select $1, * from unnest($2::int[]) on conflict do nothing",
        )
        .bind(tenant.as_str())
        .bind(epochs)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update keys.epochs set closed_at = clock_timestamp() where tenant = $1 and epoch < $2 and closed_at is null",
        )
        .bind(tenant.as_str())
        .bind(below)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Notes that the keys of the epochs below one are destroyed.
    pub(crate) async fn note_destroyed(
        &self,
        tenant: &TenantId,
        below: i32,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        sqlx::query(
            "update keys.epochs set destroyed_at = clock_timestamp() where tenant = $1 and epoch < $2 and destroyed_at is null",
        )
        .bind(tenant.as_str())
        .bind(below)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// The next keys of a tenant's runs that an epoch below one wraps, at most so many; whoever else wants them waits.
    pub(crate) async fn old_keys(
        &self,
        tenant: &TenantId,
        below: i32,
        after: &KeyCursor,
        limit: u32,
    ) -> Result<OldKeys, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        // From where the walk is: what lies before it was under old epochs, and the index would be gone through again.
        let rows = sqlx::query(
            "select run, tier, version, epoch, wrapped from keys.run_keys
             where tenant = $1 and epoch < $2 and (epoch, run, tier, version) > ($3, $4, $5, $6)
             order by epoch, run, tier, version limit $7 for update",
        )
        .bind(tenant.as_str())
        .bind(below)
        .bind(after.0)
        .bind(after.1)
        .bind(after.2)
        .bind(after.3)
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await?;
        let keys = rows
            .iter()
            .map(|row| Ok((row.try_get::<Uuid, _>("run")?.into(), read(row)?)))
            .collect::<Result<_, StoreError>>()?;
        Ok(OldKeys {
            tx,
            tenant: tenant.clone(),
            keys,
        })
    }
}

impl OldKeys {
    /// Writes these keys as they are wrapped now, and commits.
    pub(crate) async fn replace(
        mut self,
        new: &[(RunId, WrappedRunKey)],
    ) -> Result<(), StoreError> {
        sqlx::query(
            "update keys.run_keys as old set epoch = new.epoch, wrapped = new.wrapped
             from unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::int[], $6::bytea[])
               as new (run, tier, version, epoch, wrapped)
             where old.tenant = $1 and (old.run, old.tier, old.version) = (new.run, new.tier, new.version)",
        )
        .bind(self.tenant.as_str())
        .bind(new.iter().map(|(run, _)| Uuid::from(run)).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, key)| key.tier).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, key)| key.version).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, key)| key.epoch).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, key)| &key.wrapped[..]).collect::<Vec<_>>())
        .execute(&mut *self.tx)
        .await?;
        self.tx.commit().await?;
        Ok(())
    }
}

fn read(row: &PgRow) -> Result<WrappedRunKey, StoreError> {
    Ok(WrappedRunKey {
        tier: row.try_get("tier")?,
        version: row.try_get("version")?,
        epoch: row.try_get("epoch")?,
        wrapped: row.try_get("wrapped")?,
    })
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
