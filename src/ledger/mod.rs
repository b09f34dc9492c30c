//! The ledger: signed statements about evidence in an RFC 9162 log, one a tenant.
//!
//! Whoever appends holds the tenant's lock, so indexes are dense and times never go back. Entry, nodes
//! and checkpoint are written in the transaction of what they are about: a crash leaves all or nothing.

mod erasures;
pub(crate) mod log;

pub(crate) use erasures::Erasures;

use crate::store::ledger::NewEntry;
use crate::store::tenants::LockedTenant;
use crate::store::{self, StoreError, Tx};
use crate::vault::{TenantKeys, Vault, VaultError};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::id::TenantId;
use onrecord_core::merkle;
use onrecord_core::note::{Checkpoint, TlogProof};
use onrecord_core::statement::Predicate;
use onrecord_core::timestamp::Timestamp;

/// What can go wrong in the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The database's clock is behind the last entry by more than 5 s.
    #[error("the database's clock is {behind_ms} ms behind the last entry of the ledger")]
    ClockBehind {
        /// By how much.
        behind_ms: i64,
    },
    /// Entries that were published are not there, and nobody accepted it.
    #[error("the ledger lacks entries that were published")]
    Rewound,
}

/// How far a clock may stand still before it is an error rather than jitter, in microseconds.
pub(crate) const CLOCK_SLACK_MICROS: i64 = 5_000_000;

/// The later of the last time and the clock.
///
/// Errors: by how many milliseconds the clock is behind, if that is more than the slack.
pub(crate) fn later(now: Timestamp, last: Option<Timestamp>) -> Result<Timestamp, i64> {
    match last {
        Some(last) if last.micros() - now.micros() > CLOCK_SLACK_MICROS => {
            Err((last.micros() - now.micros()) / 1_000)
        }
        Some(last) => Ok(last.max(now)),
        None => Ok(now),
    }
}

/// The time of the next entry, where there may be one.
pub(crate) fn next_time(tenant: &LockedTenant) -> Result<Timestamp, LedgerError> {
    if tenant.rewound {
        return Err(LedgerError::Rewound);
    }
    later(tenant.now, tenant.ledger_at).map_err(|behind_ms| LedgerError::ClockBehind { behind_ms })
}

/// An entry that was appended.
pub(crate) struct Appended {
    pub(crate) index: u64,
    pub(crate) leaf: Hash,
    pub(crate) bytes: Vec<u8>,
}

/// What is to be stated: a predicate, and its subject where the format does not fix it.
pub(crate) struct Statement<'a> {
    pub(crate) predicate: &'a Predicate,
    pub(crate) subject: Option<(&'a str, Hash)>,
}

