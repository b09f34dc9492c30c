//! Erasing what expired of many runs at once:
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | **one transaction** with the tenant's lock and those of the runs: decided again for each; an entry of the ledger for each run, one checkpoint; the parts of the erasure, certified | what the entries name is erased for every reader; whoever looks at open erasures next goes on with the parts |
//! | the keys of all these tiers are removed, in one statement | nothing that the store has opens any of it |
//! | their ciphertexts are removed, and the parts are done | nothing of it |
//!
//! So for runs that are sealed, to which nothing is appended any more. A run that is open, or of which single payloads of the
//! tier were erased before, goes the way of every other erasure (`work`).

use super::decide::{Known, Verdict};
use super::sweep;
use super::work::METHOD;
use crate::ledger::{self, Erasures, Unwritten, later};
use crate::record::{RecordError, Recorder, STORE_ID, commit, offload, state_of};
use crate::store::erasures::{ErasureRow, PartRow, Scope};
use crate::store::expiring::{self, Going, Whole};
use crate::store::permit::Permit;
use crate::store::runs::RunRow;
use crate::store::sweeping::WorkRow;
use crate::store::tenants::LockedTenant;
use crate::store::{self, Tx};
use crate::vault;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{self, Predicate};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// Why the sweeper erases, as ledger and certificates say.
pub(crate) const EXPIRED: &str = "expired";

/// What a round of the sweeper did so far.
#[derive(Default)]
pub(super) struct Round {
    /// The erasure of each policy, as `SCHEDULE@VERSION`.
    erasures: BTreeMap<String, ErasureRow>,
    /// Runs of which something was erased.
    pub(super) runs: u64,
    /// Payloads that were erased.
    pub(super) payloads: u64,
    /// Since when the last run was overdue that was looked at.
    pub(super) looked_at: Option<Timestamp>,
}

/// A run with the tiers of which nothing is left, as bits.
type Due = (RunId, i16);

/// A tier of a run that may be erased.
struct Free {
    permit: Permit,
    policy: String,
    count: u64,
}

/// What was decided of some runs.
#[derive(Default)]
struct Decided {
    /// As their rows have to be.
    rows: Vec<WorkRow>,
    /// What goes at once.
    whole: Vec<Free>,
    /// What goes the way of every other erasure.
    single: Vec<Free>,
}

impl Recorder {
    /// Certifies what is due of runs. What goes at once is returned, and is to be destroyed next; the rest is erased.
    pub(super) async fn expire(
        &self,
        tenant: &TenantId,
        due: Vec<Due>,
        round: &mut Round,
    ) -> Result<Vec<Going>, RecordError> {
        let (going, single) = self.certify_expired(tenant, due, round).await?;
        for (policy, part) in single {
            self.go_on()?;
            let Some(erasure) = round.erasures.get(&policy) else {
                continue;
            };
            match self.erase_part(tenant, erasure, &part).await {
                // It came between; the part waits, as of every other erasure.
                Err(RecordError::Held { .. } | RecordError::Floor { .. }) => {}
                done => done?,
            }
        }
        Ok(going)
    }

    /// Destroys what is certified.
    pub(super) async fn destroy(
        &self,
        tenant: &TenantId,
        going: Vec<Going>,
    ) -> Result<(), RecordError> {
        if going.is_empty() {
            return Ok(());
        }
        let epoch = self.store.remove_keys_of(tenant, &going).await?;
        for part in &going {
            self.forget_run_keys(tenant, part.run());
        }
        let mut tx = self.store.begin_erasing(tenant).await?;
        expiring::by_index(&mut tx).await?;
        expiring::lazily(&mut tx).await?;
        expiring::remove(&mut tx, tenant, &going, epoch).await?;
        // A crash before this line leaves ciphertexts that nothing opens; whoever looks at open erasures next removes them.
        commit(tx).await
    }

