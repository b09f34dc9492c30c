//! Checkpoints, cosignatures and proofs: exact texts in, the same texts out, and all else refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::verify_inclusion;
use onrecord_core::note::{
    BadCheckpoint, BadTlogProof, Checkpoint, Cosignature, Note, TlogProof, VerifierKey,
    cosigned_message,
};
use serde::Deserialize;
use shared::shared;
use std::fs;
use std::path::Path;

#[test]
fn checkpoints_come_back_and_others_are_refused() {
    use BadCheckpoint::{Lines, Origin, Root, Size};
    const ROOT: &str = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";
    for size in ["0", "1", "20852163", "18446744073709551615"] {
        let text = format!("example.com/a log\n{size}\n{ROOT}\n");
        let checkpoint = Checkpoint::parse(&text).unwrap();
        assert_eq!(checkpoint.to_text(), text);
        assert_eq!(checkpoint.size.to_string(), size);
    }
    let cases = [
        ("empty", String::new(), Lines),
        ("two lines", "log\n1\n".into(), Lines),
        ("an extension", format!("log\n1\n{ROOT}\nmore\n"), Lines),
        (
            "an empty line at the end",
            format!("log\n1\n{ROOT}\n\n"),
            Lines,
        ),
        ("no final newline", format!("log\n1\n{ROOT}"), Lines),
        ("an empty origin", format!("\n1\n{ROOT}\n"), Origin),
        (
            "an origin with a tab",
            format!("l\tog\n1\n{ROOT}\n"),
            Origin,
        ),
        ("no size", format!("log\n\n{ROOT}\n"), Size),
        ("a leading zero", format!("log\n01\n{ROOT}\n"), Size),
        ("two zeros", format!("log\n00\n{ROOT}\n"), Size),
        ("a plus", format!("log\n+1\n{ROOT}\n"), Size),
        ("a minus", format!("log\n-1\n{ROOT}\n"), Size),
        ("hex", format!("log\n0x1\n{ROOT}\n"), Size),
        ("a space", format!("log\n1 \n{ROOT}\n"), Size),
        ("a carriage return", format!("log\n1\r\n{ROOT}\n"), Size),
        ("other digits", format!("log\n\u{663}\n{ROOT}\n"), Size),
        ("2^64", format!("log\n18446744073709551616\n{ROOT}\n"), Size),
        ("no root", "log\n1\n\n".into(), Root),
        (
            "a root of 31 bytes",
            format!("log\n1\n{}\n", STANDARD.encode([1; 31])),
            Root,
        ),
        (
            "a root of 33 bytes",
            format!("log\n1\n{}\n", STANDARD.encode([1; 33])),
            Root,
        ),
        (
            "a root in hex",
            format!("log\n1\n{}\n", Hash([1; 32])),
            Root,
        ),
        (
            "bits behind the root",
            format!("log\n1\n{}\n", ROOT.replace("2I=", "2J=")),
            Root,
        ),
        (
            "a root for addresses",
            format!("log\n1\n{}\n", ROOT.replace('/', "_")),
            Root,
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(Checkpoint::parse(&text), Err(expected), "{name}");
    }
}

#[test]
fn cosignatures_have_a_time_and_a_signature() {
    let cosignature = Cosignature {
        time: 1_679_315_147,
        signature: [7; 64],
    };
    let bytes = cosignature.to_bytes();
    assert_eq!(bytes[..8], [0, 0, 0, 0, 0x64, 0x18, 0x50, 0xcb]);
    assert_eq!(Cosignature::from_bytes(&bytes), Ok(cosignature));
    let mut late = bytes;
    late[0] = 0x80;
    for bad in [
        &bytes[..71],
        &[&bytes[..], &[0]].concat(),
        &bytes[8..],
        &late,
        &[],
    ] {
        assert!(Cosignature::from_bytes(bad).is_err());
    }
    assert_eq!(
        cosigned_message(0, "log\n"),
        "cosignature/v1\ntime 0\nlog\n"
    );
}

#[test]
fn proofs_come_back_and_others_are_refused() {
    use BadTlogProof::{Checkpoint, Extra, Header, Index, Path};
    let hash = STANDARD.encode([1; 32]);
    let proof = |middle: &str| format!("c2sp.org/tlog-proof@v1\n{middle}");
    for (middle, index, hashes) in [
        (format!("index 0\n\nlog\n1\n{hash}\n\nsigned"), 0, 0),
        (
            format!("index 18446744073709551615\n{hash}\n\n"),
            u64::MAX,
            1,
        ),
        (
            format!("index 7\n{}\nlog", format!("{hash}\n").repeat(64)),
            7,
            64,
        ),
    ] {
        let text = proof(&middle);
        let parsed = TlogProof::parse(&text).unwrap();
        assert_eq!((parsed.index, parsed.path.len()), (index, hashes));
        assert_eq!(parsed.to_string(), text);
        let extra = text.replace("\nindex", "\nextra AAA=\nindex");
        assert_eq!(TlogProof::parse(&extra), Ok(parsed));
    }
    let cases = [
        ("empty", String::new(), Header),
        (
            "another version",
            "c2sp.org/tlog-proof@v2\nindex 0\n\nlog\n".into(),
            Header,
        ),
        ("only the header", "c2sp.org/tlog-proof@v1".into(), Header),
        (
            "a carriage return",
            "c2sp.org/tlog-proof@v1\r\nindex 0\n\nlog\n".into(),
            Header,
        ),
        ("no index", proof(""), Index),
        (
            "a path without an index",
            proof(&format!("{hash}\n\nlog\n")),
            Index,
        ),
        ("an index that does not end", proof("index 1"), Index),
        ("an empty index", proof("index \n\nlog\n"), Index),
        ("a leading zero", proof("index 01\n\nlog\n"), Index),
        ("a minus", proof("index -1\n\nlog\n"), Index),
        ("two spaces", proof("index  1\n\nlog\n"), Index),
        ("2^64", proof("index 18446744073709551616\n\nlog\n"), Index),
        ("an empty extra", proof("extra \nindex 0\n\nlog\n"), Extra),
        (
            "an extra that is no base64",
            proof("extra more\u{e9}\nindex 0\n\nlog\n"),
            Extra,
        ),
        (
            "two extras",
            proof("extra AAA=\nextra AAA=\nindex 0\n\nlog\n"),
            Index,
        ),
        (
            "an extra after the index",
            proof("index 0\nextra AAA=\n\nlog\n"),
            Path { line: 1 },
        ),
        (
            "a hash in hex",
            proof(&format!("index 0\n{}\n\nlog\n", Hash([1; 32]))),
            Path { line: 1 },
        ),
        (
            "31 bytes",
            proof(&format!(
                "index 0\n{hash}\n{}\n\nlog\n",
                STANDARD.encode([1; 31])
            )),
            Path { line: 2 },
        ),
        (
            "bits behind the hash",
            proof(&format!("index 0\n{}\n\nlog\n", hash.replace("E=", "F="))),
            Path { line: 1 },
        ),
        (
            "a path of 65",
            proof(&format!(
                "index 0\n{}\nlog\n",
                format!("{hash}\n").repeat(65)
            )),
            Path { line: 65 },
        ),
        (
            "no empty line",
            proof(&format!("index 0\n{hash}\n")),
            Checkpoint,
        ),
        (
            "a path that does not end",
            proof(&format!("index 0\n{hash}")),
            Checkpoint,
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(TlogProof::parse(&text), Err(expected), "{name}");
    }
}

/// The golden run's proof: its seal is entry 3 of the ledger at size 4.
#[test]
fn the_golden_proof_leads_to_its_checkpoint() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/minimal");
    let bundle = fs::read(folder.join("run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar")).unwrap();
    let seal = member(&bundle, "seal.dsse.json");
    let text = str::from_utf8(member(&bundle, "seal.tlog-proof")).unwrap();
    let proof = TlogProof::parse(text).unwrap();
    assert_eq!(proof.to_string(), text);
    let note = Note::parse(&proof.checkpoint).unwrap();
    assert_eq!(note.to_string(), proof.checkpoint);
    let checkpoint = Checkpoint::parse(&note.text).unwrap();
    assert_eq!((proof.index, checkpoint.size), (3, 4));
    assert_eq!(checkpoint.to_text(), note.text);
    let leaf = leaf_hash(seal);
    let verdict = verify_inclusion(
        &leaf,
        proof.index,
        checkpoint.size,
        &proof.path,
        &checkpoint.root,
    );
    assert_eq!(verdict, Ok(()));
    for id in ["01e040df", "3f5d39a7"] {
        let key = str::from_utf8(member(&bundle, &format!("keys/{id}.vkey"))).unwrap();
        let parsed = VerifierKey::parse(key.trim_end_matches('\n')).unwrap();
        assert_eq!(format!("{:08x}", parsed.key_id()), id);
        assert_eq!(note.signatures_of(&parsed).count(), 1);
    }
}

/// A file of a ustar archive, enough for our own.
fn member<'a>(mut archive: &'a [u8], name: &str) -> &'a [u8] {
    loop {
        let (header, rest) = archive.split_at(512);
        let size = str::from_utf8(&header[124..135]).unwrap();
        let size = usize::from_str_radix(size, 8).unwrap();
        if header[..100].split(|byte| *byte == 0).next() == Some(name.as_bytes()) {
            return &rest[..size];
        }
        archive = &rest[size.next_multiple_of(512)..];
    }
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    body: String,
    expect: String,
}

