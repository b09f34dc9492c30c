//! The receipt: what an append answers (spec: `docs/spec/ledger.md`).

use crate::digest::Hash;
use crate::id::RunId;
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// `{run, seq, hash, at}`: whoever keeps the last one can prove a truncation even before the seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The store's time of the frame.
    pub at: Timestamp,
    /// The frame's hash.
    pub hash: Hash,
    /// The run.
    pub run: RunId,
    /// Place in the run.
    pub seq: u64,
}
