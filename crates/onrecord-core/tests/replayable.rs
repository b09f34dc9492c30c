//! What of a run could be replayed: all, some, nothing; and what is lacking.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot build its frames fails"
)]

use onrecord_core::chain::Chain;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, PayloadRef, Rel};
use onrecord_core::payload::commitment;
use onrecord_core::replayable::{Lack, Possible, Replayable};
use onrecord_core::timestamp::Timestamp;

const SESSION: &str = r#"{"agent":"a","ledger":"a/t/b","nonce":"0000000000000000000000000000000000000000000000000000000000000000","release":"r","run_no":1,"suite":"onrecord-v1"}"#;

/// Frames of kinds, each with a payload where it has a name for one, and what it answers.
type Said<'a> = (Kind, &'a str, Option<&'a str>, Option<u64>);

fn whole() -> Vec<Said<'static>> {
    vec![
        (Kind::Session, SESSION, Some("task"), None),
        (Kind::ToolCall, "{}", Some("arguments"), None),
        (Kind::ToolResult, "{}", Some("result"), Some(1)),
        (Kind::ModelCall, "{}", Some("messages"), None),
        (Kind::ModelResult, "{}", Some("text"), Some(3)),
    ]
}

/// What is said of these frames, of which the payload of one name is not there.
fn read(frames: &[Said<'_>], gone: &str) -> (Possible, Vec<Lack>) {
    let run = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8";
    let mut chain = Chain::new("t_7f3k9q2m4x8w".parse().unwrap(), run.parse().unwrap());
    let mut replayable = Replayable::new();
    for (kind, body, payload, answers) in frames {
        let place = chain.size();
        let draft = Draft {
            kind: *kind,
            key: format!("{place}"),
            occurred_at: None,
            turn: None,
            actor: Actor {
                id: "somebody".into(),
                keyid: None,
                kind: ActorType::Agent,
            },
            body: (*body).into(),
            payloads: Vec::from_iter(payload.map(|name| PayloadRef {
                commit: commitment(&[place as u8; 32], b"said"),
                kept: None,
                media: "text/plain".into(),
                name: name.into(),
                redactions: None,
                size: 256,
                tier: 1,
            })),
            links: Vec::from_iter(answers.map(|seq| Link {
                hash: None,
                rel: Rel::Answers,
                run: None,
                seq: Some(seq),
            })),
            trace: None,
            submitted: None,
        };
        let at = Timestamp::from_micros(1_000_000).unwrap();
        let bytes = chain.place(&draft, at).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        replayable.read(&frame, |payload| payload.name != gone);
    }
    let (possible, lacks) = replayable.finish();
    (possible, lacks.into_iter().collect())
}

#[test]
fn what_is_lacking_for_a_full_replay_is_named() {
    assert_eq!(read(&whole(), ""), (Possible::Full, vec![]));
    for (gone, possible) in [
        ("task", Possible::Partial),
        ("arguments", Possible::Partial),
        ("result", Possible::Partial),
        ("text", Possible::Partial),
    ] {
        let found = read(&whole(), gone);
        assert_eq!(found, (possible, vec![Lack::Payload]), "{gone}");
    }
    let mut anonymous = whole();
    let body = SESSION
        .replace(r#""agent":"a","#, "")
        .replace(r#","release":"r""#, "");
    anonymous[0] = (Kind::Session, &body, None, None);
    let lacks = vec![Lack::Agent, Lack::Release, Lack::Task];
    assert_eq!(read(&anonymous, ""), (Possible::Partial, lacks));
}

#[test]
fn a_call_is_answered_by_what_came_back() {
    let mut unanswered = whole();
    unanswered[4].3 = Some(1);
    assert_eq!(
        read(&unanswered, ""),
        (Possible::Partial, vec![Lack::Answer])
    );
    let mut empty = whole();
    empty[2].2 = None;
    assert_eq!(read(&empty, ""), (Possible::Partial, vec![Lack::Answer]));
    // Nothing to give the agent.
    let begun = &whole()[..2];
    assert_eq!(read(begun, ""), (Possible::None, vec![Lack::Answer]));
    assert_eq!(read(&whole()[..1], ""), (Possible::None, vec![]));
}

#[test]
fn without_its_frames_nothing_is_whole() {
    let (possible, lacks) = Replayable::new().finish();
    assert_eq!(possible, Possible::None);
    assert_eq!(
        lacks.into_iter().collect::<Vec<_>>(),
        [Lack::Frame, Lack::Agent, Lack::Release, Lack::Task]
    );
    let mut replayable = Replayable::new();
    replayable.without_frame();
    assert!(replayable.finish().1.contains(&Lack::Frame));
}
