//! What an audit reads: everything as it lies there, in snapshots, and nothing is changed. What contradicts the model is the
//! audit's to name, so that rows come as they are.

use super::copy::{Copy, Fields, Micros, broken_off};
use super::id::Uuid;
use super::time::Time;
use super::{StoreError, connect, signed};
use bytes::Bytes;
use futures_util::StreamExt as _;
use onrecord_core::id::RunId;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use std::collections::HashMap;

/// Places of surplus rows that are named; more are as bad.
const SURPLUS: i64 = 20;

/// A connection that reads.
pub(crate) struct Reader {
    connection: PgConnection,
}

/// A tenant's row.
pub(crate) struct TenantRow {
    pub(crate) origin: String,
    pub(crate) next_run_no: i64,
    pub(crate) ledger_size: i64,
    pub(crate) ledger_nodes: Vec<u8>,
    /// Microseconds since 1970; `i64::MIN` or so before the first entry.
    pub(crate) ledger_at: i64,
    pub(crate) last_seal_run: Option<RunId>,
    pub(crate) last_seal_leaf: Option<Vec<u8>>,
    pub(crate) seal_key: Vec<u8>,
}

/// An entry of a ledger.
pub(crate) struct EntryRow {
    pub(crate) index: i64,
    pub(crate) name: String,
    pub(crate) run: Option<RunId>,
    pub(crate) at: i64,
    pub(crate) leaf: Bytes,
    pub(crate) bytes: Bytes,
}

/// What statements of two kinds begin and end: a hold, or a flag of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkRow {
    /// Index of the statement that it began with.
    pub(crate) index: i64,
    pub(crate) run: Option<RunId>,
    /// The matter, or the flag.
    pub(crate) what: String,
    pub(crate) incident: Option<String>,
    pub(crate) reason: Option<String>,
    /// Microseconds since 1970.
    pub(crate) at: Option<i64>,
    /// Type and id of an actor.
    pub(crate) by: Option<(String, String)>,
    /// Index of the statement that it ended with.
    pub(crate) end_index: Option<i64>,
    pub(crate) end_at: Option<i64>,
    pub(crate) end_by: Option<(String, String)>,
    pub(crate) end_with: Option<(String, String)>,
}

/// A question over many runs, with the text of it.
pub(crate) struct QueryRow<'a> {
    pub(crate) index: i64,
    /// Microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) resource: &'a str,
    pub(crate) purpose: &'a str,
    /// Type and id of an actor.
    pub(crate) by: (&'a str, &'a str),
    pub(crate) text: &'a [u8],
}

/// A node of a ledger's tree.
pub(crate) struct NodeRow {
    pub(crate) level: i16,
    pub(crate) index: i64,
    pub(crate) hash: Bytes,
}

/// A key that signs.
pub(crate) struct KeyRow {
    pub(crate) keyid: Vec<u8>,
    pub(crate) role: String,
    pub(crate) actor: Option<String>,
    pub(crate) spki: String,
    pub(crate) added_index: i64,
    pub(crate) revoked_index: Option<i64>,
}

/// A run as lists have it; whether it changed is seen by these.
#[derive(Clone)]
pub(crate) struct RunMark {
    pub(crate) run: RunId,
    pub(crate) run_no: i64,
    pub(crate) size: i64,
    pub(crate) mark: String,
}

/// A run's row.
pub(crate) struct RunColumns {
    pub(crate) run_no: i64,
    pub(crate) open_key: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) opened_at: i64,
    pub(crate) open_index: i64,
    pub(crate) size: i64,
    pub(crate) head: Vec<u8>,
    pub(crate) last_at: i64,
    pub(crate) chain: Vec<u8>,
    pub(crate) outcome: Option<String>,
    pub(crate) ended: bool,
    pub(crate) sealed_at: Option<i64>,
    pub(crate) seal_index: Option<i64>,
    pub(crate) seal_proof: Option<String>,
    pub(crate) erased: i64,
}

/// A frame with its columns.
pub(crate) struct FrameRow<'a> {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) answers: Option<i64>,
    pub(crate) turn: Option<i32>,
    pub(crate) kind_no: i16,
    pub(crate) key: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) name: Option<&'a str>,
    pub(crate) verdict: Option<i16>,
}

