//! The entries of a whole ledger, one after the other (spec: `docs/spec/verification.md`, "Whole ledger").

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::copy::{Known, LedgerCopy};
use crate::piecewise::ToldRun;
use crate::statement::{self, Signer, Statement};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
use onrecord_core::merkle::Frontier;
use onrecord_core::statement::{
    Erasure, Hold, HoldAction, KeyAction, KeyRole, Predicate, Previous, RunHead, RunOpen, RunSeal,
};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A run as the ledger tells it so far.
struct Run {
    open_index: u64,
    opened_at: Timestamp,
    run_no: u64,
    size: u64,
    root: Hash,
    sealed: bool,
}

/// What all entries so far come to.
#[derive(Default)]
pub(crate) struct Entries {
    origin: Option<Origin>,
    tenant: Option<TenantId>,
    last_at: Option<Timestamp>,
    runs: BTreeMap<RunId, Run>,
    run_nos: BTreeSet<u64>,
    last_run_no: u64,
    previous: Option<Previous>,
    holds: BTreeSet<(Option<RunId>, String)>,
    revoked: BTreeMap<Hash, u64>,
    copy: LedgerCopy,
    tree: Frontier,
}

impl Entries {
    /// Says whose ledger it is.
    pub fn begin(&mut self, origin: &str) {
        self.origin = origin.parse().ok();
    }

    /// The tree over them.
    pub fn tree(&self) -> &Frontier {
        &self.tree
    }

    /// Root over the first so many.
    pub fn root_at(&self, size: u64) -> Option<Hash> {
        self.copy.leaves.root_at(size)
    }

    /// Whose they are, by the first of them.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The runs that they open.
    pub fn runs(&self) -> impl Iterator<Item = (&RunId, ToldRun)> {
        self.runs.iter().map(|(id, run)| {
            let told = ToldRun {
                open_index: run.open_index,
                run_no: run.run_no,
                opened_at: run.opened_at,
                size: run.size,
                sealed: run.sealed,
            };
            (id, told)
        })
    }

    /// The next entry.
    pub fn read(&mut self, check: &mut Check<'_>, bytes: &[u8], leaf: Hash) {
        let index = self.copy.leaves.size();
        self.tree.push(leaf);
        self.copy.leaves.push(leaf, &self.tree);
        let trust = check.trust;
        let findings = &mut check.findings;
        let mut emit = |code, cause: String| {
            findings.push(
                Stage::LedgerEntries,
                code,
                None,
                format!("entry {index}: {cause}"),
            )
        };
        let Some(statement) = statement::check(
            bytes,
            trust,
            self.origin.as_ref(),
            Code::LedgerStatement,
            &mut emit,
        ) else {
            return;
        };
        // What nobody that is trusted signed is named, and does not speak for the ledger, nor does its time.
        if matches!(statement.signer, Signer::Unknown | Signer::False) {
            return;
        }
        self.in_order(&statement, index, &mut emit);
        let Some(predicate) = &statement.predicate else {
            return;
        };
        match predicate {
            Predicate::RunOpen(open) => self.open(open, index, &mut emit),
            Predicate::RunHead(head) => self.head(head, &mut emit),
            Predicate::RunSeal(seal) => self.seal(seal, leaf, &mut emit),
            Predicate::Erasure(erasure) => self.erasure(erasure, index, &mut emit),
            Predicate::Hold(hold) => self.hold(hold),
            Predicate::Key(key)
                if key.action == KeyAction::Revoked && key.role == KeyRole::Seal =>
            {
                self.revoked.entry(key.keyid).or_insert(index);
            }
            _ => {}
        }
    }

    /// Tenant, time, and the signer's end.
    fn in_order(&mut self, statement: &Statement, index: u64, emit: &mut dyn FnMut(Code, String)) {
        let tenant = self
            .tenant
            .get_or_insert_with(|| statement.signed.tenant.clone());
        if *tenant != statement.signed.tenant {
            emit(
                Code::LedgerStatement,
                format!(
                    "it is of tenant {}, the ledger of {tenant}",
                    statement.signed.tenant
                ),
            );
        }
        if let Some(at) = statement.predicate.as_ref().map(Predicate::at) {
            if let Some(last) = self.last_at.filter(|last| at < *last) {
                emit(Code::LedgerTime, format!("its time {at} is before {last}"));
            }
            self.last_at = self.last_at.max(Some(at));
        }
        if let Signer::Trusted { until: Some(until) } = statement.signer
            && index >= until
        {
            emit(Code::KeyRevoked, format!("its key counts until {until}"));
        } else if let Some(revoked) = self.revoked.get(&statement.signed.keyid) {
            emit(
                Code::KeyRevoked,
                format!("its key was revoked at {revoked}"),
            );
        }
    }

