//! The ledger: signed statements about evidence in an RFC 9162 log, one a tenant.
//!
//! Whoever appends holds the tenant's lock, so indexes are dense and times never go back. Entry, nodes
//! and checkpoint are written in the transaction of what they are about: a crash leaves all or nothing.

mod erasures;
pub(crate) mod log;
pub(crate) mod people;

pub(crate) use crate::store::ledger::Appended;
pub(crate) use erasures::{Erasures, Whereabouts};

use crate::store::ledger::NewEntry;
use crate::store::tenants::LockedTenant;
use crate::store::{self, StoreError, Tx};
use crate::vault::{SealKey, TenantKeys, Vault, VaultError};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::id::TenantId;
use onrecord_core::merkle;
use onrecord_core::note::{Checkpoint, TlogProof};
use onrecord_core::statement::Predicate;
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

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

/// Statements that one thread signs before a second one is begun: some milliseconds' work.
const TOGETHER: usize = 64;

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

/// What is to be stated, and its subject where the format does not fix it.
pub(crate) type Statement<'a> = (&'a Predicate, Option<(&'a str, Hash)>);

/// Statements that are signed and have their places, and are to be written together: in one statement of the database,
/// however many they are. Where something fails in between, the transaction is to be given up.
pub(crate) struct Unwritten {
    key: Arc<SealKey>,
    entries: Vec<(NewEntry, Appended)>,
    nodes: Vec<(u8, u64, Hash)>,
}

impl Unwritten {
    /// None yet; they are signed with the seal key in force.
    pub(crate) async fn begin(tenant: &LockedTenant, vault: &Vault) -> Result<Self, LedgerError> {
        Ok(Self {
            key: vault.seal_key(&tenant.tenant, &tenant.seal_key).await?,
            entries: Vec::new(),
            nodes: Vec::new(),
        })
    }

    /// Signs a statement, with its subject where the format does not fix it, and gives it the next place. It is not
    /// earlier than the one before it: see [`next_time`].
    pub(crate) fn push(
        &mut self,
        tenant: &mut LockedTenant,
        predicate: &Predicate,
        subject: Option<(&str, Hash)>,
    ) -> Result<&Appended, LedgerError> {
        if tenant.rewound {
            return Err(LedgerError::Rewound);
        }
        let bytes = self.key.sign(&tenant.tenant, predicate, subject)?;
        Ok(self.place(tenant, predicate, bytes))
    }

    /// The same of many statements whose subjects the format fixes; more than a few are signed on all cores. Returns their indexes.
    pub(crate) fn push_many(
        &mut self,
        tenant: &mut LockedTenant,
        predicates: &[Predicate],
    ) -> Result<Vec<u64>, LedgerError> {
        if tenant.rewound {
            return Err(LedgerError::Rewound);
        }
        let (key, id) = (&self.key, &tenant.tenant);
        let sign = |part: &[Predicate]| -> Result<Vec<Vec<u8>>, VaultError> {
            part.iter().map(|one| key.sign(id, one, None)).collect()
        };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let part = predicates.len().div_ceil(cores).max(TOGETHER);
        let signed = thread::scope(|scope| {
            let parts = predicates.chunks(part);
            let threads: Vec<_> = parts.map(|part| scope.spawn(|| sign(part))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|signed| signed.unwrap_or(Err(VaultError::Signature)))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let placed = predicates.iter().zip(signed.into_iter().flatten());
        let placed = placed.map(|(one, bytes)| self.place(tenant, one, bytes).index);
        Ok(placed.collect())
    }

    fn place(
        &mut self,
        tenant: &mut LockedTenant,
        predicate: &Predicate,
        bytes: Vec<u8>,
    ) -> &Appended {
        let leaf = leaf_hash(&bytes);
        let index = tenant.ledger.size();
        let nodes = &mut self.nodes;
        tenant
            .ledger
            .push_with(leaf, |level, index, hash| nodes.push((level, index, hash)));
        tenant.ledger_at = Some(predicate.at());
        let entry = NewEntry {
            name: predicate.name(),
            run: predicate.run().cloned(),
            at: predicate.at(),
        };
        self.entries.push((entry, Appended { index, leaf, bytes }));
        let (_, appended) = &self.entries[self.entries.len() - 1];
        appended
    }

    /// Writes them. The checkpoint is still to be written, once for all of them.
    pub(crate) async fn write(
        self,
        tx: &mut Tx,
        tenant: &LockedTenant,
    ) -> Result<Vec<Appended>, LedgerError> {
        if !self.entries.is_empty() {
            store::ledger::write(tx, tenant, &self.entries, &self.nodes).await?;
        }
        Ok(self.entries.into_iter().map(|(_, entry)| entry).collect())
    }
}

/// Signs statements with the seal key in force and appends them in their order, each with its subject where the format does
/// not fix it. None is earlier than the one before it. The checkpoint is still to be written, once for all of them.
pub(crate) async fn append_many(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    vault: &Vault,
    statements: &[Statement<'_>],
) -> Result<Vec<Appended>, LedgerError> {
    let mut unwritten = Unwritten::begin(tenant, vault).await?;
    for (predicate, subject) in statements {
        unwritten.push(tenant, predicate, *subject)?;
    }
    unwritten.write(tx, tenant).await
}

/// Signs one statement and appends it. The checkpoint is still to be written.
pub(crate) async fn append(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    vault: &Vault,
    predicate: &Predicate,
    subject: Option<(&str, Hash)>,
) -> Result<Appended, LedgerError> {
    let mut appended = append_many(tx, tenant, vault, &[(predicate, subject)]).await?;
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
    note: (u64, &str),
) -> Result<String, LedgerError> {
    let mut proofs = proofs(tx, tenant, &[index], note).await?;
    Ok(proofs.pop().unwrap_or_default())
}

/// The proofs of entries in the tree of a checkpoint, in one query.
pub(crate) async fn proofs(
    tx: &mut Tx,
    tenant: &TenantId,
    indexes: &[u64],
    (size, note): (u64, &str),
) -> Result<Vec<String>, LedgerError> {
    let wanted = indexes
        .iter()
        .flat_map(|index| merkle::inclusion_nodes(*index, size));
    // Neighbours share most of their paths.
    let wanted: BTreeSet<(u8, u64)> = wanted.collect();
    let nodes = store::ledger::nodes(tx, tenant, &Vec::from_iter(wanted)).await?;
    let proof = |index: u64| {
        let path = merkle::inclusion_path(index, size, |level, index| {
            nodes.get(&(level, index)).copied().ok_or_else(|| {
                store::contradiction("ledger_nodes", "hash", format!("{tenant}/{level}/{index}"))
            })
        })?;
        let proof = TlogProof {
            index,
            path,
            checkpoint: note.to_owned(),
        };
        Ok(proof.to_string())
    };
    indexes.iter().copied().map(proof).collect()
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
