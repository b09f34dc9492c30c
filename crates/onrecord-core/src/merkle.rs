//! The Merkle tree of RFC 9162, section 2.1: roots, inclusion and consistency (spec: `docs/spec/chain.md`).
//!
//! A node is named by its level (0 are the leaves) and its index in that level; it is complete when
//! its subtree has all of its 2^level leaves. Complete nodes never change, so they are what a store
//! keeps; an incomplete one is hashed from complete ones when it is needed.

use crate::digest::{Hash, node_hash};
use alloc::vec::Vec;

/// Why a proof shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProof {
    /// No such leaf in a tree of that size, or the first tree is larger than the second.
    #[error("the proof is about a leaf or a tree size beyond the tree")]
    Range,
    /// A path has exactly one possible length for its index and sizes.
    #[error("the path has {found} hashes, too few or too many for these positions")]
    Length {
        /// Hashes in the path.
        found: usize,
    },
    /// The path leads to another root.
    #[error("the path leads to root {found}, expected {expected}")]
    Root {
        /// The root that the tree is said to have.
        expected: Hash,
        /// The root that the path leads to.
        found: Hash,
    },
}

/// The right edge of a growing tree: all that appending and the root need, at most 64 hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    nodes: Vec<Hash>,
}

impl Frontier {
    /// The empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// A frontier as it was stored: `nodes` are the roots of the complete subtrees, largest first, one
    /// for each bit that is set in `size`. `None` if their number does not fit.
    pub fn from_nodes(size: u64, nodes: Vec<Hash>) -> Option<Self> {
        (nodes.len() == size.count_ones() as usize).then_some(Self { size, nodes })
    }

    /// Leaves in the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Roots of the complete subtrees, largest first.
    pub fn nodes(&self) -> &[Hash] {
        &self.nodes
    }

    /// The hash of a complete subtree by level and index, if it is one of [`Frontier::nodes`].
    pub fn node(&self, level: u8, index: u64) -> Option<Hash> {
        let rest = self.size.checked_shr(u32::from(level))?;
        // Of each level whose bit is set there is one, behind all of the larger ones.
        let larger = (rest >> 1).count_ones() as usize;
        let is_edge = rest & 1 == 1 && index == rest - 1;
        is_edge.then(|| self.nodes.get(larger).copied()).flatten()
    }

    /// Appends a leaf hash.
    pub fn push(&mut self, leaf: Hash) {
        self.push_with(leaf, |_, _, _| ());
    }

    /// Appends a leaf hash and names each node that became complete by it as `(level, index, hash)`,
    /// the leaf itself (level 0) first.
    pub fn push_with(&mut self, leaf: Hash, mut on_node: impl FnMut(u8, u64, Hash)) {
        let index = self.size;
        on_node(0, index, leaf);
        let mut node = leaf;
        // Each low bit that is set is a subtree of the same size waiting on the left, as in a binary carry.
        for level in 1..=index.trailing_ones() as u8 {
            if let Some(left) = self.nodes.pop() {
                node = node_hash(&left, &node);
                on_node(level, index >> level, node);
            }
        }
        self.nodes.push(node);
        self.size += 1;
    }

    /// MTH of the leaves so far; of none it is `SHA-256("")` (RFC 9162, 2.1.1).
    pub fn root(&self) -> Hash {
        fold(&self.nodes).unwrap_or_else(|| Hash::of(&[]))
    }
}

/// MTH of the leaf hashes; of none it is `SHA-256("")` (RFC 9162, 2.1.1).
pub fn root_of(leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut frontier = Frontier::new();
    for leaf in leaves {
        frontier.push(leaf);
    }
    frontier.root()
}

/// The complete nodes that the root of a tree of `size` leaves is hashed from, largest first: what
/// [`Frontier::from_nodes`] takes, so that a store can fetch them at once.
pub fn root_nodes(size: u64) -> Vec<(u8, u64)> {
    Range {
        start: 0,
        end: size,
    }
    .nodes()
    .collect()
}

/// The complete nodes that [`inclusion_path`] asks for, in that order, so that a store can fetch them at once.
pub fn inclusion_nodes(index: u64, size: u64) -> Vec<(u8, u64)> {
    inclusion_ranges(index, size)
        .iter()
        .flat_map(|range| range.nodes())
        .collect()
}

/// The complete nodes that [`consistency_path`] asks for, in that order, so that a store can fetch them at once.
pub fn consistency_nodes(first: u64, second: u64) -> Vec<(u8, u64)> {
    consistency_ranges(first, second)
        .iter()
        .flat_map(|range| range.nodes())
        .collect()
}

