//! Questions over many runs: a filter as text becomes a condition that the store answers, a page or a file of rows at a time.

mod counts;
mod coverage;
mod cursor;
mod filter;
pub(crate) mod format;
mod resource;
mod rows;
mod search;
pub(crate) mod table;

pub use crate::store::search::Effort;
pub(crate) use crate::store::search::Order;
pub(crate) use counts::Counts;
pub(crate) use coverage::covered;
pub(crate) use cursor::{BadCursor, Key};
pub(crate) use filter::{BadFilter, time};
pub(crate) use resource::Resource;
pub(crate) use search::{Page, Rows, Search};

use crate::store::search::condition::Condition;
use crate::store::search::field::RULE_FIELDS;
use filter::Fields;

static OF_RULES: Fields = &[("", RULE_FIELDS)];

/// Reads a filter only to know whether it is one.
pub(crate) fn check(resource: Resource, text: &str) -> Result<(), BadFilter> {
    filter::parse(text, resource.fields()).map(|_| ())
}

/// Reads a filter of runs.
pub(crate) fn of_runs(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, Resource::Runs.fields())
}

/// Reads the filter of a rule of retention.
pub(crate) fn of_rules(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, OF_RULES)
}
