//! Erasures: asked for, looked at, and listed. What they do is in `work`.

use super::decide;
use crate::access::Caller;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use crate::store::erasures::{ErasureRow, Scope};
use crate::vault;
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Payloads that one request may name.
pub const NAMED: usize = 1_000;

/// How often it is asked whether another erasure of the tenant is done.
const TURN: Duration = Duration::from_millis(50);

/// How long a request waits for its work. What is not done by then goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// When erasures are final.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finality {
    /// How long after the keys of an erasure were destroyed its tenant's epoch is rotated, by which it becomes final. `None`:
    /// somebody else rotates it.
    pub rotate_after: Option<Duration>,
    /// For how many days the operator keeps backups of the keys folder, where that is said.
    pub key_backup_days: Option<u32>,
}

/// What is to be erased.
#[derive(Clone, Debug)]
pub enum What {
    /// Payloads of a run, 1 to [`NAMED`] of them.
    Payloads(RunId, Vec<Hash>),
    /// Every payload about a subject that its writer named so.
    Subject(String),
    /// A tier of a run, 0 to 3.
    Tier(RunId, u8),
    /// Every payload of the tenant.
    Tenant,
}

/// A request to erase.
#[derive(Clone, Debug)]
pub struct ErasureRequest {
    /// What.
    pub what: What,
    /// Under which policy; stands on the ledger.
    pub policy: String,
    /// Why; stands on the ledger.
    pub reason: String,
    /// By which a retry of the request finds the erasure.
    pub key: Option<String>,
}

/// An erasure, and how far it is.
#[derive(Clone, Debug)]
pub struct Erasure {
    /// Its id.
    pub id: RunId,
    /// `payloads`, `subject`, `tier`, `tenant` or `expiry`.
    pub scope: &'static str,
    /// The run, where it is of one.
    pub run: Option<RunId>,
    /// The tier, where it is of one.
    pub tier: Option<u8>,
    /// Under which policy.
    pub policy: String,
    /// Why.
    pub reason: String,
    /// Who asked for it.
    pub by: Actor,
    /// When.
    pub requested_at: Timestamp,
    /// When no key was left in the store that opens any of it.
    pub keys_destroyed_at: Option<Timestamp>,
    /// When the last ciphertext was removed.
    pub removed_at: Option<Timestamp>,
    /// When every epoch was destroyed that had wrapped a key of it: no copy of the database opens any of it.
    pub final_at: Option<Timestamp>,
    /// Matter of a hold that it waits for.
    pub held: Option<String>,
    /// Tiers of runs that it is about, and how many of them are done.
    pub parts: u64,
    /// See `parts`.
    pub parts_done: u64,
    /// Payloads that were erased so far.
    pub count: u64,
    /// Entries of the ledger that certify it so far.
    pub entries: u64,
}

impl From<ErasureRow> for Erasure {
    fn from(row: ErasureRow) -> Self {
        let (scope, run, tier) = match row.scope {
            Scope::Payloads(run, _) => ("payloads", Some(run), None),
            Scope::Tier(run, tier) => ("tier", Some(run), u8::try_from(tier).ok()),
            Scope::Subject(_) => ("subject", None, None),
            Scope::Tenant => ("tenant", None, None),
            Scope::Expiry => ("expiry", None, None),
        };
        Self {
            id: row.id,
            scope,
            run,
            tier,
            policy: row.policy,
            reason: row.reason,
            by: row.by,
            requested_at: row.requested_at,
            keys_destroyed_at: row.keys_destroyed_at,
            removed_at: row.removed_at,
            final_at: row.final_at,
            held: row.held,
            parts: row.parts,
            parts_done: row.parts_done,
            count: row.count,
            entries: row.entries,
        }
    }
}

