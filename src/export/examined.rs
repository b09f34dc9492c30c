//! Runs that are read anew, a sample of them: whether frames and payloads are those that were recorded, which payloads are lost,
//! and what could be replayed. Nothing of what was said leaves here, so that it is no reading that the ledger has to know of.

use crate::ledger::{Erasures, Whereabouts};
use crate::record::{RecordError, Recorder, commit, offload};
use crate::retention::expired::Expired;
use crate::store::payloads::StoredPayload;
use crate::store::quality::Each;
use crate::store::runs::RunRow;
use crate::store::{self, StoreError, Tx};
use crate::vault::{RunKeys, VaultError};
use onrecord_core::chain::{Chain, genesis};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::frame::{Frame, Kind};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::replayable::{Possible, Replayable};
use onrecord_core::statement::{Predicate, Signed, State};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// Frames that are read at once.
const PAGE: u64 = 1_000;
/// Payloads that are read at once, and their bytes.
const PAYLOADS: (usize, usize) = (256, 4 << 20);
/// Altered runs that are named; more are counted.
pub(crate) const NAMED: usize = 20;

/// How much is read anew at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) runs: u32,
    /// Of frames and ciphertexts.
    pub(crate) bytes: u64,
}

impl Budget {
    /// What a question may take: some seconds of one core.
    pub(crate) const WHOLE: Self = Self {
        runs: 200,
        bytes: 64 << 20,
    };

    /// One of so many parts of it, which together are not more, but for one run each.
    pub(crate) fn share(self, parts: usize) -> Self {
        let parts = u32::try_from(parts.max(1)).unwrap_or(u32::MAX);
        Self {
            runs: self.runs.div_ceil(parts),
            bytes: self.bytes / u64::from(parts),
        }
    }
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
    /// Runs of the newest that would have gone beyond the bytes.
    pub(crate) passed_over: u64,
}

/// Payloads of one place in frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Class {
    pub(crate) committed: u64,
    /// Neither in the store, nor kept by their agents, nor erased.
    pub(crate) missing: u64,
}

/// What was found in runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Examined {
    pub(crate) runs: u64,
    /// Frames that there have to be.
    pub(crate) frames: u64,
    /// Those that are there, are frames, and have the hash that the frame behind them names, or the run's row and its seal.
    pub(crate) verified_frames: u64,
    /// Payloads in the store that have not expired.
    pub(crate) payloads: u64,
    /// Those that open, to what their frames commit to.
    pub(crate) verified_payloads: u64,
    /// Those whose keys could not be had: an erasure destroyed them meanwhile, or somebody else did.
    pub(crate) without_key: u64,
    /// Runs of which something is not as it was recorded.
    pub(crate) altered_runs: u64,
    /// The newest of them, at most [`NAMED`].
    pub(crate) altered: Vec<RunId>,
    /// By kind of frame, name of the payload, and tier.
    pub(crate) classes: BTreeMap<(Kind, String, u8), Class>,
    /// Sealed runs by what of them could be replayed.
    pub(crate) full: u64,
    pub(crate) partial: u64,
    pub(crate) none: u64,
    /// Sealed runs by what they lack for all of it.
    pub(crate) lacks: BTreeMap<&'static str, u64>,
}

impl Examined {
    pub(super) fn add(&mut self, more: Self) {
        self.runs += more.runs;
        self.frames += more.frames;
        self.verified_frames += more.verified_frames;
        self.payloads += more.payloads;
        self.verified_payloads += more.verified_payloads;
        self.without_key += more.without_key;
        self.altered_runs += more.altered_runs;
        self.altered.extend(more.altered);
        self.altered.truncate(NAMED);
        for (place, class) in more.classes {
            let here = self.classes.entry(place).or_default();
            here.committed += class.committed;
            here.missing += class.missing;
        }
        self.full += more.full;
        self.partial += more.partial;
        self.none += more.none;
        for (lack, count) in more.lacks {
            *self.lacks.entry(lack).or_default() += count;
        }
    }
}

