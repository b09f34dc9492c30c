//! The chain over the golden runs: read, written again, saved and taken up.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use onrecord_core::bundle::{BLOCK, padding, parse_header};
use onrecord_core::chain::{Chain, Seen};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Draft, Frame};
use onrecord_core::statement::{Predicate, Signed};

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
            if frame.submitted.is_none() {
                assert_eq!(
                    placed.place(&draft(&frame), frame.at).unwrap(),
                    *line,
                    "{folder} {}",
                    frame.seq
                );
            }
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
