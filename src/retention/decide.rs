//! Whether something may be erased. Everything that erases asks here, in the transaction that certifies it and under the
//! locks of the tenant and of the runs: no hold is set, and no payload added, between the answer and the certificate. What
//! destroys keys or removes payloads in the store takes the [`Permit`] that only this file makes. Renewing keys erases
//! nothing and does not ask.

use super::policies;
use super::term::{Fate, Floor, Versions, When};
use crate::record::RecordError;
use crate::store::holds::{self, InTheWay};
use crate::store::permit::Permit;
use crate::store::retention::RunFacts;
use crate::store::{self, Tx};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use std::collections::HashMap;

/// What was decided of a tier of a run.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It may be erased.
    Free(Permit),
    /// A hold is in force over the run, or over the tenant.
    Held {
        /// What it is for.
        matter: String,
        /// Its number; `None` for one that was ordered and is not on the ledger yet.
        hold: Option<u64>,
    },
    /// The tenant's retention policy promised to keep it for longer.
    Floor(RunId, i16, Floor),
}

impl Verdict {
    /// The leave to erase.
    ///
    /// # Errors
    /// [`RecordError::Held`], [`RecordError::Floor`]
    pub(crate) fn permit(self) -> Result<Permit, RecordError> {
        match self {
            Self::Free(permit) => Ok(permit),
            Self::Held { matter, hold } => Err(RecordError::Held { hold, matter }),
            Self::Floor(run, tier, floor) => Err(RecordError::Floor {
                run,
                tier,
                until: floor.until.to_string(),
                schedule: floor.schedule,
            }),
        }
    }
}

/// Decides of tiers of runs, however many they are, with a few queries. The verdicts have the order of the parts.
pub(crate) async fn may_erase(
    tx: &mut Tx,
    tenant: &TenantId,
    parts: &[(RunId, i16)],
) -> Result<Vec<Verdict>, RecordError> {
    let mut runs: Vec<RunId> = parts.iter().map(|(run, _)| run.clone()).collect();
    runs.sort_unstable();
    runs.dedup();
    let known = Known::of(tx, tenant, &runs).await?;
    let verdicts = parts.iter().map(|(run, tier)| known.verdict(run, *tier));
    Ok(verdicts.collect())
}

/// Decides whether an erasure over many runs may begin. Each of its parts is decided on its own when it is certified, and
/// waits where it is held; only where the whole tenant is, nothing of it begins.
///
/// # Errors
/// [`RecordError::Held`]
pub(crate) async fn may_begin(tx: &mut Tx, tenant: &TenantId) -> Result<(), RecordError> {
    match holds::over(tx, tenant, &[]).await?.tenant {
        Some((matter, hold)) => Err(RecordError::Held { hold, matter }),
        None => Ok(()),
    }
}

/// What is known of some runs: what has to stay of them, and what expires.
pub(super) struct Known {
    held: holds::Held,
    versions: Versions,
    facts: HashMap<RunId, RunFacts>,
    pub(super) now: Timestamp,
}

impl Known {
    /// Reads it, as the transaction sees it.
    pub(super) async fn of(
        tx: &mut Tx,
        tenant: &TenantId,
        runs: &[RunId],
    ) -> Result<Self, RecordError> {
        let versions = policies::versions(tx, tenant).await?;
        let now = store::time::now(tx).await?;
        Self::under(tx, tenant, runs, (versions, now)).await
    }

    /// The same under other versions of the policy, and at another time.
    pub(super) async fn under(
        tx: &mut Tx,
        tenant: &TenantId,
        runs: &[RunId],
        (versions, now): (Versions, Timestamp),
    ) -> Result<Self, RecordError> {
        let held = holds::over(tx, tenant, runs).await?;
        let facts = match versions.last() {
            Some(_) => store::retention::facts(tx, tenant, runs, versions.needs()).await?,
            None => HashMap::new(),
        };
        Ok(Self {
            held,
            versions,
            facts,
            now,
        })
    }

    /// The version of the policy that holds; 0 for none.
    pub(super) fn version(&self) -> u64 {
        self.versions.last().map_or(0, |last| last.version)
    }

    /// What a run is; `None` where there is no policy, or no such run.
    pub(super) fn facts(&self, run: &RunId) -> Option<&RunFacts> {
        self.facts.get(run)
    }

    /// What becomes of a run; `None` where there is no policy, or no such run.
    pub(super) fn fate(&self, run: &RunId) -> Option<Fate> {
        self.versions.fate(self.facts.get(run)?)
    }

    /// Whether a tier of one of the runs expired.
    pub(super) fn is_due(&self, run: &RunId, tier: i16) -> bool {
        let fate = self.fate(run);
        let mut due = fate.iter().flat_map(|fate| fate.expired(self.now));
        due.any(|one| i16::from(one.tier) == tier)
    }

    /// Whether a tier of one of the runs is kept by nothing.
    pub(super) fn is_free(&self, run: &RunId, tier: u8) -> bool {
        matches!(self.verdict(run, i16::from(tier)), Verdict::Free(_))
    }

    /// Whether something of a run expired that nothing keeps, but for tiers of which nothing is left.
    pub(super) fn has_free(&self, run: &RunId, done: i16) -> bool {
        let fate = self.fate(run);
        let mut due = fate.iter().flat_map(|fate| fate.expired(self.now));
        due.any(|one| done & (1_i16 << one.tier) == 0 && self.is_free(run, one.tier))
    }

    /// Whether a tier of one of the runs may be erased: the one function that decides.
    pub(super) fn verdict(&self, run: &RunId, tier: i16) -> Verdict {
        let of_run: Option<&InTheWay> = self.held.runs.get(run);
        if let Some((matter, hold)) = of_run.or(self.held.tenant.as_ref()) {
            return Verdict::Held {
                matter: matter.clone(),
                hold: *hold,
            };
        }
        let floor = match self.facts.get(run) {
            Some(facts) => {
                let tier = u8::try_from(tier).unwrap_or(0);
                self.versions.floor(facts, tier)
            }
            // There is no such run; what was promised of it cannot be told.
            None => self.versions.last().map(|last| Floor {
                until: When::Never,
                schedule: format!("version {}", last.version),
            }),
        };
        match floor.filter(|floor| floor.until > When::At(self.now)) {
            Some(floor) => Verdict::Floor(run.clone(), tier, floor),
            None => Verdict::Free(Permit::decided(run.clone(), tier)),
        }
    }
}
