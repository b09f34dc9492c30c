//! Erasing: the turn to do so, and the rows of payloads that an erasure takes out.

use super::erasures::{PartRow, Scope};
use super::id::Uuid;
use super::permit::{Certified, Permit};
use super::{Store, StoreError, Tx, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use sqlx::Row as _;

/// The key of a payload that survives.
pub(crate) struct SurvivingKey {
    pub(crate) seq: u64,
    pub(crate) commit: Hash,
    pub(crate) key_version: i16,
    pub(crate) wrapped_dek: Vec<u8>,
}

/// The right of one process to erase for a tenant, until it ends or its connection does.
pub(crate) struct Turn(Tx);

impl Turn {
    /// Gives it back.
    pub(crate) async fn end(self) -> Result<(), StoreError> {
        Ok(self.0.commit().await?)
    }
}

impl Store {
    /// Begins a transaction of one tenant that may destroy the keys of payloads and remove their ciphertexts.
    pub(crate) async fn begin_erasing(&self, tenant: &TenantId) -> Result<Tx, StoreError> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query("set local role onrecord_eraser")
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }

    /// Takes the turn to erase for a tenant; `None` where another process has it.
    pub(crate) async fn erasing_turn(&self, tenant: &TenantId) -> Result<Option<Turn>, StoreError> {
        let mut tx = self.begin(tenant).await?;
        // It waits for the work of other connections, which may take long.
        sqlx::query("set local idle_in_transaction_session_timeout = 0")
            .execute(&mut *tx)
            .await?;
        let mine: bool = sqlx::query_scalar(
            "select pg_try_advisory_xact_lock(hashtextextended('onrecord/erasing/' || $1, 0))",
        )
        .bind(tenant.as_str())
        .fetch_one(&mut *tx)
        .await?;
        Ok(mine.then_some(Turn(tx)))
    }
}

/// Payloads of a part that are still to be erased, of frames from a place on: up to `limit` commitments, sorted.
pub(crate) async fn targets(
    tx: &mut Tx,
    scope: &Scope,
    part: &PartRow,
    (from, limit): (u64, u32),
) -> Result<Vec<Hash>, StoreError> {
    let (commits, subject) = match scope {
        Scope::Payloads(_, commits) => {
            let commits: Vec<&[u8]> = commits.iter().map(|commit| &commit.0[..]).collect();
            (Some(commits), None)
        }
        Scope::Subject(subject) => (None, Some(&subject[..])),
        Scope::Tier(..) | Scope::Tenant | Scope::Expiry => (None, None),
    };
    let found: Vec<Vec<u8>> = sqlx::query_scalar(
        "select commit from payloads where run = $1 and tier = $2 and wrapped_dek <> '' and seq >= $6
           and ($3::bytea[] is null or commit = any($3))
           and ($4::bytea is null or (subjects is not null and subject_list(subjects) @> array[$4]))
         order by commit limit $5",
    )
    .bind(Uuid::from(&part.run))
    .bind(part.tier)
    .bind(commits)
    .bind(subject)
    .bind(i64::from(limit))
    .bind(signed(from))
    .fetch_all(&mut **tx)
    .await?;
    found
        .iter()
        .map(|one| hash(one, "payloads", "commit"))
        .collect()
}

/// How many payloads of a tier of a run have a key, of frames from a place on.
pub(crate) async fn of_tier(tx: &mut Tx, part: &PartRow, from: u64) -> Result<u64, StoreError> {
    let count: i64 = sqlx::query_scalar(
        "select count(*) from payloads where run = $1 and tier = $2 and wrapped_dek <> '' and seq >= $3",
    )
    .bind(Uuid::from(&part.run))
    .bind(part.tier)
    .bind(signed(from))
    .fetch_one(&mut **tx)
    .await?;
    unsigned(count, "payloads", "commit")
}

