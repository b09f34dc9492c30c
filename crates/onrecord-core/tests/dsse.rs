//! DSSE as others have it: the same bytes are signed, and their envelopes are none of ours.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::statement::{Signed, pae};
use serde::Deserialize;
use shared::shared;
use std::fs;

#[derive(Deserialize)]
struct Vectors {
    pae: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload_b64: String,
    pae_b64: String,
}

#[test]
fn the_bytes_that_are_signed() {
    assert_eq!(
        pae("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    let Some(folder) = shared("vectors/in-toto-dsse") else {
        return;
    };
    let file = fs::read(folder.join("dsse-pae.json")).unwrap();
    let vectors: Vectors = serde_json::from_slice(&file).unwrap();
    assert!(vectors.pae.len() >= 6);
    for case in vectors.pae {
        let payload = STANDARD.decode(&case.payload_b64).unwrap();
        let bytes = pae(&case.payload_type, &payload);
        assert_eq!(
            STANDARD.encode(bytes),
            case.pae_b64,
            "{}",
            case.payload_type
        );
    }
}

#[test]
fn foreign_envelopes_are_refused() {
    let Some(folder) = shared("vectors/in-toto-dsse") else {
        return;
    };
    let (mut folders, mut refused) = (vec![folder], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            assert!(
                Signed::parse(bytes.trim_ascii()).is_err(),
                "{}",
                path.display()
            );
            refused += 1;
        }
    }
    assert!(refused > 30, "{refused}");
}
