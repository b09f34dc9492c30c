//! Ed25519 public keys and strict verification: the only place that names the algorithm.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use onrecord_core::digest::Hash;

/// DER of an Ed25519 SubjectPublicKeyInfo up to the 32 bytes of the key (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A public key that is a point of the curve and not of small order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// The bytes are no Ed25519 public key that could be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 public key")]
pub struct BadKey;

impl PublicKey {
    /// From the 32 bytes of RFC 8032.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, BadKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| BadKey)?;
        if key.is_weak() {
            Err(BadKey)
        } else {
            Ok(Self(key))
        }
    }

    /// From SPKI DER in base64, the middle line of a PEM file; also gives its key id.
    pub fn from_spki(text: &str) -> Result<(Hash, Self), BadKey> {
        let der = STANDARD.decode(text).map_err(|_| BadKey)?;
        let key = der.strip_prefix(&SPKI_PREFIX).ok_or(BadKey)?;
        let key = Self::from_bytes(key.try_into().map_err(|_| BadKey)?)?;
        Ok((Hash::of(&[&der]), key))
    }

    /// Whether the signature is true by the strict rule (RFC 8032, 5.1.7; neither key nor R of small order, S below L).
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0
            .verify_strict(message, &Signature::from_bytes(signature))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrecord_core::digest::unhex;

    #[derive(serde::Deserialize)]
    struct Case {
        case: u32,
        message: String,
        public: String,
        signature: String,
        valid: bool,
    }

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        let mut out = [0; N];
        assert!(unhex(text, &mut out));
        out
    }

    #[test]
    fn strict_verification_is_that_of_the_golden_cases() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/vectors/ed25519.json"
        );
        let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let mut message = vec![0; case.message.len() / 2];
            assert!(unhex(&case.message, &mut message));
            let valid = PublicKey::from_bytes(&bytes(&case.public))
                .is_ok_and(|key| key.verifies(&message, &bytes(&case.signature)));
            assert_eq!(valid, case.valid, "case {}", case.case);
        }
    }
}
