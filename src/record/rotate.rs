//! Epochs of tenants' keys: new runs under the newest, and rotations in the background of a server.

use super::{RecordError, Recorder};
use crate::rotation::{self, Progress};
use crate::store::keys::Added;
use crate::vault::{RunKeys, TenantKeys, VaultError, WrappedRunKey};
use onrecord_core::id::{RunId, TenantId};
use std::sync::PoisonError;

/// How far a tenant's rotation is, and whether this process works on it.
pub(crate) struct Rotations {
    pub(crate) progress: Progress,
    pub(crate) here: bool,
}

impl Recorder {
    /// Whether the database of keys and the folder of keys are those of these runs.
    ///
    /// # Errors
    /// [`StoreError::NoKeys`](crate::store::StoreError::NoKeys): the database has none of a tenant that has runs.
    /// [`VaultError::OldFolder`]: the folder is of before the newest epoch.
    pub async fn check_keys(&self) -> Result<(), RecordError> {
        for (tenant, _) in self.store.tenants().await? {
            self.store.check_keys(&tenant).await?;
            self.check_folder(&tenant).await?;
        }
        Ok(())
    }

    async fn check_folder(&self, tenant: &TenantId) -> Result<(), RecordError> {
        let newest = self.keys(tenant).await?.epoch();
        let known = self.store.epochs(tenant).await?;
        match known.last().map(|epoch| epoch.epoch) {
            Some(known) if known > newest => Err(VaultError::OldFolder { known, newest }.into()),
            _ => Ok(()),
        }
    }

    /// Makes the keys of a new run, which are durable when this returns. A crash after it leaves keys that no run
    /// uses, and never a run without keys.
    pub(super) async fn new_run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<RunKeys, RecordError> {
        self.add_run_keys(tenant, run, |keys| keys.new_run(run))
            .await
    }

    /// Makes a new key of a tier of a run, durable when this returns. A crash after it leaves a key that nothing uses.
    pub(crate) async fn renew_run_key(
        &self,
        tenant: &TenantId,
        run: &RunId,
        tier: i16,
    ) -> Result<RunKeys, RecordError> {
        let old = self.read_run_keys(tenant, run).await?;
        let renew = |keys: &TenantKeys| {
            let (keys, wrapped) = keys.renew(&old, tier, old.version() + 1)?;
            Ok((keys, vec![wrapped]))
        };
        self.add_run_keys(tenant, run, renew).await
    }

    async fn add_run_keys(
        &self,
        tenant: &TenantId,
        run: &RunId,
        make: impl Fn(&TenantKeys) -> Result<(RunKeys, Vec<WrappedRunKey>), VaultError>,
    ) -> Result<RunKeys, RecordError> {
        let mut tenant_keys = self.keys(tenant).await?;
        loop {
            let (keys, wrapped) = make(&tenant_keys)?;
            if self.store.add_run_keys(tenant, &[(run, &wrapped)]).await? == Added::Done {
                return Ok(keys);
            }
            // Another process closed the epoch, and the key of its successor was in the folder before.
            let closed = tenant_keys.epoch();
            tenant_keys = self.reread_keys(tenant).await?;
            if tenant_keys.epoch() <= closed {
                self.check_folder(tenant).await?;
                return Err(VaultError::EpochClosed { epoch: closed }.into());
            }
        }
    }

    /// Begins to move a tenant to its next epoch, or to finish the move that was begun. False where this process
    /// does so already.
    pub(crate) fn rotate(&self, tenant: TenantId) -> bool {
        let Some(turn) = Turn::take(self, tenant) else {
            return false;
        };
        self.tasks.spawn(async move {
            let recorder = &turn.recorder;
            let work = rotation::epoch(&recorder.store, &recorder.vault, &turn.tenant);
            tokio::select! {
                done = work => if let Err(error) = done {
                    tracing::error!(tenant = %turn.tenant, %error, "a rotation of keys stopped");
                },
                // As a crash would end it: whoever rotates next goes on.
                () = recorder.stopping.cancelled() => {}
            }
        });
        true
    }

    /// Lets go of epochs whose keys another process destroyed.
    ///
    /// # Errors
    /// The database, or the folder of the keys.
    pub async fn refresh_keys(&self) -> Result<(), RecordError> {
        for (tenant, origin) in self.store.tenants().await? {
            self.vault.refresh(&tenant, &origin).await?;
        }
        Ok(())
    }

    /// Goes on with the rotations that were begun and not finished.
    ///
    /// # Errors
    /// The database.
    pub async fn resume_rotations(&self) -> Result<(), RecordError> {
        for (tenant, _) in self.store.tenants().await? {
            if rotation::progress(&self.store, &tenant).await?.unfinished {
                self.rotate(tenant);
            }
        }
        Ok(())
    }

    /// How far the rotation of a tenant is.
    pub(crate) async fn rotations(&self, tenant: TenantId) -> Result<Rotations, RecordError> {
        let here = self.rotating().contains(&tenant);
        let recorder = self.clone();
        let progress =
            self.detached(async move { Ok(rotation::progress(&recorder.store, &tenant).await?) });
        Ok(Rotations {
            progress: progress.await?,
            here,
        })
    }

    fn rotating(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<TenantId>> {
        self.rotating.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to rotate a tenant's keys in this process, as long as it lives.
struct Turn {
    recorder: Recorder,
    tenant: TenantId,
}

impl Turn {
    fn take(recorder: &Recorder, tenant: TenantId) -> Option<Self> {
        let is_new = recorder.rotating().insert(tenant.clone());
        let recorder = recorder.clone();
        is_new.then_some(Self { recorder, tenant })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.recorder.rotating().remove(&self.tenant);
    }
}
