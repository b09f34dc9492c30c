//! Runs: the row of each run's head.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::chain::Chain;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;

/// A run as its row has it.
pub(crate) struct RunRow {
    pub(crate) run: RunId,
    pub(crate) tenant: TenantId,
    pub(crate) run_no: u64,
    pub(crate) agent: Option<String>,
    pub(crate) opened_at: Timestamp,
    pub(crate) open_index: u64,
    pub(crate) chain: Chain,
    pub(crate) sealed: Option<SealedRow>,
    /// Newest version of its keys.
    pub(crate) key_version: i16,
    /// Payloads that were erased.
    pub(crate) erased: u64,
}

/// Where the seal of a run is.
pub(crate) struct SealedRow {
    pub(crate) at: Timestamp,
    pub(crate) index: u64,
    /// Under the first cosigned checkpoint that has it, once there is one, and from the log's own until then.
    pub(crate) proof: String,
}

pub(super) fn read(row: &PgRow) -> Result<RunRow, StoreError> {
    let run: RunId = row.try_get::<Uuid, _>("run")?.into();
    let chain: Vec<u8> = row.try_get("chain")?;
    let chain = Chain::from_bytes(&chain).ok_or_else(|| contradiction("runs", "chain", &run))?;
    let head = hash(row.try_get("head")?, "runs", "head")?;
    let size = unsigned(row.try_get("size")?, "runs", "size")?;
    if chain.head() != head || chain.size() != size || chain.run() != &run {
        return Err(contradiction("runs", "chain", &run));
    }
    let sealed = match (
        row.try_get::<Option<Time>, _>("sealed_at")?,
        row.try_get::<Option<i64>, _>("seal_index")?,
    ) {
        (Some(at), Some(index)) => Some(SealedRow {
            at: at.0,
            index: unsigned(index, "runs", "seal_index")?,
            proof: row
                .try_get::<Option<String>, _>("seal_proof")?
                .ok_or_else(|| contradiction("runs", "seal_proof", &run))?,
        }),
        _ => None,
    };
    Ok(RunRow {
        tenant: chain.tenant().clone(),
        run_no: unsigned(row.try_get("run_no")?, "runs", "run_no")?,
        agent: row.try_get("agent")?,
        opened_at: row.try_get::<Time, _>("opened_at")?.0,
        open_index: unsigned(row.try_get("open_index")?, "runs", "open_index")?,
        key_version: row.try_get("key_version")?,
        erased: unsigned(row.try_get("erased")?, "runs", "erased")?,
        run,
        chain,
        sealed,
    })
}

/// A row with the proof that takes the place of the first one, where there is one.
fn read_one(row: &PgRow) -> Result<RunRow, StoreError> {
    let mut run = read(row)?;
    let cosigned: Option<String> = row.try_get("cosigned_proof")?;
    if let (Some(sealed), Some(proof)) = (&mut run.sealed, cosigned) {
        sealed.proof = proof;
    }
    Ok(run)
}

/// Waits for the lock of a run, and reads the database's clock after it.
pub(crate) async fn lock(
    tx: &mut Tx,
    run: &RunId,
) -> Result<Option<(RunRow, Timestamp)>, StoreError> {
    let (mut rows, now) = lock_many(tx, &[run]).await?;
    let row = rows.remove(run).transpose()?;
    Ok(row.map(|row| (row, now)))
}

/// Waits for the locks of runs, in the order of their ids, and reads the database's clock after them. Those that are not
/// there are left out; a row that contradicts the model is its run's affair alone.
pub(crate) async fn lock_many(
    connection: &mut PgConnection,
    runs: &[&RunId],
) -> Result<(HashMap<RunId, Result<RunRow, StoreError>>, Timestamp), StoreError> {
    let ids: Vec<Uuid> = runs.iter().map(|run| Uuid::from(*run)).collect();
    let rows = sqlx::query(
        "select *, (select proof from cosigned_proofs where cosigned_proofs.run = runs.run) as cosigned_proof
         from runs where run = any($1) order by run for update",
    )
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?;
    let now: Time = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(connection)
        .await?;
    let rows = rows
        .iter()
        .map(|row| Ok((row.try_get::<Uuid, _>("run")?.into(), read_one(row))));
    Ok((rows.collect::<Result<_, StoreError>>()?, now.0))
}

