//! Releases of holds and of orders: by one person, or by two where the tenant chose so. The first one's request waits until
//! somebody else asks for the same, or takes it back.

pub(crate) use crate::store::hold_releases::Of;

use super::hold::HoldRow;
use super::order::Order;
use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::settings::settings;
use crate::record::{RecordError, Recorder, commit};
use crate::store::hold_releases::{Ended, RequestRow};
use crate::store::holds::ReleasedRow;
use crate::store::tenants::LockedTenant;
use crate::store::{self, Tx};
use crate::vault;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{self, HoldAction, Predicate};
use onrecord_core::timestamp::Timestamp;

/// Whether enough people agree to a release.
enum Agreement {
    /// Who asked, and the second person where there is one.
    Agreed(Actor, Option<Actor>),
    /// Somebody else is waited for.
    Waits,
}

impl Recorder {
    /// Releases a hold, or notes that the caller wants that and a second person is waited for. One that is released already is
    /// answered as it is.
    ///
    /// # Errors
    /// [`RecordError::HoldOfOrder`]: an order wants it, and it ends with that.
    pub(crate) async fn release_hold(
        &self,
        caller: Caller,
        index: u64,
    ) -> Result<HoldRow, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let found = store::holds::find(&mut tx, &caller.tenant, index).await?;
            let mut hold = found.ok_or(RecordError::NoHold(index))?;
            if hold.released.is_some() {
                return Ok(hold);
            }
            let runs = hold.run.as_slice();
            let wanted = store::hold_orders::wanted(&mut tx, &hold.matter, runs, None).await?;
            if let Some((_, order)) = wanted.into_iter().next() {
                return Err(RecordError::HoldOfOrder { hold: index, order });
            }
            match agree(&mut tx, &tenant, &caller, &Of::Hold(index)).await? {
                Agreement::Waits => {
                    let found = store::holds::find(&mut tx, &caller.tenant, index).await?;
                    hold = found.ok_or(RecordError::NoHold(index))?;
                }
                Agreement::Agreed(by, with) => {
                    let at = ledger::next_time(&tenant)?;
                    let said = released(&hold, at, (&by, with.as_ref()));
                    let vault = (&*recorder.vault, &*keys);
                    let entry = ledger::enter(&mut tx, &mut tenant, vault, &said, None).await?;
                    let end = ReleasedRow {
                        index: entry.index,
                        at,
                        by,
                        with,
                    };
                    let ends = [(index, end.clone())];
                    store::holds::release(&mut tx, &caller.tenant, &ends).await?;
                    // What expired meanwhile goes when the sweeper comes by next.
                    let runs = hold.run.as_ref().map(std::slice::from_ref);
                    store::sweeping::look_soon(&mut tx, &caller.tenant, runs).await?;
                    hold.released = Some(end);
                    hold.requested = None;
                }
            }
            // A crash before this line leaves the hold in force, and the request as it was.
            commit(tx).await?;
            Ok(hold)
        })
        .await
    }

    /// Decides to release an order, or notes that the caller wants that and a second person is waited for. Its holds end one
    /// after the other from then on. One whose release is decided already is answered as it is.
    pub(crate) async fn release_order(
        &self,
        caller: Caller,
        id: RunId,
    ) -> Result<Order, RecordError> {
        let (recorder, tenant, of) = (self.clone(), caller.tenant.clone(), id.clone());
        self.detached(async move {
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let order = store::hold_orders::find(&mut tx, &of).await?;
            let order = order.ok_or_else(|| RecordError::NoHoldOrder(of.clone()))?;
            if order.release.is_none()
                && let Agreement::Agreed(by, with) =
                    agree(&mut tx, &tenant, &caller, &Of::Order(of.clone())).await?
            {
                let now = tenant.now;
                store::hold_orders::decide_release(&mut tx, &of, now, &by, with.as_ref()).await?;
            }
            // A crash after this line leaves an order whose holds the next look goes on to release.
            commit(tx).await
        })
        .await?;
        self.carry_out_for_a_moment(&tenant, &id).await;
        self.hold_order(tenant, id).await
    }

    /// Takes back a request to release something, whoever made it.
    ///
    /// # Errors
    /// [`RecordError::NoHoldRelease`]: none waits.
    pub(crate) async fn withdraw_release(&self, caller: Caller, of: Of) -> Result<(), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let request = waiting(&mut tx, &tenant, &by, &of).await?;
            let request = request.ok_or(RecordError::NoHoldRelease)?;
            let (how, now) = (Ended::Withdrawn, tenant.now);
            store::hold_releases::end(&mut tx, &request.id, how, &by, now).await?;
            commit(tx).await
        })
        .await
    }
}

/// Asks whether the caller may release something, with whoever asked before.
async fn agree(
    tx: &mut Tx,
    tenant: &LockedTenant,
    caller: &Caller,
    of: &Of,
) -> Result<Agreement, RecordError> {
    let by = stand_in(tx, &caller.tenant, &caller.reader()).await?;
    let needed = settings(tx, &caller.tenant).await?.release_people();
    let first = waiting(tx, tenant, &by, of).await?;
    let agreement = match first.as_ref() {
        Some(first) if first.by != by => Agreement::Agreed(first.by.clone(), Some(by.clone())),
        _ if needed < 2 => Agreement::Agreed(by.clone(), None),
        // The same person again is no second one.
        Some(_) => return Ok(Agreement::Waits),
        None => {
            let millis = u64::try_from(tenant.now.micros() / 1_000).unwrap_or(0);
            let request = RequestRow {
                id: vault::new_run_id(millis)?,
                by,
                at: tenant.now,
            };
            store::hold_releases::insert(tx, &caller.tenant, of, &request).await?;
            return Ok(Agreement::Waits);
        }
    };
    if let Some(first) = first {
        let how = Ended::Completed;
        store::hold_releases::end(tx, &first.id, how, &by, tenant.now).await?;
    }
    Ok(agreement)
}

/// The request about something that waits. Where it is not known any longer who made it, it could be the caller's own under
/// another pseudonym, and it ends.
async fn waiting(
    tx: &mut Tx,
    tenant: &LockedTenant,
    by: &Actor,
    of: &Of,
) -> Result<Option<RequestRow>, RecordError> {
    let id: &TenantId = &tenant.tenant;
    let Some(request) = store::hold_releases::waiting(tx, id, of).await? else {
        return Ok(None);
    };
    let person = request.by.kind == ActorType::Human;
    if person && !store::people::is_known(tx, id, &request.by.id).await? {
        store::hold_releases::end(tx, &request.id, Ended::Void, by, tenant.now).await?;
        return Ok(None);
    }
    Ok(Some(request))
}

/// The statement that a hold ends.
pub(super) fn released(
    hold: &HoldRow,
    at: Timestamp,
    (by, with): (&Actor, Option<&Actor>),
) -> Predicate {
    Predicate::Hold(statement::Hold {
        action: HoldAction::Released,
        at,
        by: by.clone(),
        matter: hold.matter.clone(),
        reason: None,
        run: hold.run.clone(),
        with: with.cloned(),
    })
}