/// What is said of a run.
pub(crate) struct FactRow {
    pub(crate) field: i16,
    pub(crate) tenant: String,
    pub(crate) value: String,
}

/// A payload without its bytes.
pub(crate) struct PayloadRow {
    pub(crate) seq: i64,
    pub(crate) place: i16,
    pub(crate) commit: Vec<u8>,
    pub(crate) media: String,
    pub(crate) tier: i16,
    pub(crate) size: i64,
    /// Whether it has a key of its own.
    pub(crate) keyed: bool,
    /// Bytes of the ciphertext.
    pub(crate) length: i32,
}

/// A version of a document that a tenant signed: its rules of redaction, its settings, or its retention policy.
pub(crate) struct DocumentRow {
    pub(crate) version: i64,
    pub(crate) index: i64,
    pub(crate) document: Vec<u8>,
}

impl Reader {
    /// Connects to read only, as `onrecord_app` where the role may, which row security binds, else as the role itself: one
    /// that may only read will do.
    ///
    /// # Errors
    /// The database does not answer, or is not one of this version.
    pub(crate) async fn connect(url: &str) -> Result<Self, StoreError> {
        let mut connection = connect(url).await?;
        connection
            .execute(
                "set default_transaction_read_only = on; set statement_timeout = 0; set idle_in_transaction_session_timeout = 0",
            )
            .await?;
        let may: Option<bool> = sqlx::query_scalar(
            "select pg_has_role(current_user, oid, 'member') from pg_roles where rolname = 'onrecord_app'",
        )
        .fetch_optional(&mut connection)
        .await?;
        if may == Some(true) {
            connection.execute("set role onrecord_app").await?;
        }
        let migrated =
            super::migrate::applied(&mut connection, &super::migrate::MIGRATIONS).await?;
        let wanted = super::migrate::MIGRATIONS.iter().count();
        if migrated != wanted {
            return Err(StoreError::Migration(format!(
                "{migrated} migrations applied, this version has {wanted}"
            )));
        }
        Ok(Self { connection })
    }

    /// All tenants, in their order.
    pub(crate) async fn tenants(&mut self) -> Result<Vec<String>, StoreError> {
        Ok(
            sqlx::query_scalar("select tenant from tenants order by tenant")
                .fetch_all(&mut self.connection)
                .await?,
        )
    }

    /// Begins to see one moment, of the rows of one tenant, or of several with spaces between.
    pub(crate) async fn begin(&mut self, tenants: &str) -> Result<(), StoreError> {
        self.connection
            .execute("begin isolation level repeatable read read only")
            .await?;
        sqlx::query("select set_config('onrecord.tenant', $1, true)")
            .bind(tenants)
            .execute(&mut self.connection)
            .await?;
        // As long as the planner has no statistics of a run it takes it for a few rows, which it would sort.
        self.connection
            .execute("set local enable_sort = off; set local enable_bitmapscan = off; set local enable_seqscan = off")
            .await?;
        Ok(())
    }

    /// Ends the moment.
    pub(crate) async fn end(&mut self) -> Result<(), StoreError> {
        self.connection.execute("commit").await?;
        Ok(())
    }

    /// Closes the connection.
    pub(crate) async fn close(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }

