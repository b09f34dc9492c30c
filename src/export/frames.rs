//! The frames of a bundle, and what it says of their payloads.

use super::ahead::{Ahead, PAGE_BYTES, Shelf, aside};
use super::writer::{Spool, Writer};
use super::{ExportError, Source};
use crate::ledger::Whereabouts;
use crate::store::frames::Stretch;
use crate::store::payloads::PayloadKey;
use crate::store::runs::RunRow;
use crate::store::{self, Store, StoreError};
use crate::vault::VaultError;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use onrecord_core::bundle::{Disclosure, Member, State};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::json;
use onrecord_core::statement::ExportCounts;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pages that are read at the same time, each on a connection of its own.
const READERS: usize = 2;

/// Places that are looked at by one statement to find out how long their frames are: a statement has its time.
const PART: usize = 65_536;

/// The pages of a run's frames, in their order.
pub(super) async fn pages(store: &Store, row: &RunRow) -> Result<Vec<Stretch>, StoreError> {
    let size = row.chain.size();
    let parts = (0..size).step_by(PART).map(|from| async move {
        let mut tx = store.snapshot(&row.tenant).await?;
        let part = (from, size.min(from + PART as u64));
        let pages = store::frames::stretches(&mut tx, &row.run, part, PAGE_BYTES as u64).await?;
        tx.commit().await?;
        Ok(pages)
    });
    stream::iter(parts).buffered(READERS).try_concat().await
}

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
        let bytes = self.frames.iter().map(|stretch| stretch.bytes).sum();
        writer.begin(&Member::Frames, bytes).await?;
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
        let readers = Arc::new(Semaphore::new(READERS));
        for &stretch in &self.frames {
            // It is never closed.
            let Ok(turn) = readers.clone().acquire_owned().await else {
                return Err(ExportError::CutOff);
            };
            let bytes = usize::try_from(stretch.bytes).unwrap_or(usize::MAX);
            if !shelf.put(bytes, self.clone().page(stretch, turn)).await {
                break;
            }
        }
        Ok(())
    }

    async fn page(
        self: Arc<Self>,
        stretch: Stretch,
        turn: OwnedSemaphorePermit,
    ) -> Result<Ready, ExportError> {
        let run = &self.row.run;
        let mut tx = self.store.snapshot(self.tenant()).await?;
        let lines = store::frames::lines(&mut tx, run, stretch).await?;
        let keys = store::payloads::keys_between(&mut tx, run, stretch.from, stretch.to).await?;
        tx.commit().await.map_err(StoreError::from)?;
        drop(turn);
        aside(move || self.ready(lines, &keys)).await
    }

    fn ready(&self, lines: Vec<u8>, keys: &[PayloadKey]) -> Result<Ready, ExportError> {
        let (mut disclosures, mut states) = (Vec::new(), Vec::new());
        // What cannot be read has no payloads that could be disclosed; the verifier names it.
        let named = if name_payloads(&lines) {
            &lines[..]
        } else {
            &[]
        };
        let frames = named.split(|byte| *byte == b'\n');
        let frames = frames.filter(|bytes| name_payloads(bytes));
        for frame in frames.filter_map(|bytes| Frame::parse(bytes).ok()) {
            let start = keys.partition_point(|key| key.seq < frame.seq);
            let end = keys.partition_point(|key| key.seq <= frame.seq);
            for payload in frame.payloads() {
                let line = self.disclosure(&frame, payload, &keys[start..end])?;
                states.push(line.state);
                let bytes = json::to_canonical(&line)
                    .map_err(|_| ExportError::Frame(self.row.run.clone()))?;
                disclosures.extend_from_slice(&bytes);
                disclosures.push(b'\n');
            }
        }
        Ok(Ready {
            lines,
            disclosures,
            states,
        })
    }

    /// What is to be said of a payload. `keys` are those of its frame.
    fn disclosure(
        &self,
        frame: &Frame<'_>,
        payload: &PayloadRef,
        keys: &[PayloadKey],
    ) -> Result<Disclosure, ExportError> {
        let commit = payload.commit;
        let key = keys.iter().find(|key| key.commit == commit);
        let withheld = || {
            let withhold = &self.request.withhold;
            withhold.covers(frame.kind, frame.seq, &payload.name, payload.tier)
        };
        match self.erasures.whereabouts(frame.seq, payload, key.is_some()) {
            Whereabouts::Kept => return Ok(Disclosure::of(commit, State::NotKept)),
            Whereabouts::Erased(index) => return Ok(Disclosure::erased(commit, index)),
            Whereabouts::Stored | Whereabouts::Missing => {}
        }
        Ok(match key {
            None => Disclosure::of(commit, State::Missing),
            Some(_) if withheld() => Disclosure::of(commit, State::Withheld),
            // Its key is destroyed in the transaction of the ledger's entry, which this export does not know of.
            Some(key) if key.wrapped_dek.is_empty() => {
                return Err(ExportError::Erased(self.row.run.clone()));
            }
            Some(key) => {
                let salt = self
                    .run_keys
                    .salt(key.tier, key.key_version, &commit, &key.wrapped_dek);
                let salt = salt.map_err(|error| self.unreadable(commit, &error))?;
                Disclosure::disclosed(commit, salt)
            }
        })
    }
}

impl Source {
    /// Why the export ends at a payload: an erasure renewed its key since the run's keys were read, or it was altered.
    pub(super) fn unreadable(&self, commit: Hash, error: &VaultError) -> ExportError {
        let run = self.row.run.clone();
        match error {
            VaultError::NoRunKey { .. } => ExportError::Erased(run),
            _ => ExportError::Payload { run, commit },
        }
    }
}

/// Whether it is worth the time to read what has these bytes. The members of canonical bytes are spelled in one way.
fn name_payloads(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"\"payloads\":").is_some()
}
