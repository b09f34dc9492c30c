//! A report of a run, for people: what is there of it, and who had to do with it.

use crate::access::Caller;
use crate::ledger::{Erasures, Whereabouts};
use crate::record::read::RunSummary;
use crate::record::{RecordError, Recorder, commit};
use crate::store::{self, Tx};
use onrecord_core::account::{Account, Accounting};
use onrecord_core::coverage::{Coverage, Required, State};
use onrecord_core::custody::Custody;
use onrecord_core::digest::Hash;
use onrecord_core::frame::Frame;
use onrecord_core::id::{Origin, RunId};
use onrecord_core::statement::{Completeness, Predicate, Signed};
use onrecord_core::timestamp::Timestamp;
use serde::Serialize;
use std::collections::HashSet;

/// Frames that are read at once.
const PAGE: u64 = 1_000;

/// The payloads of a run by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PayloadStates {
    /// All that frames commit to.
    pub count: u64,
    /// In the store, encrypted.
    pub stored: u64,
    /// Never sent: their agents kept them.
    pub not_kept: u64,
    /// Erased, with an entry in the ledger.
    pub erased: u64,
    /// Neither there nor erased: lost.
    pub missing: u64,
}

/// A report of a run, from its frames and from the ledger.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The run, as its row has it.
    pub run: RunSummary,
    /// The ledger.
    pub origin: Origin,
    /// When the report was made, by the database's clock.
    pub made_at: Timestamp,
    /// What the seal says of the run's end; `None` while it is open.
    pub completeness: Option<Completeness>,
    /// What its frames come to.
    pub account: Account,
    /// Which facts a record of use should have, and whether it has them.
    pub coverage: Vec<(Required, State)>,
    /// What became of its payloads.
    pub payloads: PayloadStates,
    /// What the ledger says.
    pub custody: Custody,
    /// Key id of the seal.
    pub sealed_by: Option<Hash>,
}

impl Recorder {
    /// Reports on a run. Reads all of its frames, so that it takes as long as the run is.
    ///
    /// # Errors
    /// [`RecordError::NoRun`]; the database.
    pub async fn report(&self, caller: Caller, run: RunId) -> Result<RunReport, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.report_now(&caller, &run).await })
            .await
    }

    async fn report_now(&self, caller: &Caller, run: &RunId) -> Result<RunReport, RecordError> {
        let tenant = &caller.tenant;
        let origin = self.store.origin(tenant).await?;
        let origin = origin.ok_or_else(|| RecordError::NoTenant(tenant.clone()))?;
        let made_at = self.store.now().await?;
        // One moment for all of it: a payload that is erased meanwhile is there, or erased, and not lost.
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let mut entries = store::ledger::about(&mut tx, tenant, run, u64::MAX).await?;
        let (mut completeness, mut sealed_by) = (None, None);
        if let Some(sealed) = &row.sealed {
            let seal = store::ledger::entry(&mut tx, tenant, sealed.index).await?;
            let wrong = || store::contradiction("ledger_entries", "bytes", sealed.index);
            let signed = Signed::parse(&seal).map_err(|_| wrong())?;
            let Ok(Some(Predicate::RunSeal(said))) = signed.predicate() else {
                return Err(wrong().into());
            };
            completeness = Some(said.completeness);
            sealed_by = Some(signed.keyid);
            entries.push((sealed.index, seal));
            entries.sort_unstable_by_key(|(index, _)| *index);
        }
        let mut custody = Custody::default();
        for (index, envelope) in &entries {
            custody.read(*index, envelope);
        }
        let erasures = Erasures::of(&mut tx, tenant, run).await?;
        let (account, coverage, payloads) =
            account(&mut tx, run, row.chain.size(), &erasures).await?;
        commit(tx).await?;
        Ok(RunReport {
            run: row.into(),
            origin,
            made_at,
            completeness,
            account,
            coverage,
            payloads,
            custody,
            sealed_by,
        })
    }
}

/// Goes through the frames of a run of a size, and looks for their payloads.
async fn account(
    tx: &mut Tx,
    run: &RunId,
    size: u64,
    erasures: &Erasures,
) -> Result<(Account, Vec<(Required, State)>, PayloadStates), RecordError> {
    let mut accounting = Accounting::new();
    let mut coverage = Coverage::new();
    let mut states = PayloadStates::default();
    for from in (0..size).step_by(PAGE as usize) {
        let to = size.min(from + PAGE);
        let seqs: Vec<u64> = (from..to).collect();
        // By their places, since what is missing in between is to be told.
        let frames = store::frames::some(tx, run, &seqs).await?;
        let stored = store::payloads::keys_between(tx, run, from, to).await?;
        let stored: HashSet<Hash> = stored.iter().map(|key| key.commit).collect();
        for seq in seqs {
            let Some(bytes) = frames.get(&seq) else {
                continue;
            };
            let frame = Frame::parse(bytes)
                .map_err(|_| store::contradiction("frames", "bytes", format!("{run}/{seq}")))?;
            accounting.read(&frame);
            coverage.read(&frame);
            for payload in frame.payloads() {
                states.count += 1;
                let is_stored = stored.contains(&payload.commit);
                *match erasures.whereabouts(seq, payload, is_stored) {
                    Whereabouts::Kept => &mut states.not_kept,
                    Whereabouts::Erased(_) => &mut states.erased,
                    Whereabouts::Stored => &mut states.stored,
                    Whereabouts::Missing => &mut states.missing,
                } += 1;
            }
        }
    }
    Ok((accounting.finish(size), coverage.finish(), states))
}