#[test]
fn foreign_checkpoints() {
    let Some(folder) = shared("vectors/signed-note") else {
        return;
    };
    let file = fs::read(folder.join("checkpoints.json")).unwrap();
    let cases: Cases = serde_json::from_slice(&file).unwrap();
    assert_eq!(cases.cases.len(), 14);
    for Case { id, body, expect } in cases.cases {
        let parsed = Checkpoint::parse(&body);
        let accept = match id.as_str() {
            // Our ledgers write no extensions, and a size is a u64: both are left to the reader.
            "extension line" => false,
            "size over 2^63" => true,
            _ => expect.starts_with("parse"),
        };
        assert_eq!(parsed.is_ok(), accept, "{id}: {parsed:?}");
        if let Ok(checkpoint) = parsed {
            assert_eq!(checkpoint.to_text(), body);
        }
    }
}

#[derive(Deserialize)]
struct Cosigned {
    checkpoint: String,
    signed_message_for_cosignature: String,
}

#[test]
fn a_foreign_cosignature() {
    let Some(folder) = shared("vectors/signed-note") else {
        return;
    };
    let file = fs::read(folder.join("cosignature.json")).unwrap();
    let cosigned: Cosigned = serde_json::from_slice(&file).unwrap();
    let note = Note::parse(&cosigned.checkpoint).unwrap();
    assert_eq!(note.to_string(), cosigned.checkpoint);
    let [log, witness] = &note.signatures[..] else {
        panic!("a log and a witness sign it");
    };
    assert!(Cosignature::from_bytes(&log.bytes).is_err());
    let cosignature = Cosignature::from_bytes(&witness.bytes).unwrap();
    assert_eq!(cosignature.to_bytes().as_slice(), witness.bytes);
    assert_eq!(
        cosigned_message(cosignature.time, &note.text),
        cosigned.signed_message_for_cosignature
    );
}
