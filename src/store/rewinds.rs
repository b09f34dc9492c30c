//! Checkpoints that were published and that the ledger has not: rewinds, and which of them were accepted.

use super::time::Time;
use super::{Store, StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// Who knows of a rewind, where it is this server itself.
pub(crate) const PUBLISHED: &str = "published";

/// A checkpoint that somebody knows and the ledger has not.
#[derive(Clone, Debug)]
pub(crate) struct Rewind {
    /// [`PUBLISHED`], or a witness's verifier key.
    pub(crate) told_by: String,
    pub(crate) told_size: u64,
    /// Where whoever knows the size says it.
    pub(crate) told_root: Option<Hash>,
    /// Of the ledger when it was found.
    pub(crate) size: u64,
    pub(crate) root: Hash,
    /// When it was found; that of one which is not kept yet is not asked for.
    pub(crate) found_at: Timestamp,
    /// Whether somebody accepted it.
    pub(crate) accepted: bool,
}

impl Store {
    /// The tenants with one that nobody accepted.
    pub(crate) async fn rewound(&self) -> Result<Vec<TenantId>, StoreError> {
        let rows: Vec<String> = sqlx::query_scalar(
            "select distinct rewinds.tenant from rewinds left join accepted_rewinds using (id) where accepted_rewinds.id is null",
        )
        .fetch_all(self.pool())
        .await?;
        let tenant = |text: String| {
            text.parse()
                .map_err(|_| contradiction("rewinds", "tenant", text))
        };
        rows.into_iter().map(tenant).collect()
    }
}

/// All of them, the oldest first.
pub(crate) async fn all(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<Rewind>, StoreError> {
    let rows = sqlx::query(
        "select rewinds.*, accepted_rewinds.id is not null as accepted
         from rewinds left join accepted_rewinds using (id) where rewinds.tenant = $1 order by id",
    )
    .bind(tenant.as_str())
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            let root: Option<Vec<u8>> = row.try_get("told_root")?;
            Ok(Rewind {
                told_by: row.try_get("told_by")?,
                told_size: unsigned(row.try_get("told_size")?, "rewinds", "told_size")?,
                told_root: root
                    .map(|root| hash(&root, "rewinds", "told_root"))
                    .transpose()?,
                size: unsigned(row.try_get("size")?, "rewinds", "size")?,
                root: hash(row.try_get("root")?, "rewinds", "root")?,
                found_at: row.try_get::<Time, _>("found_at")?.0,
                accepted: row.try_get("accepted")?,
            })
        })
        .collect()
}

/// Keeps one.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    rewind: &Rewind,
) -> Result<(), StoreError> {
    sqlx::query("insert into rewinds (tenant, told_by, told_size, told_root, size, root) values ($1, $2, $3, $4, $5, $6)")
        .bind(tenant.as_str())
        .bind(&rewind.told_by)
        .bind(signed(rewind.told_size))
        .bind(rewind.told_root.map(|root| root.0.to_vec()))
        .bind(signed(rewind.size))
        .bind(&rewind.root.0[..])
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Accepts all that are not.
pub(crate) async fn accept(
    tx: &mut Tx,
    tenant: &TenantId,
    ledger_index: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into accepted_rewinds (id, tenant, ledger_index)
         select id, tenant, $2 from rewinds where tenant = $1 and not exists (select from accepted_rewinds where id = rewinds.id)",
    )
    .bind(tenant.as_str())
    .bind(signed(ledger_index))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
