//! Holds: nothing of a run, or of a tenant, may be erased while one is in force.
//!
//! The ledger says what was set and released, and the table of holds follows from it: both are written in one transaction,
//! under the tenant's lock. Decisions are made by the table, and an audit compares the two.

pub(crate) use crate::store::holds::{HoldFilter, HoldRow};

use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use onrecord_core::id::RunId;
use onrecord_core::statement::{self, HoldAction, Predicate};

impl Recorder {
    /// Sets a hold over a run, or over the whole tenant, for a matter. One that is in force already is answered, and false;
    /// where an order had set it, it stays from then on when the order ends.
    pub(crate) async fn set_hold(
        &self,
        caller: Caller,
        run: Option<RunId>,
        matter: String,
        reason: Option<String>,
    ) -> Result<(HoldRow, bool), RecordError> {
        self.refuse_secret("/matter", &matter)?;
        self.refuse_secret("/reason", reason.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let known = match &run {
                Some(run) => {
                    let runs = std::slice::from_ref(run);
                    if store::runs::sizes(&mut tx, runs).await?.is_empty() {
                        return Err(RecordError::NoRun(run.clone()));
                    }
                    let of_runs = store::holds::of_runs(&mut tx, &caller.tenant, &matter, runs);
                    of_runs.await?.remove(run)
                }
                None => store::holds::of_tenant(&mut tx, &caller.tenant, &matter).await?,
            };
            if let Some(known) = known {
                if !known.alone {
                    store::holds::ask_alone(&mut tx, &caller.tenant, known.index).await?;
                    commit(tx).await?;
                }
                return Ok((known, false));
            }
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let said = statement::Hold {
                action: HoldAction::Set,
                at: ledger::next_time(&tenant)?,
                by,
                matter,
                reason,
                run,
                with: None,
            };
            let predicate = Predicate::Hold(said.clone());
            let vault = (&*recorder.vault, &*keys);
            let entry = ledger::enter(&mut tx, &mut tenant, vault, &predicate, None).await?;
            let hold = HoldRow {
                alone: true,
                ..set(entry.index, said, None)
            };
            let rows = std::slice::from_ref(&hold);
            store::holds::insert(&mut tx, &caller.tenant, rows).await?;
            // A crash before this line leaves no hold; after it one that every erasure finds.
            commit(tx).await?;
            Ok((hold, true))
        })
        .await
    }

    /// Holds of the caller's tenant in the order in which they were set.
    pub(crate) async fn holds(
        &self,
        caller: Caller,
        filter: HoldFilter,
        limit: u32,
    ) -> Result<Vec<HoldRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let holds = store::holds::list(&mut tx, &caller.tenant, &filter, limit).await?;
            commit(tx).await?;
            Ok(holds)
        })
        .await
    }
}

/// The row of a hold that a statement set.
pub(super) fn set(index: u64, said: statement::Hold, order: Option<RunId>) -> HoldRow {
    HoldRow {
        index,
        run: said.run,
        matter: said.matter,
        reason: said.reason,
        by: said.by,
        at: said.at,
        order,
        alone: false,
        requested: None,
        released: None,
    }
}
