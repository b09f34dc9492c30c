//! The sweeper: what expired under a tenant's policy is erased, tier by tier and in batches, by whichever server has the turn.
//!
//! It works from a list (`run_retention`) of when to look at each run. What is erased is decided from the evidence and the
//! policy under the tenant's lock, so that the list can be wrong, or lost, and nothing is erased because of it.

use super::decide::Known;
use super::expire::Round;
use super::pace::{Pace, SweepLimits};
use super::policies;
use super::term::When;
use crate::access::Caller;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::expiring::Going;
use crate::store::sweeping::{SweepRow, WorkRow};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use std::time::{Duration, Instant};

/// Runs that are looked at together.
const TOGETHER: u32 = 500;
/// Runs that are listed together, of which nothing is erased by that.
const LISTED: u32 = 1_000;
/// Pages of the list of one round: other erasures of the tenant wait for its end.
const PAGES: u32 = 20;
/// When a run is looked at again of which more may become due than can be known now: one that is open, or held.
const AGAIN_MICROS: i64 = 3_600_000_000;

/// How far the sweeper of a tenant is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepStatus {
    /// Version of the policy that holds; `None` where there is none.
    pub version: Option<u64>,
    /// Runs that it does not know yet.
    pub unlisted: u64,
    /// Runs of which something expired that it has not come to.
    pub due: u64,
    /// Since when the first of these is due.
    pub since: Option<Timestamp>,
    /// When it was seen last that nothing is left to do.
    pub ended_at: Option<Timestamp>,
    /// The last round that erased something: when it began, of how many runs it erased how many payloads, and how many
    /// milliseconds of work that was.
    pub last: Option<(Timestamp, u64, u64, u64)>,
    /// The database's clock.
    pub now: Option<Timestamp>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs of which something was erased.
    pub runs: u64,
    /// Payloads that were erased.
    pub payloads: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

