//! The tree against RFC 9162 written down naively.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use onrecord_core::digest::{Hash, leaf_hash, node_hash};
use onrecord_core::merkle::{
    BadProof, Frontier, consistency_nodes, consistency_path, inclusion_nodes, inclusion_path,
    root_of, verify_consistency, verify_inclusion,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The definitions of RFC 9162, section 2.1, word for word.
mod naive {
    use super::{Hash, node_hash};

    fn split(size: usize) -> usize {
        let mut k = 1;
        while k * 2 < size {
            k *= 2;
        }
        k
    }

    pub fn mth(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::of(&[]),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len()));
                node_hash(&mth(left), &mth(right))
            }
        }
    }

    pub fn path(m: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() <= 1 {
            return vec![];
        }
        let k = split(leaves.len());
        let (left, right) = leaves.split_at(k);
        let (mut path, sibling) = if m < k {
            (path(m, left), mth(right))
        } else {
            (path(m - k, right), mth(left))
        };
        path.push(sibling);
        path
    }

    pub fn proof(m: usize, leaves: &[Hash]) -> Vec<Hash> {
        subproof(m, leaves, true)
    }

    fn subproof(m: usize, leaves: &[Hash], known: bool) -> Vec<Hash> {
        if m == leaves.len() {
            return if known { vec![] } else { vec![mth(leaves)] };
        }
        let k = split(leaves.len());
        let (left, right) = leaves.split_at(k);
        let (mut proof, sibling) = if m <= k {
            (subproof(m, left, known), mth(right))
        } else {
            (subproof(m - k, right, false), mth(left))
        };
        proof.push(sibling);
        proof
    }
}

fn leaves(size: u64) -> Vec<Hash> {
    (0..size)
        .map(|index| leaf_hash(index.to_string().as_bytes()))
        .collect()
}

/// What a store would keep: the complete nodes.
struct Nodes(BTreeMap<(u8, u64), Hash>);

impl Nodes {
    fn of(leaves: &[Hash]) -> Self {
        let mut nodes = BTreeMap::new();
        let mut frontier = Frontier::new();
        for leaf in leaves {
            frontier.push_with(*leaf, |level, index, hash| {
                assert_eq!(nodes.insert((level, index), hash), None);
            });
        }
        Self(nodes)
    }

    /// The path, and that it asks for the nodes that it announced, all within the tree.
    fn inclusion(&self, index: u64, size: u64) -> Vec<Hash> {
        let mut asked = vec![];
        let path = inclusion_path(index, size, |level, at| {
            assert!((at + 1) << level <= size);
            asked.push((level, at));
            Ok::<_, Infallible>(self.0[&(level, at)])
        });
        assert_eq!(asked, inclusion_nodes(index, size));
        path.unwrap()
    }

    fn consistency(&self, first: u64, second: u64) -> Vec<Hash> {
        let mut asked = vec![];
        let path = consistency_path(first, second, |level, at| {
            assert!((at + 1) << level <= second);
            asked.push((level, at));
            Ok::<_, Infallible>(self.0[&(level, at)])
        });
        assert_eq!(asked, consistency_nodes(first, second));
        path.unwrap()
    }
}

/// Paths that differ from a good one: shorter, longer, turned round, one bit off.
fn spoiled(path: &[Hash]) -> Vec<Vec<Hash>> {
    let mut all = vec![
        [path, &[Hash([0; 32])]].concat(),
        [&[Hash([0; 32])], path].concat(),
    ];
    if let [first, rest @ ..] = path {
        all.extend([
            rest.to_vec(),
            path[..path.len() - 1].to_vec(),
            [&[*first], path].concat(),
        ]);
    }
    for place in 0..path.len() {
        let mut other = path.to_vec();
        other[place].0[place % 32] ^= 1 << (place % 8);
        all.push(other);
        if place > 0 {
            let mut other = path.to_vec();
            other.swap(place - 1, place);
            all.push(other);
        }
    }
    all
}

#[test]
fn roots_and_inclusion_of_every_size_are_the_model_s() {
    const MAX: u64 = 70;
    let leaves = leaves(MAX);
    let nodes = Nodes::of(&leaves);
    let roots: Vec<Hash> = (0..=MAX)
        .map(|size| naive::mth(&leaves[..size as usize]))
        .collect();
    for size in 0..=MAX {
        let tree = &leaves[..size as usize];
        let root = roots[size as usize];
        assert_eq!(root_of(tree.iter().copied()), root);
        for index in 0..size {
            let leaf = &tree[index as usize];
            let path = nodes.inclusion(index, size);
            assert_eq!(path, naive::path(index as usize, tree));
            assert_eq!(verify_inclusion(leaf, index, size, &path, &root), Ok(()));
            for bad in spoiled(&path) {
                assert!(verify_inclusion(leaf, index, size, &bad, &root).is_err());
            }
            for other in (0..MAX).filter(|other| *other != index) {
                assert!(verify_inclusion(leaf, other, size, &path, &root).is_err());
                assert!(
                    verify_inclusion(&leaves[other as usize], index, size, &path, &root).is_err()
                );
            }
            for other in (0..=MAX).filter(|other| *other != size) {
                let root = &roots[other as usize];
                assert!(verify_inclusion(leaf, index, other, &path, root).is_err());
            }
        }
    }
}

