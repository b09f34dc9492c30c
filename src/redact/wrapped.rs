//! Secrets in base64: an anchor has three spellings in it, which the one pass looks for too.

use super::check::encode;
use super::view::after_line;

/// The fewest bytes of an anchor that is told from chance in base64.
pub(super) const ANCHOR_BYTES: usize = 4;
/// The fewest characters that base64 with a secret in it has.
const RUN: usize = 24;
/// Quads that are decoded on each side of an anchor.
const REACH: usize = 1_024;

/// What an anchor can look like in base64, each with the characters of its first quad that stand before it.
pub(super) fn fragments(anchor: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let mut found = Vec::new();
    for lead in 0..3 {
        let bytes = [&[0; 2][..lead], anchor, &[0; 3]].concat();
        // The characters of which every bit is the anchor's.
        let (from, to) = ((lead * 8).div_ceil(6), (lead + anchor.len()) * 8 / 6);
        let mut spelled = encode(&bytes)
            .map(|text| text.as_bytes()[from..to].to_vec())
            .to_vec();
        spelled.dedup();
        found.extend(spelled.into_iter().map(|one| (one, from)));
    }
    found
}

/// Base64 around an anchor in it, decoded.
pub(super) struct Unwrapped {
    pub(super) bytes: Vec<u8>,
    /// Where each character was.
    places: Vec<u32>,
}

impl Unwrapped {
    /// The base64 around a place at which a quad begins; none where it is too short to hold a secret.
    pub(super) fn around(text: &[u8], quad: usize) -> Option<Self> {
        let (mut characters, mut places) = (Vec::new(), Vec::new());
        let mut at = quad;
        while at > 0 && characters.len() < REACH * 4 {
            let before = before_line(text, at);
            if before == 0 || !is_base64(text[before - 1]) {
                break;
            }
            at = before - 1;
            characters.push(text[at]);
            places.push(at);
        }
        // What does not fill a quad before it belongs to something else, or to the beginning of it.
        let whole = characters.len() - characters.len() % 4;
        characters.truncate(whole);
        places.truncate(whole);
        characters.reverse();
        places.reverse();
        let mut at = quad;
        while characters.len() < whole + REACH * 4 {
            at = match text.get(at) {
                Some(byte) if is_base64(*byte) => {
                    characters.push(*byte);
                    places.push(at);
                    at + 1
                }
                Some(_) => match after_line(text, at) {
                    next if next > at && text.get(next).is_some_and(|byte| is_base64(*byte)) => {
                        next
                    }
                    _ => break,
                },
                None => break,
            };
        }
        if characters.len() % 4 == 1 {
            characters.pop();
        }
        if characters.len() < RUN {
            return None;
        }
        let plain: Vec<u8> = characters
            .iter()
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            })
            .collect();
        Some(Self {
            bytes: super::check::decode(&plain)?,
            places: places
                .into_iter()
                .map(|at| u32::try_from(at).unwrap_or(u32::MAX))
                .collect(),
        })
    }

    /// How many characters were decoded.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether a quad of it begins at a place.
    pub(super) fn has(&self, quad: usize) -> bool {
        let place = u32::try_from(quad).unwrap_or(u32::MAX);
        self.places
            .binary_search(&place)
            .is_ok_and(|index| index % 4 == 0)
    }

    /// Where the quads of decoded bytes are.
    pub(super) fn back(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let first = *self.places.get(start / 3 * 4)?;
        let last = (end.div_ceil(3) * 4)
            .min(self.places.len())
            .checked_sub(1)?;
        Some((first as usize, *self.places.get(last)? as usize + 1))
    }
}

/// The place after the text of the line before, if a line begins here; the place itself if not.
fn before_line(text: &[u8], at: usize) -> usize {
    let line = text[..at].trim_ascii_end();
    let between = &text[line.len()..at];
    if between.len() <= 66 && between.contains(&b'\n') {
        line.len()
    } else {
        at
    }
}

pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}
