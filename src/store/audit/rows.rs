//! Rows as an audit gets them, and how those that come undecoded are taken apart.

use crate::store::StoreError;
use crate::store::copy::{Fields, broken_off};
use bytes::Bytes;
use onrecord_core::id::RunId;

/// A tenant's row.
pub(crate) struct TenantRow {
    pub(crate) origin: String,
    pub(crate) next_run_no: i64,
    pub(crate) ledger_size: i64,
    pub(crate) ledger_nodes: Vec<u8>,
    /// Microseconds since 1970; `i64::MIN` or so before the first entry.
    pub(crate) ledger_at: i64,
    pub(crate) last_seal_run: Option<RunId>,
    pub(crate) last_seal_leaf: Option<Vec<u8>>,
    pub(crate) seal_key: Vec<u8>,
}

/// An entry of a ledger.
pub(crate) struct EntryRow {
    pub(crate) index: i64,
    pub(crate) name: String,
    pub(crate) run: Option<RunId>,
    pub(crate) at: i64,
    pub(crate) leaf: Bytes,
    pub(crate) bytes: Bytes,
}

/// What statements of two kinds begin and end: a hold, or a flag of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkRow {
    /// Index of the statement that it began with.
    pub(crate) index: i64,
    pub(crate) run: Option<RunId>,
    /// The matter, or the flag.
    pub(crate) what: String,
    pub(crate) incident: Option<String>,
    pub(crate) reason: Option<String>,
    /// Microseconds since 1970.
    pub(crate) at: Option<i64>,
    /// Type and id of an actor.
    pub(crate) by: Option<(String, String)>,
    /// Index of the statement that it ended with.
    pub(crate) end_index: Option<i64>,
    pub(crate) end_at: Option<i64>,
    pub(crate) end_by: Option<(String, String)>,
    pub(crate) end_with: Option<(String, String)>,
}

/// A question over many runs, with the text of it.
pub(crate) struct QueryRow<'a> {
    pub(crate) index: i64,
    /// Microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) resource: &'a str,
    pub(crate) purpose: &'a str,
    /// Type and id of an actor.
    pub(crate) by: (&'a str, &'a str),
    pub(crate) text: &'a [u8],
}

/// A node of a ledger's tree.
pub(crate) struct NodeRow {
    pub(crate) level: i16,
    pub(crate) index: i64,
    pub(crate) hash: Bytes,
}

/// A key that signs.
pub(crate) struct KeyRow {
    pub(crate) keyid: Vec<u8>,
    pub(crate) role: String,
    pub(crate) actor: Option<String>,
    pub(crate) spki: String,
    pub(crate) added_index: i64,
    pub(crate) revoked_index: Option<i64>,
}

/// A run as lists have it; whether it changed is seen by these.
#[derive(Clone)]
pub(crate) struct RunMark {
    pub(crate) run: RunId,
    pub(crate) run_no: i64,
    pub(crate) size: i64,
    pub(crate) mark: String,
}

/// A run's row.
pub(crate) struct RunColumns {
    pub(crate) run_no: i64,
    pub(crate) open_key: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) opened_at: i64,
    pub(crate) open_index: i64,
    pub(crate) size: i64,
    pub(crate) head: Vec<u8>,
    pub(crate) last_at: i64,
    pub(crate) chain: Vec<u8>,
    pub(crate) outcome: Option<String>,
    pub(crate) ended: bool,
    pub(crate) sealed_at: Option<i64>,
    pub(crate) seal_index: Option<i64>,
    pub(crate) seal_proof: Option<String>,
    pub(crate) erased: i64,
}

/// A frame with its columns.
pub(crate) struct FrameRow<'a> {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) answers: Option<i64>,
    pub(crate) turn: Option<i32>,
    pub(crate) kind_no: i16,
    pub(crate) key: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) name: Option<&'a str>,
    pub(crate) verdict: Option<i16>,
}

/// What is said of a run.
pub(crate) struct FactRow {
    pub(crate) field: i16,
    pub(crate) tenant: String,
    pub(crate) value: String,
}

/// A payload without its bytes.
pub(crate) struct PayloadRow {
    pub(crate) seq: i64,
    pub(crate) place: i16,
    pub(crate) commit: Vec<u8>,
    pub(crate) media: String,
    pub(crate) tier: i16,
    pub(crate) size: i64,
    /// Whether it has a key of its own.
    pub(crate) keyed: bool,
    /// Bytes of the ciphertext.
    pub(crate) length: i32,
}

/// A version of a document that a tenant signed: its rules of redaction, its settings, or its retention policy.
pub(crate) struct DocumentRow {
    pub(crate) version: i64,
    pub(crate) index: i64,
    pub(crate) document: Vec<u8>,
}

impl<'a> FrameRow<'a> {
    /// Takes a row of [`Reader::frames`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &'a [u8]) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 9)?;
        Ok(Self {
            seq: fields.long()?.ok_or_else(broken_off)?,
            at: fields.micros()?,
            answers: fields.long()?,
            turn: fields.array()?.map(i32::from_be_bytes),
            kind_no: fields
                .array()?
                .map(i16::from_be_bytes)
                .ok_or_else(broken_off)?,
            key: fields.text()?,
            bytes: fields.bytes()?,
            name: fields.optional_text()?,
            verdict: fields.array()?.map(i16::from_be_bytes),
        })
    }
}

impl EntryRow {
    /// Takes a row of [`Reader::entries`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &Bytes) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 6)?;
        Ok(Self {
            index: fields.long()?.ok_or_else(broken_off)?,
            name: fields.text()?.to_owned(),
            run: fields
                .array()?
                .map(|bytes| RunId::from_bits(u128::from_be_bytes(bytes))),
            at: fields.micros()?,
            leaf: row.slice_ref(fields.bytes()?),
            bytes: row.slice_ref(fields.bytes()?),
        })
    }
}

impl<'a> QueryRow<'a> {
    /// Takes a row of [`Reader::queries`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &'a [u8]) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 7)?;
        Ok(Self {
            index: fields.long()?.ok_or_else(broken_off)?,
            at: fields.micros()?,
            resource: fields.text()?,
            purpose: fields.text()?,
            by: (fields.text()?, fields.text()?),
            text: fields.bytes()?,
        })
    }
}

impl NodeRow {
    /// Takes a row of [`Reader::nodes`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &Bytes) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 3)?;
        Ok(Self {
            level: fields
                .array()?
                .map(i16::from_be_bytes)
                .ok_or_else(broken_off)?,
            index: fields.long()?.ok_or_else(broken_off)?,
            hash: row.slice_ref(fields.bytes()?),
        })
    }
}

/// Takes a row of [`Reader::checkpoints`] apart: size and note.
///
/// # Errors
/// It is none.
pub(crate) fn checkpoint_row(row: &[u8]) -> Result<(i64, &str), StoreError> {
    let mut fields = Fields::of(row, 2)?;
    Ok((fields.long()?.ok_or_else(broken_off)?, fields.text()?))
}
