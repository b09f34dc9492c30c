//! A run's id as a column: a uuid, whose bytes sort as the id's text does.

use onrecord_core::id::RunId;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// A `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Uuid(u128);

impl Uuid {
    /// Below every other one, but for itself.
    pub(crate) const MIN: Self = Self(u128::MIN);
    /// Above every other one, but for itself.
    pub(crate) const MAX: Self = Self(u128::MAX);
}

impl Uuid {
    /// The one right before it.
    pub(super) fn before(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The one right after it.
    pub(super) fn after(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// How many milliseconds lie between the openings of two runs, of which these are the ids; 1 at least.
    pub(super) fn millis_to(self, other: Self) -> u64 {
        let millis = self.0.abs_diff(other.0) >> 80;
        u64::try_from(millis).unwrap_or(u64::MAX).max(1)
    }

    /// One of its own for each pair, far from its neighbours.
    pub(super) fn spread(one: i64, other: i64) -> Self {
        let pair = u128::from(one.cast_unsigned()) << 64 | u128::from(other.cast_unsigned());
        // An odd factor: no two pairs have the same product.
        Self(pair.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }
}

impl From<&RunId> for Uuid {
    fn from(run: &RunId) -> Self {
        Self(run.to_bits())
    }
}

impl From<Uuid> for RunId {
    fn from(uuid: Uuid) -> Self {
        Self::from_bits(uuid.0)
    }
}

impl Type<Postgres> for Uuid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("UUID")
    }
}

impl PgHasArrayType for Uuid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("_UUID")
    }
}

impl Encode<'_, Postgres> for Uuid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Uuid {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.format() != PgValueFormat::Binary {
            return Err("a uuid in text".into());
        }
        let bytes: [u8; 16] = value.as_bytes()?.try_into()?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }
}