/// PATH(index, D_size) of RFC 9162, 2.1.3.1: from the leaf's sibling up to a child of the root.
///
/// `node` gives the hash of a complete node by level and index; its error is the only one. A leaf
/// beyond the tree has an empty path, which verifies nothing.
pub fn inclusion_path<E>(
    index: u64,
    size: u64,
    node: impl FnMut(u8, u64) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    hashes(inclusion_ranges(index, size), node)
}

/// PROOF(first, D_second) of RFC 9162, 2.1.4.1; empty if `first` is 0 or `second`.
///
/// `node` gives the hash of a complete node by level and index; its error is the only one. Sizes in
/// the wrong order have an empty path, which verifies nothing.
pub fn consistency_path<E>(
    first: u64,
    second: u64,
    node: impl FnMut(u8, u64) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    hashes(consistency_ranges(first, second), node)
}

/// Checks that the leaf hash stands at `index` (from 0) of the tree of `size` leaves under `root`
/// (RFC 9162, 2.1.3.2).
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    path: &[Hash],
    root: &Hash,
) -> Result<(), BadProof> {
    if index >= size {
        return Err(BadProof::Range);
    }
    let length = BadProof::Length { found: path.len() };
    let (mut node, mut last, mut found) = (index, size - 1, *leaf);
    for sibling in path {
        if last == 0 {
            return Err(length);
        }
        if node & 1 == 1 || node == last {
            found = node_hash(sibling, &found);
            // An incomplete right edge has no sibling until some level above.
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            found = node_hash(&found, sibling);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if last != 0 {
        return Err(length);
    }
    same_root(root, found)
}

/// Checks that the first `first` leaves of the tree of `second` leaves are the tree under `first_root`
/// (RFC 9162, 2.1.4.2).
///
/// The empty tree is the beginning of every tree, so that its path is empty and only its root is checked.
pub fn verify_consistency(
    first: u64,
    second: u64,
    first_root: &Hash,
    second_root: &Hash,
    path: &[Hash],
) -> Result<(), BadProof> {
    if first > second {
        return Err(BadProof::Range);
    }
    if first == 0 {
        same_root(first_root, Hash::of(&[]))?;
    }
    let length = BadProof::Length { found: path.len() };
    if first == 0 || first == second {
        return match path {
            [] if first == second => same_root(second_root, *first_root),
            [] => Ok(()),
            _ => Err(length),
        };
    }
    // A first tree that is one complete subtree starts the path itself, and is left out of it.
    let (start, rest) = if first.is_power_of_two() {
        (*first_root, path)
    } else {
        let (start, rest) = path.split_first().ok_or(length)?;
        (*start, rest)
    };
    let skip = (first - 1).trailing_ones();
    let (mut node, mut last) = ((first - 1) >> skip, (second - 1) >> skip);
    let (mut old, mut new) = (start, start);
    for sibling in rest {
        if last == 0 {
            return Err(length);
        }
        if node & 1 == 1 || node == last {
            old = node_hash(sibling, &old);
            new = node_hash(sibling, &new);
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            new = node_hash(&new, sibling);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if last != 0 {
        return Err(length);
    }
    same_root(first_root, old)?;
    same_root(second_root, new)
}

fn same_root(expected: &Hash, found: Hash) -> Result<(), BadProof> {
    if *expected == found {
        Ok(())
    } else {
        Err(BadProof::Root {
            expected: *expected,
            found,
        })
    }
}

/// The leaves from `start` to before `end`, as the recursion of RFC 9162 cuts them: `start` is a multiple
/// of the power of two that `end - start` reaches or stays below.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    fn len(self) -> u64 {
        self.end - self.start
    }

    /// The two halves of MTH: the left one has the largest power of two below the length. Needs two leaves.
    fn halves(self) -> (Self, Self) {
        let middle = self.start + (1 << (self.len() - 1).ilog2());
        let (start, end) = (self.start, self.end);
        (Self { start, end: middle }, Self { start: middle, end })
    }

    /// Its complete subtrees as (level, index), largest first.
    fn nodes(self) -> impl Iterator<Item = (u8, u64)> {
        let mut at = self.start;
        (0..64u8)
            .rev()
            .filter(move |level| self.len() >> level & 1 == 1)
            .map(move |level| {
                let index = at >> level;
                at += 1 << level;
                (level, index)
            })
    }
}

fn inclusion_ranges(index: u64, size: u64) -> Vec<Range> {
    let mut ranges = Vec::new();
    let mut tree = Range {
        start: 0,
        end: size,
    };
    while index < size && tree.len() > 1 {
        let (left, right) = tree.halves();
        let (with, sibling) = if index < left.end {
            (left, right)
        } else {
            (right, left)
        };
        ranges.push(sibling);
        tree = with;
    }
    ranges.reverse();
    ranges
}

fn consistency_ranges(first: u64, second: u64) -> Vec<Range> {
    let mut ranges = Vec::new();
    let mut tree = Range {
        start: 0,
        end: second,
    };
    if first == 0 || first >= second {
        return ranges;
    }
    while first != tree.end {
        let (left, right) = tree.halves();
        let (with, sibling) = if first <= left.end {
            (left, right)
        } else {
            (right, left)
        };
        ranges.push(sibling);
        tree = with;
    }
    // The verifier has the first tree's root already, if that is all that is left.
    if tree.start != 0 {
        ranges.push(tree);
    }
    ranges.reverse();
    ranges
}

fn hashes<E>(
    ranges: Vec<Range>,
    mut node: impl FnMut(u8, u64) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    let mut path = Vec::with_capacity(ranges.len());
    for range in ranges {
        let subtrees = range
            .nodes()
            .map(|(level, index)| node(level, index))
            .collect::<Result<Vec<_>, E>>()?;
        path.extend(fold(&subtrees));
    }
    Ok(path)
}

/// MTH of the leaves under adjacent complete subtrees, largest first; `None` of none.
fn fold(nodes: &[Hash]) -> Option<Hash> {
    let (last, larger) = nodes.split_last()?;
    Some(
        larger
            .iter()
            .rfold(*last, |right, left| node_hash(left, &right)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::leaf_hash;
    use alloc::string::ToString;

    fn leaves(size: u64) -> Vec<Hash> {
        (0..size)
            .map(|index| leaf_hash(index.to_string().as_bytes()))
            .collect()
    }

    #[test]
    fn a_frontier_names_every_node_once_and_comes_back_from_its_nodes() {
        let mut frontier = Frontier::new();
        let mut nodes = std::collections::BTreeMap::new();
        for (index, leaf) in leaves(70).into_iter().enumerate() {
            frontier.push_with(leaf, |level, index, hash| {
                assert_eq!(nodes.insert((level, index), hash), None);
            });
            let size = index as u64 + 1;
            let complete: u64 = (0..64).map(|level| size >> level).sum();
            assert_eq!(nodes.len() as u64, complete);
            let stored = frontier.nodes().to_vec();
            let named = root_nodes(size).into_iter().map(|node| nodes[&node]);
            assert_eq!(named.collect::<Vec<_>>(), stored);
            let edge = nodes
                .keys()
                .filter_map(|(level, index)| frontier.node(*level, *index));
            assert_eq!(edge.count(), stored.len());
            for ((level, index), hash) in &nodes {
                let edge = frontier.node(*level, *index);
                assert!(edge.is_none_or(|edge| edge == *hash));
            }
            assert_eq!(frontier.node(63, 0), None);
            assert_eq!(frontier.node(64, 0), None);
            assert_eq!(Frontier::from_nodes(size + 1, stored.clone()).is_some(), {
                (size + 1).count_ones() == size.count_ones()
            });
            assert_eq!(Frontier::from_nodes(size, stored), Some(frontier.clone()));
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let size = u64::MAX;
        for index in [0, 1, size / 2, size - 1] {
            let nodes = inclusion_nodes(index, size);
            assert!(
                nodes
                    .iter()
                    .all(|(level, at)| u128::from(at + 1) << level <= u128::from(size))
            );
            let path = inclusion_path(index, size, |_, _| Ok::<_, ()>(Hash([7; 32]))).unwrap();
            let Err(BadProof::Root { found, .. }) =
                verify_inclusion(&Hash([7; 32]), index, size, &path, &Hash([0; 32]))
            else {
                panic!("the root cannot be zero");
            };
            assert_eq!(
                verify_inclusion(&Hash([7; 32]), index, size, &path, &found),
                Ok(())
            );
        }
        for first in [1, size / 2 + 1, size - 1] {
            let path = consistency_path(first, size, |_, _| Ok::<_, ()>(Hash([7; 32]))).unwrap();
            let zero = Hash([0; 32]);
            let verdict = verify_consistency(first, size, &zero, &zero, &path);
            assert!(matches!(verdict, Err(BadProof::Root { .. })), "{verdict:?}");
        }
    }
}
