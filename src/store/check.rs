//! What a database is like, for whoever looks after it: read, and nothing changed.

use super::migrate::{KEY_MIGRATIONS, MIGRATIONS};
use super::time::Time;
use super::{StoreError, connect};
use onrecord_core::timestamp::Timestamp;
use sqlx::migrate::Migrator;
use sqlx::{Connection as _, PgConnection};

/// Tables of evidence with triggers that refuse a change to their owner too.
const GUARDED: [&str; 16] = [
    "frames",
    "ledger_entries",
    "ledger_nodes",
    "checkpoints",
    "redaction_rules",
    "run_facts",
    "run_nodes",
    "settings",
    "retention_policies",
    "erased_payloads",
    "cosignatures",
    "cosigned_checkpoints",
    "cosigned_proofs",
    "time_stamps",
    "rewinds",
    "accepted_rewinds",
];
/// Other tables that the server may add to and no more: their rows go when they are erased, by a role of its own.
const ERASABLE: [&str; 2] = ["payloads", "queries"];
/// Other tables that nobody may see but of one tenant.
const OF_ONE_TENANT: [&str; 9] = [
    "runs",
    "run_heads",
    "people",
    "holds",
    "hold_orders",
    "hold_order_runs",
    "hold_releases",
    "run_flags",
    "saved_queries",
];
/// Tables that a process reads of all tenants at once.
const OF_ALL_TENANTS: [&str; 2] = ["rewinds", "accepted_rewinds"];

/// A database as it was found.
#[derive(Clone, Debug)]
pub struct DatabaseFacts {
    /// Such as `17.2`.
    pub version: String,
    /// Its major version.
    pub major: u32,
    /// `UTF8`, or what the server cannot use.
    pub encoding: String,
    /// The role that looked.
    pub role: String,
    /// Whether that role may work as `onrecord_app`, and erase as `onrecord_eraser`; `None` where there is no such role.
    pub may_serve: Option<bool>,
    /// Migrations that were applied.
    pub migrations: Migrations,
    /// What protects the evidence and is not there, each in words.
    pub unprotected: Vec<String>,
    /// Settings that a receipt rests on and that are off, each by its name.
    pub not_durable: Vec<String>,
    /// The database's clock.
    pub now: Timestamp,
    /// Tenants, in no order; empty before the first start.
    pub tenants: Vec<String>,
}

/// How the tables compare with this version's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// None was applied.
    None,
    /// The first so many of more.
    Behind {
        /// How many were applied.
        applied: usize,
        /// How many this version has.
        of: usize,
    },
    /// As this version's.
    Current,
    /// Others than this version's: of a later version, or changed.
    Foreign,
}

/// Looks at a database.
///
/// # Errors
/// It cannot be reached, or the role may not look.
pub async fn check(url: &str) -> Result<DatabaseFacts, StoreError> {
    let mut connection = connect(url).await?;
    sqlx::query("set default_transaction_read_only = on")
        .execute(&mut connection)
        .await?;
    let (version, number, encoding, role): (String, i32, String, String) = sqlx::query_as(
        "select split_part(current_setting('server_version'), ' ', 1), current_setting('server_version_num')::int,
           getdatabaseencoding()::text, current_user::text",
    )
    .fetch_one(&mut connection)
    .await?;
    let may_serve: Option<bool> = sqlx::query_scalar(
        "select pg_has_role(current_user, oid, 'member') and coalesce((select pg_has_role(current_user, eraser.oid, 'member')
           from pg_roles as eraser where eraser.rolname = 'onrecord_eraser'), true)
         from pg_roles where rolname = 'onrecord_app'",
    )
    .fetch_optional(&mut connection)
    .await?;
    let not_durable: Vec<String> = sqlx::query_scalar(
        "select name::text from pg_settings
         where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off' order by name",
    )
    .fetch_all(&mut connection)
    .await?;
    let now: Time = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut connection)
        .await?;
    let migrations = migrations(&mut connection, &MIGRATIONS).await?;
    let (mut unprotected, mut tenants) = (Vec::new(), Vec::new());
    if migrations != Migrations::None {
        unprotected = unprotected_tables(&mut connection, may_serve.is_some()).await?;
        tenants = sqlx::query_scalar("select tenant from tenants")
            .fetch_all(&mut connection)
            .await?;
    }
    connection.close().await?;
    Ok(DatabaseFacts {
        version,
        major: u32::try_from(number / 10_000).unwrap_or(0),
        encoding,
        role,
        may_serve,
        migrations,
        unprotected,
        not_durable,
        now: now.0,
        tenants,
    })
}

