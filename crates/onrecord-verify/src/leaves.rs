//! Leaf hashes in order, and the root at any size of the tree over them.

use crate::scratch;
use onrecord_core::digest::Hash;
use onrecord_core::merkle::Frontier;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Leaves between two kept frontiers: a root costs at most so many hashes.
const STRIDE: usize = 256;
/// Leaves that are held in memory: 1 MiB.
const HELD: usize = 32_768;
const HASH_BYTES: usize = 32;

/// About 3 bytes for each leaf for the frontiers; and 32, as long as there are few or if there is no room for
/// a temporary file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    first: Option<Hash>,
    /// The last of them.
    held: Vec<Hash>,
    /// Those before.
    filed: Filed,
    /// The tree at each multiple of the stride.
    marks: Vec<Frontier>,
}

/// The leaves that are in a file.
#[derive(Clone, Debug, Default)]
struct Filed {
    count: usize,
    /// Written to by one who has it alone; copies only read it.
    file: Option<Arc<Mutex<File>>>,
    /// Whether it took no more: what comes stays in memory.
    closed: bool,
    /// Why some could not be read back.
    failed: OnceLock<String>,
}

impl Leaves {
    /// The next leaf, with which the tree is `tree`.
    pub fn push(&mut self, leaf: Hash, tree: &Frontier) {
        self.first.get_or_insert(leaf);
        self.held.push(leaf);
        if self.len().is_multiple_of(STRIDE) {
            self.marks.push(tree.clone());
        }
        if self.held.len() >= HELD && self.filed.add(&self.held) {
            self.held.clear();
        }
    }

    fn len(&self) -> usize {
        self.filed.count + self.held.len()
    }

    pub fn size(&self) -> u64 {
        self.len() as u64
    }

    /// The first of them.
    pub fn first(&self) -> Option<Hash> {
        self.first
    }

    /// `None` beyond them, and where [`Self::failed`] says why.
    pub fn get(&self, index: u64) -> Option<Hash> {
        let index = usize::try_from(index).ok()?;
        self.range(index..index.checked_add(1)?)?.first().copied()
    }

    /// Root of the first `size` leaves; `None` beyond them, and where [`Self::failed`] says why.
    pub fn root_at(&self, size: u64) -> Option<Hash> {
        let size = usize::try_from(size).ok()?;
        let whole = size / STRIDE;
        let rest = self.range(whole * STRIDE..size)?;
        let mut tree = match whole.checked_sub(1) {
            Some(mark) => self.marks.get(mark)?.clone(),
            None => Frontier::new(),
        };
        for leaf in rest {
            tree.push(leaf);
        }
        Some(tree.root())
    }

    /// Why some of them could not be read back from their file.
    pub fn failed(&self) -> Option<&str> {
        self.filed.failed.get().map(String::as_str)
    }

    fn range(&self, range: Range<usize>) -> Option<Vec<Hash>> {
        if range.end > self.len() {
            return None;
        }
        let count = self.filed.count;
        let mut leaves = self
            .filed
            .read(range.start.min(count)..range.end.min(count))?;
        let [start, end] = [range.start, range.end].map(|at| at.saturating_sub(count));
        leaves.extend_from_slice(&self.held[start..end]);
        Some(leaves)
    }
}

impl Filed {
    /// Whether they are in the file now.
    fn add(&mut self, leaves: &[Hash]) -> bool {
        if self.closed {
            return false;
        }
        let added = self.write(leaves);
        self.closed = added.is_err();
        if added.is_ok() {
            self.count += leaves.len();
        }
        added.is_ok()
    }

    fn write(&mut self, leaves: &[Hash]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Arc::new(Mutex::new(scratch::file()?))),
        };
        let Some(file) = Arc::get_mut(file) else {
            return Err(io::ErrorKind::ResourceBusy.into());
        };
        let file = file.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = leaves.iter().flat_map(|leaf| leaf.0).collect();
        file.seek(SeekFrom::Start((self.count * HASH_BYTES) as u64))?;
        file.write_all(&bytes)
    }

    fn read(&self, range: Range<usize>) -> Option<Vec<Hash>> {
        let (Some(file), false) = (&self.file, range.is_empty()) else {
            return Some(Vec::new());
        };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = vec![0; range.len() * HASH_BYTES];
        let read = file
            .seek(SeekFrom::Start((range.start * HASH_BYTES) as u64))
            .and_then(|_| file.read_exact(&mut bytes));
        match read {
            Ok(()) => {
                let hashes = bytes.chunks(HASH_BYTES).map(Hash::from_slice);
                hashes.collect::<Result<_, _>>().ok()
            }
            Err(error) => {
                self.failed.get_or_init(|| error.to_string());
                None
            }
        }
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
    /// More than are held.
    fn many() -> (Leaves, Vec<Hash>) {
        let all: Vec<Hash> = (0..2 * HELD as u32 + 300)
            .map(|one| Hash::of(&[&one.to_be_bytes()]))
            .collect();
        let mut leaves = Leaves::default();
        push(&mut leaves, &all);
        (leaves, all)
    }

    fn push(leaves: &mut Leaves, all: &[Hash]) {
        let mut tree = Frontier::new();
        for leaf in all {
            tree.push(*leaf);
            leaves.push(*leaf, &tree);
        }
    }

    fn are(leaves: &Leaves, all: &[Hash]) {
        assert_eq!(leaves.size(), all.len() as u64);
        for size in [
            1,
            255,
            HELD - 1,
            HELD,
            HELD + 1,
            2 * HELD,
            2 * HELD + 299,
            all.len(),
        ] {
            let expected = root_of(all[..size].iter().copied());
            assert_eq!(leaves.root_at(size as u64), Some(expected), "{size}");
            assert_eq!(leaves.get(size as u64 - 1), Some(all[size - 1]), "{size}");
        }
        assert_eq!(leaves.first(), Some(all[0]));
        assert_eq!(leaves.get(all.len() as u64), None);
        assert_eq!(leaves.failed(), None);
    }

    #[test]
    fn most_of_many_are_in_a_file() {
        let (leaves, all) = many();
        assert_eq!(leaves.filed.count, 2 * HELD);
        assert_eq!(leaves.held.len(), 300);
        are(&leaves, &all);
        are(&leaves.clone(), &all);
    }

    #[test]
    fn where_no_file_takes_them_they_are_held() {
        let (_, all) = many();
        let mut leaves = Leaves::default();
        let only_read = File::open(std::env::current_exe().unwrap()).unwrap();
        leaves.filed.file = Some(Arc::new(Mutex::new(only_read)));
        push(&mut leaves, &all);
        assert_eq!(leaves.filed.count, 0);
        are(&leaves, &all);
    }

    #[test]
    fn a_file_that_lost_them_is_no_other_leaf() {
        let (leaves, all) = many();
        let file = leaves.filed.file.as_ref().unwrap();
        file.lock().unwrap().set_len(0).unwrap();
        assert_eq!(leaves.get(2 * HELD as u64), Some(all[2 * HELD]));
        assert_eq!(leaves.failed(), None);
        assert_eq!(leaves.get(7), None);
        assert!(leaves.failed().is_some());
        assert_eq!(leaves.root_at(7), None);
    }
}
