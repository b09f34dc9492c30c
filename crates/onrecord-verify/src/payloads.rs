//! Payloads: their states, and disclosed ones against their commitments (check 9).

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::presented::{Matched, Presented};
use crate::tar::{Body, LineEnd, TarError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::bundle::{Disclosure, State};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::json::{self, Limits};
use onrecord_core::payload::{Committer, padded_size};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// Bytes of a line of `disclosures.ndjson`: about 220 are needed.
const LINE_BYTES: usize = 1_024;

/// A payload of the frames, in about 100 bytes.
struct Record {
    commit: Hash,
    seq: u64,
    size: u64,
    tier: u8,
    kept: bool,
    told: Option<Told>,
    opened: Opened,
}

/// What the disclosures say.
#[derive(Clone, Copy)]
enum Told {
    Disclosed(Hash),
    Erased(u64),
    Other(State),
}

/// Whether a payload that is here is the one that was committed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    Absent,
    Good,
    Bad,
}

/// What an erasure certificate covers.
pub(crate) struct Certificate {
    /// Frames below.
    pub size: u64,
    pub tiers: Vec<u8>,
    /// Sorted.
    pub commits: Vec<Hash>,
}

/// By index in the ledger.
pub(crate) type Certificates = BTreeMap<u64, Certificate>;

/// All payloads of a run, in frame order.
#[derive(Default)]
pub(crate) struct Ledger {
    records: Vec<Record>,
    /// Places of the records in the order of their commitments.
    by_commit: Vec<usize>,
    /// Whether the disclosures were read.
    read: bool,
    /// Whether the disclosures do not go with the frames, so that single ones say nothing.
    astray: bool,
}

/// What the states mean for the verdict.
pub(crate) struct Demands<'a> {
    pub full: bool,
    pub presented: &'a [Presented],
    /// Whether all frames could be read.
    pub whole: bool,
    /// `None` where certificates cannot be looked up.
    pub certificates: Option<&'a Certificates>,
}

impl Ledger {
    /// The payloads of the next frame.
    pub fn declare(&mut self, frame: &Frame<'_>) {
        self.records
            .extend(frame.payloads().iter().map(|one: &PayloadRef| Record {
                commit: one.commit,
                seq: frame.seq,
                size: one.size,
                tier: one.tier,
                kept: one.kept != Some(false),
                told: None,
                opened: Opened::Absent,
            }));
    }

    /// Once all frames passed: makes payloads findable.
    pub fn sort(&mut self) {
        self.by_commit = (0..self.records.len()).collect();
        let records = &self.records;
        self.by_commit
            .sort_unstable_by_key(|at| records[*at].commit);
    }

    fn find(&self, commit: &Hash) -> Option<usize> {
        let place = self
            .by_commit
            .binary_search_by_key(commit, |at| self.records[*at].commit);
        place.ok().map(|place| self.by_commit[place])
    }

    /// Whether the run has such a payload.
    pub fn has(&self, commit: &Hash) -> bool {
        self.find(commit).is_some()
    }

    /// Whether the payload is said to be in the bundle.
    pub fn is_disclosed(&self, commit: &Hash) -> bool {
        self.find(commit)
            .is_some_and(|at| matches!(self.records[at].told, Some(Told::Disclosed(_))))
    }

