//! The verifier's own copy of the ledger, against what the bundle says (check 7).

use crate::check::Check;
use crate::code::{Code, Stage, Status};
use crate::frames::Frames;
use crate::leaves::Leaves;
use crate::ledger_lines::{Lines, Place};
use crate::report::Finding;
use crate::seal::Seal;
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId};
use onrecord_core::statement::State;
use std::collections::BTreeMap;

/// A whole ledger that was read and checked beforehand: a few bytes for each entry, and a little for each run.
#[derive(Clone, Debug, Default)]
pub struct LedgerCopy {
    pub(crate) origin: Option<String>,
    pub(crate) leaves: Leaves,
    pub(crate) runs: BTreeMap<RunId, Known>,
    /// Seal keys by the index of the entry that revokes them.
    pub(crate) revoked: BTreeMap<Hash, u64>,
    pub(crate) findings: Vec<Finding>,
}

/// What the ledger says of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub openings: Vec<Hash>,
    pub seals: Vec<(Hash, State)>,
    /// All of them, since a later one says nothing of which frames an earlier one had.
    pub heads: Vec<State>,
    /// Indices of its erasures under a hold.
    pub held: Vec<u64>,
}

impl LedgerCopy {
    /// The origin that its checkpoint names.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Its entries.
    pub fn size(&self) -> u64 {
        self.leaves.size()
    }

    /// Leaf hash of an entry; `None` beyond the last.
    pub fn leaf(&self, index: u64) -> Option<Hash> {
        self.leaves.get(index)
    }

    /// Root over its first `size` entries; `None` beyond them.
    pub fn root_at(&self, size: u64) -> Option<Hash> {
        self.leaves.root_at(size)
    }

    /// What is wrong with it by itself.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether what was found wrong makes it useless as a witness: it does not hang together, or nobody stands for it.
    fn unusable(finding: &&Finding) -> bool {
        matches!(
            finding.stage,
            Stage::Container
                | Stage::Proof
                | Stage::LedgerRoot
                | Stage::LedgerTiles
                | Stage::LedgerQuorum
        ) && finding.code != Code::NoTrust
    }
}

pub(crate) fn check(
    check: &mut Check<'_>,
    copy: &LedgerCopy,
    frames: &Frames,
    seal: Option<&Seal>,
    lines: &Lines,
    origin: Option<&Origin>,
) {
    let mut usable = true;
    for finding in copy.findings.iter().filter(LedgerCopy::unusable) {
        let stage = match finding.status {
            Status::Unusable => Stage::Container,
            _ => Stage::LedgerCopy,
        };
        check.findings.push_as(
            finding.status,
            stage,
            finding.code,
            None,
            format!("your copy of the ledger: {}", finding.cause),
        );
        usable = false;
    }
    if !usable {
        return;
    }
    if let Some(other) = copy.findings.iter().find(|one| one.code != Code::NoTrust) {
        check.skip(format!(
            "your copy of the ledger has a fault of its own ({}); check it by itself",
            other.code
        ));
    }
    if let (Some(found), Some(origin)) = (&copy.origin, origin)
        && found != origin.as_str()
    {
        check.push(
            Stage::LedgerCopy,
            Code::CheckpointOrigin,
            format!("your copy is of {found:?}, the run's ledger is {origin}"),
        );
        return;
    }
    views(check, copy, seal, &lines.places);
    let run = frames
        .run()
        .or_else(|| Some(&seal?.run.as_ref()?.state.run));
    let known = run.and_then(|run| copy.runs.get(run));
    if let Some(known) = known {
        same_run(check, known, frames, seal);
        held(check, known, lines);
    }
    revoked(check, copy, seal);
    let behind = match seal.map(|seal| &seal.proven) {
        Some(Some(proven)) => proven.index >= copy.size(),
        // Nothing says where the seal stands.
        Some(None) => false,
        None => known.is_none_or(|known| known.openings.is_empty()),
    };
    if behind {
        check.push(
            Stage::LedgerCopy,
            Code::LedgerBehind,
            format!(
                "your copy has {} entries and ends before the run's",
                copy.size()
            ),
        );
    }
}

/// Every checkpoint that the bundle rests on is one of the copy's, and every entry is where it says.
fn views(check: &mut Check<'_>, copy: &LedgerCopy, seal: Option<&Seal>, places: &[Place]) {
    let sealed = seal.and_then(|seal| {
        let proven = seal.proven.as_ref()?;
        let checkpoint = proven.checkpoint.as_ref()?;
        Some((proven.index, seal.leaf(), checkpoint.size, checkpoint.root))
    });
    let lines = places
        .iter()
        .map(|place| (place.index, place.leaf, place.size, place.root));
    for (index, leaf, size, root) in sealed.into_iter().chain(lines) {
        if copy.leaves.get(index).is_some_and(|known| known != leaf) {
            check.push(
                Stage::LedgerCopy,
                Code::SplitView,
                format!("entry {index} is another one in your copy"),
            );
        }
        if copy.leaves.root_at(size).is_some_and(|known| known != root) {
            check.push(
                Stage::LedgerCopy,
                Code::SplitView,
                format!("the ledger's root at {size} entries is another one in your copy"),
            );
        }
    }
}

/// What the copy says of this run, against what is here.
fn same_run(check: &mut Check<'_>, known: &Known, frames: &Frames, seal: Option<&Seal>) {
    for (leaf, state) in &known.seals {
        match seal {
            Some(seal) if seal.leaf() == *leaf => {}
            Some(_) => check.push(
                Stage::LedgerCopy,
                Code::SecondSeal,
                "your copy has another seal of the run",
            ),
            None => head(check, frames, state),
        }
    }
    if seal.is_some() && known.seals.len() > 1 && !check.findings.has(Code::SecondSeal) {
        check.push(
            Stage::LedgerCopy,
            Code::SecondSeal,
            "your copy has the run's seal twice",
        );
    }
    for state in &known.heads {
        head(check, frames, state);
    }
    let opened = frames.leaves.first();
    if opened.is_some_and(|opened| known.openings.iter().any(|one| *one != opened)) {
        check.push(
            Stage::LedgerCopy,
            Code::RunOpen,
            "your copy opens the run with another frame 0",
        );
    }
    if known.openings.len() > 1 {
        check.push(
            Stage::LedgerCopy,
            Code::SecondOpen,
            "your copy opens the run more than once",
        );
    }
}

/// A hold that was left out of `ledger.ndjson` still forbade the erasures that the bundle rests on.
fn held(check: &mut Check<'_>, known: &Known, lines: &Lines) {
    for index in &known.held {
        if lines.certificates.contains_key(index) {
            check.push(
                Stage::LedgerCopy,
                Code::ErasureHeld,
                format!("your copy has a hold that was in force at the erasure at index {index}"),
            );
        }
    }
}

/// A revocation that was left out of `ledger.ndjson` still ended the key.
fn revoked(check: &mut Check<'_>, copy: &LedgerCopy, seal: Option<&Seal>) {
    if let Some(seal) = seal
        && let Some(proven) = &seal.proven
        && let Some(revoked) = copy.revoked.get(&seal.signed.keyid)
        && *revoked < proven.index
    {
        check.push(
            Stage::LedgerCopy,
            Code::KeyRevoked,
            format!(
                "sealed at index {}, by your copy the key was revoked at {revoked}",
                proven.index
            ),
        );
    }
}

fn head(check: &mut Check<'_>, frames: &Frames, state: &State) {
    if let Err(cause) = frames.agree(state, None) {
        check.push(
            Stage::LedgerCopy,
            Code::RunHead,
            format!("your copy of the ledger: {cause}"),
        );
    }
}
