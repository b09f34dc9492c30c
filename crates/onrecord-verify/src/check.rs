//! What all checks write into, and how the report comes of it.

use crate::Options;
use crate::code::{Code, Stage, Status};
use crate::presented::Matched;
use crate::proof::Proven;
use crate::report::{Facts, Findings, Line, LineState, PROVES, Payloads, Report, Verdict, What};
use crate::statement::Signer;
use crate::tar::TarError;
use crate::trust::Trust;
use onrecord_core::invariants::Meaning;
use onrecord_core::statement::Completeness;

/// Of what an unusable input leaves open.
const UNREAD: &str = "the input could not be read to its end";

/// The state of a verification.
pub(crate) struct Check<'a> {
    pub trust: Option<&'a Trust>,
    pub findings: Findings,
    pub facts: Facts,
    pub payloads: Payloads,
    pub meaning: Meaning,
    pub not_checked: Vec<String>,
    /// Of the seal, once it was read.
    pub signer: Option<Signer>,
    pub completeness: Option<Completeness>,
    /// In words, once the seal's proof or the ledger held.
    pub ledger: Option<String>,
    /// Receipts that are of this run.
    pub receipts: usize,
    /// Presented payloads that are of this run.
    pub presented: Vec<Matched>,
}

impl<'a> Check<'a> {
    pub fn new(trust: Option<&'a Trust>) -> Self {
        Self {
            trust,
            findings: Findings::default(),
            facts: Facts::default(),
            payloads: Payloads::default(),
            meaning: Meaning::default(),
            not_checked: Vec::new(),
            signer: None,
            completeness: None,
            ledger: None,
            receipts: 0,
            presented: Vec::new(),
        }
    }

    pub fn push(&mut self, stage: Stage, code: Code, cause: impl Into<String>) {
        self.findings.push(stage, code, None, cause);
    }

    pub fn push_at(&mut self, stage: Stage, code: Code, seq: u64, cause: impl Into<String>) {
        self.findings.push(stage, code, Some(seq), cause);
    }

    pub fn push_tar(&mut self, error: &TarError) {
        let code = match error {
            TarError::Malformed(_) => Code::Tar,
            TarError::Read(_) => Code::Input,
        };
        self.push(Stage::Container, code, error.to_string());
    }

    pub fn skip(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.not_checked.contains(&what) {
            self.not_checked.push(what);
        }
    }

    /// Names what only whole runs are compared with.
    pub fn skip_bundles_only(&mut self, options: &Options) {
        if options.ledger.is_some() {
            self.skip("your copy of the ledger: it is compared with run bundles");
        }
        if !options.receipts.is_empty() || !options.signed_receipts.is_empty() {
            self.skip("receipts: they are compared with run bundles");
        }
    }

    /// Says once and for all what trust is missing.
    pub fn note_trust(&mut self) {
        match self.trust {
            None => {
                self.push(
                    Stage::Container,
                    Code::NoTrust,
                    "no trust file, so no signature was checked: ask the operator, over a channel that you trust, for what `onrecord trust > FILE` prints and give it with --trust FILE, or pin the key yourself",
                );
                self.skip("signatures, since there is no trust file");
            }
            Some(trust) if !trust.has_logs() => {
                self.skip("the ledger, since the trust file has no `log` line");
            }
            Some(_) => {}
        }
    }

    /// Whether checkpoints are to be believed only with their signatures.
    pub fn checks_ledger(&self) -> bool {
        self.trust.is_some_and(Trust::has_logs)
    }

    /// Keeps what a proof said of the seal.
    pub fn note_proven(&mut self, proven: &Proven) {
        self.facts.ledger_index = Some(proven.index);
        let Some(checkpoint) = &proven.checkpoint else {
            return;
        };
        self.facts.ledger_size = Some(checkpoint.size);
        self.ledger = Some(format!(
            "entry {} of {}, under a checkpoint of {} entries{}",
            proven.index,
            checkpoint.origin,
            checkpoint.size,
            proven.cosigned_by(self.trust)
        ));
    }

    pub fn finish(self) -> Report {
        let integrity = self.integrity();
        let signer_trust = self.signer_trust();
        let completeness = self.completeness();
        let ledger = self.ledger();
        let (findings, more_findings) = self.findings.sorted();
        Report {
            verdict: Verdict::of(&findings),
            facts: self.facts,
            integrity,
            signer_trust,
            completeness,
            ledger,
            payloads: self.payloads,
            presented: self.presented,
            meaning: self.meaning,
            findings,
            more_findings,
            not_checked: self.not_checked,
            proves: PROVES.into(),
        }
    }

    fn integrity(&self) -> Line {
        let frames = self.facts.size.unwrap_or_default();
        let what = match self.facts.what {
            What::Ledger => "entries",
            _ => "frames",
        };
        if self.findings.has_status(Status::Unusable) {
            Line::new(LineState::NotChecked, UNREAD)
        } else if self.findings.has_status(Status::Altered) {
            Line::new(LineState::Failed, "the evidence is not what was recorded")
        } else if frames == 0 {
            Line::new(LineState::NotChecked, format!("no {what}"))
        } else {
            let receipts = match self.receipts {
                0 => String::new(),
                1 => ", and the receipt holds".to_owned(),
                count => format!(", and {count} receipts hold"),
            };
            let text = match (self.facts.what, self.facts.seq) {
                (What::Frame, Some(seq)) => {
                    format!("frame {seq} of a run of {frames} frames, unchanged")
                }
                _ => format!("{frames} {what}, unchanged{receipts}"),
            };
            Line::new(LineState::Ok, text)
        }
    }

