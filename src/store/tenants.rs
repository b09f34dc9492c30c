//! Tenants, and the lock that orders their ledger.

use super::id::Uuid;
use super::time::Time;
use super::{Store, StoreError, Tx, contradiction, hash, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
use onrecord_core::merkle::Frontier;
use onrecord_core::statement::Previous;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// A tenant whose row is locked: nobody else writes to its ledger until the transaction ends.
pub(crate) struct LockedTenant {
    pub(crate) tenant: TenantId,
    pub(crate) origin: Origin,
    pub(crate) next_run_no: u64,
    pub(crate) ledger: Frontier,
    /// Time of the last entry; `None` before the first.
    pub(crate) ledger_at: Option<Timestamp>,
    pub(crate) previous_seal: Option<Previous>,
    /// The seal key in force, which signs whatever is entered.
    pub(crate) seal_key: Hash,
    /// Whether the ledger lacks entries that were published, so that nothing may be entered until somebody accepts it.
    pub(crate) rewound: bool,
    /// The database's clock, read after the lock was taken.
    pub(crate) now: Timestamp,
}

impl Store {
    /// All tenants with the origins of their ledgers.
    pub(crate) async fn tenants(&self) -> Result<Vec<(TenantId, Origin)>, StoreError> {
        let rows = sqlx::query("select tenant, origin from tenants order by tenant")
            .fetch_all(self.pool())
            .await?;
        rows.iter()
            .map(|row| Ok((tenant(row)?, origin(row)?)))
            .collect()
    }

    /// All tenants with the origins and sizes of their ledgers.
    pub(crate) async fn ledgers(&self) -> Result<Vec<(TenantId, Origin, u64)>, StoreError> {
        let rows = sqlx::query("select tenant, origin, ledger_size from tenants order by tenant")
            .fetch_all(self.pool())
            .await?;
        rows.iter()
            .map(|row| {
                let size = unsigned(row.try_get("ledger_size")?, "tenants", "ledger_size")?;
                Ok((tenant(row)?, origin(row)?, size))
            })
            .collect()
    }

    /// All tenants with the seal keys in force.
    pub(crate) async fn seal_keys(&self) -> Result<Vec<(TenantId, Hash)>, StoreError> {
        let rows = sqlx::query("select tenant, seal_key from tenants order by tenant")
            .fetch_all(self.pool())
            .await?;
        rows.iter()
            .map(|row| {
                let keyid = hash(row.try_get("seal_key")?, "tenants", "seal_key")?;
                Ok((tenant(row)?, keyid))
            })
            .collect()
    }

    /// The tenant that was made first, with the server.
    pub(crate) async fn first_tenant(&self) -> Result<Option<TenantId>, StoreError> {
        let row = sqlx::query("select tenant from tenants order by created_at, tenant limit 1")
            .fetch_optional(self.pool())
            .await?;
        row.map(|row| tenant(&row)).transpose()
    }

    /// The tenant whose ledger has this id, the last step of its origin, which is no secret.
    pub(crate) async fn of_log(&self, log: &str) -> Result<Option<(TenantId, Origin)>, StoreError> {
        // As the index `tenants_log` has it.
        let row = sqlx::query(
            "select tenant, origin from tenants where substring(origin from '[^/]*$') = $1",
        )
        .bind(log)
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| Ok((tenant(&row)?, origin(&row)?)))
            .transpose()
    }

    /// The origin of a tenant's ledger.
    pub(crate) async fn origin(&self, id: &TenantId) -> Result<Option<Origin>, StoreError> {
        let row = sqlx::query("select tenant, origin from tenants where tenant = $1")
            .bind(id.as_str())
            .fetch_optional(self.pool())
            .await?;
        row.map(|row| origin(&row)).transpose()
    }
}

