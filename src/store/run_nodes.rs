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
use std::ops::Range;

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

/// What is read of a run for a proof.
pub(crate) struct Read {
    /// Hashes of frames (level 0) and of nodes that are kept, by level and index: those that are there.
    pub(crate) nodes: HashMap<(u8, u64), Hash>,
    /// The bytes of the frame that is to be proven.
    pub(crate) frame: Option<Vec<u8>>,
}

/// Reads the frame at a place, the hashes of those around it, and nodes that are kept.
///
/// Places are listed and not said as a range: the planner takes a range that it does not know for much of the table, and
/// plans anew each time, which takes longer than reading does.
pub(crate) async fn read(
    tx: &mut Tx,
    run: &RunId,
    seq: u64,
    around: Range<u64>,
    wanted: &[(u8, u64)],
) -> Result<Read, StoreError> {
    let rows = sqlx::query(
        "select 0::smallint as level, seq as idx, sha256('\\x00'::bytea || bytes) as hash, case when seq = $2 then bytes end as frame
           from frames where run = $1 and seq = any($3)
         union all
         select node.level, node.idx, node.hash, null from unnest($4::smallint[], $5::bigint[]) as wanted (level, idx),
           lateral (select * from run_nodes where run = $1 and level = wanted.level and idx = wanted.idx limit 1) as node",
    )
    .bind(Uuid::from(run))
    .bind(signed(seq))
    .bind(around.map(signed).collect::<Vec<_>>())
    .bind(wanted.iter().map(|(level, _)| i16::from(*level)).collect::<Vec<_>>())
    .bind(wanted.iter().map(|(_, index)| signed(*index)).collect::<Vec<_>>())
    .fetch_all(&mut **tx)
    .await?;
    let mut read = Read {
        nodes: HashMap::with_capacity(rows.len()),
        frame: None,
    };
    for row in &rows {
        let level = u8::try_from(row.try_get::<i16, _>("level")?)
            .map_err(|_| contradiction("run_nodes", "level", run))?;
        let index = unsigned(row.try_get("idx")?, "run_nodes", "idx")?;
        let hash = hash(row.try_get("hash")?, "run_nodes", "hash")?;
        read.nodes.insert((level, index), hash);
        if let Some(frame) = row.try_get("frame")? {
            read.frame = Some(frame);
        }
    }
    Ok(read)
}