    /// Decides and certifies, in one transaction. Returns what is to be destroyed now, and what goes one by one.
    async fn certify_expired(
        &self,
        tenant: &TenantId,
        due: Vec<Due>,
        round: &mut Round,
    ) -> Result<(Vec<Going>, Vec<(String, PartRow)>), RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin_erasing(tenant).await?;
        expiring::by_index(&mut tx).await?;
        // First the tenant, then the runs in the order of their ids, as everybody who needs both does.
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let ids: Vec<RunId> = due.iter().map(|(run, _)| run.clone()).collect();
        let (runs, _) = store::runs::lock_many(&mut tx, &Vec::from_iter(&ids)).await?;
        let known = Known::of(&mut tx, tenant, &ids).await?;
        let decided = decide(&mut tx, (&known, tenant), &runs, due).await?;
        let (whole, single) = (decided.whole, decided.single);
        for part in whole.iter().chain(&single) {
            if !round.erasures.contains_key(&part.policy) {
                let erasure = erasure(&locked, &part.policy)?;
                store::erasures::insert(&mut tx, tenant, None, &erasure).await?;
                round.erasures.insert(part.policy.clone(), erasure);
            }
        }
        let going = self
            .enter_expired(&mut tx, &mut locked, &runs, whole, round)
            .await?;
        if !going.is_empty() {
            ledger::checkpoint(&mut tx, &locked, &keys).await?;
        }
        let mut parts = Vec::new();
        for free in single {
            let (run, tier) = (free.permit.run(), free.permit.tier());
            if let Some(erasure) = round.erasures.get(&free.policy) {
                expiring::add_part(&mut tx, tenant, &erasure.id, (run, tier)).await?;
                parts.push((free.policy.clone(), PartRow::begun(run.clone(), tier)));
                (round.runs, round.payloads) = (round.runs + 1, round.payloads + free.count);
            }
        }
        store::sweeping::note(&mut tx, tenant, &decided.rows).await?;
        // A crash before this line leaves all as it was; after it what the entries name is erased, and what is left of it is
        // removed when the parts are gone on with.
        commit(tx).await?;
        Ok((going, parts))
    }

    /// Enters an entry for each run, over all of its tiers that go, and writes that they are certified.
    async fn enter_expired(
        &self,
        tx: &mut Tx,
        locked: &mut LockedTenant,
        runs: &HashMap<RunId, Result<RunRow, store::StoreError>>,
        whole: Vec<Free>,
        round: &mut Round,
    ) -> Result<Vec<Going>, RecordError> {
        let mut at = ledger::next_time(locked)?;
        let mut unwritten = Unwritten::begin(locked, &self.vault).await?;
        let (mut parts, mut said): (Vec<Whole>, Vec<statement::Erasure>) = Default::default();
        // The entry of each part among those that are said.
        let mut entries = Vec::new();
        for free in whole {
            let run = free.permit.run();
            let (Some(Ok(row)), Some(erasure)) = (runs.get(run), round.erasures.get(&free.policy))
            else {
                continue;
            };
            if let Ok(time) = later(at, row.chain.last_at()) {
                at = time;
            }
            let tier = u8::try_from(free.permit.tier()).unwrap_or(0);
            round.payloads += free.count;
            // Tiers of a run come one after the other, and go under one policy.
            match said.last_mut().filter(|last| last.state.run == *run) {
                Some(last) => add_tier(last, tier, free.count),
                None => {
                    round.runs += 1;
                    said.push(statement::Erasure {
                        at,
                        by: erasure.by.clone(),
                        commits: None,
                        count: free.count,
                        method: METHOD.to_owned(),
                        policy: free.policy.clone(),
                        reason: EXPIRED.to_owned(),
                        state: state_of(&row.chain),
                        tier: Some(tier),
                        tiers: None,
                    });
                }
            }
            entries.push(said.len() - 1);
            parts.push(Whole {
                erasure: erasure.id.clone(),
                version: row.key_version.saturating_add(1),
                count: free.count,
                index: 0,
                is_first: false,
                permit: free.permit,
            });
        }
        let said: Vec<Predicate> = said.into_iter().map(Predicate::Erasure).collect();
        let indexes = offload(usize::MAX, || unwritten.push_many(locked, &said))?;
        let mut last = None;
        for (part, entry) in parts.iter_mut().zip(entries) {
            let none = || store::contradiction("ledger_entries", "idx", &locked.tenant);
            part.index = indexes.get(entry).copied().ok_or_else(none)?;
            part.is_first = last.replace(entry) != Some(entry);
        }
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        unwritten.write(tx, locked).await?;
        let tenant = locked.tenant.clone();
        Ok(expiring::certified(tx, &tenant, parts).await?)
    }

    /// Writes how far the erasures of a round are.
    pub(super) async fn settle(&self, tenant: &TenantId, round: &Round) -> Result<(), RecordError> {
        for erasure in round.erasures.values() {
            let mut tx = self.store.begin(tenant).await?;
            store::erasures::settle(&mut tx, &erasure.id, None).await?;
            commit(tx).await?;
        }
        Ok(())
    }
}

