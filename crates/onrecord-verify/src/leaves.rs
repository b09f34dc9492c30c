//! Leaf hashes in order, and the root at any size of the tree over them.

use onrecord_core::digest::Hash;
use onrecord_core::merkle::Frontier;

/// Leaves between two kept frontiers: a root costs at most so many hashes.
const STRIDE: usize = 256;

/// 32 bytes for each leaf and about 3 more for the frontiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    hashes: Vec<Hash>,
    /// The tree at each multiple of the stride.
    marks: Vec<Frontier>,
}

impl Leaves {
    /// The next leaf, with which the tree is `tree`.
    pub fn push(&mut self, leaf: Hash, tree: &Frontier) {
        self.hashes.push(leaf);
        if self.hashes.len().is_multiple_of(STRIDE) {
            self.marks.push(tree.clone());
        }
    }

    pub fn size(&self) -> u64 {
        self.hashes.len() as u64
    }

    pub fn get(&self, index: u64) -> Option<Hash> {
        self.hashes.get(usize::try_from(index).ok()?).copied()
    }

    /// Root of the first `size` leaves; `None` beyond them.
    pub fn root_at(&self, size: u64) -> Option<Hash> {
        let size = usize::try_from(size).ok()?;
        let whole = size / STRIDE;
        let rest = self.hashes.get(whole * STRIDE..size)?;
        let mut tree = match whole.checked_sub(1) {
            Some(mark) => self.marks.get(mark)?.clone(),
            None => Frontier::new(),
        };
        for leaf in rest {
            tree.push(*leaf);
        }
        Some(tree.root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrecord_core::merkle::root_of;

    #[test]
    fn roots_of_all_sizes_are_those_of_the_tree() {
        let all: Vec<Hash> = (0..600u32)
            .map(|one| Hash::of(&[&one.to_be_bytes()]))
            .collect();
        let (mut leaves, mut tree) = (Leaves::default(), Frontier::new());
        for leaf in &all {
            tree.push(*leaf);
            leaves.push(*leaf, &tree);
        }
        for size in 0..=all.len() {
            let expected = root_of(all[..size].iter().copied());
            assert_eq!(leaves.root_at(size as u64), Some(expected), "{size}");
        }
        assert_eq!(leaves.root_at(601), None);
        assert_eq!(leaves.get(599), Some(all[599]));
        assert_eq!(leaves.get(600), None);
    }
}