    fn open(&mut self, open: &RunOpen, index: u64, emit: &mut dyn FnMut(Code, String)) {
        let run = &open.state.run;
        self.known(run).openings.push(open.state.head);
        if self.runs.contains_key(run) || self.run_nos.contains(&open.run_no) {
            emit(
                Code::SecondOpen,
                format!("run {run} or its number {} was opened before", open.run_no),
            );
            return;
        }
        if open.run_no != self.last_run_no + 1 {
            emit(
                Code::RunGap,
                format!("run number {} follows {}", open.run_no, self.last_run_no),
            );
        }
        self.last_run_no = self.last_run_no.max(open.run_no);
        self.run_nos.insert(open.run_no);
        let state = Run {
            open_index: index,
            opened_at: open.at,
            run_no: open.run_no,
            size: open.state.size,
            root: open.state.root,
            sealed: false,
        };
        self.runs.insert(run.clone(), state);
    }

    fn head(&mut self, head: &RunHead, emit: &mut dyn FnMut(Code, String)) {
        let state = &head.state;
        self.known(&state.run).heads.push(state.clone());
        let Some(run) = self.runs.get_mut(&state.run) else {
            return emit(Code::RunGap, format!("run {} was never opened", state.run));
        };
        if run.sealed {
            return emit(
                Code::LedgerOrder,
                format!("a head of run {} after its seal", state.run),
            );
        }
        run.grow(state.size, state.root, emit);
    }

    fn seal(&mut self, seal: &RunSeal, leaf: Hash, emit: &mut dyn FnMut(Code, String)) {
        let state = &seal.state;
        self.known(&state.run).seals.push((leaf, state.clone()));
        let previous = self.previous.replace(Previous {
            hash: leaf,
            run: state.run.clone(),
        });
        if let Some(run) = self.runs.get_mut(&state.run) {
            if run.sealed {
                emit(
                    Code::SecondSeal,
                    format!("run {} was sealed before", state.run),
                );
            } else {
                run.grow(state.size, state.root, emit);
                run.sealed = true;
            }
            if seal.ledger.open_index != run.open_index || seal.run_no != run.run_no {
                emit(
                    Code::RunOpen,
                    format!(
                        "it names opening {} and number {}, they are {} and {}",
                        seal.ledger.open_index, seal.run_no, run.open_index, run.run_no
                    ),
                );
            }
        } else {
            emit(Code::RunGap, format!("run {} was never opened", state.run));
        }
        if Some(&seal.ledger.origin) != self.origin.as_ref() {
            emit(
                Code::CheckpointOrigin,
                format!("it names ledger {}", seal.ledger.origin),
            );
        }
        if seal.previous != previous {
            emit(
                Code::PreviousSeal,
                "it does not name the seal before it".into(),
            );
        }
    }

    fn erasure(&mut self, erasure: &Erasure, index: u64, emit: &mut dyn FnMut(Code, String)) {
        let run = &erasure.state.run;
        let held = |hold: &&(Option<RunId>, String)| hold.0.as_ref().is_none_or(|one| one == run);
        if let Some((of, matter)) = self.holds.iter().find(held) {
            let whose = if of.is_some() { "run" } else { "tenant" };
            emit(
                Code::ErasureHeld,
                format!(
                    "payloads of run {run} were erased while the {whose} was held for {matter:?}"
                ),
            );
            self.known(run).held.push(index);
        }
        let Some(known) = self.runs.get(run) else {
            return emit(Code::RunGap, format!("run {run} was never opened"));
        };
        if known.sealed && (erasure.state.size, erasure.state.root) != (known.size, known.root) {
            emit(
                Code::RunHead,
                format!("an erasure names other frames of run {run} than its seal"),
            );
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let key = (hold.run.clone(), hold.matter.clone());
        match hold.action {
            HoldAction::Set => self.holds.insert(key),
            HoldAction::Released => self.holds.remove(&key),
        };
    }

    fn known(&mut self, run: &RunId) -> &mut Known {
        self.copy.runs.entry(run.clone()).or_default()
    }

    /// What is left to ask the ledger about.
    pub fn finish(mut self, check: &mut Check<'_>) -> LedgerCopy {
        check.facts.tenant = self.tenant.map(|tenant| tenant.to_string());
        check.skip("the frames that the entries are about: give their bundles, with this ledger as --ledger");
        self.copy.revoked = self.revoked;
        self.copy
    }
}

impl Run {
    /// A run only grows, and the same size has the same frames.
    fn grow(&mut self, size: u64, root: Hash, emit: &mut dyn FnMut(Code, String)) {
        if size < self.size || size == self.size && root != self.root {
            emit(
                Code::RunHead,
                format!("{size} frames after {}, or others", self.size),
            );
        }
        self.size = self.size.max(size);
        self.root = root;
    }
}
