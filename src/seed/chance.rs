//! Chance that is the same each time: numbers that follow from a number.

/// SplitMix64 (Steele, Lea, Flood 2014): not for keys, but even, short, and the same on every machine.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    /// The numbers of the `stream`th story under a seed.
    pub(super) fn of(seed: u64, stream: u64) -> Self {
        let mut chance = Self(seed);
        Self(chance.next() ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `end`; 0 where that is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        (wide >> 64) as u64
    }

    /// Whether something comes about that does so in so many of a thousand cases.
    pub(super) fn permille(&mut self, cases: u64) -> bool {
        self.below(1_000) < cases
    }

    /// One of some things, the second half as often as the first, the third a third as often, and so on (Zipf's law).
    pub(super) fn of_many<'a>(&mut self, things: &[&'a str]) -> &'a str {
        // In 1/720720 of the first one's weight, which is even enough for some dozen of them.
        let weight = |index: usize| 720_720 / (index as u64 + 1);
        let mut left = self.below((0..things.len()).map(weight).sum());
        for (index, thing) in things.iter().enumerate() {
            match left.checked_sub(weight(index)) {
                Some(rest) => left = rest,
                None => return thing,
            }
        }
        ""
    }

    /// So many lower-case hex digits.
    pub(super) fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            text.push_str(&format!("{:016x}", self.next()));
        }
        text.truncate(digits);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed_and_are_within_their_bounds() {
        let mut one = Chance::of(7, 3);
        let mut same = Chance::of(7, 3);
        let mut other = Chance::of(7, 4);
        let numbers: Vec<u64> = (0..100).map(|_| one.below(10)).collect();
        assert!((0..100).all(|at| same.below(10) == numbers[at]));
        assert!((0..100).any(|at| other.below(10) != numbers[at]));
        assert!((0..10).all(|number| numbers.contains(&number)));
        assert_eq!((one.below(0), one.hex(40).len()), (0, 40));
    }

    #[test]
    fn the_first_of_many_is_the_most_frequent_and_the_last_comes_too() {
        let mut chance = Chance::of(1, 1);
        let mut counts = [0; 3];
        for _ in 0..6_000 {
            let chosen = chance.of_many(&["a", "b", "c"]);
            let place = ["a", "b", "c"].iter().position(|name| *name == chosen);
            counts[place.unwrap()] += 1;
        }
        assert!(
            counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > 500,
            "{counts:?}"
        );
    }
}
