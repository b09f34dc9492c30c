//! What tenants chose for themselves.

use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// A version of a tenant's settings.
#[derive(Clone, Debug)]
pub(crate) struct SettingsRow {
    pub(crate) version: u64,
    pub(crate) at: Timestamp,
    pub(crate) by: Actor,
    pub(crate) ledger_index: u64,
    pub(crate) document: Vec<u8>,
}

/// The version that holds; `None` where the tenant chose nothing.
pub(crate) async fn last(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<Option<SettingsRow>, StoreError> {
    let row = sqlx::query("select * from settings where tenant = $1 order by version desc limit 1")
        .bind(tenant.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let kind: String = row.try_get("actor_type")?;
    Ok(Some(SettingsRow {
        version: unsigned(row.try_get("version")?, "settings", "version")?,
        at: row.try_get::<Time, _>("at")?.0,
        by: Actor {
            id: row.try_get("actor_id")?,
            keyid: None,
            kind: ActorType::from_word(&kind)
                .ok_or_else(|| contradiction("settings", "actor_type", kind))?,
        },
        ledger_index: unsigned(row.try_get("ledger_index")?, "settings", "ledger_index")?,
        document: row.try_get("document")?,
    }))
}

/// Adds a version.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    settings: &SettingsRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into settings (tenant, version, at, actor_type, actor_id, ledger_index, document)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(tenant.as_str())
    .bind(signed(settings.version))
    .bind(Time(settings.at))
    .bind(settings.by.kind.as_str())
    .bind(&settings.by.id)
    .bind(signed(settings.ledger_index))
    .bind(&settings.document)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
