//! The versions of a tenant's retention policy. Each is a `policy` entry in its ledger, like its settings.

use super::policy::{BadPolicy, Document, Policy};
use super::term::{Version, Versions};
use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store::retention::PolicyRow;
use crate::store::{self, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::TenantId;
use onrecord_core::statement::{self, Predicate};
use onrecord_core::timestamp::Timestamp;

/// Name of the policy in the ledger, and of its subject.
const POLICY: &str = "retention";

/// A version of a policy as it stands.
#[derive(Clone, Debug)]
pub struct StandingPolicy {
    /// From 1.
    pub version: u64,
    /// What it says.
    pub document: Document,
    /// From when on it holds.
    pub at: Timestamp,
    /// Who chose it.
    pub by: Actor,
    /// Index of the ledger's entry whose subject it is.
    pub index: u64,
    /// Whether this request made it.
    pub created: bool,
}

impl StandingPolicy {
    fn of(row: PolicyRow, created: bool) -> Result<Self, RecordError> {
        Ok(Self {
            document: read(&row)?.document,
            version: row.version,
            at: row.at,
            by: row.by,
            index: row.ledger_index,
            created,
        })
    }
}

fn read(row: &PolicyRow) -> Result<Policy, RecordError> {
    let wrong = |error: BadPolicy| {
        tracing::error!(version = row.version, %error, "a retention policy cannot be read");
        store::contradiction("retention_policies", "document", row.version)
    };
    Ok(Policy::read(&row.document).map_err(wrong)?)
}

/// All versions of a tenant's policy, as a transaction sees them.
pub(crate) async fn versions(tx: &mut Tx, tenant: &TenantId) -> Result<Versions, RecordError> {
    let rows = store::retention::policies(tx, tenant).await?;
    let version = |row: &PolicyRow| {
        Ok(Version {
            version: row.version,
            at: row.at,
            policy: read(row)?,
        })
    };
    let versions: Result<_, RecordError> = rows.iter().map(version).collect();
    Ok(Versions(versions?))
}

impl From<BadPolicy> for RecordError {
    fn from(error: BadPolicy) -> Self {
        Self::BadPolicy {
            pointer: error.pointer,
            detail: error.detail,
        }
    }
}

impl Recorder {
    /// A version of the policy of the caller's tenant, or the one that holds; `None` where it has none.
    ///
    /// # Errors
    /// [`RecordError::NoPolicy`]: it has no such version.
    pub async fn retention_policy(
        &self,
        caller: Caller,
        version: Option<u64>,
    ) -> Result<Option<StandingPolicy>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let mut rows = store::retention::policies(&mut tx, &caller.tenant).await?;
            commit(tx).await?;
            let row = match version {
                None => rows.pop(),
                Some(version) => {
                    let row = rows.into_iter().find(|row| row.version == version);
                    Some(row.ok_or(RecordError::NoPolicy(version))?)
                }
            };
            row.map(|row| StandingPolicy::of(row, false)).transpose()
        })
        .await
    }

    /// Puts a policy in the place of the one that holds, with an entry in the ledger whose subject it is. The same again
    /// changes nothing. Floors of the earlier ones go on for the runs that were open under them.
    ///
    /// # Errors
    /// [`RecordError::BadPolicy`].
    pub async fn change_retention_policy(
        &self,
        caller: Caller,
        document: Document,
    ) -> Result<StandingPolicy, RecordError> {
        let document = Policy::of(document)?.document;
        let recorder = self.clone();
        self.detached(async move {
            let bytes = document.bytes().ok_or_else(|| {
                store::contradiction("retention_policies", "document", &caller.tenant)
            })?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            recorder.refuse_secret("", &text)?;
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let last = store::retention::policies(&mut tx, &caller.tenant)
                .await?
                .pop();
            let version = match last {
                Some(last) if last.document == bytes => return StandingPolicy::of(last, false),
                last => last.map_or(0, |last| last.version) + 1,
            };
            let policy = statement::Policy {
                at: ledger::next_time(&tenant)?,
                by: stand_in(&mut tx, &caller.tenant, &caller.reader()).await?,
                policy: POLICY.to_owned(),
                version,
            };
            let (at, by) = (policy.at, policy.by.clone());
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &Predicate::Policy(policy),
                Some((POLICY, Hash::of(&[&bytes]))),
            )
            .await?;
            let row = PolicyRow {
                version,
                at,
                by,
                ledger_index: entry.index,
                document: bytes,
            };
            store::retention::insert_policy(&mut tx, &caller.tenant, &row).await?;
            // A crash before this line leaves policy and ledger as they were; after it both are changed, and the sweeper
            // finds that its list is of an older version.
            commit(tx).await?;
            StandingPolicy::of(row, true)
        })
        .await
    }
}
