//! Questions over many runs: a filter as text becomes a condition that the store answers.

mod filter;

pub(crate) use filter::{BadFilter, time};

use crate::store::condition::{Condition, RULE_FIELDS, RUN_FIELDS};

/// Reads a filter of runs.
pub(crate) fn of_runs(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, RUN_FIELDS)
}

/// Reads the filter of a rule of retention.
pub(crate) fn of_rules(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, RULE_FIELDS)
}
