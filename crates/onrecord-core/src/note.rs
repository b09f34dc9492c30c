//! C2SP signed notes and what is written in them (spec: `docs/spec/ledger.md`; c2sp.org/signed-note).
//!
//! Text only: whether a signature is true is decided where the keys are. Every parser takes exactly
//! what its formatter writes, so a parsed text comes back byte for byte.

mod checkpoint;
mod key;
mod proof;
mod submission;
mod tile;

pub use checkpoint::{BadCheckpoint, BadCosignature, Checkpoint, Cosignature, cosigned_message};
pub use key::{BadVerifierKey, SignatureType, VerifierKey};
pub use proof::{BadTlogProof, TlogProof};
pub use submission::{BadSubmission, Submission};
pub use tile::{
    BadBundle, BadTile, EntryTooLong, TILE_WIDTH, Tile, TileKind, read_entries, read_hashes,
    write_entry,
};

use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;

/// Signatures of one note. C2SP asks for at least 16 and for a limit.
pub const SIGNATURES: usize = 100;

/// A text and the signatures under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What is signed, its final newline included.
    pub text: String,
    /// In the order of the lines, known and unknown keys alike.
    pub signatures: Vec<NoteSignature>,
}

/// One signature line, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    /// The signer's name.
    pub name: String,
    /// The signer's key id.
    pub key_id: u32,
    /// What follows the key id; its form is the signature type's.
    pub bytes: Vec<u8>,
}

/// Why a text is no signed note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNote {
    /// A character below U+0020 that is no newline.
    #[error(
        "a signed note has no control characters other than the newline, found one at byte {offset}"
    )]
    Control {
        /// Bytes before it.
        offset: usize,
    },
    /// No empty line between text and signatures, or nothing after it.
    #[error("a signed note is a text, an empty line and at least one signature line")]
    Unsigned,
    /// The last line does not end.
    #[error("a signed note ends in a newline")]
    FinalNewline,
    /// More than [`SIGNATURES`] of them.
    #[error("a signed note has at most {SIGNATURES} signatures")]
    TooMany,
    /// Not `— NAME BASE64`.
    #[error("signature line {line} is not an em dash, a key name and base64 of at least 5 bytes")]
    Signature {
        /// From 1, the first after the empty line.
        line: usize,
    },
}

impl Note {
    /// Takes a whole note; its `Display` gives the same bytes back.
    pub fn parse(input: &str) -> Result<Self, BadNote> {
        if let Some(offset) = control(input) {
            return Err(BadNote::Control { offset });
        }
        // The last empty line divides, since the text may have empty lines of its own.
        let middle = input.rfind("\n\n").ok_or(BadNote::Unsigned)?;
        let (text, lines) = (&input[..=middle], &input[middle + 2..]);
        if lines.is_empty() {
            return Err(BadNote::Unsigned);
        }
        let lines = lines.strip_suffix('\n').ok_or(BadNote::FinalNewline)?;
        if lines.split('\n').count() > SIGNATURES {
            return Err(BadNote::TooMany);
        }
        let signatures = (1..)
            .zip(lines.split('\n'))
            .map(|(number, line)| signature(line).ok_or(BadNote::Signature { line: number }))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.into(),
            signatures,
        })
    }

    /// The signatures under the key's name and id: those that have to verify. All others are unknown
    /// and to be ignored, also where only one of the two fits.
    pub fn signatures_of<'a>(&'a self, key: &'a VerifierKey) -> impl Iterator<Item = &'a [u8]> {
        self.signatures
            .iter()
            .filter(|signature| signature.key_id == key.key_id() && signature.name == key.name())
            .map(|signature| signature.bytes.as_slice())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.text)?;
        for signature in &self.signatures {
            writeln!(formatter, "{signature}")?;
        }
        Ok(())
    }
}

/// The line without its newline: what is added to a note that others sign too.
impl fmt::Display for NoteSignature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.key_id.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.bytes);
        write!(
            formatter,
            "\u{2014} {} {}",
            self.name,
            STANDARD.encode(bytes)
        )
    }
}

fn signature(line: &str) -> Option<NoteSignature> {
    let (name, encoded) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
    let bytes = unbase64(encoded)?;
    let (key_id, bytes) = bytes.split_first_chunk()?;
    (is_key_name(name) && !bytes.is_empty()).then(|| NoteSignature {
        name: name.into(),
        key_id: u32::from_be_bytes(*key_id),
        bytes: bytes.into(),
    })
}

/// Not empty, no Unicode space, no `+`; and no control character, as in all of a note.
fn is_key_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(|character: char| character.is_whitespace() || character == '+')
        && !name.bytes().any(|byte| byte < 0x20)
}

/// Where the first character below U+0020 stands that is no newline.
fn control(text: &str) -> Option<usize> {
    text.bytes().position(|byte| byte < 0x20 && byte != b'\n')
}

/// Standard base64 with its padding and with zero bits behind the last byte, or nothing.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// A number as it is written: digits without a sign or leading zeros.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    if canonical && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}
