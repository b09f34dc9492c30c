//! The chain over the golden runs: read, written again, saved and taken up.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use onrecord_core::bundle::{BLOCK, padding, parse_header};
use onrecord_core::chain::{Chain, Seen};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Submitted};
use onrecord_core::statement::{Predicate, Signed};
use onrecord_core::timestamp::Timestamp;
use proptest::prelude::*;

fn vector(path: &str) -> Vec<u8> {
    std::fs::read(format!(
        "{}/../../tests/vectors/{path}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

fn member(tar: &[u8], wanted: &str) -> Vec<u8> {
    let mut at = 0;
    while let Some((name, size)) = tar
        .get(at..at + BLOCK)
        .and_then(|block| parse_header(block.try_into().unwrap()))
    {
        at += BLOCK;
        if name == wanted {
            return tar[at..at + size as usize].to_vec();
        }
        at += size as usize + padding(size);
    }
    panic!("{wanted} is not in the bundle");
}

const RUNS: [(&str, &str); 3] = [
    ("minimal", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8"),
    ("rich", "01K7Q52D6WZX9M4H7P0S3V8G1A"),
    ("interrupted", "01K7Q4ZB5CVV0A1B2C3D4E5F6G"),
];

fn draft(frame: &Frame<'_>) -> Draft {
    Draft {
        kind: frame.kind,
        key: frame.key.to_string(),
        occurred_at: frame.occurred_at,
        turn: frame.turn,
        actor: frame.actor.clone(),
        body: frame.body.as_bytes().to_vec(),
        payloads: frame.payloads().to_vec(),
        links: frame.links().to_vec(),
        trace: frame.trace.clone(),
        submitted: frame.submitted.clone(),
    }
}

#[test]
fn golden_runs_extend_and_their_seals_agree() {
    for (folder, run) in RUNS {
        let tar = vector(&format!("{folder}/run-{run}.onrecord.tar"));
        let frames = member(&tar, "frames.ndjson");
        let lines: Vec<&[u8]> = frames
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| &line[..line.len() - 1])
            .collect();
        let first = Frame::parse(lines[0]).unwrap();
        let mut chain = Chain::new(first.tenant.clone(), first.run.clone());
        let mut seen = Seen::default();
        for line in &lines {
            // Saved and taken up between any two frames, the chain goes on as if nothing had been.
            chain = Chain::from_bytes(&chain.to_bytes()).unwrap();
            let mut placed = chain.clone();
            let frame = chain.extend(line, Some(&mut seen)).unwrap();
            assert_eq!(
                placed.place(&draft(&frame), frame.at).unwrap(),
                *line,
                "{folder} {}",
                frame.seq
            );
        }
        let envelope = member(&tar, "seal.dsse.json");
        let signed = Signed::parse(&envelope).unwrap();
        let Some(Predicate::RunSeal(seal)) = signed.predicate().unwrap() else {
            panic!("not a seal")
        };
        assert_eq!(
            (seal.state.size, seal.state.head, seal.state.root),
            (chain.size(), chain.head(), chain.root())
        );
        assert_eq!(signed.digest, chain.file_digest());
        assert_eq!(signed.digest, Hash::of(&[&frames]));
        assert_eq!(seal.kinds, *chain.kinds());
        assert_eq!(
            (seal.payloads.count, chain.file_bytes()),
            (chain.payloads(), frames.len() as u64)
        );
        // Written again, the statement has the same bytes.
        let payload = Predicate::RunSeal(seal)
            .payload(
                &signed.tenant,
                &signed.keyid,
                &signed.subject,
                &signed.digest,
            )
            .unwrap();
        assert_eq!(
            onrecord_core::statement::envelope(&payload, &signed.keyid, &signed.sig),
            envelope
        );
    }
}

/// The members of a structure have names; a list of their values is another spelling of the same fact,
/// and no two readers would agree on it.
#[test]
fn a_list_stands_for_no_structure_of_a_frame() {
    let frame = |extra: &str| {
        format!(
            r#"{{"actor":{{"id":"x","type":"agent"}},"at":"2026-08-09T11:00:00.000000Z","body":{{}},"key":"k","kind":"observation","onrecord":"frame/1","prev":"{0}","run":"01K7Q4Z8V2N5R3T6Y9B1C0D4E8","seq":1,"tenant":"t_0123456789ab"{1}}}"#,
            "a".repeat(64),
            extra.replace("HASH", &"a".repeat(64))
        )
    };
    let read = |text: &str| onrecord_core::frame::Frame::parse(text.as_bytes()).is_ok();
    for (named, listed) in [
        (
            r#","trace":{"span_id":"b7ad6b7169203331","trace_id":"0af7651916cd43dd8448eb211c80319c"}"#,
            r#","trace":["b7ad6b7169203331","0af7651916cd43dd8448eb211c80319c"]"#,
        ),
        (
            r#","links":[{"hash":"HASH","rel":"uses","run":"01K7Q4Z8V2N5R3T6Y9B1C0D4E8"}]"#,
            r#","links":[["HASH","uses","01K7Q4Z8V2N5R3T6Y9B1C0D4E8"]]"#,
        ),
    ] {
        assert!(read(&frame(named)), "{named}");
        assert!(!read(&frame(listed)), "{listed}");
    }
}

/// What a database of before the present layout has of the rich run after 17 frames.
const OLD: &[u8] = include_bytes!("saved/rich-17.json");

#[test]
fn a_chain_that_was_saved_as_json_goes_on() {
    let tar = vector("rich/run-01K7Q52D6WZX9M4H7P0S3V8G1A.onrecord.tar");
    let frames = member(&tar, "frames.ndjson");
    let lines: Vec<&[u8]> = frames
        .trim_ascii_end()
        .split(|byte| *byte == b'\n')
        .collect();
    let mut old = Chain::from_bytes(OLD).unwrap();
    let mut new = Chain::new(old.tenant().clone(), old.run().clone());
    for line in &lines[..17] {
        new.extend(line, None).unwrap();
    }
    // But for what agents signed, which no store took then: it stands behind the rest, under another version.
    assert_eq!(new.to_bytes()[0], 2);
    assert!(new.to_bytes()[1..].starts_with(&old.to_bytes()[1..]));
    for line in &lines[17..] {
        old.extend(line, None).unwrap();
    }
    assert_eq!(old.file_digest(), Hash::of(&[&frames]));
    for end in 0..OLD.trim_ascii_end().len() {
        assert!(Chain::from_bytes(&OLD[..end]).is_none(), "{end}");
    }
}

/// What stands next in a run, by a random choice.
fn next(chain: &Chain, choice: u8, signed: bool) -> Draft {
    let body = match chain.size() {
        0 => format!(
            r#"{{"ledger":"evidence.example/t/9d2v6c1p8h4z","nonce":"{}","run_no":{},"suite":"onrecord-v1"}}"#,
            "0".repeat(64),
            u64::from(choice) + 1
        ),
        _ => format!(
            r#"{{"status":"completed","text":"{}"}}"#,
            "x".repeat(choice.into())
        ),
    };
    let (kind, body, turn) = match (chain.size(), choice % 8, chain.open_turn()) {
        (0, ..) => (Kind::Session, body, None),
        (_, 0, None) => (Kind::Turn, body, Some(chain.turns() + 1)),
        (_, 0, open) => {
            let end = chain.turn_end().unwrap();
            (Kind::TurnEnd, serde_json::to_string(&end).unwrap(), open)
        }
        (_, 1, _) => (Kind::Outcome, body, None),
        (_, other, open) => (Kind::ALL[usize::from(other) + 4], body, open),
    };
    // Some agents' keys, which count by themselves.
    let keyid = Hash([choice / 64; 32]);
    let submitted = (signed && kind != Kind::Session).then(|| Submitted {
        keyid,
        n: chain.counts().last(&keyid) + 1,
        sig: format!("{}==", "A".repeat(86)),
    });
    Draft {
        kind,
        key: chain.size().to_string(),
        occurred_at: None,
        turn,
        actor: Actor {
            id: "coder-1".into(),
            keyid: submitted.as_ref().map(|submitted| submitted.keyid),
            kind: ActorType::Agent,
        },
        body: body.into_bytes(),
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        submitted,
    }
}

fn empty() -> Chain {
    let (tenant, run) = ("t_7f3k9q2m4x8w".parse(), RUNS[0].1.parse());
    Chain::new(tenant.unwrap(), run.unwrap())
}

fn place(chain: &mut Chain, choice: u8) {
    place_signed(chain, choice, false);
}

fn place_signed(chain: &mut Chain, choice: u8, signed: bool) {
    let micros = 1_800_000_000_000_000 + i64::from(chain.last_at().is_some());
    let at = Timestamp::from_micros(micros).unwrap();
    chain.place(&next(chain, choice, signed), at).unwrap();
}

/// All that a chain says of itself.
fn said(chain: &Chain) -> String {
    let (kinds, turn) = (
        chain.kinds(),
        (chain.turns(), chain.open_turn(), chain.turn_end()),
    );
    let of_file = (chain.file_bytes(), chain.file_digest());
    let hashes = (chain.size(), chain.head(), chain.root());
    let of_run = (chain.tenant(), chain.run(), chain.opened(), chain.last_at());
    let rest = (chain.ended(), chain.payloads(), chain.outcome());
    let counts = chain.counts();
    format!("{kinds:?} {turn:?} {of_file:?} {hashes:?} {of_run:?} {rest:?} {counts:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn saved_anywhere_a_run_goes_on_as_if_nothing_had_been(
        choices in proptest::collection::vec(any::<u8>(), 0..60),
        at in any::<prop::sample::Index>(),
        more in any::<u8>(),
    ) {
        let at = at.index(choices.len() + 1);
        let mut chain = empty();
        for choice in &choices[..at] {
            place_signed(&mut chain, *choice, choice.is_multiple_of(5));
        }
        let bytes = chain.to_bytes();
        for end in 0..bytes.len() {
            prop_assert!(Chain::from_bytes(&bytes[..end]).is_none());
        }
        prop_assert!(Chain::from_bytes(&[&bytes[..], &[more]].concat()).is_none());
        let mut again = Chain::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&again.to_bytes(), &bytes);
        prop_assert_eq!(said(&again), said(&chain));
        for choice in &choices[at..] {
            place_signed(&mut chain, *choice, choice.is_multiple_of(3));
            place_signed(&mut again, *choice, choice.is_multiple_of(3));
        }
        prop_assert_eq!(said(&again), said(&chain));
    }
}

#[test]
fn the_end_and_the_outcome_are_saved() {
    for (folder, run) in RUNS {
        let tar = vector(&format!("{folder}/run-{run}.onrecord.tar"));
        let frames = member(&tar, "frames.ndjson");
        let lines: Vec<&[u8]> = frames
            .trim_ascii_end()
            .split(|byte| *byte == b'\n')
            .collect();
        let first = Frame::parse(lines[0]).unwrap();
        let mut chain = Chain::new(first.tenant.clone(), first.run.clone());
        for line in lines {
            chain.extend(line, None).unwrap();
            assert_eq!(
                said(&Chain::from_bytes(&chain.to_bytes()).unwrap()),
                said(&chain)
            );
        }
    }
}

#[test]
fn a_chain_is_saved_in_few_bytes() {
    let mut chain = empty();
    let mut lengths = Vec::new();
    for size in 0..1_024u32 {
        place(&mut chain, if size % 20 == 1 { 0 } else { size as u8 | 2 });
        lengths.push(chain.to_bytes().len());
    }
    // The most is where both trees have a node of each size.
    assert!(lengths.iter().all(|length| *length < 640), "{lengths:?}");
    let mean = lengths[512..].iter().sum::<usize>() / 512;
    assert!(mean < 440, "{mean}");
}
