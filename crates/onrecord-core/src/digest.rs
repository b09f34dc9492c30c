//! SHA-256 digests and the two hashes of the RFC 9162 tree (spec: `docs/spec/chain.md`).

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; as text 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

/// The text is not 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hex digits")]
pub struct BadHash;

impl Hash {
    /// `SHA-256(part₀ ‖ part₁ ‖ …)`
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Takes exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, BadHash> {
        bytes.try_into().map(Self).map_err(|_| BadHash)
    }

    /// 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The digits of [`Hash::hex`] as ASCII.
    pub fn digits(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&hex_digits(byte));
        }
        digits
    }
}

/// `SHA-256(0x00 ‖ bytes)`: the hash of a frame's canonical bytes and of a ledger entry (RFC 9162, 2.1.1).
pub fn leaf_hash(bytes: &[u8]) -> Hash {
    Hash::of(&[&[0], bytes])
}

/// [`leaf_hash`] of a line, while its bytes and its newline go into the hash of its file, which has taken
/// `before` bytes so far.
///
/// A processor waits in a hash for the round before. In steps of a block it does two at a time, in
/// two thirds of the time that one after the other takes.
pub fn leaf_hash_in(line: &[u8], file: &mut Sha256, before: u64) -> Hash {
    let mut leaf = Sha256::new();
    leaf.update([0]);
    // From here on both have whole blocks, which are not copied.
    let (leaf_first, leaf_rest) = line.split_at(line.len().min(BLOCK - 1));
    let open = (before % BLOCK as u64) as usize;
    let (file_first, file_rest) = line.split_at(line.len().min((BLOCK - open) % BLOCK));
    leaf.update(leaf_first);
    file.update(file_first);
    let (leaf_blocks, leaf_last) = leaf_rest.as_chunks::<BLOCK>();
    let (file_blocks, file_last) = file_rest.as_chunks::<BLOCK>();
    for (leaf_block, file_block) in leaf_blocks.iter().zip(file_blocks) {
        leaf.update(leaf_block);
        file.update(file_block);
    }
    // Where the beginnings differ, one of them has a block more.
    let both = leaf_blocks.len().min(file_blocks.len());
    leaf.update(leaf_blocks[both..].as_flattened());
    file.update(file_blocks[both..].as_flattened());
    file.update(file_last);
    file.update(b"\n");
    leaf.update(leaf_last);
    Hash(leaf.finalize().into())
}

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// `SHA-256(0x01 ‖ left ‖ right)`: an inner node of the tree (RFC 9162, 2.1.1).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash::of(&[&[1], &left.0, &right.0])
}

/// Lower-case hex of any bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| hex_digits(*byte))
        .map(char::from)
        .collect()
}

fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

/// Bytes of lower-case hex that fills `out` exactly; false for anything else.
pub fn unhex(text: &str, out: &mut [u8]) -> bool {
    let text = text.as_bytes();
    if text.len() != out.len() * 2 {
        return false;
    }
    let mut wrong = 0;
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (
            DIGIT_VALUES[usize::from(pair[0])],
            DIGIT_VALUES[usize::from(pair[1])],
        );
        wrong |= high | low;
        *byte = high << 4 | low & 15;
    }
    wrong < 16
}

/// The value of each byte that is a lower-case hex digit, and 16 for all others.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [16; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        formatter.write_str(core::str::from_utf8(&digits).unwrap_or_default())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Hash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let mut bytes = [0; 32];
        if unhex(text, &mut bytes) {
            Ok(Self(bytes))
        } else {
            Err(BadHash)
        }
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.digits();
        serializer.serialize_str(core::str::from_utf8(&digits).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = alloc::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_leaf_hashed_beside_its_file_is_the_leaf_and_the_file() {
        let bytes: [u8; 300] = core::array::from_fn(|at| at as u8);
        for before in 0..70 {
            for length in 0..=230 {
                let (mut file, mut expected) = (Sha256::new(), Sha256::new());
                file.update(&bytes[..before]);
                expected.update(&bytes[..before]);
                let line = &bytes[before..before + length];
                expected.update(line);
                expected.update(b"\n");
                // A wrong count costs time, and nothing else.
                for wrong in [0, 1] {
                    let mut file = file.clone();
                    let leaf = leaf_hash_in(line, &mut file, (before + wrong) as u64);
                    assert_eq!(leaf, leaf_hash(line), "{before} {length}");
                    assert_eq!(file.finalize(), expected.clone().finalize());
                }
            }
        }
    }

    #[test]
    fn hex_is_lower_case_and_exact() {
        let hash = Hash::of(&[b"abc"]);
        assert_eq!(
            hash.hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hash.hex().parse(), Ok(hash));
        assert_eq!(hash.hex().to_uppercase().parse::<Hash>(), Err(BadHash));
        assert_eq!(hash.hex()[1..].parse::<Hash>(), Err(BadHash));
        for character in (0..=0x7f).map(char::from) {
            for text in [format!("{character}0"), format!("0{character}")] {
                let value = character.to_digit(16).filter(|_| !character.is_uppercase());
                let mut byte = [0];
                assert_eq!(unhex(&text, &mut byte), value.is_some(), "{text:?}");
                if let Some(value) = value {
                    assert_eq!(hex(&byte), text);
                    assert!(byte == [value as u8] || byte == [(value << 4) as u8]);
                }
            }
        }
        assert!(!unhex("é", &mut [0]));
    }
}
