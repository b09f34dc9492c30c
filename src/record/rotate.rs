//! Rotations of tenants' keys, in the background of a server.

use super::{RecordError, Recorder};
use crate::rotation::{self, Progress};
use onrecord_core::id::TenantId;
use std::sync::PoisonError;

/// How far a tenant's rotation is, and whether this process works on it.
pub(crate) struct Rotations {
    pub(crate) progress: Progress,
    pub(crate) here: bool,
}

impl Recorder {
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
