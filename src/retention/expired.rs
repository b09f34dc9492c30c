//! What expired is not read any more, whether the sweeper came by or not.

use super::decide::Known;
use super::expire::EXPIRED;
use super::term::When;
use crate::access::Caller;
use crate::ledger::Erasures;
use crate::query::{Page, Rows};
use crate::record::{RecordError, Recorder, commit};
use crate::store::{self, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{Predicate, Signed};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeSet, HashMap};

/// The tiers of a run that expired and that nothing keeps. What is left of them is about to be erased.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expired(Vec<(u8, Timestamp, String)>);

impl Expired {
    /// Those of a run, as the transaction sees it.
    pub(crate) async fn of(
        tx: &mut Tx,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<Self, RecordError> {
        if !store::retention::has_policy(tx, tenant).await? {
            return Ok(Self::default());
        }
        let known = Known::of(tx, tenant, std::slice::from_ref(run)).await?;
        Ok(Self::under(&known, run))
    }

    fn under(known: &Known, run: &RunId) -> Self {
        let Some(fate) = known.fate(run) else {
            return Self::default();
        };
        let due = fate.expired(known.now);
        let due = due.filter(|one| known.is_free(run, one.tier));
        let tiers = due.filter_map(|one| match one.due {
            When::At(at) => Some((one.tier, at, fate.policy())),
            When::Never => None,
        });
        Self(tiers.collect())
    }

    /// The tiers.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|(tier, ..)| *tier)
    }

    /// What to say of a payload of a tier, if it is one of these.
    pub(crate) fn payload(&self, tier: u8, commit: Hash) -> Option<RecordError> {
        let found = self.0.iter().find(|(expired, ..)| *expired == tier);
        found.map(|(_, at, policy)| RecordError::Expired {
            commit,
            policy: policy.clone(),
            at: *at,
            index: None,
        })
    }
}

impl Recorder {
    /// Says of payload records that lie there still what reading them would say: `expired`, or `erased` where an entry of the
    /// ledger says so, which is before what is left of them is removed.
    pub(crate) async fn as_read(&self, caller: &Caller, page: Page) -> Result<Page, RecordError> {
        let Page {
            rows: Rows::PayloadRecords(mut rows),
            next,
        } = page
        else {
            return Ok(page);
        };
        let stored = rows.iter().filter(|row| row.state == STORED);
        let runs: BTreeSet<RunId> = stored.map(|row| row.key.run.clone()).collect();
        if runs.is_empty() {
            let rows = Rows::PayloadRecords(rows);
            return Ok(Page { rows, next });
        }
        let (recorder, tenant) = (self.clone(), caller.tenant.clone());
        let work = async move {
            let mut tx = recorder.store().snapshot(&tenant).await?;
            let runs = Vec::from_iter(runs);
            let erasures = Erasures::of_runs(&mut tx, &tenant, &runs).await?;
            let known = match store::retention::has_policy(&mut tx, &tenant).await? {
                true => Some(Known::of(&mut tx, &tenant, &runs).await?),
                false => None,
            };
            let expired: HashMap<RunId, Expired> = known
                .iter()
                .flat_map(|known| {
                    runs.iter()
                        .map(|run| (run.clone(), Expired::under(known, run)))
                })
                .collect();
            for row in rows.iter_mut().filter(|row| row.state == STORED) {
                let tier = u8::try_from(row.tier).unwrap_or(u8::MAX);
                let of_run = erasures.get(&row.key.run);
                let entry = of_run.and_then(|all| all.covering(row.key.seq, tier, &row.commit));
                let said = match entry {
                    Some(index) => Some(erased(&mut tx, &tenant, row.commit, index).await?),
                    None => {
                        let expired = expired.get(&row.key.run);
                        expired.and_then(|expired| expired.payload(tier, row.commit))
                    }
                };
                match said {
                    Some(RecordError::Expired { .. }) => row.state = "expired".to_owned(),
                    Some(_) => row.state = "erased".to_owned(),
                    None => {}
                }
            }
            commit(tx).await?;
            Ok(rows)
        };
        let rows = Rows::PayloadRecords(self.detached(work).await?);
        Ok(Page { rows, next })
    }
}

/// State of a payload record that lies there.
const STORED: &str = "stored";

/// What to say of a payload that an entry of the ledger certifies as erased.
pub(crate) async fn erased(
    tx: &mut Tx,
    tenant: &TenantId,
    commit: Hash,
    index: u64,
) -> Result<RecordError, RecordError> {
    let bytes = store::ledger::entry(tx, tenant, index).await?;
    let wrong = || store::contradiction("ledger_entries", "bytes", index);
    let signed = Signed::parse(&bytes).map_err(|_| wrong())?;
    let Ok(Some(Predicate::Erasure(said))) = signed.predicate() else {
        return Err(wrong().into());
    };
    Ok(if said.reason == EXPIRED {
        RecordError::Expired {
            commit,
            policy: said.policy,
            at: said.at,
            index: Some(index),
        }
    } else {
        RecordError::Erased { commit, index }
    })
}
