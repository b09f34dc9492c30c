//! What an audit reads: everything as it lies there, in snapshots, and nothing is changed. What contradicts the model is the
//! audit's to name, so that rows come as they are. Here is the connection; `ledger` has what is a tenant's, `run` what is a
//! run's, and `rows` what they come as.

mod ledger;
mod rows;
mod run;

pub(crate) use rows::{
    DocumentRow, EntryRow, FactRow, FrameRow, KeyRow, MarkRow, NodeRow, PayloadRow, QueryRow,
    RunColumns, RunMark, TenantRow, checkpoint_row,
};
pub(crate) use run::Stray;

use super::{StoreError, connect};
use sqlx::{Connection as _, Executor as _, PgConnection};

/// A connection that reads.
pub(crate) struct Reader {
    connection: PgConnection,
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
}