/// A run, unlocked.
pub(crate) async fn find(tx: &mut Tx, run: &RunId) -> Result<Option<RunRow>, StoreError> {
    let row = sqlx::query(
        "select *, (select proof from cosigned_proofs where cosigned_proofs.run = runs.run) as cosigned_proof
         from runs where run = $1",
    )
        .bind(Uuid::from(run))
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| read_one(&row)).transpose()
}

/// How many frames runs have, and whether they are sealed; those that are not there are left out.
pub(crate) async fn sizes(
    tx: &mut Tx,
    runs: &[RunId],
) -> Result<Vec<(RunId, u64, bool)>, StoreError> {
    let names: Vec<Uuid> = runs.iter().map(Uuid::from).collect();
    let rows: Vec<(Uuid, i64, bool)> =
        sqlx::query_as("select run, size, sealed_at is not null from runs where run = any($1)")
            .bind(names)
            .fetch_all(&mut **tx)
            .await?;
    rows.into_iter()
        .map(|(run, size, sealed)| {
            let size = unsigned(size, "runs", "size")?;
            Ok((run.into(), size, sealed))
        })
        .collect()
}

/// The runs that were opened with keys.
pub(crate) async fn opened_with(
    tx: &mut Tx,
    tenant: &TenantId,
    keys: &[&str],
) -> Result<HashMap<String, RunId>, StoreError> {
    let runs: Vec<(String, Uuid)> =
        sqlx::query_as("select open_key, run from runs where tenant = $1 and open_key = any($2)")
            .bind(tenant.as_str())
            .bind(keys)
            .fetch_all(&mut **tx)
            .await?;
    let runs = runs.into_iter().map(|(key, run)| (key, run.into()));
    Ok(runs.collect())
}

/// A new run, whose frame 0 is not written yet.
pub(crate) struct NewRun<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) opened_at: Timestamp,
    pub(crate) run_no: u64,
    pub(crate) open_key: Option<&'a str>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) open_index: u64,
}

/// Adds runs, whose keys are durable already.
pub(crate) async fn insert(tx: &mut Tx, new: &[NewRun<'_>]) -> Result<(), StoreError> {
    macro_rules! column {
        ($row:pat => $value:expr) => {
            new.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "insert into runs (run, tenant, run_no, open_key, agent, opened_at, open_index, size, head, last_at, chain)
         select run, tenant, run_no, open_key, agent, opened_at, open_index, size, head, opened_at, chain
         from unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bytea[])
           as new (run, tenant, run_no, open_key, agent, opened_at, open_index, size, head, chain)",
    )
    .bind(column!(new => Uuid::from(new.chain.run())))
    .bind(column!(new => new.chain.tenant().as_str()))
    .bind(column!(new => signed(new.run_no)))
    .bind(column!(new => new.open_key))
    .bind(column!(new => new.agent))
    .bind(column!(new => Time(new.opened_at)))
    .bind(column!(new => signed(new.open_index)))
    .bind(column!(new => signed(new.chain.size())))
    .bind(column!(new => new.chain.head().0))
    .bind(column!(new => new.chain.to_bytes()))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes where the seals of runs are.
pub(crate) async fn update_seals(
    tx: &mut Tx,
    seals: &[(RunId, SealedRow)],
) -> Result<(), StoreError> {
    macro_rules! column {
        ($row:pat => $value:expr) => {
            seals.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "update runs set sealed_at = new.sealed_at, seal_index = new.seal_index, seal_proof = new.seal_proof
         from unnest($1::uuid[], $2::timestamptz[], $3::bigint[], $4::text[]) as new (run, sealed_at, seal_index, seal_proof)
         where runs.run = new.run and runs.sealed_at is null",
    )
    .bind(column!((run, _) => Uuid::from(run)))
    .bind(column!((_, seal) => Time(seal.at)))
    .bind(column!((_, seal) => signed(seal.index)))
    .bind(column!((_, seal) => seal.proof.as_str()))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Open runs whose last frame is older than some seconds, by the database's clock.
pub(crate) async fn idle(
    tx: &mut Tx,
    tenant: &TenantId,
    seconds: u64,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let runs: Vec<Uuid> = sqlx::query_scalar(
        "select run from runs where tenant = $1 and sealed_at is null
           and last_at < clock_timestamp() - make_interval(secs => $2::double precision)
         order by last_at limit $3",
    )
    .bind(tenant.as_str())
    .bind(signed(seconds))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    Ok(runs.into_iter().map(RunId::from).collect())
}
