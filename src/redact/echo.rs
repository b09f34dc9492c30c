//! Secrets that are known: looked for as they are, and as base64, hex, escaped and encoded for an address.

use super::wrapped::{fragments, is_base64};
use super::{Found, Rank};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::collections::HashSet;
use zeroize::Zeroizing;

/// The fewest characters of base64 that are told from chance.
const FRAGMENT: usize = 8;

/// Secrets of one payload that are looked for in the rest of it. Compiling takes as long as looking through a thousand
/// times their bytes, and a payload with more of them is a list of secrets, each of which was found where it stands.
const ECHOED: usize = 500;

/// Known secrets, compiled.
pub(super) struct Echo {
    spellings: AhoCorasick,
    /// Of each spelling, whose it is and whether characters beside it hold the rest of its bits.
    of: Vec<(usize, bool)>,
    secrets: Vec<Secret>,
}

struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    rule: String,
    kind: String,
}

impl Echo {
    /// Compiles secrets, each with its rule and its kind; none where there are none. Those of one payload are compiled
    /// for it alone, which must cost little; those of a rule set once.
    pub(super) fn new(
        secrets: impl Iterator<Item = (Vec<u8>, String, String)>,
        once: bool,
    ) -> Option<Self> {
        let mut distinct = HashSet::new();
        let secrets: Vec<Secret> = secrets
            .filter(|(bytes, ..)| distinct.insert(bytes.clone()))
            .take(if once { usize::MAX } else { ECHOED })
            .map(|(bytes, rule, kind)| Secret {
                bytes: Zeroizing::new(bytes),
                rule,
                kind,
            })
            .collect();
        let (mut seen, mut spelled, mut of) = (HashSet::new(), Vec::new(), Vec::new());
        for (index, secret) in secrets.iter().enumerate() {
            let spellings = spellings(&secret.bytes).into_iter().map(|one| (one, false));
            let wrapped = fragments(&secret.bytes).into_iter();
            let wrapped = wrapped
                .filter(|(fragment, _)| fragment.len() >= FRAGMENT)
                .map(|(fragment, _)| (fragment, true));
            for (spelling, open) in spellings.chain(wrapped) {
                if seen.insert(spelling.clone()) {
                    spelled.push(spelling);
                    of.push((index, open));
                }
            }
        }
        if spelled.is_empty() {
            return None;
        }
        let spellings = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((!once).then_some(AhoCorasickKind::NoncontiguousNFA))
            .build(spelled)
            .ok()?;
        Some(Self {
            spellings,
            of,
            secrets,
        })
    }

    /// Whether any of them is there.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.spellings.is_match(text)
    }

    /// Every place of every one of them.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Found> {
        let found = self.spellings.find_iter(text).map(|hit| {
            let (index, open) = self.of[hit.pattern().as_usize()];
            let secret = &self.secrets[index];
            let (mut start, mut end) = (hit.start(), hit.end());
            if open {
                start -= usize::from(start > 0 && is_base64(text[start - 1]));
                end += usize::from(text.get(end).is_some_and(|byte| is_base64(*byte)));
            }
            Found {
                start,
                end,
                secret: secret.bytes.clone(),
                rule: secret.rule.clone(),
                kind: secret.kind.clone(),
                rank: Rank::Known,
                quoted: None,
            }
        });
        found.collect()
    }
}

/// The secret as it is, in hex, in JSON strings of two depths, and in an address.
fn spellings(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex = onrecord_core::digest::hex(secret);
    let mut spellings = vec![
        secret.to_vec(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
    ];
    if let Ok(text) = std::str::from_utf8(secret) {
        let once = escaped(text);
        spellings.push(escaped(&once).into_bytes());
        spellings.push(once.into_bytes());
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let encoded = secret.iter().flat_map(|byte| {
        if plain(byte) {
            vec![*byte]
        } else {
            format!("%{byte:02X}").into_bytes()
        }
    });
    spellings.push(encoded.collect());
    spellings
}

fn escaped(text: &str) -> String {
    let mut quoted = Vec::new();
    onrecord_core::json::write_string(&mut quoted, text);
    let inner = &quoted[1..quoted.len() - 1];
    String::from_utf8_lossy(inner).into_owned()
}