/// Adds a tenant with an empty ledger, whose statements a key signs.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    origin: &Origin,
    name: &str,
    seal_key: &Hash,
) -> Result<(), StoreError> {
    sqlx::query("insert into tenants (tenant, origin, name, seal_key) values ($1, $2, $3, $4)")
        .bind(tenant.as_str())
        .bind(origin.as_str())
        .bind(name)
        .bind(&seal_key.0[..])
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Waits for the tenant's lock.
pub(crate) async fn lock(tx: &mut Tx, id: &TenantId) -> Result<LockedTenant, StoreError> {
    let row = sqlx::query(
        "select *, nullif(ledger_at, '-infinity') as at, exists (
           select from rewinds left join accepted_rewinds using (id) where rewinds.tenant = $1 and accepted_rewinds.id is null
         ) as rewound from tenants where tenant = $1 for update",
    )
    .bind(id.as_str())
    .fetch_one(&mut **tx)
    .await?;
    let nodes: Vec<u8> = row.try_get("ledger_nodes")?;
    let nodes = nodes
        .chunks(32)
        .map(|node| hash(node, "tenants", "ledger_nodes"))
        .collect::<Result<_, _>>()?;
    let size = unsigned(row.try_get("ledger_size")?, "tenants", "ledger_size")?;
    let last_run: Option<Uuid> = row.try_get("last_seal_run")?;
    let last_leaf: Option<Vec<u8>> = row.try_get("last_seal_leaf")?;
    let previous_seal = match (last_run, last_leaf) {
        (Some(run), Some(leaf)) => Some(Previous {
            hash: hash(&leaf, "tenants", "last_seal_leaf")?,
            run: run.into(),
        }),
        _ => None,
    };
    // Read after the lock: a time of before the wait could be below the last entry's.
    let now: Time = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut **tx)
        .await?;
    Ok(LockedTenant {
        tenant: tenant(&row)?,
        origin: origin(&row)?,
        next_run_no: unsigned(row.try_get("next_run_no")?, "tenants", "next_run_no")?,
        ledger: Frontier::from_nodes(size, nodes)
            .ok_or_else(|| contradiction("tenants", "ledger_nodes", id))?,
        ledger_at: row.try_get::<Option<Time>, _>("at")?.map(|time| time.0),
        previous_seal,
        seal_key: hash(row.try_get("seal_key")?, "tenants", "seal_key")?,
        rewound: row.try_get("rewound")?,
        now: now.0,
    })
}

/// The seal key in force, as this transaction sees it.
pub(crate) async fn seal_key(tx: &mut Tx, tenant: &TenantId) -> Result<Hash, StoreError> {
    let keyid: Vec<u8> = sqlx::query_scalar("select seal_key from tenants where tenant = $1")
        .bind(tenant.as_str())
        .fetch_one(&mut **tx)
        .await?;
    hash(&keyid, "tenants", "seal_key")
}

/// Puts another seal key in force, for the lock's holder and for everybody after it.
pub(crate) async fn update_seal_key(
    tx: &mut Tx,
    tenant: &mut LockedTenant,
    keyid: Hash,
) -> Result<(), StoreError> {
    sqlx::query("update tenants set seal_key = $2 where tenant = $1")
        .bind(tenant.tenant.as_str())
        .bind(&keyid.0[..])
        .execute(&mut **tx)
        .await?;
    tenant.seal_key = keyid;
    Ok(())
}

/// Takes the next run number.
pub(crate) async fn take_run_no(tx: &mut Tx, tenant: &TenantId) -> Result<(), StoreError> {
    sqlx::query("update tenants set next_run_no = next_run_no + 1 where tenant = $1")
        .bind(tenant.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes which seal is the last.
pub(crate) async fn update_seal(
    tx: &mut Tx,
    tenant: &TenantId,
    run: &RunId,
    leaf: &Hash,
) -> Result<(), StoreError> {
    sqlx::query("update tenants set last_seal_run = $2, last_seal_leaf = $3 where tenant = $1")
        .bind(tenant.as_str())
        .bind(Uuid::from(run))
        .bind(&leaf.0[..])
        .execute(&mut **tx)
        .await?;
    Ok(())
}

fn tenant(row: &PgRow) -> Result<TenantId, StoreError> {
    let text: String = row.try_get("tenant")?;
    text.parse()
        .map_err(|_| contradiction("tenants", "tenant", text))
}

fn origin(row: &PgRow) -> Result<Origin, StoreError> {
    let text: String = row.try_get("origin")?;
    text.parse()
        .map_err(|_| contradiction("tenants", "origin", text))
}
