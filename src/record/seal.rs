//! Sealing: the signed statement over a whole run, made once.

use super::follow::Progress;
use super::open::state_of;
use super::place::{STORE_ID, close_turn, place};
use super::settings::settings;
use super::{RecordError, Recorder, commit};
use crate::access::{AgentKeys, Caller};
use crate::ledger::{self, later};
use crate::store;
use crate::store::Tx;
use crate::store::anchors::{StampRow, Stamped};
use crate::store::append::RunWrite;
use crate::store::runs::{RunRow, SealedRow};
use crate::store::tenants::LockedTenant;
use crate::vault::{TenantKeys, Vault};
use onrecord_core::frame::{Actor, Draft, Kind};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::note::{Note, TlogProof};
use onrecord_core::statement::{
    Completeness, FRAMES_SUBJECT, LedgerPosition, PayloadCounts, Predicate, RunSeal, Signed,
};
use onrecord_core::timestamp::Timestamp;
use std::sync::Arc;

/// A seal and its proof.
#[derive(Clone, Debug)]
pub struct Seal {
    /// What it says.
    pub statement: RunSeal,
    /// Its index in the ledger.
    pub index: u64,
    /// The envelope, exactly as signed.
    pub envelope: String,
    /// Its `.tlog-proof`: under the log's own checkpoint, and once witnesses cosigned one that has it, under that.
    pub proof: String,
    /// Names of the witnesses that cosigned the proof's checkpoint.
    pub cosigned_by: Vec<String>,
    /// When an authority stamped it, by the authority's clock.
    pub stamped_at: Option<Timestamp>,
    /// False where the run was sealed before.
    pub created: bool,
}

impl Recorder {
    /// Seals a run: closes its turn, ends it unless it was interrupted, signs the whole and appends the
    /// seal to the ledger, in one transaction. A run that is sealed keeps its seal, which is answered.
    pub async fn seal(
        &self,
        caller: Caller,
        run: RunId,
        interrupted: bool,
    ) -> Result<Seal, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.seal_now(&caller, &run, interrupted).await })
            .await
    }

    async fn seal_now(
        &self,
        caller: &Caller,
        run: &RunId,
        interrupted: bool,
    ) -> Result<Seal, RecordError> {
        let locked = self.lock(caller, run).await?;
        let seal = seal_locked(locked, caller, run, interrupted).await?;
        self.tell_sealed(&caller.tenant, &seal);
        Ok(seal)
    }

    /// Tells those who follow the run.
    fn tell_sealed(&self, tenant: &TenantId, seal: &Seal) {
        let state = &seal.statement.state;
        let progress = Progress {
            size: state.size,
            sealed: true,
        };
        let key = (tenant.clone(), state.run.clone());
        self.followed.tell(&key, progress);
        self.sequencer.forget(&key.1);
    }

    async fn lock(&self, caller: &Caller, run: &RunId) -> Result<Locked, RecordError> {
        let keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        // First the tenant, then the run, as everybody who needs both does: no two can wait for each other.
        let tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        let (row, now) = store::runs::lock(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        Ok(Locked {
            vault: self.vault.clone(),
            keys,
            tx,
            tenant,
            row,
            now,
        })
    }

    /// The seal of a run.
    pub async fn seal_of(&self, caller: Caller, run: RunId) -> Result<Seal, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let row = store::runs::find(&mut tx, &run)
                .await?
                .ok_or_else(|| RecordError::NoRun(run.clone()))?;
            let sealed = row.sealed.ok_or_else(|| RecordError::Open(run.clone()))?;
            let envelope = store::ledger::entry(&mut tx, &caller.tenant, sealed.index).await?;
            let stamp = stamp_of(&mut tx, &caller.tenant, sealed.index).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            let seal = read_seal(sealed, &envelope, false)?;
            Ok(Seal {
                stamped_at: stamp.map(|stamp| stamp.stamped_at),
                ..seal
            })
        })
        .await
    }

    /// Seals runs as interrupted that nobody has written to for as long as their tenant chose, or, where it chose nothing,
    /// for so many seconds; `None` is for ever. Returns how many. What cannot be sealed does not hinder the others.
    pub async fn seal_idle(&self, standard_s: Option<u64>) -> Result<u64, RecordError> {
        let mut count = 0;
        for (tenant, _) in self.store.tenants().await? {
            let runs = match self.idle_runs(&tenant, standard_s).await {
                Ok(runs) => runs,
                Err(error) => {
                    tracing::warn!(%tenant, %error, "idle runs cannot be looked for");
                    continue;
                }
            };
            for run in runs {
                match self.seal_if_idle(&tenant, &run, standard_s).await {
                    Ok(true) => {
                        tracing::info!(%run, "sealed as interrupted: nobody wrote to it");
                        count += 1;
                    }
                    Ok(false) => {}
                    Err(error) => tracing::error!(%run, %error, "an idle run cannot be sealed"),
                }
            }
        }
        Ok(count)
    }

    async fn idle_runs(
        &self,
        tenant: &TenantId,
        standard_s: Option<u64>,
    ) -> Result<Vec<RunId>, RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let runs = match settings(&mut tx, tenant).await?.seal_idle(standard_s) {
            Some(idle_s) => store::runs::idle(&mut tx, tenant, idle_s, 100).await?,
            None => Vec::new(),
        };
        commit(tx).await?;
        Ok(runs)
    }

    /// Looks again under the locks: whoever comes back at this moment keeps the run, and so does who chose another time.
    async fn seal_if_idle(
        &self,
        tenant: &TenantId,
        run: &RunId,
        standard_s: Option<u64>,
    ) -> Result<bool, RecordError> {
        let (recorder, run) = (self.clone(), run.clone());
        let caller = Caller::server(tenant.clone());
        self.detached(async move {
            let mut locked = recorder.lock(&caller, &run).await?;
            let chosen = settings(&mut locked.tx, &caller.tenant).await?;
            let Some(idle_s) = chosen.seal_idle(standard_s) else {
                return Ok(false);
            };
            let last = locked.row.chain.last_at().unwrap_or(locked.now);
            let idle_micros = locked.now.micros() - last.micros();
            let least_micros = i64::try_from(idle_s)
                .unwrap_or(i64::MAX)
                .saturating_mul(1_000_000);
            if locked.row.sealed.is_some() || idle_micros < least_micros {
                return Ok(false);
            }
            let seal = seal_locked(locked, &caller, &run, true).await?;
            recorder.tell_sealed(&caller.tenant, &seal);
            Ok(true)
        })
        .await
    }
}

