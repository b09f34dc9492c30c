//! Verifier keys, `NAME+HEXID+BASE64` (c2sp.org/signed-note, "Verifier keys").

use super::{NoteSignature, is_key_name, unbase64};
use crate::digest::{Hash, unhex};
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;

/// What a key signs, by the identifier byte that C2SP assigned; both are Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SignatureType {
    /// 0x01: the note's text.
    Text = 1,
    /// 0x04: a time and a checkpoint, see [`super::cosigned_message`].
    Cosignature = 4,
}

/// A name and a public key: who signs notes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerifierKey {
    name: String,
    key_id: u32,
    signature_type: SignatureType,
    public_key: [u8; 32],
}

/// Why a text is no verifier key that we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVerifierKey {
    /// Not three parts between two `+`.
    #[error("a verifier key is NAME+ID+KEY")]
    Shape,
    /// Empty, or with a space, `+` or control character.
    #[error("a key's name is not empty and has neither spaces nor `+`")]
    Name,
    /// The id is not eight lower-case hex digits.
    #[error("a key's id is 8 lower-case hex digits")]
    Id,
    /// The key is not base64 of a type byte and 32 more.
    #[error("a key is the base64 of a type byte and 32 bytes")]
    Key,
    /// A type other than 0x01 and 0x04.
    #[error("keys of signature type {found:#04x} are not supported, only 0x01 and 0x04")]
    Type {
        /// The type byte.
        found: u8,
    },
    /// The id belongs to another name or key.
    #[error("the key's id is {expected:08x}, not {found:08x}")]
    OtherId {
        /// The id of this name, type and key.
        expected: u32,
        /// The id in the text.
        found: u32,
    },
}

impl VerifierKey {
    /// The key of a name. Its id is `SHA-256(name ‖ 0x0A ‖ type ‖ public key)[:4]`, big-endian
    /// (c2sp.org/signed-note, "Signatures").
    pub fn new(
        name: &str,
        signature_type: SignatureType,
        public_key: [u8; 32],
    ) -> Result<Self, BadVerifierKey> {
        if !is_key_name(name) {
            return Err(BadVerifierKey::Name);
        }
        let [a, b, c, d, ..] =
            Hash::of(&[name.as_bytes(), b"\n", &[signature_type as u8], &public_key]).0;
        Ok(Self {
            name: name.into(),
            key_id: u32::from_be_bytes([a, b, c, d]),
            signature_type,
            public_key,
        })
    }

    /// The signer's name; a log's is its origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hint to find the key by, no fingerprint: colliding ones are easily made.
    pub fn key_id(&self) -> u32 {
        self.key_id
    }

    /// What the key signs.
    pub fn signature_type(&self) -> SignatureType {
        self.signature_type
    }

    /// The public key as RFC 8032 encodes it, not checked to be one.
    pub fn public_key(&self) -> &[u8; 32] {
        &self.public_key
    }

    /// The signature line of this key around a signature's bytes.
    pub fn signature(&self, bytes: impl Into<Vec<u8>>) -> NoteSignature {
        NoteSignature {
            name: self.name.clone(),
            key_id: self.key_id,
            bytes: bytes.into(),
        }
    }

    /// Takes `NAME+HEXID+BASE64` with an id that fits.
    pub fn parse(text: &str) -> Result<Self, BadVerifierKey> {
        // Only the last part may have a `+`, as a digit of base64.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(BadVerifierKey::Shape);
        };
        let mut id_bytes = [0; 4];
        if !unhex(id, &mut id_bytes) {
            return Err(BadVerifierKey::Id);
        }
        let key = unbase64(key).ok_or(BadVerifierKey::Key)?;
        let (type_byte, public_key) = key.split_first().ok_or(BadVerifierKey::Key)?;
        let signature_type = match type_byte {
            1 => SignatureType::Text,
            4 => SignatureType::Cosignature,
            other => return Err(BadVerifierKey::Type { found: *other }),
        };
        let public_key = public_key.try_into().map_err(|_| BadVerifierKey::Key)?;
        let key = Self::new(name, signature_type, public_key)?;
        let found = u32::from_be_bytes(id_bytes);
        if key.key_id == found {
            Ok(key)
        } else {
            Err(BadVerifierKey::OtherId {
                expected: key.key_id,
                found,
            })
        }
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = [0; 33];
        key[0] = self.signature_type as u8;
        key[1..].copy_from_slice(&self.public_key);
        write!(
            formatter,
            "{}+{:08x}+{}",
            self.name,
            self.key_id,
            STANDARD.encode(key)
        )
    }
}
