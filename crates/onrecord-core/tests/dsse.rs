//! DSSE as others have it: the same bytes are signed, and their envelopes are none of ours.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::statement::{Signed, pae};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

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

/// A folder of other people's vectors beside the repository; none there is said aloud.
fn shared(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../../../shared", "../../../../shared"]
        .map(|up| here.join(up).join("vectors").join(name))
        .into_iter()
        .find(|folder| folder.exists());
    if found.is_none() {
        eprintln!("skipped: no shared/vectors/{name} beside the repository");
    }
    found
}

#[test]
fn the_bytes_that_are_signed() {
    assert_eq!(
        pae("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    let Some(folder) = shared("in-toto-dsse") else {
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
    let Some(folder) = shared("in-toto-dsse") else {
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
