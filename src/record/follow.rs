//! Following: who waits for a run's next frames is told when they are there.
//!
//! What this process commits is told at once. What others commit is found by one look every quarter of a
//! second at the sizes of all runs that are followed here, however many follow them. Not by LISTEN and
//! NOTIFY: a NOTIFY in the appending transaction takes a lock of the whole cluster at its commit, so every
//! append would pay for readers that may not be there.

use super::{RecordError, Recorder};
use crate::store::{self, Store, StoreError};
use onrecord_core::id::{RunId, TenantId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch::{self, Sender};
use tokio::time::MissedTickBehavior;

/// Between two looks at what other processes committed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How far a run is, as far as this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames.
    pub size: u64,
    /// Whether it is sealed: then `size` does not change any more.
    pub sealed: bool,
}

/// Somebody who follows one run. Dropping it ends that.
pub struct Follower {
    followed: Followed,
    key: Key,
    progress: watch::Receiver<Progress>,
}

impl Recorder {
    /// Follows a run from now on.
    pub async fn follow(&self, tenant: TenantId, run: RunId) -> Result<Follower, RecordError> {
        // Before the first look, so that nothing is committed between the two unnoticed.
        let key = (tenant, run);
        let follower = self.followed.join(&self.store, &key);
        let recorder = self.clone();
        self.detached(async move {
            let found = sizes(&recorder.store, &key.0, std::slice::from_ref(&key.1)).await?;
            let Some((_, now)) = found.into_iter().next() else {
                return Err(RecordError::NoRun(key.1));
            };
            recorder.followed.tell(&key, now);
            Ok(())
        })
        .await?;
        Ok(follower)
    }
}

impl Follower {
    /// How far the run is.
    pub fn progress(&mut self) -> Progress {
        *self.progress.borrow_and_update()
    }

    /// Waits until the run is further than [`Follower::progress`] last said.
    pub async fn changed(&mut self) {
        // Fails only where the sender is gone, which is kept as long as there is a follower.
        let _ = self.progress.changed().await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut runs = self.followed.lock();
        let followers = runs.by_run.get(&self.key).map(Sender::receiver_count);
        if followers.is_some_and(|count| count <= 1) {
            runs.by_run.remove(&self.key);
        }
    }
}

/// The runs that somebody follows in this process.
#[derive(Clone, Default)]
pub(super) struct Followed(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    by_run: HashMap<Key, Sender<Progress>>,
    /// Whether a task looks; there is none while nobody follows.
    looking: bool,
}

/// A run as one tenant names it: whoever names another's run is told nothing of it.
type Key = (TenantId, RunId);

impl Followed {
    /// Tells followers how far a run is. What is told late says less than was known, and changes nothing.
    pub(super) fn tell(&self, key: &Key, now: Progress) {
        let runs = self.lock();
        let Some(progress) = runs.by_run.get(key) else {
            return;
        };
        progress.send_if_modified(|known| {
            let next = Progress {
                size: known.size.max(now.size),
                sealed: known.sealed || now.sealed,
            };
            std::mem::replace(known, next) != next
        });
    }

    fn join(&self, store: &Store, key: &Key) -> Follower {
        let mut runs = self.lock();
        let progress = runs.by_run.entry(key.clone()).or_default().subscribe();
        if !runs.looking {
            runs.looking = true;
            tokio::spawn(self.clone().look(store.clone()));
        }
        Follower {
            followed: self.clone(),
            key: key.clone(),
            progress,
        }
    }

    /// Looks at the database until nobody follows.
    async fn look(self, store: Store) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            ticks.tick().await;
            let Some(tenants) = self.open_runs() else {
                return;
            };
            let mut failed = None;
            for (tenant, runs) in tenants {
                match sizes(&store, &tenant, &runs).await {
                    Ok(found) => found
                        .into_iter()
                        .for_each(|(run, now)| self.tell(&(tenant.clone(), run), now)),
                    Err(error) => failed = Some(error),
                }
            }
            // Followers wait until the database is back; that it is away is told once.
            if let Some(error) = failed.as_ref().filter(|_| !failing) {
                tracing::warn!(%error, "runs that are followed cannot be looked at");
            }
            failing = failed.is_some();
        }
    }

    /// The runs that may still grow, by tenant; `None` where nobody follows any, and the task ends.
    fn open_runs(&self) -> Option<HashMap<TenantId, Vec<RunId>>> {
        let mut runs = self.lock();
        if runs.by_run.is_empty() {
            runs.looking = false;
            return None;
        }
        let mut tenants: HashMap<TenantId, Vec<RunId>> = HashMap::new();
        for ((tenant, run), progress) in &runs.by_run {
            if !progress.borrow().sealed {
                let open = tenants.entry(tenant.clone()).or_default();
                open.push(run.clone());
            }
        }
        Some(tenants)
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sizes(
    store: &Store,
    tenant: &TenantId,
    runs: &[RunId],
) -> Result<Vec<(RunId, Progress)>, StoreError> {
    let mut tx = store.begin(tenant).await?;
    let found = store::runs::sizes(&mut tx, runs).await?;
    tx.commit().await?;
    let progress = |(run, size, sealed)| (run, Progress { size, sealed });
    Ok(found.into_iter().map(progress).collect())
}
