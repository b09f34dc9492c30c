//! What a run should mean: each invariant broken and kept.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot build its frames fails"
)]

use onrecord_core::chain::Chain;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, PayloadRef, Rel};
use onrecord_core::invariants::{Invariant, Invariants, LISTED, Meaning};
use onrecord_core::payload::commitment;

const DIGEST: &str = "sha256:16aa25f1cbe5ef3383b3443d0dd957b6065d0a98a75175397863cf9b2696600b";

/// A run of a session and these frames: kind, body, links by rel and place, payloads.
struct Run(Chain, Invariants);

impl Run {
    fn new() -> Self {
        let chain = Chain::new(
            "t_7f3k9q2m4x8w".parse().unwrap(),
            "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap(),
        );
        let mut run = Self(chain, Invariants::new());
        let nonce = "0".repeat(64);
        let body =
            format!(r#"{{"ledger":"a/t/b","nonce":"{nonce}","run_no":1,"suite":"onrecord-v1"}}"#);
        run.add(Kind::Session, &body, &[], 0);
        run
    }

    fn add(&mut self, kind: Kind, body: &str, links: &[(Rel, u64)], payloads: u64) {
        let place = self.0.size();
        let link = |(rel, seq): &(Rel, u64)| Link {
            hash: None,
            rel: *rel,
            run: None,
            seq: Some(*seq),
        };
        let payload = |index| PayloadRef {
            commit: commitment(&[place as u8; 32], &[index as u8]),
            kept: None,
            media: "text/plain".into(),
            name: format!("p{index}"),
            redactions: None,
            size: 256,
            tier: 1,
        };
        let draft = Draft {
            kind,
            key: format!("{place}"),
            occurred_at: None,
            turn: None,
            actor: Actor {
                id: "coder-1".into(),
                keyid: None,
                kind: ActorType::Agent,
            },
            body: body.into(),
            payloads: (0..payloads).map(payload).collect(),
            links: links.iter().map(link).collect(),
            trace: None,
            submitted: None,
        };
        let at = "2026-08-09T11:00:00.000000Z".parse().unwrap();
        let bytes = self.0.place(&draft, at).unwrap();
        self.1.read(&Frame::parse(&bytes).unwrap());
    }

    fn warnings(self) -> Vec<(u64, Invariant)> {
        let meaning = self.1.finish();
        assert_eq!(meaning.more, 0);
        meaning
            .warnings
            .iter()
            .map(|one| (one.seq, one.code))
            .collect()
    }
}

fn gate(verdict: &str, candidate: &str) -> String {
    format!(r#"{{"candidate":"{candidate}","verdict":"{verdict}"}}"#)
}

fn outcome(status: &str, candidate: &str) -> String {
    format!(r#"{{"candidate":"{candidate}","status":"{status}"}}"#)
}

#[test]
fn a_run_that_means_what_it_should_has_no_warnings() {
    let mut run = Run::new();
    run.add(Kind::ToolCall, "{}", &[], 1);
    run.add(Kind::ToolResult, "{}", &[(Rel::Answers, 1)], 1);
    run.add(
        Kind::GateResult,
        &gate("pass", DIGEST),
        &[(Rel::Uses, 2)],
        0,
    );
    run.add(Kind::GateResult, &gate("pass", DIGEST), &[], 1);
    run.add(Kind::GateResult, &gate("fail", DIGEST), &[], 0);
    run.add(Kind::SideEffect, r#"{"operation":"op-1"}"#, &[], 0);
    run.add(
        Kind::Observation,
        r#"{"environment":"snap-1","tool":"read"}"#,
        &[],
        0,
    );
    run.add(
        Kind::Observation,
        r#"{"environment":"snap-1","source":"user"}"#,
        &[],
        0,
    );
    run.add(
        Kind::Outcome,
        &outcome("completed", DIGEST),
        &[(Rel::VerifiedBy, 3), (Rel::VerifiedBy, 4)],
        0,
    );
    assert_eq!(run.warnings(), []);
}

#[test]
fn each_invariant_is_named_at_its_frame() {
    let mut run = Run::new();
    run.add(Kind::ToolCall, "{}", &[], 0);
    run.add(Kind::ToolResult, "{}", &[(Rel::Caused, 1)], 0);
    run.add(Kind::GateResult, &gate("PASS", DIGEST), &[], 0);
    run.add(Kind::SideEffect, r#"{"attempt":1}"#, &[], 0);
    run.add(Kind::Observation, r#"{"environment":"snap-1"}"#, &[], 0);
    run.add(Kind::Observation, r#"{"tool":"read"}"#, &[], 0);
    run.add(Kind::Outcome, &outcome("completed", "latest"), &[], 0);
    assert_eq!(
        run.warnings(),
        [
            (1, Invariant::MissingObservation),
            (3, Invariant::VerificationEvidenceDetached),
            (4, Invariant::SideEffectProvenanceMissing),
            (5, Invariant::ObservationSourceMissing),
            (6, Invariant::MissingEnvironmentSnapshot),
            (7, Invariant::CandidateNotExact),
            (7, Invariant::VerificationEvidenceDetached),
        ]
    );
}

#[test]
fn a_gate_stands_for_its_own_candidate_and_only_if_it_passed() {
    let other = DIGEST.replace("16aa", "26aa");
    for (body, points_to, detached) in [
        (gate("pass", DIGEST), 1, false),
        (gate("pass", &other), 1, true),
        (gate("fail", DIGEST), 1, true),
        (gate("pass", DIGEST), 0, true),
    ] {
        let mut run = Run::new();
        run.add(Kind::GateResult, &body, &[], 1);
        let link = [(Rel::VerifiedBy, points_to)];
        run.add(Kind::Outcome, &outcome("completed", DIGEST), &link, 0);
        let expected = [(2, Invariant::VerificationEvidenceDetached)];
        assert_eq!(run.warnings(), &expected[..usize::from(detached)], "{body}");
    }
    // What did not complete need not be verified.
    let mut run = Run::new();
    run.add(Kind::Outcome, &outcome("failed", "latest"), &[], 0);
    assert_eq!(run.warnings(), []);
}

#[test]
fn more_warnings_than_are_listed_are_counted() {
    let mut run = Run::new();
    for _ in 0..LISTED + 5 {
        run.add(Kind::ToolCall, "{}", &[], 0);
    }
    let Meaning { warnings, more } = run.1.finish();
    assert_eq!((warnings.len(), more), (LISTED, 5));
}
