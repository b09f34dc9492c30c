//! Chance with a seed that is printed: a test that failed can be played again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

pub struct Chance(u64);

impl Chance {
    /// Takes the seed from `ONRECORD_SEED`, or any, and prints it.
    pub fn new(what: &str) -> Self {
        let given = crate::setting("ONRECORD_SEED");
        // A hasher of the standard library begins differently each time.
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("{what}: ONRECORD_SEED={seed}");
        Self(seed)
    }

    /// Another one, which this one decides.
    pub fn child(&mut self) -> Self {
        Self(self.of(0..u64::MAX))
    }

    /// A number of a range, by splitmix64.
    pub fn of(&mut self, range: Range<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        range.start + (mixed ^ (mixed >> 31)) % (range.end - range.start)
    }
}
