//! SHA-256 digests and the two hashes of the RFC 9162 tree (spec: `docs/spec/chain.md`).

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::block_api::compress256;
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
/// `before` bytes so far. A wrong number costs time only.
///
/// A processor waits in a hash for the round before. In steps of a block it does two at a time, in
/// two thirds of the time that one after the other takes.
pub fn leaf_hash_in(line: &[u8], file: &mut Sha256, before: u64) -> Hash {
    let open = (before % BLOCK as u64) as usize;
    // From here on the file has whole blocks, which are not copied.
    let (first, rest) = line.split_at(line.len().min((BLOCK - open) % BLOCK));
    file.update(first);
    let (blocks, last) = rest.as_chunks::<BLOCK>();
    let mut blocks = blocks.iter();
    let leaf = leaf_hash_with(line, || {
        if let Some(block) = blocks.next() {
            file.update(block);
        }
    });
    // Where the beginnings differ, the file may have a block more.
    for block in blocks {
        file.update(block);
    }
    file.update(last);
    file.update(b"\n");
    leaf
}

/// `SHA-256(0x01 ‖ left ‖ right)`: an inner node of the tree (RFC 9162, 2.1.1).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    // One byte is in the second block, which is padding for the rest (FIPS 180-4, 5.1.1).
    let mut blocks = [[0; BLOCK]; 2];
    let message = blocks.as_flattened_mut();
    message[0] = 1;
    message[1..33].copy_from_slice(&left.0);
    message[33..65].copy_from_slice(&right.0);
    message[65] = 0x80;
    message[BLOCK + LENGTH..].copy_from_slice(&(65 * 8_u64).to_be_bytes());
    let mut state = START;
    compress256(&mut state, &blocks);
    digest(state)
}

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// Where a block has the length of the message.
const LENGTH: usize = BLOCK - 8;
/// The state before the first block (FIPS 180-4, 5.3.3).
///
/// The tree is hashed over the compression alone: of a node, what a hasher keeps for messages that come in
/// parts would be a quarter of the time, and between two blocks of a leaf there is time for another hash.
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

fn digest(state: [u32; 8]) -> Hash {
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    Hash(hash)
}

/// `SHA-256(0x00 ‖ bytes)`; between two blocks something else may be done.
fn leaf_hash_with(bytes: &[u8], mut between: impl FnMut()) -> Hash {
    let mut state = START;
    // The first byte is the prefix.
    let mut last = [0; BLOCK];
    let mut filled = 1;
    let mut rest = bytes;
    if let Some((first, others)) = bytes.split_first_chunk::<{ BLOCK - 1 }>() {
        last[1..].copy_from_slice(first);
        compress256(&mut state, &[last]);
        between();
        let (blocks, end) = others.as_chunks::<BLOCK>();
        for block in blocks {
            compress256(&mut state, core::slice::from_ref(block));
            between();
        }
        (rest, filled, last) = (end, 0, [0; BLOCK]);
    }
    // The padding (FIPS 180-4, 5.1.1).
    last[filled..filled + rest.len()].copy_from_slice(rest);
    filled += rest.len();
    last[filled] = 0x80;
    if filled >= LENGTH {
        compress256(&mut state, &[last]);
        last = [0; BLOCK];
    }
    let bits = (bytes.len() as u64 + 1) * 8;
    last[LENGTH..].copy_from_slice(&bits.to_be_bytes());
    compress256(&mut state, &[last]);
    digest(state)
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
    fn a_node_is_the_hash_of_its_children() {
        let (left, right) = (Hash::of(&[b"left"]), Hash::of(&[b"right"]));
        let node = Hash::of(&[&[1], &left.0, &right.0]);
        assert_eq!(node_hash(&left, &right), node);
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
