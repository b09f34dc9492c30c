//! API tokens.

use super::time::Time;
use super::{Store, StoreError, Tx, contradiction};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// A token as it is kept: without its secret.
pub(crate) struct TokenRow {
    pub(crate) id: String,
    pub(crate) tenant: TenantId,
    pub(crate) name: String,
    pub(crate) secret_hash: Vec<u8>,
    pub(crate) roles: Vec<String>,
    pub(crate) actor_type: Option<String>,
    pub(crate) actor_id: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
    /// Whether it opens anything now, by the database's clock.
    pub(crate) live: bool,
}

const COLUMNS: &str = "select *, revoked_at is null and (expires_at is null or expires_at > clock_timestamp()) as live from tokens";

fn read(row: &PgRow) -> Result<TokenRow, StoreError> {
    let tenant: String = row.try_get("tenant")?;
    let optional = |column: &str| {
        row.try_get::<Option<Time>, _>(column)
            .map(|time| time.map(|time| time.0))
    };
    Ok(TokenRow {
        id: row.try_get("id")?,
        tenant: tenant
            .parse()
            .map_err(|_| contradiction("tokens", "tenant", tenant))?,
        name: row.try_get("name")?,
        secret_hash: row.try_get("secret_hash")?,
        roles: row.try_get("roles")?,
        actor_type: row.try_get("actor_type")?,
        actor_id: row.try_get("actor_id")?,
        created_at: row.try_get::<Time, _>("created_at")?.0,
        expires_at: optional("expires_at")?,
        revoked_at: optional("revoked_at")?,
        live: row.try_get("live")?,
    })
}

impl Store {
    /// The token of an id, of whatever tenant.
    pub(crate) async fn token(&self, id: &str) -> Result<Option<TokenRow>, StoreError> {
        let sql = sqlx::AssertSqlSafe(format!("{COLUMNS} where id = $1"));
        let row = sqlx::query(sql)
            .bind(id)
            .fetch_optional(self.pool())
            .await?;
        row.map(|row| read(&row)).transpose()
    }

    /// All tokens of a tenant.
    pub(crate) async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>, StoreError> {
        let sql = sqlx::AssertSqlSafe(format!(
            "{COLUMNS} where tenant = $1 order by created_at, id"
        ));
        let rows = sqlx::query(sql)
            .bind(tenant.as_str())
            .fetch_all(self.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// Revokes a token of a tenant; false where there is none.
    pub(crate) async fn revoke_token(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query("update tokens set revoked_at = coalesce(revoked_at, clock_timestamp()) where tenant = $1 and id = $2")
            .bind(tenant.as_str())
            .bind(id)
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// A token to add.
pub(crate) struct NewTokenRow<'a> {
    pub(crate) id: &'a str,
    pub(crate) tenant: &'a TenantId,
    pub(crate) name: &'a str,
    pub(crate) secret_hash: &'a [u8],
    pub(crate) roles: Vec<&'static str>,
    pub(crate) actor_type: Option<&'static str>,
    pub(crate) actor_id: Option<&'a str>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Adds a token.
pub(crate) async fn insert(tx: &mut Tx, token: &NewTokenRow<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "insert into tokens (id, tenant, name, secret_hash, roles, actor_type, actor_id, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(token.id)
    .bind(token.tenant.as_str())
    .bind(token.name)
    .bind(token.secret_hash)
    .bind(&token.roles)
    .bind(token.actor_type)
    .bind(token.actor_id)
    .bind(token.expires_at.map(Time))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
