//! Signing: a seal key of a tenant, and the key of its ledger.

use super::VaultError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePublicKey as _, EncodePublicKey as _};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::note::{Checkpoint, Note, SignatureType, VerifierKey};
use onrecord_core::statement::{self, Predicate};

/// A key that signs a tenant's statements; it serves no other tenant.
pub struct SealKey {
    key: SigningKey,
    public: PublicKey,
}

/// A public key in the spellings that people and files need.
#[derive(Clone, Debug)]
pub struct PublicKey {
    /// Hex SHA-256 of the SPKI DER.
    pub keyid: Hash,
    /// SPKI DER in base64: the middle line of the PEM.
    pub spki: String,
    /// SPKI PEM.
    pub pem: String,
}

impl PublicKey {
    /// Reads SPKI DER in base64.
    ///
    /// # Errors
    /// [`VaultError::Key`]: it is no Ed25519 key in its one spelling.
    pub fn from_spki(spki: &str) -> Result<Self, VaultError> {
        let der = STANDARD.decode(spki).map_err(|_| VaultError::Key)?;
        let key = VerifyingKey::from_public_key_der(&der).map_err(|_| VaultError::Key)?;
        let public = Self::of(&key)?;
        if public.spki == spki {
            Ok(public)
        } else {
            Err(VaultError::Key)
        }
    }

    fn of(key: &VerifyingKey) -> Result<Self, VaultError> {
        let der = key.to_public_key_der().map_err(|_| VaultError::Key)?;
        let pem = key
            .to_public_key_pem(LineEnding::LF)
            .map_err(|_| VaultError::Key)?;
        Ok(Self {
            keyid: Hash::of(&[der.as_bytes()]),
            spki: STANDARD.encode(der.as_bytes()),
            pem,
        })
    }
}

impl SealKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Result<Self, VaultError> {
        let key = SigningKey::from_bytes(secret);
        let public = PublicKey::of(&key.verifying_key())?;
        Ok(Self { key, public })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a statement and returns its envelope. `subject` is needed where the format does not fix it.
    pub fn sign(
        &self,
        tenant: &TenantId,
        predicate: &Predicate,
        subject: Option<(&str, Hash)>,
    ) -> Result<Vec<u8>, VaultError> {
        let fixed = predicate.fixed_subject(tenant);
        let (name, digest) = match (&fixed, subject) {
            (Some((name, digest)), _) => (name.as_str(), *digest),
            (None, Some(subject)) => subject,
            (None, None) => return Err(VaultError::Statement),
        };
        let payload = predicate
            .payload(tenant, &self.public.keyid, name, &digest)
            .map_err(|_| VaultError::Statement)?;
        let message = statement::pae(statement::PAYLOAD_TYPE, &payload);
        let sig = self.key.sign(&message);
        // A fault in memory or in the machine that spoils a signature must not reach the ledger.
        self.key
            .verifying_key()
            .verify_strict(&message, &sig)
            .map_err(|_| VaultError::Signature)?;
        let envelope = statement::envelope(&payload, &self.public.keyid, &sig.to_bytes());
        if envelope.len() > onrecord_core::limits::ENVELOPE_BYTES {
            return Err(VaultError::Statement);
        }
        Ok(envelope)
    }
}

/// The key that signs a ledger's checkpoints; it is not the seal key.
pub struct LedgerKey {
    key: SigningKey,
    public: PublicKey,
    verifier: VerifierKey,
}

impl LedgerKey {
    pub(crate) fn new(secret: &[u8; 32], origin: &Origin) -> Result<Self, VaultError> {
        let key = SigningKey::from_bytes(secret);
        let public = PublicKey::of(&key.verifying_key())?;
        let verifier = VerifierKey::new(
            origin.as_str(),
            SignatureType::Text,
            key.verifying_key().to_bytes(),
        )
        .map_err(|_| VaultError::Key)?;
        Ok(Self {
            key,
            public,
            verifier,
        })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The public half as a C2SP verifier key.
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs a checkpoint: a C2SP signed note.
    pub fn sign(&self, checkpoint: &Checkpoint) -> Result<String, VaultError> {
        let text = checkpoint.to_text();
        let sig = self.key.sign(text.as_bytes());
        self.key
            .verifying_key()
            .verify_strict(text.as_bytes(), &sig)
            .map_err(|_| VaultError::Signature)?;
        let note = Note {
            text,
            signatures: vec![self.verifier.signature(sig.to_bytes())],
        };
        Ok(note.to_string())
    }
}
