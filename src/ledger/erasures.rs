//! What the ledger says of the erased payloads of a run.

use super::LedgerError;
use crate::store::{self, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::frame::PayloadRef;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{Erasure, Predicate, Signed};
use std::collections::HashMap;

/// The erasures of a run: what they cover is erased, whatever still lies in the table.
#[derive(Debug, Default)]
pub(crate) struct Erasures {
    /// Those of whole tiers: index, tier, and how many frames it covers.
    tiers: Vec<(u64, u8, u64)>,
    /// The index of the first erasure of each payload that was erased by its commitment, and how many frames it covers.
    commits: HashMap<Hash, (u64, u64)>,
}

/// Where a payload is that a frame commits to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Its agent kept it.
    Kept,
    /// Nowhere any more: the ledger's entry at this index certifies its erasure.
    Erased(u64),
    /// In the store.
    Stored,
    /// Nowhere, and nothing says why: it is lost.
    Missing,
}

impl Erasures {
    /// Reads those of a run.
    pub(crate) async fn of(
        tx: &mut Tx,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<Self, LedgerError> {
        let mut erasures = Self::default();
        for (index, bytes) in store::ledger::erasures(tx, tenant, run).await? {
            erasures.read(index, &bytes)?;
        }
        Ok(erasures)
    }

    /// Reads those of runs; of runs that have none there is nothing.
    pub(crate) async fn of_runs(
        tx: &mut Tx,
        tenant: &TenantId,
        runs: &[RunId],
    ) -> Result<HashMap<RunId, Self>, LedgerError> {
        let mut erasures: HashMap<RunId, Self> = HashMap::new();
        for (run, index, bytes) in store::ledger::erasures_of(tx, tenant, runs).await? {
            erasures.entry(run).or_default().read(index, &bytes)?;
        }
        Ok(erasures)
    }

    fn read(&mut self, index: u64, bytes: &[u8]) -> Result<(), LedgerError> {
        let wrong = || store::contradiction("ledger_entries", "bytes", index);
        let signed = Signed::parse(bytes).map_err(|_| wrong())?;
        let Ok(Some(Predicate::Erasure(erasure))) = signed.predicate() else {
            return Err(wrong().into());
        };
        self.add(index, &erasure);
        Ok(())
    }

    /// Takes the next of them.
    pub(crate) fn add(&mut self, index: u64, erasure: &Erasure) {
        let size = erasure.state.size;
        for commit in erasure.commits.iter().flatten() {
            self.commits.entry(*commit).or_insert((index, size));
        }
        let tiers = erasure.whole_tiers().into_iter();
        self.tiers.extend(tiers.map(|tier| (index, tier, size)));
    }

    /// Where a payload of the frame at a place is, of which it is known whether the store has it. What an entry certifies as
    /// erased is erased, whatever lies in the table still.
    pub(crate) fn whereabouts(
        &self,
        seq: u64,
        payload: &PayloadRef,
        is_stored: bool,
    ) -> Whereabouts {
        if payload.kept == Some(false) {
            return Whereabouts::Kept;
        }
        match self.covering(seq, payload.tier, &payload.commit) {
            Some(index) => Whereabouts::Erased(index),
            None if is_stored => Whereabouts::Stored,
            None => Whereabouts::Missing,
        }
    }

    /// Below which place every payload of a tier is covered.
    pub(crate) fn covered(&self, tier: u8) -> u64 {
        let of_tier = self.tiers.iter().filter(|one| one.1 == tier);
        of_tier.map(|one| one.2).max().unwrap_or(0)
    }

    /// Whether something of a tier may be erased already: the tier until then, or single payloads, of whichever tier.
    pub(crate) fn touches(&self, tier: i16) -> bool {
        !self.commits.is_empty() || u8::try_from(tier).is_ok_and(|tier| self.covered(tier) > 0)
    }

    /// The index of the erasure that covers a payload of the frame at a place.
    pub(crate) fn covering(&self, seq: u64, tier: u8, commit: &Hash) -> Option<u64> {
        let covers = |one: &&(u64, u8, u64)| one.1 == tier && seq < one.2;
        let of_tier = self.tiers.iter().find(covers).map(|one| one.0);
        let of_commit = self.commits.get(commit).filter(|(_, size)| seq < *size);
        of_tier.or(of_commit.map(|(index, _)| *index))
    }
}
