//! `ledger.ndjson`: statements about the run that come with its bundle (check 6).

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::frames::Frames;
use crate::payloads::{Certificate, Certificates};
use crate::proof::{self, Proven};
use crate::seal::Seal;
use crate::statement::{self, Signer, Statement};
use crate::tar::{Body, LineEnd, TarError};
use onrecord_core::bundle::LedgerLine;
use onrecord_core::digest::Hash;
use onrecord_core::id::Origin;
use onrecord_core::json::{self, Limits};
use onrecord_core::statement::{
    Erasure, Hold, HoldAction, KeyAction, KeyRole, Predicate, RunHead, RunOpen, RunSeal,
};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// Bytes of a line: an envelope and a proof, with every quote escaped.
const LINE_BYTES: usize = 512 * 1_024;

/// An entry by what a copy of the ledger can be asked about it.
pub(crate) struct Place {
    pub index: u64,
    pub leaf: Hash,
    pub size: u64,
    pub root: Hash,
}

/// What the lines said.
#[derive(Default)]
pub(crate) struct Lines {
    pub certificates: Certificates,
    /// Kept only where there is a copy of the ledger to compare with.
    pub places: Vec<Place>,
    /// Whether a line failed: what follows was not read.
    pub failed: bool,
    /// Index of the opening.
    opened: Option<u64>,
    last: Option<u64>,
    last_at: Option<Timestamp>,
    last_size: u64,
    /// Roots of the ledger by size, over all proofs of the bundle.
    roots: BTreeMap<u64, Hash>,
    /// Holds in force, by whether they are the run's or the tenant's, and matter.
    holds: BTreeSet<(bool, String)>,
    revoked: BTreeMap<Hash, u64>,
}

/// What a line is read against.
pub(crate) struct Context<'a> {
    pub frames: &'a Frames,
    pub seal: Option<&'a Seal>,
    pub origin: Option<&'a Origin>,
    pub keep_places: bool,
}

impl Context<'_> {
    /// Where the seal stands, by its proof.
    fn proven(&self) -> Option<&Proven> {
        self.seal?.proven.as_ref()
    }
}

/// The first failure of a line.
type Verdict = Result<(), (Code, String)>;

fn fail(code: Code, cause: impl Into<String>) -> Verdict {
    Err((code, cause.into()))
}

/// Reads `ledger.ndjson` up to the first line that fails.
pub(crate) fn read<R: BufRead>(
    check: &mut Check<'_>,
    context: &Context<'_>,
    body: &mut Body<'_, R>,
) -> Result<Lines, TarError> {
    let mut lines = Lines::default();
    if let Some(checkpoint) = context.proven().and_then(|one| one.checkpoint.as_ref()) {
        lines.roots.insert(checkpoint.size, checkpoint.root);
    }
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        number += 1;
        let verdict = match body.line(&mut line, LINE_BYTES)? {
            LineEnd::None => break,
            LineEnd::Torn | LineEnd::TooLong => {
                fail(Code::Malformed, "it is too long or does not end")
            }
            LineEnd::Whole => lines.line(check, context, &line),
        };
        if let Err((code, cause)) = verdict {
            check.push(
                Stage::LedgerLines,
                code,
                format!("ledger.ndjson, line {number}: {cause}"),
            );
            lines.failed = true;
            check.skip("the lines of ledger.ndjson after the first that failed");
            break;
        }
    }
    lines.finish(check, context);
    Ok(lines)
}

/// The seal has its place among the lines, though it is none of them: one index has one entry, and
/// times do not go back there either. Another seal has a code of its own.
fn beside_seal(context: &Context<'_>, statement: &Statement, index: u64) -> Verdict {
    let (Some(seal), Some(proven)) = (context.seal, context.proven()) else {
        return Ok(());
    };
    if matches!(statement.predicate, Some(Predicate::RunSeal(_))) {
        return Ok(());
    }
    if index == proven.index {
        return fail(
            Code::SplitView,
            format!("index {index} is the seal by its own proof"),
        );
    }
    let at = statement.predicate.as_ref().map(Predicate::at);
    let sealed_at = seal.run.as_ref().map(|run| run.sealed_at);
    let (Some(at), Some(sealed_at)) = (at, sealed_at) else {
        return Ok(());
    };
    if index < proven.index && at > sealed_at || index > proven.index && at < sealed_at {
        return fail(
            Code::LedgerOrder,
            format!(
                "index {index} is of {at}, the seal at index {} of {sealed_at}",
                proven.index
            ),
        );
    }
    Ok(())
}

