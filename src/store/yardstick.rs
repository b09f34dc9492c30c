//! What `onrecord bench` measures with: how much a database grew, and what a plain PostgreSQL does with
//! the same bytes, in a database of its own that is dropped afterwards.

use super::id::Uuid;
use super::{StoreError, connect, options};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
};
use std::time::{Duration, Instant};

/// The tables that rows are put into, and the trigger that a team would write for itself: it takes the
/// run's row, hashes the last hash with the new bytes, and moves the run's row on.
const TABLES: &str = "
create table plain (run bigint, seq bigint, bytes bytea not null, primary key (run, seq));
alter table plain alter column bytes set storage external;
create table guarded (run bigint, seq bigint, key uuid not null, at timestamptz not null default clock_timestamp(),
  hash bytea not null, bytes bytea not null, primary key (run, seq), unique (run, key));
alter table guarded alter column bytes set storage external;
create function refuse() returns trigger language plpgsql as 'begin raise exception ''append-only''; end';
create trigger no_change before update or delete on guarded for each row execute function refuse();
create trigger no_truncate before truncate on guarded for each statement execute function refuse();
create table heads (run bigint primary key, seq bigint not null, hash bytea not null) with (fillfactor = 50);
create table chained (run bigint, seq bigint, hash bytea not null, bytes bytea not null, primary key (run, seq));
alter table chained alter column bytes set storage external;
create function chain() returns trigger language plpgsql as $$
declare
  head heads%rowtype;
begin
  select * into head from heads where run = new.run for update;
  new.seq := head.seq + 1;
  new.hash := sha256(head.hash || new.bytes);
  update heads set seq = new.seq, hash = new.hash where run = new.run;
  return new;
end
$$;
create trigger chain before insert on chained for each row execute function chain();
";

/// Empties the tables and begins so many runs.
const BEGIN: &str = "
truncate plain, chained, heads;
alter table guarded disable trigger user;
truncate guarded;
alter table guarded enable trigger user;
insert into heads select run, 0, '' from generate_series(0, RUNS - 1) run;
checkpoint;
";

/// What a transaction inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// A row with a key that nobody else has.
    Row,
    /// Many of them by `UNNEST`.
    Rows(u32),
    /// The same into a table that promises what ours does but for the chain: a key that is unique in its run, and
    /// nothing changed or removed.
    Guarded(u32),
    /// A row that the trigger chains to the last one of a run, one of so many.
    Chained(u32),
}

impl Insert {
    /// The transaction as a script of `pgbench`, whose variable `bytes` has the row's bytes; `None` for
    /// what a variable cannot hold.
    pub fn script(self) -> Option<String> {
        match self {
            Self::Row => Some(
                "\\set seq :seq + 1\ninsert into plain (run, seq, bytes) values (:client_id, :seq, :bytes);\n"
                    .to_owned(),
            ),
            Self::Chained(runs) => Some(format!(
                "\\set run random(0, {})\ninsert into chained (run, bytes) values (:run, :bytes);\n",
                runs.saturating_sub(1)
            )),
            Self::Rows(_) | Self::Guarded(_) => None,
        }
    }
}

/// How much there is in a database of onrecord, and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the tables of frames, payloads and runs, with their indexes.
    pub stored: u64,
    /// Bytes of journal that the whole cluster wrote since it was made.
    pub journal: u64,
}

/// Looks at a database of onrecord.
pub struct Gauge {
    connection: PgConnection,
}

impl Gauge {
    /// Connects, as whoever the address names.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let connection = connect(url).await?;
        Ok(Self { connection })
    }

    /// How much there is now.
    ///
    /// # Errors
    /// It is no database of onrecord, or a standby.
    pub async fn sizes(&mut self) -> Result<Sizes, StoreError> {
        let row = sqlx::query(
            "select (pg_total_relation_size('frames') + pg_total_relation_size('payloads')
                     + pg_total_relation_size('runs'))::bigint,
                    (pg_current_wal_lsn() - '0/0')::bigint",
        )
        .fetch_one(&mut self.connection)
        .await?;
        let number = |place: usize| row.try_get::<i64, _>(place).map(i64::unsigned_abs);
        Ok(Sizes {
            stored: number(0)?,
            journal: number(1)?,
        })
    }

    /// The process id of this connection's backend, where the database is on this machine.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn backend(&mut self) -> Result<Option<u32>, StoreError> {
        let pid: Option<i32> = sqlx::query_scalar(
            "select pg_backend_pid() where coalesce(inet_server_addr() <<= inet '127.0.0.0/8'
                 or inet_server_addr() = inet '::1', true)",
        )
        .fetch_optional(&mut self.connection)
        .await?;
        Ok(pid.and_then(|pid| u32::try_from(pid).ok()))
    }

    /// Writes out what is in memory only, so that one measurement does not pay for another; false where
    /// the role may not.
    pub async fn checkpoint(&mut self) -> bool {
        self.connection.execute("checkpoint").await.is_ok()
    }
}

/// What a measurement of plain rows came to.
#[derive(Clone, Debug, Default)]
pub struct Inserted {
    /// Rows that were committed.
    pub rows: u64,
    /// How long each transaction took, in microseconds, in no order.
    pub micros: Vec<u32>,
    /// From the first transaction to the end of the last.
    pub elapsed: Duration,
}

