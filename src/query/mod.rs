//! Questions over many runs: a filter as text becomes a condition that the store answers.

mod filter;
#[allow(
    dead_code,
    reason = "the endpoints that give rows come with the engine"
)]
pub(crate) mod format;
mod resource;
#[allow(
    dead_code,
    reason = "the endpoints that give rows come with the engine"
)]
pub(crate) mod table;

pub(crate) use filter::{BadFilter, time};
pub(crate) use resource::Resource;

use crate::store::condition::{Condition, RUN_FIELDS};

/// Reads a filter of runs.
pub(crate) fn of_runs(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, RUN_FIELDS)
}

/// Reads a filter only to know whether it is one.
pub(crate) fn check(_: Resource, text: &str) -> Result<(), BadFilter> {
    of_runs(text).map(|_| ())
}
