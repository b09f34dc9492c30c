//! Export: a run's bundle as a stream, and the same stream into the verifier.
//!
//! What may change (the run's row, its keys and what the ledger says of it) is read at one moment. Frames
//! below a size never change, and payloads that vanish meanwhile are missed and break the export off; so
//! the database is asked for a page at a time and waits for no reader: a slow one holds no connection,
//! no snapshot and no place in the pool. Memory does not grow with the run, and what has to be known
//! before it can be written waits in files that nobody can name.

mod ahead;
pub(crate) mod examined;
mod frame;
mod frames;
mod log;
mod path;
mod payloads;
pub(crate) mod quality;
mod reading;
mod report;
mod turn;
pub mod verification;
mod withhold;
mod writer;

pub use log::{Consistency, LedgerSummary};
pub use reading::ReadPayload;
pub use report::{PayloadStates, RunReport};
pub use withhold::Withhold;

use crate::access::Caller;
use crate::ledger::{self, Erasures};
use crate::record::{RecordError, Recorder};
use crate::retention::expired::Expired;
use crate::store::anchors::Stamped;
use crate::store::signing_keys::SigningKeyRow;
use crate::store::{self, Store, StoreError, Tx};
use crate::vault::{PublicKey, RunKeys, SealKey, TenantKeys, VaultError};
use bytes::Bytes;
use onrecord_core::bundle::{LedgerLine, Member};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::json;
use onrecord_core::note::{Checkpoint, Note, TlogProof, VerifierKey};
use onrecord_core::statement::{Export, ExportCounts, MANIFEST_SUBJECT, Predicate, Signed};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::frames::Stretch;
use store::runs::RunRow;
use tokio::sync::mpsc;
use writer::Writer;

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
    #[error(
        "payload {commit} of run {run} does not open; export with payloads=none to leave payloads out"
    )]
    Payload {
        /// The run.
        run: RunId,
        /// Its commitment.
        commit: Hash,
    },
    /// Payloads that were disclosed were erased before they were written.
    #[error("payloads of run {0} were erased during the export; ask again")]
    Erased(RunId),
    /// A member would be over 8 GiB.
    #[error("{0} is over 8 GiB, the most that a bundle's member may have")]
    TooLarge(String),
    /// A file that holds what waits.
    #[error("temporary file: {0}")]
    Spool(#[from] std::io::Error),
    /// The work was cut off by a defect.
    #[error("the export was cut off")]
    CutOff,
    /// Nobody reads any more.
    #[error("the reader went away")]
    Gone,
}

/// What an export is for and what it holds.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Why, as the signed export statement says: a code.
    pub purpose: String,
    /// Whether it is on the ledger, as all are that disclose a payload to somebody.
    pub on_ledger: bool,
    /// Which payloads are left out.
    pub withhold: Withhold,
}

/// Pieces of a bundle, or why it breaks off.
pub type Pieces = mpsc::Receiver<Result<Bytes, ExportError>>;

/// Pieces that may wait for a slow reader, of 256 KiB each.
const WAITING_PIECES: usize = 8;

