//! The decision about a release of an agent: a statement on the ledger, with the frames that it rests on.

use super::{RecordError, Recorder, commit};
use crate::access::Caller;
use crate::ledger::{self, people::stand_in};
use crate::store;
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use onrecord_core::statement::{self, Evidence, Predicate};

/// What is decided of a release.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Its name.
    pub release: String,
    /// SHA-256 of its manifest, which stays with whoever made it.
    pub manifest: Hash,
    /// Promoted, or rejected.
    pub promoted: bool,
    /// The frames that the decision rests on, each by its run and place.
    pub evidence: Vec<(RunId, u64)>,
}

/// A decision as it stands on the ledger.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The ledger's index of the statement.
    pub index: u64,
    /// What it says.
    pub statement: statement::Release,
}

impl Recorder {
    /// Enters the decision about a release.
    ///
    /// # Errors
    /// [`RecordError::NoRun`] and [`RecordError::NoFrame`]: its evidence is not there.
    pub async fn decide_release(
        &self,
        caller: Caller,
        decision: Decision,
    ) -> Result<Decided, RecordError> {
        self.refuse_secret("/release", &decision.release)?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let mut evidence = Vec::new();
            for (run, seq) in decision.evidence {
                let found = store::frames::bytes(&mut tx, &run, seq).await?;
                if found.is_none() && store::runs::find(&mut tx, &run).await?.is_none() {
                    return Err(RecordError::NoRun(run));
                }
                let no_frame = || RecordError::NoFrame {
                    run: run.clone(),
                    seq,
                };
                let (_, hash) = found.ok_or_else(no_frame)?;
                evidence.push(Evidence { hash, run });
            }
            let verdict = if decision.promoted {
                "promoted"
            } else {
                "rejected"
            };
            let statement = statement::Release {
                at: ledger::next_time(&tenant)?,
                by: stand_in(&mut tx, &caller.tenant, &caller.reader()).await?,
                decision: verdict.to_owned(),
                evidence: (!evidence.is_empty()).then_some(evidence),
                release: decision.release,
            };
            let predicate = Predicate::Release(statement.clone());
            let subject = Some((statement.release.as_str(), decision.manifest));
            let vault = (&*recorder.vault, &*keys);
            let entry = ledger::enter(&mut tx, &mut tenant, vault, &predicate, subject).await?;
            // A crash before this line leaves nothing; after it the decision stands.
            commit(tx).await?;
            Ok(Decided {
                index: entry.index,
                statement,
            })
        })
        .await
    }
}