async fn migrations(
    connection: &mut PgConnection,
    migrator: &Migrator,
) -> Result<Migrations, StoreError> {
    let table = &migrator.table_name;
    let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(&**table)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(Migrations::None);
    }
    // The name is one of ours.
    let applied = format!("select version, checksum from {table} where success order by version");
    let applied: Vec<(i64, Vec<u8>)> = sqlx::query_as(sqlx::AssertSqlSafe(applied))
        .fetch_all(&mut *connection)
        .await?;
    let known: Vec<(i64, Vec<u8>)> = migrator
        .iter()
        .map(|one| (one.version, one.checksum.to_vec()))
        .collect();
    Ok(if applied.is_empty() {
        Migrations::None
    } else if applied == known {
        Migrations::Current
    } else if known.starts_with(&applied) {
        Migrations::Behind {
            applied: applied.len(),
            of: known.len(),
        }
    } else {
        Migrations::Foreign
    })
}

/// The database of the keys of runs as it was found.
#[derive(Clone, Debug)]
pub struct KeyFacts {
    /// Migrations of its schema that were applied.
    pub migrations: Migrations,
    /// What protects the keys and is not there, each in words.
    pub unprotected: Vec<String>,
}

/// Looks at the database of the keys of runs.
///
/// # Errors
/// It cannot be reached, or the role may not look.
pub async fn check_keys(url: &str) -> Result<KeyFacts, StoreError> {
    let mut connection = connect(url).await?;
    let migrations = migrations(&mut connection, &KEY_MIGRATIONS).await?;
    let mut unprotected = Vec::new();
    if migrations != Migrations::None {
        unprotected = sqlx::query_scalar(
            "select 'table ' || name || ' has no row security' from unnest(array['keys.epochs', 'keys.run_keys']) as name
             where not coalesce((select relrowsecurity from pg_class where oid = to_regclass(name)), false)
             union all
             select 'onrecord_app may ' || verb || ' ' || name
             from (values ('keys.epochs', 'delete'), ('keys.epochs', 'truncate'), ('keys.run_keys', 'truncate')) as may (name, verb)
             where to_regclass(name) is not null and has_table_privilege('onrecord_app', to_regclass(name), verb)",
        )
        .fetch_all(&mut connection)
        .await?;
    }
    connection.close().await?;
    Ok(KeyFacts {
        migrations,
        unprotected,
    })
}

/// What should protect the evidence and does not.
async fn unprotected_tables(
    connection: &mut PgConnection,
    has_role: bool,
) -> Result<Vec<String>, StoreError> {
    let mut append_only = GUARDED.to_vec();
    append_only.extend(ERASABLE);
    let mut of_one_tenant = [&append_only[..], &OF_ONE_TENANT].concat();
    of_one_tenant.retain(|name| !OF_ALL_TENANTS.contains(name));
    let mut found: Vec<String> = sqlx::query_scalar(
        "select 'table ' || name || ' has no row security' from unnest($1::text[]) as name
         where not coalesce((select relrowsecurity from pg_class where oid = to_regclass(name)), false)
         union all
         select 'table ' || name || ' has no trigger against ' || what from unnest($2::text[]) as name,
           (values ('changes', 16 | 8), ('TRUNCATE', 32)) as kind (what, wanted)
         where not exists (select from pg_trigger
           where tgrelid = to_regclass(name) and tgenabled in ('O', 'A') and tgtype & wanted = wanted
             and tgfoid = to_regproc('refuse_change'))",
    )
    .bind(of_one_tenant)
    .bind(&GUARDED[..])
    .fetch_all(&mut *connection)
    .await?;
    if !has_role {
        found.push("there is no role onrecord_app".to_owned());
        return Ok(found);
    }
    let rights: Vec<String> = sqlx::query_scalar(
        "select 'onrecord_app may ' || verb || ' ' || name from unnest($1::text[]) as name,
           unnest(array['update', 'delete', 'truncate']) as verb
         where to_regclass(name) is not null and has_table_privilege('onrecord_app', to_regclass(name), verb)
         union all
         select 'onrecord_app owns ' || relname from pg_class
         where relowner = (select oid from pg_roles where rolname = 'onrecord_app')
         union all
         select 'onrecord_app is a superuser, or passes row security by' from pg_roles
         where rolname = 'onrecord_app' and (rolsuper or rolbypassrls)",
    )
    .bind(append_only)
    .fetch_all(&mut *connection)
    .await?;
    found.extend(rights);
    Ok(found)
}
