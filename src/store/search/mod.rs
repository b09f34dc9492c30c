//! Searches over many runs: which rows a condition is true of, by the indexes that serve it.
//!
//! A condition is taken apart into branches (`branch`). The runs of a branch are found by what leads to the fewest of them
//! (`driver`): what frames say, a status, an outcome, or all runs of the tenant, newest first. Frames are found by their
//! kind and their name or verdict, newest first (`ways`). What is left of the condition is asked of each row. Nothing
//! goes over a table as a whole: a page is looked for piece by piece (`piece`), and ends where it came to when it has taken
//! long (`pace`). A single statement that takes too long all the same is given up ([`SECONDS`]).

mod bounds;
mod branch;
pub(crate) mod condition;
pub(crate) mod counts;
pub(crate) mod coverage;
mod driver;
pub(crate) mod field;
pub(crate) mod frames;
mod kinds;
mod pace;
pub(crate) mod payloads;
mod piece;
mod resolve;
pub(crate) mod runs;
pub(crate) mod said;
mod ways;

pub(crate) use bounds::{Bounds, OPENING_MICROS};
pub use pace::Effort;
pub(crate) use pace::Found;

use super::id::Uuid;
use super::{StoreError, Tx, unsigned};
use onrecord_core::id::RunId;
use sqlx::Row as _;
use std::collections::HashMap;

/// Seconds that a statement of a search may take.
pub(crate) const SECONDS: u32 = 5;
/// Seconds that one may take that counts.
pub(crate) const SECONDS_OF_COUNTS: u32 = 15;

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
    /// `desc` or `asc`.
    pub(crate) fn as_str(self) -> &'static str {
        self.word().trim_start()
    }

    /// The word of SQL.
    fn word(self) -> &'static str {
        match self {
            Self::Descending => " desc",
            Self::Ascending => " asc",
        }
    }

    /// The other one.
    fn reversed(self) -> Self {
        match self {
            Self::Descending => Self::Ascending,
            Self::Ascending => Self::Descending,
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

/// The numbers and agents of runs.
async fn of_runs(
    tx: &mut Tx,
    mut runs: Vec<Uuid>,
) -> Result<HashMap<RunId, (u64, Option<String>)>, StoreError> {
    runs.sort_unstable();
    runs.dedup();
    let rows = sqlx::query("select run, run_no, agent from runs where run = any($1)")
        .bind(runs)
        .fetch_all(&mut **tx)
        .await?;
    let of_run = |row: &sqlx::postgres::PgRow| {
        let number = unsigned(row.try_get("run_no")?, "runs", "run_no")?;
        let run = row.try_get::<Uuid, _>("run")?.into();
        Ok((run, (number, row.try_get("agent")?)))
    };
    rows.iter().map(of_run).collect()
}
