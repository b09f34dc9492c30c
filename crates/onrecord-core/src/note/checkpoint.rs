//! Checkpoints and what a witness signs of them (c2sp.org/tlog-checkpoint, c2sp.org/tlog-cosignature).

use super::{control, decimal, unbase64};
use crate::digest::Hash;
use alloc::format;
use alloc::string::String;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A log at one size: the text of a note in three lines. Ours has no extension lines and takes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log.
    pub origin: String,
    /// Entries in the log.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Hash,
}

/// Why a note's text is no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckpoint {
    /// Fewer or more lines, or the last one does not end.
    #[error("a checkpoint has exactly three lines, each ending in a newline")]
    Lines,
    /// The first line is empty or has control characters.
    #[error("a checkpoint's first line is the log's origin")]
    Origin,
    /// The second line is no number below 2^64, or not written the one way.
    #[error("a checkpoint's second line is the tree's size in digits without leading zeros")]
    Size,
    /// The third line is not base64 of 32 bytes.
    #[error("a checkpoint's third line is the base64 of 32 bytes")]
    Root,
}

impl Checkpoint {
    /// Takes the text of a note, without its signatures.
    pub fn parse(text: &str) -> Result<Self, BadCheckpoint> {
        let text = text.strip_suffix('\n').ok_or(BadCheckpoint::Lines)?;
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root), None) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(BadCheckpoint::Lines);
        };
        if origin.is_empty() || control(origin).is_some() {
            return Err(BadCheckpoint::Origin);
        }
        Ok(Self {
            origin: origin.into(),
            size: decimal(size).ok_or(BadCheckpoint::Size)?,
            root: unbase64(root)
                .and_then(|root| Hash::from_slice(&root).ok())
                .ok_or(BadCheckpoint::Root)?,
        })
    }

    /// The text that is signed, its final newline included.
    pub fn to_text(&self) -> String {
        let root = STANDARD.encode(self.root.as_bytes());
        format!("{}\n{}\n{root}\n", self.origin, self.size)
    }
}

/// A witness's word: at this time this was the largest checkpoint of the log that it had seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cosignature {
    /// Seconds since 1970, at most 2^63 − 1.
    pub time: u64,
    /// Ed25519 signature of [`cosigned_message`].
    pub signature: [u8; 64],
}

/// The bytes of a signature line are no cosignature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cosignature is 8 bytes of time, at most 2^63 - 1, and 64 bytes of signature")]
pub struct BadCosignature;

impl Cosignature {
    /// Takes apart what follows the key id: big-endian time and signature.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadCosignature> {
        let (time, signature) = bytes.split_first_chunk().ok_or(BadCosignature)?;
        let time = u64::from_be_bytes(*time);
        let signature = signature.try_into().map_err(|_| BadCosignature)?;
        if time > i64::MAX as u64 {
            return Err(BadCosignature);
        }
        Ok(Self { time, signature })
    }

    /// What follows the key id in a signature line.
    pub fn to_bytes(&self) -> [u8; 72] {
        let mut bytes = [0; 72];
        bytes[..8].copy_from_slice(&self.time.to_be_bytes());
        bytes[8..].copy_from_slice(&self.signature);
        bytes
    }
}

/// `"cosignature/v1\ntime " ‖ seconds ‖ "\n" ‖ text` (c2sp.org/tlog-cosignature, "Ed25519 signed message").
///
/// `text` is the whole text of the checkpoint's note, final newline included.
pub fn cosigned_message(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}
