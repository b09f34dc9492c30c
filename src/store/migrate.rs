//! Bringing databases to the shapes of this version, as a role that may own their tables.

use super::{Store, StoreError, connect, contradiction};
use sqlx::migrate::Migrator;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use std::sync::LazyLock;

/// The evidence.
pub(super) static MIGRATIONS: Migrator = sqlx::migrate!();

/// The keys of runs, which have a schema of their own and keep their book in it.
pub(super) static KEY_MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("migrations/keys");
    migrator.dangerous_set_table_name("keys._sqlx_migrations");
    migrator.create_schema("keys");
    migrator
});

/// The evidence's migration after which the keys of runs are not in its tables any more.
const KEYS_APART: i64 = 3;

/// Rows that are copied in one statement.
const PAGE: i64 = 1_000;

impl Store {
    /// Brings the tables of the evidence to this version, and those of the keys of runs, which are in another
    /// database where `key_url` names one. Returns whether anything was to be done.
    ///
    /// It can be done again after a crash anywhere: keys that lie where this version has them no longer are
    /// copied, compared, and only then removed there.
    ///
    /// # Errors
    /// A database cannot be reached, its tables are of another version, or the role may not change them.
    pub async fn migrate(url: &str, key_url: Option<&str>) -> Result<bool, StoreError> {
        let mut evidence = begin(url).await?;
        let mut keys = begin(key_url.unwrap_or(url)).await?;
        let mut changed = bring(&mut keys, &KEY_MIGRATIONS, None).await?;
        if applied(&mut evidence, &MIGRATIONS).await? < MIGRATIONS.iter().count() {
            changed |= bring_evidence(&mut evidence, &mut keys).await?;
        }
        bring(&mut evidence, &MIGRATIONS, None).await?;
        if key_url.is_some()
            && !is_same(&mut evidence, &mut keys).await?
            && has_table(&mut evidence, "keys.run_keys").await?
        {
            move_away(&mut evidence, &mut keys).await?;
            changed = true;
        }
        evidence.close().await?;
        keys.close().await?;
        Ok(changed)
    }
}

/// Brings the tables of the evidence to this version; returns whether that was to be done.
async fn bring_evidence(
    evidence: &mut PgConnection,
    keys: &mut PgConnection,
) -> Result<bool, StoreError> {
    // Several servers may start at once, and one of them copies; the lock goes with the connection.
    evidence
        .execute("select pg_advisory_lock(hashtextextended('onrecord/migrate', 0))")
        .await?;
    bring(evidence, &MIGRATIONS, Some(KEYS_APART - 1)).await?;
    if has_table(evidence, "run_keys").await? {
        let moved = copy(evidence, keys, FIRST_TABLE).await?;
        // Without these words the migration refuses to drop what it finds. A crash before it leaves the rows in
        // both places, and they are compared again.
        sqlx::query("select set_config('onrecord.run_keys_moved', $1, false)")
            .bind(moved.to_string())
            .execute(&mut *evidence)
            .await?;
    }
    bring(evidence, &MIGRATIONS, None).await
}

async fn begin(url: &str) -> Result<PgConnection, StoreError> {
    let mut connection = connect(url).await?;
    let encoding: String = sqlx::query_scalar("select getdatabaseencoding()")
        .fetch_one(&mut connection)
        .await?;
    if encoding != "UTF8" {
        return Err(StoreError::Encoding(encoding));
    }
    // No statement timeout here: a migration of a large table may take hours.
    connection.execute("set statement_timeout = 0").await?;
    Ok(connection)
}

/// Applies what is not applied yet, up to a version where one is given; returns whether something was.
async fn bring(
    connection: &mut PgConnection,
    migrator: &Migrator,
    up_to: Option<i64>,
) -> Result<bool, StoreError> {
    let wanted = migrator.iter();
    let wanted = wanted
        .filter(|one| up_to.is_none_or(|last| one.version <= last))
        .count();
    let before = applied(connection, migrator).await?;
    if before < wanted {
        let done = match up_to {
            Some(last) => migrator.run_to(last, &mut *connection).await,
            None => migrator.run(&mut *connection).await,
        };
        done.map_err(|error| StoreError::Migration(error.to_string()))?;
    }
    let after = applied(connection, migrator).await?;
    if after == wanted || (up_to.is_some() && after > wanted) {
        Ok(after > before)
    } else {
        Err(StoreError::Migration(format!(
            "{after} migrations of {} applied, this version has {wanted}",
            migrator.table_name
        )))
    }
}

/// Migrations that were applied, 0 for a database that never was migrated.
pub(super) async fn applied(
    connection: &mut PgConnection,
    migrator: &Migrator,
) -> Result<usize, StoreError> {
    let table = &migrator.table_name;
    let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(&**table)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(0);
    }
    // The name is one of the two above.
    let count = format!("select count(*) from {table} where success");
    let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
        .fetch_one(&mut *connection)
        .await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Whether two connections are to one database: a lock of one is seen by the other.
async fn is_same(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, StoreError> {
    // A number that nobody else locks at this moment.
    let number: i64 = sqlx::query_scalar(
        "select number from (select hashtextextended('onrecord/same/' || pg_backend_pid() || clock_timestamp(), 0) as number
           offset 0) as one, lateral pg_advisory_lock(number)",
    )
    .fetch_one(&mut *one)
    .await?;
    let free: bool = sqlx::query_scalar("select pg_try_advisory_lock($1)")
        .bind(number)
        .fetch_one(&mut *other)
        .await?;
    one.execute("select pg_advisory_unlock_all()").await?;
    other.execute("select pg_advisory_unlock_all()").await?;
    Ok(!free)
}

