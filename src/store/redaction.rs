//! Rules of redaction that tenants add.

use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// A document of rules, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct RulesRow {
    pub(crate) version: u64,
    pub(crate) at: Timestamp,
    pub(crate) by: Actor,
    pub(crate) ledger_index: u64,
    pub(crate) media: String,
    pub(crate) document: Vec<u8>,
}

/// The version that holds; 0 where there is none.
pub(crate) async fn last_version(tx: &mut Tx, tenant: &TenantId) -> Result<u64, StoreError> {
    let version: i64 = sqlx::query_scalar(
        "select coalesce(max(version), 0) from redaction_rules where tenant = $1",
    )
    .bind(tenant.as_str())
    .fetch_one(&mut **tx)
    .await?;
    unsigned(version, "redaction_rules", "version")
}

/// A version, if there is such.
pub(crate) async fn version(
    tx: &mut Tx,
    tenant: &TenantId,
    version: u64,
) -> Result<Option<RulesRow>, StoreError> {
    let row = sqlx::query("select * from redaction_rules where tenant = $1 and version = $2")
        .bind(tenant.as_str())
        .bind(signed(version))
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let kind: String = row.try_get("actor_type")?;
    Ok(Some(RulesRow {
        version: unsigned(row.try_get("version")?, "redaction_rules", "version")?,
        at: row.try_get::<Time, _>("at")?.0,
        by: Actor {
            id: row.try_get("actor_id")?,
            keyid: None,
            kind: ActorType::from_word(&kind)
                .ok_or_else(|| contradiction("redaction_rules", "actor_type", kind))?,
        },
        ledger_index: unsigned(
            row.try_get("ledger_index")?,
            "redaction_rules",
            "ledger_index",
        )?,
        media: row.try_get("media")?,
        document: row.try_get("document")?,
    }))
}

/// Adds a version.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    rules: &RulesRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into redaction_rules (tenant, version, at, actor_type, actor_id, ledger_index, media, document)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(tenant.as_str())
    .bind(signed(rules.version))
    .bind(Time(rules.at))
    .bind(rules.by.kind.as_str())
    .bind(&rules.by.id)
    .bind(signed(rules.ledger_index))
    .bind(&rules.media)
    .bind(&rules.document)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