impl Recorder {
    /// Reads the newest runs of a time anew, one after the other, each as it is at one moment.
    ///
    /// # Errors
    /// The database, which may take too long. A run that contradicts the model is told as altered.
    pub(super) async fn examine(
        &self,
        tenant: &TenantId,
        time: (Timestamp, Timestamp),
        (each, budget): (Each, Budget),
    ) -> Result<(BTreeMap<String, Examined>, Looked), RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let newest = store::quality::runs(&mut tx, tenant, time, (each, budget.runs)).await?;
        commit(tx).await?;
        let mut groups: BTreeMap<String, Examined> = BTreeMap::new();
        let mut looked = Looked::default();
        for (key, run) in newest {
            let left = budget.bytes.saturating_sub(looked.bytes);
            let found = match self.examine_run(tenant, &run, left).await {
                Ok(Some((found, bytes))) => {
                    looked.bytes += bytes;
                    found
                }
                Ok(None) => {
                    looked.passed_over += 1;
                    continue;
                }
                Err(RecordError::Store(StoreError::Contradiction { .. })) => altered(run),
                Err(error) => return Err(error),
            };
            looked.runs += 1;
            groups.entry(key).or_default().add(found);
        }
        Ok((groups, looked))
    }

    /// `None` where the run has more bytes than are left.
    async fn examine_run(
        &self,
        tenant: &TenantId,
        run: &RunId,
        left: u64,
    ) -> Result<Option<(Examined, u64)>, RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let Some(row) = store::runs::find(&mut tx, run).await? else {
            return Err(store::contradiction("runs", "run", run).into());
        };
        if row.chain.file_bytes() > left {
            return Ok(None);
        }
        let bytes = store::quality::bytes(&mut tx, run).await?;
        if bytes > left {
            return Ok(None);
        }
        let keys = match self.read_run_keys(tenant, run).await {
            Ok(keys) => Some(keys),
            Err(RecordError::Vault(_)) => None,
            Err(error) => return Err(error),
        };
        let erasures = Erasures::of(&mut tx, tenant, run).await?;
        let expired = Expired::of(&mut tx, tenant, run).await?;
        let payloads = open_all(&mut tx, &row, keys.as_ref(), (&erasures, &expired)).await?;
        let seal = seal(&mut tx, &row).await?;
        let mut reading = Reading::of(&row, erasures, payloads);
        let size = row.chain.size();
        for from in (0..size).step_by(PAGE as usize) {
            let seqs: Vec<u64> = (from..size.min(from + PAGE)).collect();
            // By their places, since one that is not there is to be told.
            let frames = store::frames::some(&mut tx, run, &seqs).await?;
            let bytes = frames.values().map(Vec::len).sum();
            offload(bytes, || {
                for seq in seqs {
                    reading.look(seq, frames.get(&seq).map(Vec::as_slice));
                }
            });
        }
        commit(tx).await?;
        Ok(Some((reading.finish(&row, seal), bytes)))
    }
}

/// A run whose rows cannot be read as the tables have them.
fn altered(run: RunId) -> Examined {
    Examined {
        runs: 1,
        altered_runs: 1,
        altered: vec![run],
        ..Examined::default()
    }
}

/// What the seal says of the frames of a sealed run.
async fn seal(tx: &mut Tx, row: &RunRow) -> Result<Option<State>, RecordError> {
    let Some(sealed) = &row.sealed else {
        return Ok(None);
    };
    let envelope = store::ledger::entry(tx, &row.tenant, sealed.index).await?;
    let wrong = || store::contradiction("ledger_entries", "bytes", sealed.index);
    let signed = Signed::parse(&envelope).map_err(|_| wrong())?;
    match signed.predicate() {
        Ok(Some(Predicate::RunSeal(seal))) => Ok(Some(seal.state)),
        _ => Err(wrong().into()),
    }
}

/// What became of a payload that the store has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    /// It is what was committed to.
    Whole,
    /// It is something else.
    Altered,
    WithoutKey,
    /// It is not to be read any more, and was not.
    Expired,
}

/// Opens each payload of a run that is there to be read.
async fn open_all(
    tx: &mut Tx,
    row: &RunRow,
    keys: Option<&RunKeys>,
    gone: (&Erasures, &Expired),
) -> Result<HashMap<Hash, Opened>, RecordError> {
    let (run, size) = (&row.run, row.chain.size());
    let mut opened = HashMap::new();
    let mut last = None;
    loop {
        let page = store::payloads::page(tx, run, size, last.as_ref(), PAYLOADS).await?;
        let Some(end) = page.last() else {
            return Ok(opened);
        };
        last = Some(end.key.commit);
        let bytes = page.iter().map(|payload| payload.ciphertext.len()).sum();
        offload(bytes, || {
            for payload in &page {
                opened.insert(payload.key.commit, open(payload, keys, gone));
            }
        });
    }
}

fn open(
    payload: &StoredPayload,
    keys: Option<&RunKeys>,
    (erasures, expired): (&Erasures, &Expired),
) -> Opened {
    let key = &payload.key;
    let tier = u8::try_from(key.tier).unwrap_or(u8::MAX);
    let is_erased = erasures.covering(key.seq, tier, &key.commit).is_some();
    if is_erased || expired.payload(tier, key.commit).is_some() {
        return Opened::Expired;
    }
    let Some(keys) = keys else {
        return Opened::WithoutKey;
    };
    let opened = keys.open(
        key.tier,
        key.key_version,
        &payload.media,
        &key.commit,
        &key.wrapped_dek,
        &payload.ciphertext,
    );
    match opened {
        Ok(_) => Opened::Whole,
        Err(VaultError::NoRunKey { .. }) => Opened::WithoutKey,
        Err(_) => Opened::Altered,
    }
}

