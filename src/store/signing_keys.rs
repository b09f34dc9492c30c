//! Public halves of the keys that sign for a tenant: its seal keys, and those of its agents.

use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// Whose key it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The store's, for the statements of a tenant.
    Seal,
    /// That of an agent, by its id as an actor.
    Agent(String),
}

/// A key as its row has it.
#[derive(Clone, Debug)]
pub(crate) struct SigningKeyRow {
    pub(crate) keyid: Hash,
    pub(crate) holder: Holder,
    /// SPKI DER in base64.
    pub(crate) spki: String,
    /// Ledger index of the statement that added it.
    pub(crate) added_index: u64,
    /// Ledger index of the statement that revoked it.
    pub(crate) revoked_index: Option<u64>,
}

impl SigningKeyRow {
    /// The agent that signs with it; `None` for a seal key.
    pub(crate) fn actor(&self) -> Option<&str> {
        match &self.holder {
            Holder::Seal => None,
            Holder::Agent(actor) => Some(actor),
        }
    }
}

/// All keys of a tenant, in the order in which they were added.
pub(crate) async fn all(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<SigningKeyRow>, StoreError> {
    let rows = sqlx::query("select * from signing_keys where tenant = $1 order by added_index")
        .bind(tenant.as_str())
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// Adds a key.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    key: &SigningKeyRow,
) -> Result<(), StoreError> {
    let (role, actor) = match &key.holder {
        Holder::Seal => ("seal", None),
        Holder::Agent(actor) => ("agent", Some(actor)),
    };
    sqlx::query(
        "insert into signing_keys (tenant, keyid, role, actor, spki, added_index) values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(tenant.as_str())
    .bind(&key.keyid.0[..])
    .bind(role)
    .bind(actor)
    .bind(&key.spki)
    .bind(signed(key.added_index))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes where in the ledger a key ended.
pub(crate) async fn revoke(
    tx: &mut Tx,
    tenant: &TenantId,
    keyid: &Hash,
    index: u64,
) -> Result<(), StoreError> {
    sqlx::query("update signing_keys set revoked_index = $3 where tenant = $1 and keyid = $2")
        .bind(tenant.as_str())
        .bind(&keyid.0[..])
        .bind(signed(index))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

fn read(row: &PgRow) -> Result<SigningKeyRow, StoreError> {
    let keyid = hash(row.try_get("keyid")?, "signing_keys", "keyid")?;
    let role: String = row.try_get("role")?;
    let holder = match (role.as_str(), row.try_get("actor")?) {
        ("seal", None) => Holder::Seal,
        ("agent", Some(actor)) => Holder::Agent(actor),
        _ => return Err(contradiction("signing_keys", "role", keyid)),
    };
    let revoked: Option<i64> = row.try_get("revoked_index")?;
    Ok(SigningKeyRow {
        keyid,
        holder,
        spki: row.try_get("spki")?,
        added_index: unsigned(row.try_get("added_index")?, "signing_keys", "added_index")?,
        revoked_index: revoked
            .map(|index| unsigned(index, "signing_keys", "revoked_index"))
            .transpose()?,
    })
}
