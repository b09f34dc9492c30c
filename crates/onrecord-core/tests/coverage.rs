//! Which facts of a record of use a run has: each recorded, absent, and not asked for.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot build its frames fails"
)]

use onrecord_core::chain::Chain;
use onrecord_core::coverage::{Coverage, Known, Required, State};
use onrecord_core::facts::Facts;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, PayloadRef, Rel};
use onrecord_core::payload::commitment;
use std::collections::BTreeSet;

struct Run {
    chain: Chain,
    coverage: Coverage,
    /// What a seal would know.
    facts: Facts,
}

impl Run {
    fn new(session: &str) -> Self {
        let chain = Chain::new(
            "t_7f3k9q2m4x8w".parse().unwrap(),
            "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap(),
        );
        let mut run = Self {
            chain,
            coverage: Coverage::new(),
            facts: Facts::default(),
        };
        let nonce = "0".repeat(64);
        let body = format!(
            r#"{{{session}"ledger":"a/t/b","nonce":"{nonce}","run_no":1,"suite":"onrecord-v1"}}"#
        );
        let canonical =
            onrecord_core::json::canonicalize(body.as_bytes(), onrecord_core::json::Limits::FRAME);
        let body = String::from_utf8(canonical.unwrap()).unwrap();
        run.add((Kind::Session, ActorType::Agent), &body, None, false);
        run
    }

    fn add(
        &mut self,
        (kind, actor): (Kind, ActorType),
        body: &str,
        link: Option<(Rel, u64)>,
        payload: bool,
    ) {
        let place = self.chain.size();
        let draft = Draft {
            kind,
            key: format!("{place}"),
            occurred_at: None,
            turn: (kind == Kind::Turn).then(|| self.chain.turns() + 1),
            actor: Actor {
                id: "somebody".into(),
                keyid: None,
                kind: actor,
            },
            body: body.into(),
            payloads: Vec::from_iter(payload.then(|| PayloadRef {
                commit: commitment(&[place as u8; 32], b"said"),
                kept: None,
                media: "text/plain".into(),
                name: "p".into(),
                redactions: None,
                size: 256,
                tier: 1,
            })),
            links: Vec::from_iter(link.map(|(rel, seq)| Link {
                hash: None,
                rel,
                run: None,
                seq: Some(seq),
            })),
            trace: None,
            submitted: None,
        };
        let at = onrecord_core::timestamp::Timestamp::from_micros(1_000_000).unwrap();
        let bytes = self.chain.place(&draft, at).unwrap();
        self.coverage.read(&Frame::parse(&bytes).unwrap());
        let facts = Facts::of(kind, actor, body.as_bytes(), &draft.payloads);
        self.facts.of_run.extend(facts.of_run);
        // What the seal finds is what the full reading finds, after every frame.
        let mut known = Known::of(self.chain.kinds());
        for fact in &self.facts.of_run {
            known.add(fact.field, &fact.value);
        }
        let absent = self.coverage.finish().into_iter();
        let absent = absent.filter(|(_, state)| *state == State::Absent);
        let absent: BTreeSet<Required> = absent.map(|(fact, _)| fact).collect();
        let at_seal: BTreeSet<Required> = Required::AT_SEAL.into_iter().collect();
        assert_eq!(
            known.missing().collect::<BTreeSet<_>>(),
            absent.intersection(&at_seal).copied().collect()
        );
    }

    fn agent(&mut self, kind: Kind, body: &str) {
        self.add((kind, ActorType::Agent), body, None, false);
    }

    fn state(&self, fact: Required) -> State {
        let all = self.coverage.finish();
        all.iter().find(|(one, _)| *one == fact).unwrap().1
    }
}

const fn at(seq: u64) -> State {
    State::Recorded { seq }
}

#[test]
fn a_run_of_nothing_lacks_what_every_run_should_have() {
    let run = Run::new("");
    for (fact, state) in run.coverage.finish() {
        let expected = match fact {
            Required::UseStarted => at(0),
            Required::Model
            | Required::ModelRevision
            | Required::ReferenceData
            | Required::ToolResults
            | Required::SideEffects
            | Required::OutcomeVerified
            | Required::Errors => State::NotApplicable,
            _ => State::Absent,
        };
        assert_eq!(state, expected, "{}", fact.as_str());
    }
}

