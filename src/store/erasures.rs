//! Erasures: what is to be erased, and how far that is.

use super::id::Uuid;
use super::permit::{Certified, Permit};
use super::time::Time;
use super::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// What is to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Single payloads of a run.
    Payloads(RunId, Vec<Hash>),
    /// Everything about a subject, by its fingerprint.
    Subject([u8; 16]),
    /// A tier of a run.
    Tier(RunId, i16),
    /// Everything.
    Tenant,
    /// What expired under a schedule; its parts are added as they are found.
    Expiry,
}

/// An erasure as its row has it.
#[derive(Clone, Debug)]
pub(crate) struct ErasureRow {
    /// Its id, a ULID as runs have them.
    pub(crate) id: RunId,
    pub(crate) scope: Scope,
    pub(crate) policy: String,
    pub(crate) reason: String,
    pub(crate) by: Actor,
    pub(crate) requested_at: Timestamp,
    pub(crate) keys_destroyed_at: Option<Timestamp>,
    pub(crate) removed_at: Option<Timestamp>,
    pub(crate) final_at: Option<Timestamp>,
    /// Matter of the hold that it waits for.
    pub(crate) held: Option<String>,
    /// Parts of it, payloads that were erased, and entries of the ledger, so far.
    pub(crate) parts: u64,
    pub(crate) parts_done: u64,
    pub(crate) count: u64,
    pub(crate) entries: u64,
}

/// The work of an erasure in one tier of one run.
#[derive(Clone, Debug)]
pub(crate) struct PartRow {
    pub(crate) run: RunId,
    pub(crate) tier: i16,
    /// The version that the tier's key was renewed to.
    pub(crate) key_version: Option<i16>,
    certified: bool,
    pub(crate) keys_destroyed: bool,
}

impl PartRow {
    /// A part of which nothing is done yet.
    pub(crate) fn begun(run: RunId, tier: i16) -> Self {
        Self {
            run,
            tier,
            key_version: None,
            certified: false,
            keys_destroyed: false,
        }
    }

    /// That the ledger says of it what is erased, where it does.
    pub(crate) fn certified(&self) -> Option<Certified> {
        self.certified
            .then(|| Certified::stated(self.run.clone(), self.tier))
    }
}

const SELECT: &str =
    "select erasures.*, coalesce(parts.parts, 0) as parts, coalesce(parts.done, 0) as done,
    coalesce(parts.count, 0) as count, coalesce(parts.entries, 0) as entries
  from erasures, lateral (
    select count(*) as parts, count(*) filter (where removed) as done, sum(count)::bigint as count,
      sum(cardinality(entries))::bigint as entries
    from erasure_parts where erasure = erasures.id) as parts";

fn read(row: &PgRow) -> Result<ErasureRow, StoreError> {
    let id: String = row.try_get("id")?;
    let wrong = |column| contradiction("erasures", column, &id);
    let run = row.try_get::<Option<Uuid>, _>("run")?.map(RunId::from);
    let scope = match (row.try_get::<&str, _>("scope")?, run) {
        ("payloads", Some(run)) => {
            let commits: Vec<Vec<u8>> = row.try_get("commits")?;
            let commits = commits.iter().map(|one| hash(one, "erasures", "commits"));
            Scope::Payloads(run, commits.collect::<Result<_, _>>()?)
        }
        ("tier", Some(run)) => Scope::Tier(run, row.try_get("tier")?),
        ("subject", None) => {
            let subject: Vec<u8> = row.try_get("subject")?;
            Scope::Subject(subject.try_into().map_err(|_| wrong("subject"))?)
        }
        ("tenant", None) => Scope::Tenant,
        ("expiry", None) => Scope::Expiry,
        _ => return Err(wrong("scope")),
    };
    let by_type: String = row.try_get("by_type")?;
    let kind = ActorType::from_word(&by_type).ok_or_else(|| wrong("by_type"))?;
    let time = |column: &str| {
        row.try_get::<Option<Time>, _>(column)
            .map(|time| time.map(|time| time.0))
    };
    Ok(ErasureRow {
        scope,
        policy: row.try_get("policy")?,
        reason: row.try_get("reason")?,
        by: Actor {
            id: row.try_get("by_id")?,
            keyid: None,
            kind,
        },
        requested_at: row.try_get::<Time, _>("requested_at")?.0,
        keys_destroyed_at: time("keys_destroyed_at")?,
        removed_at: time("removed_at")?,
        final_at: time("final_at")?,
        held: row.try_get("held")?,
        parts: unsigned(row.try_get("parts")?, "erasure_parts", "erasure")?,
        parts_done: unsigned(row.try_get("done")?, "erasure_parts", "removed")?,
        count: unsigned(row.try_get("count")?, "erasure_parts", "count")?,
        entries: unsigned(row.try_get("entries")?, "erasure_parts", "entries")?,
        id: id.parse().map_err(|_| wrong("id"))?,
    })
}

