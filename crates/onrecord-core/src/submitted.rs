//! What an agent signs of its own frames, and how it counts them (spec: `docs/spec/frames.md`, "Submitted frames").

use crate::digest::Hash;
use crate::frame::Submitted;
use crate::id::TenantId;
use crate::json::{JsonError, Limits, members, write_string};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const LABEL: &[u8] = b"onrecord/submitted/1\n";
/// Members of a frame that the store gives it, which the agent cannot know.
const OF_THE_STORE: [&str; 3] = ["seq", "prev", "at"];

/// `"onrecord/submitted/1\n" ‖ [hex(first) ‖ "\n"] ‖ frame without seq, prev, at and submitted.sig`
///
/// `frame` are canonical bytes. `first` is the hash of frame 0, given exactly where `submitted.n` is 1.
///
/// # Errors
/// The bytes are no JSON object, or their `submitted` is none.
pub fn message(frame: &[u8], first: Option<&Hash>) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::with_capacity(frame.len() + 128);
    out.extend_from_slice(LABEL);
    if let Some(first) = first {
        out.extend_from_slice(format!("{first}\n").as_bytes());
    }
    object(&mut out, frame, &OF_THE_STORE, |out, name, raw| {
        if name == "submitted" {
            object(out, raw, &["sig"], |out, _, raw| {
                out.extend_from_slice(raw);
                Ok(())
            })
        } else {
            out.extend_from_slice(raw);
            Ok(())
        }
    })?;
    Ok(out)
}

/// `"onrecord/agent-key/1\n" tenant "\n" actor "\n"`: what an agent signs with its key to show that it has it.
pub fn possession(tenant: &TenantId, actor: &str) -> String {
    format!("onrecord/agent-key/1\n{tenant}\n{actor}\n")
}

/// How far the key of each agent has counted in a run: the one rule of `n`, for the store, which refuses what breaks it,
/// and for the verifier, which finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Hash, u64>);

/// A signature that does not count on from the last one of its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("n is {found} after {last}")]
pub struct WrongCount {
    /// Its `n`.
    pub found: u64,
    /// The `n` of the key's last frame in the run, 0 where there is none.
    pub last: u64,
}

impl Counts {
    /// The `n` of a key's last frame; 0 where there is none.
    pub fn last(&self, keyid: &Hash) -> u64 {
        self.0.get(keyid).copied().unwrap_or_default()
    }

    /// Whether a signature is the next of its key: `n` is 1, 2, 3 … for each. Of some frames of a run only, with `gaps`
    /// between, it rises.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, submitted: &Submitted, gaps: bool) -> Result<(), WrongCount> {
        let last = self.last(&submitted.keyid);
        let fits = if gaps {
            submitted.n > last
        } else {
            last.checked_add(1) == Some(submitted.n)
        };
        if fits {
            Ok(())
        } else {
            Err(WrongCount {
                found: submitted.n,
                last,
            })
        }
    }

    /// Takes a signature for the last of its key.
    pub fn take(&mut self, submitted: &Submitted) {
        self.set(submitted.keyid, submitted.n);
    }

    pub(crate) fn set(&mut self, keyid: Hash, n: u64) {
        self.0.insert(keyid, n);
    }

    /// Key ids and the `n` of their last frames, rising by key id.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Hash, u64)> {
        self.0.iter().map(|(keyid, n)| (keyid, *n))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes an object again without some of its members. Canonical order stays canonical.
fn object(
    out: &mut Vec<u8>,
    input: &[u8],
    without: &[&str],
    mut value: impl FnMut(&mut Vec<u8>, &str, &[u8]) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push(b'{');
    let mut first = true;
    for member in members(input, Limits::FRAME)? {
        if without.contains(&member.name.as_str()) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        write_string(out, &member.name);
        out.push(b':');
        value(out, &member.name, member.raw)?;
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_counts_by_itself_and_leaves_out_none() {
        let signed = |key: u8, n| Submitted {
            keyid: Hash([key; 32]),
            n,
            sig: String::new(),
        };
        let mut counts = Counts::default();
        for (key, n) in [(1, 1), (2, 1), (1, 2), (1, 3), (2, 2)] {
            counts.check(&signed(key, n), false).unwrap();
            counts.take(&signed(key, n));
        }
        for (key, found, last) in [
            (1, 3, 3),
            (1, 5, 3),
            (1, 0, 3),
            (2, 4, 2),
            (3, 2, 0),
            (3, 0, 0),
        ] {
            let expected = WrongCount { found, last };
            assert_eq!(counts.check(&signed(key, found), false), Err(expected));
        }
        counts.check(&signed(1, 9), true).unwrap();
        assert!(counts.check(&signed(1, 3), true).is_err());
        counts.set(Hash([1; 32]), u64::MAX);
        assert!(counts.check(&signed(1, 0), false).is_err());
    }

    #[test]
    fn leaves_out_what_is_the_stores_and_the_signature() {
        let frame = br#"{"at":"x","key":"k","prev":"p","seq":3,"submitted":{"keyid":"a","n":1,"sig":"s"},"turn":1}"#;
        let rest = br#"{"key":"k","submitted":{"keyid":"a","n":1},"turn":1}"#;
        let first = Hash([1; 32]);
        let mut expected = b"onrecord/submitted/1\n".to_vec();
        expected.extend_from_slice(rest);
        assert_eq!(message(frame, None).unwrap(), expected);
        let mut expected = b"onrecord/submitted/1\n".to_vec();
        expected.extend_from_slice(format!("{first}\n").as_bytes());
        expected.extend_from_slice(rest);
        assert_eq!(message(frame, Some(&first)).unwrap(), expected);
        assert!(message(br#"{"submitted":1}"#, None).is_err());
    }
}
