//! The payloads of a run: a row for each commitment that is not erased, and none besides.

use super::found::{At, Found, NOT_ERASED};
use crate::ledger::{Erasures, Whereabouts};
use crate::store::audit::PayloadRow;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::statement::Predicate;
use onrecord_verify::{Code, Status};
use std::iter::Peekable;

/// Bytes that a ciphertext is longer than its payload after padding.
const TAG: u64 = 16;

/// What has to be known of a run to judge its payloads.
pub(super) struct Payloads {
    erasures: Erasures,
    /// Tiers in which an erasure is not done: what it is about may lie there still.
    erasing: Vec<i16>,
}

impl Payloads {
    pub(super) fn new(entries: &[(i64, &Predicate)], erasing: Vec<i16>) -> Self {
        let mut erasures = Erasures::default();
        for (index, says) in entries {
            if let Predicate::Erasure(erasure) = says {
                erasures.add(u64::try_from(*index).unwrap_or(u64::MAX), erasure);
            }
        }
        Self { erasures, erasing }
    }

    /// The payloads that a frame commits to, against the rows that come, which are in the order of frames and places.
    pub(super) fn look<'a>(
        &self,
        frame: &Frame<'_>,
        seq: i64,
        rows: &mut Peekable<impl Iterator<Item = &'a PayloadRow>>,
        found: &mut Found,
    ) {
        for (place, payload) in frame.payloads().iter().enumerate() {
            let here = |row: &PayloadRow| (row.seq, usize::try_from(row.place).ok());
            while let Some(row) = rows.next_if(|row| here(row) < (seq, Some(place))) {
                surplus(row, found);
            }
            match rows.next_if(|row| here(row) == (seq, Some(place))) {
                Some(row) => self.row(payload, row, found),
                None => self.gone(payload, seq, found),
            }
        }
        while let Some(row) = rows.next_if(|row| row.seq <= seq) {
            surplus(row, found);
        }
    }

    fn erased_at(&self, payload: &PayloadRef, seq: i64) -> Option<u64> {
        let seq = u64::try_from(seq).unwrap_or(u64::MAX);
        self.erasures.covering(seq, payload.tier, &payload.commit)
    }

    fn gone(&self, payload: &PayloadRef, seq: i64, found: &mut Found) {
        let at = At::of("payloads", "commit").seq(seq);
        let place = u64::try_from(seq).unwrap_or(u64::MAX);
        match self.erasures.whereabouts(place, payload, false) {
            Whereabouts::Kept => found.missing(
                at,
                format!(
                    "the row of {}, which its agent kept, is not there",
                    payload.commit
                ),
            ),
            Whereabouts::Missing => {
                let cause = format!(
                    "{} is not there, and nothing certifies that it was erased",
                    payload.commit
                );
                found.rule(Code::PayloadMissing, at, cause);
            }
            Whereabouts::Erased(_) | Whereabouts::Stored => {}
        }
    }

    fn row(&self, payload: &PayloadRef, row: &PayloadRow, found: &mut Found) {
        let at = |column| At::of("payloads", column).seq(row.seq);
        found.digest(at("commit"), &row.commit, &payload.commit);
        found.column(at("media"), row.media.as_str(), payload.media.as_str());
        found.column(at("tier"), row.tier, i16::from(payload.tier));
        let size = i64::try_from(payload.size).unwrap_or(i64::MAX);
        found.column(at("size"), row.size, size);
        let length = u64::try_from(row.length).unwrap_or(0);
        if payload.kept.is_some() {
            found.column(at("ciphertext"), length, 0);
            found.column(at("wrapped_dek"), row.keyed, false);
            return;
        }
        if length != payload.size + TAG {
            let cause = format!(
                "{length} bytes, of a payload of {} it has {}",
                payload.size,
                payload.size + TAG
            );
            found.rule(Code::PayloadCommit, at("ciphertext"), cause);
        }
        match self.erased_at(payload, row.seq) {
            Some(index) if !self.erasing.contains(&row.tier) => {
                let cause = format!(
                    "{} was erased at index {index}, and lies there",
                    payload.commit
                );
                found.push(NOT_ERASED, Status::Altered, at("ciphertext"), cause);
            }
            None if !row.keyed => {
                let cause = format!(
                    "the key of {} is destroyed, and nothing certifies that it was erased",
                    payload.commit
                );
                found.rule(Code::ErasureUncertified, at("wrapped_dek"), cause);
            }
            _ => {}
        }
    }
}

/// A row that no frame accounts for.
pub(super) fn surplus(row: &PayloadRow, found: &mut Found) {
    let commit = onrecord_core::digest::hex(&row.commit);
    found.surplus(
        At::of("payloads", "commit").seq(row.seq),
        format!("no frame commits to {commit} there"),
    );
}