/// A run and its tenant, both locked, and the database's clock after the locks.
struct Locked {
    vault: Arc<Vault>,
    keys: Arc<TenantKeys>,
    tx: Tx,
    tenant: LockedTenant,
    row: RunRow,
    now: Timestamp,
}

async fn seal_locked(
    locked: Locked,
    caller: &Caller,
    run: &RunId,
    interrupted: bool,
) -> Result<Seal, RecordError> {
    let Locked {
        vault,
        keys,
        mut tx,
        mut tenant,
        row,
        now,
    } = locked;
    if let Some(sealed) = row.sealed {
        let envelope = store::ledger::entry(&mut tx, &caller.tenant, sealed.index).await?;
        return read_seal(sealed, &envelope, false);
    }
    let behind = |behind_ms| RecordError::ClockBehind { behind_ms };
    let mut chain = row.chain;
    let (before, tree) = ((chain.size(), chain.head()), chain.tree().clone());
    let at = later(now, chain.last_at()).map_err(behind)?;
    let mut frames = Vec::new();
    frames.extend(close_turn(&mut chain, at)?);
    if !interrupted && !chain.ended() {
        let end = session_end(&mut tx, caller).await?;
        frames.push(place(&mut chain, &end, at, None)?);
    }
    if !frames.is_empty() {
        let write = RunWrite {
            before,
            chain: &chain,
            frames: &frames,
            payloads: &[],
            nodes: &store::run_nodes::completed(&tree, &frames),
            key_version: None,
        };
        store::append::write_locked(&mut tx, now, write).await?;
    }
    // Not before the last frame and not before the last entry.
    let sealed_at = later(at, tenant.ledger_at).map_err(behind)?;
    let statement = RunSeal {
        completeness: if chain.ended() {
            Completeness::Full
        } else {
            Completeness::Interrupted
        },
        kinds: chain.kinds().clone(),
        ledger: LedgerPosition {
            open_index: row.open_index,
            origin: tenant.origin.clone(),
        },
        opened_at: row.opened_at,
        outcome: chain.outcome().into(),
        payloads: PayloadCounts {
            count: chain.payloads(),
            erased: row.erased,
            missing: 0,
        },
        previous: tenant.previous_seal.clone(),
        run_no: row.run_no,
        sealed_at,
        state: state_of(&chain),
    };
    let entry = ledger::append(
        &mut tx,
        &mut tenant,
        &vault,
        &Predicate::RunSeal(statement.clone()),
        Some((FRAMES_SUBJECT, chain.file_digest())),
    )
    .await?;
    let note = ledger::checkpoint(&mut tx, &tenant, &keys).await?;
    let proof = ledger::proof(
        &mut tx,
        &caller.tenant,
        entry.index,
        (tenant.ledger.size(), &note),
    )
    .await?;
    let sealed = SealedRow {
        at: sealed_at,
        index: entry.index,
        proof,
    };
    store::runs::update_seal(&mut tx, run, &sealed).await?;
    store::tenants::update_seal(&mut tx, &caller.tenant, run, &entry.leaf).await?;
    // A crash before this line leaves the run open and the ledger as it was; after it the run is
    // sealed, and whoever asks again gets this seal.
    commit(tx).await?;
    let envelope = String::from_utf8_lossy(&entry.bytes).into_owned();
    Ok(Seal {
        statement,
        index: sealed.index,
        envelope,
        proof: sealed.proof,
        cosigned_by: Vec::new(),
        stamped_at: None,
        created: true,
    })
}

