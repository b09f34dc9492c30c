//! Whether something may be erased. Everything that erases asks here, in the transaction that certifies it and under the
//! locks of the tenant and of the runs: no hold is set, and no payload added, between the answer and the certificate. What
//! destroys keys or removes payloads in the store takes the [`Permit`] that only this file makes. Renewing keys erases
//! nothing and does not ask.

use crate::record::RecordError;
use crate::store::Tx;
use crate::store::holds::{self, InTheWay};
use crate::store::permit::Permit;
use onrecord_core::id::{RunId, TenantId};

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
}

impl Verdict {
    /// The leave to erase.
    ///
    /// # Errors
    /// [`RecordError::Held`]
    pub(crate) fn permit(self) -> Result<Permit, RecordError> {
        match self {
            Self::Free(permit) => Ok(permit),
            Self::Held { matter, hold } => Err(RecordError::Held { hold, matter }),
        }
    }
}

/// Decides of tiers of runs, however many they are, with one query. The verdicts have the order of the parts.
pub(crate) async fn may_erase(
    tx: &mut Tx,
    tenant: &TenantId,
    parts: &[(RunId, i16)],
) -> Result<Vec<Verdict>, RecordError> {
    let known = Known::of(tx, tenant, parts.iter().map(|(run, _)| run.clone())).await?;
    let verdicts = parts.iter().map(|(run, tier)| known.verdict(run, *tier));
    Ok(verdicts.collect())
}

/// Decides of one tier of one run.
///
/// # Errors
/// [`RecordError::Held`]
pub(crate) async fn may_erase_one(
    tx: &mut Tx,
    tenant: &TenantId,
    (run, tier): (&RunId, i16),
) -> Result<Permit, RecordError> {
    let known = Known::of(tx, tenant, [run.clone()]).await?;
    known.verdict(run, tier).permit()
}

/// Decides whether an erasure over many runs may begin. Each of its parts is decided on its own when it is certified, and
/// waits where it is held; only where the whole tenant is, nothing of it begins.
///
/// # Errors
/// [`RecordError::Held`]
pub(crate) async fn may_begin(tx: &mut Tx, tenant: &TenantId) -> Result<(), RecordError> {
    match Known::of(tx, tenant, []).await?.held.tenant {
        Some((matter, hold)) => Err(RecordError::Held { hold, matter }),
        None => Ok(()),
    }
}

/// What is known of what has to stay.
struct Known {
    held: holds::Held,
}

impl Known {
    async fn of(
        tx: &mut Tx,
        tenant: &TenantId,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<Self, RecordError> {
        let mut runs = Vec::from_iter(runs);
        runs.sort_unstable();
        runs.dedup();
        let held = holds::over(tx, tenant, &runs).await?;
        Ok(Self { held })
    }

    fn verdict(&self, run: &RunId, tier: i16) -> Verdict {
        let of_run: Option<&InTheWay> = self.held.runs.get(run);
        match of_run.or(self.held.tenant.as_ref()) {
            Some((matter, hold)) => Verdict::Held {
                matter: matter.clone(),
                hold: *hold,
            },
            None => Verdict::Free(Permit::decided(run.clone(), tier)),
        }
    }
}
