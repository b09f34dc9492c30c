//! The report: one verdict, what it rests on, and what was not checked (spec: `docs/spec/verification.md`).

use crate::code::{Code, Stage, Status};
use crate::presented::Matched;
use onrecord_core::digest::Hash;
use onrecord_core::invariants::Meaning;
use onrecord_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// What a verdict means, beside every verdict.
pub const PROVES: &str = "Integrity is neither completeness nor truth: this shows what was recorded, when and under which key, and that it is unchanged since. It does not show that everything was recorded, or that what was recorded is true.";
/// Findings kept of one code at one stage; more are counted.
const KEPT: usize = 16;

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The first failed check of the gravest status, or `verified`.
    pub code: Code,
    /// What was found there.
    pub detail: String,
    /// 0 verified, 1 altered, 2 incomplete, 3 unusable.
    pub exit_code: u8,
    /// The frame that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad_seq: Option<u64>,
    /// How grave.
    pub status: Status,
}

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was found and what was expected.
    pub cause: String,
    /// Which check.
    pub code: Code,
    /// The frame that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How grave.
    pub status: Status,
    #[serde(skip)]
    pub(crate) stage: Stage,
}

/// What was given to be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A run's bundle.
    Run,
    /// One turn.
    Turn,
    /// One frame.
    Frame,
    /// A whole ledger.
    Ledger,
    /// Nothing that could be recognised.
    #[default]
    Unknown,
}

/// Whether a line of the report is good news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineState {
    /// Checked, and it holds.
    Ok,
    /// Checked, and it does not.
    Failed,
    /// Something is missing.
    Incomplete,
    /// Not looked at.
    #[default]
    NotChecked,
}

/// One line of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Good news or not.
    pub state: LineState,
    /// In words.
    pub text: String,
}

impl Line {
    pub(crate) fn new(state: LineState, text: impl Into<String>) -> Self {
        Self {
            state,
            text: text.into(),
        }
    }
}

/// Payloads by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payloads {
    /// Of all frames.
    pub count: u64,
    /// Here, and opened against its commitment.
    pub disclosed: u64,
    /// Erased.
    pub erased: u64,
    /// Lost.
    pub missing: u64,
    /// Kept by the agent.
    pub not_kept: u64,
    /// Left out by the exporter.
    pub withheld: u64,
}

/// What is in the evidence, as far as it was read; taken from it, so believe it as far as the verdict goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// What was given.
    pub what: What,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Its number in the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_no: Option<u64>,
    /// The turn of a turn proof, or that of the frame of a frame proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// The place of the frame of a frame proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Frames, or entries of a ledger; with a frame proof those of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Hash of the last frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Hash>,
    /// Root over all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Hash>,
    /// Time of frame 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// The seal's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_at: Option<Timestamp>,
    /// When a pinned authority stamped the seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamped_at: Option<Timestamp>,
    /// Key id of who sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<Hash>,
    /// Origin of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_origin: Option<String>,
    /// Index of the seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_index: Option<u64>,
    /// Size of the checkpoint that the seal is proven under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_size: Option<u64>,
}

/// The whole answer; the server gives the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What it comes to.
    pub verdict: Verdict,
    /// What is in the evidence.
    #[serde(flatten)]
    pub facts: Facts,
    /// Whether all bytes are as they were recorded.
    pub integrity: Line,
    /// Whether the signer is one that you trust.
    pub signer_trust: Line,
    /// Whether the run was recorded and handed over to its end.
    pub completeness: Line,
    /// Whether the seal stands in the ledger.
    pub ledger: Line,
    /// The payloads.
    pub payloads: Payloads,
    /// Payloads that were presented, and are those that frames committed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub presented: Vec<Matched>,
    /// Warnings about what the run means, which never change the verdict.
    pub meaning: Meaning,
    /// Every failed check, the gravest first.
    pub findings: Vec<Finding>,
    /// Failed checks that are not listed, since enough of their kind are.
    pub more_findings: u64,
    /// What was not checked, and why.
    pub not_checked: Vec<String>,
    /// What the verdict means and what it does not.
    pub proves: String,
}

/// Findings as they are made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    more: u64,
}

impl Findings {
    pub fn push(&mut self, stage: Stage, code: Code, seq: Option<u64>, cause: impl Into<String>) {
        self.push_as(code.status(), stage, code, seq, cause);
    }

    pub fn push_as(
        &mut self,
        status: Status,
        stage: Stage,
        code: Code,
        seq: Option<u64>,
        cause: impl Into<String>,
    ) {
        let alike = |one: &&Finding| one.code == code && one.stage == stage;
        if self.list.iter().filter(alike).count() >= KEPT {
            self.more += 1;
            return;
        }
        self.list.push(Finding {
            cause: cause.into(),
            code,
            seq,
            status,
            stage,
        });
    }

    pub fn has(&self, code: Code) -> bool {
        self.list.iter().any(|one| one.code == code)
    }

    pub fn has_status(&self, status: Status) -> bool {
        self.list.iter().any(|one| one.status == status)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.list.iter()
    }

    /// As they were made.
    pub fn taken(self) -> Vec<Finding> {
        self.list
    }

    /// Gravest first, then in the order of the checks, then as they were made. That there is no trust file
    /// is known from the beginning, and named after a member that is missing.
    pub fn sorted(mut self) -> (Vec<Finding>, u64) {
        self.list
            .sort_by_key(|one| (one.status.rank(), one.stage, one.code == Code::NoTrust));
        (self.list, self.more)
    }
}

impl Verdict {
    /// Named by the first of sorted findings.
    pub(crate) fn of(sorted: &[Finding]) -> Self {
        match sorted.first() {
            Some(first) => Self {
                code: first.code,
                detail: first.cause.clone(),
                exit_code: first.status.exit_code(),
                first_bad_seq: first.seq,
                status: first.status,
            },
            None => Self {
                code: Code::Verified,
                detail: "every check that was made holds".into(),
                exit_code: 0,
                first_bad_seq: None,
                status: Status::Verified,
            },
        }
    }
}

impl Report {
    /// Nothing was checked: the arguments, the trust file or the receipts are wrong.
    pub fn usage(detail: impl Into<String>) -> Self {
        Self::unusable(Code::Usage, detail)
    }

    /// Nothing was checked: the input cannot be.
    pub fn unusable(code: Code, detail: impl Into<String>) -> Self {
        let mut check = crate::check::Check::new(None);
        check.findings.push(Stage::Container, code, None, detail);
        check.finish()
    }
}