    /// The row of the tenant.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn tenant(&mut self, tenant: &str) -> Result<TenantRow, StoreError> {
        let row = sqlx::query("select * from tenants where tenant = $1")
            .bind(tenant)
            .fetch_one(&mut self.connection)
            .await?;
        Ok(TenantRow {
            origin: row.try_get("origin")?,
            next_run_no: row.try_get("next_run_no")?,
            ledger_size: row.try_get("ledger_size")?,
            ledger_nodes: row.try_get("ledger_nodes")?,
            ledger_at: row.try_get::<Micros, _>("ledger_at")?.0,
            last_seal_run: run(&row, "last_seal_run")?,
            last_seal_leaf: row.try_get("last_seal_leaf")?,
            seal_key: row.try_get("seal_key")?,
        })
    }

    /// All keys of the tenant.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn keys(&mut self) -> Result<Vec<KeyRow>, StoreError> {
        let rows = sqlx::query("select * from signing_keys where tenant = current_setting('onrecord.tenant') order by added_index")
            .fetch_all(&mut self.connection)
            .await?;
        let read = |row: &PgRow| {
            Ok(KeyRow {
                keyid: row.try_get("keyid")?,
                role: row.try_get("role")?,
                actor: row.try_get("actor")?,
                spki: row.try_get("spki")?,
                added_index: row.try_get("added_index")?,
                revoked_index: row.try_get("revoked_index")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The statements about keys in the tenant's ledger, by index.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn key_statements(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        Ok(
            sqlx::query_scalar("select bytes from ledger_entries where tenant = current_setting('onrecord.tenant') and name = 'key' order by idx")
                .fetch_all(&mut self.connection)
                .await?,
        )
    }

    /// All versions of the tenant's rules of redaction.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn rules(&mut self) -> Result<Vec<DocumentRow>, StoreError> {
        self.documents(
            "select * from redaction_rules where tenant = current_setting('onrecord.tenant') order by version",
        )
        .await
    }

    /// All versions of the tenant's settings.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn settings(&mut self) -> Result<Vec<DocumentRow>, StoreError> {
        self.documents(
            "select * from settings where tenant = current_setting('onrecord.tenant') order by version",
        )
        .await
    }

    /// All versions of the tenant's retention policy.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn retention_policies(&mut self) -> Result<Vec<DocumentRow>, StoreError> {
        self.documents(
            "select * from retention_policies where tenant = current_setting('onrecord.tenant') order by version",
        )
        .await
    }

    /// Holds as the table has them.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn holds(&mut self) -> Result<Vec<MarkRow>, StoreError> {
        self.marks(
            "select ledger_index as set_index, run, matter as what, null as incident, reason, set_at, by_type, by_id,
               released_index as end_index, released_at as end_at, released_by_type as end_by_type, released_by_id as end_by_id,
               released_with_type as end_with_type, released_with_id as end_with_id
             from holds where tenant = current_setting('onrecord.tenant') order by ledger_index",
        )
        .await
    }

    /// Flags of runs as the table has them.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn flags(&mut self) -> Result<Vec<MarkRow>, StoreError> {
        self.marks(
            "select set_index, run, flag as what, incident, reason, at as set_at, by_type, by_id, cleared_index as end_index,
               cleared_at as end_at, cleared_by_type as end_by_type, cleared_by_id as end_by_id,
               null as end_with_type, null as end_with_id
             from run_flags where tenant = current_setting('onrecord.tenant') order by set_index",
        )
        .await
    }

    async fn marks(&mut self, sql: &'static str) -> Result<Vec<MarkRow>, StoreError> {
        let rows = sqlx::query(sql).fetch_all(&mut self.connection).await?;
        let read = |row: &PgRow| {
            let actor = |kind: &str, id: &str| {
                let (kind, id): (Option<String>, Option<String>) =
                    (row.try_get(kind)?, row.try_get(id)?);
                Ok::<_, StoreError>(kind.zip(id))
            };
            let micros = |column: &str| {
                let time: Option<Time> = row.try_get(column)?;
                Ok::<_, StoreError>(time.map(|time| time.0.micros()))
            };
            Ok(MarkRow {
                index: row.try_get("set_index")?,
                run: row.try_get::<Option<Uuid>, _>("run")?.map(RunId::from),
                what: row.try_get("what")?,
                incident: row.try_get("incident")?,
                reason: row.try_get("reason")?,
                at: micros("set_at")?,
                by: actor("by_type", "by_id")?,
                end_index: row.try_get("end_index")?,
                end_at: micros("end_at")?,
                end_by: actor("end_by_type", "end_by_id")?,
                end_with: actor("end_with_type", "end_with_id")?,
            })
        };
        rows.iter().map(read).collect()
    }

    async fn documents(&mut self, sql: &'static str) -> Result<Vec<DocumentRow>, StoreError> {
        let rows = sqlx::query(sql).fetch_all(&mut self.connection).await?;
        let read = |row: &PgRow| {
            Ok(DocumentRow {
                version: row.try_get("version")?,
                index: row.try_get("ledger_index")?,
                document: row.try_get("document")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The lines of witnesses under the tenant's checkpoints, by their sizes.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn cosignatures(&mut self) -> Result<HashMap<i64, String>, StoreError> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "select size, string_agg(line || E'\\n', '' order by witness) from cosignatures
             where tenant = current_setting('onrecord.tenant') group by size",
        )
        .fetch_all(&mut self.connection)
        .await?;
        Ok(rows.into_iter().collect())
    }

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

    /// The entries of the tenant's ledger, by index.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn entries(&mut self) -> Result<Copy<'_>, StoreError> {
        Copy::begin(
            &mut self.connection,
            "copy (select idx, name, run, at, leaf, bytes from ledger_entries
               where tenant = current_setting('onrecord.tenant') order by idx) to stdout (format binary)",
        )
        .await
    }

    /// The questions of the tenant whose texts are there, by the indexes of their entries.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn queries(&mut self) -> Result<Copy<'_>, StoreError> {
        Copy::begin(
            &mut self.connection,
            "copy (select ledger_index, at, resource, purpose, actor_type, actor_id, text from queries
               where tenant = current_setting('onrecord.tenant') order by ledger_index) to stdout (format binary)",
        )
        .await
    }

    /// The nodes of the tenant's ledger, by level and index.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn nodes(&mut self) -> Result<Copy<'_>, StoreError> {
        Copy::begin(
            &mut self.connection,
            "copy (select level, idx, hash from ledger_nodes
               where tenant = current_setting('onrecord.tenant') order by level, idx) to stdout (format binary)",
        )
        .await
    }

    /// The checkpoints of the tenant's ledger, by size.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn checkpoints(&mut self) -> Result<Copy<'_>, StoreError> {
        Copy::begin(
            &mut self.connection,
            "copy (select size, note from checkpoints
               where tenant = current_setting('onrecord.tenant') order by size) to stdout (format binary)",
        )
        .await
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