impl Lines {
    fn line(&mut self, check: &mut Check<'_>, context: &Context<'_>, bytes: &[u8]) -> Verdict {
        let limits = Limits {
            bytes: LINE_BYTES,
            ..Limits::FRAME
        };
        if let Err(error) = json::check_canonical(bytes, limits) {
            return fail(Code::Malformed, error.to_string());
        }
        let line: LedgerLine = match json::typed(bytes) {
            Ok(line) => line,
            Err(error) => return fail(Code::Malformed, error.to_string()),
        };
        let mut first = None;
        let mut emit = |code, cause| {
            first.get_or_insert((code, cause));
        };
        let statement = statement::check(
            line.entry.as_bytes(),
            check.trust,
            context.origin,
            Code::LedgerStatement,
            &mut emit,
        );
        if let Some(failure) = first {
            return Err(failure);
        }
        let Some(statement) = statement else {
            return Ok(());
        };
        let (mut first, mut thin) = (None, None);
        let mut emit = |code, cause| {
            // Too few witnesses make a line weak, not false: what it says is still held against the rest.
            let slot = if code == Code::WitnessQuorum {
                &mut thin
            } else {
                &mut first
            };
            slot.get_or_insert((code, cause));
        };
        let proven = proof::check(
            line.proof.as_bytes(),
            &statement.signed.leaf,
            context.origin,
            check.trust,
            &mut emit,
        );
        if let Some(failure) = first {
            return Err(failure);
        }
        if let Some((code, cause)) = thin {
            check.push(Stage::LedgerLines, code, format!("ledger.ndjson: {cause}"));
        }
        let Some(proven) = proven else { return Ok(()) };
        if let Some(checkpoint) = proven.checkpoint {
            let known = *self.roots.entry(checkpoint.size).or_insert(checkpoint.root);
            if known != checkpoint.root {
                return fail(
                    Code::SplitView,
                    format!(
                        "the ledger's root at {} entries is {}, by another proof of the bundle {known}",
                        checkpoint.size, checkpoint.root
                    ),
                );
            }
            if context.keep_places {
                self.places.push(Place {
                    index: proven.index,
                    leaf: statement.signed.leaf,
                    size: checkpoint.size,
                    root: checkpoint.root,
                });
            }
        }
        self.in_order(&statement, proven.index)?;
        beside_seal(context, &statement, proven.index)?;
        self.says(check, context, &statement, proven.index)
    }

    /// Order, times and the signer's own end.
    fn in_order(&mut self, statement: &Statement, index: u64) -> Verdict {
        let at = statement.predicate.as_ref().map(Predicate::at);
        if let Some(last) = self.last.replace(index).filter(|last| index <= *last) {
            return fail(
                Code::LedgerOrder,
                format!("index {index} stands after {last}"),
            );
        }
        // A statement whose name is not known has no time that we could read.
        if let Some(at) = at
            && let Some(last) = self.last_at.replace(at).filter(|last| at < *last)
        {
            return fail(
                Code::LedgerOrder,
                format!("the time of index {index}, {at}, is before {last}, which stands earlier"),
            );
        }
        if let Signer::Trusted { until: Some(until) } = statement.signer
            && index >= until
        {
            return fail(
                Code::KeyRevoked,
                format!("index {index}, the key counts until {until}"),
            );
        }
        match self.revoked.get(&statement.signed.keyid) {
            Some(revoked) => fail(
                Code::KeyRevoked,
                format!("index {index}, the key was revoked at {revoked}"),
            ),
            None => Ok(()),
        }
    }

