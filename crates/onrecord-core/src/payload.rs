//! Payload commitments, padding and the labels of the payload keys (spec: `docs/spec/payloads.md`).

use crate::digest::Hash;
use crate::id::{RunId, TenantId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use sha2::{Digest as _, Sha256};

/// HKDF info of a payload's salt.
pub const SALT_INFO: &[u8] = b"onrecord/salt/1\n";
/// HKDF info of a payload's key and nonce; the 32 bytes of the commitment follow.
pub const KEY_INFO: &[u8] = b"onrecord/key/1\n";
const COMMIT_LABEL: &[u8] = b"onrecord/payload/1\n";
const SMALL: u64 = 256;
const LARGE: u64 = 4_096;
const SMALL_LIMIT: u64 = 65_536;

/// `SHA-256("onrecord/payload/1\n" ‖ salt ‖ payload)`
pub fn commitment(salt: &[u8; 32], payload: &[u8]) -> Hash {
    let mut committer = Committer::new(salt);
    committer.update(payload);
    committer.finish()
}

/// Whether a payload is the one that a commitment and a length after padding are of.
pub fn is_committed(commit: &Hash, size: u64, salt: &[u8; 32], payload: &[u8]) -> bool {
    commitment(salt, payload) == *commit && padded_size(payload.len() as u64) == size
}

/// A commitment over a payload that arrives in pieces.
#[derive(Clone)]
pub struct Committer(Sha256);

impl Committer {
    /// Starts with the salt.
    pub fn new(salt: &[u8; 32]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(COMMIT_LABEL);
        hasher.update(salt);
        Self(hasher)
    }

    /// The next bytes of the payload.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The commitment.
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

/// `"onrecord/aad/1\n" tenant "\n" run "\n" hex(commit) "\n" media`, what the ciphertext is bound to.
pub fn aad(tenant: &TenantId, run: &RunId, commit: &Hash, media: &str) -> String {
    format!("onrecord/aad/1\n{tenant}\n{run}\n{commit}\n{media}")
}

/// Length after padding, in bytes, of a payload of `length` bytes.
pub fn padded_size(length: u64) -> u64 {
    let sum = length + 1;
    if sum <= SMALL_LIMIT {
        sum.next_multiple_of(SMALL)
    } else {
        sum.next_multiple_of(LARGE)
    }
}

/// Whether padding can give this length.
pub fn is_bucket(size: u64) -> bool {
    size > 0
        && if size <= SMALL_LIMIT {
            size.is_multiple_of(SMALL)
        } else {
            size.is_multiple_of(LARGE)
        }
}

/// Appends `0x80` and zeros up to the bucket.
pub fn pad(payload: &mut Vec<u8>) {
    let size = padded_size(payload.len() as u64);
    payload.push(0x80);
    payload.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
}

/// The payload within its padding; `None` where the padding is not what [`pad`] writes.
pub fn unpad(padded: &[u8]) -> Option<&[u8]> {
    let end = padded.iter().rposition(|byte| *byte != 0)?;
    let payload = (padded[end] == 0x80).then(|| &padded[..end])?;
    (padded_size(payload.len() as u64) == padded.len() as u64).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn buckets_are_those_of_the_specification() {
        for (length, size) in [
            (0, 256),
            (255, 256),
            (256, 512),
            (65_535, 65_536),
            (65_536, 69_632),
        ] {
            assert_eq!(padded_size(length), size);
            assert!(is_bucket(size));
        }
        for size in [0, 1, 255, 257, 65_792, 69_631] {
            assert!(!is_bucket(size), "{size}");
        }
    }

    #[test]
    fn a_commitment_is_of_one_payload_salt_and_size() {
        let (salt, payload) = ([7; 32], b"yes");
        let commit = commitment(&salt, payload);
        assert!(is_committed(&commit, 256, &salt, payload));
        assert!(!is_committed(&commit, 512, &salt, payload));
        assert!(!is_committed(&commit, 256, &[8; 32], payload));
        assert!(!is_committed(&commit, 256, &salt, b"no"));
        assert!(!is_committed(&Hash([0; 32]), 256, &salt, payload));
    }

    #[test]
    fn only_our_own_padding_comes_off() {
        for length in [0, 1, 255, 256, 65_535, 65_536, 70_000] {
            let payload: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut padded = payload.clone();
            pad(&mut padded);
            assert_eq!(unpad(&padded), Some(&payload[..]));
            let mut longer = padded.clone();
            longer.resize(padded.len() + 256, 0);
            assert_eq!(unpad(&longer), None);
        }
        assert_eq!(unpad(&[]), None);
        assert_eq!(unpad(&vec![0; 256]), None);
        assert_eq!(unpad(&vec![7; 256]), None);
    }
}
