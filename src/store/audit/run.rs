//! What an audit reads of a run, and which runs there are.

use super::{FactRow, PayloadRow, Reader, RunColumns, RunMark};
use crate::store::copy::{Copy, Micros};
use crate::store::id::Uuid;
use crate::store::{StoreError, signed};
use bytes::Bytes;
use futures_util::StreamExt as _;
use onrecord_core::id::RunId;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// Places of surplus rows that are named; more are as bad.
const SURPLUS: i64 = 20;

impl Reader {
    /// The proof that takes the place of that of a run's row, where there is one.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn cosigned_proof(
        &mut self,
        run: &RunId,
    ) -> Result<Option<String>, StoreError> {
        Ok(
            sqlx::query_scalar("select proof from cosigned_proofs where run = $1")
                .bind(Uuid::from(run))
                .fetch_optional(&mut self.connection)
                .await?,
        )
    }

    /// How far the ledger has stated an open run, by the row that says so: frames, and index of the statement.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn stated(&mut self, run: &RunId) -> Result<Option<(i64, i64)>, StoreError> {
        Ok(
            sqlx::query_as("select size, ledger_index from run_heads where run = $1")
                .bind(Uuid::from(run))
                .fetch_optional(&mut self.connection)
                .await?,
        )
    }

    /// The nodes of a run's tree, by level and index.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn run_nodes(&mut self, run: &RunId) -> Result<Copy<'_>, StoreError> {
        let sql = format!(
            "copy (select level, idx, hash from run_nodes where run = '{:032x}' order by level, idx) to stdout (format binary)",
            run.to_bits()
        );
        Copy::begin(&mut self.connection, &sql).await
    }

    /// The tenant's runs in the order of their ids.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn runs(&mut self) -> Result<Vec<RunMark>, StoreError> {
        // All that an append, an erasure or a seal changes. The chain has the digest of all lines.
        let mut rows = sqlx::query(
            "select run, run_no, size, md5(runs::text) as mark from runs where tenant = current_setting('onrecord.tenant') order by run",
        )
        .fetch(&mut self.connection);
        let mut runs = Vec::new();
        while let Some(row) = rows.next().await {
            let row = row?;
            runs.push(RunMark {
                run: row.try_get::<Uuid, _>("run")?.into(),
                run_no: row.try_get("run_no")?,
                size: row.try_get("size")?,
                mark: row.try_get("mark")?,
            });
        }
        Ok(runs)
    }

    /// A run's row; `None` where there is none.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn run(&mut self, run: &RunId) -> Result<Option<RunColumns>, StoreError> {
        let row = sqlx::query("select * from runs where run = $1")
            .bind(Uuid::from(run))
            .fetch_optional(&mut self.connection)
            .await?;
        let read = |row: PgRow| {
            let micros = |name: &str| Ok::<_, sqlx::Error>(row.try_get::<Micros, _>(name)?.0);
            Ok(RunColumns {
                run_no: row.try_get("run_no")?,
                open_key: row.try_get("open_key")?,
                agent: row.try_get("agent")?,
                opened_at: micros("opened_at")?,
                open_index: row.try_get("open_index")?,
                size: row.try_get("size")?,
                head: row.try_get("head")?,
                last_at: micros("last_at")?,
                chain: row.try_get("chain")?,
                outcome: row.try_get("outcome")?,
                ended: row.try_get("ended")?,
                sealed_at: row
                    .try_get::<Option<Micros>, _>("sealed_at")?
                    .map(|time| time.0),
                seal_index: row.try_get("seal_index")?,
                seal_proof: row.try_get("seal_proof")?,
                erased: row.try_get("erased")?,
            })
        };
        row.map(read).transpose()
    }

    /// The ledger's entries about a run, as their columns say: index, name and bytes.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn entries_of(
        &mut self,
        tenant: &str,
        run: &RunId,
    ) -> Result<Vec<(i64, String, Vec<u8>)>, StoreError> {
        Ok(sqlx::query_as(
            "select idx, name, bytes from ledger_entries where tenant = $1 and run = $2 order by idx",
        )
        .bind(tenant)
        .bind(Uuid::from(run))
        .fetch_all(&mut self.connection)
        .await?)
    }

    /// The tiers of a run in which an erasure is not done.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn erasing(&mut self, run: &RunId) -> Result<Vec<i16>, StoreError> {
        Ok(
            sqlx::query_scalar(
                "select erasure_parts.tier from erasures join erasure_parts on erasure = id
                 where final_at is null and removed_at is null and erasure_parts.run = $1 and not removed",
            )
            .bind(Uuid::from(run))
            .fetch_all(&mut self.connection)
            .await?,
        )
    }

    /// The frames of a run in the places from `from` to below `to`, undecoded, in their order; from 0 also what stands in
    /// places below it.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn frames(
        &mut self,
        run: &RunId,
        from: u64,
        to: u64,
    ) -> Result<Vec<Bytes>, StoreError> {
        let below = if from == 0 {
            String::new()
        } else {
            format!(" and seq >= {from}")
        };
        let sql = format!(
            "copy (select seq, at, answers, turn, kind_no, key, bytes, name, verdict from frames where run = '{:032x}'{below} and seq < {to} order by seq) to stdout (format binary)",
            run.to_bits()
        );
        let mut rows = Copy::begin(&mut self.connection, &sql).await?;
        let mut frames = Vec::new();
        while let Some(row) = rows.next().await? {
            frames.push(row);
        }
        Ok(frames)
    }

    /// Places of frames of a run from a place on, and how many there are at least.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn surplus_frames(
        &mut self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<i64>, StoreError> {
        Ok(sqlx::query_scalar(
            "select seq from frames where run = $1 and seq >= $2 order by seq limit $3",
        )
        .bind(Uuid::from(run))
        .bind(signed(from))
        .bind(SURPLUS)
        .fetch_all(&mut self.connection)
        .await?)
    }

    /// What is said of a run, by field and value.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn facts(&mut self, run: &RunId) -> Result<Vec<FactRow>, StoreError> {
        let rows: Vec<(i16, String, String)> = sqlx::query_as(
            "select field, tenant, value from run_facts where run = $1 order by field, value",
        )
        .bind(Uuid::from(run))
        .fetch_all(&mut self.connection)
        .await?;
        let row = |(field, tenant, value)| FactRow {
            field,
            tenant,
            value,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// The payloads of the frames of a run in the places from `from` to below `to`, by frame and place; from 0 also those of
    /// places below it, and without `to` all that are left.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn payloads(
        &mut self,
        run: &RunId,
        from: u64,
        to: Option<u64>,
    ) -> Result<Vec<PayloadRow>, StoreError> {
        let from = if from == 0 { i64::MIN } else { signed(from) };
        let rows = sqlx::query(
            "select seq, place, commit, media, tier, size, wrapped_dek <> '' as keyed, octet_length(ciphertext) as length
             from payloads where run = $1 and seq >= $2 and seq < $3 order by seq, place limit $4",
        )
        .bind(Uuid::from(run))
        .bind(from)
        .bind(to.map_or(i64::MAX, signed))
        .bind(to.map_or(SURPLUS, |_| i64::MAX))
        .fetch_all(&mut self.connection)
        .await?;
        let read = |row: &PgRow| {
            Ok(PayloadRow {
                seq: row.try_get("seq")?,
                place: row.try_get("place")?,
                commit: row.try_get("commit")?,
                media: row.try_get("media")?,
                tier: row.try_get("tier")?,
                size: row.try_get("size")?,
                keyed: row.try_get("keyed")?,
                length: row.try_get("length")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Runs that a table has rows of, and that are not among the runs.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn strays(&mut self, table: Stray) -> Result<Vec<RunId>, StoreError> {
        // From run to run along the index, so that rows are not gone through.
        let (frames, payloads, facts) = (
            "with recursive found as (
               (select run from frames order by run limit 1)
               union all
               select (select run from frames where frames.run > found.run order by run limit 1) from found where found.run is not null
             ) select run from found where run is not null and not exists (select from runs where runs.run = found.run) limit 100",
            "with recursive found as (
               (select run from payloads order by run limit 1)
               union all
               select (select run from payloads where payloads.run > found.run order by run limit 1) from found where found.run is not null
             ) select run from found where run is not null and not exists (select from runs where runs.run = found.run) limit 100",
            "with recursive found as (
               (select run from run_facts order by run limit 1)
               union all
               select (select run from run_facts where run_facts.run > found.run order by run limit 1) from found where found.run is not null
             ) select run from found where run is not null and not exists (select from runs where runs.run = found.run) limit 100",
        );
        let sql = match table {
            Stray::Frames => frames,
            Stray::Payloads => payloads,
            Stray::Facts => facts,
        };
        let found: Vec<Uuid> = sqlx::query_scalar(sql)
            .fetch_all(&mut self.connection)
            .await?;
        Ok(found.into_iter().map(RunId::from).collect())
    }
}

/// Where rows may be of runs that are not there.
#[derive(Clone, Copy)]
pub(crate) enum Stray {
    /// Frames.
    Frames,
    /// Payloads.
    Payloads,
    /// What is said of runs.
    Facts,
}