#[test]
fn each_fact_is_recorded_by_the_first_frame_that_says_it() {
    let mut run = Run::new(
        r#""agent":"coder","mandate":"m","pins":{"image":"i"},"profile":"coding","release":"r","retention":{"policy":"p","version":1},"#,
    );
    let agent = ActorType::Agent;
    run.add((Kind::Turn, agent), r#"{"model":"m"}"#, None, true);
    run.agent(Kind::ModelCall, r#"{"model":"m","revision":"r1"}"#);
    run.agent(Kind::Retrieval, r#"{"index":"i"}"#);
    run.agent(Kind::ToolCall, r#"{"name":"sh"}"#);
    assert_eq!(run.state(Required::ToolResults), State::Absent);
    let answers = Some((Rel::Answers, 4));
    run.add(
        (Kind::ToolResult, ActorType::Tool),
        r#"{"status":"error"}"#,
        answers,
        false,
    );
    run.agent(Kind::SideEffect, r#"{"operation":"o"}"#);
    run.add((Kind::Decision, ActorType::Human), "{}", None, false);
    run.add(
        (Kind::GateResult, ActorType::Verifier),
        r#"{"name":"t","verdict":"pass"}"#,
        None,
        false,
    );
    let verified = Some((Rel::VerifiedBy, 8));
    run.add(
        (Kind::Outcome, agent),
        r#"{"status":"completed"}"#,
        verified,
        false,
    );
    let expected = [
        (Required::UseStarted, 0),
        (Required::Agent, 0),
        (Required::Release, 0),
        (Required::Purpose, 0),
        (Required::Mandate, 0),
        (Required::Environment, 0),
        (Required::Retention, 0),
        (Required::Model, 1),
        (Required::Input, 1),
        (Required::ModelRevision, 2),
        (Required::ReferenceData, 3),
        (Required::ToolResults, 5),
        (Required::Errors, 5),
        (Required::SideEffects, 6),
        (Required::Decision, 7),
        (Required::Oversight, 7),
        (Required::Verification, 8),
        (Required::Outcome, 9),
        (Required::OutcomeVerified, 9),
    ];
    for (fact, seq) in expected {
        assert_eq!(run.state(fact), at(seq), "{}", fact.as_str());
    }
    assert_eq!(run.state(Required::UseEnded), State::Absent);
    assert_eq!(expected.len() + 1, Required::ALL.len());
}

#[test]
fn what_says_nothing_records_nothing() {
    let mut run = Run::new(r#""agent":7,"mandate":"","pins":{},"profile":null,"#);
    for fact in [
        Required::Agent,
        Required::Mandate,
        Required::Environment,
        Required::Purpose,
    ] {
        assert_eq!(run.state(fact), State::Absent, "{}", fact.as_str());
    }
    run.agent(Kind::Turn, "{}");
    assert_eq!(run.state(Required::Model), State::Absent);
    run.agent(Kind::ModelCall, "{}");
    assert_eq!(run.state(Required::ModelRevision), State::Absent);
    run.agent(Kind::Retrieval, r#"{"index":null}"#);
    assert_eq!(run.state(Required::ReferenceData), State::Absent);
    run.add(
        (Kind::GateResult, ActorType::Verifier),
        r#"{"name":"t","verdict":"fail"}"#,
        None,
        false,
    );
    assert_eq!(run.state(Required::Errors), at(4));
    let verified = Some((Rel::VerifiedBy, 4));
    run.add(
        (Kind::Outcome, ActorType::Agent),
        r#"{"status":"completed"}"#,
        verified,
        false,
    );
    assert_eq!(run.state(Required::OutcomeVerified), State::Absent);
}

#[test]
fn words_are_told_apart_and_have_a_source() {
    let words: BTreeSet<&str> = Required::ALL.into_iter().map(Required::as_str).collect();
    assert_eq!(words.len(), Required::ALL.len());
    for fact in Required::ALL {
        assert!(fact.source().contains("Art. ") && !fact.how().is_empty());
        let json = serde_json::to_string(&fact).unwrap();
        assert_eq!(json, format!("\"{}\"", fact.as_str()));
    }
    assert!(
        Required::AT_SEAL
            .iter()
            .all(|fact| Required::ALL.contains(fact))
    );
}
