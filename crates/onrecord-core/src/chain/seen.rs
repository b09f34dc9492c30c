//! What is unique in a run: keys of frames and commitments of payloads.

use crate::digest::Hash;
use crate::frame::Frame;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The keys and commitments of a run, which are unique in it. Where a database keeps them unique the
/// chain is extended without.
///
/// It grows with a run, by 22 to 27 bytes for each frame and each payload: whether a key is new has to be
/// known when its frame is read, since nothing behind one that is not new is looked at.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    keys: Marks,
    commits: Marks,
}

impl Seen {
    pub(super) fn add(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        if !self.keys.insert(mark(frame.key.as_bytes())) {
            return Err(format!("the key {:?} is an earlier frame's", frame.key));
        }
        for payload in frame.payloads() {
            if !self.commits.insert(mark(&payload.commit.0)) {
                return Err(format!(
                    "the commitment {} is an earlier payload's",
                    payload.commit
                ));
            }
        }
        Ok(())
    }
}

/// What tells a text from all others of a run.
type Mark = [u8; 16];

/// A short text is its own mark, with its length behind it, so that no two are the same. Of a longer one
/// it is half a digest, which has the highest bit of the last byte as no length has: 2^63 tries for a
/// collision, and one would only refuse a run.
fn mark(bytes: &[u8]) -> Mark {
    let mut mark = [0; 16];
    if bytes.len() < mark.len() {
        mark[..bytes.len()].copy_from_slice(bytes);
        mark[15] = bytes.len() as u8;
    } else {
        mark.copy_from_slice(&Hash::of(&[bytes]).0[..16]);
        mark[15] |= 0x80;
    }
    mark
}

/// Places that are looked at for a mark.
const PROBES: usize = 32;
/// Tables of a set: they grow one after the other, so that the old and the new one are little together.
const TABLES: usize = 64;
const FIRST_SLOTS: usize = 16;
/// A large odd number without a pattern: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set of marks.
#[derive(Clone, Debug, Default)]
struct Marks {
    /// None, or all [`TABLES`].
    tables: Vec<Table>,
}

impl Marks {
    /// Whether it is new.
    fn insert(&mut self, mark: Mark) -> bool {
        if self.tables.is_empty() {
            self.tables = vec![Table::default(); TABLES];
        }
        self.tables[table(mark)].insert(mark)
    }
}

/// Marks, where each stands close to the place that its bytes name. One that finds no free place there, of
/// which somebody may choose many, is kept in a tree beside it.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Zeros are a free one.
    slots: Vec<Mark>,
    used: usize,
    beside: BTreeSet<Mark>,
}

impl Table {
    fn insert(&mut self, mark: Mark) -> bool {
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put(mark)
    }

    fn put(&mut self, mark: Mark) -> bool {
        let home = home(mark, self.slots.len());
        let (before, after) = self.slots.split_at_mut(home);
        for slot in after.iter_mut().chain(before).take(PROBES) {
            if *slot == mark {
                // The mark of no text is as a free place is; there is no such key.
                return false;
            }
            if *slot == [0; 16] {
                *slot = mark;
                self.used += 1;
                return true;
            }
        }
        // The places are never free again, so that it is looked for here every time.
        self.beside.insert(mark)
    }

    fn grow(&mut self) {
        // By a quarter: by half or to the double there would be more free places than marks.
        let slots = (self.slots.len() + self.slots.len() / 4).max(FIRST_SLOTS);
        let before = core::mem::replace(&mut self.slots, vec![[0; 16]; slots]);
        let beside = core::mem::take(&mut self.beside);
        self.used = 0;
        for mark in before.into_iter().filter(|mark| *mark != [0; 16]) {
            self.put(mark);
        }
        for mark in beside {
            self.put(mark);
        }
    }
}

/// The table of a mark: the highest bits of what is mixed.
fn table(mark: Mark) -> usize {
    (mixed(mark) >> 58) as usize
}

/// Where a mark would like to stand in a table of so many slots: the low half of what is mixed, as a part of them.
fn home(mark: Mark, slots: usize) -> usize {
    ((mixed(mark) & 0xffff_ffff).wrapping_mul(slots as u64) >> 32) as usize
}

/// Texts that differ in a few digits somewhere come to different places: a product carries them upwards, a
/// shift brings them down again.
fn mixed(mark: Mark) -> u64 {
    let number = u128::from_le_bytes(mark);
    let mixed = number as u64 ^ ((number >> 64) as u64).wrapping_mul(SPREAD);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(SPREAD);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(SPREAD);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_new_once() {
        let spread = (0..20_000u64).map(|at| mark(&at.to_le_bytes()));
        let digests = (0..2_000u64).map(|at| mark(&[at.to_le_bytes(); 2].concat()));
        // As somebody chooses them who wants all in one place.
        let place = |mark| (table(mark), home(mark, 1 << 10));
        let chosen = (1..).map(|at: u64| {
            let mut mark = [7; 16];
            mark[8..].copy_from_slice(&at.to_le_bytes());
            mark
        });
        let chosen = chosen.filter(|mark| place(*mark) == place([7; 16]));
        let mut marks = Marks::default();
        let mut model = BTreeSet::new();
        for mark in spread.chain(digests).chain(chosen.take(200)) {
            assert_eq!(marks.insert(mark), model.insert(mark));
            assert!(!marks.insert(mark));
        }
        let sum = |count: fn(&Table) -> usize| marks.tables.iter().map(count).sum::<usize>();
        assert!(sum(|table| table.beside.len()) > 100);
        assert_eq!(sum(|table| table.used + table.beside.len()), model.len());
        assert!(model.iter().all(|mark| !marks.insert(*mark)));
    }

    #[test]
    fn counted_keys_stand_close_to_their_places() {
        let spell: [fn(u32) -> String; 4] = [
            |at| format!("call/{at:08}"),
            |at| format!("turn/{at}"),
            |at| format!("{at}"),
            |at| format!("k{at:06x}"),
        ];
        for spell in spell {
            let mut marks = Marks::default();
            for at in 0..30_000 {
                assert!(marks.insert(mark(spell(at).as_bytes())));
            }
            // As many as of digests.
            let beside = marks.tables.iter().map(|table| table.beside.len());
            assert!(beside.sum::<usize>() < 200, "{}", spell(0));
            let slots = marks.tables.iter().map(|table| table.slots.len());
            assert!(slots.sum::<usize>() * size_of::<Mark>() < 27 * 30_000);
        }
    }

    #[test]
    fn texts_have_marks_of_their_own() {
        let mut all = BTreeSet::new();
        for length in 1..40 {
            for byte in [0, b'a', 0xff] {
                assert!(all.insert(mark(&vec![byte; length])), "{length} {byte}");
            }
        }
        // A long text has no mark that a short one has.
        assert!(all.iter().all(|mark| matches!(mark[15], 1..=15 | 0x80..)));
    }
}
