//! Questions over many runs: a filter as text becomes a condition that the store answers, a page or a file of rows at a time.

mod cursor;
mod filter;
pub(crate) mod format;
mod search;
pub(crate) mod table;

pub(crate) use crate::store::search::Order;
pub(crate) use cursor::{BadCursor, Key};
pub(crate) use filter::{BadFilter, time};
pub(crate) use search::{Page, Resource, Rows, Search};
