//! Holds: nothing of a run, or of a tenant, may be erased while one is in force.
//!
//! What is in force follows from the ledger's statements alone; no table says it beside them.

use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store::{self, Tx};
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{self, HoldAction, Predicate, Signed};
use onrecord_core::timestamp::Timestamp;

/// A hold.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The ledger's index of the statement that set it, by which it is named.
    pub index: u64,
    /// The run; absent for the whole tenant.
    pub run: Option<RunId>,
    /// What it is for.
    pub matter: String,
    /// Who set it.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
    /// When it was released, by whom, and the index of that statement.
    pub released: Option<(Timestamp, Actor, u64)>,
}

/// The holds of a tenant that are in force.
pub(super) async fn in_force(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<Hold>, RecordError> {
    let mut holds = all(tx, tenant).await?;
    holds.retain(|hold| hold.released.is_none());
    Ok(holds)
}

/// All holds of a tenant, in the order in which they were set. A hold is in force from its `set` to the `released` of the same
/// matter and subject (spec: `docs/spec/statements.md`).
async fn all(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<Hold>, RecordError> {
    let mut holds: Vec<Hold> = Vec::new();
    for (index, bytes) in store::ledger::holds(tx, tenant).await? {
        let wrong = || store::contradiction("ledger_entries", "bytes", index);
        let signed = Signed::parse(&bytes).map_err(|_| wrong())?;
        let Ok(Some(Predicate::Hold(said))) = signed.predicate() else {
            return Err(wrong().into());
        };
        match said.action {
            HoldAction::Set => holds.push(Hold {
                index,
                run: said.run,
                matter: said.matter,
                by: said.by,
                at: said.at,
                released: None,
            }),
            HoldAction::Released => {
                let same = |hold: &&mut Hold| {
                    hold.released.is_none() && hold.run == said.run && hold.matter == said.matter
                };
                for hold in holds.iter_mut().filter(same) {
                    hold.released = Some((said.at, said.by.clone(), index));
                }
            }
        }
    }
    Ok(holds)
}

impl Recorder {
    /// Sets a hold over a run, or over the whole tenant, for a matter. One that is in force already is answered, and false.
    pub async fn set_hold(
        &self,
        caller: Caller,
        run: Option<RunId>,
        matter: String,
    ) -> Result<(Hold, bool), RecordError> {
        self.refuse_secret("/matter", &matter)?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            if let Some(run) = &run
                && store::runs::sizes(&mut tx, std::slice::from_ref(run))
                    .await?
                    .is_empty()
            {
                return Err(RecordError::NoRun(run.clone()));
            }
            let holds = in_force(&mut tx, &caller.tenant).await?;
            let mut same = holds
                .into_iter()
                .filter(|hold| hold.run == run && hold.matter == matter);
            if let Some(hold) = same.next() {
                return Ok((hold, false));
            }
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let said = statement::Hold {
                action: HoldAction::Set,
                at: ledger::next_time(&tenant)?,
                by,
                matter,
                run,
            };
            let predicate = Predicate::Hold(said.clone());
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &predicate,
                None,
            )
            .await?;
            // A crash before this line leaves no hold; after it one that every erasure finds.
            commit(tx).await?;
            let hold = Hold {
                index: entry.index,
                run: said.run,
                matter: said.matter,
                by: said.by,
                at: said.at,
                released: None,
            };
            Ok((hold, true))
        })
        .await
    }

    /// Releases a hold. One that is released already is answered as it is.
    pub async fn release_hold(&self, caller: Caller, index: u64) -> Result<Hold, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let holds = all(&mut tx, &caller.tenant).await?;
            let found = holds.into_iter().find(|hold| hold.index == index);
            let mut hold = found.ok_or(RecordError::NoHold(index))?;
            if hold.released.is_some() {
                return Ok(hold);
            }
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let said = statement::Hold {
                action: HoldAction::Released,
                at: ledger::next_time(&tenant)?,
                by,
                matter: hold.matter.clone(),
                run: hold.run.clone(),
            };
            let predicate = Predicate::Hold(said.clone());
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &predicate,
                None,
            )
            .await?;
            // What expired meanwhile goes when the sweeper comes by next.
            store::retention::look_soon(&mut tx, &caller.tenant, hold.run.as_ref()).await?;
            commit(tx).await?;
            hold.released = Some((said.at, said.by, entry.index));
            Ok(hold)
        })
        .await
    }

    /// The holds of the caller's tenant in the order in which they were set: all that ever were, or those in force.
    pub async fn holds(&self, caller: Caller, ever: bool) -> Result<Vec<Hold>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let mut holds = all(&mut tx, &caller.tenant).await?;
            commit(tx).await?;
            holds.retain(|hold| ever || hold.released.is_none());
            Ok(holds)
        })
        .await
    }
}
