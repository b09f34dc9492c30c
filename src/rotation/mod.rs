//! Rotation: the keys of runs under a new epoch, and the old epoch's key destroyed.
//!
//! Afterwards no copy of a row of before opens anything, in whatever backup, replica or log it is. The keys of runs
//! stay the same, and no ciphertext is touched. What is done is told from the folder and the table alone, so a
//! rotation that was cut off anywhere is finished by the next one, and two of them at once do the same work once.

use crate::store::keys::{Epoch, KeyCursor};
use crate::store::{Store, StoreError};
use crate::vault::{TenantKeys, Vault, VaultError};
use onrecord_core::id::TenantId;

/// Keys that are wrapped again in one transaction.
const BATCH: u32 = 500;
/// Batches from one line in the log to the next.
const TOLD_BATCHES: u64 = 100;

/// Why a rotation stopped. What it did stays done, and another one goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The database of keys.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key, or its file.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// No such tenant.
    #[error("tenant {0} is not there")]
    NoTenant(TenantId),
    /// Keys are under old epochs that were not there when all were wrapped again. No key was destroyed.
    #[error(
        "{left} keys of runs are still under epochs before {epoch}; their keys were not destroyed"
    )]
    Left {
        /// How many.
        left: u64,
        /// The epoch that they should be under.
        epoch: i32,
    },
}

/// What a rotation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The epoch that all keys of runs are under now.
    pub epoch: i32,
    /// Keys that this call wrapped again.
    pub rewrapped: u64,
    /// Epochs whose key files this call destroyed.
    pub destroyed: Vec<i32>,
}

/// How far the rotation of a tenant is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The epochs, in their order, with the keys of runs that each wraps; none before the first run.
    pub epochs: Vec<(Epoch, u64)>,
    /// Whether an old epoch is not destroyed yet.
    pub unfinished: bool,
    /// Keys of runs under the newest epoch.
    pub done: u64,
    /// Keys of runs.
    pub of: u64,
}

/// Moves a tenant to its next epoch, or finishes the move that was begun: on return every key of a run is under it,
/// and the keys of all earlier epochs are destroyed.
///
/// # Errors
/// [`RotationError`]; whatever it is, everything opens that did before.
pub async fn epoch(
    store: &Store,
    vault: &Vault,
    tenant: &TenantId,
) -> Result<Report, RotationError> {
    let origin = store.origin(tenant).await?;
    let origin = origin.ok_or_else(|| RotationError::NoTenant(tenant.clone()))?;
    let next = next_epoch(store, vault, tenant).await?;
    // A crash after it leaves a key that new keys are wrapped under by whoever reads the folder anew; the older
    // ones are in the folder too. The next rotation finds two, and goes on below.
    vault.make_epoch(tenant, next).await?;
    // Read from the disk, and not remembered: what does not open there must not get a key under it. Where another
    // process made a newer one meanwhile, that one is the next.
    let keys = vault.reread(tenant, &origin).await?;
    let next = keys.epoch();
    // A crash after it leaves old epochs that nothing is added to.
    store
        .close_epochs(tenant, &vault.epochs(tenant)?, next)
        .await?;
    tracing::info!(%tenant, epoch = next, "keys of runs are wrapped again");
    // A crash in it leaves keys under several epochs, all of which are in the folder.
    let rewrapped = rewrap(store, &keys, tenant).await?;
    check_none_left(store, tenant, next).await?;
    // Nothing is wrapped under them, and nothing can be: closed they were before the first key was looked at. A crash in
    // it leaves some of them, or a part of one under a name that is no key's.
    let mut destroyed = Vec::new();
    for epoch in earlier(store, vault, tenant, next).await? {
        if vault.destroy_epoch(tenant, epoch)? {
            destroyed.push(epoch);
        }
    }
    // A crash before this line leaves epochs without keys that are not said to be destroyed.
    store.note_destroyed(tenant, next).await?;
    // Nor does this process have them any more, once whoever has the keys of now lets go of them.
    vault.reread(tenant, &origin).await?;
    tracing::info!(%tenant, epoch = next, rewrapped, ?destroyed, "old epochs are destroyed");
    Ok(Report {
        epoch: next,
        rewrapped,
        destroyed,
    })
}

