//! The tenant's ledger as a log: checkpoint and tiles for everybody, entries and proofs, and the whole as one archive.
//!
//! Everything is of the latest checkpoint that was signed: what is not under one yet is not there.

use super::writer::Tar;
use super::{ExportError, Pieces, WAITING_PIECES};
use crate::access::Caller;
use crate::ledger;
use crate::record::{RecordError, Recorder};
use crate::store::ledger::EntryRow;
use crate::store::{self, Store, StoreError, Tx};
use bytes::Bytes;
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::note::{Checkpoint, Note, Tile};
use tokio::sync::mpsc;

/// Tiles of an archive that are read in one transaction: full ones of entries have some hundred KB.
const TILES_AT_ONCE: usize = 16;

/// What a ledger is now.
pub struct LedgerSummary {
    /// Its name, in frame 0 of each run and in each checkpoint.
    pub origin: Origin,
    /// Entries.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Hash,
    /// The latest checkpoint, a C2SP signed note.
    pub checkpoint: String,
    /// The key of the checkpoints, as `NAME+ID+BASE64`.
    pub verifier_key: String,
}

/// That a ledger is the beginning of a later one.
pub struct Consistency {
    /// The two sizes.
    pub sizes: (u64, u64),
    /// Their roots.
    pub roots: (Hash, Hash),
    /// RFC 9162, 2.1.4.
    pub path: Vec<Hash>,
}

impl Recorder {
    /// The tenant of a log, by the id at the end of its origin.
    ///
    /// # Errors
    /// [`RecordError::NoLog`].
    pub async fn log(&self, id: &str) -> Result<TenantId, RecordError> {
        // What no origin can end with is none, and is nothing to ask the database for.
        if format!("host/t/{id}").parse::<Origin>().is_err() {
            return Err(RecordError::NoLog(id.to_owned()));
        }
        let (recorder, id) = (self.clone(), id.to_owned());
        self.detached(async move {
            let found = recorder.store.of_log(&id).await?;
            let (tenant, _) = found.ok_or(RecordError::NoLog(id))?;
            Ok(tenant)
        })
        .await
    }

