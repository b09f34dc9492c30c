//! The one pass: all anchors in one automaton, which costs the same however many there are.

use super::rules::RuleError;
use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;

/// Parts of a text that are read side by side: a step of the automaton waits for the one before, and not for those
/// of the other parts.
const LANES: usize = 4;

/// Anchors, compiled. They are found without case, those that begin inside of others too.
pub(super) struct Anchors {
    automaton: DFA,
    start: StateID,
}

/// An anchor in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// Its number.
    pub(super) pattern: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Anchors {
    pub(super) fn new(patterns: &[Vec<u8>]) -> Result<Self, RuleError> {
        let malformed = |detail: String| RuleError::Malformed(detail);
        let automaton = DFA::builder()
            .ascii_case_insensitive(true)
            .build(patterns)
            .map_err(|error| malformed(error.to_string()))?;
        let start = automaton
            .start_state(Anchored::No)
            .map_err(|error| malformed(error.to_string()))?;
        Ok(Self { automaton, start })
    }

    /// Whether any anchor passes a test. They come in no order, and perhaps twice.
    pub(super) fn any(&self, text: &[u8], mut test: impl FnMut(Anchor) -> bool) -> bool {
        let length = text.len() / LANES;
        let overlap = self.automaton.max_pattern_len();
        if length <= overlap * 2 {
            return self.any_from(text, 0, self.start, &mut test);
        }
        // Each part begins early enough for an anchor that reaches into it.
        let begins: [usize; LANES] =
            std::array::from_fn(|lane| (lane * length).saturating_sub(overlap));
        let parts: [&[u8]; LANES] = begins.map(|begin| &text[begin..begin + length]);
        let mut states = [self.start; LANES];
        #[expect(
            clippy::needless_range_loop,
            reason = "all parts are at the same place"
        )]
        for at in 0..length {
            for lane in 0..LANES {
                states[lane] =
                    self.automaton
                        .next_state(Anchored::No, states[lane], parts[lane][at]);
            }
            let special = states.iter().any(|state| self.automaton.is_special(*state));
            if special
                && (0..LANES).any(|lane| self.at(states[lane], begins[lane] + at + 1, &mut test))
            {
                return true;
            }
        }
        // The last bytes of each part are those where the next one began; what is left is the end of the text.
        (0..LANES).any(|lane| {
            let from = begins[lane] + length;
            let to = begins
                .get(lane + 1)
                .map_or(text.len(), |next| next + overlap);
            self.any_from(&text[..to.min(text.len())], from, states[lane], &mut test)
        })
    }

    fn any_from(
        &self,
        text: &[u8],
        from: usize,
        mut state: StateID,
        test: &mut impl FnMut(Anchor) -> bool,
    ) -> bool {
        for (at, byte) in text.iter().enumerate().skip(from) {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            if self.automaton.is_special(state) && self.at(state, at + 1, test) {
                return true;
            }
        }
        false
    }

    /// Tests the anchors that end here.
    fn at(&self, state: StateID, end: usize, test: &mut impl FnMut(Anchor) -> bool) -> bool {
        if !self.automaton.is_match(state) {
            return false;
        }
        (0..self.automaton.match_len(state)).any(|index| {
            let pattern = self.automaton.match_pattern(state, index);
            test(Anchor {
                pattern: pattern.as_usize(),
                start: end - self.automaton.pattern_len(pattern),
                end,
            })
        })
    }

    /// Gives all anchors, in the order in which they end.
    pub(super) fn each(&self, text: &[u8], mut take: impl FnMut(Anchor)) {
        self.any_from(text, 0, self.start, &mut |anchor| {
            take(anchor);
            false
        });
    }
}
