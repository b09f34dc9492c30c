//! Export: a run's bundle as a stream, and the same stream into the verifier.
//!
//! All reads see one moment of the database. Memory does not grow with the run: frames and payloads
//! pass in pages, and what has to be known before it can be written waits in files that nobody can name.

mod turn;
pub mod verification;
mod writer;

use crate::access::Caller;
use crate::ledger::{self, LedgerError};
use crate::record::{RecordError, Recorder};
use crate::store::{self, StoreError, Tx};
use crate::vault::{RunKeys, TenantKeys, VaultError};
use bytes::Bytes;
use onrecord_core::bundle::{Disclosure, LedgerLine, Member, State};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Frame;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::json;
use onrecord_core::note::VerifierKey;
use onrecord_core::statement::{Export, ExportCounts, MANIFEST_SUBJECT, Predicate};
use std::sync::Arc;
use store::runs::RunRow;
use tokio::sync::mpsc;
use writer::{Spool, Writer};

/// Why an export ended early. Whoever reads the stream sees it break off, and a broken bundle never
/// verifies.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A stored frame is no frame.
    #[error("a stored frame of run {0} cannot be read")]
    Frame(RunId),
    /// A payload does not open: its ciphertext was altered or belongs elsewhere.
    #[error("payload {commit} of run {run} does not open; export with payloads=none to leave payloads out")]
    Payload {
        /// The run.
        run: RunId,
        /// Its commitment.
        commit: Hash,
    },
    /// A member would be over 8 GiB.
    #[error("{0} is over 8 GiB, the most that a bundle's member may have")]
    TooLarge(String),
    /// A file that holds what waits.
    #[error("temporary file: {0}")]
    Spool(#[from] std::io::Error),
    /// The database's clock.
    #[error("the database's clock is behind")]
    Clock,
    /// Nobody reads any more.
    #[error("the reader went away")]
    Gone,
}

impl From<LedgerError> for ExportError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => Self::Store(error),
            LedgerError::Vault(error) => Self::Vault(error),
            LedgerError::ClockBehind { .. } => Self::Clock,
        }
    }
}

/// What an export is for and what it holds.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Why, as the signed export statement says; 1 to 500 characters.
    pub purpose: String,
    /// Whether payloads are disclosed; otherwise all are withheld.
    pub payloads: bool,
}

/// Pieces of a bundle, or why it breaks off.
pub type Pieces = mpsc::Receiver<Result<Bytes, ExportError>>;

/// Pieces that may wait for a slow reader, of 64 KiB each.
const WAITING_PIECES: usize = 8;
/// Frames that are read at once.
const PAGE: u32 = 500;

impl Recorder {
    /// Begins to export a run. What is wrong before the first byte is an error here; afterwards the
    /// stream breaks off.
    pub async fn export(&self, caller: Caller, run: RunId, request: ExportRequest) -> Result<Pieces, RecordError> {
        let recorder = self.clone();
        let (sink, pieces) = mpsc::channel(WAITING_PIECES);
        let source = self
            .detached(async move {
                let keys = recorder.public_keys(&caller.tenant).await?;
                let mut tx = recorder.store.snapshot(&caller.tenant).await?;
                let row = store::runs::find(&mut tx, &run).await?.ok_or(RecordError::NoRun(run))?;
                let wrapped = store::runs::keys(&mut tx, &row.run).await?;
                let run_keys = keys.open_run(&row.run, &wrapped)?;
                Ok(Source { caller, keys, run_keys, row, request, tx })
            })
            .await?;
        tokio::spawn(async move {
            let run = source.row.run.clone();
            if let Err(error) = source.write(sink.clone()).await {
                if !matches!(error, ExportError::Gone) {
                    tracing::error!(%run, %error, "an export broke off");
                }
                // Nobody may be there to hear it.
                let _ = sink.send(Err(error)).await;
            }
        });
        Ok(pieces)
    }
}

/// Everything that a bundle is written from.
struct Source {
    caller: Caller,
    keys: Arc<TenantKeys>,
    run_keys: RunKeys,
    row: RunRow,
    request: ExportRequest,
    tx: Tx,
}

impl Source {
    async fn write(mut self, sink: mpsc::Sender<Result<Bytes, ExportError>>) -> Result<(), ExportError> {
        let mut writer = Writer::new(sink)?;
        self.write_seal(&mut writer).await?;
        self.write_keys(&mut writer).await?;
        let (disclosures, counts) = self.write_frames(&mut writer).await?;
        self.write_ledger(&mut writer).await?;
        writer.spooled(&Member::Disclosures, disclosures).await?;
        if self.request.payloads {
            self.write_payloads(&mut writer).await?;
        }
        let manifest = writer.manifest().await?;
        let export = self.export_statement(manifest, counts).await?;
        writer.whole(&Member::Export, &export).await?;
        self.tx.commit().await.map_err(StoreError::from)?;
        writer.finish().await
    }

    fn tenant(&self) -> &TenantId {
        &self.row.tenant
    }

    async fn write_seal(&mut self, writer: &mut Writer) -> Result<(), ExportError> {
        let Some(sealed) = &self.row.sealed else { return Ok(()) };
        let envelope = store::ledger::entry(&mut self.tx, &self.row.tenant, sealed.index).await?;
        writer.whole(&Member::Seal, &envelope).await?;
        writer.whole(&Member::SealProof, sealed.proof.as_bytes()).await
    }