/// Has a certificate cover one more tier, above those that it covers.
fn add_tier(certificate: &mut statement::Erasure, tier: u8, count: u64) {
    let mut tiers = certificate.whole_tiers();
    tiers.push(tier);
    certificate.tier = None;
    certificate.tiers = Some(tiers);
    certificate.count += count;
}

/// What becomes of each of the runs, which are locked.
async fn decide(
    tx: &mut Tx,
    (known, tenant): (&Known, &TenantId),
    runs: &HashMap<RunId, Result<RunRow, store::StoreError>>,
    due: Vec<Due>,
) -> Result<Decided, RecordError> {
    let parts = expired_parts(known, &due);
    let there = expiring::there(tx, &parts).await?;
    let erased = |run: &RunId| matches!(runs.get(run), Some(Ok(row)) if row.erased > 0);
    let touched = due.iter().map(|(run, _)| run).filter(|run| erased(run));
    let touched: Vec<RunId> = touched.cloned().collect();
    let erasures = Erasures::of_runs(tx, tenant, &touched).await?;
    let mut decided = Decided::default();
    for (run, done_before) in due {
        let (Some(fate), Some(row)) = (known.fate(&run), runs.get(&run)) else {
            decided.rows.push(sweep::unknown(known, run, done_before));
            continue;
        };
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                tracing::error!(%run, %error, "what expired of a run cannot be erased");
                decided.rows.extend(later_row(known, run, done_before));
                continue;
            }
        };
        let (mut done, mut waits) = (done_before, false);
        for tier in fate.expired(known.now).map(|one| i16::from(one.tier)) {
            let count = there.get(&(run.clone(), tier)).map(|there| there.payloads);
            let Some(count) = count.filter(|_| done & (1 << tier) == 0) else {
                // Nothing of it is there; of an open run more may come.
                done |= i16::from(row.sealed.is_some()) << tier;
                continue;
            };
            let permit = match known.verdict(&run, tier) {
                Verdict::Free(permit) => permit,
                Verdict::Held { .. } | Verdict::Floor(..) => {
                    waits = true;
                    continue;
                }
            };
            let free = Free {
                permit,
                policy: fate.policy(),
                count,
            };
            let alone = erasures.get(&run).is_some_and(|one| one.touches(tier));
            if row.sealed.is_none() || alone {
                decided.single.push(free);
                waits = true;
            } else {
                done |= 1 << tier;
                decided.whole.push(free);
            }
        }
        decided.rows.extend(match waits {
            true => later_row(known, run, done),
            false => sweep::row(known, run, done).map(|row| not_before(row, known.now)),
        });
    }
    Ok(decided)
}

/// The tiers of runs that expired, but for those of which nothing is left.
fn expired_parts(known: &Known, due: &[Due]) -> Vec<(RunId, i16)> {
    let mut parts = Vec::new();
    for (run, done) in due {
        let Some(fate) = known.fate(run) else {
            continue;
        };
        for expiry in fate.expired(known.now) {
            if done & (1_i16 << expiry.tier) == 0 {
                parts.push((run.clone(), i16::from(expiry.tier)));
            }
        }
    }
    parts
}

/// The row of a run of which something is due that cannot be erased now.
fn later_row(known: &Known, run: RunId, done: i16) -> Option<WorkRow> {
    let row = sweep::row(known, run, done)?;
    Some(WorkRow {
        look_at: Some(sweep::again(known.now)),
        ..row
    })
}

/// An open run's tiers stay due when they are empty: it is looked at for more in a while, and not at once.
fn not_before(row: WorkRow, now: Timestamp) -> WorkRow {
    WorkRow {
        look_at: row
            .look_at
            .map(|at| if at <= now { sweep::again(now) } else { at }),
        ..row
    }
}

/// The erasure of what a round finds under a policy.
fn erasure(tenant: &LockedTenant, policy: &str) -> Result<ErasureRow, RecordError> {
    let millis = u64::try_from(tenant.now.micros() / 1_000).unwrap_or(0);
    Ok(ErasureRow {
        id: vault::new_run_id(millis)?,
        scope: Scope::Expiry,
        policy: policy.to_owned(),
        reason: EXPIRED.to_owned(),
        by: Actor {
            id: STORE_ID.to_owned(),
            keyid: None,
            kind: ActorType::System,
        },
        requested_at: tenant.now,
        keys_destroyed_at: None,
        removed_at: None,
        final_at: None,
        held: None,
        parts: 0,
        parts_done: 0,
        count: 0,
        entries: 0,
    })
}
