//! Frames of many runs that figures about replays are made of: the newest of a time, and no more than so many.

use super::facts::kind_no;
use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, signed};
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// What figures are made for each of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Each {
    Agent,
    Day,
    Week,
    Month,
}

impl Each {
    /// The key of a run, which is called `r`: its agent, or the beginning of the time in which it was opened.
    const fn key(self) -> &'static str {
        match self {
            Self::Agent => "coalesce(r.agent, '')",
            Self::Day => "to_char(date_trunc('day', r.opened_at, 'UTC'), 'YYYY-MM-DD')",
            Self::Week => "to_char(date_trunc('week', r.opened_at, 'UTC'), 'YYYY-MM-DD')",
            Self::Month => "to_char(date_trunc('month', r.opened_at, 'UTC'), 'YYYY-MM-DD')",
        }
    }
}

/// A frame under the key of its run.
pub(crate) struct Sampled {
    pub(crate) key: String,
    pub(crate) run: RunId,
    pub(crate) bytes: Vec<u8>,
}

/// The newest frames of a kind from one time to before another, at most so many.
pub(crate) async fn frames(
    tx: &mut Tx,
    tenant: &TenantId,
    kind: Kind,
    (since, until): (Timestamp, Timestamp),
    (each, limit): (Each, u32),
) -> Result<Vec<Sampled>, StoreError> {
    let sql = format!(
        "select {} as key, f.run, f.bytes from (
           select run, bytes from frames where tenant = $1 and kind_no = $2 and at >= $3 and at < $4 order by at desc limit $5
         ) as f join runs r using (run)",
        each.key()
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(kind_no(kind))
        .bind(Time(since))
        .bind(Time(until))
        .bind(i64::from(limit))
        .persistent(false)
        .fetch_all(&mut **tx)
        .await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Sampled {
            key: row.try_get("key")?,
            run: row.try_get::<Uuid, _>("run")?.into(),
            bytes: row.try_get("bytes")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Payloads under the key of their run, by tier and state: `stored`, `kept` by their agents, or `erased`. Only of the newest
/// runs that were opened in that time, at most so many.
pub(crate) async fn payloads(
    tx: &mut Tx,
    tenant: &TenantId,
    (since, until): (Timestamp, Timestamp),
    (each, runs): (Each, u32),
) -> Result<Vec<(String, i16, String, u64)>, StoreError> {
    let sql = format!(
        "select {} as key, p.tier, p.state, count(*) as count from (
           select run, agent, opened_at from runs
           where tenant = $1 and run between $2 and $3 and opened_at >= $4 and opened_at < $5 order by run desc limit $6
         ) as r join lateral (
           select tier, case when wrapped_dek <> '' then 'stored' when ciphertext = '' then 'kept' else 'erased' end as state
           from payloads where payloads.run = r.run
           union all
           select tier, 'erased' from erased_payloads where erased_payloads.run = r.run
         ) as p on true group by 1, 2, 3 order by 1, 2, 3",
        each.key()
    );
    let (first, last) = ids((since, until));
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(first)
        .bind(last)
        .bind(Time(since))
        .bind(Time(until))
        .bind(signed(runs.into()))
        .persistent(false)
        .fetch_all(&mut **tx)
        .await?;
    let read = |row: &sqlx::postgres::PgRow| {
        let count = super::unsigned(row.try_get("count")?, "payloads", "count")?;
        Ok((
            row.try_get("key")?,
            row.try_get("tier")?,
            row.try_get("state")?,
            count,
        ))
    };
    rows.iter().map(read).collect()
}

/// The newest runs that were opened from one time to before another, at most so many, each under its key.
pub(crate) async fn runs(
    tx: &mut Tx,
    tenant: &TenantId,
    (since, until): (Timestamp, Timestamp),
    (each, limit): (Each, u32),
) -> Result<Vec<(String, RunId)>, StoreError> {
    let sql = format!(
        "select {} as key, run from runs as r
         where tenant = $1 and run between $2 and $3 and opened_at >= $4 and opened_at < $5 order by run desc limit $6",
        each.key()
    );
    let (first, last) = ids((since, until));
    let rows: Vec<(String, Uuid)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(first)
        .bind(last)
        .bind(Time(since))
        .bind(Time(until))
        .bind(i64::from(limit))
        .persistent(false)
        .fetch_all(&mut **tx)
        .await?;
    let rows = rows.into_iter();
    Ok(rows.map(|(key, run)| (key, run.into())).collect())
}

/// Bytes of a run's frames and ciphertexts, as they lie there.
pub(crate) async fn bytes(tx: &mut Tx, run: &RunId) -> Result<u64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(
        "select ((select coalesce(sum(octet_length(bytes)), 0) from frames where run = $1)
           + (select coalesce(sum(octet_length(ciphertext)), 0) from payloads where run = $1))::bigint",
    )
    .bind(Uuid::from(run))
    .fetch_one(&mut **tx)
    .await?;
    super::unsigned(bytes, "frames", "bytes")
}

/// Between which ids the runs are that were opened from one time to before another: an id is made a moment before its run is
/// opened.
fn ids((since, until): (Timestamp, Timestamp)) -> (Uuid, Uuid) {
    let id = |at: Timestamp, micros: i64, random| {
        let millis = u64::try_from((at.micros() - micros) / 1_000).unwrap_or(0);
        Uuid::from(&RunId::from_parts(millis, [random; 10]))
    };
    (
        id(since, super::search::OPENING_MICROS, 0),
        id(until, 0, 255),
    )
}