    fn says(
        &mut self,
        check: &mut Check<'_>,
        context: &Context<'_>,
        statement: &Statement,
        index: u64,
    ) -> Verdict {
        let Some(predicate) = &statement.predicate else {
            return Ok(());
        };
        if let Some(chain) = &context.frames.chain {
            if statement.signed.tenant != *chain.tenant() {
                return fail(
                    Code::Malformed,
                    format!("it is of tenant {}", statement.signed.tenant),
                );
            }
            let other = predicate.run().filter(|run| *run != chain.run());
            if let Some(other) = other
                && !matches!(predicate, Predicate::RunOpen(_))
            {
                return fail(Code::Malformed, format!("it is about run {other}"));
            }
        }
        match predicate {
            Predicate::RunSeal(seal) => self.says_seal(context, statement, seal, index),
            Predicate::RunOpen(open) => self.says_open(context, statement, open, index),
            Predicate::RunHead(head) => self.says_head(context, statement, head, index),
            Predicate::Erasure(erasure) => self.says_erasure(check, context, erasure, index),
            Predicate::Hold(hold) => {
                self.says_hold(hold);
                Ok(())
            }
            Predicate::Key(key)
                if key.action == KeyAction::Revoked && key.role == KeyRole::Seal =>
            {
                self.revoked.entry(key.keyid).or_insert(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn says_seal(
        &mut self,
        context: &Context<'_>,
        statement: &Statement,
        said: &RunSeal,
        index: u64,
    ) -> Verdict {
        let leaf = statement.signed.leaf;
        match context.seal {
            Some(seal) if seal.leaf() != leaf => fail(
                Code::SecondSeal,
                format!("index {index} is another seal of the run"),
            ),
            Some(seal)
                if seal
                    .proven
                    .as_ref()
                    .is_some_and(|proven| proven.index != index) =>
            {
                fail(
                    Code::SecondSeal,
                    format!("the seal stands at index {index} as well"),
                )
            }
            Some(_) => Ok(()),
            // The seal is not here, but its word is.
            None => context
                .frames
                .agree(&said.state, Some(&statement.signed.digest))
                .map_err(|cause| (Code::RunHead, cause)),
        }
    }

    fn says_open(
        &mut self,
        context: &Context<'_>,
        statement: &Statement,
        said: &RunOpen,
        index: u64,
    ) -> Verdict {
        let Some(chain) = &context.frames.chain else {
            self.opened = Some(index);
            return Ok(());
        };
        let run_no = chain.opened().map(|opened| opened.run_no);
        if said.state.run != *chain.run() {
            return if run_no == Some(said.run_no) {
                fail(
                    Code::SecondOpen,
                    format!("run {} has the same number", said.state.run),
                )
            } else {
                fail(
                    Code::Malformed,
                    format!("it is about run {}", said.state.run),
                )
            };
        }
        if self.opened.is_some() {
            return fail(
                Code::SecondOpen,
                format!("index {index} opens the run again"),
            );
        }
        self.opened = Some(index);
        if self.last_size > 0 {
            return fail(
                Code::LedgerOrder,
                format!("index {index} opens the run after a head of it"),
            );
        }
        if run_no.is_some_and(|run_no| run_no != said.run_no) {
            return fail(
                Code::RunOpen,
                format!("it opens run number {}", said.run_no),
            );
        }
        let agree = context
            .frames
            .agree(&said.state, Some(&statement.signed.digest));
        agree.map_err(|cause| (Code::RunOpen, cause))
    }

    fn says_head(
        &mut self,
        context: &Context<'_>,
        statement: &Statement,
        said: &RunHead,
        index: u64,
    ) -> Verdict {
        let sealed = context.proven();
        if sealed.is_some_and(|proven| proven.index < index) {
            return fail(
                Code::LedgerOrder,
                format!("a head at index {index}, after the seal"),
            );
        }
        if said.state.size < self.last_size {
            return fail(
                Code::RunHead,
                format!(
                    "a head of {} frames after one of {}",
                    said.state.size, self.last_size
                ),
            );
        }
        self.last_size = said.state.size;
        context
            .frames
            .agree(&said.state, Some(&statement.signed.digest))
            .map_err(|cause| (Code::RunHead, cause))
    }

    fn says_erasure(
        &mut self,
        check: &mut Check<'_>,
        context: &Context<'_>,
        said: &Erasure,
        index: u64,
    ) -> Verdict {
        if let Err(cause) = context.frames.agree(&said.state, None) {
            return fail(Code::RunHead, format!("the erasure: {cause}"));
        }
        if let Some((of_run, matter)) = self.holds.first() {
            let whose = if *of_run { "run" } else { "tenant" };
            check.push(
                Stage::LedgerEnd,
                Code::ErasureHeld,
                format!("erased at index {index} while the {whose} was held for {matter:?}"),
            );
        }
        // What is not of the run is not kept, so that certificates never outgrow its payloads.
        let named = said.commits.iter().flatten();
        let mut commits: Vec<Hash> = named
            .filter(|commit| context.frames.payloads.has(commit))
            .copied()
            .collect();
        commits.sort_unstable();
        commits.dedup();
        self.certificates.insert(
            index,
            Certificate {
                size: said.state.size,
                tiers: said.whole_tiers(),
                commits,
            },
        );
        Ok(())
    }

    fn says_hold(&mut self, said: &Hold) {
        let hold = (said.run.is_some(), said.matter.clone());
        match said.action {
            HoldAction::Set => self.holds.insert(hold),
            HoldAction::Released => self.holds.remove(&hold),
        };
    }

    fn finish(&self, check: &mut Check<'_>, context: &Context<'_>) {
        if let Some(seal) = context.seal
            && let Some(proven) = &seal.proven
            && let Some(revoked) = self.revoked.get(&seal.signed.keyid)
            && *revoked < proven.index
        {
            check.push(
                Stage::LedgerLines,
                Code::KeyRevoked,
                format!(
                    "sealed at index {}, the key was revoked at {revoked}",
                    proven.index
                ),
            );
        }
        let sealed = context.seal.and_then(|seal| seal.run.as_ref());
        if let (Some(run), Some(index), false) = (sealed, self.opened, self.failed)
            && run.ledger.open_index != index
        {
            check.push(
                Stage::LedgerLines,
                Code::RunOpen,
                format!(
                    "the seal names the opening at index {}, it stands at {index}",
                    run.ledger.open_index
                ),
            );
        }
        if self.opened.is_none() && !self.failed && check.checks_ledger() {
            check.push(
                Stage::LedgerEnd,
                Code::OpenMissing,
                "ledger.ndjson has no opening of the run",
            );
        }
    }
}