    /// The checkpoint of a tenant that is published: the latest, or where witnesses are asked the latest that enough of them
    /// cosigned, with their signatures. Never one that is smaller than one that was published before.
    pub async fn checkpoint(&self, tenant: TenantId) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut latest = Latest::read(&recorder.store, tenant).await?;
            if recorder.is_witnessed() {
                let (tx, tenant) = (&mut latest.tx, &latest.tenant);
                let least = recorder.published_at_start(tenant);
                latest.note = match ledger::latest_cosigned(tx, tenant).await? {
                    Some((size, note)) if size >= least => note,
                    // What was shown before witnesses were asked does not go back: it stands until they are there.
                    _ => {
                        let first = store::ledger::checkpoint_from(tx, tenant, least).await?;
                        let size = first.map_or(latest.size, |(size, _)| size);
                        ledger::cosigned_note(tx, tenant, size).await?
                    }
                };
            }
            latest.tx.commit().await.map_err(StoreError::from)?;
            Ok(latest.note)
        })
        .await
    }

    /// The bytes of a tile.
    ///
    /// # Errors
    /// [`RecordError::BeyondCheckpoint`]: it is not so full yet.
    pub async fn tile(&self, tenant: TenantId, tile: Tile) -> Result<Vec<u8>, RecordError> {
        let store = self.store.clone();
        self.detached(async move {
            let mut latest = Latest::read(&store, tenant).await?;
            latest.reaches(tile.size(), || tile.to_string())?;
            let bytes = ledger::log::tile(&mut latest.tx, &latest.tenant, &tile).await?;
            latest.tx.commit().await.map_err(StoreError::from)?;
            Ok(bytes)
        })
        .await
    }

    /// What the caller's ledger is now.
    pub async fn ledger(&self, caller: Caller) -> Result<LedgerSummary, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let origin = recorder.store.origin(&caller.tenant).await?;
            let origin = origin.ok_or_else(|| RecordError::NoTenant(caller.tenant.clone()))?;
            let mut latest = Latest::read(&recorder.store, caller.tenant).await?;
            let (tx, size) = (&mut latest.tx, latest.size);
            let root = ledger::log::root(tx, &latest.tenant, size).await?;
            latest.tx.commit().await.map_err(StoreError::from)?;
            Ok(LedgerSummary {
                origin,
                size,
                root,
                checkpoint: latest.note,
                verifier_key: keys.ledger().verifier().to_string(),
            })
        })
        .await
    }

    /// Up to `limit` entries from an index on, and the size of the ledger. Beyond the last entry there are none.
    pub(crate) async fn ledger_entries(
        &self,
        caller: Caller,
        from: u64,
        limit: u32,
    ) -> Result<(Vec<EntryRow>, u64), RecordError> {
        let store = self.store.clone();
        self.detached(async move {
            let mut latest = Latest::read(&store, caller.tenant).await?;
            let end = from.saturating_add(limit.into()).min(latest.size);
            let indexes = from.min(end)..end;
            let rows = store::ledger::entries(&mut latest.tx, &latest.tenant, indexes).await?;
            latest.tx.commit().await.map_err(StoreError::from)?;
            Ok((rows, latest.size))
        })
        .await
    }

    /// The exact bytes of an entry.
    ///
    /// # Errors
    /// [`RecordError::BeyondCheckpoint`].
    pub async fn ledger_entry(&self, caller: Caller, index: u64) -> Result<Vec<u8>, RecordError> {
        let store = self.store.clone();
        self.detached(async move {
            let mut latest = Latest::read(&store, caller.tenant).await?;
            latest.has(index)?;
            let entry = store::ledger::entry(&mut latest.tx, &latest.tenant, index).await?;
            latest.tx.commit().await.map_err(StoreError::from)?;
            Ok(entry)
        })
        .await
    }

    /// The `.tlog-proof` of an entry, under the latest checkpoint or under that of a size.
    ///
    /// # Errors
    /// [`RecordError::BeyondCheckpoint`]: there is no such entry below that size, or no such size yet.
    /// [`RecordError::NoCheckpoint`]: none of that size was signed.
    pub async fn ledger_proof(
        &self,
        caller: Caller,
        index: u64,
        size: Option<u64>,
    ) -> Result<String, RecordError> {
        let store = self.store.clone();
        self.detached(async move {
            let mut under = Latest::read(&store, caller.tenant).await?;
            if let Some(size) = size {
                under.reaches(size, || format!("size {size}"))?;
                under = under.at(size).await?;
            }
            under.has(index)?;
            let note = (under.size, under.note.as_str());
            let proof = ledger::proof(&mut under.tx, &under.tenant, index, note).await?;
            under.tx.commit().await.map_err(StoreError::from)?;
            Ok(proof)
        })
        .await
    }

    /// That the ledger of one size is the beginning of that of another, which is the latest unless it is said.
    ///
    /// # Errors
    /// [`RecordError::BeyondCheckpoint`].
    pub async fn consistency(
        &self,
        caller: Caller,
        from: u64,
        to: Option<u64>,
    ) -> Result<Consistency, RecordError> {
        let store = self.store.clone();
        self.detached(async move {
            let mut latest = Latest::read(&store, caller.tenant).await?;
            let to = to.unwrap_or(latest.size);
            let larger = from.max(to);
            latest.reaches(larger, || format!("size {larger}"))?;
            let (tx, tenant) = (&mut latest.tx, &latest.tenant);
            let roots = (
                ledger::log::root(tx, tenant, from).await?,
                ledger::log::root(tx, tenant, to).await?,
            );
            let path = ledger::log::consistency(tx, tenant, from, to).await?;
            latest.tx.commit().await.map_err(StoreError::from)?;
            let sizes = (from, to);
            Ok(Consistency { sizes, roots, path })
        })
        .await
    }

    /// The whole ledger as a tar: checkpoint, hash tiles, entries. What breaks off in the middle does not verify.
    pub async fn ledger_archive(&self, caller: Caller) -> Result<Pieces, RecordError> {
        let store = self.store.clone();
        let tenant = caller.tenant.clone();
        let note = self.checkpoint(caller.tenant).await?;
        // The size that the archive is of is the signed one.
        let checkpoint = Note::parse(&note).ok();
        let checkpoint = checkpoint.and_then(|note| Checkpoint::parse(&note.text).ok());
        let checkpoint =
            checkpoint.ok_or_else(|| store::contradiction("checkpoints", "note", &tenant))?;
        let (sink, pieces) = mpsc::channel(WAITING_PIECES);
        tokio::spawn(async move {
            let written = write(store, tenant, (checkpoint.size, note), sink.clone());
            // In a task of its own: whatever ends it early, the reader hears of it.
            let written = tokio::spawn(written).await;
            if let Err(error) = written.unwrap_or(Err(ExportError::CutOff)) {
                if !matches!(error, ExportError::Gone) {
                    tracing::error!(%error, "an archive of a ledger broke off");
                }
                // Nobody may be there to hear it.
                let _ = sink.send(Err(error)).await;
            }
        });
        Ok(pieces)
    }
}

