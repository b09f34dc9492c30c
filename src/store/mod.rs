//! Postgres: the rows of everything that is kept, one table family a file.
//!
//! Every transaction names its tenant first, and row security shows it nothing else. Bytes under a
//! hash or a signature are `bytea` and come back as they went in.

pub(crate) mod anchors;
pub(crate) mod append;
pub(crate) mod audit;
pub mod check;
pub(crate) mod copy;
pub(crate) mod erasing;
pub(crate) mod erasures;
pub(crate) mod expiring;
pub(crate) mod facts;
pub(crate) mod flags;
pub(crate) mod frames;
pub(crate) mod gauges;
pub(crate) mod hold_orders;
pub(crate) mod hold_releases;
pub(crate) mod holds;
pub(crate) mod id;
pub mod keys;
pub(crate) mod ledger;
pub(crate) mod listing;
mod migrate;
pub(crate) mod payloads;
pub(crate) mod people;
pub(crate) mod permit;
pub(crate) mod quality;
pub(crate) mod queries;
pub(crate) mod redaction;
pub(crate) mod retention;
pub(crate) mod rewinds;
pub(crate) mod run_heads;
pub(crate) mod run_nodes;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod settings;
pub(crate) mod signing_keys;
pub(crate) mod sweeping;
pub(crate) mod tenants;
pub(crate) mod time;
pub(crate) mod tokens;
pub mod yardstick;

use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgPoolOptions, PgSeverity};
use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool, Postgres,
    Transaction,
};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

/// What can go wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or did not answer.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// Nobody listens there.
    #[error(
        "no answer from PostgreSQL at {address}: is it running there, and is --database-url right? ({source})"
    )]
    Unreachable {
        /// Host and port, or the socket's folder.
        address: String,
        /// What the connection said.
        source: std::io::Error,
    },
    /// The database contradicts the model: somebody else wrote there, or a defect of ours.
    #[error("the database contradicts the model: {table}.{column} of {row}")]
    Contradiction {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        row: String,
    },
    /// The database of the keys of runs is another one than that which the runs were opened with.
    #[error(
        "the key database has no keys of tenant {0}, which has runs: is --key-database-url the one that they were opened with?"
    )]
    NoKeys(TenantId),
    /// The tables are not those of this version.
    #[error(
        "the database is not migrated for this version ({0}); run `onrecord migrate --database-url URL`, with the --key-database-url of the server if it has one, as the role that owns the tables"
    )]
    Migration(String),
    /// The database cannot keep every text.
    #[error("the database's encoding is {0}; create it with encoding 'UTF8'")]
    Encoding(String),
    /// The address of the database is malformed.
    #[error("the database's address is malformed; expected postgres://USER@HOST/DATABASE")]
    Url,
}

impl StoreError {
    /// Whether the disk of the database is full (SQLSTATE 53100): the transaction was rolled back, and the
    /// next one may do as soon as there is room.
    pub fn is_storage_full(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.code().as_deref() == Some("53100"))
    }

    /// Whether the database may answer another time: the connection failed, or it is starting, full or
    /// stopping.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(
                sqlx::Error::Io(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::Tls(_),
            )
            | Self::Unreachable { .. } => true,
            Self::Database(sqlx::Error::Database(error)) => {
                // 08 connection, 40 rollback, 53 resources, 57P operator intervention; a database that
                // became a standby, a transaction that stood too long, a lock that did not come.
                error.code().is_some_and(|code| {
                    ["08", "40", "53", "57", "25006", "25P03", "55P03"]
                        .iter()
                        .any(|class| code.starts_with(class))
                })
            }
            _ => false,
        }
    }

    /// Whether a statement took longer than it may (SQLSTATE 57014).
    pub(crate) fn is_too_slow(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.code().as_deref() == Some("57014"))
    }

    /// The database did not answer in time.
    pub(crate) fn timed_out() -> Self {
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Self::Database(sqlx::Error::Io(timed_out))
    }

    /// What it says of a statement that failed with it.
    pub(crate) fn failure(&self) -> Failure {
        let Self::Database(sqlx::Error::Database(error)) = self else {
            return match self {
                Self::Database(_) | Self::Unreachable { .. } => Failure::Unknown,
                _ => Failure::Refused,
            };
        };
        let severity = error
            .try_downcast_ref::<PgDatabaseError>()
            .map_or(PgSeverity::Error, PgDatabaseError::severity);
        if severity != PgSeverity::Error {
            // The session ended with it, and may have committed before.
            return Failure::Unknown;
        }
        match error.code().as_deref() {
            Some("23505") => Failure::KeyUsed,
            // A serialization failure, a deadlock, a lock that was not to be had.
            Some("40001" | "40P01" | "55P03") => Failure::Race,
            Some(code)
                if ["53", "57", "58"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                Failure::NotNow
            }
            _ => Failure::Refused,
        }
    }
}

/// What a failed statement left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is not known: the connection failed, before or after.
    Unknown,
    /// Nothing: somebody else was in the way, and it may be tried again.
    Race,
    /// Nothing: something unique is there already.
    KeyUsed,
    /// Nothing, and it fails for everybody now: no room, too long, stopping.
    NotNow,
    /// Nothing, and it fails again: something of it is not as the database takes it.
    Refused,
}

/// A transaction that sees one tenant.
pub(crate) type Tx = Transaction<'static, Postgres>;

/// The database.
#[derive(Clone)]
pub struct Store {
    pool: PgPool,
    options: Arc<PgConnectOptions>,
    /// The database of the keys of runs, which may be the same.
    keys: PgPool,
}

