//! Epochs of a tenant: their key files made, and destroyed for good.

use super::{TenantKeys, Vault, VaultError, files};
use onrecord_core::id::{Origin, TenantId};

impl TenantKeys {
    /// The epoch under which new keys are wrapped: the newest in the folder when it was read.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }
}

impl Vault {
    /// The epochs whose keys are in a tenant's folder, in their order.
    ///
    /// # Errors
    /// [`VaultError::File`]: the folder cannot be read.
    pub fn epochs(&self, tenant: &TenantId) -> Result<Vec<i32>, VaultError> {
        files::epochs(&self.folder.join(tenant.as_str()))
    }

    /// Reads the keys of a tenant again where the folder has other epochs than this process: one that was destroyed is
    /// then gone from here too, once whoever works with it lets go of it. Whether that was to be done.
    ///
    /// # Errors
    /// As [`Vault::tenant`].
    pub async fn refresh(&self, tenant: &TenantId, origin: &Origin) -> Result<bool, VaultError> {
        let Some(keys) = self.known(tenant) else {
            return Ok(false);
        };
        let there = self.epochs(tenant)?;
        if there.len() == keys.epochs.len() && there.iter().all(|one| keys.epochs.contains_key(one))
        {
            return Ok(false);
        }
        self.reread(tenant, origin).await.map(|_| true)
    }

    /// Makes the key of an epoch, durable when this returns; false where it is there. Whoever opens the folder
    /// from now on wraps new keys under it.
    ///
    /// # Errors
    /// [`VaultError::File`], [`VaultError::Randomness`].
    pub async fn make_epoch(&self, tenant: &TenantId, epoch: i32) -> Result<bool, VaultError> {
        self.make_key(tenant, &format!("epoch-{epoch}")).await
    }

    /// Destroys the key of an epoch; false where it is gone already. The caller knows that nothing is wrapped
    /// under it any more.
    ///
    /// A crash in the middle leaves a file of another name, which no vault opens, and which the next call removes.
    ///
    /// # Errors
    /// [`VaultError::EpochInUse`]: no newer epoch is in the folder. [`VaultError::File`].
    pub fn destroy_epoch(&self, tenant: &TenantId, epoch: i32) -> Result<bool, VaultError> {
        if self
            .epochs(tenant)?
            .last()
            .is_none_or(|last| *last <= epoch)
        {
            return Err(VaultError::EpochInUse { epoch });
        }
        let folder = self.folder.join(tenant.as_str());
        files::destroy(&folder.join(format!("epoch-{epoch}.key")))
    }
}
