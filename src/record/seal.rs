//! Sealing: the signed statement over a whole run, made once.

use super::follow::Progress;
use super::open::state_of;
use super::place::{STORE_ID, close_turn, place};
use super::{RecordError, Recorder};
use crate::access::{AgentKeys, Caller};
use crate::ledger::later;
use crate::store;
use crate::store::frames::NewFrame;
use crate::store::runs::{RunRow, SealedRow};
use crate::store::tenants::LockedTenant;
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Draft, Kind};
use onrecord_core::id::{RunId, TenantId};
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
    /// Its `.tlog-proof`.
    pub proof: String,
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
            idle_s: None,
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
        tx.commit().await.map_err(store::StoreError::from)?;
        read_seal(sealed, &envelope)
    }

    /// Seals runs as interrupted that nobody has written to for some seconds. Returns how many. One that
    /// cannot be sealed does not hinder the others.
    pub async fn seal_idle(&self, idle_s: u64) -> Result<u64, RecordError> {
        let mut count = 0;
        for (tenant, _) in self.store.tenants().await? {
            let mut tx = self.store.snapshot(&tenant).await?;
            let runs = store::runs::idle(&mut tx, &tenant, idle_s, 100).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            for run in runs {
                match self.seal_if_idle(&tenant, &run, idle_s).await {
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

    /// Looks again under the lock: whoever comes back at this moment keeps the run.
    async fn seal_if_idle(
        &self,
        tenant: &TenantId,
        run: &RunId,
        idle_s: u64,
    ) -> Result<bool, RecordError> {
        let (recorder, run) = (self.clone(), run.clone());
        let caller = Caller::server(tenant.clone());
        self.detached(async move {
            let tenant = caller.tenant.clone();
            let sealing = Sealing {
                caller,
                run,
                interrupted: true,
                idle_s: Some(idle_s),
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
    /// Only where nobody has written to it for so many seconds.
    pub(super) idle_s: Option<u64>,
}

/// A run with its last frames in their places.
pub(super) struct Closed {
    pub(super) chain: Chain,
    pub(super) before: (u64, Hash),
    pub(super) frames: Vec<NewFrame>,
    /// Not before its last frame.
    pub(super) at: Timestamp,
}

impl Sealing {
    /// Whether a run that is not sealed is still to be, at a time.
    pub(super) fn applies(&self, row: &RunRow, now: Timestamp) -> bool {
        let Some(idle_s) = self.idle_s else {
            return true;
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
            let end = session_end(&self.caller, keys);
            frames.push(place(&mut chain, &end, at, None)?);
        }
        Ok(Closed {
            chain,
            before,
            frames,
            at,
        })
    }
}

impl Closed {
    /// What is signed of it. The time is not before the last entry of the ledger either.
    pub(super) fn statement(
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
        proof: sealed.proof,
        created: false,
    })
}

/// The frame that ends a run, written for whoever seals it.
fn session_end(caller: &Caller, keys: &AgentKeys) -> Draft {
    // A token that stands for one agent ends the run as it; with any other the store does, and for an agent that signs
    // its frames.
    let actor = match caller.agent() {
        Some(agent) if !keys.must_sign(&agent) => agent,
        _ => Caller::server(caller.tenant.clone()).actor(),
    };
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