impl Recorder {
    /// Asks for an erasure, and waits a moment for it; what is not done by then goes on by itself. False where a request
    /// with the same key was there before.
    ///
    /// # Errors
    /// [`RecordError::Held`]: a hold is in force over the run, or over the tenant.
    pub async fn erase(
        &self,
        caller: Caller,
        request: ErasureRequest,
        finality: Finality,
    ) -> Result<(Erasure, bool), RecordError> {
        for (pointer, text) in [("/reason", &request.reason), ("/policy", &request.policy)] {
            self.refuse_secret(pointer, text)?;
        }
        self.refuse_secret("/key", request.key.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        let tenant = caller.tenant.clone();
        let (row, created) = self
            .detached(async move { recorder.request_erasure(&caller, request).await })
            .await?;
        // A crash from here on leaves the request, which the next look at what is open goes on with; and so does an error,
        // which stands in the log.
        let work = self.work_when_free(&tenant, &row.id, finality);
        let _ = tokio::time::timeout(PATIENCE, work).await;
        Ok((self.read_erasure(tenant, row.id).await?, created))
    }

    /// Carries an erasure out, once no other one of the tenant is being carried out. Whoever stops waiting cancels nothing
    /// that was begun.
    async fn work_when_free(
        &self,
        tenant: &TenantId,
        id: &RunId,
        finality: Finality,
    ) -> Result<(), RecordError> {
        loop {
            let (recorder, of_tenant, id) = (self.clone(), tenant.clone(), id.clone());
            let work = async move { recorder.work_off(&of_tenant, Some(&id), finality).await };
            if self.detached(work).await? {
                return Ok(());
            }
            tokio::time::sleep(TURN).await;
        }
    }

    async fn request_erasure(
        &self,
        caller: &Caller,
        request: ErasureRequest,
    ) -> Result<(ErasureRow, bool), RecordError> {
        let keys = self.keys(&caller.tenant).await?;
        let scope = match request.what {
            What::Payloads(run, mut commits) => {
                commits.sort_unstable();
                commits.dedup();
                Scope::Payloads(run, commits)
            }
            What::Subject(subject) => Scope::Subject(keys.subject(&subject)?),
            What::Tier(run, tier) => Scope::Tier(run, i16::from(tier)),
            What::Tenant => Scope::Tenant,
        };
        let mut tx = self.store.begin(&caller.tenant).await?;
        // Holds are set under the same lock: none comes between the look and the request.
        let tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
        if let Some(key) = &request.key
            && let Some(known) = store::erasures::with_key(&mut tx, &caller.tenant, key).await?
        {
            let same = known.scope == scope
                && (&known.policy, &known.reason) == (&request.policy, &request.reason);
            return if same {
                Ok((known, false))
            } else {
                Err(RecordError::ErasureKey(key.clone()))
            };
        }
        let run = match &scope {
            Scope::Payloads(run, _) | Scope::Tier(run, _) => Some(run),
            Scope::Subject(_) | Scope::Tenant | Scope::Expiry => None,
        };
        if let Some(run) = run
            && store::runs::sizes(&mut tx, std::slice::from_ref(run))
                .await?
                .is_empty()
        {
            return Err(RecordError::NoRun(run.clone()));
        }
        let mut parts = BTreeSet::new();
        match &scope {
            Scope::Payloads(run, commits) => {
                for commit in commits {
                    if let Some(payload) = store::payloads::one(&mut tx, run, commit).await? {
                        parts.insert((run.clone(), payload.key.tier));
                    } else if store::frames::committing(&mut tx, run, commit)
                        .await?
                        .is_none()
                    {
                        let (run, commit) = (run.clone(), *commit);
                        return Err(RecordError::NoPayload { run, commit });
                    }
                }
            }
            Scope::Tier(run, tier) => {
                parts.insert((run.clone(), *tier));
            }
            Scope::Subject(_) | Scope::Tenant | Scope::Expiry => {}
        }
        decide::may_begin(&mut tx, &caller.tenant).await?;
        let parts = Vec::from_iter(parts);
        for verdict in decide::may_erase(&mut tx, &caller.tenant, &parts).await? {
            verdict.permit()?;
        }
        let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
        let millis = u64::try_from(tenant.now.micros() / 1_000).unwrap_or(0);
        let row = ErasureRow {
            id: vault::new_run_id(millis)?,
            scope,
            policy: request.policy,
            reason: request.reason,
            by,
            requested_at: tenant.now,
            keys_destroyed_at: None,
            removed_at: None,
            final_at: None,
            held: None,
            parts: 0,
            parts_done: 0,
            count: 0,
            entries: 0,
        };
        store::erasures::insert(&mut tx, &caller.tenant, request.key.as_deref(), &row).await?;
        commit(tx).await?;
        Ok((row, true))
    }

    /// An erasure of a tenant.
    pub async fn read_erasure(&self, tenant: TenantId, id: RunId) -> Result<Erasure, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let row = store::erasures::find(&mut tx, &id).await?;
            commit(tx).await?;
            row.map(Erasure::from).ok_or(RecordError::NoErasure(id))
        })
        .await
    }

    /// Erasures of a tenant, newest first, before one.
    pub async fn erasures(
        &self,
        tenant: TenantId,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<Erasure>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let rows = store::erasures::list(&mut tx, &tenant, before.as_ref(), limit).await?;
            commit(tx).await?;
            Ok(rows.into_iter().map(Erasure::from).collect())
        })
        .await
    }
}