#[test]
fn consistency_of_every_two_sizes_is_the_model_s() {
    const MAX: u64 = 70;
    let leaves = leaves(MAX);
    let nodes = Nodes::of(&leaves);
    let roots: Vec<Hash> = (0..=MAX)
        .map(|size| naive::mth(&leaves[..size as usize]))
        .collect();
    for second in 1..=MAX {
        for first in 1..=second {
            let (old, new) = (&roots[first as usize], &roots[second as usize]);
            let path = nodes.consistency(first, second);
            assert_eq!(
                path,
                naive::proof(first as usize, &leaves[..second as usize])
            );
            assert_eq!(verify_consistency(first, second, old, new, &path), Ok(()));
            for bad in spoiled(&path) {
                assert!(verify_consistency(first, second, old, new, &bad).is_err());
            }
            for other in (0..=MAX).filter(|other| *other != first) {
                let root = &roots[other as usize];
                assert!(verify_consistency(first, second, root, new, &path).is_err());
                assert!(
                    verify_consistency(other, second, root, new, &path).is_err() || {
                        // The path of equal sizes is empty, and so is that from the empty tree.
                        path.is_empty() && (other == 0 || other == second)
                    }
                );
            }
            for other in (0..=MAX).filter(|other| *other != second) {
                let root = &roots[other as usize];
                assert!(verify_consistency(first, second, old, root, &path).is_err());
            }
        }
    }
}

#[test]
fn the_empty_tree_begins_every_tree_but_is_known_by_its_root() {
    let (empty, other) = (Hash::of(&[]), Hash([1; 32]));
    assert_eq!(Frontier::new().root(), empty);
    assert_eq!(verify_consistency(0, 0, &empty, &empty, &[]), Ok(()));
    assert_eq!(verify_consistency(0, 7, &empty, &other, &[]), Ok(()));
    for (second, old, new) in [
        (0, &other, &other),
        (0, &empty, &other),
        (7, &other, &other),
    ] {
        let verdict = verify_consistency(0, second, old, new, &[]);
        assert!(matches!(verdict, Err(BadProof::Root { .. })), "{verdict:?}");
    }
    assert_eq!(
        verify_consistency(0, 7, &empty, &other, &[other]),
        Err(BadProof::Length { found: 1 })
    );
    assert_eq!(
        verify_inclusion(&other, 0, 0, &[], &other),
        Err(BadProof::Range)
    );
}

#[test]
fn a_failing_store_fails_the_path() {
    let fail = |_, _| Err("gone");
    assert_eq!(inclusion_path(3, 7, fail), Err("gone"));
    assert_eq!(consistency_path(3, 7, fail), Err("gone"));
    // Nothing is asked for where there is nothing to prove.
    assert_eq!(inclusion_path(7, 7, fail), Ok(vec![]));
    assert_eq!(consistency_path(8, 7, fail), Ok(vec![]));
    assert_eq!(consistency_path(0, 7, fail), Ok(vec![]));
}

proptest! {
    #[test]
    fn larger_trees_are_the_model_s(size in 71_u64..2_000, index in 0_u64..2_000, first in 1_u64..2_000) {
        let (index, first) = (index % size, 1 + first % size);
        let leaves = leaves(size);
        let nodes = Nodes::of(&leaves);
        let root = naive::mth(&leaves);
        prop_assert_eq!(root_of(leaves.iter().copied()), root);
        let path = nodes.inclusion(index, size);
        prop_assert_eq!(&path, &naive::path(index as usize, &leaves));
        prop_assert_eq!(verify_inclusion(&leaves[index as usize], index, size, &path, &root), Ok(()));
        let path = nodes.consistency(first, size);
        prop_assert_eq!(&path, &naive::proof(first as usize, &leaves));
        let old = naive::mth(&leaves[..first as usize]);
        prop_assert_eq!(verify_consistency(first, size, &old, &root, &path), Ok(()));
    }

    #[test]
    fn no_numbers_are_too_much(first in any::<u64>(), second in any::<u64>(), shift in 0_u32..64, length in 0_usize..140) {
        let (first, second) = (first >> shift, second >> (63 - shift));
        let hash = Hash([9; 32]);
        let path = vec![hash; length];
        prop_assert!(verify_inclusion(&hash, first, second, &path, &hash).is_err() || path.is_empty());
        prop_assert!(verify_consistency(first, second, &hash, &hash, &path).is_err() || first == second);
        for (level, index) in inclusion_nodes(first, second).into_iter().chain(consistency_nodes(first, second)) {
            prop_assert!((u128::from(index) + 1) << level <= u128::from(second));
        }
    }
}