    fn signer_trust(&self) -> Line {
        if self.facts.what == What::Ledger {
            return self.ledger_signers();
        }
        let key = self
            .facts
            .signer
            .map(|keyid| keyid.hex())
            .unwrap_or_default();
        match self.signer {
            Some(Signer::Trusted { .. }) => {
                let tenant = self.facts.tenant.as_deref().unwrap_or_default();
                Line::new(
                    LineState::Ok,
                    format!("sealed by the pinned key {key} of {tenant}"),
                )
            }
            Some(Signer::Unknown) => Line::new(
                LineState::Incomplete,
                format!("sealed by key {key}, which you have not pinned"),
            ),
            Some(Signer::False) => Line::new(
                LineState::Failed,
                format!(
                    "the signature is not that of the pinned key {key}, or it is not pinned for this tenant and ledger"
                ),
            ),
            Some(Signer::Unchecked) => Line::new(
                LineState::NotChecked,
                format!("sealed by key {key}; no trust file says whose it is"),
            ),
            // Where nothing could be read, nothing can be said to be missing.
            None if self.findings.has_status(Status::Unusable) => {
                Line::new(LineState::NotChecked, UNREAD)
            }
            None => Line::new(
                LineState::Incomplete,
                "no seal, so nobody answers for the whole",
            ),
        }
    }

    fn ledger_signers(&self) -> Line {
        if self.trust.is_none() {
            Line::new(LineState::NotChecked, "no trust file")
        } else if self.findings.has(Code::SignerUnknown) {
            Line::new(
                LineState::Incomplete,
                "signed by keys that you have not pinned",
            )
        } else if self.findings.has(Code::LedgerStatement)
            || self.findings.has(Code::CheckpointSignature)
        {
            Line::new(LineState::Failed, "a signature is false")
        } else {
            Line::new(
                LineState::Ok,
                "every entry and the checkpoint are signed by pinned keys",
            )
        }
    }

    fn completeness(&self) -> Line {
        if self.findings.has_status(Status::Unusable) {
            return Line::new(LineState::NotChecked, UNREAD);
        }
        let gaps = [
            Code::MemberMissing,
            Code::Unsealed,
            Code::NoFrames,
            Code::TurnOpen,
            Code::PayloadMissing,
            Code::ErasureUncertified,
            Code::PayloadWithheld,
            Code::NoEntries,
        ];
        if let Some(gap) = self.findings.iter().find(|one| gaps.contains(&one.code)) {
            return Line::new(LineState::Incomplete, gap.cause.clone());
        }
        if self.facts.what == What::Ledger {
            return Line::new(LineState::Ok, "every entry under the checkpoint is here");
        }
        if self.completeness.is_some() && self.findings.has_status(Status::Altered) {
            return Line::new(
                LineState::NotChecked,
                "what the seal says of the run's end says nothing of what was altered",
            );
        }
        let Some(completeness) = self.completeness else {
            return Line::new(LineState::NotChecked, "no seal says how complete it is");
        };
        let of_run = match completeness {
            Completeness::Full => "recorded to its end, by the seal",
            Completeness::Sampled => {
                "recorded to its end, but sampled: some frames were left out on purpose"
            }
            Completeness::Interrupted => {
                "interrupted: the run has no end of its own, the seal says so"
            }
        };
        let text = match (self.facts.what, self.facts.turn, self.facts.size) {
            (What::Turn, Some(turn), Some(size)) => format!(
                "turn {turn} is whole, all {size} frames from its beginning to its turn_end; of the run: {of_run}"
            ),
            (What::Frame, ..) => {
                format!("one frame, which says nothing of the others; of the run: {of_run}")
            }
            _ => of_run.to_owned(),
        };
        Line::new(LineState::Ok, text)
    }

    fn ledger(&self) -> Line {
        let broken = self.findings.iter().any(|one| {
            one.status == Status::Altered
                && matches!(
                    one.stage,
                    Stage::Proof
                        | Stage::LedgerLines
                        | Stage::LedgerEnd
                        | Stage::LedgerCopy
                        | Stage::LedgerRoot
                        | Stage::LedgerTiles
                        | Stage::LedgerEntries
                )
        });
        let gaps = [
            Code::LedgerMissing,
            Code::WitnessQuorum,
            Code::TimeAnchor,
            Code::TimeAuthority,
            Code::OpenMissing,
            Code::LedgerBehind,
            Code::NoEntries,
        ];
        if broken {
            return Line::new(
                LineState::Failed,
                "the ledger contradicts the evidence, or itself",
            );
        }
        if let Some(gap) = self.findings.iter().find(|one| gaps.contains(&one.code)) {
            return Line::new(LineState::Incomplete, gap.cause.clone());
        }
        let unusable = self.findings.has_status(Status::Unusable);
        if unusable && self.ledger.is_none() {
            return Line::new(LineState::NotChecked, UNREAD);
        }
        if !self.checks_ledger() {
            return Line::new(LineState::NotChecked, "no log is pinned");
        }
        match &self.ledger {
            Some(text) => Line::new(LineState::Ok, text.clone()),
            None => Line::new(LineState::NotChecked, "no seal to look for in the ledger"),
        }
    }
}