async fn has_table(connection: &mut PgConnection, name: &str) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(name)
        .fetch_one(connection)
        .await?;
    Ok(found)
}

/// Moves the schema of the keys of runs out of the evidence's database, with what it says of epochs.
async fn move_away(evidence: &mut PgConnection, keys: &mut PgConnection) -> Result<(), StoreError> {
    let mut tx = evidence.begin().await?;
    // Whoever serves from there yet waits, and fails when it is gone: nothing can be added that is not copied.
    tx.execute("lock table keys.run_keys, keys.epochs in access exclusive mode")
        .await?;
    let epochs: Vec<String> =
        sqlx::query_scalar("select row_to_json(epochs)::text from keys.epochs")
            .fetch_all(&mut *tx)
            .await?;
    sqlx::query(
        "insert into keys.epochs select epochs.* from unnest($1::text[]) as row,
           json_populate_record(null::keys.epochs, row::json) as epochs
         on conflict (tenant, epoch) do update set made_at = excluded.made_at,
           closed_at = coalesce(excluded.closed_at, keys.epochs.closed_at),
           destroyed_at = coalesce(excluded.destroyed_at, keys.epochs.destroyed_at)",
    )
    .bind(epochs)
    .execute(&mut *keys)
    .await?;
    copy(&mut tx, keys, SECOND_TABLE).await?;
    tx.execute("drop schema keys cascade").await?;
    // A crash before this line leaves the rows in both places, and they are compared again.
    tx.commit().await?;
    Ok(())
}

/// A page of the first shape's rows: `run` and `tier` after which it begins, and how many.
const FIRST_TABLE: &str = "select run::text as run, tier, 0::smallint as version, tenant, epoch, wrapped from run_keys
  where (run, tier, 0::smallint) > ($1::uuid, $2::smallint, $3::smallint) order by run_keys.run, tier limit $4";
/// The same of the shape that this version has.
const SECOND_TABLE: &str = "select run::text as run, tier, version, tenant, epoch, wrapped from keys.run_keys
  where (run, tier, version) > ($1::uuid, $2::smallint, $3::smallint) order by run_keys.run, tier, version limit $4";

/// A key of a run as it is copied.
#[derive(PartialEq, Eq)]
struct Row {
    run: String,
    tier: i16,
    version: i16,
    tenant: String,
    epoch: i32,
    wrapped: Vec<u8>,
}

impl Row {
    fn read(row: &PgRow) -> Result<Self, StoreError> {
        Ok(Self {
            run: row.try_get("run")?,
            tier: row.try_get("tier")?,
            version: row.try_get("version")?,
            tenant: row.try_get("tenant")?,
            epoch: row.try_get("epoch")?,
            wrapped: row.try_get("wrapped")?,
        })
    }
}

/// Copies keys of runs to where they belong, and compares what is there then with what it read. Returns how many.
async fn copy(
    from: &mut PgConnection,
    to: &mut PgConnection,
    page: &'static str,
) -> Result<u64, StoreError> {
    let nil = "00000000-0000-0000-0000-000000000000".to_owned();
    let (mut last, mut count) = ((nil, -1, 0), 0);
    loop {
        let rows = sqlx::query(page)
            .bind(&last.0)
            .bind(last.1)
            .bind(last.2)
            .bind(PAGE)
            .fetch_all(&mut *from)
            .await?;
        let rows = rows.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
        let Some(end) = rows.last() else {
            return Ok(count);
        };
        last = (end.run.clone(), end.tier, end.version);
        put(to, &rows).await?;
        compare(to, &rows).await?;
        count += rows.len() as u64;
    }
}

/// Adds the rows that are not there yet.
async fn put(to: &mut PgConnection, rows: &[Row]) -> Result<(), StoreError> {
    let mut tx = to.begin().await?;
    sqlx::query(
        "insert into keys.epochs (tenant, epoch)
         select distinct * from unnest($1::text[], $2::int[]) on conflict do nothing",
    )
    .bind(rows.iter().map(|row| &*row.tenant).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.epoch).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "insert into keys.run_keys (run, tier, version, tenant, epoch, wrapped)
         select run::uuid, tier, version, tenant, epoch, wrapped
         from unnest($1::text[], $2::smallint[], $3::smallint[], $4::text[], $5::int[], $6::bytea[])
           as new (run, tier, version, tenant, epoch, wrapped)
         on conflict do nothing",
    )
    .bind(rows.iter().map(|row| &*row.run).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.tier).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| &*row.tenant).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.epoch).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| &row.wrapped[..]).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// Whether the rows are there as they were read.
async fn compare(to: &mut PgConnection, rows: &[Row]) -> Result<(), StoreError> {
    let found = sqlx::query(
        "select there.run::text as run, there.tier, there.version, tenant, epoch, wrapped
         from unnest($1::text[], $2::smallint[], $3::smallint[]) with ordinality as wanted (run, tier, version, place)
         join keys.run_keys as there on (there.run, there.tier, there.version) = (wanted.run::uuid, wanted.tier, wanted.version)
         order by place",
    )
    .bind(rows.iter().map(|row| &*row.run).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.tier).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
    .fetch_all(to)
    .await?;
    let found = found.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
    let mut there = found.iter();
    let other = rows.iter().find(|row| there.next() != Some(*row));
    other.map_or(Ok(()), |row| {
        Err(contradiction("keys.run_keys", "wrapped", &row.run))
    })
}
