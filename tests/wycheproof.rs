//! Google's vectors over the crates that encrypt and derive, with the sizes that the format uses.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod shared;

use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use shared::shared;
use std::fs;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors<G> {
    number_of_tests: usize,
    test_groups: Vec<G>,
}

/// The file, or nothing where other people's vectors are not beside the repository, said aloud.
fn vectors<G: DeserializeOwned>(name: &str) -> Option<Vectors<G>> {
    let found = shared(&format!("vectors/wycheproof/{name}"));
    Some(serde_json::from_slice(&fs::read(found?).unwrap()).unwrap())
}

fn unhex(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; text.len() / 2];
    assert!(onrecord_core::digest::unhex(text, &mut bytes), "{text}");
    bytes
}

fn valid(result: &str) -> bool {
    match result {
        "valid" => true,
        "invalid" => false,
        other => panic!("a result of another kind: {other}"),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AeadGroup {
    iv_size: usize,
    key_size: usize,
    tag_size: usize,
    tests: Vec<AeadTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AeadTest {
    tc_id: u32,
    comment: String,
    key: String,
    iv: String,
    aad: String,
    msg: String,
    ct: String,
    tag: String,
    result: String,
}

#[test]
fn aes_256_gcm() {
    let Some(vectors) = vectors::<AeadGroup>("aes_gcm_test.json") else {
        return;
    };
    let mut counts = [0, 0];
    let ours =
        |group: &AeadGroup| (group.key_size, group.iv_size, group.tag_size) == (256, 96, 128);
    for test in vectors
        .test_groups
        .into_iter()
        .filter(ours)
        .flat_map(|group| group.tests)
    {
        let about = format!("{}: {}", test.tc_id, test.comment);
        let cipher = Aes256Gcm::new_from_slice(&unhex(&test.key)).unwrap();
        let nonce = Nonce::try_from(unhex(&test.iv).as_slice()).unwrap();
        let (aad, message) = (unhex(&test.aad), unhex(&test.msg));
        let sealed = [unhex(&test.ct), unhex(&test.tag)].concat();
        let opened = cipher.decrypt(
            &nonce,
            Payload {
                msg: &sealed,
                aad: &aad,
            },
        );
        let valid = valid(&test.result);
        assert_eq!(opened.is_ok(), valid, "{about}");
        if valid {
            assert_eq!(opened.unwrap(), message, "{about}");
            let again = cipher.encrypt(
                &nonce,
                Payload {
                    msg: &message,
                    aad: &aad,
                },
            );
            assert_eq!(again.unwrap(), sealed, "{about}");
        }
        counts[usize::from(valid)] += 1;
    }
    assert_eq!(counts, [27, 39]);
}

#[derive(Deserialize)]
struct HkdfGroup {
    tests: Vec<HkdfTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HkdfTest {
    tc_id: u32,
    comment: String,
    ikm: String,
    salt: String,
    info: String,
    size: usize,
    okm: String,
    result: String,
}

#[test]
fn hkdf_sha256() {
    let Some(vectors) = vectors::<HkdfGroup>("hkdf_sha256_test.json") else {
        return;
    };
    let mut counts = [0, 0];
    for test in vectors
        .test_groups
        .into_iter()
        .flat_map(|group| group.tests)
    {
        let about = format!("{}: {}", test.tc_id, test.comment);
        let (ikm, salt, info) = (unhex(&test.ikm), unhex(&test.salt), unhex(&test.info));
        let mut okm = vec![0; test.size];
        let derived = Hkdf::<Sha256>::new(Some(&salt), &ikm).expand(&info, &mut okm);
        let valid = valid(&test.result);
        assert_eq!(derived.is_ok(), valid, "{about}");
        if valid {
            assert_eq!(okm, unhex(&test.okm), "{about}");
            if salt.is_empty() {
                // The format says "salt empty": none, and one of no bytes, are the same.
                Hkdf::<Sha256>::new(None, &ikm)
                    .expand(&info, &mut okm)
                    .unwrap();
                assert_eq!(okm, unhex(&test.okm), "{about}");
            }
        }
        counts[usize::from(valid)] += 1;
    }
    assert_eq!(counts[0] + counts[1], vectors.number_of_tests);
    assert_eq!(counts, [3, 83]);
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MacGroup {
    tag_size: usize,
    tests: Vec<MacTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MacTest {
    tc_id: u32,
    comment: String,
    key: String,
    msg: String,
    tag: String,
    result: String,
}

#[test]
fn hmac_sha256() {
    let Some(vectors) = vectors::<MacGroup>("hmac_sha256_test.json") else {
        return;
    };
    let mut counts = [0, 0];
    for group in vectors.test_groups {
        for test in group.tests {
            let about = format!("{}: {}", test.tc_id, test.comment);
            let mut mac = Hmac::<Sha256>::new_from_slice(&unhex(&test.key)).unwrap();
            mac.update(&unhex(&test.msg));
            let tag = unhex(&test.tag);
            let verdict = if group.tag_size == 256 {
                mac.verify_slice(&tag)
            } else {
                mac.verify_truncated_left(&tag)
            };
            let valid = valid(&test.result);
            assert_eq!(verdict.is_ok(), valid, "{about}");
            counts[usize::from(valid)] += 1;
        }
    }
    assert_eq!(counts[0] + counts[1], vectors.number_of_tests);
    assert_eq!(counts, [108, 66]);
}
