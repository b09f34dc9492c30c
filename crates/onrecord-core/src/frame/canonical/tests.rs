//! What reading by names gives is what reading in order gives.

use super::*;
use crate::digest::Hash;
use crate::frame::{ActorType, BadFrame, Draft, Kind, Rel};
use crate::json::{Limits, check_canonical, to_canonical};
use crate::timestamp::Timestamp;
use alloc::format;
use proptest::prelude::*;
use proptest::{collection, option, sample};
use serde_json::{Value, json};

const RUN: &str = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8";
const TEXTS: [&str; 7] = [
    "shell",
    "",
    r#"say "so" \ and"#,
    "tab\tline\n\u{1}",
    "größe 😀",
    "/a~1b",
    "{\"actor\":[}]",
];

fn text() -> impl Strategy<Value = String> {
    sample::select(&TEXTS[..]).prop_map(String::from)
}

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash)
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let bodies = [
        json!({}),
        json!({"a": {"b": [1, {"c": "}]\\\""}], "d": null}, "e": 0.5}),
        json!({"text": TEXTS, "{": "}"}),
    ];
    sample::select(bodies.map(|one| to_canonical(&one).unwrap()).to_vec())
}

fn actor() -> impl Strategy<Value = Actor> {
    let kind = sample::select(ActorType::ALL);
    (text(), option::of(hash()), kind).prop_map(|(id, keyid, kind)| Actor { id, keyid, kind })
}

fn redaction() -> impl Strategy<Value = Redaction> {
    let place = (option::of(text()), option::of(any::<(u32, u32)>()));
    (option::of(hash()), text(), place).prop_map(|(fingerprint, kind, (pointer, range))| {
        Redaction {
            fingerprint,
            rule: kind.clone(),
            rules: kind.clone(),
            kind,
            pointer,
            range: range.map(|(start, end)| (start.into(), end.into())),
        }
    })
}

fn payload() -> impl Strategy<Value = PayloadRef> {
    let redactions = option::of(collection::vec(redaction(), 0..3));
    let rest = (hash(), option::of(any::<bool>()), any::<u32>(), any::<u8>());
    (text(), text(), redactions, rest).prop_map(|(media, name, redactions, rest)| {
        let (commit, kept, size, tier) = rest;
        PayloadRef {
            commit,
            kept,
            media,
            name,
            redactions,
            size: size.into(),
            tier,
        }
    })
}