/// Adds an erasure and the parts of its work, none of which is done.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    key: Option<&str>,
    erasure: &ErasureRow,
) -> Result<(), StoreError> {
    let (scope, run, tier, commits, subject) = match &erasure.scope {
        Scope::Payloads(run, commits) => {
            let commits: Vec<&[u8]> = commits.iter().map(|commit| &commit.0[..]).collect();
            ("payloads", Some(run), None, Some(commits), None)
        }
        Scope::Subject(subject) => ("subject", None, None, None, Some(&subject[..])),
        Scope::Tier(run, tier) => ("tier", Some(run), Some(*tier), None, None),
        Scope::Tenant => ("tenant", None, None, None, None),
        Scope::Expiry => ("expiry", None, None, None, None),
    };
    let id = erasure.id.to_string();
    let run = run.map(Uuid::from);
    sqlx::query(
        "insert into erasures (id, tenant, key, scope, run, tier, commits, subject, policy, reason, by_type, by_id, requested_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(&id)
    .bind(tenant.as_str())
    .bind(key)
    .bind(scope)
    .bind(run)
    .bind(tier)
    .bind(&commits)
    .bind(subject)
    .bind(&erasure.policy)
    .bind(&erasure.reason)
    .bind(erasure.by.kind.as_str())
    .bind(&erasure.by.id)
    .bind(Time(erasure.requested_at))
    .execute(&mut **tx)
    .await?;
    // A statement for each scope, so that each goes by the index that it has.
    let which = match &erasure.scope {
        Scope::Payloads(..) => {
            "run = $3 and commit = any($4) and $5::smallint is null and $6::bytea is null"
        }
        Scope::Tier(..) => "run = $3 and tier = $5 and $4::bytea[] is null and $6::bytea is null",
        Scope::Subject(_) => {
            "subjects is not null and subject_list(subjects) @> array[$6] and $3::uuid is null and $4::bytea[] is null and $5::smallint is null"
        }
        Scope::Tenant => {
            "tenant = $2 and $3::uuid is null and $4::bytea[] is null and $5::smallint is null and $6::bytea is null"
        }
        Scope::Expiry => return Ok(()),
    };
    let parts = format!(
        "insert into erasure_parts (erasure, tenant, run, tier)
         select distinct $1, $2, run, tier from payloads where wrapped_dek <> '' and {which}"
    );
    sqlx::query(sqlx::AssertSqlSafe(parts))
        .bind(&id)
        .bind(tenant.as_str())
        .bind(run)
        .bind(&commits)
        .bind(tier)
        .bind(subject)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// An erasure.
pub(crate) async fn find(tx: &mut Tx, id: &RunId) -> Result<Option<ErasureRow>, StoreError> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("{SELECT} where id = $1")))
        .bind(id.to_string())
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| read(&row)).transpose()
}

/// The erasure that was requested with a key.
pub(crate) async fn with_key(
    tx: &mut Tx,
    tenant: &TenantId,
    key: &str,
) -> Result<Option<ErasureRow>, StoreError> {
    let sql = format!("{SELECT} where tenant = $1 and key = $2");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(key)
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| read(&row)).transpose()
}

/// Erasures, newest first, before one.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    before: Option<&RunId>,
    limit: u32,
) -> Result<Vec<ErasureRow>, StoreError> {
    let sql = format!(
        "{SELECT} where tenant = $1 and ($2::text is null or id < $2) order by id desc limit $3"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(before.map(ToString::to_string))
        .bind(i64::from(limit))
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// Erasures that are not final, oldest first, without their counts: what expired may have many parts, and this is asked for again
/// and again.
pub(crate) async fn open(tx: &mut Tx, tenant: &TenantId) -> Result<Vec<ErasureRow>, StoreError> {
    let sql =
        "select *, 0::bigint as parts, 0::bigint as done, 0::bigint as count, 0::bigint as entries
         from erasures where tenant = $1 and final_at is null order by id limit 1000";
    let rows = sqlx::query(sql)
        .bind(tenant.as_str())
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(read).collect()
}

/// Parts of an erasure whose ciphertexts are not removed, after a run and tier, in their order.
pub(crate) async fn parts(
    tx: &mut Tx,
    id: &RunId,
    after: Option<(&RunId, i16)>,
    limit: u32,
) -> Result<Vec<PartRow>, StoreError> {
    let rows = sqlx::query(
        "select * from erasure_parts where erasure = $1 and not removed
           and ($2::uuid is null or (run, tier) > ($2, $3)) order by run, tier limit $4",
    )
    .bind(id.to_string())
    .bind(after.map(|(run, _)| Uuid::from(run)))
    .bind(after.map(|(_, tier)| tier))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(PartRow {
                run: row.try_get::<Uuid, _>("run")?.into(),
                tier: row.try_get("tier")?,
                key_version: row.try_get("key_version")?,
                certified: row.try_get("certified")?,
                keys_destroyed: row.try_get("keys_destroyed")?,
            })
        })
        .collect()
}