fn read_seal(sealed: SealedRow, envelope: &[u8], created: bool) -> Result<Seal, RecordError> {
    let wrong = || store::contradiction("ledger_entries", "bytes", sealed.index);
    let signed = Signed::parse(envelope).map_err(|_| wrong())?;
    let Ok(Some(Predicate::RunSeal(statement))) = signed.predicate() else {
        return Err(wrong().into());
    };
    Ok(Seal {
        statement,
        index: sealed.index,
        envelope: String::from_utf8_lossy(envelope).into_owned(),
        cosigned_by: cosigned_by(&sealed.proof),
        stamped_at: None,
        proof: sealed.proof,
        created,
    })
}

/// Whose signatures stand under a proof's checkpoint beside the log's own.
fn cosigned_by(proof: &str) -> Vec<String> {
    let checkpoint = TlogProof::parse(proof).map(|proof| proof.checkpoint);
    let note = checkpoint.ok().and_then(|text| Note::parse(&text).ok());
    let signatures = note.into_iter().flat_map(|note| note.signatures);
    signatures.skip(1).map(|one| one.name).collect()
}

/// The time stamp of a seal.
async fn stamp_of(
    tx: &mut Tx,
    tenant: &TenantId,
    index: u64,
) -> Result<Option<StampRow>, store::StoreError> {
    store::anchors::stamp(tx, tenant, Stamped::Seal, Some(index)).await
}

/// The frame that ends a run, written for whoever seals it.
async fn session_end(tx: &mut Tx, caller: &Caller) -> Result<Draft, RecordError> {
    // A token that stands for one agent ends the run as it; with any other the store does, and for an agent that signs
    // its frames.
    let actor = match caller.agent() {
        Some(agent) if !signs(tx, caller, &agent).await? => agent,
        _ => Caller::server(caller.tenant.clone()).actor(),
    };
    Ok(Draft {
        kind: Kind::SessionEnd,
        key: format!("{STORE_ID}/session_end"),
        occurred_at: None,
        turn: None,
        actor,
        body: b"{}".to_vec(),
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        submitted: None,
    })
}

/// Whether an agent has to sign its frames, as this transaction sees it.
async fn signs(tx: &mut Tx, caller: &Caller, agent: &Actor) -> Result<bool, RecordError> {
    let keys = store::signing_keys::all(tx, &caller.tenant).await?;
    Ok(AgentKeys::of(keys)?.must_sign(agent))
}