/// Signs statements with the seal key in force and appends them in their order, in one statement of the database however
/// many they are. None is earlier than the one before it: see [`next_time`]. The checkpoint is still to be written, once
/// for all of them. After an error the transaction is to be given up.
pub(crate) async fn append_many(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    vault: &Vault,
    statements: &[Statement<'_>],
) -> Result<Vec<Appended>, LedgerError> {
    if statements.is_empty() {
        return Ok(Vec::new());
    }
    if tenant.rewound {
        return Err(LedgerError::Rewound);
    }
    let key = vault.seal_key(&tenant.tenant, &tenant.seal_key).await?;
    let (mut appended, mut nodes) = (Vec::with_capacity(statements.len()), Vec::new());
    for Statement { predicate, subject } in statements {
        let bytes = key.sign(&tenant.tenant, predicate, *subject)?;
        let leaf = leaf_hash(&bytes);
        let index = tenant.ledger.size();
        tenant
            .ledger
            .push_with(leaf, |level, index, hash| nodes.push((level, index, hash)));
        tenant.ledger_at = Some(predicate.at());
        appended.push(Appended { index, leaf, bytes });
    }
    let entries = statements.iter().zip(&appended);
    let entries: Vec<NewEntry<'_>> = entries
        .map(|(Statement { predicate, .. }, entry)| NewEntry {
            index: entry.index,
            name: predicate.name(),
            run: predicate.run(),
            at: predicate.at(),
            leaf: entry.leaf,
            bytes: &entry.bytes,
        })
        .collect();
    store::ledger::write(tx, tenant, &entries, &nodes).await?;
    Ok(appended)
}

/// Signs one statement and appends it. The checkpoint is still to be written.
pub(crate) async fn append(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    vault: &Vault,
    predicate: &Predicate,
    subject: Option<(&str, Hash)>,
) -> Result<Appended, LedgerError> {
    let statement = Statement { predicate, subject };
    let mut appended = append_many(tx, tenant, vault, &[statement]).await?;
    let none = || store::contradiction("ledger_entries", "idx", &tenant.tenant);
    Ok(appended.pop().ok_or_else(none)?)
}

/// Signs a statement, appends it, and signs and keeps the checkpoint that has it: what an entry that comes alone needs.
pub(crate) async fn enter(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    (vault, keys): (&Vault, &TenantKeys),
    predicate: &Predicate,
    subject: Option<(&str, Hash)>,
) -> Result<Appended, LedgerError> {
    let entry = append(tx, tenant, vault, predicate, subject).await?;
    checkpoint(tx, tenant, keys).await?;
    Ok(entry)
}

/// Signs and keeps the checkpoint of the ledger as it is now.
pub(crate) async fn checkpoint(
    tx: &mut Tx,
    tenant: &LockedTenant,
    keys: &TenantKeys,
) -> Result<String, LedgerError> {
    let size = tenant.ledger.size();
    let checkpoint = Checkpoint {
        origin: tenant.origin.to_string(),
        size,
        root: tenant.ledger.root(),
    };
    let note = keys.ledger().sign(&checkpoint)?;
    store::ledger::insert_checkpoint(tx, &tenant.tenant, size, &note).await?;
    Ok(note)
}

/// The checkpoint of a size with all cosignatures that are kept of it.
pub(crate) async fn cosigned_note(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
) -> Result<String, LedgerError> {
    let mut note = store::ledger::checkpoint_of(tx, tenant, size).await?;
    for cosignature in store::anchors::cosignatures(tx, tenant, size).await? {
        note.push_str(&cosignature.line);
        note.push('\n');
    }
    Ok(note)
}

/// The latest checkpoint that enough witnesses cosigned, if there is one: its size and the note with their signatures.
pub(crate) async fn latest_cosigned(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<Option<(u64, String)>, LedgerError> {
    let Some((size, _)) = store::anchors::cosigned(tx, tenant).await? else {
        return Ok(None);
    };
    Ok(Some((size, cosigned_note(tx, tenant, size).await?)))
}

/// The proof of an entry in the tree of a checkpoint.
pub(crate) async fn proof(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
    (size, note): (u64, &str),
) -> Result<String, LedgerError> {
    let wanted = merkle::inclusion_nodes(index, size);
    let nodes = store::ledger::nodes(tx, tenant, &wanted).await?;
    let path = merkle::inclusion_path(index, size, |level, index| {
        nodes.get(&(level, index)).copied().ok_or_else(|| {
            store::contradiction("ledger_nodes", "hash", format!("{tenant}/{level}/{index}"))
        })
    })?;
    Ok(TlogProof {
        index,
        path,
        checkpoint: note.to_owned(),
    }
    .to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_for_five_seconds_and_then_it_is_an_error() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        assert_eq!(later(at(7), None), Ok(at(7)));
        assert_eq!(later(at(9), Some(at(8))), Ok(at(9)));
        assert_eq!(
            later(at(0), Some(at(CLOCK_SLACK_MICROS))),
            Ok(at(CLOCK_SLACK_MICROS))
        );
        assert_eq!(
            later(at(0), Some(at(CLOCK_SLACK_MICROS + 1_000))),
            Err(5_001)
        );
    }
}
