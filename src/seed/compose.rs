//! A batch of runs made up: their keys, payloads and frames in their places, on threads that wait for no database.

use super::SeedError;
use super::chance::Chance;
use super::story::{Fate, REDACTIONS, Story, Told};
use crate::record::seal::{Closed, session_end};
use crate::record::{close_turn, place, session_body, state_of};
use crate::store;
use crate::store::frames::NewFrame;
use crate::store::payloads::NewPayload;
use crate::vault::{self, RunKeys, SealedPayload, TenantKeys, WrappedRunKey};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::facts::Fact;
use onrecord_core::frame::{Actor, ActorType, Draft, Kind, Link, PayloadRef, Redaction};
use onrecord_core::id::{Origin, RunId, TenantId};
use onrecord_core::statement::RunOpen;
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeSet;
use std::ops::Range;

const MEDIA: &str = "text/plain; charset=utf-8";

/// Runs that are written together.
pub(super) struct Batch {
    pub(super) runs: Vec<Composed>,
}

/// A run with all of its frames, which is in no ledger yet.
pub(super) struct Composed {
    /// The chain of its id, without a frame.
    pub(super) empty: Chain,
    /// What the ledger says of its opening, and the digest of frame 0.
    pub(super) open: (RunOpen, Hash),
    pub(super) agent: &'static str,
    pub(super) closed: Closed,
    /// When it is sealed, if it is.
    pub(super) sealed_at: Option<Timestamp>,
    pub(super) payloads: Vec<Payload>,
    /// What its frames say of it, each once.
    pub(super) facts: Vec<Fact>,
    pub(super) keys: Vec<WrappedRunKey>,
}

/// A payload and its frame, which has no other.
pub(super) struct Payload {
    seq: u64,
    tier: u8,
    sealed: SealedPayload,
}

impl Batch {
    pub(super) fn frames(&self) -> u64 {
        self.runs.iter().map(|run| run.closed.chain.size()).sum()
    }
}

impl Payload {
    pub(super) fn row(&self) -> NewPayload<'_> {
        NewPayload {
            commit: self.sealed.commit,
            seq: self.seq,
            place: 0,
            media: MEDIA,
            tier: self.tier.into(),
            size: self.sealed.size,
            wrapped_dek: &self.sealed.wrapped_dek,
            key_version: self.sealed.key_version,
            ciphertext: &self.sealed.ciphertext,
            subjects: None,
        }
    }
}

/// Makes up the runs of some numbers, from 0.
pub(super) fn batch(
    story: &Story,
    keys: &TenantKeys,
    place: &(TenantId, Origin),
    numbers: Range<u64>,
) -> Result<Batch, SeedError> {
    let runs = numbers.map(|number| run(story.run(number), keys, place, number + 1));
    Ok(Batch {
        runs: runs.collect::<Result<_, _>>()?,
    })
}

fn run(
    told: Told,
    keys: &TenantKeys,
    (tenant, origin): &(TenantId, Origin),
    run_no: u64,
) -> Result<Composed, SeedError> {
    let millis = u64::try_from(told.opened.micros() / 1_000).unwrap_or(0);
    let run = vault::new_run_id(millis)?;
    let (run_keys, wrapped) = keys.new_run(&run)?;
    let empty = Chain::new(tenant.clone(), run);
    let mut composing = Composing {
        chain: empty.clone(),
        frames: Vec::with_capacity(told.times.len()),
        payloads: Vec::new(),
        keys: run_keys,
        chance: told.chance,
    };
    let body = session_body(told.session.as_bytes(), run_no, origin, None)?;
    let agent = (ActorType::Agent, told.agent);
    let mut session = draft(Kind::Session, "onrecord/session".to_owned(), agent, body);
    composing.frame(&mut session, told.session_payload, told.opened)?;
    let open = RunOpen {
        at: told.opened,
        run_no,
        state: state_of(&composing.chain),
    };
    let open = (open, composing.chain.file_digest());
    let mut times = told.times.into_iter();
    let mut next = move |last: Timestamp| times.next().unwrap_or(last);
    let mut at = told.opened;
    for step in told.steps {
        at = next(at);
        if step.kind == Kind::TurnEnd {
            composing.close_turn(at)?;
            continue;
        }
        let number = composing.chain.turns() + u64::from(step.kind == Kind::Turn);
        let key = format!("e/{}", composing.chain.size());
        let mut one = draft(step.kind, key, step.actor, step.body.into_bytes());
        one.turn = step.in_turn.then_some(number);
        one.links.extend(step.link.map(|(rel, seq)| Link {
            hash: None,
            rel,
            run: None,
            seq: Some(seq),
        }));
        composing.frame(&mut one, step.payload, at)?;
    }
    if told.fate != Fate::Open {
        at = next(at);
        composing.close_turn(at)?;
    }
    if told.fate == Fate::Full {
        let actor = actor(agent);
        at = next(at);
        composing.frame(&mut session_end(actor), false, at)?;
    }
    let sealed_at = (told.fate != Fate::Open).then(|| next(at));
    Ok(composing.finish(empty, open, told.agent, (at, sealed_at), wrapped))
}