/// How long a statement may take; an append takes milliseconds, a page of a long run a second.
const STATEMENT_TIMEOUT: &str = "30s";

impl Store {
    /// Connects as the runtime role, which owns nothing. `key_url` names the database of the keys of runs, where
    /// it is not the same. To that go a quarter as many connections again: its rows are read once a run.
    pub async fn connect(
        url: &str,
        key_url: Option<&str>,
        connections: u32,
    ) -> Result<Self, StoreError> {
        let options = options(url)?;
        let pool = self::pool(options.clone(), connections).await?;
        let key_options = key_url.map_or_else(|| Ok(options.clone()), self::options)?;
        let keys = self::pool(key_options, (connections / 4).max(2)).await?;
        Ok(Self {
            pool,
            options: Arc::new(options),
            keys,
        })
    }

    /// Makes a database of a cluster of ours, if it is not there.
    pub async fn create_database(url: &str, name: &'static str) -> Result<(), StoreError> {
        let mut connection = connect(url).await?;
        let exists: bool =
            sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
                .bind(name)
                .fetch_one(&mut connection)
                .await?;
        if !exists {
            sqlx::query(sqlx::AssertSqlSafe(format!("create database \"{name}\"")))
                .execute(&mut connection)
                .await?;
        }
        connection.close().await?;
        Ok(())
    }

    /// Has PostgreSQL look over all tables, as whoever owns them: afterwards it knows what is in them, and which pages
    /// everybody sees. Takes minutes for many rows.
    pub async fn vacuum(url: &str) -> Result<(), StoreError> {
        let mut connection = connect(url).await?;
        connection.execute("set statement_timeout = 0").await?;
        connection.execute("vacuum (analyze)").await?;
        connection.close().await?;
        Ok(())
    }

    /// Waits for the right to make the first tenant; it ends when the value is dropped.
    pub(crate) async fn first_tenant_turn(&self) -> Result<Tx, StoreError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('onrecord/first-tenant', 0))")
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }

    /// Whether the database answers, and that of the keys of runs.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("select 1").execute(&self.pool).await?;
        sqlx::query("select 1").execute(&self.keys).await?;
        Ok(())
    }

    /// Begins a transaction that sees one tenant.
    pub(crate) async fn begin(&self, tenant: &TenantId) -> Result<Tx, StoreError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("select set_config('onrecord.tenant', $1, true)")
            .bind(tenant.as_str())
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }

    /// Begins a reading transaction whose statements all see the same moment.
    pub(crate) async fn snapshot(&self, tenant: &TenantId) -> Result<Tx, StoreError> {
        let begin = "begin isolation level repeatable read read only";
        let mut tx = self.pool.begin_with(begin).await?;
        sqlx::query("select set_config('onrecord.tenant', $1, true)")
            .bind(tenant.as_str())
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }

    /// The database's clock.
    pub(crate) async fn now(&self) -> Result<onrecord_core::timestamp::Timestamp, StoreError> {
        let now: time::Time = sqlx::query_scalar("select clock_timestamp()")
            .fetch_one(&self.pool)
            .await?;
        Ok(now.0)
    }

    /// How to connect.
    fn options(&self) -> &Arc<PgConnectOptions> {
        &self.options
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn key_pool(&self) -> &PgPool {
        &self.keys
    }

    /// Waits for all connections to come back and closes them.
    pub async fn close(&self) {
        self.pool.close().await;
        self.keys.close().await;
    }
}

async fn pool(options: PgConnectOptions, connections: u32) -> Result<PgPool, StoreError> {
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        .after_connect(|connection, _| Box::pin(async move { set_up(connection).await }))
        .connect_with(options)
        .await?)
}

/// What every connection begins with that serves requests.
async fn set_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute("set role onrecord_app").await?;
    // A receipt says that the frame is durable. A server, a database or a role that is set not to wait for its
    // disk would make that untrue; what waits for more is left.
    connection
        .execute("select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'")
        .await?;
    Ok(())
}

/// One connection, as whoever the address names.
async fn connect(url: &str) -> Result<PgConnection, StoreError> {
    let options = options(url)?;
    let address = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    options.connect().await.map_err(|error| match error {
        sqlx::Error::Io(source) => StoreError::Unreachable { address, source },
        other => other.into(),
    })
}

fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Url)?;
    // Statement texts hold no data, but they would fill the log at the level that sqlx chooses.
    Ok(options
        .application_name("onrecord")
        .options([
            ("statement_timeout", STATEMENT_TIMEOUT),
            ("idle_in_transaction_session_timeout", "60s"),
            ("TimeZone", "UTC"),
        ])
        .disable_statement_logging())
}

/// Names a row that is not as the model says.
pub(crate) fn contradiction(
    table: &'static str,
    column: &'static str,
    row: impl ToString,
) -> StoreError {
    StoreError::Contradiction {
        table,
        column,
        row: row.to_string(),
    }
}

/// A number that is never negative in the model.
pub(crate) fn unsigned(
    value: i64,
    table: &'static str,
    column: &'static str,
) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| contradiction(table, column, value))
}

/// A number as the database keeps it; ours are far below 2^63.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A digest of 32 bytes.
pub(crate) fn hash(
    bytes: &[u8],
    table: &'static str,
    column: &'static str,
) -> Result<Hash, StoreError> {
    Hash::from_slice(bytes)
        .map_err(|_| contradiction(table, column, onrecord_core::digest::hex(bytes)))
}
