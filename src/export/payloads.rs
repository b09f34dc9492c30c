//! The payloads of a bundle.

use super::ahead::{Ahead, PAGE_BYTES, Shelf, aside};
use super::writer::{Members, Writer};
use super::{ExportError, Source};
use crate::store::payloads::StoredPayload;
use crate::store::{self, StoreError};
use crate::vault::VaultError;
use onrecord_core::bundle::Member;
use onrecord_core::frame::{Frame, PayloadRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Payloads that are looked at for a page: at first, and at most.
const PAYLOADS: (usize, usize) = (64, 4_096);

impl Source {
    /// The payloads; returns how many.
    pub(super) async fn write_payloads(
        self: &Arc<Self>,
        writer: &mut Writer,
    ) -> Result<u64, ExportError> {
        let source = self.clone();
        let mut pages = Ahead::begin(|shelf| source.read_payloads(shelf));
        let mut count = 0;
        while let Some((members, _held)) = pages.next().await? {
            count += members.count;
            writer.members(members).await?;
        }
        Ok(count)
    }

    async fn read_payloads(self: Arc<Self>, shelf: Shelf<Members>) -> Result<(), ExportError> {
        let (run, size) = (&self.row.run, self.row.chain.size());
        let (mut last, mut count) = (None, PAYLOADS.0);
        loop {
            let mut tx = self.store.snapshot(self.tenant()).await?;
            let limits = (count, PAGE_BYTES);
            let mut page = store::payloads::page(&mut tx, run, size, last.as_ref(), limits).await?;
            let Some(end) = page.last() else {
                return Ok(());
            };
            last = Some(end.key.commit);
            // Names and kinds stand in the frames alone.
            let seqs: Vec<u64> = page.iter().map(|payload| payload.key.seq).collect();
            let frames = if self.request.withhold.is_nothing() {
                HashMap::new()
            } else {
                store::frames::some(&mut tx, run, &seqs).await?
            };
            tx.commit().await.map_err(StoreError::from)?;
            page.retain(|payload| self.leaves(payload, &frames));
            let bytes: usize = page.iter().map(|payload| payload.ciphertext.len()).sum();
            count = (page.len() * PAGE_BYTES / bytes.max(1)).clamp(PAYLOADS.0, PAYLOADS.1);
            let source = self.clone();
            if !shelf.put(bytes, aside(move || source.open(page))).await {
                return Ok(());
            }
        }
    }

    /// Whether a payload leaves with the bundle.
    fn leaves(&self, payload: &StoredPayload, frames: &HashMap<u64, Vec<u8>>) -> bool {
        let key = &payload.key;
        let tier = u8::try_from(key.tier).unwrap_or(u8::MAX);
        if self.erasures.covering(key.seq, tier, &key.commit).is_some() {
            return false;
        }
        let Some(frame) = frames.get(&key.seq) else {
            return self.request.withhold.is_nothing();
        };
        Frame::parse(frame).is_ok_and(|frame| {
            let of_frame = frame.payloads().iter();
            let mut named = of_frame.filter(|one| one.commit == key.commit);
            let withheld = |one: &PayloadRef| {
                let withhold = &self.request.withhold;
                withhold.covers(frame.kind, frame.seq, &one.name, one.tier)
            };
            named.next().is_some_and(|one| !withheld(one))
        })
    }

    fn open(&self, page: Vec<StoredPayload>) -> Result<Members, ExportError> {
        let run = &self.row.run;
        let bytes = page.iter().map(|payload| payload.ciphertext.len());
        let mut members = Members::with_capacity(page.len(), bytes.sum());
        for payload in page {
            let commit = payload.key.commit;
            let opened = self.run_keys.open(
                payload.key.tier,
                payload.key.key_version,
                &payload.media,
                &commit,
                &payload.key.wrapped_dek,
                &payload.ciphertext,
            );
            if let Err(error @ VaultError::NoRunKey { .. }) = &opened {
                return Err(self.unreadable(commit, error));
            }
            // What lies there instead goes out, so that the verifier names the payload that was altered.
            let bytes = opened.map_or_else(
                |_| {
                    tracing::error!(%run, %commit, "a payload does not open");
                    payload.ciphertext
                },
                |opened| opened.plaintext,
            );
            members.add(&Member::Payload(commit), &bytes)?;
        }
        Ok(members)
    }
}