/// Writes what a tier's key was renewed to.
pub(crate) async fn renewed(
    tx: &mut Tx,
    id: &RunId,
    part: &PartRow,
    version: i16,
) -> Result<(), StoreError> {
    sqlx::query(
        "update erasure_parts set key_version = $4 where erasure = $1 and run = $2 and tier = $3",
    )
    .bind(id.to_string())
    .bind(Uuid::from(&part.run))
    .bind(part.tier)
    .bind(version)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes that payloads of a part are certified by an entry of the ledger; `all` where none is left, and then it returns
/// what the next steps ask for once this is committed.
pub(crate) async fn certified(
    tx: &mut Tx,
    id: &RunId,
    permit: &Permit,
    (index, count): (Option<u64>, u64),
    all: bool,
) -> Result<Option<Certified>, StoreError> {
    sqlx::query(
        "update erasure_parts set count = count + $4, entries = entries || $5::bigint[], certified = $6
         where erasure = $1 and run = $2 and tier = $3",
    )
    .bind(id.to_string())
    .bind(Uuid::from(permit.run()))
    .bind(permit.tier())
    .bind(signed(count))
    .bind(index.into_iter().map(signed).collect::<Vec<_>>())
    .bind(all)
    .execute(&mut **tx)
    .await?;
    Ok(all.then(|| Certified::stated(permit.run().clone(), permit.tier())))
}

/// Writes that no key is left which opens anything of a part, nor any that is wrapped by a newer epoch than this one.
pub(crate) async fn keys_destroyed(
    tx: &mut Tx,
    id: &RunId,
    part: &PartRow,
    epoch: i32,
) -> Result<(), StoreError> {
    sqlx::query("update erasure_parts set keys_destroyed = true, epoch = $4 where erasure = $1 and run = $2 and tier = $3")
        .bind(id.to_string())
        .bind(Uuid::from(&part.run))
        .bind(part.tier)
        .bind(epoch)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes that nothing of a part is left.
pub(crate) async fn removed(tx: &mut Tx, id: &RunId, part: &PartRow) -> Result<(), StoreError> {
    sqlx::query(
        "update erasure_parts set removed = true where erasure = $1 and run = $2 and tier = $3",
    )
    .bind(id.to_string())
    .bind(Uuid::from(&part.run))
    .bind(part.tier)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes how far an erasure is, as its parts are: what is reached for the first time, is reached now.
pub(crate) async fn settle(tx: &mut Tx, id: &RunId, held: Option<&str>) -> Result<(), StoreError> {
    sqlx::query(
        "update erasures set held = $2,
           keys_destroyed_at = coalesce(keys_destroyed_at, case when parts.keys then clock_timestamp() end),
           removed_at = coalesce(removed_at, case when parts.removed then clock_timestamp() end), epoch = parts.epoch
         from (select coalesce(bool_and(keys_destroyed), true) as keys, coalesce(bool_and(removed), true) as removed, max(epoch) as epoch
           from erasure_parts where erasure = $1) as parts
         where id = $1",
    )
    .bind(id.to_string())
    .bind(held)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// What there is to be known of an erasure before it can be final.
pub(crate) struct Standing {
    pub(crate) removed_at: Option<Timestamp>,
    pub(crate) final_at: Option<Timestamp>,
    /// The newest epoch that may have wrapped a key of it, once all is removed; `None` where it had no part.
    pub(crate) epoch: Option<i32>,
}

/// How an erasure stands; `None` where there is no such one.
pub(crate) async fn standing(tx: &mut Tx, id: &RunId) -> Result<Option<Standing>, StoreError> {
    let row: Option<(Option<Time>, Option<Time>, Option<i32>)> =
        sqlx::query_as("select removed_at, final_at, epoch from erasures where id = $1")
            .bind(id.to_string())
            .fetch_optional(&mut **tx)
            .await?;
    Ok(row.map(|(removed_at, final_at, epoch)| Standing {
        removed_at: removed_at.map(|at| at.0),
        final_at: final_at.map(|at| at.0),
        epoch,
    }))
}

/// Writes that an erasure is final.
pub(crate) async fn finalize(tx: &mut Tx, id: &RunId, at: Timestamp) -> Result<(), StoreError> {
    sqlx::query("update erasures set final_at = $2 where id = $1 and final_at is null")
        .bind(id.to_string())
        .bind(Time(at))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The ledger's entries that certify an erasure: index, leaf hash and run, by index.
pub(crate) async fn entries(
    tx: &mut Tx,
    tenant: &TenantId,
    id: &RunId,
) -> Result<Vec<(u64, Hash, RunId)>, StoreError> {
    let rows = sqlx::query(
        "select idx, leaf, ledger_entries.run from erasure_parts, unnest(entries) as part (idx)
           join ledger_entries using (idx)
         where erasure = $1 and ledger_entries.tenant = $2 order by idx",
    )
    .bind(id.to_string())
    .bind(tenant.as_str())
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            Ok((
                unsigned(row.try_get("idx")?, "ledger_entries", "idx")?,
                hash(row.try_get("leaf")?, "ledger_entries", "leaf")?,
                row.try_get::<Uuid, _>("run")?.into(),
            ))
        })
        .collect()
}
