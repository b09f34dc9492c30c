//! What an audit finds, row by row.

use onrecord_core::digest::Hash;
use onrecord_verify::{Code, Status};
use serde::Serialize;

/// Findings of one run or ledger that are told; more of them are counted.
const TOLD: usize = 100;

/// A column that does not follow from the bytes.
pub(super) const COLUMN: &str = "column";
/// A row that has to be there and is not.
pub(super) const ROW_MISSING: &str = "row_missing";
/// A row that nothing accounts for.
pub(super) const ROW_SURPLUS: &str = "row_surplus";
/// A payload that the ledger says is erased, and that lies there.
pub(super) const NOT_ERASED: &str = "not_erased";

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A code of the verifier, or `column`, `row_missing`, `row_surplus`, `not_erased`.
    pub code: &'static str,
    /// Altered or incomplete.
    pub status: Status,
    /// Whose.
    pub tenant: String,
    /// The run that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// The entry of the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    /// Where it lies.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// What was found and what was expected.
    pub cause: String,
}

/// Which row of which table.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    pub(super) seq: Option<i64>,
    pub(super) index: Option<i64>,
}

impl At {
    /// A column of the row that a run, or a tenant, has one of.
    pub(super) const fn of(table: &'static str, column: &'static str) -> Self {
        Self {
            table,
            column,
            seq: None,
            index: None,
        }
    }

    pub(super) fn seq(self, seq: i64) -> Self {
        Self {
            seq: Some(seq),
            ..self
        }
    }

    pub(super) fn index(self, index: i64) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }
}

/// The findings about one ledger or one run.
#[derive(Debug)]
pub(super) struct Found {
    tenant: String,
    run: Option<String>,
    pub(super) findings: Vec<Finding>,
    /// Those that are not among them.
    pub(super) more: u64,
}

impl Found {
    pub(super) fn new(tenant: &str, run: Option<String>) -> Self {
        Self {
            tenant: tenant.to_owned(),
            run,
            findings: Vec::new(),
            more: 0,
        }
    }

    pub(super) fn push(
        &mut self,
        code: &'static str,
        status: Status,
        at: At,
        cause: impl Into<String>,
    ) {
        if self.findings.len() >= TOLD {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            code,
            status,
            tenant: self.tenant.clone(),
            run: self.run.clone(),
            seq: at.seq,
            index: at.index,
            table: at.table,
            column: at.column,
            cause: cause.into(),
        });
    }

    /// What a rule of the format says.
    pub(super) fn rule(&mut self, code: Code, at: At, cause: impl Into<String>) {
        self.push(code.as_str(), code.status(), at, cause);
    }

    /// What the verifier found.
    pub(super) fn rules(&mut self, at: At, findings: Vec<onrecord_verify::Finding>) {
        for one in findings {
            self.push(one.code.as_str(), one.status, at, one.cause);
        }
    }

    /// A column that has to be another; nothing where it is the same.
    pub(super) fn column<T: PartialEq + std::fmt::Debug>(&mut self, at: At, found: T, wanted: T) {
        if found != wanted {
            let cause = format!("{found:?}, by the evidence it is {wanted:?}");
            self.push(COLUMN, Status::Altered, at, cause);
        }
    }

    /// The same of bytes that are a digest.
    pub(super) fn digest(&mut self, at: At, found: &[u8], wanted: &Hash) {
        if found != wanted.0 {
            let found = onrecord_core::digest::hex(found);
            let cause = format!("{found}, by the evidence it is {wanted}");
            self.push(COLUMN, Status::Altered, at, cause);
        }
    }

    pub(super) fn missing(&mut self, at: At, cause: impl Into<String>) {
        self.push(ROW_MISSING, Status::Altered, at, cause);
    }

    pub(super) fn surplus(&mut self, at: At, cause: impl Into<String>) {
        self.push(ROW_SURPLUS, Status::Altered, at, cause);
    }
}