impl Recorder {
    /// Begins to export a run. What is wrong before the first byte is an error here; afterwards the
    /// stream breaks off.
    pub async fn export(
        &self,
        caller: Caller,
        run: RunId,
        request: ExportRequest,
    ) -> Result<Pieces, RecordError> {
        self.refuse_secret("/purpose", &request.purpose)?;
        let recorder = self.clone();
        let (sink, pieces) = mpsc::channel(WAITING_PIECES);
        let source = self
            .detached(async move {
                // Before the first byte leaves, and before what the ledger says is read: the bundle has the entry.
                if request.on_ledger && !request.withhold.is_all() {
                    let purpose = &request.purpose;
                    recorder.log_access(&caller, &run, purpose, None).await?;
                }
                match Source::read(&recorder, &caller, &run, &request).await {
                    // The seal key was rotated at this moment, and its secret destroyed: a later look finds the next.
                    Err(RecordError::Vault(VaultError::NoSealKey { .. })) => {
                        Source::read(&recorder, &caller, &run, &request).await
                    }
                    source => source,
                }
            })
            .await?;
        let source = Arc::new(source);
        tokio::spawn(async move {
            let run = source.row.run.clone();
            // In a task of its own: whatever ends it early, the reader hears of it.
            let written = tokio::spawn(source.write(sink.clone())).await;
            if let Err(error) = written.unwrap_or(Err(ExportError::CutOff)) {
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
    store: Store,
    /// Who exports, as the export statement names them.
    by: Actor,
    keys: Arc<TenantKeys>,
    run_keys: RunKeys,
    row: RunRow,
    /// The envelope of its seal.
    seal: Option<Vec<u8>>,
    /// The time stamp of its seal.
    stamp: Option<Vec<u8>>,
    /// Those whose signatures stand under checkpoints in it.
    witnesses: Vec<VerifierKey>,
    /// What signs the export: the seal key in force at the moment of the rest.
    signer: Arc<SealKey>,
    /// All keys that ever signed for the tenant.
    signing_keys: Vec<SigningKeyRow>,
    /// What the ledger says of it: few lines, however long the run is.
    ledger: Vec<u8>,
    /// Which of its payloads are erased.
    erasures: Erasures,
    /// Where its pages of frames begin and end: a few bytes for each page, and a member has no more than 8 GiB.
    frames: Vec<Stretch>,
    request: ExportRequest,
}

impl Source {
    /// Reads at one moment what may change.
    async fn read(
        recorder: &Recorder,
        caller: &Caller,
        run: &RunId,
        request: &ExportRequest,
    ) -> Result<Self, RecordError> {
        let keys = recorder.keys(&caller.tenant).await?;
        let by = recorder.stated_reader(caller).await?;
        let mut tx = recorder.store.snapshot(&caller.tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let run_keys = recorder.read_run_keys(&caller.tenant, &row.run).await?;
        let seal = match &row.sealed {
            Some(sealed) => {
                Some(store::ledger::entry(&mut tx, &caller.tenant, sealed.index).await?)
            }
            None => None,
        };
        let stamp = match &row.sealed {
            Some(sealed) => {
                let (seal, index) = (Stamped::Seal, Some(sealed.index));
                store::anchors::stamp(&mut tx, &caller.tenant, seal, index).await?
            }
            None => None,
        };
        let signer = recorder.seal_key(&mut tx, &caller.tenant).await?;
        let signing_keys = store::signing_keys::all(&mut tx, &caller.tenant).await?;
        let (ledger, cosigned) = ledger_lines(&mut tx, &row, recorder.is_witnessed()).await?;
        let witnesses = witnesses(&mut tx, &row, cosigned).await?;
        let erasures = Erasures::of(&mut tx, &row.tenant, &row.run).await?;
        let expired = Expired::of(&mut tx, &row.tenant, &row.run).await?;
        let withhold = request.withhold.clone().and_tiers(expired.tiers());
        tx.commit().await.map_err(StoreError::from)?;
        let frames = frames::pages(&recorder.store, &row).await?;
        Ok(Self {
            store: recorder.store.clone(),
            by,
            keys,
            run_keys,
            row,
            seal,
            stamp: stamp.map(|stamp| stamp.reply),
            witnesses,
            signer,
            signing_keys,
            ledger,
            erasures,
            frames,
            request: ExportRequest {
                withhold,
                ..request.clone()
            },
        })
    }

    async fn write(
        self: Arc<Self>,
        sink: mpsc::Sender<Result<Bytes, ExportError>>,
    ) -> Result<(), ExportError> {
        let mut writer = Writer::new(sink)?;
        self.write_seal(&mut writer).await?;
        self.write_keys(&mut writer).await?;
        let (disclosures, counts) = self.write_frames(&mut writer).await?;
        writer.whole(&Member::Ledger, &self.ledger).await?;
        writer.spooled(&Member::Disclosures, disclosures).await?;
        if counts.disclosed > 0 && self.write_payloads(&mut writer).await? < counts.disclosed {
            return Err(ExportError::Erased(self.row.run.clone()));
        }
        let manifest = writer.manifest().await?;
        let export = self.export_statement(manifest, counts).await?;
        writer.whole(&Member::Export, &export).await?;
        writer.finish().await
    }

    fn tenant(&self) -> &TenantId {
        &self.row.tenant
    }

    async fn write_seal(&self, writer: &mut Writer) -> Result<(), ExportError> {
        let (Some(sealed), Some(envelope)) = (&self.row.sealed, &self.seal) else {
            return Ok(());
        };
        writer.whole(&Member::Seal, envelope).await?;
        writer
            .whole(&Member::SealProof, sealed.proof.as_bytes())
            .await?;
        match &self.stamp {
            Some(stamp) => writer.whole(&Member::SealTime, stamp).await,
            None => Ok(()),
        }
    }

    async fn write_keys(&self, writer: &mut Writer) -> Result<(), ExportError> {
        let used = self.signers();
        let mut used: Vec<&SigningKeyRow> = self
            .signing_keys
            .iter()
            .filter(|key| used.contains(&key.keyid))
            .collect();
        used.sort_by_key(|key| key.keyid);
        for key in used {
            let pem = PublicKey::from_spki(&key.spki)?.pem;
            writer
                .whole(&Member::KeyPem(key.keyid), pem.as_bytes())
                .await?;
        }
        let mut verifiers: Vec<&VerifierKey> = self.witnesses.iter().collect();
        verifiers.push(self.keys.ledger().verifier());
        verifiers.sort_by_key(|verifier| verifier.key_id());
        // Ids are short, and two keys may share one: the members' names have to differ.
        verifiers.dedup_by_key(|verifier| verifier.key_id());
        for verifier in verifiers {
            let member = Member::KeyNote(verifier.key_id().to_be_bytes());
            writer
                .whole(&member, format!("{verifier}\n").as_bytes())
                .await?;
        }
        Ok(())
    }

    /// The key ids that sign something in the bundle: its seal, lines of the ledger, the export statement.
    fn signers(&self) -> BTreeSet<Hash> {
        let lines = self.ledger.split(|byte| *byte == b'\n');
        let lines = lines.filter_map(|line| json::typed::<LedgerLine>(line).ok());
        let entries = lines
            .map(|line| line.entry.into_bytes())
            .chain(self.seal.clone());
        // An envelope that cannot be read is the verifier's to name.
        let signed = entries.filter_map(|envelope| Signed::parse(&envelope).ok());
        signed
            .map(|signed| signed.keyid)
            .chain([self.signer.public().keyid])
            .collect()
    }

    async fn export_statement(
        &self,
        manifest: Hash,
        payloads: ExportCounts,
    ) -> Result<Vec<u8>, ExportError> {
        let at = self.store.now().await?;
        let export = Export {
            at,
            by: self.by.clone(),
            payloads,
            purpose: self.request.purpose.clone(),
            run: self.row.run.clone(),
        };
        Ok(self.signer.sign(
            self.tenant(),
            &Predicate::Export(export),
            Some((MANIFEST_SUBJECT, manifest)),
        )?)
    }
}

/// The lines of the ledger's member: what the ledger says of a run, each entry with its proof; and the size of the
/// cosigned checkpoint that proofs lead to.
///
/// Where witnesses are asked, readings that they have not seen yet are left out: whoever asks for a quorum could not check
/// them. What changes what is to be believed (keys, holds, erasures) is there at once.
async fn ledger_lines(
    tx: &mut Tx,
    row: &RunRow,
    is_witnessed: bool,
) -> Result<(Vec<u8>, Option<u64>), RecordError> {
    let (size, note) = store::ledger::checkpoint(tx, &row.tenant).await?;
    let cosigned = ledger::latest_cosigned(tx, &row.tenant).await?;
    let mut lines = Vec::new();
    for (index, entry) in store::ledger::about(tx, &row.tenant, &row.run, size).await? {
        let checkpoint = match &cosigned {
            Some((size, note)) if index < *size => (*size, note.as_str()),
            Some(_) if is_witnessed && is_access(&entry) => continue,
            _ => (size, note.as_str()),
        };
        let proof = ledger::proof(tx, &row.tenant, index, checkpoint).await?;
        let entry = String::from_utf8(entry)
            .map_err(|_| store::contradiction("ledger_entries", "bytes", index))?;
        let line = json::to_canonical(&LedgerLine { entry, proof })
            .map_err(|_| store::contradiction("ledger_entries", "bytes", index))?;
        lines.extend_from_slice(&line);
        lines.push(b'\n');
    }
    Ok((lines, cosigned.map(|(size, _)| size)))
}

fn is_access(entry: &[u8]) -> bool {
    Signed::parse(entry).is_ok_and(|signed| signed.name == "access")
}

/// The witnesses whose signatures stand under the proof of the seal and under a cosigned checkpoint.
async fn witnesses(
    tx: &mut Tx,
    row: &RunRow,
    cosigned: Option<u64>,
) -> Result<Vec<VerifierKey>, RecordError> {
    let proof = row
        .sealed
        .as_ref()
        .map(|sealed| TlogProof::parse(&sealed.proof));
    let note = proof.and_then(|proof| Note::parse(&proof.ok()?.checkpoint).ok());
    let sealed = note.and_then(|note| Checkpoint::parse(&note.text).ok());
    let sizes = sealed
        .map(|checkpoint| checkpoint.size)
        .into_iter()
        .chain(cosigned);
    let mut witnesses = Vec::new();
    for size in sizes {
        for cosignature in store::anchors::cosignatures(tx, &row.tenant, size).await? {
            let key = VerifierKey::parse(&cosignature.witness);
            witnesses.push(key.map_err(|_| store::contradiction("cosignatures", "witness", size))?);
        }
    }
    Ok(witnesses)
}