/// Destroys the keys of single payloads as they lie here.
pub(crate) async fn destroy_keys_of(
    tx: &mut Tx,
    permit: &Permit,
    commits: &[Hash],
) -> Result<(), StoreError> {
    sqlx::query(
        "update payloads set wrapped_dek = '' where run = $1 and tier = $2 and commit = any($3)",
    )
    .bind(Uuid::from(permit.run()))
    .bind(permit.tier())
    .bind(
        commits
            .iter()
            .map(|commit| &commit.0[..])
            .collect::<Vec<_>>(),
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes into a run's row that its keys have a newer version, with which appends have to wrap from now on, and that payloads
/// of it were erased.
pub(crate) async fn update_run(
    tx: &mut Tx,
    run: &RunId,
    version: i16,
    erased: u64,
) -> Result<(), StoreError> {
    sqlx::query("update runs set key_version = greatest(key_version, $2), erased = erased + $3 where run = $1")
        .bind(Uuid::from(run))
        .bind(version)
        .bind(signed(erased))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Keys of payloads of a tier that survive and are wrapped with an older version of its key, after a commitment and in the
/// order of these.
pub(crate) async fn surviving(
    tx: &mut Tx,
    (run, tier): (&RunId, i16),
    version: i16,
    (after, limit): (Option<Hash>, u32),
) -> Result<Vec<SurvivingKey>, StoreError> {
    let rows = sqlx::query(
        "select seq, commit, key_version, wrapped_dek from payloads
         where run = $1 and commit > $5 and tier = $2 and key_version < $3 and wrapped_dek <> '' order by commit limit $4",
    )
    .bind(Uuid::from(run))
    .bind(tier)
    .bind(version)
    .bind(i64::from(limit))
    .bind(after.as_ref().map_or(&[][..], |commit| &commit.0[..]))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(SurvivingKey {
                seq: unsigned(row.try_get("seq")?, "payloads", "seq")?,
                commit: hash(row.try_get("commit")?, "payloads", "commit")?,
                key_version: row.try_get("key_version")?,
                wrapped_dek: row.try_get("wrapped_dek")?,
            })
        })
        .collect()
}

/// Writes keys of payloads that were wrapped anew.
pub(crate) async fn rewrapped(
    tx: &mut Tx,
    run: &RunId,
    keys: &[SurvivingKey],
) -> Result<(), StoreError> {
    sqlx::query(
        "update payloads set wrapped_dek = new.wrapped, key_version = new.version
         from unnest($2::bytea[], $3::smallint[], $4::bytea[]) as new (commit, version, wrapped)
         where payloads.run = $1 and payloads.commit = new.commit and payloads.key_version < new.version and payloads.wrapped_dek <> ''",
    )
    .bind(Uuid::from(run))
    .bind(keys.iter().map(|key| &key.commit.0[..]).collect::<Vec<_>>())
    .bind(keys.iter().map(|key| key.key_version).collect::<Vec<_>>())
    .bind(keys.iter().map(|key| &key.wrapped_dek[..]).collect::<Vec<_>>())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Payloads of a part whose ciphertexts are to be removed, after a commitment, at most `limit`, with the places of their frames:
/// those whose keys are wrapped with an older version of the tier's key, and unless all of the tier goes only those that have
/// none.
pub(crate) async fn removable(
    tx: &mut Tx,
    part: &Certified,
    version: i16,
    all: bool,
    (after, limit): (Option<Hash>, u32),
) -> Result<Vec<(Hash, u64)>, StoreError> {
    let rows: Vec<(Vec<u8>, i64)> = sqlx::query_as(
        "select commit, seq from payloads
         where run = $1 and commit > $6 and tier = $2 and key_version < $3 and ($4 or wrapped_dek = '') and octet_length(ciphertext) > 0
         order by commit limit $5",
    )
    .bind(Uuid::from(part.run()))
    .bind(part.tier())
    .bind(version)
    .bind(all)
    .bind(i64::from(limit))
    .bind(after.as_ref().map_or(&[][..], |commit| &commit.0[..]))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(commit, seq): (Vec<u8>, i64)| {
        let seq = unsigned(seq, "payloads", "seq")?;
        Ok((hash(&commit, "payloads", "commit")?, seq))
    };
    rows.into_iter().map(read).collect()
}

/// Removes ciphertexts of a part, and leaves what stays known of each: its commitment, with the index of the ledger's entry that
/// certifies it.
pub(crate) async fn remove(
    tx: &mut Tx,
    part: &Certified,
    payloads: &[(Hash, u64)],
) -> Result<(), StoreError> {
    sqlx::query(
        "with part as (
           select * from unnest($2::bytea[], $3::bigint[]) as part (commit, idx)
         ), gone as (
           delete from payloads using part where payloads.run = $1 and payloads.tier = $4 and payloads.commit = part.commit
           returning payloads.*, idx
         )
         insert into erased_payloads (run, tenant, commit, seq, place, media, tier, size, ledger_index)
         select run, tenant, commit, seq, place, media, tier, size, idx from gone",
    )
    .bind(Uuid::from(part.run()))
    .bind(payloads.iter().map(|(commit, _)| &commit.0[..]).collect::<Vec<_>>())
    .bind(payloads.iter().map(|(_, index)| signed(*index)).collect::<Vec<_>>())
    .bind(part.tier())
    .execute(&mut **tx)
    .await?;
    Ok(())
}