/// A run that is being read, from its first frame.
struct Reading {
    found: Examined,
    erasures: Erasures,
    payloads: HashMap<Hash, Opened>,
    replayable: Replayable,
    /// By the rules of frames in their places, as long as none is broken.
    chain: Result<Chain, ()>,
    /// Hash of the frame before, or the genesis; none where that cannot be read.
    before: Option<Hash>,
}

impl Reading {
    fn of(row: &RunRow, erasures: Erasures, payloads: HashMap<Hash, Opened>) -> Self {
        let found = Examined {
            runs: 1,
            ..Examined::default()
        };
        Self {
            found,
            erasures,
            payloads,
            replayable: Replayable::new(),
            chain: Ok(Chain::new(row.tenant.clone(), row.run.clone())),
            before: Some(genesis(&row.tenant, &row.run)),
        }
    }

    /// The next place, and what stands in it.
    fn look(&mut self, seq: u64, bytes: Option<&[u8]>) {
        self.found.frames += 1;
        let read = bytes.and_then(|bytes| Some((Chain::read(bytes, seq).ok()?, bytes)));
        let Some((frame, bytes)) = read else {
            // The frame before it is named by nothing that could be read.
            self.before = None;
            self.chain = Err(());
            self.replayable.without_frame();
            return;
        };
        self.named(seq, frame.prev);
        if let Ok(chain) = &mut self.chain
            && chain.extend_read(&frame, bytes, None).is_err()
        {
            self.chain = Err(());
        }
        self.before = Some(leaf_hash(bytes));
        self.payloads_of(&frame);
        let opened = &self.payloads;
        self.replayable.read(&frame, |payload| {
            opened.get(&payload.commit) == Some(&Opened::Whole)
        });
    }

    /// A frame, or the end of the run, names the hash of what stands before the place.
    fn named(&mut self, seq: u64, hash: Hash) {
        let is_it = self.before == Some(hash);
        // The genesis is no frame.
        if is_it && seq > 0 {
            self.found.verified_frames += 1;
        }
        if !is_it {
            self.chain = Err(());
            self.replayable.without_frame();
        }
    }

    fn payloads_of(&mut self, frame: &Frame<'_>) {
        for payload in frame.payloads() {
            let opened = self.payloads.get(&payload.commit).copied();
            let place = (frame.kind, payload.name.clone(), payload.tier);
            let class = self.found.classes.entry(place).or_default();
            class.committed += 1;
            let is_stored = opened.is_some();
            match self.erasures.whereabouts(frame.seq, payload, is_stored) {
                Whereabouts::Missing => class.missing += 1,
                Whereabouts::Stored => {
                    let found = &mut self.found;
                    found.payloads += u64::from(opened != Some(Opened::Expired));
                    found.verified_payloads += u64::from(opened == Some(Opened::Whole));
                    found.without_key += u64::from(opened == Some(Opened::WithoutKey));
                }
                Whereabouts::Kept | Whereabouts::Erased(_) => {}
            }
        }
    }

    /// What was found, up to the end that the run's row and its seal name.
    fn finish(mut self, row: &RunRow, seal: Option<State>) -> Examined {
        let head = match &seal {
            Some(seal) if seal.head != row.chain.head() => None,
            _ => Some(row.chain.head()),
        };
        match head {
            Some(head) => self.named(row.chain.size(), head),
            None => self.chain = Err(()),
        }
        let is_whole = self.chain.as_ref().is_ok_and(|chain| {
            let sealed = seal.as_ref().is_none_or(|seal| {
                (seal.size, seal.root, &seal.run) == (chain.size(), chain.root(), &row.run)
            });
            sealed && chain.root() == row.chain.root()
        });
        let mut found = self.found;
        let opened = found.verified_payloads + found.without_key;
        if !is_whole || opened < found.payloads {
            found.altered_runs = 1;
            found.altered.push(row.run.clone());
        }
        if row.sealed.is_some() {
            let (possible, lacks) = self.replayable.finish();
            *match possible {
                Possible::Full => &mut found.full,
                Possible::Partial => &mut found.partial,
                Possible::None => &mut found.none,
            } = 1;
            found.lacks = lacks.into_iter().map(|lack| (lack.as_str(), 1)).collect();
        }
        found
    }
}
