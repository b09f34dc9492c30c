//! Questions over many runs: a filter as text becomes a condition that the store answers, a page or a file of rows at a time.

mod counts;
mod cursor;
mod filter;
pub(crate) mod format;
mod resource;
mod rows;
mod search;
pub(crate) mod table;

pub(crate) use crate::store::search::Order;
pub(crate) use counts::Counts;
pub(crate) use cursor::{BadCursor, Key};
pub(crate) use filter::{BadFilter, time};
pub(crate) use resource::Resource;
pub(crate) use search::{Page, Rows, Search};

/// Reads a filter only to know whether it is one.
pub(crate) fn check(resource: Resource, text: &str) -> Result<(), BadFilter> {
    filter::parse(text, resource.fields()).map(|_| ())
}
