//! Notes, checkpoints, proofs and tiles: exact texts in, the same texts out, and all else refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::verify_inclusion;
use onrecord_core::note::{
    BadCheckpoint, BadNote, BadTlogProof, BadVerifierKey, Checkpoint, Cosignature, Note,
    SIGNATURES, SignatureType, TlogProof, VerifierKey, cosigned_message,
};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const LINE: &str = "\u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
const KEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";

#[test]
fn notes_come_back_as_they_were() {
    for (text, signatures) in [
        ("This is an example message.\n", 1),
        ("\n", 1),
        ("two\n\nparts\n", 2),
        ("an empty line at the end\n\n", 1),
        ("\u{2014} a text like a signature AAAAAAA=\n", 1),
        ("ünïcode \u{7f} \u{85}\n", SIGNATURES),
    ] {
        let input = format!("{text}\n{}", LINE.repeat(signatures));
        let note = Note::parse(&input).unwrap();
        assert_eq!(
            (note.text.as_str(), note.signatures.len()),
            (text, signatures)
        );
        assert_eq!(note.to_string(), input);
    }
    let key = VerifierKey::parse(KEY).unwrap();
    let note = Note::parse(&format!("text\n\n{LINE}")).unwrap();
    let found: Vec<_> = note.signatures_of(&key).collect();
    assert_eq!(found, [&note.signatures[0].bytes]);
    assert_eq!(key.signature(found[0]), note.signatures[0]);
}

#[test]
fn signatures_are_found_by_name_and_id_together() {
    let key = VerifierKey::parse(KEY).unwrap();
    let named = |name: &str, key_id| {
        let mut signature = key.signature([0; 64]);
        (signature.name, signature.key_id) = (name.into(), key_id);
        signature
    };
    let note = Note {
        text: "text\n".into(),
        signatures: vec![
            named("example.com/foo", 1),
            named("example.com/fooo", key.key_id()),
        ],
    };
    assert_eq!(note.signatures_of(&key).count(), 0);
}

#[test]
fn other_notes_are_refused() {
    use BadNote::{Control, FinalNewline, Signature, TooMany, Unsigned};
    let line = |text: &str| format!("text\n\n\u{2014} {text}\n");
    let cases = [
        ("empty", String::new(), Unsigned),
        ("text only", "text\n".into(), Unsigned),
        ("nothing after the empty line", "text\n\n".into(), Unsigned),
        ("no empty line", format!("text\n{LINE}"), Unsigned),
        ("no text", format!("\n{LINE}"), Unsigned),
        (
            "no final newline",
            format!("text\n\n{}", LINE.trim_end()),
            FinalNewline,
        ),
        ("a tab", format!("te\txt\n\n{LINE}"), Control { offset: 2 }),
        ("a nul", format!("\0\n\n{LINE}"), Control { offset: 0 }),
        (
            "carriage returns",
            format!("text\r\n\r\n{LINE}"),
            Control { offset: 4 },
        ),
        (
            "too many",
            format!("text\n\n{}", LINE.repeat(SIGNATURES + 1)),
            TooMany,
        ),
        (
            "a line that is none",
            format!("text\n\n{LINE}more\n"),
            Signature { line: 2 },
        ),
        (
            "an empty line at the end",
            format!("text\n\n{LINE}\n"),
            Unsigned,
        ),
        (
            "a hyphen",
            "text\n\n- name AAAAAAA=\n".into(),
            Signature { line: 1 },
        ),
        (
            "no space after the dash",
            "text\n\n\u{2014}name AAAAAAA=\n".into(),
            Signature { line: 1 },
        ),
        ("no name", line(" AAAAAAA="), Signature { line: 1 }),
        ("no signature", line("name"), Signature { line: 1 }),
        ("an empty signature", line("name "), Signature { line: 1 }),
        (
            "a key id only",
            line("name AAAAAA=="),
            Signature { line: 1 },
        ),
        (
            "a space at the end",
            line("name AAAAAAA= "),
            Signature { line: 1 },
        ),
        ("two spaces", line("name  AAAAAAA="), Signature { line: 1 }),
        (
            "a name with a space",
            line("a name AAAAAAA="),
            Signature { line: 1 },
        ),
        (
            "a name with a plus",
            line("na+me AAAAAAA="),
            Signature { line: 1 },
        ),
        (
            "a name with a no-break space",
            line("na\u{a0}me AAAAAAA="),
            Signature { line: 1 },
        ),
        (
            "a name with a line separator",
            line("na\u{2028}me AAAAAAA="),
            Signature { line: 1 },
        ),
        (
            "base64 without padding",
            line("name AAAAAAA"),
            Signature { line: 1 },
        ),
        (
            "base64 with more padding",
            line("name AAAAAAA=="),
            Signature { line: 1 },
        ),
        (
            "base64 with bits behind the end",
            line("name AAAAAAB="),
            Signature { line: 1 },
        ),
        (
            "base64 for addresses",
            line("name AAAAA-_="),
            Signature { line: 1 },
        ),
    ];
    for (name, input, expected) in cases {
        assert_eq!(Note::parse(&input), Err(expected), "{name}");
    }
}

