//! Rows as they lie there, for who reads very many of them: `COPY … TO STDOUT (FORMAT binary)`, and times without a calendar.

use super::StoreError;
use super::time::EPOCH;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::{Decode, PgConnection, Postgres, Type};

/// Rows as `COPY … (FORMAT binary)` sends them, which costs PostgreSQL and us less than the rows of a query: for each the
/// number of its fields in two bytes, and of each field its length in four, -1 for null, and its bytes.
pub(crate) struct Copy<'c> {
    chunks: BoxStream<'c, Result<Bytes, sqlx::Error>>,
    rest: BytesMut,
    begun: bool,
    ended: bool,
}

/// What every such stream begins with: a signature, flags, and the length of an extension, of which there is none.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

impl<'c> Copy<'c> {
    pub(super) async fn begin(
        connection: &'c mut PgConnection,
        sql: &str,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            chunks: connection.copy_out_raw(sql).await?,
            rest: BytesMut::new(),
            begun: false,
            ended: false,
        })
    }

    /// The next row, undecoded.
    ///
    /// # Errors
    /// The database does not answer, or does not speak as it should.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            if !self.begun && self.rest.len() >= COPY_HEADER.len() {
                if self.rest.split_to(COPY_HEADER.len()) != COPY_HEADER {
                    return Err(broken_off());
                }
                self.begun = true;
            }
            if self.begun && !self.ended {
                match row_length(&self.rest) {
                    Some(Row::End) => self.ended = true,
                    Some(Row::Long(length)) => {
                        return Ok(Some(self.rest.split_to(length).freeze()));
                    }
                    None => {}
                }
            }
            match self.chunks.next().await.transpose()? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None if self.ended => return Ok(None),
                None => return Err(broken_off()),
            }
        }
    }
}

/// What stands at the beginning of a stream of rows.
enum Row {
    /// A row of so many bytes.
    Long(usize),
    /// The end.
    End,
}

/// `None` where more bytes have to come before it can be told.
fn row_length(bytes: &[u8]) -> Option<Row> {
    let (fields, mut rest) = bytes.split_first_chunk()?;
    let fields = i16::from_be_bytes(*fields);
    if fields < 0 {
        return Some(Row::End);
    }
    for _ in 0..fields {
        let (length, after) = rest.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        rest = after.get(length..)?;
    }
    Some(Row::Long(bytes.len() - rest.len()))
}

/// The connection ended within the rows, or sent something else.
pub(super) fn broken_off() -> StoreError {
    StoreError::Database(sqlx::Error::Protocol("COPY sent no rows".into()))
}

/// The fields of a row.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(row: &'a [u8], count: i16) -> Result<Self, StoreError> {
        match row.split_first_chunk() {
            Some((fields, rest)) if i16::from_be_bytes(*fields) == count => Ok(Self(rest)),
            _ => Err(broken_off()),
        }
    }

    /// The next field; `None` for null.
    fn next(&mut self) -> Result<Option<&'a [u8]>, StoreError> {
        let (length, rest) = self.0.split_first_chunk().ok_or_else(broken_off)?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            self.0 = rest;
            return Ok(None);
        };
        let (field, rest) = rest.split_at_checked(length).ok_or_else(broken_off)?;
        self.0 = rest;
        Ok(Some(field))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], StoreError> {
        self.next()?.ok_or_else(broken_off)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| broken_off())
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<&'a str>, StoreError> {
        let text = |field| std::str::from_utf8(field).map_err(|_| broken_off());
        self.next()?.map(text).transpose()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, StoreError> {
        let field = self.next()?;
        field
            .map(|field| field.try_into().map_err(|_| broken_off()))
            .transpose()
    }

    pub(super) fn long(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(self.array()?.map(i64::from_be_bytes))
    }

    pub(super) fn micros(&mut self) -> Result<i64, StoreError> {
        let micros = self.long()?.ok_or_else(broken_off)?;
        Ok(micros.saturating_add(EPOCH))
    }
}

/// A time in microseconds since 1970; what is infinite there is far away here.
pub(super) struct Micros(pub(super) i64);

impl Type<Postgres> for Micros {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("TIMESTAMPTZ")
    }
}

impl Decode<'_, Postgres> for Micros {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let micros = <i64 as Decode<Postgres>>::decode(value)?;
        Ok(Self(micros.saturating_add(EPOCH)))
    }
}
