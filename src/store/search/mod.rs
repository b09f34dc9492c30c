//! Searches over many runs: which rows a condition is true of, by the indexes that serve it.
//!
//! A condition is taken apart into branches (`branch`). The runs of a branch are found by what leads to the fewest of them
//! (`driver`): what frames say, a status, an outcome, or all runs of the tenant, newest first. Frames are found by their
//! kind and their name or verdict, newest first (`frames`). What is left of the condition is asked of each row. Nothing
//! goes over a table as a whole, and what takes too long is given up ([`SECONDS`]).

mod branch;
pub(crate) mod condition;
mod driver;
pub(crate) mod field;
pub(crate) mod frames;
mod kinds;
mod resolve;
pub(crate) mod runs;

pub(crate) use driver::{Bounds, OPENING_MICROS};

use super::{StoreError, Tx};

/// Seconds that a statement of a search may take.
pub(crate) const SECONDS: u32 = 5;

/// In which order rows come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// The newest first.
    #[default]
    Descending,
    /// The oldest first.
    Ascending,
}

impl Order {
    /// The word of SQL.
    fn word(self) -> &'static str {
        match self {
            Self::Descending => " desc",
            Self::Ascending => " asc",
        }
    }

    /// The sign between a row behind another one and that.
    fn behind(self) -> &'static str {
        match self {
            Self::Descending => " < ",
            Self::Ascending => " > ",
        }
    }
}

/// Sets a transaction up for pages of rows in the order of an index: no plan may read all rows first, also where the planner
/// has no statistics yet and takes a table for an empty one.
async fn row_by_row(tx: &mut Tx) -> Result<(), StoreError> {
    sqlx::query(
        "select set_config('statement_timeout', $1, true), set_config('jit', 'off', true),
           set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
           set_config('enable_sort', 'off', true), set_config('enable_mergejoin', 'off', true),
           set_config('enable_hashjoin', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
           set_config('work_mem', '64MB', true)",
    )
    .bind(format!("{SECONDS}s"))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