#[test]
fn verifier_keys_come_back_and_others_are_refused() {
    let key = VerifierKey::parse(KEY).unwrap();
    assert_eq!(key.to_string(), KEY);
    assert_eq!((key.name(), key.key_id()), ("example.com/foo", 0x530d_903a));
    assert_eq!(key.signature_type(), SignatureType::Text);
    assert_eq!(
        VerifierKey::new(key.name(), SignatureType::Text, *key.public_key()),
        Ok(key.clone())
    );
    // The type is part of the id, so that a key that serves two types has two ids.
    let other =
        VerifierKey::new(key.name(), SignatureType::Cosignature, *key.public_key()).unwrap();
    assert_ne!(other.key_id(), key.key_id());
    assert_eq!(VerifierKey::parse(&other.to_string()), Ok(other));

    use BadVerifierKey::{Id, Key, Name, OtherId, Shape, Type};
    let base64 = &KEY[KEY.len() - 44..];
    let wrong = OtherId {
        expected: 0x530d_903a,
        found: 0x530d_903b,
    };
    let cases = [
        ("empty", String::new(), Shape),
        ("a name", "example.com/foo".into(), Shape),
        ("no key", "example.com/foo+530d903a".into(), Shape),
        (
            "another id",
            format!("example.com/foo+530d903b+{base64}"),
            wrong,
        ),
        (
            "an id in upper case",
            format!("example.com/foo+530D903A+{base64}"),
            Id,
        ),
        (
            "a short id",
            format!("example.com/foo+530d903+{base64}"),
            Id,
        ),
        ("an empty name", format!("+530d903a+{base64}"), Name),
        (
            "a name with a space",
            format!("example.com /foo+530d903a+{base64}"),
            Name,
        ),
        (
            "a name with a newline",
            format!("example.com\n/foo+530d903a+{base64}"),
            Name,
        ),
        ("an empty key", "example.com/foo+530d903a+".into(), Key),
        (
            "a short key",
            format!("example.com/foo+530d903a+{}", &base64[..40]),
            Key,
        ),
        ("a newline at the end", format!("{KEY}\n"), Key),
        ("a plus more", format!("{KEY}+"), Key),
        (
            "type 5",
            format!("example.com/foo+530d903a+B{}", &base64[1..]),
            Type { found: 5 },
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(VerifierKey::parse(&text), Err(expected), "{name}");
    }
    for name in ["", "a b", "a+b", "a\u{3000}b", "a\tb", "a\u{1}b"] {
        assert_eq!(
            VerifierKey::new(name, SignatureType::Text, [0; 32]),
            Err(Name)
        );
    }
}

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

proptest! {
    #[test]
    fn what_a_parser_takes_it_gives_back(input in "(c2sp.org/tlog-proof@v1\n)?(index [0-9]{1,3}\n)?[ -~\n\u{2014}=A]{0,80}") {
        if let Ok(note) = Note::parse(&input) {
            prop_assert_eq!(note.to_string(), &input[..]);
        }
        if let Ok(proof) = TlogProof::parse(&input) {
            prop_assert_eq!(proof.to_string(), &input[..]);
        }
        if let Ok(checkpoint) = Checkpoint::parse(&input) {
            prop_assert_eq!(checkpoint.to_text(), &input[..]);
        }
        if let Ok(key) = VerifierKey::parse(&input) {
            prop_assert_eq!(key.to_string(), &input[..]);
        }
    }

    #[test]
    fn what_is_written_is_read(
        text in "([ -~é]{0,9}\n){1,4}",
        names in proptest::collection::vec("[!-*,-~é]{1,9}", 1..5),
        bytes in proptest::collection::vec(any::<u8>(), 1..99),
        key_id in any::<u32>(),
    ) {
        let key = VerifierKey::new(&names[0], SignatureType::Cosignature, [3; 32]).unwrap();
        let mut note = Note { text, signatures: vec![] };
        for name in names {
            let mut signature = key.signature(&bytes[..]);
            (signature.name, signature.key_id) = (name, key_id);
            note.signatures.push(signature);
        }
        prop_assert_eq!(Note::parse(&note.to_string()), Ok(note));
        prop_assert_eq!(VerifierKey::parse(&key.to_string()), Ok(key));
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
