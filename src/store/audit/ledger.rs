//! What an audit reads of a tenant: its ledger, and the tables beside that.

use super::{DocumentRow, KeyRow, MarkRow, Reader, TenantRow};
use crate::store::StoreError;
use crate::store::copy::{Copy, Micros};
use crate::store::id::Uuid;
use crate::store::time::Time;
use onrecord_core::id::RunId;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::HashMap;

impl Reader {
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

fn run(row: &PgRow, column: &str) -> Result<Option<RunId>, sqlx::Error> {
    Ok(row.try_get::<Option<Uuid>, _>(column)?.map(RunId::from))
}