fn run(row: &PgRow, column: &str) -> Result<Option<RunId>, sqlx::Error> {
    Ok(row.try_get::<Option<Uuid>, _>(column)?.map(RunId::from))
}

impl<'a> FrameRow<'a> {
    /// Takes a row of [`Reader::frames`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &'a [u8]) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 9)?;
        Ok(Self {
            seq: fields.long()?.ok_or_else(broken_off)?,
            at: fields.micros()?,
            answers: fields.long()?,
            turn: fields.array()?.map(i32::from_be_bytes),
            kind_no: fields
                .array()?
                .map(i16::from_be_bytes)
                .ok_or_else(broken_off)?,
            key: fields.text()?,
            bytes: fields.bytes()?,
            name: fields.optional_text()?,
            verdict: fields.array()?.map(i16::from_be_bytes),
        })
    }
}

impl EntryRow {
    /// Takes a row of [`Reader::entries`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &Bytes) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 6)?;
        Ok(Self {
            index: fields.long()?.ok_or_else(broken_off)?,
            name: fields.text()?.to_owned(),
            run: fields
                .array()?
                .map(|bytes| RunId::from_bits(u128::from_be_bytes(bytes))),
            at: fields.micros()?,
            leaf: row.slice_ref(fields.bytes()?),
            bytes: row.slice_ref(fields.bytes()?),
        })
    }
}

impl<'a> QueryRow<'a> {
    /// Takes a row of [`Reader::queries`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &'a [u8]) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 7)?;
        Ok(Self {
            index: fields.long()?.ok_or_else(broken_off)?,
            at: fields.micros()?,
            resource: fields.text()?,
            purpose: fields.text()?,
            by: (fields.text()?, fields.text()?),
            text: fields.bytes()?,
        })
    }
}

impl NodeRow {
    /// Takes a row of [`Reader::nodes`] apart.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(row: &Bytes) -> Result<Self, StoreError> {
        let mut fields = Fields::of(row, 3)?;
        Ok(Self {
            level: fields
                .array()?
                .map(i16::from_be_bytes)
                .ok_or_else(broken_off)?,
            index: fields.long()?.ok_or_else(broken_off)?,
            hash: row.slice_ref(fields.bytes()?),
        })
    }
}

/// Takes a row of [`Reader::checkpoints`] apart: size and note.
///
/// # Errors
/// It is none.
pub(crate) fn checkpoint_row(row: &[u8]) -> Result<(i64, &str), StoreError> {
    let mut fields = Fields::of(row, 2)?;
    Ok((fields.long()?.ok_or_else(broken_off)?, fields.text()?))
}
