//! Records of payloads that were erased before there were any: which erasures are without them, and the rows.

use super::id::Uuid;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};

/// A run with payloads of an erasure that are not listed, and the ledger's entries that certify these, in their order.
pub(crate) struct UnlistedRun {
    pub(crate) run: RunId,
    pub(crate) entries: Vec<u64>,
}

/// What stays known of a payload that was erased.
pub(crate) struct ErasedRow {
    pub(crate) commit: Hash,
    pub(crate) seq: u64,
    pub(crate) place: i16,
    pub(crate) media: String,
    pub(crate) tier: i16,
    pub(crate) size: u64,
    /// Index of the ledger's entry that certifies it.
    pub(crate) index: u64,
}

/// The oldest erasure that is carried out and whose payloads are not listed, and the next of its runs, in their order.
pub(crate) async fn unlisted(
    tx: &mut Tx,
    tenant: &TenantId,
    limit: u32,
) -> Result<Option<(RunId, Vec<UnlistedRun>)>, StoreError> {
    let row: Option<(String, Uuid)> = sqlx::query_as(
        "select id, unlisted_from from erasures
         where tenant = $1 and unlisted_from is not null and removed_at is not null order by id limit 1",
    )
    .bind(tenant.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    let Some((id, from)) = row else {
        return Ok(None);
    };
    let rows: Vec<(Uuid, Vec<i64>)> = sqlx::query_as(
        "select run, coalesce(array_agg(entry order by entry) filter (where entry is not null), '{}')
         from erasure_parts left join lateral unnest(entries) as entry on true
         where erasure = $1 and run > $2 group by run order by run limit $3",
    )
    .bind(&id)
    .bind(from)
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(run, entries): (Uuid, Vec<i64>)| {
        let entries = entries
            .into_iter()
            .map(|entry| unsigned(entry, "erasure_parts", "entries"));
        Ok(UnlistedRun {
            run: run.into(),
            entries: entries.collect::<Result<_, _>>()?,
        })
    };
    let runs: Result<Vec<_>, StoreError> = rows.into_iter().map(read).collect();
    let id = id
        .parse()
        .map_err(|_| contradiction("erasures", "id", &id))?;
    Ok(Some((id, runs?)))
}

/// Lists payloads of a run that an erasure removed, but for those that are listed, or lie there; returns how many. They count as
/// removed when the erasure had removed the last.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    (id, run): (&RunId, &RunId),
    rows: &[ErasedRow],
) -> Result<u64, StoreError> {
    let each = rows.iter();
    let done = sqlx::query(
        "insert into erased_payloads (run, tenant, commit, seq, place, media, tier, size, ledger_index, erased_at)
         select $1, $2, erased.*, (select removed_at from erasures where id = $3)
         from unnest($4::bytea[], $5::bigint[], $6::smallint[], $7::text[], $8::smallint[], $9::bigint[], $10::bigint[])
           as erased (commit, seq, place, media, tier, size, idx)
         where not exists (select from payloads where payloads.run = $1 and payloads.commit = erased.commit)
         on conflict do nothing",
    )
    .bind(Uuid::from(run))
    .bind(tenant.as_str())
    .bind(id.to_string())
    .bind(Vec::from_iter(each.clone().map(|row| &row.commit.0[..])))
    .bind(Vec::from_iter(each.clone().map(|row| signed(row.seq))))
    .bind(Vec::from_iter(each.clone().map(|row| row.place)))
    .bind(Vec::from_iter(each.clone().map(|row| &row.media[..])))
    .bind(Vec::from_iter(each.clone().map(|row| row.tier)))
    .bind(Vec::from_iter(each.clone().map(|row| signed(row.size))))
    .bind(Vec::from_iter(each.map(|row| signed(row.index))))
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected())
}

/// Writes that the payloads of an erasure are listed up to a run, or all of them.
pub(crate) async fn listed(
    tx: &mut Tx,
    id: &RunId,
    up_to: Option<&RunId>,
) -> Result<(), StoreError> {
    sqlx::query("update erasures set unlisted_from = $2 where id = $1")
        .bind(id.to_string())
        .bind(up_to.map(Uuid::from))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
