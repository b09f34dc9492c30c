//! Leave to erase. The statements that destroy keys or remove payloads take one of these, so that no way leads to them
//! that was not decided.

use onrecord_core::id::RunId;

/// A tier of a run of which something may be erased, as was decided in the transaction that certifies it.
#[derive(Debug)]
pub(crate) struct Permit {
    run: RunId,
    tier: i16,
}

impl Permit {
    /// Made by `retention::decide` alone, which a test holds it to: no other room knows what has to stay.
    pub(crate) fn decided(run: RunId, tier: i16) -> Self {
        Self { run, tier }
    }

    /// The run.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// The tier, 0 to 3.
    pub(crate) fn tier(&self) -> i16 {
        self.tier
    }
}

/// A tier of a run of which the ledger says what is erased. Nothing is decided anew after that: what a certificate names is
/// erased for every reader, and a hold that comes later comes too late for it.
#[derive(Clone, Debug)]
pub(crate) struct Certified {
    run: RunId,
    tier: i16,
}

impl Certified {
    /// Made where the store writes, or reads, that a part is certified.
    pub(super) fn stated(run: RunId, tier: i16) -> Self {
        Self { run, tier }
    }

    /// The run.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// The tier, 0 to 3.
    pub(crate) fn tier(&self) -> i16 {
        self.tier
    }
}
