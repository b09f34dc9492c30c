//! Commitments, sizes and padding of the golden payloads.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its vectors fails"
)]

use onrecord_core::digest::{Hash, unhex};
use onrecord_core::payload::{Committer, commitment, is_bucket, pad, padded_size, unpad};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    payloads: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    commit: Hash,
    length: u64,
    payload: Option<String>,
    salt: Hash,
    size: u64,
}

#[test]
fn golden_payloads_have_their_commitments_and_buckets() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/payload/payloads.json"
    );
    let vectors: Vectors = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(!vectors.payloads.is_empty());
    for case in vectors.payloads {
        let mut payload: Vec<u8> = (0..case.length).map(|at| (at % 251) as u8).collect();
        if let Some(hex) = &case.payload {
            assert!(unhex(hex, &mut payload), "{}", case.name);
        }
        assert_eq!(
            commitment(&case.salt.0, &payload),
            case.commit,
            "{}",
            case.name
        );
        let mut committer = Committer::new(&case.salt.0);
        payload.chunks(97).for_each(|part| committer.update(part));
        assert_eq!(committer.finish(), case.commit, "{}", case.name);
        assert_eq!(padded_size(case.length), case.size, "{}", case.name);
        assert!(is_bucket(case.size), "{}", case.name);
        let mut padded = payload.clone();
        pad(&mut padded);
        assert_eq!(padded.len() as u64, case.size, "{}", case.name);
        assert_eq!(unpad(&padded), Some(payload.as_slice()), "{}", case.name);
    }
}
