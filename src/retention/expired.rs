//! What expired is not read any more, whether the sweeper came by or not.

use super::decide::Known;
use super::expire::EXPIRED;
use super::term::When;
use crate::record::RecordError;
use crate::store::{self, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{Predicate, Signed};
use onrecord_core::timestamp::Timestamp;

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
        let Some(fate) = known.fate(run) else {
            return Ok(Self::default());
        };
        let due = fate.expired(known.now);
        let due = due.filter(|one| known.is_free(run, one.tier));
        let tiers = due.filter_map(|one| match one.due {
            When::At(at) => Some((one.tier, at, fate.policy())),
            When::Never => None,
        });
        Ok(Self(tiers.collect()))
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