/// A database for plain rows.
pub struct Yardstick {
    /// The address of the database in which the role may create another.
    admin: String,
    name: String,
}

impl Yardstick {
    /// Makes the database.
    ///
    /// # Errors
    /// The role may not, or the name is taken.
    pub async fn create(admin: &str, name: String) -> Result<Self, StoreError> {
        let mut connection = connect(admin).await?;
        let create = AssertSqlSafe(format!("create database \"{name}\""));
        sqlx::raw_sql(create).execute(&mut connection).await?;
        connection.close().await?;
        let made = Self {
            admin: admin.to_owned(),
            name,
        };
        if let Err(error) = made.prepare().await {
            let _ = made.remove().await;
            return Err(error);
        }
        Ok(made)
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        sqlx::raw_sql(TABLES).execute(&mut connection).await?;
        // As for onrecord itself: a commit that does not wait for its disk is none to compare with.
        let setting: String = sqlx::query_scalar("show synchronous_commit")
            .fetch_one(&mut connection)
            .await?;
        if setting == "off" {
            let name = &self.name;
            let set = AssertSqlSafe(format!(
                "alter database \"{name}\" set synchronous_commit = on"
            ));
            sqlx::raw_sql(set).execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }

    /// Empties the tables, so that each measurement begins alike, with so many runs to chain rows in.
    ///
    /// # Errors
    /// The database does not answer, or the role may not ask for a checkpoint.
    pub async fn empty(&self, runs: u32) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        for statement in BEGIN.replace("RUNS", &runs.to_string()).split(';') {
            // A checkpoint is no part of a transaction.
            let statement = AssertSqlSafe(statement.to_owned());
            sqlx::raw_sql(statement).execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }

    /// Inserts rows of these bytes over so many connections until the time is over.
    ///
    /// # Errors
    /// The database does not answer, or refuses.
    pub async fn insert(
        &self,
        insert: Insert,
        connections: u32,
        bytes: &str,
        time: Duration,
    ) -> Result<Inserted, StoreError> {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(self.connection().await?);
        }
        let began = Instant::now();
        let tasks = (0_i64..).zip(open).map(|(number, connection)| {
            inserter(connection, insert, number, bytes.to_owned(), began + time)
        });
        let mut all = Inserted::default();
        for one in futures_util::future::join_all(tasks).await {
            let one = one?;
            all.rows += one.rows;
            all.micros.extend(one.micros);
        }
        all.elapsed = began.elapsed();
        Ok(all)
    }

    /// Drops the database, also under open connections.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn remove(&self) -> Result<(), StoreError> {
        let mut connection = connect(&self.admin).await?;
        let drop = AssertSqlSafe(format!(
            "drop database if exists \"{}\" with (force)",
            self.name
        ));
        sqlx::raw_sql(drop).execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    async fn connection(&self) -> Result<PgConnection, StoreError> {
        Ok(options(&self.admin)?.database(&self.name).connect().await?)
    }
}

/// One connection's rows; `number` is its own range of keys.
async fn inserter(
    mut connection: PgConnection,
    insert: Insert,
    number: i64,
    bytes: String,
    until: Instant,
) -> Result<Inserted, StoreError> {
    let mut done = Inserted::default();
    let rows = match insert {
        Insert::Rows(rows) | Insert::Guarded(rows) => usize::try_from(rows).unwrap_or(usize::MAX),
        _ => 1,
    };
    let (runs, all_bytes) = (vec![number; rows], vec![bytes.as_bytes(); rows]);
    let mut seq = 0_i64;
    while Instant::now() < until {
        let begin = Instant::now();
        let query = match insert {
            Insert::Row => sqlx::query("insert into plain (run, seq, bytes) values ($1, $2, $3)")
                .bind(number)
                .bind(seq)
                .bind(bytes.as_bytes()),
            Insert::Rows(count) => {
                let seqs: Vec<i64> = (seq..seq + i64::from(count)).collect();
                sqlx::query(
                    "insert into plain (run, seq, bytes)
                     select * from unnest($1::bigint[], $2::bigint[], $3::bytea[])",
                )
                .bind(&runs)
                .bind(seqs)
                .bind(&all_bytes)
            }
            Insert::Guarded(count) => {
                let seqs = seq..seq + i64::from(count);
                // Neighbouring keys are far apart, as those of clients are.
                let key = |seq: i64| Uuid::spread(number, seq);
                sqlx::query(
                    "insert into guarded (run, seq, key, hash, bytes)
                     select * from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::bytea[], $5::bytea[])",
                )
                .bind(&runs)
                .bind(seqs.clone().collect::<Vec<_>>())
                .bind(seqs.map(key).collect::<Vec<_>>())
                .bind(vec![&[0x5a_u8; 32][..]; rows])
                .bind(&all_bytes)
            }
            Insert::Chained(runs) => {
                sqlx::query("insert into chained (run, bytes) values ($1, $2)")
                    .bind((number + seq) % i64::from(runs.max(1)))
                    .bind(bytes.as_bytes())
            }
        };
        done.rows += query.execute(&mut connection).await?.rows_affected();
        seq += i64::try_from(rows).unwrap_or(i64::MAX);
        let micros = begin.elapsed().as_micros();
        done.micros.push(u32::try_from(micros).unwrap_or(u32::MAX));
    }
    connection.close().await?;
    Ok(done)
}
