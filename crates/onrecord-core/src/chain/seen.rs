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
/// It is what grows with a run: 21 to 43 bytes for each frame and each payload, and half as many again
/// for the moment in which it grows.
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
const FIRST_SLOTS: usize = 64;
/// A large odd number without a pattern: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set of marks in one table, where each stands close to the place that its bytes name. One that finds
/// no free place there, of which somebody may choose many, is kept in a tree beside it.
#[derive(Clone, Debug, Default)]
struct Marks {
    /// Their number is a power of two; zeros are a free one.
    slots: Vec<Mark>,
    used: usize,
    beside: BTreeSet<Mark>,
}

impl Marks {
    /// Whether it is new.
    fn insert(&mut self, mark: Mark) -> bool {
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put(mark)
    }

    fn put(&mut self, mark: Mark) -> bool {
        let mask = self.slots.len() - 1;
        let home = home(mark);
        for probe in 0..PROBES {
            let slot = &mut self.slots[home.wrapping_add(probe) & mask];
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
        let slots = vec![[0; 16]; (self.slots.len() * 2).max(FIRST_SLOTS)];
        let before = core::mem::replace(&mut self.slots, slots);
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

/// Where a mark would like to stand; the low bits are used. Texts that differ in a few digits somewhere
/// come to different places: a product carries them upwards, a shift brings them down again.
fn home(mark: Mark) -> usize {
    let number = u128::from_le_bytes(mark);
    let mixed = number as u64 ^ ((number >> 64) as u64).wrapping_mul(SPREAD);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(SPREAD);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(SPREAD);
    (mixed ^ mixed >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_new_once() {
        let spread = (0..20_000u64).map(|at| mark(&at.to_le_bytes()));
        let digests = (0..2_000u64).map(|at| mark(&[at.to_le_bytes(); 2].concat()));
        // As somebody chooses them who wants all in one place.
        let place = home([7; 16]) as u64 & 0xffff;
        let chosen = (1..).map(|at: u64| {
            let mut mark = [7; 16];
            mark[8..].copy_from_slice(&at.to_le_bytes());
            mark
        });
        let chosen = chosen.filter(|mark| home(*mark) as u64 & 0xffff == place);
        let mut marks = Marks::default();
        let mut model = BTreeSet::new();
        for mark in spread.chain(digests).chain(chosen.take(200)) {
            assert_eq!(marks.insert(mark), model.insert(mark));
            assert!(!marks.insert(mark));
        }
        assert!(marks.beside.len() > 100);
        assert_eq!(marks.used + marks.beside.len(), model.len());
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
            for at in 0..24_000 {
                assert!(marks.insert(mark(spell(at).as_bytes())));
            }
            // As many as of digests.
            assert!(marks.beside.len() < 200, "{}", spell(0));
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
