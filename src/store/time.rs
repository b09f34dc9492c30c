//! The format's time as a column: microseconds on both sides, so nothing is lost between them.

use super::{StoreError, Tx};
use onrecord_core::timestamp::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// A `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

/// Microseconds from 1970 to 2000, where PostgreSQL begins to count.
pub(super) const EPOCH: i64 = 946_684_800_000_000;

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("TIMESTAMPTZ")
    }
}

impl PgHasArrayType for Time {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("_TIMESTAMPTZ")
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<Postgres>>::encode_by_ref(&(self.0.micros() - EPOCH), buffer)
    }
}

impl Decode<'_, Postgres> for Time {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let micros = <i64 as Decode<Postgres>>::decode(value)?;
        let time = micros.checked_add(EPOCH).and_then(Timestamp::from_micros);
        time.map(Self)
            .ok_or_else(|| "a time outside the years 0 to 9999".into())
    }
}

/// The database's clock.
pub(crate) async fn now(tx: &mut Tx) -> Result<Timestamp, StoreError> {
    let now: Time = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&mut **tx)
        .await?;
    Ok(now.0)
}