    async fn write_keys(&mut self, writer: &mut Writer) -> Result<(), ExportError> {
        let public = self.keys.seal().public();
        writer.whole(&Member::KeyPem(public.keyid), public.pem.as_bytes()).await?;
        let verifier: &VerifierKey = self.keys.ledger().verifier();
        let text = format!("{verifier}\n");
        writer.whole(&Member::KeyNote(verifier.key_id().to_be_bytes()), text.as_bytes()).await
    }

    /// The frames; and what is to be said of their payloads, which stands behind them in the bundle.
    async fn write_frames(&mut self, writer: &mut Writer) -> Result<(Spool, ExportCounts), ExportError> {
        let run = self.row.run.clone();
        let size = self.row.chain.size();
        let (mut disclosures, mut counts) = (Spool::new()?, ExportCounts::default());
        writer.begin(&Member::Frames, self.row.chain.file_bytes()).await?;
        let mut next = 0;
        while next < size {
            let page = store::frames::page(&mut self.tx, &run, next, PAGE).await?;
            if page.is_empty() {
                return Err(store::contradiction("frames", "seq", format!("{run}/{next}")).into());
            }
            let frames = page.iter().map(|bytes| Frame::parse(bytes)).collect::<Result<Vec<_>, _>>().map_err(|_| ExportError::Frame(run.clone()))?;
            for bytes in &page {
                writer.write(bytes).await?;
                writer.write(b"\n").await?;
            }
            for line in self.disclosures(&frames, &mut counts).await? {
                disclosures.write(&line).await?;
            }
            next += frames.len() as u64;
        }
        writer.end().await?;
        Ok((disclosures, counts))
    }

    async fn disclosures(&mut self, frames: &[Frame<'_>], counts: &mut ExportCounts) -> Result<Vec<Vec<u8>>, ExportError> {
        let run = self.row.run.clone();
        let seqs: Vec<u64> = frames.iter().filter(|frame| !frame.payloads().is_empty()).map(|frame| frame.seq).collect();
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        let stored = store::payloads::keys_of_frames(&mut self.tx, &run, &seqs).await?;
        let mut lines = Vec::new();
        for (frame, payload) in frames.iter().flat_map(|frame| frame.payloads().iter().map(move |payload| (frame, payload))) {
            let key = stored.get(&frame.seq).and_then(|keys| keys.iter().find(|key| key.commit == payload.commit));
            let line = match key {
                _ if payload.kept == Some(false) => Disclosure::of(payload.commit, State::NotKept),
                None => Disclosure::of(payload.commit, State::Missing),
                Some(_) if !self.request.payloads => Disclosure::of(payload.commit, State::Withheld),
                Some(key) => {
                    let salt = self.run_keys.salt(key.tier, &payload.commit, &key.wrapped_dek);
                    let salt = salt.map_err(|_| ExportError::Payload { run: run.clone(), commit: payload.commit })?;
                    Disclosure::disclosed(payload.commit, salt)
                }
            };
            let count = match line.state {
                State::Disclosed => &mut counts.disclosed,
                State::Withheld => &mut counts.withheld,
                State::Erased => &mut counts.erased,
                State::Missing => &mut counts.missing,
                State::NotKept => &mut counts.not_kept,
            };
            *count += 1;
            let mut bytes = json::to_canonical(&line).map_err(|_| ExportError::Frame(run.clone()))?;
            bytes.push(b'\n');
            lines.push(bytes);
        }
        Ok(lines)
    }

    async fn write_ledger(&mut self, writer: &mut Writer) -> Result<(), ExportError> {
        let tenant = self.tenant().clone();
        let (size, note) = store::ledger::checkpoint(&mut self.tx, &tenant).await?;
        let mut lines = Vec::new();
        for (index, entry) in store::ledger::about(&mut self.tx, &tenant, &self.row.run, size).await? {
            let proof = ledger::proof(&mut self.tx, &tenant, index, (size, &note)).await?;
            let entry = String::from_utf8(entry).map_err(|_| store::contradiction("ledger_entries", "bytes", index))?;
            let line = json::to_canonical(&LedgerLine { entry, proof }).map_err(|_| store::contradiction("ledger_entries", "bytes", index))?;
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
        writer.whole(&Member::Ledger, &lines).await
    }

    async fn write_payloads(&mut self, writer: &mut Writer) -> Result<(), ExportError> {
        let run = self.row.run.clone();
        let mut last = None;
        loop {
            let page = store::payloads::page(&mut self.tx, &run, last.as_ref()).await?;
            let Some(end) = page.last() else { return Ok(()) };
            last = Some(end.key.commit);
            for payload in page {
                let commit = payload.key.commit;
                let opened = self.run_keys.open(payload.key.tier, &payload.media, &commit, &payload.key.wrapped_dek, &payload.ciphertext);
                let opened = opened.map_err(|_| ExportError::Payload { run: run.clone(), commit })?;
                writer.whole(&Member::Payload(commit), &opened.plaintext).await?;
            }
        }
    }

    async fn export_statement(&mut self, manifest: Hash, payloads: ExportCounts) -> Result<Vec<u8>, ExportError> {
        let at = store::now(&mut self.tx).await?;
        let export = Export { at, by: self.caller.reader(), payloads, purpose: self.request.purpose.clone(), run: self.row.run.clone() };
        Ok(self.keys.seal().sign(self.tenant(), &Predicate::Export(export), Some((MANIFEST_SUBJECT, manifest)))?)
    }
}
