//! Signatures that must be refused although some verifiers take them, by the crate and features that we ship.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;
use shared::shared;
use std::fs;
use std::path::Path;

fn accepted(public: &str, message: &[u8], signature: &str) -> bool {
    let Ok(public) = <[u8; 32]>::try_from(unhex(public)) else {
        return false;
    };
    let Ok(signature) = Signature::from_slice(&unhex(signature)) else {
        return false;
    };
    VerifyingKey::from_bytes(&public)
        .is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
}

fn unhex(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; text.len() / 2];
    assert!(onrecord_core::digest::unhex(text, &mut bytes), "{text}");
    bytes
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[derive(Deserialize)]
struct Strict {
    case: u32,
    note: String,
    public: String,
    message: String,
    signature: String,
    valid: bool,
}

fn strict(file: &Path) {
    let cases: Vec<Strict> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(cases.len(), 12);
    assert_eq!(cases.iter().filter(|case| case.valid).count(), 1);
    for case in cases {
        let verdict = accepted(&case.public, &unhex(&case.message), &case.signature);
        assert_eq!(verdict, case.valid, "{}: {}", case.case, case.note);
    }
}

#[test]
fn golden_cases() {
    strict(&here().join("../../tests/vectors/ed25519.json"));
}

#[derive(Deserialize)]
struct Speccheck {
    message: String,
    pub_key: String,
    signature: String,
}

/// As the paper's table says of "Dalek strict": only case 3.
#[test]
fn speccheck() {
    let Some(folder) = shared("vectors/ed25519-speccheck") else {
        return;
    };
    strict(&folder.join("strict.json"));
    let file = fs::read(folder.join("cases.json")).unwrap();
    let cases: Vec<Speccheck> = serde_json::from_slice(&file).unwrap();
    let accepted: Vec<usize> = (0..)
        .zip(&cases)
        .filter(|(_, case)| accepted(&case.pub_key, &unhex(&case.message), &case.signature))
        .map(|(number, _)| number)
        .collect();
    assert_eq!((cases.len(), accepted), (12, vec![3]));
}

#[derive(Deserialize)]
struct Cctv {
    number: u32,
    key: String,
    sig: String,
    msg: String,
    flags: Option<Vec<String>>,
}

/// A component of low order beside one of full order cannot be refused by looking at the points.
#[test]
fn cctv() {
    let Some(folder) = shared("vectors/ed25519-cctv") else {
        return;
    };
    let file = fs::read(folder.join("ed25519vectors.json")).unwrap();
    let cases: Vec<Cctv> = serde_json::from_slice(&file).unwrap();
    let mut counts = [0, 0];
    for case in cases {
        let expected = case
            .flags
            .iter()
            .flatten()
            .all(|flag| flag == "low_order_component_A" || flag == "low_order_component_R");
        let verdict = accepted(&case.key, case.msg.as_bytes(), &case.sig);
        assert_eq!(verdict, expected, "{}: {:?}", case.number, case.flags);
        counts[usize::from(verdict)] += 1;
    }
    assert_eq!(counts, [871, 43]);
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wycheproof {
    number_of_tests: usize,
    test_groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    public_key: PublicKey,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct PublicKey {
    pk: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    tc_id: u32,
    comment: String,
    msg: String,
    sig: String,
    result: String,
}

#[test]
fn wycheproof() {
    let Some(folder) = shared("vectors/wycheproof") else {
        return;
    };
    let file = fs::read(folder.join("ed25519_test.json")).unwrap();
    let vectors: Wycheproof = serde_json::from_slice(&file).unwrap();
    let mut counts = [0, 0];
    for group in vectors.test_groups {
        for test in group.tests {
            let expected = match test.result.as_str() {
                "valid" => true,
                "invalid" => false,
                other => panic!("a result of another kind: {other}"),
            };
            let verdict = accepted(&group.public_key.pk, &unhex(&test.msg), &test.sig);
            assert_eq!(verdict, expected, "{}: {}", test.tc_id, test.comment);
            counts[usize::from(verdict)] += 1;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), vectors.number_of_tests);
    assert_eq!(counts, [63, 88]);
}
