//! Sealing: the signed statement over a whole run, made once.

use super::follow::Progress;
use super::open::state_of;
use super::place::{STORE_ID, close_turn, place};
use super::settings::{Settings, settings};
use super::{RecordError, Recorder, commit};
use crate::access::{AgentKeys, Caller};
use crate::ledger::later;
use crate::store;
use crate::store::Tx;
use crate::store::anchors::{StampRow, Stamped};
use crate::store::frames::NewFrame;
use crate::store::run_nodes::Node;
use crate::store::runs::{RunRow, SealedRow};
use crate::store::tenants::LockedTenant;
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, Draft, Kind};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::note::{Note, TlogProof};
use onrecord_core::statement::{
    Completeness, LedgerPosition, PayloadCounts, Predicate, RunSeal, Signed,
};
use onrecord_core::timestamp::Timestamp;

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
        let sealing = Sealing {
            caller: caller.clone(),
            run: run.clone(),
            interrupted,
            idle: None,
        };
        match self.join(&caller.tenant, sealing).await? {
            Some(seal) => {
                self.tell_sealed(&caller.tenant, &seal);
                Ok(seal)
            }
            None => self.read_seal(&caller.tenant, run).await,
        }
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

    /// The seal of a run.
    pub async fn seal_of(&self, caller: Caller, run: RunId) -> Result<Seal, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.read_seal(&caller.tenant, &run).await })
            .await
    }

    async fn read_seal(&self, tenant: &TenantId, run: &RunId) -> Result<Seal, RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let sealed = row.sealed.ok_or_else(|| RecordError::Open(run.clone()))?;
        let envelope = store::ledger::entry(&mut tx, tenant, sealed.index).await?;
        let stamp = stamp_of(&mut tx, tenant, sealed.index).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        let seal = read_seal(sealed, &envelope)?;
        Ok(Seal {
            stamped_at: stamp.map(|stamp| stamp.stamped_at),
            ..seal
        })
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
            let tenant = caller.tenant.clone();
            let sealing = Sealing {
                caller,
                run,
                interrupted: true,
                idle: Some(Idle { standard_s }),
            };
            let seal = recorder.join(&tenant, sealing).await?;
            if let Some(seal) = &seal {
                recorder.tell_sealed(&tenant, seal);
            }
            Ok(seal.is_some())
        })
        .await
    }
}

/// A run that is to be sealed.
pub(super) struct Sealing {
    pub(super) caller: Caller,
    pub(super) run: RunId,
    pub(super) interrupted: bool,
    /// Only where nobody has written to it for so long.
    pub(super) idle: Option<Idle>,
}

/// For how long nobody has to have written to a run: as long as its tenant chose, or, where it chose nothing, for so many
/// seconds; `None` is for ever.
pub(super) struct Idle {
    standard_s: Option<u64>,
}

/// A run with its last frames in their places.
pub(crate) struct Closed {
    pub(crate) chain: Chain,
    pub(crate) before: (u64, Hash),
    pub(crate) frames: Vec<NewFrame>,
    /// What the frames complete of the run's tree.
    pub(crate) nodes: Vec<Node>,
    /// Not before its last frame.
    pub(crate) at: Timestamp,
}

impl Sealing {
    /// Whether a run that is not sealed is still to be, at a time, by what its tenant chose.
    pub(super) fn applies(&self, row: &RunRow, now: Timestamp, chosen: &Settings) -> bool {
        let Some(Idle { standard_s }) = self.idle else {
            return true;
        };
        let Some(idle_s) = chosen.seal_idle(standard_s) else {
            return false;
        };
        let last = row.chain.last_at().unwrap_or(now);
        let least_micros = i64::try_from(idle_s)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000);
        now.micros() - last.micros() >= least_micros
    }

    /// Closes the turn of a run, and ends it unless it was interrupted.
    pub(super) fn close(
        &self,
        row: &RunRow,
        now: Timestamp,
        keys: &AgentKeys,
    ) -> Result<Closed, RecordError> {
        let mut chain = row.chain.clone();
        let before = (chain.size(), chain.head());
        let behind = |behind_ms| RecordError::ClockBehind { behind_ms };
        let at = later(now, chain.last_at()).map_err(behind)?;
        let mut frames = Vec::new();
        frames.extend(close_turn(&mut chain, at)?);
        if !self.interrupted && !chain.ended() {
            // A token that stands for one agent ends the run as it; with any other the store does, and for an agent that
            // signs its frames.
            let agent = self.caller.agent().filter(|agent| !keys.must_sign(agent));
            let server = || Caller::server(self.caller.tenant.clone()).actor();
            let end = session_end(agent.unwrap_or_else(server));
            frames.push(place(&mut chain, &end, at, None)?);
        }
        Ok(Closed {
            nodes: store::run_nodes::completed(row.chain.tree(), &frames),
            chain,
            before,
            frames,
            at,
        })
    }
}

impl Closed {
    /// What is signed of it. The time is not before the last entry of the ledger either.
    pub(crate) fn statement(
        &self,
        row: &RunRow,
        tenant: &LockedTenant,
    ) -> Result<RunSeal, RecordError> {
        let behind = |behind_ms| RecordError::ClockBehind { behind_ms };
        let sealed_at = later(self.at, tenant.ledger_at).map_err(behind)?;
        let chain = &self.chain;
        Ok(RunSeal {
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
            state: state_of(chain),
        })
    }
}

fn read_seal(sealed: SealedRow, envelope: &[u8]) -> Result<Seal, RecordError> {
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
        created: false,
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
pub(crate) fn session_end(actor: Actor) -> Draft {
    Draft {
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
    }
}
