//! A witness's key: it cosigns checkpoints of others, and lies in a file of its own beside what the witness saw.

use super::{VaultError, files, random};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use onrecord_core::note::{
    Cosignature, NoteSignature, SignatureType, VerifierKey, cosigned_message,
};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// How the line of a secret key begins, in the manner of Go's notes: `PRIVATE+KEY+NAME+ID+BASE64`.
const SECRET: &str = "PRIVATE+KEY+";
/// What the line has before the 32 bytes of the secret, inside the base64.
const TYPE: u8 = SignatureType::Cosignature as u8;

/// The key of a witness.
pub struct WitnessKey {
    key: SigningKey,
    verifier: VerifierKey,
}

impl WitnessKey {
    /// Makes a key under a name, and its file, which must not be there.
    ///
    /// # Errors
    /// [`VaultError::Key`]: the name is none. [`VaultError::Taken`]: there is such a file. [`VaultError::File`]: it cannot be
    /// written.
    pub fn create(name: &str, path: &Path) -> Result<Self, VaultError> {
        let secret = Zeroizing::new(random::bytes::<32>()?);
        let key = Self::new(name, &secret)?;
        let mut bytes = Zeroizing::new(vec![TYPE]);
        bytes.extend_from_slice(&secret[..]);
        let encoded = Zeroizing::new(STANDARD.encode(&bytes[..]));
        let id = key.verifier.key_id();
        let line = Zeroizing::new(format!("{SECRET}{name}+{id:08x}+{}\n", encoded.as_str()));
        if files::write_new(path, line.as_bytes())? {
            Ok(key)
        } else {
            Err(VaultError::Taken {
                path: path.to_owned(),
            })
        }
    }

    /// Reads a key's file, which its owner alone may read.
    ///
    /// # Errors
    /// [`VaultError::File`]: it cannot be read. [`VaultError::Open`]: others may read it. [`VaultError::Key`]: it is no key.
    pub fn open(path: &Path) -> Result<Self, VaultError> {
        let at = |source| VaultError::File {
            path: path.to_owned(),
            source,
        };
        if fs::metadata(path).map_err(at)?.permissions().mode() & 0o077 != 0 {
            return Err(VaultError::Open {
                path: path.to_owned(),
            });
        }
        let text = Zeroizing::new(fs::read_to_string(path).map_err(at)?);
        let line = text
            .strip_suffix('\n')
            .and_then(|text| text.strip_prefix(SECRET));
        let mut parts = line.ok_or(VaultError::Key)?.splitn(3, '+');
        let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(VaultError::Key);
        };
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| VaultError::Key)?);
        let secret = match bytes.split_first() {
            Some((&TYPE, secret)) => secret.try_into().map_err(|_| VaultError::Key)?,
            _ => return Err(VaultError::Key),
        };
        let key = Self::new(name, secret)?;
        if format!("{:08x}", key.verifier.key_id()) == id {
            Ok(key)
        } else {
            Err(VaultError::Key)
        }
    }

    fn new(name: &str, secret: &[u8; 32]) -> Result<Self, VaultError> {
        let key = SigningKey::from_bytes(secret);
        let public = key.verifying_key().to_bytes();
        let verifier = VerifierKey::new(name, SignatureType::Cosignature, public)
            .map_err(|_| VaultError::Key)?;
        Ok(Self { key, verifier })
    }

    /// The public half.
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Ed25519 over `"cosignature/v1\ntime " ‖ seconds ‖ "\n" ‖ text` (c2sp.org/tlog-cosignature): the signature line.
    ///
    /// `text` is that of a checkpoint's note. Whether it may be signed is the caller's to know.
    ///
    /// # Errors
    /// [`VaultError::Signature`].
    pub fn cosign(&self, time: u64, text: &str) -> Result<NoteSignature, VaultError> {
        let message = cosigned_message(time, text);
        let signature = self.key.sign(message.as_bytes());
        self.key
            .verifying_key()
            .verify_strict(message.as_bytes(), &signature)
            .map_err(|_| VaultError::Signature)?;
        let signature = signature.to_bytes();
        Ok(self
            .verifier
            .signature(Cosignature { time, signature }.to_bytes()))
    }
}
