//! AES-256-GCM under a key in memory: wrapping of keys, and the payload cipher of the format.

use super::{VaultError, random};
use aes_gcm::aead::{Aead as _, AeadInOut as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::payload;
use sha2::Sha256;
use zeroize::Zeroizing;

/// A 256-bit key, wiped when dropped.
pub(crate) type Key = Zeroizing<[u8; 32]>;

const NONCE: usize = 12;
const TAG: usize = 16;

/// `nonce ‖ AES-256-GCM(key, nonce, secret, aad = label)` with a random nonce.
pub(crate) fn wrap(key: &Key, label: &str, secret: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce = random::bytes::<NONCE>()?;
    let cipher = Aes256Gcm::new((&**key).into());
    let sealed = cipher
        .encrypt(
            (&nonce).into(),
            Payload {
                msg: secret,
                aad: label.as_bytes(),
            },
        )
        .map_err(|_| VaultError::Cipher)?;
    Ok([&nonce[..], &sealed].concat())
}

/// Opens what [`wrap`] made under the same key and label.
pub(crate) fn unwrap(
    key: &Key,
    label: &str,
    wrapped: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let (nonce, sealed) = wrapped.split_at_checked(NONCE).ok_or(VaultError::Cipher)?;
    let nonce: &[u8; NONCE] = nonce.try_into().map_err(|_| VaultError::Cipher)?;
    let cipher = Aes256Gcm::new((&**key).into());
    let opened = cipher
        .decrypt(
            nonce.into(),
            Payload {
                msg: sealed,
                aad: label.as_bytes(),
            },
        )
        .map_err(|_| VaultError::Cipher)?;
    Ok(Zeroizing::new(opened))
}

/// Opens a wrapped 256-bit key.
pub(crate) fn unwrap_key(key: &Key, label: &str, wrapped: &[u8]) -> Result<Key, VaultError> {
    let opened = unwrap(key, label, wrapped)?;
    let bytes: [u8; 32] = opened
        .as_slice()
        .try_into()
        .map_err(|_| VaultError::Cipher)?;
    Ok(Zeroizing::new(bytes))
}

/// `HKDF-SHA256(ikm, salt = "", info, N)`
fn derive<const N: usize>(ikm: &[u8], info: &[&[u8]]) -> Result<Zeroizing<[u8; N]>, VaultError> {
    let mut out = Zeroizing::new([0; N]);
    Hkdf::<Sha256>::new(None, ikm)
        .expand_multi_info(info, &mut out[..])
        .map_err(|_| VaultError::Cipher)?;
    Ok(out)
}

/// Salt of a payload's commitment, from its DEK (format, section 3).
pub(crate) fn salt(dek: &Key) -> Result<[u8; 32], VaultError> {
    derive::<32>(&dek[..], &[payload::SALT_INFO]).map(|salt| *salt)
}

/// What a payload is bound to.
pub(crate) struct Place<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) run: &'a RunId,
    pub(crate) media: &'a str,
}

fn payload_cipher(dek: &Key, commit: &Hash) -> Result<(Aes256Gcm, [u8; NONCE]), VaultError> {
    let material = derive::<44>(&dek[..], &[payload::KEY_INFO, commit.as_bytes()])?;
    let (key, nonce) = material.split_at(32);
    let cipher = Aes256Gcm::new_from_slice(key).map_err(|_| VaultError::Cipher)?;
    Ok((cipher, nonce.try_into().map_err(|_| VaultError::Cipher)?))
}

/// `(commit, AES-256-GCM(key, nonce, padded payload, aad))` (format, section 3).
pub(crate) fn seal_payload(
    dek: &Key,
    place: &Place<'_>,
    plaintext: Vec<u8>,
) -> Result<(Hash, Vec<u8>), VaultError> {
    let commit = payload::commitment(&salt(dek)?, &plaintext);
    let (cipher, nonce) = payload_cipher(dek, &commit)?;
    let mut sealed = Zeroizing::new(plaintext);
    // Room for all that is added, so that it is copied once and not for each of them.
    let size = usize::try_from(payload::padded_size(sealed.len() as u64)).unwrap_or(usize::MAX);
    let added = size.saturating_add(TAG).saturating_sub(sealed.len());
    sealed.reserve_exact(added);
    payload::pad(&mut sealed);
    let aad = payload::aad(place.tenant, place.run, &commit, place.media);
    // In place: no plaintext is left that would have to be wiped.
    cipher
        .encrypt_in_place((&nonce).into(), aad.as_bytes(), &mut *sealed)
        .map_err(|_| VaultError::Cipher)?;
    Ok((commit, std::mem::take(&mut *sealed)))
}

