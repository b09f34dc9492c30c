//! What would go: the same reading as the sweeper's, at another time and under a policy that need not hold, and nothing done.

use super::decide::{Known, Verdict};
use super::policies;
use super::policy::{Document, Policy};
use super::term::{Version, When};
use crate::access::Caller;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use onrecord_core::id::RunId;
use onrecord_core::timestamp::Timestamp;

/// Runs of a page at most.
pub(crate) const RUNS: u32 = 1_000;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct DryRun {
    /// What would go then; `None`: now.
    pub at: Option<Timestamp>,
    /// Under this policy; `None`: the one that holds.
    pub document: Option<Document>,
    /// Of the runs after this one.
    pub after: Option<RunId>,
    /// Of so many runs, 1 to 1,000.
    pub limit: u32,
}

/// A tier of a run that would go.
#[derive(Clone, Debug)]
pub struct Going {
    /// The run.
    pub run: RunId,
    /// The tier, 1 to 3.
    pub tier: u8,
    /// When it expires.
    pub due: Timestamp,
    /// The schedule.
    pub schedule: String,
    /// The rule that chooses it, from 0; `None` for the default.
    pub rule: Option<usize>,
    /// Whether it goes so early because the run is in no sample.
    pub sampled_out: bool,
    /// Payloads that go, and their bytes after padding.
    pub payloads: u64,
    /// See `payloads`.
    pub bytes: u64,
    /// Matter of a hold for which it stays all the same.
    pub held: Option<String>,
}

/// What would go of some runs.
#[derive(Clone, Debug)]
pub struct DryRunPage {
    /// At which time.
    pub at: Timestamp,
    /// The version under which; one above the last for a policy that does not hold. `None` where there is none.
    pub version: Option<u64>,
    /// What would go, by run and tier.
    pub going: Vec<Going>,
    /// How many runs were looked at.
    pub runs: u64,
    /// The last of them, where there may be more.
    pub next: Option<RunId>,
}

impl Recorder {
    /// What would go of a page of runs.
    ///
    /// # Errors
    /// [`RecordError::BadPolicy`].
    pub async fn retention_dry_run(
        &self,
        caller: Caller,
        asked: DryRun,
    ) -> Result<DryRunPage, RecordError> {
        let policy = asked.document.map(Policy::of).transpose()?;
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            let mut tx = recorder.store.snapshot(tenant).await?;
            store::expiring::by_index(&mut tx).await?;
            let now = store::time::now(&mut tx).await?;
            let mut versions = policies::versions(&mut tx, tenant).await?;
            if let Some(policy) = policy {
                let version = versions.last().map_or(0, |last| last.version) + 1;
                versions.0.push(Version {
                    version,
                    at: now,
                    policy,
                });
            }
            let version = versions.last().map(|last| last.version);
            let (after, limit) = (asked.after.as_ref(), asked.limit.clamp(1, RUNS));
            let runs = store::sweeping::runs_after(&mut tx, tenant, after, limit).await?;
            let at = asked.at.unwrap_or(now);
            let known = Known::under(&mut tx, tenant, &runs, (versions, at)).await?;
            let mut going: Vec<Going> = runs.iter().flat_map(|run| of_run(&known, run)).collect();
            let part = |one: &Going| (one.run.clone(), i16::from(one.tier));
            let parts: Vec<_> = going.iter().map(part).collect();
            let there = store::expiring::there(&mut tx, &parts).await?;
            commit(tx).await?;
            for one in &mut going {
                let there = there.get(&part(one)).copied().unwrap_or_default();
                (one.payloads, one.bytes) = (there.payloads, there.bytes);
            }
            // Of what is gone already nothing goes.
            going.retain(|one| one.payloads > 0);
            let full = u32::try_from(runs.len()).is_ok_and(|count| count == limit);
            Ok(DryRunPage {
                at,
                version,
                going,
                runs: runs.len() as u64,
                next: runs.into_iter().next_back().filter(|_| full),
            })
        })
        .await
    }
}

/// The tiers of a run that are due.
fn of_run(known: &Known, run: &RunId) -> Vec<Going> {
    let Some(fate) = known.fate(run) else {
        return Vec::new();
    };
    let due = fate.expired(known.now).filter_map(|expiry| {
        let When::At(due) = expiry.due else {
            return None;
        };
        let held = match known.verdict(run, i16::from(expiry.tier)) {
            Verdict::Free(_) => None,
            Verdict::Held { matter, .. } => Some(matter),
            Verdict::Floor(..) => return None,
        };
        Some(Going {
            run: run.clone(),
            tier: expiry.tier,
            due,
            schedule: fate.schedule.clone().unwrap_or_default(),
            rule: fate.rule,
            sampled_out: expiry.sampled_out,
            payloads: 0,
            bytes: 0,
            held,
        })
    });
    due.collect()
}
