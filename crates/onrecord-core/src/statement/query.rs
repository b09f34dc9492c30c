//! What the ledger says of a question over many runs.

use crate::frame::Actor;
use crate::timestamp::Timestamp;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// `query`: runs, frames or payload records were asked for over many runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// Why.
    pub purpose: String,
    /// What was asked for, such as `runs`, `frames` or `payload-records`.
    pub resource: String,
}