fn link() -> impl Strategy<Value = Link> {
    let rel = sample::select(Rel::ALL);
    let rest = (option::of(hash()), option::of(any::<u32>()), any::<bool>());
    (rel, rest).prop_map(|(rel, (hash, seq, run))| Link {
        hash,
        rel,
        run: run.then(|| RUN.parse().unwrap()),
        seq: seq.map(u64::from),
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let trace = (text(), text()).prop_map(|(span_id, trace_id)| Trace { span_id, trace_id });
    let time = (0..4_000_000_000_000_000i64).prop_map(|at| Timestamp::from_micros(at).unwrap());
    let submitted = (hash(), any::<u32>(), text()).prop_map(|(keyid, n, sig)| Submitted {
        keyid,
        n: n.into(),
        sig,
    });
    let signed = (option::of(trace), option::of(submitted));
    let rest = (option::of(time), option::of(0..9u64), signed);
    let many = (
        collection::vec(payload(), 0..3),
        collection::vec(link(), 0..3),
    );
    let kind = sample::select(Kind::ALL);
    (kind, text(), actor(), body(), many, rest).prop_map(
        |(kind, key, actor, body, (payloads, links), (occurred_at, turn, (trace, submitted)))| {
            Draft {
                kind,
                key,
                occurred_at,
                turn,
                actor,
                body,
                payloads,
                links,
                trace,
                submitted,
            }
        },
    )
}

fn write(draft: &Draft) -> Vec<u8> {
    let (tenant, run) = ("t_7f3k9q2m4x8w".parse(), RUN.parse());
    let at = "2026-08-09T11:00:00.000000Z".parse().unwrap();
    draft.write(&tenant.unwrap(), &run.unwrap(), 7, &Hash([171; 32]), at)
}

/// Something that a value can become.
#[derive(Clone, Debug)]
enum Change {
    Removed,
    Beside(&'static str, Value),
    Other(Value),
}

fn change() -> impl Strategy<Value = Change> {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(300),
        json!("x"),
        json!("observation"),
        json!([]),
        json!([1, 2]),
        json!([1, 2, 3]),
        json!({}),
        json!({"seq": 1}),
    ];
    let names = ["", "aa", "zz", "kept", "keyid", "turn", "range"];
    let value = sample::select(values.to_vec());
    prop_oneof![
        Just(Change::Removed),
        (sample::select(names.to_vec()), value.clone())
            .prop_map(|(name, value)| Change::Beside(name, value)),
        value.prop_map(Change::Other),
    ]
}

/// Changes what stands at the end of a path of picks.
fn apply(value: &mut Value, picks: &[sample::Index], change: &Change) {
    let Some((pick, deeper)) = picks.split_first() else {
        return;
    };
    let (next, last) = match value {
        Value::Object(members) if !members.is_empty() => {
            let name = members.keys().nth(pick.index(members.len())).cloned();
            let name = name.unwrap();
            if deeper.is_empty() {
                match change {
                    Change::Removed => drop(members.remove(&name)),
                    Change::Beside(name, value) => {
                        members.insert((*name).into(), value.clone());
                    }
                    Change::Other(value) => drop(members.insert(name, value.clone())),
                }
                return;
            }
            (members.get_mut(&name), false)
        }
        Value::Array(elements) if !elements.is_empty() => {
            let at = pick.index(elements.len());
            (elements.get_mut(at), deeper.is_empty())
        }
        _ => (None, false),
    };
    match (next, change) {
        (Some(next), Change::Other(value)) if last => *next = value.clone(),
        (Some(next), _) => apply(next, deeper, change),
        (None, _) => {}
    }
}

fn in_order(bytes: &[u8]) -> Option<Frame<'_>> {
    frame(core::str::from_utf8(bytes).unwrap())
}

fn same(bytes: &[u8]) {
    let by_order = in_order(bytes).map(|frame| format!("{frame:?}"));
    // What the body is, reading by names leaves to the shape.
    let by_names = Frame::by_names(bytes)
        .ok()
        .filter(|frame| frame.body.starts_with('{'))
        .map(|frame| format!("{frame:?}"));
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(by_order, by_names, "{text}");
    let checked = Frame::by_names(bytes).and_then(Frame::checked);
    let parsed = Frame::parse(bytes);
    assert_eq!(format!("{parsed:?}"), format!("{checked:?}"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_draft_is_written_as_serde_and_the_canonicalizer_would(draft in draft()) {
        let bytes = write(&draft);
        prop_assert_eq!(check_canonical(&bytes, Limits::FRAME), Ok(()));
        let members: Value = serde_json::from_slice(&bytes).unwrap();
        let mut expected = json!({
            "actor": draft.actor,
            "at": "2026-08-09T11:00:00.000000Z",
            "body": serde_json::from_slice::<Value>(&draft.body).unwrap(),
            "key": draft.key,
            "kind": draft.kind,
            "onrecord": "frame/1",
            "prev": "ab".repeat(32),
            "run": RUN,
            "seq": 7,
            "tenant": "t_7f3k9q2m4x8w",
        });
        let mut also = |name: &str, value: Value, there: bool| {
            if there {
                expected[name] = value;
            }
        };
        also("links", json!(draft.links), !draft.links.is_empty());
        also("occurred_at", json!(draft.occurred_at), draft.occurred_at.is_some());
        also("payloads", json!(draft.payloads), !draft.payloads.is_empty());
        also("submitted", json!(draft.submitted), draft.submitted.is_some());
        also("trace", json!(draft.trace), draft.trace.is_some());
        also("turn", json!(draft.turn), draft.turn.is_some());
        prop_assert_eq!(members, expected);
    }

    #[test]
    fn reading_in_order_gives_what_reading_by_names_gives(
        draft in draft(),
        submitted in option::of((hash(), any::<u32>(), text())),
        changes in collection::vec((collection::vec(any::<sample::Index>(), 1..5), change()), 0..3),
    ) {
        let mut value: Value = serde_json::from_slice(&write(&draft)).unwrap();
        if let Some((keyid, n, sig)) = submitted {
            value["submitted"] = json!({"keyid": keyid, "n": n, "sig": sig});
        }
        for (picks, change) in &changes {
            apply(&mut value, picks, change);
        }
        let bytes = to_canonical(&value).unwrap();
        prop_assert!(!changes.is_empty() || in_order(&bytes).is_some());
        same(&bytes);
    }

    #[test]
    fn what_is_read_in_order_is_canonical(
        draft in draft(),
        splices in collection::vec((any::<sample::Index>(), 0..3usize, sample::select(&SPLICES[..])), 1..3),
    ) {
        let mut text = String::from_utf8(write(&draft)).unwrap();
        for (at, removed, inserted) in splices {
            let characters: Vec<char> = text.chars().collect();
            let (before, rest) = characters.split_at(at.index(characters.len()));
            let after = rest.iter().skip(removed);
            text = before.iter().copied().chain(inserted.chars()).chain(after.copied()).collect();
        }
        if let Some(read) = frame(&text) {
            prop_assert_eq!(check_canonical(text.as_bytes(), Limits::FRAME), Ok(()), "{}", text);
            let by_names = Frame::by_names(text.as_bytes());
            prop_assert_eq!(format!("{:?}", Ok::<_, BadFrame>(read)), format!("{by_names:?}"));
        }
    }
}

/// What a text is spliced with.
const SPLICES: [&str; 20] = [
    "",
    "0",
    "00",
    "1",
    "9007199254740992",
    "-",
    ".0",
    "e1",
    " ",
    ",",
    "{",
    "}",
    "\"",
    "\\",
    "\\u0041",
    "\\/",
    "\u{1}",
    "\u{fdd0}",
    "ä",
    "[",
];

#[test]
fn what_is_not_canonical_is_not_read_in_order() {
    let frame_of = |change: &dyn Fn(&str) -> String| {
        let text = r#"{"actor":{"id":"a\"","type":"agent"},"at":"2026-08-09T11:00:00.000000Z","body":{"a":["}"]},"key":"k","kind":"turn","links":[{"rel":"caused","seq":10}],"onrecord":"frame/1","prev":"PREV","run":"01K7Q4Z8V2N5R3T6Y9B1C0D4E8","seq":20,"tenant":"t_7f3k9q2m4x8w","turn":1}"#;
        change(&text.replace("PREV", &"ab".repeat(32)))
    };
    let read = |text: &str| frame(text).is_some();
    assert!(read(&frame_of(&|text| text.into())));
    let depth = crate::limits::DEPTH;
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let deep = |levels| {
        let value = nested(levels);
        frame_of(&|text| text.replace(r#"["}"]"#, &value))
    };
    assert!(read(&deep(depth - 2)) && !read(&deep(depth - 1)));
    for (from, to) in [
        (r#","at""#, r#"{"at""#),
        (r#"{"actor""#, r#","actor""#),
        (r#"{"id""#, r#","id""#),
        (r#"{"rel""#, r#","rel""#),
        (r#","seq":10"#, r#"{"seq":10"#),
        (r#"\""#, r#"\u0022"#),
        (r#""a\""#, "\"a\u{fdd0}"),
        (r#""key":"k""#, r#""key":"\u006b""#),
        (r#""key":"k""#, "\"key\":\"\t\""),
        ("10", "010"),
        ("20", "020"),
        ("20", "20.0"),
        ("20", "9007199254740992"),
        (r#"["}"]"#, r#"[ "}"]"#),
        (r#"["}"]"#, r#"["}"],"a":1"#),
        (r#"["}"]"#, r#"1.0"#),
        (r#"{"a":["}"]}"#, r#"[]"#),
        (r#""turn":1}"#, r#""turn":1} "#),
        (r#""turn":1}"#, r#""turn":1"#),
    ] {
        let text = frame_of(&|text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        assert!(!read(&text), "{text}");
    }
}

#[test]
fn what_is_no_frame_gives_nothing() {
    let draft = r#"{"actor":{"id":"a","type":"agent"},"at":"2026-08-09T11:00:00.000000Z","body":{"a":["}"]}"#;
    for end in 0..=draft.len() {
        assert!(frame(&draft[..end]).is_none(), "{end}");
    }
    for text in [
        r#"{"actor":[],"body":{}}"#,
        r#"{"actor":{},"body":{}}"#,
        r#"{"body":{}}"#,
        r#"{"body":1}"#,
        r#"{"a":{"body":{}}}"#,
        "{}",
    ] {
        same(text.as_bytes());
    }
}
