//! Notes of ours and of others, down to their signatures.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use onrecord_core::note::{
    BadNote, Checkpoint, Cosignature, Note, SignatureType, TlogProof, VerifierKey, cosigned_message,
};
use serde::Deserialize;
use shared::shared;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How many signatures of the key are true and how many false.
fn count(note: &Note, key: &VerifierKey) -> (usize, usize) {
    let public = VerifyingKey::from_bytes(key.public_key()).unwrap();
    let verdicts: Vec<bool> = note
        .signatures_of(key)
        .map(|bytes| {
            let (message, signature) = match key.signature_type() {
                SignatureType::Text => (note.text.clone(), Signature::from_slice(bytes)),
                SignatureType::Cosignature => {
                    let cosignature = Cosignature::from_bytes(bytes).unwrap();
                    let message = cosigned_message(cosignature.time, &note.text);
                    (message, Ok(Signature::from_bytes(&cosignature.signature)))
                }
            };
            signature
                .is_ok_and(|signature| public.verify_strict(message.as_bytes(), &signature).is_ok())
        })
        .collect();
    let good = verdicts.iter().filter(|verdict| **verdict).count();
    (good, verdicts.len() - good)
}

/// The signing key of C2SP's text form, `PRIVATE+KEY+NAME+ID+BASE64`, and its verifier key.
fn signer(text: &str) -> (SigningKey, VerifierKey) {
    let parts: Vec<&str> = text.splitn(5, '+').collect();
    let seed = STANDARD.decode(parts[4]).unwrap();
    let key = SigningKey::from_bytes(&seed[1..].try_into().unwrap());
    let public = key.verifying_key().to_bytes();
    let verifier = VerifierKey::new(parts[2], SignatureType::Text, public).unwrap();
    assert_eq!(
        (seed[0], format!("{:08x}", verifier.key_id()).as_str()),
        (1, parts[3])
    );
    (key, verifier)
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[derive(Deserialize)]
struct Notes {
    test_signing_key: String,
    notes: Vec<Case>,
    bad_vkeys: Vec<String>,
    invalid_utf8_note_base64: String,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    note: String,
    vkeys: Vec<String>,
    expect: String,
}

#[test]
fn foreign_notes() {
    let Some(folder) = shared("vectors/signed-note") else {
        return;
    };
    let file = fs::read(folder.join("notes.json")).unwrap();
    let notes: Notes = serde_json::from_slice(&file).unwrap();
    assert_eq!(notes.notes.len(), 17);
    for Case {
        id,
        note,
        vkeys,
        expect,
    } in notes.notes
    {
        let keys: Vec<_> = vkeys
            .iter()
            .map(|key| VerifierKey::parse(key).unwrap())
            .collect();
        let parsed = Note::parse(&note);
        if expect.starts_with("malformed") {
            assert!(parsed.is_err(), "{id}");
            continue;
        }
        if id == "101 signatures" {
            assert_eq!(parsed, Err(BadNote::TooMany));
            continue;
        }
        let parsed = parsed.unwrap();
        assert_eq!(parsed.to_string(), note, "{id}");
        let (good, bad) = keys.iter().fold((0, 0), |(good, bad), key| {
            let (more_good, more_bad) = count(&parsed, key);
            (good + more_good, bad + more_bad)
        });
        let expected = match expect.as_str() {
            "verified by both" => (2, 0),
            text if text.starts_with("verified") => (1, 0),
            text if text.starts_with("unverified") => (0, 0),
            text if text.starts_with("error: invalid signature") => (0, 1),
            text => panic!("{id} expects something new: {text}"),
        };
        assert_eq!((good, bad), expected, "{id}");
    }
    for key in notes.bad_vkeys {
        assert!(VerifierKey::parse(&key).is_err(), "{key}");
    }
    let bytes = STANDARD.decode(notes.invalid_utf8_note_base64).unwrap();
    assert!(str::from_utf8(&bytes).is_err());
    signer(&notes.test_signing_key);
}

#[derive(Deserialize)]
struct Keys {
    vkey: String,
    skey: String,
}

/// Each checkpoint of Tessera's log verifies, and we would have written the same bytes.
#[test]
fn a_foreign_log() {
    let Some(folder) = shared("vectors/tlog-tiles-tessera") else {
        return;
    };
    let keys: Keys = serde_json::from_slice(&fs::read(folder.join("KEYS.json")).unwrap()).unwrap();
    let (signing, verifier) = signer(&keys.skey);
    assert_eq!(VerifierKey::parse(&keys.vkey), Ok(verifier.clone()));
    let sizes = (0..=15).map(|size| format!("checkpoint.{size}"));
    for name in sizes.chain(["checkpoint".into()]) {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let note = Note::parse(&text).unwrap();
        assert_eq!(count(&note, &verifier), (1, 0), "{name}");
        let checkpoint = Checkpoint::parse(&note.text).unwrap();
        assert_eq!(checkpoint.origin, verifier.name());
        let signature = signing.sign(checkpoint.to_text().as_bytes()).to_bytes();
        let ours = Note {
            text: checkpoint.to_text(),
            signatures: vec![verifier.signature(signature)],
        };
        assert_eq!(ours.to_string(), text);
        let other = Checkpoint {
            size: checkpoint.size + 1,
            ..checkpoint
        };
        let forged = Note {
            text: other.to_text(),
            ..note
        };
        assert_eq!(count(&forged, &verifier), (0, 1), "{name}");
    }
}

/// Log and witness of the golden run sign its proof's checkpoint, and not another time or text.
#[test]
fn golden_checkpoint() {
    let vectors = here().join("../../tests/vectors");
    let keys: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&fs::read(vectors.join("keys.json")).unwrap()).unwrap();
    let key = |name: &str| VerifierKey::parse(keys[name].as_str().unwrap()).unwrap();
    let (log, witness) = (
        key("evidence.example/t/9d2v6c1p8h4z"),
        key("witness.example/w1"),
    );
    let bundle = fs::read(vectors.join("minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar"));
    let bundle = bundle.unwrap();
    let start = bundle
        .windows(23)
        .position(|bytes| bytes == b"c2sp.org/tlog-proof@v1\n")
        .unwrap();
    let length = bundle[start..].iter().position(|byte| *byte == 0).unwrap();
    let text = str::from_utf8(&bundle[start..start + length]).unwrap();
    let note = Note::parse(&TlogProof::parse(text).unwrap().checkpoint).unwrap();
    for key in [&log, &witness] {
        assert_eq!(count(&note, key), (1, 0), "{key}");
        let mut other = note.clone();
        other.text = other.text.replace("\n4\n", "\n5\n");
        assert_eq!(count(&other, key), (0, 1), "{key}");
    }
    let mut later = note.clone();
    later.signatures[1].bytes[7] ^= 1;
    assert_eq!(
        (count(&later, &log), count(&later, &witness)),
        ((1, 0), (0, 1))
    );
    // The same public key under the other type is another signer.
    let swapped = VerifierKey::new(witness.name(), SignatureType::Text, *witness.public_key());
    assert_eq!(count(&note, &swapped.unwrap()), (0, 0));
}