/// A tenant's ledger at one moment, under its latest checkpoint or under an earlier one.
struct Latest {
    tx: Tx,
    tenant: TenantId,
    size: u64,
    note: String,
}

impl Latest {
    async fn read(store: &Store, tenant: TenantId) -> Result<Self, RecordError> {
        let mut tx = store.snapshot(&tenant).await?;
        let (size, note) = store::ledger::checkpoint(&mut tx, &tenant).await?;
        Ok(Self {
            tx,
            tenant,
            size,
            note,
        })
    }

    fn reaches(&self, size: u64, what: impl FnOnce() -> String) -> Result<(), RecordError> {
        if size <= self.size {
            return Ok(());
        }
        Err(RecordError::BeyondCheckpoint {
            what: what(),
            size: self.size,
        })
    }

    fn has(&self, index: u64) -> Result<(), RecordError> {
        self.reaches(index.saturating_add(1), || format!("entry {index}"))
    }

    /// The ledger as it was under the checkpoint of a size.
    async fn at(mut self, asked: u64) -> Result<Self, RecordError> {
        let found = store::ledger::checkpoint_from(&mut self.tx, &self.tenant, asked).await?;
        match found {
            Some((size, note)) if size == asked => Ok(Self { size, note, ..self }),
            Some((next, _)) => Err(RecordError::NoCheckpoint { asked, next }),
            None => Err(store::contradiction("checkpoints", "size", asked).into()),
        }
    }
}

/// Writes the archive, a few tiles a transaction: a slow reader holds no connection.
async fn write(
    store: Store,
    tenant: TenantId,
    (size, note): (u64, String),
    sink: mpsc::Sender<Result<Bytes, ExportError>>,
) -> Result<(), ExportError> {
    let mut tar = Tar::new(sink);
    tar.whole("checkpoint", note.as_bytes()).await?;
    let mut tiles = Tile::all(size).peekable();
    while tiles.peek().is_some() {
        let mut read = Vec::with_capacity(TILES_AT_ONCE);
        let mut tx = store.snapshot(&tenant).await?;
        for tile in tiles.by_ref().take(TILES_AT_ONCE) {
            let bytes = ledger::log::tile(&mut tx, &tenant, &tile).await;
            read.push((tile.to_string(), bytes?));
        }
        tx.commit().await.map_err(StoreError::from)?;
        for (name, bytes) in read {
            tar.whole(&name, &bytes).await?;
        }
    }
    tar.finish().await
}
