//! Erasing what expired, of many runs in each statement. These runs are sealed: nothing is appended, so that no tier needs a
//! new key, and all keys of a tier go.

use super::id::Uuid;
use super::permit::{Certified, Permit};
use super::{Store, StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::id::{RunId, TenantId};
use std::collections::HashMap;

/// A tier of a run that is certified by an entry of the ledger, as a whole.
pub(crate) struct Whole {
    pub(crate) permit: Permit,
    /// The erasure that it is a part of.
    pub(crate) erasure: RunId,
    /// Above the versions of all keys of the run.
    pub(crate) version: i16,
    /// Payloads that are erased.
    pub(crate) count: u64,
    /// Index of the entry.
    pub(crate) index: u64,
    /// Whether it is the first of the tiers that the entry is about: with that part the entry is counted.
    pub(crate) is_first: bool,
}

/// The same, once that is written: what the next steps destroy.
pub(crate) struct Going {
    part: Certified,
    erasure: RunId,
    version: i16,
    index: u64,
}

impl Going {
    /// The run.
    pub(crate) fn run(&self) -> &RunId {
        self.part.run()
    }
}

macro_rules! column {
    ($rows:expr, $row:ident => $value:expr) => {
        $rows.iter().map(|$row| $value).collect::<Vec<_>>()
    };
}

/// Has the transaction's statements go by indexes: what they join is a few hundred rows with a large table, whatever its
/// statistics say.
pub(crate) async fn by_index(tx: &mut Tx) -> Result<(), StoreError> {
    sqlx::query(
        "select set_config(name, 'off', true) from unnest(array['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']) as name",
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Has the transaction's commit wait for no disk. A power cut soon after it undoes it, as a crash before it would.
pub(crate) async fn lazily(tx: &mut Tx) -> Result<(), StoreError> {
    sqlx::query("set local synchronous_commit = off")
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// What is there of a tier of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct There {
    /// Payloads that have a key.
    pub(crate) payloads: u64,
    /// Their bytes, after padding.
    pub(crate) bytes: u64,
}

/// What is there of tiers of runs; those of which there is nothing are left out.
pub(crate) async fn there(
    tx: &mut Tx,
    parts: &[(RunId, i16)],
) -> Result<HashMap<(RunId, i16), There>, StoreError> {
    let rows: Vec<(Uuid, i16, i64, i64)> = sqlx::query_as(
        "select part.run, part.tier, found.count, found.bytes from unnest($1::uuid[], $2::smallint[]) as part (run, tier), lateral (
           select count(*) as count, coalesce(sum(size), 0)::bigint as bytes from payloads
           where payloads.run = part.run and payloads.tier = part.tier and wrapped_dek <> '') as found
         where found.count > 0",
    )
    .bind(column!(parts, part => Uuid::from(&part.0)))
    .bind(column!(parts, part => part.1))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(run, tier, count, bytes): (Uuid, i16, i64, i64)| {
        let there = There {
            payloads: unsigned(count, "payloads", "commit")?,
            bytes: unsigned(bytes, "payloads", "size")?,
        };
        Ok(((run.into(), tier), there))
    };
    rows.into_iter().map(read).collect()
}

/// Writes that tiers are certified: as parts of their erasures, and in the rows of their runs. When this is committed what the
/// entries name is erased for every reader.
pub(crate) async fn certified(
    tx: &mut Tx,
    tenant: &TenantId,
    parts: Vec<Whole>,
) -> Result<Vec<Going>, StoreError> {
    sqlx::query(
        "insert into erasure_parts (erasure, tenant, run, tier, key_version, count, entries, certified)
         select erasure, $1, run, tier, version, count, case when first then array[idx] else '{}' end, true
         from unnest($2::text[], $3::uuid[], $4::smallint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::boolean[])
           as new (erasure, run, tier, version, count, idx, first)",
    )
    .bind(tenant.as_str())
    .bind(column!(parts, part => part.erasure.to_string()))
    .bind(column!(parts, part => Uuid::from(part.permit.run())))
    .bind(column!(parts, part => part.permit.tier()))
    .bind(column!(parts, part => part.version))
    .bind(column!(parts, part => signed(part.count)))
    .bind(column!(parts, part => signed(part.index)))
    .bind(column!(parts, part => part.is_first))
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "update runs set erased = erased + new.count
         from (select run, sum(count)::bigint as count from unnest($1::uuid[], $2::bigint[]) as part (run, count) group by run) as new
         where runs.run = new.run",
    )
    .bind(column!(parts, part => Uuid::from(part.permit.run())))
    .bind(column!(parts, part => signed(part.count)))
    .execute(&mut **tx)
    .await?;
    let going = parts.into_iter().map(|part| Going {
        part: Certified::stated(part.permit.run().clone(), part.permit.tier()),
        erasure: part.erasure,
        version: part.version,
        index: part.index,
    });
    Ok(going.collect())
}

/// Adds a part to an erasure that is carried out as those of single runs are.
pub(crate) async fn add_part(
    tx: &mut Tx,
    tenant: &TenantId,
    erasure: &RunId,
    (run, tier): (&RunId, i16),
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into erasure_parts (erasure, tenant, run, tier) values ($1, $2, $3, $4) on conflict do nothing",
    )
    .bind(erasure.to_string())
    .bind(tenant.as_str())
    .bind(Uuid::from(run))
    .bind(tier)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes that nothing of a part is to be erased, after all.
pub(crate) async fn drop_part(
    tx: &mut Tx,
    erasure: &RunId,
    (run, tier): (&RunId, i16),
) -> Result<(), StoreError> {
    sqlx::query(
        "update erasure_parts set certified = true, keys_destroyed = true, removed = true
         where erasure = $1 and run = $2 and tier = $3 and not certified",
    )
    .bind(erasure.to_string())
    .bind(Uuid::from(run))
    .bind(tier)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Removes the keys of tiers, durable when this returns. Then none is wrapped by an epoch that is newer than the one that
    /// this returns.
    pub(crate) async fn remove_keys_of(
        &self,
        tenant: &TenantId,
        parts: &[Going],
    ) -> Result<i32, StoreError> {
        let mut tx = self.begin_keys(tenant).await?;
        by_index(&mut tx).await?;
        sqlx::query(
            "delete from keys.run_keys as keys using unnest($1::uuid[], $2::smallint[], $3::smallint[]) as part (run, tier, version)
             where keys.run = part.run and keys.tier = part.tier and keys.version < part.version",
        )
        .bind(column!(parts, part => Uuid::from(part.part.run())))
        .bind(column!(parts, part => part.part.tier()))
        .bind(column!(parts, part => part.version))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        // After it: an epoch that a rotation makes meanwhile may have wrapped the keys as well.
        let mut tx = self.begin_keys(tenant).await?;
        let epoch: Option<i32> =
            sqlx::query_scalar("select max(epoch) from keys.epochs where tenant = $1")
                .bind(tenant.as_str())
                .fetch_one(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(epoch.unwrap_or(1))
    }
}

/// Removes the ciphertexts of tiers and leaves what stays known of them, and writes that nothing is left of the parts, whose keys
/// no epoch newer than this one wrapped. Returns how many payloads went.
pub(crate) async fn remove(
    tx: &mut Tx,
    tenant: &TenantId,
    parts: &[Going],
    epoch: i32,
) -> Result<u64, StoreError> {
    let gone = sqlx::query(
        "with part as (
           select * from unnest($1::uuid[], $2::smallint[], $3::bigint[]) as part (run, tier, idx)
         ), gone as (
           delete from payloads using part
           where payloads.run = part.run and payloads.tier = part.tier and octet_length(ciphertext) > 0
           returning payloads.run, commit, seq, place, payloads.tier, media, size, idx
         )
         insert into erased_payloads (run, tenant, commit, seq, place, media, tier, size, ledger_index)
         select run, $4, commit, seq, place, media, tier, size, idx from gone",
    )
    .bind(column!(parts, part => Uuid::from(part.part.run())))
    .bind(column!(parts, part => part.part.tier()))
    .bind(column!(parts, part => signed(part.index)))
    .bind(tenant.as_str())
    .execute(&mut **tx)
    .await?;
    let done = sqlx::query(
        "update erasure_parts as old set keys_destroyed = true, removed = true, epoch = $4
         from unnest($1::text[], $2::uuid[], $3::smallint[]) as part (erasure, run, tier)
         where old.erasure = part.erasure and old.run = part.run and old.tier = part.tier",
    )
    .bind(column!(parts, part => part.erasure.to_string()))
    .bind(column!(parts, part => Uuid::from(part.part.run())))
    .bind(column!(parts, part => part.part.tier()))
    .bind(epoch)
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() != parts.len() as u64 {
        return Err(contradiction("erasure_parts", "removed", tenant));
    }
    Ok(gone.rows_affected())
}
