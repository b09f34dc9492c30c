//! Questions over many runs: a filter as text becomes a condition that the store answers.

mod filter;
#[allow(
    dead_code,
    reason = "the endpoints that give rows come with the engine"
)]
pub(crate) mod format;
#[allow(
    dead_code,
    reason = "the endpoints that give rows come with the engine"
)]
pub(crate) mod table;

pub(crate) use filter::{BadFilter, time};

use crate::store::search::condition::Condition;
use crate::store::search::field::{FRAME_FIELDS, PAYLOAD_FIELDS, RUN_FIELDS};
use filter::Fields;

static OF_RUNS: Fields = &[("", RUN_FIELDS)];
static OF_FRAMES: Fields = &[("", FRAME_FIELDS), ("run.", RUN_FIELDS)];
static OF_PAYLOAD_RECORDS: Fields = &[("", PAYLOAD_FIELDS), ("run.", RUN_FIELDS)];

/// Reads a filter of runs.
pub(crate) fn of_runs(text: &str) -> Result<Condition, BadFilter> {
    filter::parse(text, OF_RUNS)
}
