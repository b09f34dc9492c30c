//! Orders of holds: over what a filter finds at the moment of the order, or over a subject, for what is recorded about it
//! later too. What an order found is on hold from its commit on: `decide` knows it. The statements are entered run by run, in
//! batches, by whichever process gets to it:
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | **one transaction**: the runs are found; the tenant's lock; the order | an order; nothing that it found is erased |
//! | **one transaction** for each batch, under the tenant's lock: a statement for each run that is not on hold for the matter, their rows, the checkpoint; the runs of the batch are marked as held | an order that is so far |
//! | it is noted that nothing waits | an order that is done; one over a subject goes on looking |
//! | its release is decided | the same, with a release that nobody takes back |
//! | **one transaction** for each batch, under the tenant's lock: a statement for each hold that nobody else wants, the ends in their rows; the runs of the batch are marked as let go | an order of which so much is released |
//!
//! Nobody else wants a hold if no other order for the same matter has its run, and nobody asked for it by itself.

pub(crate) use crate::store::hold_orders::{Over, Progress};

use super::hold;
use super::release::released;
use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::hold_orders::OrderRow;
use crate::store::holds::{HoldRow, ReleasedRow};
use crate::store::search::condition::Condition;
use crate::store::tenants::LockedTenant;
use crate::vault;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{self, HoldAction, Predicate};
use std::time::Duration;

/// Runs of one transaction, which holds the tenant's lock.
const BATCH: u32 = 256;

/// How long a request waits for its work. What is not done by then goes on.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is to be held.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The runs that a filter finds now: as it was written, and what it means.
    Filter(String, Condition),
    /// Everything about a subject, now and later.
    Subject(String),
}

/// An order, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// What was ordered.
    pub(crate) row: OrderRow,
    /// How far it is.
    pub(crate) progress: Progress,
}

impl Recorder {
    /// Orders holds over many runs, and waits a moment for them. False where the same subject is on hold for the matter
    /// already.
    pub(crate) async fn order_hold(
        &self,
        caller: Caller,
        what: What,
        matter: String,
        reason: Option<String>,
    ) -> Result<(Order, bool), RecordError> {
        self.refuse_secret("/matter", &matter)?;
        self.refuse_secret("/reason", reason.as_deref().unwrap_or_default())?;
        if let What::Filter(text, _) = &what {
            self.refuse_secret("/filter", text)?;
        }
        let (recorder, tenant) = (self.clone(), caller.tenant.clone());
        let (id, created) = self
            .detached(async move { recorder.add_order(&caller, what, matter, reason).await })
            .await?;
        self.carry_out_for_a_moment(&tenant, &id).await;
        Ok((self.hold_order(tenant, id).await?, created))
    }

    async fn add_order(
        &self,
        caller: &Caller,
        what: What,
        matter: String,
        reason: Option<String>,
    ) -> Result<(RunId, bool), RecordError> {
        let keys = self.keys(&caller.tenant).await?;
        let millis = u64::try_from(self.store.now().await?.micros() / 1_000).unwrap_or(0);
        let id = vault::new_run_id(millis)?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        // Before the lock: it may take long, and what it finds blocks nothing before the commit.
        let over = match what {
            What::Filter(text, condition) => {
                store::hold_orders::find_runs(&mut tx, &caller.tenant, &id, &condition).await?;
                Over::Filter(text)
            }
            What::Subject(subject) => {
                let print = keys.subject(&subject)?;
                store::hold_orders::find_about(&mut tx, &caller.tenant, &id, &print).await?;
                Over::Subject(print)
            }
        };
        // Whoever certifies an erasure has the lock: what has not, finds the order.
        let tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        if let Over::Subject(subject) = &over {
            let known = store::hold_orders::of_subject(&mut tx, &caller.tenant, subject, &matter);
            if let Some(known) = known.await? {
                return Ok((known.id, false));
            }
        }
        let order = OrderRow {
            over,
            matter,
            reason,
            by: stand_in(&mut tx, &caller.tenant, &caller.reader()).await?,
            ordered_at: tenant.now,
            done_at: None,
            release: None,
            released_at: None,
            requested: None,
            id: id.clone(),
        };
        store::hold_orders::insert(&mut tx, &caller.tenant, &order).await?;
        commit(tx).await?;
        Ok((id, true))
    }