    /// Reads `disclosures.ndjson`. `known` is whether all frames are.
    pub fn read<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        body: &mut Body<'_, R>,
        known: bool,
    ) -> Result<(), TarError> {
        self.read = true;
        self.astray = !known;
        let mut line = Vec::new();
        let mut count = 0;
        loop {
            let end = body.line(&mut line, LINE_BYTES)?;
            match end {
                LineEnd::None => break,
                LineEnd::Torn | LineEnd::TooLong => {
                    self.stray(
                        check,
                        "a line of disclosures.ndjson is too long or does not end".into(),
                    );
                    return Ok(());
                }
                LineEnd::Whole => {}
            }
            match parse(&line, false) {
                Ok(one) => self.tell(check, count, &one),
                Err(cause) => {
                    self.stray(check, format!("line {}: {cause}", count + 1));
                    return Ok(());
                }
            }
            count += 1;
        }
        self.told_all(check, count);
        Ok(())
    }

    /// Takes the disclosures of a turn proof, payloads included.
    pub fn take(&mut self, check: &mut Check<'_>, all: &[Disclosure]) {
        for (count, one) in all.iter().enumerate() {
            if !one.fits(true) {
                self.stray(
                    check,
                    format!("disclosure {count} has not the members of its state"),
                );
                return;
            }
            self.tell(check, count, one);
            let Some(data) = &one.data else { continue };
            match STANDARD.decode(data) {
                Ok(data) => self.open_whole(&one.commit, &data),
                Err(_) => self.stray(
                    check,
                    format!("the data of disclosure {count} is not base64"),
                ),
            }
        }
        self.told_all(check, all.len());
    }

    /// A turn proof without disclosures: nothing but commitments is shown.
    pub fn withhold(&mut self) {
        for record in &mut self.records {
            let state = if record.kept {
                State::Withheld
            } else {
                State::NotKept
            };
            record.told = Some(Told::Other(state));
        }
    }

    fn stray(&mut self, check: &mut Check<'_>, cause: String) {
        check.push(Stage::Payloads, Code::Disclosures, cause);
        self.astray = true;
    }

    /// The state of the payload at this place.
    fn tell(&mut self, check: &mut Check<'_>, count: usize, one: &Disclosure) {
        let at = match self.records.get(count) {
            Some(record) if record.commit == one.commit => Some(count),
            _ => {
                if !self.astray {
                    self.stray(
                        check,
                        format!(
                            "disclosure {count} is of {}, which is not the payload at this place",
                            one.commit
                        ),
                    );
                }
                self.find(&one.commit)
            }
        };
        let Some(record) = at.and_then(|at| self.records.get_mut(at)) else {
            return;
        };
        if record.kept == (one.state == State::NotKept) {
            let cause = if record.kept {
                "is said not to be kept, its frame does not say so"
            } else {
                "was not kept by its frame, and is said to have been"
            };
            check.push_at(
                Stage::Payloads,
                Code::Disclosures,
                record.seq,
                format!("payload {} {cause}", one.commit),
            );
        }
        record.told = match (one.state, one.salt, one.index) {
            (State::Disclosed, Some(salt), _) => Some(Told::Disclosed(salt)),
            (State::Erased, _, Some(index)) => Some(Told::Erased(index)),
            (state, _, _) => Some(Told::Other(state)),
        };
    }

    fn told_all(&mut self, check: &mut Check<'_>, count: usize) {
        if count < self.records.len() && !self.astray {
            self.stray(
                check,
                format!("{count} disclosures for {} payloads", self.records.len()),
            );
        }
    }

    /// Reads a payload of the bundle as it streams.
    pub fn open<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        commit: &Hash,
        body: &mut Body<'_, R>,
    ) -> Result<(), TarError> {
        let at = self.find(commit);
        let Some((at, salt)) = at.and_then(|at| match self.records[at].told {
            Some(Told::Disclosed(salt)) => Some((at, salt)),
            _ => None,
        }) else {
            // Without the disclosures nothing says what should not be here.
            if self.read && !self.astray {
                let seq = at.map(|at| self.records[at].seq);
                check.findings.push(
                    Stage::Payloads,
                    Code::Disclosures,
                    seq,
                    format!("payload {commit} is in the bundle and not among the disclosed"),
                );
            }
            return Ok(());
        };
        let mut committer = Committer::new(&salt.0);
        let mut length = 0;
        loop {
            let chunk = body.chunk()?;
            let part = chunk.len();
            if part == 0 {
                break;
            }
            committer.update(chunk);
            length += part as u64;
            body.consume(part);
        }
        self.judge(at, committer, length);
        Ok(())
    }

    fn open_whole(&mut self, commit: &Hash, data: &[u8]) {
        let Some(at) = self.find(commit) else { return };
        if let Some(Told::Disclosed(salt)) = self.records[at].told {
            let mut committer = Committer::new(&salt.0);
            committer.update(data);
            self.judge(at, committer, data.len() as u64);
        }
    }

    fn judge(&mut self, at: usize, committer: Committer, length: u64) {
        let record = &mut self.records[at];
        let good = committer.finish() == record.commit && padded_size(length) == record.size;
        record.opened = if good { Opened::Good } else { Opened::Bad };
    }

    /// All states at the end: the findings in the order of check 9, and the counts.
    pub fn finish(&self, check: &mut Check<'_>, demands: &Demands<'_>) {
        let counts = &mut check.payloads;
        counts.count = self.records.len() as u64;
        for record in &self.records {
            match record.told {
                Some(Told::Disclosed(_)) => counts.disclosed += 1,
                Some(Told::Erased(_)) => counts.erased += 1,
                Some(Told::Other(State::Withheld)) => counts.withheld += 1,
                Some(Told::Other(State::Missing)) => counts.missing += 1,
                Some(Told::Other(State::NotKept)) => counts.not_kept += 1,
                Some(Told::Other(_)) | None => {}
            }
        }
        self.each(
            check,
            Code::PayloadCommit,
            "is not what was committed to",
            |one| one.opened == Opened::Bad,
        );
        self.each(
            check,
            Code::PayloadMissing,
            "is not here",
            |one| match one.told {
                Some(Told::Disclosed(_)) => one.opened == Opened::Absent,
                Some(Told::Other(state)) => state == State::Missing,
                _ => false,
            },
        );
        if let Some(certificates) = demands.certificates {
            self.each(check, Code::ErasureUncertified, "is erased, and the certificate that is named does not cover it", |one| {
                matches!(one.told, Some(Told::Erased(index)) if !certificates.get(&index).is_some_and(|certificate| certificate.covers(one)))
            });
        }
        if demands.full {
            self.each(check, Code::PayloadWithheld, "is withheld", |one| {
                matches!(one.told, Some(Told::Other(State::Withheld)))
            });
        }
        let shown = self.present(check, demands);
        skip_counts(check, shown);
    }

    /// Holds what is presented against the commitments; how many of the payloads that were kept are among it.
    fn present(&self, check: &mut Check<'_>, demands: &Demands<'_>) -> u64 {
        let mut kept = BTreeSet::new();
        for one in demands.presented {
            let commit = one.commit;
            match self.find(&commit).map(|at| &self.records[at]) {
                // Behind a broken frame there may be others.
                None if !demands.whole => {
                    check.skip(format!(
                        "presented payload {commit}, which is in no frame that could be read"
                    ));
                }
                None => check.push(
                    Stage::Payloads,
                    Code::PayloadCommit,
                    format!("{commit}, which is presented, is no payload's here"),
                ),
                Some(record) if one.is(record.size) => {
                    let seq = record.seq;
                    check.presented.push(Matched { commit, seq });
                    if !record.kept {
                        kept.insert(commit);
                    }
                }
                Some(record) => check.push_at(
                    Stage::Payloads,
                    Code::PayloadCommit,
                    record.seq,
                    format!("what is presented for payload {commit} is not what was committed to"),
                ),
            }
        }
        kept.len() as u64
    }

    fn each(
        &self,
        check: &mut Check<'_>,
        code: Code,
        what: &str,
        wanted: impl Fn(&Record) -> bool,
    ) {
        for record in self.records.iter().filter(|record| wanted(record)) {
            check.push_at(
                Stage::Payloads,
                code,
                record.seq,
                format!("payload {} {what}", record.commit),
            );
        }
    }
}

impl Certificate {
    fn covers(&self, record: &Record) -> bool {
        record.seq < self.size
            && (self.tiers.contains(&record.tier)
                || self.commits.binary_search(&record.commit).is_ok())
    }
}

fn skip_counts(check: &mut Check<'_>, shown: u64) {
    let counts = check.payloads.clone();
    for (count, what) in [
        (counts.withheld, "withheld payloads"),
        (counts.erased, "erased payloads"),
        (
            counts.not_kept.saturating_sub(shown),
            "payloads that the agent kept",
        ),
    ] {
        if count > 0 {
            check.skip(format!("the content of {count} {what}"));
        }
    }
}

fn parse(line: &[u8], in_turn_proof: bool) -> Result<Disclosure, String> {
    let limits = Limits {
        bytes: LINE_BYTES,
        ..Limits::FRAME
    };
    json::check_canonical(line, limits).map_err(|error| error.to_string())?;
    let one: Disclosure = onrecord_core::json::typed(line).map_err(|error| error.to_string())?;
    if one.fits(in_turn_proof) {
        Ok(one)
    } else {
        Err("it has not the members of its state".into())
    }
}