impl Recorder {
    /// Erases what is due of every tenant. What hinders one does not hinder the others. Returns once nothing is due, or the
    /// server stops.
    ///
    /// # Errors
    /// The tenants cannot be listed.
    pub async fn sweep_all(&self, limits: SweepLimits) -> Result<(), RecordError> {
        let mut waiting: Vec<TenantId> = Vec::new();
        for (tenant, _) in self.store.tenants().await? {
            waiting.push(tenant);
        }
        // A round of each in turn, so that nobody waits for the end of somebody else's.
        while !waiting.is_empty() && !self.is_stopping() {
            let mut again = Vec::new();
            for tenant in waiting {
                match self.sweep(tenant.clone(), limits).await {
                    Ok(swept) if swept.more => again.push(tenant),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%tenant, %error, "what expired is not erased; it is tried again");
                    }
                }
            }
            waiting = again;
        }
        Ok(())
    }

    /// One round for a tenant: new runs are listed, a change of policy is worked in, and what is due is erased. One process at
    /// a time does that for a tenant, or carries out other erasures: nothing is done while another one has the turn.
    ///
    /// # Errors
    /// What hindered it; another round goes on.
    pub async fn sweep(&self, tenant: TenantId, limits: SweepLimits) -> Result<Swept, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let versions = policies::versions(&mut tx, &tenant).await?;
            commit(tx).await?;
            if versions.last().is_none() {
                return Ok(Swept::default());
            }
            let Some(turn) = recorder.store.erasing_turn(&tenant).await? else {
                return Ok(Swept::default());
            };
            let swept = recorder.round(&tenant, limits).await;
            turn.end().await?;
            swept
        })
        .await
    }

    /// How far the sweeper of the caller's tenant is.
    pub async fn sweep_status(&self, caller: Caller) -> Result<SweepStatus, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            let mut tx = recorder.store.snapshot(tenant).await?;
            let now = store::time::now(&mut tx).await?;
            let version = policies::versions(&mut tx, tenant).await?;
            let sweep = store::sweeping::sweep(&mut tx, tenant).await?;
            let opened = store::sweeping::opened(&mut tx, tenant).await?;
            let (due, since) = store::sweeping::backlog(&mut tx, tenant, now).await?;
            commit(tx).await?;
            let last = |begun| (begun, sweep.runs, sweep.payloads, sweep.busy_ms);
            Ok(SweepStatus {
                version: version.last().map(|last| last.version),
                unlisted: opened.saturating_sub(sweep.listed),
                due,
                since,
                ended_at: sweep.ended_at,
                last: sweep.begun_at.map(last),
                now: Some(now),
            })
        })
        .await
    }

    async fn round(&self, tenant: &TenantId, limits: SweepLimits) -> Result<Swept, RecordError> {
        let mut pace = Pace::of(self, limits);
        let listing = self.list_some(tenant, &mut pace).await?;
        let renewing = self.list_again(tenant, &mut pace).await?;
        let (begun_at, mut round) = (self.store.now().await?, Round::default());
        let (mut busy, mut full) = (Duration::ZERO, true);
        let (mut going, mut left) = (Vec::new(), PAGES * TOGETHER);
        while left > 0 && full {
            let (before, together) = (round.payloads, pace.page(TOGETHER).min(left));
            left -= together;
            let destroying = self.destroy(tenant, std::mem::take(&mut going));
            let looking = self.look(tenant, &mut round, together);
            let (destroyed, looked) = if pace.is_calm {
                (destroying.await, looking.await)
            } else {
                // While the last page is destroyed the next one is certified.
                tokio::join!(destroying, looking)
            };
            (full, going) = match destroyed.and(looked) {
                Ok(looked) => looked,
                Err(error) => {
                    // What is certified and not destroyed is gone on with by the next look at open erasures.
                    self.settle(tenant, &round).await?;
                    return Err(error);
                }
            };
            busy += pace.rest(round.payloads - before).await;
            if pace.is_over() {
                break;
            }
        }
        let begun = Instant::now();
        self.destroy(tenant, going).await?;
        busy += begun.elapsed();
        self.settle(tenant, &round).await?;
        self.figures.expired.add(round.payloads);
        self.note_round(tenant, (begun_at, busy), &round, full)
            .await?;
        Ok(Swept {
            runs: round.runs,
            payloads: round.payloads,
            more: full || listing || renewing,
        })
    }

    /// Looks at runs whose time has come, and certifies what is due of them. Returns whether there may be more, and what is to be
    /// destroyed.
    async fn look(
        &self,
        tenant: &TenantId,
        round: &mut Round,
        together: u32,
    ) -> Result<(bool, Vec<Going>), RecordError> {
        let now = self.store.now().await?;
        let mut tx = self.store.begin(tenant).await?;
        store::expiring::by_index(&mut tx).await?;
        let since = (round.looked_at, now);
        let listed = store::sweeping::to_look_at(&mut tx, tenant, since, together).await?;
        let full = listed.len() == together as usize;
        round.looked_at = listed.last().map(|last| last.look_at);
        // What their rows say is due is decided under the locks, and of the others that nothing is due is seen without them.
        let (due, rest): (Vec<_>, Vec<_>) = listed.into_iter().partition(|one| one.is_due);
        let mut due: Vec<_> = due.into_iter().map(|one| (one.run, one.done)).collect();
        if !rest.is_empty() {
            let rest = rest.into_iter().map(|one| (one.run, one.done)).collect();
            let (rows, more) = assessed(&mut tx, tenant, rest).await?;
            store::sweeping::note(&mut tx, tenant, &rows).await?;
            due.extend(more.into_iter().map(|row| (row.run, row.done)));
        }
        commit(tx).await?;
        if due.is_empty() {
            return Ok((full, Vec::new()));
        }
        Ok((full, self.expire(tenant, due, round).await?))
    }

    /// Lists runs that have no row yet; whether there are more.
    async fn list_some(&self, tenant: &TenantId, pace: &mut Pace) -> Result<bool, RecordError> {
        let mut left = PAGES * LISTED;
        while left > 0 {
            let together = pace.page(LISTED).min(left);
            left -= together;
            let mut tx = self.store.begin(tenant).await?;
            store::expiring::by_index(&mut tx).await?;
            let sweep = store::sweeping::sweep(&mut tx, tenant).await?;
            let new = store::sweeping::unlisted(&mut tx, tenant, sweep.listed, together).await?;
            let Some((last, _)) = new.last() else {
                return Ok(false);
            };
            let row = SweepRow {
                listed: *last,
                ..sweep
            };
            let full = new.len() == together as usize;
            let runs = new.into_iter().map(|(_, run)| (run, 0)).collect();
            self.list(&mut tx, tenant, runs).await?;
            store::sweeping::update_sweep(&mut tx, tenant, &row).await?;
            // A crash before this line leaves them to be listed again.
            commit(tx).await?;
            if !full {
                return Ok(false);
            }
            pace.rest(0).await;
            if pace.is_over() {
                break;
            }
        }
        Ok(true)
    }

    /// Lists runs again whose rows are of an older version of the policy; whether there are more.
    async fn list_again(&self, tenant: &TenantId, pace: &mut Pace) -> Result<bool, RecordError> {
        let mut left = PAGES * LISTED;
        while left > 0 {
            let together = pace.page(LISTED).min(left);
            left -= together;
            let mut tx = self.store.begin(tenant).await?;
            store::expiring::by_index(&mut tx).await?;
            let versions = policies::versions(&mut tx, tenant).await?;
            let version = versions.last().map_or(0, |last| last.version);
            let old = store::sweeping::outdated(&mut tx, tenant, version, together).await?;
            let full = old.len() == together as usize;
            if !old.is_empty() {
                self.list(&mut tx, tenant, old).await?;
            }
            commit(tx).await?;
            if !full {
                return Ok(false);
            }
            pace.rest(0).await;
            if pace.is_over() {
                break;
            }
        }
        Ok(true)
    }

    /// Writes the rows of runs; what is due of them already is looked at next.
    async fn list(
        &self,
        tx: &mut store::Tx,
        tenant: &TenantId,
        runs: Vec<(RunId, i16)>,
    ) -> Result<(), RecordError> {
        let (mut rows, due) = assessed(tx, tenant, runs).await?;
        rows.extend(due);
        Ok(store::sweeping::note(tx, tenant, &rows).await?)
    }

    async fn note_round(
        &self,
        tenant: &TenantId,
        (begun_at, busy): (Timestamp, Duration),
        round: &Round,
        full: bool,
    ) -> Result<(), RecordError> {
        let ended_at = (!full).then_some(self.store.now().await?);
        let mut tx = self.store.begin(tenant).await?;
        let mut row = store::sweeping::sweep(&mut tx, tenant).await?;
        row.ended_at = ended_at.or(row.ended_at);
        if round.payloads > 0 {
            row.begun_at = Some(begun_at);
            row.runs = round.runs;
            row.payloads = round.payloads;
            row.busy_ms = u64::try_from(busy.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(%tenant, runs = row.runs, payloads = row.payloads, busy_ms = row.busy_ms, "what expired is erased");
        }
        store::sweeping::update_sweep(&mut tx, tenant, &row).await?;
        commit(tx).await
    }
}

