//! Runs: the row of each run's head.

use super::condition::Condition;
use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::chain::Chain;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{QueryBuilder, Row as _};

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
    let row = sqlx::query(
        "select *, (select proof from cosigned_proofs where cosigned_proofs.run = runs.run) as cosigned_proof
         from runs where run = $1 for update",
    )
        .bind(Uuid::from(run))
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let now: Time = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut **tx)
        .await?;
    Ok(Some((read_one(&row)?, now.0)))
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

/// The run that was opened with a key.
pub(crate) async fn opened_with(
    tx: &mut Tx,
    tenant: &TenantId,
    key: &str,
) -> Result<Option<RunId>, StoreError> {
    let run: Option<Uuid> =
        sqlx::query_scalar("select run from runs where tenant = $1 and open_key = $2")
            .bind(tenant.as_str())
            .bind(key)
            .fetch_optional(&mut **tx)
            .await?;
    Ok(run.map(RunId::from))
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

/// Adds a run, whose keys are durable already.
pub(crate) async fn insert(tx: &mut Tx, new: &NewRun<'_>) -> Result<(), StoreError> {
    let chain = new.chain;
    sqlx::query(
        "insert into runs (run, tenant, run_no, open_key, agent, opened_at, open_index, size, head, last_at, chain)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $6, $10)",
    )
    .bind(Uuid::from(chain.run()))
    .bind(chain.tenant().as_str())
    .bind(signed(new.run_no))
    .bind(new.open_key)
    .bind(new.agent)
    .bind(Time(new.opened_at))
    .bind(signed(new.open_index))
    .bind(signed(chain.size()))
    .bind(&chain.head().0[..])
    .bind(chain.to_bytes())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes where the seal is.
pub(crate) async fn update_seal(
    tx: &mut Tx,
    run: &RunId,
    seal: &SealedRow,
) -> Result<(), StoreError> {
    sqlx::query("update runs set sealed_at = $2, seal_index = $3, seal_proof = $4 where run = $1 and sealed_at is null")
        .bind(Uuid::from(run))
        .bind(Time(seal.at))
        .bind(signed(seal.index))
        .bind(&seal.proof)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Which runs a list is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFilter {
    pub(crate) agent: Option<String>,
    /// `Some(true)` sealed ones, `Some(false)` open ones.
    pub(crate) sealed: Option<bool>,
    pub(crate) outcome: Option<String>,
    /// Opened then or later.
    pub(crate) since: Option<Timestamp>,
    /// Opened before.
    pub(crate) until: Option<Timestamp>,
    /// Beginning of the id, digits of ULIDs.
    pub(crate) prefix: String,
    pub(crate) condition: Option<Condition>,
    /// Runs numbered below this.
    pub(crate) before: Option<u64>,
}

impl RunFilter {
    /// Between which ids the runs are: an id begins with the milliseconds of the opening, so that the
    /// primary key serves times too.
    fn ids(&self) -> (Uuid, Uuid) {
        let id = |time: Option<Timestamp>, random| {
            let millis = u64::try_from(time?.micros() / 1_000).unwrap_or(0);
            Some(Uuid::from(&RunId::from_parts(millis, [random; 10])))
        };
        // A beginning that no id has is refused before; here it would be that of none.
        let bound = |digit: &str| {
            let rest = digit.repeat(26_usize.saturating_sub(self.prefix.len()));
            let id: Option<RunId> = format!("{}{rest}", self.prefix).parse().ok();
            id.as_ref().map(Uuid::from)
        };
        let first = bound("0").unwrap_or(Uuid::MAX);
        // The first digit of an id is at most 7.
        let last = if self.prefix.is_empty() {
            Uuid::MAX
        } else {
            bound("Z").unwrap_or(Uuid::MIN)
        };
        (
            id(self.since, 0).map_or(first, |since| since.max(first)),
            id(self.until, 255).map_or(last, |until| until.min(last)),
        )
    }
}

/// The newest runs first, by their numbers.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    filter: &RunFilter,
    limit: u32,
) -> Result<Vec<RunRow>, StoreError> {
    let (first, last) = filter.ids();
    let mut sql = QueryBuilder::new("select * from runs where tenant = ");
    sql.push_bind(tenant.as_str());
    sql.push(" and run between ").push_bind(first);
    sql.push(" and ").push_bind(last);
    if let Some(agent) = &filter.agent {
        sql.push(" and agent = ").push_bind(agent.as_str());
    }
    if let Some(sealed) = filter.sealed {
        sql.push(" and (sealed_at is not null) = ")
            .push_bind(sealed);
    }
    if let Some(outcome) = &filter.outcome {
        sql.push(" and coalesce(outcome, 'unknown') = ")
            .push_bind(outcome.as_str());
    }
    if let Some(since) = filter.since {
        sql.push(" and opened_at >= ").push_bind(Time(since));
    }
    if let Some(until) = filter.until {
        sql.push(" and opened_at < ").push_bind(Time(until));
    }
    if let Some(before) = filter.before {
        sql.push(" and run_no < ").push_bind(signed(before));
    }
    if let Some(condition) = &filter.condition {
        sql.push(" and ");
        condition.push(&mut sql);
    }
    sql.push(" order by run_no desc limit ")
        .push_bind(i64::from(limit));
    // Planned for its values each time, since which index serves depends on them.
    let rows = sql.build().persistent(false).fetch_all(&mut **tx).await?;
    rows.iter().map(read).collect()
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
