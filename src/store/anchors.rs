//! What others say of ledgers: cosignatures of witnesses, proofs under what they cosigned, time stamps.

use super::id::Uuid;
use super::time::Time;
use super::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// A witness's signature of a checkpoint.
pub(crate) struct CosignatureRow {
    /// Its verifier key.
    pub(crate) witness: String,
    /// Its signature line, without the line feed.
    pub(crate) line: String,
}

/// Keeps a cosignature; one that is kept already stays.
pub(crate) async fn insert_cosignature(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
    (witness, line): (&str, &str),
) -> Result<(), StoreError> {
    sqlx::query("insert into cosignatures (tenant, size, witness, line) values ($1, $2, $3, $4) on conflict do nothing")
        .bind(tenant.as_str())
        .bind(signed(size))
        .bind(witness)
        .bind(line)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The cosignatures of a checkpoint, by witness.
pub(crate) async fn cosignatures(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
) -> Result<Vec<CosignatureRow>, StoreError> {
    let rows = sqlx::query(
        "select witness, line from cosignatures where tenant = $1 and size = $2 order by witness",
    )
    .bind(tenant.as_str())
    .bind(signed(size))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(CosignatureRow {
                witness: row.try_get("witness")?,
                line: row.try_get("line")?,
            })
        })
        .collect()
}

/// The largest checkpoint that a witness cosigned, and when its answer was kept.
pub(crate) async fn last_of_witness(
    tx: &mut Tx,
    tenant: &TenantId,
    witness: &str,
) -> Result<Option<(u64, Timestamp)>, StoreError> {
    let row = sqlx::query(
        "select size, received_at from cosignatures where tenant = $1 and witness = $2 order by size desc limit 1",
    )
    .bind(tenant.as_str())
    .bind(witness)
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| {
        let size = unsigned(row.try_get("size")?, "cosignatures", "size")?;
        Ok((size, row.try_get::<Time, _>("received_at")?.0))
    })
    .transpose()
}

/// Size and note of the largest checkpoint that is cosigned by as many as the server asks for; the note has the log's
/// signature alone.
pub(crate) async fn cosigned(
    tx: &mut Tx,
    tenant: &TenantId,
) -> Result<Option<(u64, String)>, StoreError> {
    let row = sqlx::query(
        "select size, note from cosigned_checkpoints join checkpoints using (tenant, size)
         where tenant = $1 order by size desc limit 1",
    )
    .bind(tenant.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| {
        let size = unsigned(row.try_get("size")?, "cosigned_checkpoints", "size")?;
        Ok((size, row.try_get("note")?))
    })
    .transpose()
}

/// Says that a checkpoint is cosigned.
pub(crate) async fn insert_cosigned(
    tx: &mut Tx,
    tenant: &TenantId,
    size: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into cosigned_checkpoints (tenant, size) values ($1, $2) on conflict do nothing",
    )
    .bind(tenant.as_str())
    .bind(signed(size))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The seals in a part of the ledger, by index: at most so many.
pub(crate) async fn seals(
    tx: &mut Tx,
    tenant: &TenantId,
    indexes: std::ops::Range<u64>,
    limit: u32,
) -> Result<Vec<(u64, RunId, Vec<u8>)>, StoreError> {
    let rows = sqlx::query(
        "select idx, run, bytes from ledger_entries
         where tenant = $1 and idx >= $2 and idx < $3 and name = 'run-seal' order by idx limit $4",
    )
    .bind(tenant.as_str())
    .bind(signed(indexes.start))
    .bind(signed(indexes.end))
    .bind(i64::from(limit))
    .fetch_all(&mut **tx)
    .await?;
    rows.iter()
        .map(|row| {
            let index = unsigned(row.try_get("idx")?, "ledger_entries", "idx")?;
            let run: Option<Uuid> = row.try_get("run")?;
            let run = run.ok_or_else(|| contradiction("ledger_entries", "run", index))?;
            Ok((index, run.into(), row.try_get("bytes")?))
        })
        .collect()
}

/// The first index of the ledger with a time at or after one; the ledger's size where there is none.
pub(crate) async fn index_from(
    tx: &mut Tx,
    tenant: &TenantId,
    at: Timestamp,
    size: u64,
) -> Result<u64, StoreError> {
    // Times never go back, so that halving finds it.
    let (mut low, mut high) = (0, size);
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Time =
            sqlx::query_scalar("select at from ledger_entries where tenant = $1 and idx = $2")
                .bind(tenant.as_str())
                .bind(signed(middle))
                .fetch_one(&mut **tx)
                .await?;
        if found.0 < at {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Gives a seal its proof under a cosigned checkpoint; one that it has stays.
pub(crate) async fn insert_proof(
    tx: &mut Tx,
    tenant: &TenantId,
    run: &RunId,
    proof: &str,
) -> Result<(), StoreError> {
    sqlx::query("insert into cosigned_proofs (run, tenant, proof) values ($1, $2, $3) on conflict do nothing")
        .bind(Uuid::from(run))
        .bind(tenant.as_str())
        .bind(proof)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// What is stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamped {
    /// A seal, by its index.
    Seal,
    /// A checkpoint, by its size.
    Checkpoint,
}

impl Stamped {
    fn as_str(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A time stamp.
pub(crate) struct StampRow {
    pub(crate) number: u64,
    pub(crate) stamped_at: Timestamp,
    pub(crate) reply: Vec<u8>,
}

/// Keeps a time stamp; one that is kept already stays.
pub(crate) async fn insert_stamp(
    tx: &mut Tx,
    tenant: &TenantId,
    subject: Stamped,
    stamp: &StampRow,
) -> Result<(), StoreError> {
    sqlx::query("insert into time_stamps (tenant, subject, number, stamped_at, reply) values ($1, $2, $3, $4, $5) on conflict do nothing")
        .bind(tenant.as_str())
        .bind(subject.as_str())
        .bind(signed(stamp.number))
        .bind(Time(stamp.stamped_at))
        .bind(&stamp.reply)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The time stamp of a number, or the last one.
pub(crate) async fn stamp(
    tx: &mut Tx,
    tenant: &TenantId,
    subject: Stamped,
    number: Option<u64>,
) -> Result<Option<StampRow>, StoreError> {
    let row = sqlx::query(
        "select number, stamped_at, reply from time_stamps
         where tenant = $1 and subject = $2 and number = coalesce($3, number) order by number desc limit 1",
    )
    .bind(tenant.as_str())
    .bind(subject.as_str())
    .bind(number.map(signed))
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| {
        Ok(StampRow {
            number: unsigned(row.try_get("number")?, "time_stamps", "number")?,
            stamped_at: row.try_get::<Time, _>("stamped_at")?.0,
            reply: row.try_get("reply")?,
        })
    })
    .transpose()
}
