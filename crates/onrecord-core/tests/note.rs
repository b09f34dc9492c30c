//! Notes and verifier keys: exact texts in, the same texts out, and all else refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use onrecord_core::note::{
    BadNote, BadVerifierKey, Checkpoint, Note, SIGNATURES, SignatureType, TlogProof, VerifierKey,
};
use proptest::prelude::*;

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
