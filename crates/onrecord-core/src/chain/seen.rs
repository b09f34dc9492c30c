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
    keys: Digests,
    commits: Digests,
}

impl Seen {
    pub(super) fn add(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        if !self.keys.insert(digest(frame.key.as_bytes())) {
            return Err(format!("the key {:?} is an earlier frame's", frame.key));
        }
        for payload in frame.payloads() {
            if !self.commits.insert(digest(&payload.commit.0)) {
                return Err(format!(
                    "the commitment {} is an earlier payload's",
                    payload.commit
                ));
            }
        }
        Ok(())
    }
}

type Digest = [u8; 16];

/// Half a digest tells two texts apart: 2^64 tries for a collision, and one would only refuse a run.
fn digest(bytes: &[u8]) -> Digest {
    let hash = Hash::of(&[bytes]);
    let mut half = [0; 16];
    half.copy_from_slice(&hash.0[..16]);
    half
}

/// Places that are looked at for a digest.
const PROBES: usize = 32;
const FIRST_SLOTS: usize = 64;

/// A set of digests in one table, where each stands close to the place that its first bytes name. One that
/// finds no free place there, of which somebody may choose many, is kept in a tree beside it.
#[derive(Clone, Debug, Default)]
struct Digests {
    /// Their number is a power of two; zeros are a free one.
    slots: Vec<Digest>,
    used: usize,
    beside: BTreeSet<Digest>,
}

impl Digests {
    /// Whether it is new.
    fn insert(&mut self, digest: Digest) -> bool {
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put(digest)
    }

    fn put(&mut self, digest: Digest) -> bool {
        let mask = self.slots.len() - 1;
        let [first, ..] = digest.as_chunks::<8>().0 else {
            return false;
        };
        let home = u64::from_le_bytes(*first) as usize;
        for probe in 0..PROBES {
            let slot = &mut self.slots[(home.wrapping_add(probe)) & mask];
            if *slot == digest {
                // The digest of zeros is as a free place is; nobody has a text for it.
                return false;
            }
            if *slot == [0; 16] {
                *slot = digest;
                self.used += 1;
                return true;
            }
        }
        // The places are never free again, so that it is looked for here every time.
        self.beside.insert(digest)
    }

    fn grow(&mut self) {
        let slots = vec![[0; 16]; (self.slots.len() * 2).max(FIRST_SLOTS)];
        let before = core::mem::replace(&mut self.slots, slots);
        let beside = core::mem::take(&mut self.beside);
        self.used = 0;
        for digest in before.into_iter().filter(|digest| *digest != [0; 16]) {
            self.put(digest);
        }
        for digest in beside {
            self.put(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_digest_is_new_once() {
        let spread = (0..20_000u64).map(|at| digest(&at.to_le_bytes()));
        // As somebody chooses them who wants all in one place.
        let chosen = (1..2_000u64).map(|at| {
            let mut digest = [7; 16];
            digest[8..].copy_from_slice(&at.to_le_bytes());
            digest
        });
        let mut digests = Digests::default();
        let mut model = BTreeSet::new();
        for digest in spread.chain(chosen) {
            assert_eq!(digests.insert(digest), model.insert(digest));
            assert!(!digests.insert(digest));
        }
        assert_eq!(digests.used + digests.beside.len(), model.len());
        assert!(model.iter().all(|digest| !digests.insert(*digest)));
    }
}