/// The epochs of a tenant, and which of them are destroyed.
///
/// # Errors
/// [`RotationError::Store`].
pub async fn epochs(store: &Store, tenant: &TenantId) -> Result<Vec<Epoch>, RotationError> {
    Ok(store.epochs(tenant).await?)
}

/// How far the rotation of a tenant is, by whichever process does it.
///
/// # Errors
/// [`StoreError`].
pub async fn progress(store: &Store, tenant: &TenantId) -> Result<Progress, StoreError> {
    let epochs = store.epochs(tenant).await?;
    let counts = store.keys_by_epoch(tenant).await?;
    let newest = epochs.last().map_or(0, |epoch| epoch.epoch);
    Ok(Progress {
        unfinished: epochs
            .iter()
            .any(|epoch| epoch.epoch < newest && epoch.destroyed_at.is_none()),
        done: counts.get(&newest).copied().unwrap_or(0),
        of: counts.values().sum(),
        epochs: epochs
            .iter()
            .map(|epoch| {
                (
                    epoch.clone(),
                    counts.get(&epoch.epoch).copied().unwrap_or(0),
                )
            })
            .collect(),
    })
}

/// The epoch to move to: the newest one where a move to it is not finished, else one that was never there.
async fn next_epoch(store: &Store, vault: &Vault, tenant: &TenantId) -> Result<i32, RotationError> {
    let known = store.epochs(tenant).await?;
    let known = known.last().map_or(0, |epoch| epoch.epoch);
    let files = vault.epochs(tenant)?;
    let newest = files.last().copied().unwrap_or(0);
    if known > newest {
        return Err(VaultError::OldFolder { known, newest }.into());
    }
    let unfinished = !earlier(store, vault, tenant, newest).await?.is_empty();
    Ok(if unfinished { newest } else { newest + 1 })
}

/// The epochs before one whose keys are not destroyed, or not said to be.
async fn earlier(
    store: &Store,
    vault: &Vault,
    tenant: &TenantId,
    epoch: i32,
) -> Result<Vec<i32>, RotationError> {
    let rows = store.epochs(tenant).await?;
    let undestroyed = rows.iter().filter(|row| row.destroyed_at.is_none());
    let mut all: Vec<i32> = undestroyed.map(|row| row.epoch).collect();
    all.extend(vault.epochs(tenant)?);
    all.retain(|one| *one < epoch);
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Wraps every key of the tenant's runs under the newest epoch that is under another one; returns how many.
async fn rewrap(store: &Store, keys: &TenantKeys, tenant: &TenantId) -> Result<u64, RotationError> {
    let (mut after, mut count, mut batches) = (KeyCursor::START, 0, 0_u64);
    loop {
        let old = store.old_keys(tenant, keys.epoch(), &after, BATCH).await?;
        let Some((run, last)) = old.keys.last() else {
            return Ok(count);
        };
        after = KeyCursor::after(run, last);
        let new = old
            .keys
            .iter()
            .map(|(run, key)| Ok((run.clone(), keys.rewrap(run, key)?)));
        let new = new.collect::<Result<Vec<_>, VaultError>>()?;
        // A crash before the commit in it leaves these as they were.
        old.replace(&new).await?;
        count += new.len() as u64;
        batches += 1;
        if batches.is_multiple_of(TOLD_BATCHES) {
            tracing::info!(%tenant, epoch = keys.epoch(), count, "keys of runs were wrapped again");
        }
    }
}

async fn check_none_left(
    store: &Store,
    tenant: &TenantId,
    epoch: i32,
) -> Result<(), RotationError> {
    let counts = store.keys_by_epoch(tenant).await?;
    match counts.range(..epoch).map(|(_, count)| *count).sum() {
        0 => Ok(()),
        left => Err(RotationError::Left { left, epoch }),
    }
}