/// A run whose frames get their places.
struct Composing {
    chain: Chain,
    frames: Vec<NewFrame>,
    payloads: Vec<Payload>,
    keys: RunKeys,
    chance: Chance,
}

impl Composing {
    fn frame(&mut self, draft: &mut Draft, payload: bool, at: Timestamp) -> Result<(), SeedError> {
        if payload {
            let payload = self.payload(draft.kind)?;
            draft.payloads.push(payload);
        }
        self.frames.push(place(&mut self.chain, draft, at, None)?);
        Ok(())
    }

    fn close_turn(&mut self, at: Timestamp) -> Result<(), SeedError> {
        self.frames.extend(close_turn(&mut self.chain, at)?);
        Ok(())
    }

    /// A payload for the next frame, of a few words.
    fn payload(&mut self, kind: Kind) -> Result<PayloadRef, SeedError> {
        let (name, tier) = match kind {
            Kind::Session => ("task", 1),
            Kind::Turn => ("prompt", 2),
            Kind::ToolCall => ("arguments", 2),
            Kind::ToolResult => ("result", 3),
            Kind::GateResult => ("evidence", 2),
            Kind::Outcome => ("summary", 1),
            _ => ("content", 1 + self.chance.below(3) as u8),
        };
        let mut text = format!("made up for measuring: {:016x}", self.chance.next());
        let mut redactions = None;
        if self.chance.permille(60) {
            let kind = self.chance.of_many(&REDACTIONS);
            let start = text.len() as u64 + 1;
            text.push_str(&format!(" [redacted:{kind}]"));
            redactions = Some(vec![Redaction {
                fingerprint: None,
                kind: kind.to_owned(),
                pointer: None,
                range: Some((start, text.len() as u64)),
                rule: kind.to_owned(),
                rules: "seed".to_owned(),
            }]);
        }
        let sealed = self.keys.seal(tier.into(), MEDIA, text.into_bytes())?;
        let payload = PayloadRef {
            commit: sealed.commit,
            kept: None,
            media: MEDIA.to_owned(),
            name: name.to_owned(),
            redactions,
            size: sealed.size,
            tier,
        };
        let seq = self.chain.size();
        self.payloads.push(Payload { seq, tier, sealed });
        Ok(payload)
    }

    fn finish(
        self,
        empty: Chain,
        open: (RunOpen, Hash),
        agent: &'static str,
        (at, sealed_at): (Timestamp, Option<Timestamp>),
        keys: Vec<WrappedRunKey>,
    ) -> Composed {
        let closed = Closed {
            before: (0, empty.head()),
            nodes: store::run_nodes::completed(empty.tree(), &self.frames),
            chain: self.chain,
            frames: self.frames,
            // Statements of others come between its last frame and its seal.
            at: sealed_at.unwrap_or(at),
        };
        let facts = closed.frames.iter().flat_map(|frame| &frame.facts.of_run);
        let facts: BTreeSet<&Fact> = facts.collect();
        let mut facts: Vec<Fact> = facts.into_iter().cloned().collect();
        if sealed_at.is_some() {
            facts.extend(closed.missing([]));
        }
        Composed {
            facts,
            closed,
            empty,
            open,
            agent,
            sealed_at,
            payloads: self.payloads,
            keys,
        }
    }
}

impl Composed {
    pub(super) fn run(&self) -> &RunId {
        self.empty.run()
    }
}

fn draft(kind: Kind, key: String, who: (ActorType, &str), body: Vec<u8>) -> Draft {
    Draft {
        kind,
        key,
        occurred_at: None,
        turn: None,
        actor: actor(who),
        body,
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        submitted: None,
    }
}

fn actor((kind, id): (ActorType, &str)) -> Actor {
    Actor {
        id: id.to_owned(),
        keyid: None,
        kind,
    }
}
