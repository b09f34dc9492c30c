//! Nodes of runs' trees: what a proof is made of, without reading the run.
//!
//! They follow from the frames, and are written by the statement that writes the frame which completes them; so a crash
//! leaves both or neither. Runs of before this table have none.

use super::frames::NewFrame;
use super::id::Uuid;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use onrecord_core::merkle::Frontier;
use sqlx::Row as _;
use std::collections::HashMap;

/// The lowest level that is kept: lower nodes are hashed from the 64 frames that they are of. It adds a row for 32 frames.
pub(crate) const LEVEL: u8 = 6;

/// A complete node by level and index, and its hash.
pub(crate) type Node = (u8, u64, Hash);

/// The nodes that are kept and that frames complete in a tree.
pub(crate) fn completed(before: &Frontier, frames: &[NewFrame]) -> Vec<Node> {
    let mut nodes = Vec::new();
    let size = before.size();
    // So it is for most batches, which then hash nothing more.
    if size >> LEVEL == (size + frames.len() as u64) >> LEVEL {
        return nodes;
    }
    let mut tree = before.clone();
    for frame in frames {
        tree.push_with(frame.hash, |level, index, hash| {
            if level >= LEVEL {
                nodes.push((level, index, hash));
            }
        });
    }
    nodes
}

/// The hashes of the frames in the places from `from` to below `to`, and of `wanted` nodes that are kept: those of them
/// that are there, by level and index.
pub(crate) async fn read(
    tx: &mut Tx,
    run: &RunId,
    (from, to): (u64, u64),
    wanted: &[(u8, u64)],
) -> Result<HashMap<(u8, u64), Hash>, StoreError> {
    let rows = sqlx::query(
        "select 0::smallint as level, seq as idx, sha256('\\x00'::bytea || bytes) as hash
           from frames where run = $1 and seq >= $2 and seq < $3
         union all
         select node.level, node.idx, node.hash from unnest($4::smallint[], $5::bigint[]) as wanted (level, idx),
           lateral (select * from run_nodes where run = $1 and level = wanted.level and idx = wanted.idx limit 1) as node",
    )
    .bind(Uuid::from(run))
    .bind(signed(from))
    .bind(signed(to))
    .bind(wanted.iter().map(|(level, _)| i16::from(*level)).collect::<Vec<_>>())
    .bind(wanted.iter().map(|(_, index)| signed(*index)).collect::<Vec<_>>())
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            let level = u8::try_from(row.try_get::<i16, _>("level")?)
                .map_err(|_| contradiction("run_nodes", "level", run))?;
            let index = unsigned(row.try_get("idx")?, "run_nodes", "idx")?;
            let hash = hash(row.try_get("hash")?, "run_nodes", "hash")?;
            Ok(((level, index), hash))
        })
        .collect()
}
