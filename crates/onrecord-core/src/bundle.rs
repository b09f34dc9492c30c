//! The bundle: a deterministic ustar of fixed members in a fixed order (spec: `docs/spec/bundle.md`).
//!
//! Only names, headers and lines are here; reading and writing files is for those who have files.

use crate::digest::{Hash, hex, unhex};
use crate::frame::present;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Bytes of a tar block.
pub const BLOCK: usize = 512;
/// The largest member that an 11-digit octal size can say: 8 GiB − 1.
pub const MEMBER_BYTES: u64 = 0o77_777_777_777;

/// A member of a run's bundle. The order of the variants is the order in the file; within a group
/// members are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// The seal's envelope.
    Seal,
    /// Its proof in the ledger.
    SealProof,
    /// An RFC 3161 reply over its signature.
    SealTime,
    /// A signer's public key, SPKI PEM, by key id.
    KeyPem(Hash),
    /// A note's verifier key, by the 4 bytes of its note key id.
    KeyNote([u8; 4]),
    /// The frames, a line each.
    Frames,
    /// Ledger statements with their proofs.
    Ledger,
    /// The state of every payload.
    Disclosures,
    /// A disclosed payload, by commitment.
    Payload(Hash),
    /// Digests of all members before it.
    Manifest,
    /// The signed export statement.
    Export,
}

impl Member {
    /// The name in the archive.
    pub fn name(&self) -> String {
        match self {
            Self::Seal => "seal.dsse.json".to_owned(),
            Self::SealProof => "seal.tlog-proof".to_owned(),
            Self::SealTime => "seal.tsr".to_owned(),
            Self::KeyPem(keyid) => format!("keys/{keyid}.pem"),
            Self::KeyNote(id) => format!("keys/{}.vkey", hex(id)),
            Self::Frames => "frames.ndjson".to_owned(),
            Self::Ledger => "ledger.ndjson".to_owned(),
            Self::Disclosures => "disclosures.ndjson".to_owned(),
            Self::Payload(commit) => format!("payloads/{commit}"),
            Self::Manifest => "MANIFEST.sha256".to_owned(),
            Self::Export => "export.dsse.json".to_owned(),
        }
    }

    /// The member of a name, if a bundle has such a one.
    pub fn from_name(name: &str) -> Option<Self> {
        let fixed = [
            Self::Seal,
            Self::SealProof,
            Self::SealTime,
            Self::Frames,
            Self::Ledger,
            Self::Disclosures,
            Self::Manifest,
            Self::Export,
        ];
        if let Some(member) = fixed.into_iter().find(|member| member.name() == name) {
            return Some(member);
        }
        if let Some(commit) = name.strip_prefix("payloads/") {
            return commit.parse().ok().map(Self::Payload);
        }
        let key = name.strip_prefix("keys/")?;
        if let Some(keyid) = key.strip_suffix(".pem") {
            return keyid.parse().ok().map(Self::KeyPem);
        }
        let mut id = [0; 4];
        unhex(key.strip_suffix(".vkey")?, &mut id).then_some(Self::KeyNote(id))
    }
}

/// The one allowed header of a member.
///
/// `None` for a name over 100 bytes or not ASCII, and a size over [`MEMBER_BYTES`].
pub fn header(name: &str, size: u64) -> Option<[u8; BLOCK]> {
    if name.is_empty()
        || name.len() > 100
        || !name.bytes().all(|byte| byte.is_ascii_graphic())
        || size > MEMBER_BYTES
    {
        return None;
    }
    let mut block = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(block)
}

/// Name and size of a header, if it is exactly the one that [`header`] builds.
pub fn parse_header(block: &[u8; BLOCK]) -> Option<(String, u64)> {
    let name = block[..100].split(|byte| *byte == 0).next()?;
    let name = core::str::from_utf8(name).ok()?;
    let size = core::str::from_utf8(&block[124..135]).ok()?;
    if !size.bytes().all(|byte| matches!(byte, b'0'..=b'7')) {
        return None;
    }
    let size = u64::from_str_radix(size, 8).ok()?;
    (header(name, size)? == *block).then(|| (name.to_string(), size))
}

/// Zero bytes that fill the last block of a member.
pub fn padding(size: u64) -> usize {
    // Below 512, so the conversion cannot lose anything.
    (size.next_multiple_of(BLOCK as u64) - size) as usize
}

/// A line of `MANIFEST.sha256`, as `sha256sum -c` reads it.
pub fn manifest_line(digest: &Hash, name: &str) -> String {
    format!("{digest}  {name}\n")
}

