//! The frames of a bundle, and what it says of their payloads.

use super::ahead::{Ahead, PAGE_BYTES, Shelf};
use super::writer::{Spool, Writer};
use super::{ExportError, Source};
use crate::store::frames::StoredFrames;
use crate::store::payloads::PayloadKey;
use crate::store::{self, StoreError};
use onrecord_core::bundle::{Disclosure, Member, State};
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::json;
use onrecord_core::statement::ExportCounts;
use std::sync::Arc;

/// A page of frames, ready to be written.
struct Ready {
    /// Lines of `frames.ndjson`.
    lines: Vec<u8>,
    /// Lines of `disclosures.ndjson`.
    disclosures: Vec<u8>,
    /// What they say.
    states: Vec<State>,
}

impl Source {
    /// The frames; and what is to be said of their payloads, which stands behind them in the bundle.
    pub(super) async fn write_frames(
        self: &Arc<Self>,
        writer: &mut Writer,
    ) -> Result<(Spool, ExportCounts), ExportError> {
        let (mut disclosures, mut counts) = (Spool::new()?, ExportCounts::default());
        writer.begin(&Member::Frames, self.bytes).await?;
        let source = self.clone();
        let mut pages = Ahead::begin(|shelf| source.read_frames(shelf));
        while let Some((page, _held)) = pages.next().await? {
            writer.pass(page.lines.into()).await?;
            disclosures.write(&page.disclosures).await?;
            for state in page.states {
                *match state {
                    State::Disclosed => &mut counts.disclosed,
                    State::Withheld => &mut counts.withheld,
                    State::Erased => &mut counts.erased,
                    State::Missing => &mut counts.missing,
                    State::NotKept => &mut counts.not_kept,
                } += 1;
            }
        }
        writer.end().await?;
        Ok((disclosures, counts))
    }

    async fn read_frames(self: Arc<Self>, shelf: Shelf<Ready>) -> Result<(), ExportError> {
        let (run, size) = (&self.row.run, self.row.chain.size());
        // Places that have the bytes of a page if its frames are as long as those before; as all are, to
        // begin with.
        let places = |count: u64, bytes: u64| (count * PAGE_BYTES as u64 / bytes.max(1)).max(1);
        let (mut next, mut count) = (0, places(size, self.bytes));
        while next < size {
            let mut tx = self.store.snapshot(self.tenant()).await?;
            let range = (next, size.min(next.saturating_add(count)));
            let page = store::frames::stored(&mut tx, run, range, PAGE_BYTES).await?;
            let keys = store::payloads::keys_between(&mut tx, run, next, page.next).await?;
            tx.commit().await.map_err(StoreError::from)?;
            let (bytes, from) = (page.lines.len(), next);
            next = page.next;
            // A page of which nothing is left says nothing of the next.
            count = places(next - from, bytes.max(PAGE_BYTES / 1024) as u64);
            let source = self.clone();
            if !shelf.put(bytes, move || source.ready(page, &keys)).await {
                break;
            }
        }
        Ok(())
    }

    fn ready(&self, page: StoredFrames, keys: &[PayloadKey]) -> Result<Ready, ExportError> {
        let (mut disclosures, mut states) = (Vec::new(), Vec::new());
        // What cannot be read has no payloads that could be disclosed; the verifier names it.
        let frames = page.iter().filter(|bytes| may_have_payloads(bytes));
        for frame in frames.filter_map(|bytes| Frame::parse(bytes).ok()) {
            let start = keys.partition_point(|key| key.seq < frame.seq);
            let end = keys.partition_point(|key| key.seq <= frame.seq);
            for payload in frame.payloads() {
                let line = self.disclosure(payload, &keys[start..end])?;
                states.push(line.state);
                let bytes = json::to_canonical(&line)
                    .map_err(|_| ExportError::Frame(self.row.run.clone()))?;
                disclosures.extend_from_slice(&bytes);
                disclosures.push(b'\n');
            }
        }
        Ok(Ready {
            lines: page.lines,
            disclosures,
            states,
        })
    }

    /// What is to be said of a payload. `keys` are those of its frame.
    fn disclosure(
        &self,
        payload: &PayloadRef,
        keys: &[PayloadKey],
    ) -> Result<Disclosure, ExportError> {
        let commit = payload.commit;
        let key = keys.iter().find(|key| key.commit == commit);
        Ok(match key {
            _ if payload.kept == Some(false) => Disclosure::of(commit, State::NotKept),
            None => Disclosure::of(commit, State::Missing),
            Some(_) if !self.request.payloads => Disclosure::of(commit, State::Withheld),
            Some(key) => {
                let salt = self.run_keys.salt(key.tier, &commit, &key.wrapped_dek);
                let salt = salt.map_err(|_| ExportError::Payload {
                    run: self.row.run.clone(),
                    commit,
                })?;
                Disclosure::disclosed(commit, salt)
            }
        })
    }
}

/// Whether it is worth the time to read a frame. The members of canonical bytes are spelled in one way.
fn may_have_payloads(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.contains("\"payloads\":"))
}
