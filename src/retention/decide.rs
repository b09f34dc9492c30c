//! Whether something may be erased. Everything that erases asks here, in the transaction that certifies it and under the
//! locks of the tenant and of the runs: no hold is set, and no payload added, between the answer and the certificate. What
//! destroys keys or removes payloads in the store takes the [`Permit`] that only this file makes. Renewing keys erases
//! nothing and does not ask.

use super::hold::{self, Hold};
use crate::record::RecordError;
use crate::store::Tx;
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
    let known = Known::of(tx, tenant).await?;
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
    Known::of(tx, tenant).await?.verdict(run, tier).permit()
}

/// Decides whether an erasure over many runs may begin. Each of its parts is decided on its own when it is certified, and
/// waits where it is held; only where the whole tenant is, nothing of it begins.
///
/// # Errors
/// [`RecordError::Held`]
pub(crate) async fn may_begin(tx: &mut Tx, tenant: &TenantId) -> Result<(), RecordError> {
    let known = Known::of(tx, tenant).await?;
    match known.holds.into_iter().find(|hold| hold.run.is_none()) {
        Some(hold) => Err(RecordError::Held {
            matter: hold.matter,
            hold: Some(hold.index),
        }),
        None => Ok(()),
    }
}

/// What is known of what has to stay.
struct Known {
    holds: Vec<Hold>,
}

impl Known {
    async fn of(tx: &mut Tx, tenant: &TenantId) -> Result<Self, RecordError> {
        let holds = hold::in_force(tx, tenant).await?;
        Ok(Self { holds })
    }

    fn verdict(&self, run: &RunId, tier: i16) -> Verdict {
        let over = |hold: &&Hold| hold.run.as_ref().is_none_or(|held| held == run);
        match self.holds.iter().find(over) {
            Some(hold) => Verdict::Held {
                matter: hold.matter.clone(),
                hold: Some(hold.index),
            },
            None => Verdict::Free(Permit::decided(run.clone(), tier)),
        }
    }
}