    /// An order of a tenant.
    pub(crate) async fn hold_order(
        &self,
        tenant: TenantId,
        id: RunId,
    ) -> Result<Order, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let row = store::hold_orders::find(&mut tx, &id).await?;
            let row = row.ok_or_else(|| RecordError::NoHoldOrder(id.clone()))?;
            let progress = store::hold_orders::progress(&mut tx, &id).await?;
            commit(tx).await?;
            Ok(Order { row, progress })
        })
        .await
    }

    /// Orders of a tenant, newest first, before one: all that ever were, or those that are in force.
    pub(crate) async fn hold_orders(
        &self,
        tenant: TenantId,
        ever: bool,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<Order>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let before = before.as_ref();
            let rows = store::hold_orders::list(&mut tx, &tenant, ever, before, limit).await?;
            let mut orders = Vec::with_capacity(rows.len());
            for row in rows {
                let progress = store::hold_orders::progress(&mut tx, &row.id).await?;
                orders.push(Order { row, progress });
            }
            commit(tx).await?;
            Ok(orders)
        })
        .await
    }

    /// Goes on with every order of every tenant. What hinders one does not hinder the others.
    pub async fn carry_out_orders(&self) -> Result<(), RecordError> {
        for (tenant, _) in self.store.tenants().await? {
            let mut tx = self.store.snapshot(&tenant).await?;
            let open = store::hold_orders::open(&mut tx, &tenant).await?;
            commit(tx).await?;
            for order in open {
                if let Err(error) = self.carry_out(&tenant, &order.id).await {
                    tracing::warn!(%tenant, order = %order.id, %error, "an order of holds is not carried out; it is tried again");
                }
            }
        }
        Ok(())
    }

    /// Goes on with an order, and stops waiting after a moment. What is not done by then, also because of an error, is left to
    /// the next look at what is open.
    pub(super) async fn carry_out_for_a_moment(&self, tenant: &TenantId, id: &RunId) {
        let done = tokio::time::timeout(PATIENCE, self.carry_out(tenant, id)).await;
        if let Ok(Err(error)) = done {
            tracing::warn!(%tenant, order = %id, %error, "an order of holds is not carried out; it is tried again");
        }
    }

    /// Goes on with an order until nothing of it is to be done. Whoever stops waiting cancels no batch that was begun.
    async fn carry_out(&self, tenant: &TenantId, id: &RunId) -> Result<(), RecordError> {
        loop {
            if self.is_stopping() {
                return Err(RecordError::Stopping);
            }
            let (recorder, tenant, id) = (self.clone(), tenant.clone(), id.clone());
            let batch = async move { recorder.next_batch(&tenant, &id).await };
            if !self.detached(batch).await? {
                return Ok(());
            }
        }
    }

    /// Does the next batch of an order; false where there is none.
    async fn next_batch(&self, tenant: &TenantId, id: &RunId) -> Result<bool, RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin(tenant).await?;
        let found = store::hold_orders::find(&mut tx, id).await?;
        let order = found.ok_or_else(|| RecordError::NoHoldOrder(id.clone()))?;
        if order.release.is_none()
            && let Over::Subject(subject) = &order.over
        {
            // Before the lock, as it was in the order, and nobody's lock is asked for where there is nothing new.
            let new = store::hold_orders::find_about(&mut tx, tenant, id, subject).await?;
            if new == 0
                && order.done_at.is_some()
                && store::hold_orders::waiting(&mut tx, id, 1)
                    .await?
                    .is_empty()
            {
                commit(tx).await?;
                return Ok(false);
            }
        }
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        // Its release may have been decided before the lock was there.
        let found = store::hold_orders::find(&mut tx, id).await?;
        let order = found.ok_or_else(|| RecordError::NoHoldOrder(id.clone()))?;
        let size = locked.ledger.size();
        let more = if order.release.is_some() {
            self.release_batch(&mut tx, &mut locked, &order).await?
        } else {
            self.hold_batch(&mut tx, &mut locked, &order).await?
        };
        if locked.ledger.size() > size {
            ledger::checkpoint(&mut tx, &locked, &keys).await?;
        }
        // A crash before this line leaves the order as it was; after it so much further.
        commit(tx).await?;
        Ok(more)
    }

    async fn hold_batch(
        &self,
        tx: &mut store::Tx,
        tenant: &mut LockedTenant,
        order: &OrderRow,
    ) -> Result<bool, RecordError> {
        let runs = store::hold_orders::waiting(tx, &order.id, BATCH).await?;
        if runs.is_empty() {
            store::hold_orders::done(tx, &order.id, tenant.now).await?;
            return Ok(false);
        }
        let id = tenant.tenant.clone();
        let held = store::holds::of_runs(tx, &id, &order.matter, &runs).await?;
        let at = ledger::next_time(tenant)?;
        let new = runs.iter().filter(|run| !held.contains_key(run));
        let said: Vec<statement::Hold> = new
            .map(|run| statement::Hold {
                action: HoldAction::Set,
                at,
                by: order.by.clone(),
                matter: order.matter.clone(),
                reason: order.reason.clone(),
                run: Some(run.clone()),
                with: None,
            })
            .collect();
        let predicates: Vec<Predicate> = said.iter().cloned().map(Predicate::Hold).collect();
        let statements: Vec<_> = predicates.iter().map(|one| (one, None)).collect();
        let entries = ledger::append_many(tx, tenant, &self.vault, &statements).await?;
        let rows = entries.iter().zip(said);
        let rows: Vec<HoldRow> = rows
            .map(|(entry, said)| hold::set(entry.index, said, Some(order.id.clone())))
            .collect();
        store::holds::insert(tx, &id, &rows).await?;
        store::hold_orders::held(tx, &order.id, &runs).await?;
        tracing::debug!(order = %order.id, runs = runs.len(), "runs are on hold");
        Ok(true)
    }

    async fn release_batch(
        &self,
        tx: &mut store::Tx,
        tenant: &mut LockedTenant,
        order: &OrderRow,
    ) -> Result<bool, RecordError> {
        let Some((_, by, with)) = &order.release else {
            return Ok(false);
        };
        let runs = store::hold_orders::kept(tx, &order.id, BATCH).await?;
        if runs.is_empty() {
            store::hold_orders::released(tx, &order.id, tenant.now).await?;
            return Ok(false);
        }
        let id = tenant.tenant.clone();
        let mut ending = store::holds::of_runs(tx, &id, &order.matter, &runs).await?;
        ending.retain(|_, hold| !hold.alone);
        for (run, _) in
            store::hold_orders::wanted(tx, &order.matter, &runs, Some(&order.id)).await?
        {
            ending.remove(&run);
        }
        let mut ending: Vec<HoldRow> = ending.into_values().collect();
        ending.sort_unstable_by_key(|hold| hold.index);
        let at = ledger::next_time(tenant)?;
        let with = with.as_ref();
        let said: Vec<Predicate> = ending
            .iter()
            .map(|hold| released(hold, at, (by, with)))
            .collect();
        let statements: Vec<_> = said.iter().map(|one| (one, None)).collect();
        let entries = ledger::append_many(tx, tenant, &self.vault, &statements).await?;
        let ends = ending.iter().zip(&entries).map(|(hold, entry)| {
            let end = ReleasedRow {
                index: entry.index,
                at,
                by: by.clone(),
                with: with.cloned(),
            };
            (hold.index, end)
        });
        let ends: Vec<_> = ends.collect();
        store::holds::release(tx, &id, &ends).await?;
        store::hold_orders::let_go(tx, &order.id, &runs).await?;
        // What expired meanwhile goes when the sweeper comes by next.
        store::sweeping::look_soon(tx, &id, Some(&runs)).await?;
        Ok(true)
    }
}