/// State of a payload in a bundle: a line of `disclosures.ndjson`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disclosure {
    /// The commitment.
    pub commit: Hash,
    /// The payload itself in base64, in a turn proof only.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub data: Option<String>,
    /// Ledger index of the certificate of an erased payload.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub index: Option<u64>,
    /// Salt of a disclosed payload.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub salt: Option<Hash>,
    /// The state.
    pub state: State,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In the bundle.
    Disclosed,
    /// Left out by the exporter.
    Withheld,
    /// Its key was destroyed, with a certificate.
    Erased,
    /// Lost.
    Missing,
    /// Never sent: the agent kept it.
    NotKept,
}

impl Disclosure {
    /// Whether the line has exactly the members of its state; `data` belongs to turn proofs.
    pub fn fits(&self, in_turn_proof: bool) -> bool {
        match self.state {
            State::Disclosed => {
                self.salt.is_some() && self.index.is_none() && self.data.is_some() == in_turn_proof
            }
            State::Erased => self.salt.is_none() && self.index.is_some() && self.data.is_none(),
            State::Withheld | State::Missing | State::NotKept => {
                self.salt.is_none() && self.index.is_none() && self.data.is_none()
            }
        }
    }

    /// An erased payload, with the ledger index of its certificate.
    pub fn erased(commit: Hash, index: u64) -> Self {
        Self {
            index: Some(index),
            ..Self::of(commit, State::Erased)
        }
    }

    /// A disclosed payload of a bundle.
    pub fn disclosed(commit: Hash, salt: Hash) -> Self {
        Self {
            commit,
            data: None,
            index: None,
            salt: Some(salt),
            state: State::Disclosed,
        }
    }

    /// A payload in any state that has no further members.
    pub fn of(commit: Hash, state: State) -> Self {
        Self {
            commit,
            data: None,
            index: None,
            salt: None,
            state,
        }
    }
}

/// A line of `ledger.ndjson`: an entry's exact bytes and its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerLine {
    /// The envelope.
    pub entry: String,
    /// A C2SP `.tlog-proof`.
    pub proof: String,
}

/// Marks a turn proof.
pub const TURN_PROOF: &str = "turn-proof/1";

/// One turn alone: `turn-<n>.turn-proof.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnProof {
    /// State of every payload of the turn.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub disclosures: Option<Vec<Disclosure>>,
    /// The turn's frames and its `turn_end`, as strings.
    pub frames: Vec<String>,
    /// [`TURN_PROOF`].
    pub onrecord: String,
    /// Inclusion path of the `turn_end` in the sealed tree.
    pub path: Vec<Hash>,
    /// The seal's `.tlog-proof`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub proof: Option<String>,
    /// The seal's envelope.
    pub seal: String,
}

/// Marks a frame proof.
pub const FRAME_PROOF: &str = "frame-proof/1";

/// One frame alone: `frame-<seq>.frame-proof.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameProof {
    /// The frame, as a string.
    pub frame: String,
    /// The envelope of a `run-head` over the run as it is, while there is no seal.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub head: Option<String>,
    /// [`FRAME_PROOF`].
    pub onrecord: String,
    /// Inclusion path of the frame in the tree that the seal, or the head, has signed.
    pub path: Vec<Hash>,
    /// The seal's `.tlog-proof`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub proof: Option<String>,
    /// The seal's envelope.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub seal: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_order_is_the_files() {
        let members = [
            Member::Seal,
            Member::SealProof,
            Member::SealTime,
            Member::KeyPem(Hash([1; 32])),
            Member::KeyNote([1, 2, 3, 4]),
            Member::Frames,
            Member::Ledger,
            Member::Disclosures,
            Member::Payload(Hash([2; 32])),
            Member::Manifest,
            Member::Export,
        ];
        assert!(members.is_sorted());
        for member in members {
            assert_eq!(Member::from_name(&member.name()), Some(member));
        }
        for name in [
            "",
            "../seal.dsse.json",
            "payloads/",
            "payloads/00",
            "keys/x.pem",
            "keys/ABCDEF01.vkey",
            "seal.dsse.json ",
        ] {
            assert_eq!(Member::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn absent_is_not_null() {
        let line = |salt: &str| {
            format!(
                r#"{{"commit":"{}"{salt},"state":"withheld"}}"#,
                Hash([1; 32])
            )
        };
        assert!(serde_json::from_str::<Disclosure>(&line("")).is_ok());
        assert!(serde_json::from_str::<Disclosure>(&line(r#","salt":null"#)).is_err());
    }

    #[test]
    fn a_header_is_read_only_as_it_is_written() {
        let block = header("frames.ndjson", 4_711).unwrap();
        assert_eq!(
            parse_header(&block),
            Some(("frames.ndjson".to_owned(), 4_711))
        );
        for at in 0..BLOCK {
            let mut other = block;
            other[at] ^= 1;
            assert_eq!(parse_header(&other), None, "byte {at}");
        }
        assert_eq!(header(&"x".repeat(101), 0), None);
        assert_eq!(header("x", MEMBER_BYTES + 1), None);
    }
}
