//! Commitments that are made away from a server, by whoever keeps the payload.

use super::{VaultError, cipher, random};
use onrecord_core::digest::Hash;
use onrecord_core::payload;
use zeroize::Zeroizing;

/// A commitment, and what opens it.
pub struct Commitment {
    /// `SHA-256("onrecord/payload/1\n" ‖ salt ‖ payload)`
    pub commit: Hash,
    /// The key that the salt comes from.
    pub dek: Zeroizing<[u8; 32]>,
    /// The salt, which shows that a payload is the one that was committed to.
    pub salt: Hash,
    /// Length after padding, in bytes.
    pub size: u64,
}

/// Commits to a payload, with a key that there is already or with a new one.
pub fn commit_to(
    payload: &[u8],
    dek: Option<Zeroizing<[u8; 32]>>,
) -> Result<Commitment, VaultError> {
    let dek = match dek {
        Some(dek) => dek,
        None => Zeroizing::new(random::bytes()?),
    };
    let salt = salt_of(&dek)?;
    Ok(Commitment {
        commit: payload::commitment(&salt.0, payload),
        size: payload::padded_size(payload.len() as u64),
        dek,
        salt,
    })
}

/// The salt of commitments that are made with a key.
pub fn salt_of(dek: &Zeroizing<[u8; 32]>) -> Result<Hash, VaultError> {
    cipher::salt(dek).map(Hash)
}