/// The rows of runs as they have to be: of those of which nothing is due, and of those of which something is.
async fn assessed(
    tx: &mut store::Tx,
    tenant: &TenantId,
    listed: Vec<(RunId, i16)>,
) -> Result<(Vec<WorkRow>, Vec<WorkRow>), RecordError> {
    let runs: Vec<RunId> = listed.iter().map(|(run, _)| run.clone()).collect();
    let known = Known::of(tx, tenant, &runs).await?;
    let (mut rows, mut due) = (Vec::new(), Vec::new());
    for (run, done) in listed {
        let row = row(&known, run.clone(), done).unwrap_or_else(|| unknown(&known, run, done));
        if row.due.is_none_or(|at| at > known.now) {
            rows.push(row);
        } else if known.has_free(&row.run, done) {
            due.push(row);
        } else {
            // All that is due is held. Whoever releases it has it looked at.
            let look_at = Some(again(known.now));
            rows.push(WorkRow { look_at, ..row });
        }
    }
    Ok((rows, due))
}

/// The row of a run; `None` where there is no such run, or no policy.
pub(super) fn row(known: &Known, run: RunId, done: i16) -> Option<WorkRow> {
    let (fate, facts) = (known.fate(&run)?, known.facts(&run)?);
    let due = match fate.due(done) {
        When::At(at) => Some(at),
        When::Never => None,
    };
    // What an open run becomes is not known yet.
    let again = facts.sealed_at.is_none().then(|| again(known.now));
    let look_at = match (due, again) {
        (Some(due), Some(again)) => Some(due.min(again)),
        (due, again) => due.or(again),
    };
    Some(WorkRow {
        run,
        due,
        look_at,
        version: fate.version,
        schedule: fate.schedule,
        done,
    })
}

/// The row of a run of which it cannot be told what becomes of it: it is looked at again, and the log says why.
pub(super) fn unknown(known: &Known, run: RunId, done: i16) -> WorkRow {
    WorkRow {
        run,
        due: None,
        look_at: Some(again(known.now)),
        version: known.version(),
        schedule: None,
        done,
    }
}

/// In an hour.
pub(super) fn again(now: Timestamp) -> Timestamp {
    let then = Timestamp::from_micros(now.micros().saturating_add(AGAIN_MICROS));
    then.unwrap_or(now)
}
