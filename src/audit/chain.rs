//! A run's chain as it is built again, and its row and what the ledger says of it against the frames.

use super::found::{At, COLUMN, Found};
use super::ledger::Ledger;
use super::run::Entry;
use crate::store::audit::{FrameRow, RunColumns};
use crate::store::facts::kind_no;
use onrecord_core::chain::{Chain, Seen};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, Rel};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::merkle::Frontier;
use onrecord_core::note::TlogProof;
use onrecord_core::statement::{Predicate, State};
use onrecord_verify::{Code, SignedCheckpoint, SignedFrames, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lowest level of a run's tree of which nodes are kept.
pub(super) const NODE_LEVEL: u8 = 6;

/// The chain as it is built again.
pub(super) struct Frames {
    chain: Chain,
    seen: Seen,
    signed: SignedFrames,
    ledger: Arc<Ledger>,
    first: Option<First>,
    /// The tree again, for its nodes from [`NODE_LEVEL`] on.
    tree: Frontier,
    pub(super) nodes: Vec<Hash>,
    /// Head and root at the sizes that the ledger speaks of.
    wanted: BTreeMap<u64, Option<(Hash, Hash)>>,
    /// Whether something is not the next frame: nothing after it is known.
    pub(super) broken: bool,
}

/// The proofs of a run's seal: the first one, and the one that takes its place.
pub(super) struct Proofs {
    pub(super) own: Option<String>,
    pub(super) cosigned: Option<String>,
}

/// How far the ledger has stated a run, by the row beside it.
pub(super) fn check_stated(row: Option<(i64, i64)>, entries: &[Entry], found: &mut Found) {
    let mut heads = entries.iter().rev().filter_map(|entry| match &entry.says {
        Predicate::RunHead(head) => Some((signed(head.state.size), entry.index)),
        _ => None,
    });
    let last = heads.next();
    found.column(
        At::of("run_heads", "size"),
        row.map(|row| row.0),
        last.map(|last| last.0),
    );
    found.column(
        At::of("run_heads", "ledger_index"),
        row.map(|row| row.1),
        last.map(|last| last.1),
    );
}

/// A number as the tables have it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What the run's row repeats of frame 0.
struct First {
    hash: Hash,
    /// SHA-256 of the line with its newline.
    line: Hash,
    key: String,
    agent: Option<String>,
}

impl Frames {
    pub(super) fn new(
        tenant: TenantId,
        run: RunId,
        ledger: Arc<Ledger>,
        entries: &[Entry],
    ) -> Self {
        let states = entries.iter().filter_map(|entry| state_of(&entry.says));
        Self {
            chain: Chain::new(tenant, run),
            seen: Seen::default(),
            signed: SignedFrames::default(),
            ledger,
            first: None,
            tree: Frontier::new(),
            nodes: Vec::new(),
            wanted: states.map(|state| (state.size, None)).collect(),
            broken: false,
        }
    }

    /// Places without a frame.
    pub(super) fn gap(&mut self, (from, to): (i64, i64), found: &mut Found) {
        if from < to {
            self.broken = true;
            let cause = match to - from {
                1 => "there is no such frame".to_owned(),
                count => format!("there are no {count} frames from here on"),
            };
            found.missing(At::of("frames", "seq").seq(from), cause);
        }
    }

    pub(super) fn extend(&mut self, frame: &Frame<'_>, row: &FrameRow<'_>, found: &mut Found) {
        if self.broken {
            return;
        }
        if let Err(fault) = self
            .chain
            .extend_read(frame, row.bytes, Some(&mut self.seen))
        {
            self.broken = true;
            let seq = signed(fault.seq);
            found.rule(
                fault.code.into(),
                At::of("frames", "bytes").seq(seq),
                fault.detail,
            );
            return;
        }
        let nodes = &mut self.nodes;
        self.tree.push_with(self.chain.head(), |level, _, hash| {
            if level == NODE_LEVEL {
                nodes.push(hash);
            }
        });
        let first = self.first.get_or_insert_with(|| First {
            hash: self.chain.head(),
            line: Hash::of(&[row.bytes, b"\n"]),
            key: frame.key.clone().into_owned(),
            agent: agent(frame),
        });
        let trust = self.ledger.trust.as_ref();
        let findings = self.signed.read(frame, row.bytes, Some(&first.hash), trust);
        found.rules(At::of("frames", "bytes").seq(row.seq), findings);
        if let Some(wanted) = self.wanted.get_mut(&self.chain.size()) {
            *wanted = Some((self.chain.head(), self.chain.root()));
        }
    }

    /// The run's row, and the ledger's entries, against the frames.
    pub(super) fn finish(
        self,
        row: &RunColumns,
        proofs: &Proofs,
        entries: &[Entry],
        found: &mut Found,
    ) {
        self.check_opening(row, entries, found);
        self.check_states(entries, found);
        self.check_seal(row, proofs, entries, found);
        let erased: u64 = entries.iter().map(|entry| erased(&entry.says)).sum();
        found.column(At::of("runs", "erased"), row.erased, signed(erased));
        if !self.broken {
            self.check_row(row, found);
        }
    }

    fn check_row(&self, row: &RunColumns, found: &mut Found) {
        let at = |column| At::of("runs", column);
        let chain = &self.chain;
        found.digest(at("head"), &row.head, &chain.head());
        let saved = Chain::from_bytes(&row.chain).map(|saved| saved.to_bytes());
        if saved.as_ref() != Some(&chain.to_bytes()) {
            let cause = "it is not the state of the run's frames";
            found.push(COLUMN, Status::Altered, at("chain"), cause);
        }
        let last_at = chain.last_at().map(|at| at.micros());
        found.column(at("last_at"), Some(row.last_at), last_at);
        let outcome = chain.outcome().map(|status| status.as_str());
        found.column(at("outcome"), row.outcome.as_deref(), outcome);
        found.column(at("ended"), row.ended, chain.ended());
        if let Some(opened) = chain.opened() {
            found.column(at("opened_at"), row.opened_at, opened.at.micros());
            let run_no = signed(opened.run_no);
            found.column(at("run_no"), row.run_no, run_no);
            let origin = opened.ledger.as_str();
            if origin != self.ledger.origin {
                let cause = format!(
                    "it names ledger {origin}, the tenant's is {}",
                    self.ledger.origin
                );
                found.rule(Code::FrameScope, At::of("frames", "bytes").seq(0), cause);
            }
        }
        if let Some(first) = &self.first {
            found.column(at("agent"), &row.agent, &first.agent);
            let key = row.open_key.as_deref().unwrap_or(OWN_KEY);
            found.column(at("open_key"), key, &*first.key);
        }
    }

    fn check_opening(&self, row: &RunColumns, entries: &[Entry], found: &mut Found) {
        let at = At::of("runs", "open_index").index(row.open_index);
        let opening = entries.iter().find(|entry| entry.index == row.open_index);
        let (Some(entry), Some(Predicate::RunOpen(open))) =
            (opening, opening.map(|entry| &entry.says))
        else {
            found.missing(at, "no entry at this index opens the run");
            return;
        };
        found.column(At::of("runs", "run_no"), row.run_no, signed(open.run_no));
        if let Some(first) = &self.first
            && entry.signed.digest != first.line
        {
            found.rule(Code::RunOpen, at, "the opening's subject is not frame 0");
        }
    }

    /// Heads, openings and erasures name frames that are here. Seals have rules of their own.
    fn check_states(&self, entries: &[Entry], found: &mut Found) {
        for entry in entries {
            let (Some(state), false) = (
                state_of(&entry.says),
                matches!(entry.says, Predicate::RunSeal(_)),
            ) else {
                continue;
            };
            let code = match entry.says {
                Predicate::RunOpen(_) => Code::RunOpen,
                _ => Code::RunHead,
            };
            let at = At::of("ledger_entries", "bytes").index(entry.index);
            match self.wanted.get(&state.size).copied().flatten() {
                Some(here) if here != (state.head, state.root) => {
                    let cause = format!(
                        "it names other frames than the first {} that are here",
                        state.size
                    );
                    found.rule(code, at, cause);
                }
                None if !self.broken => {
                    let cause = format!(
                        "the ledger knows {} frames, {} are here",
                        state.size,
                        self.chain.size()
                    );
                    found.rule(code, at, cause);
                }
                _ => {}
            }
        }
    }

    fn check_seal(&self, row: &RunColumns, proofs: &Proofs, entries: &[Entry], found: &mut Found) {
        let seal = entries
            .iter()
            .find(|entry| matches!(entry.says, Predicate::RunSeal(_)));
        let at = |column| At::of("runs", column);
        let (said, index) = match seal.map(|entry| (&entry.says, entry.index)) {
            Some((Predicate::RunSeal(said), index)) => (Some(said), Some(index)),
            _ => (None, None),
        };
        found.column(at("seal_index"), row.seal_index, index);
        found.column(
            at("sealed_at"),
            row.sealed_at,
            said.map(|said| said.sealed_at.micros()),
        );
        found.column(at("seal_proof"), row.seal_proof.is_some(), said.is_some());
        if let Some(seal) = seal.filter(|_| !self.broken) {
            self.check_proof(seal, proofs.own.as_deref(), at("seal_proof"), found);
            if proofs.cosigned.is_some() {
                let at = At::of("cosigned_proofs", "proof");
                self.check_proof(seal, proofs.cosigned.as_deref(), at, found);
            }
        } else if proofs.cosigned.is_some() {
            let at = At::of("cosigned_proofs", "run");
            found.surplus(at, "the run has no seal");
        }
    }

    /// The seal and a proof of it against the frames.
    fn check_proof(&self, seal: &Entry, proof: Option<&str>, at: At, found: &mut Found) {
        let mut findings = onrecord_verify::check_seal(
            &seal.bytes,
            proof,
            (&self.chain, self.chain.file_digest()),
            self.ledger.trust.as_ref(),
        );
        // How many witnesses had cosigned, and when, says nothing of the database.
        findings.retain(|one| !matches!(one.code, Code::WitnessQuorum | Code::TimeAnchor));
        found.rules(at.index(seal.index), findings);
        let Some(proof) = proof.and_then(|proof| TlogProof::parse(proof).ok()) else {
            return;
        };
        found.column(at, signed(proof.index), seal.index);
        if let Ok(shown) = SignedCheckpoint::read(&proof.checkpoint, None) {
            // A checkpoint of after this ledger was read is not known here.
            let root = self.ledger.copy.root_at(shown.checkpoint.size);
            if root.is_some_and(|root| root != shown.checkpoint.root) {
                let cause = "it leads to another root than the ledger's";
                found.rule(Code::SplitView, at, cause);
            }
        }
    }
}

/// The key of a session whose writer gave none.
const OWN_KEY: &str = "onrecord/session";

fn agent(frame: &Frame<'_>) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(frame.body).ok()?;
    body.get("agent")?.as_str().map(str::to_owned)
}

/// The frames that a statement names.
fn state_of(says: &Predicate) -> Option<&State> {
    match says {
        Predicate::RunOpen(one) => Some(&one.state),
        Predicate::RunHead(one) => Some(&one.state),
        Predicate::RunSeal(one) => Some(&one.state),
        Predicate::Erasure(one) => Some(&one.state),
        _ => None,
    }
}

fn erased(says: &Predicate) -> u64 {
    match says {
        Predicate::Erasure(erasure) => erasure.count,
        _ => 0,
    }
}
/// Every column against the bytes.
pub(super) fn columns(row: &FrameRow<'_>, frame: &Frame<'_>, found: &mut Found) {
    let at = |column| At::of("frames", column).seq(row.seq);
    found.column(at("at"), row.at, frame.at.micros());
    found.column(at("kind_no"), row.kind_no, kind_no(frame.kind));
    found.column(at("key"), row.key, &*frame.key);
    let turn = frame
        .turn
        .map(|turn| i32::try_from(turn).unwrap_or(i32::MAX));
    found.column(at("turn"), row.turn, turn);
    let answers = frame.links().iter().find(|link| link.rel == Rel::Answers);
    let answers = answers.and_then(|link| link.seq);
    let answers = answers.map(signed);
    found.column(at("answers"), row.answers, answers);
}
