//! What a tenant chooses for itself. Each choice is a `policy` entry in its ledger.

use super::{RecordError, Recorder, commit};
use crate::access::{Caller, Role};
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::store::settings::SettingsRow;
use crate::store::{self, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::TenantId;
use onrecord_core::json;
use onrecord_core::statement::{Policy, Predicate};
use onrecord_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the policy in the ledger, and of its subject.
const POLICY: &str = "settings";

/// A tenant's settings: the document that is signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seconds after which a run that nobody writes to is sealed as interrupted; 0 for never. `None`: what the server has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_idle_seconds: Option<u64>,
    /// How many people it takes to release a hold, 1 or 2. `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_release_people: Option<u64>,
}

impl Settings {
    /// How many people it takes to release a hold.
    pub(crate) fn release_people(&self) -> u64 {
        self.hold_release_people.unwrap_or(1)
    }

    /// After how many seconds an idle run is sealed, with what holds where the tenant chose nothing; `None` for never.
    pub(super) fn seal_idle(&self, standard: Option<u64>) -> Option<u64> {
        match self.seal_idle_seconds {
            None => standard,
            Some(0) => None,
            chosen => chosen,
        }
    }
}

/// Settings as they stand.
#[derive(Clone, Debug)]
pub struct StandingSettings {
    /// What was chosen.
    pub settings: Settings,
    /// The version, from 1, and when, by whom and at which index of the ledger it was chosen; `None` where nothing was.
    pub chosen: Option<(u64, Timestamp, Actor, u64)>,
    /// Whether this request changed them.
    pub created: bool,
}

impl StandingSettings {
    fn of(row: Option<SettingsRow>, created: bool) -> Result<Self, RecordError> {
        let Some(row) = row else {
            return Ok(Self {
                settings: Settings::default(),
                chosen: None,
                created,
            });
        };
        let settings = json::typed(&row.document)
            .map_err(|_| store::contradiction("settings", "document", row.version))?;
        Ok(Self {
            settings,
            chosen: Some((row.version, row.at, row.by, row.ledger_index)),
            created,
        })
    }
}

/// A tenant's settings, as a transaction sees them.
pub(crate) async fn settings(tx: &mut Tx, tenant: &TenantId) -> Result<Settings, RecordError> {
    let row = store::settings::last(tx, tenant).await?;
    Ok(StandingSettings::of(row, false)?.settings)
}

impl Recorder {
    /// The settings of the caller's tenant.
    pub async fn settings(&self, caller: Caller) -> Result<StandingSettings, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let row = store::settings::last(&mut tx, &caller.tenant).await?;
            commit(tx).await?;
            StandingSettings::of(row, false)
        })
        .await
    }

    /// Chooses settings in place of all that were chosen before, with an entry in the ledger whose subject they are. The same
    /// again change nothing.
    pub async fn change_settings(
        &self,
        caller: Caller,
        settings: Settings,
    ) -> Result<StandingSettings, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let document = json::to_canonical(&settings)
                .map_err(|_| store::contradiction("settings", "document", &caller.tenant))?;
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let last = store::settings::last(&mut tx, &caller.tenant).await?;
            if last.as_ref().is_some_and(|last| last.document == document) {
                return StandingSettings::of(last, false);
            }
            let before = StandingSettings::of(last.clone(), false)?.settings;
            if settings.release_people() < before.release_people() {
                // Else whoever may release holds could do so alone.
                caller.needs(&[Role::Admin])?;
            }
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let policy = Policy {
                at: ledger::next_time(&tenant)?,
                by,
                policy: POLICY.to_owned(),
                version: last.map_or(0, |last| last.version) + 1,
            };
            let (version, at, by) = (policy.version, policy.at, policy.by.clone());
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &Predicate::Policy(policy),
                Some((POLICY, Hash::of(&[&document]))),
            )
            .await?;
            let row = SettingsRow {
                version,
                at,
                by,
                ledger_index: entry.index,
                document,
            };
            store::settings::insert(&mut tx, &caller.tenant, &row).await?;
            // A crash before this line leaves the settings as they were, and the ledger too; after it both are changed.
            commit(tx).await?;
            StandingSettings::of(Some(row), true)
        })
        .await
    }
}