/// The payload of a ciphertext, checked against its commitment.
pub(crate) fn open_payload(
    dek: &Key,
    place: &Place<'_>,
    commit: &Hash,
    ciphertext: &[u8],
) -> Result<Vec<u8>, VaultError> {
    let (cipher, nonce) = payload_cipher(dek, commit)?;
    let aad = payload::aad(place.tenant, place.run, commit, place.media);
    let mut padded = cipher
        .decrypt(
            (&nonce).into(),
            Payload {
                msg: ciphertext,
                aad: aad.as_bytes(),
            },
        )
        .map_err(|_| VaultError::Cipher)?;
    let length = payload::unpad(&padded).ok_or(VaultError::Cipher)?.len();
    padded.truncate(length);
    if payload::commitment(&salt(dek)?, &padded) != *commit {
        return Err(VaultError::Cipher);
    }
    Ok(padded)
}

/// `HKDF(fingerprint key, "onrecord/fingerprint/1\n" ‖ run)`: the key of a run's fingerprints of secrets
/// (`docs/spec/payloads.md`, "Fingerprints of secrets").
pub(crate) fn fingerprint_key(key: &Key, run: &RunId) -> Result<Key, VaultError> {
    derive::<32>(
        &key[..],
        &[b"onrecord/fingerprint/1\n", run.as_str().as_bytes()],
    )
}

/// `HMAC-SHA256(key of the run's fingerprints, secret)`
pub(crate) fn secret_fingerprint(key: &Key, secret: &[u8]) -> Result<Hash, VaultError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key[..]).map_err(|_| VaultError::Cipher)?;
    mac.update(secret);
    Ok(Hash(mac.finalize().into_bytes().into()))
}

/// `HKDF(fingerprint key, "onrecord/subject/1\n")`: the key of a tenant's fingerprints of subjects
/// (`docs/spec/payloads.md`, "Subjects").
pub(crate) fn subject_key(key: &Key) -> Result<Key, VaultError> {
    derive::<32>(&key[..], &[b"onrecord/subject/1\n"])
}

/// `HMAC-SHA256(key of the tenant's subjects, subject)[..16]`
pub(crate) fn subject_fingerprint(key: &Key, subject: &str) -> Result<[u8; 16], VaultError> {
    request_mac(key, subject.as_bytes())
}

/// `HMAC-SHA256(HKDF(fingerprint key, "onrecord/cursor/1\n"), cursor)[..16]`
pub(crate) fn cursor_mac(key: &Key, cursor: &[u8]) -> Result<[u8; 16], VaultError> {
    request_mac(&derive::<32>(&key[..], &[b"onrecord/cursor/1\n"])?, cursor)
}

/// `HKDF(fingerprint key, "onrecord/request-key/1\n" ‖ run)`: what the keys of a run's request MACs are made of
/// (`docs/spec/payloads.md`, "Sameness of a retry").
pub(crate) fn request_base(key: &Key, run: &RunId) -> Result<Key, VaultError> {
    derive::<32>(
        &key[..],
        &[b"onrecord/request-key/1\n", run.as_str().as_bytes()],
    )
}

/// `HKDF(base ‖ DEKs, "onrecord/request/1\n")`: the key by which the sameness of a retry is told. It needs every DEK of
/// the frame, so that erasing one payload takes the fingerprint of the request with it.
pub(crate) fn request_key(base: &Key, deks: &[Key]) -> Result<Key, VaultError> {
    let mut ikm = Zeroizing::new(Vec::with_capacity(32 * (1 + deks.len())));
    ikm.extend_from_slice(&base[..]);
    for dek in deks {
        ikm.extend_from_slice(&dek[..]);
    }
    derive::<32>(&ikm, &[b"onrecord/request/1\n"])
}

/// `HMAC-SHA256(request key, request)[..16]`
pub(crate) fn request_mac(key: &Key, request: &[u8]) -> Result<[u8; 16], VaultError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key[..]).map_err(|_| VaultError::Cipher)?;
    mac.update(request);
    let mac: [u8; 32] = mac.finalize().into_bytes().into();
    let mut half = [0; 16];
    half.copy_from_slice(&mac[..16]);
    Ok(half)
}
