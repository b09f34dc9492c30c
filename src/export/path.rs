//! The inclusion path of one frame in its run: from the nodes that are kept, the right edge, and at most 64 frames.

use crate::store::{self, StoreError, Tx};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::merkle;
use std::collections::HashMap;
use std::convert::Infallible;
use store::run_nodes::{LEVEL, Read};

/// The frame at a place of a run, which is as the chain says, and its path. The place has to be in the run.
pub(super) async fn path(
    tx: &mut Tx,
    chain: &Chain,
    seq: u64,
) -> Result<(Vec<u8>, Vec<Hash>), StoreError> {
    let (run, size, tree) = (chain.run(), chain.size(), chain.tree());
    let kept: Vec<(u8, u64)> = merkle::inclusion_nodes(seq, size)
        .into_iter()
        .filter(|(level, index)| *level >= LEVEL && tree.node(*level, *index).is_none())
        .collect();
    let block = seq >> LEVEL << LEVEL;
    let around = block..size.min(block + (1 << LEVEL));
    let Read { nodes, frame } = store::run_nodes::read(tx, run, seq, around, &kept).await?;
    let wrong = || store::contradiction("frames", "seq", format!("{run}/{seq}"));
    let frame = frame.ok_or_else(wrong)?;
    let node = |level, index| {
        let edge = tree.node(level, index);
        edge.or_else(|| nodes.get(&(level, index)).copied())
            .or_else(|| below(&nodes, level, index))
            .ok_or(())
    };
    if let (Some(leaf), Ok(path)) = (
        nodes.get(&(0, seq)),
        merkle::inclusion_path(seq, size, node),
    ) && merkle::verify_inclusion(leaf, seq, size, &path, &tree.root()).is_ok()
    {
        return Ok((frame, path));
    }
    // A run that is older than the table, or a node that is not that of its frames: it is the frames that count, and
    // where one of these was altered the verifier says so.
    let hashes = store::frames::hashes(tx, run, size).await?;
    let Ok(path) = merkle::inclusion_path(seq, size, |level, index| {
        Ok::<_, Infallible>(merkle::root_of(leaves(level, index).filter_map(|leaf| {
            let place = usize::try_from(leaf).ok()?;
            hashes.get(place).copied()
        })))
    });
    Ok((frame, path))
}

/// The node of a few frames; `None` where one of them is not there.
fn below(nodes: &HashMap<(u8, u64), Hash>, level: u8, index: u64) -> Option<Hash> {
    if level >= LEVEL {
        return None;
    }
    let leaves = leaves(level, index).map(|leaf| nodes.get(&(0, leaf)).copied());
    Some(merkle::root_of(leaves.collect::<Option<Vec<_>>>()?))
}

/// The places of the frames below a node.
fn leaves(level: u8, index: u64) -> impl Iterator<Item = u64> {
    let first = index << level;
    first..first + (1 << level)
}
