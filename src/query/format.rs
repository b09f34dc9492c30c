//! Rows as a file: NDJSON, CSV or Parquet, written as the rows come, in memory that does not grow with them.
//!
//! A file that is whole says so at its end, or cannot be taken for whole without it (`docs/queries.md`, Formats): NDJSON has a
//! last line `end`, Parquet its footer. CSV has no place for it, so that a file that broke off has a last record that says
//! so and does not fit the header.

mod csv;
pub(crate) mod json;
mod parquet;

use super::table::{Column, Row};
use std::str::FromStr;

/// What a file of rows is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A JSON object a line.
    Ndjson,
    /// RFC 4180 with a header.
    Csv,
    /// Apache Parquet, compressed with Snappy.
    Parquet,
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    /// A row is not what the columns say, which is a defect of whoever gave it.
    #[error("a row does not fit the columns at {0:?}")]
    Misfit(&'static str),
    /// The CSV writer refused.
    #[error("CSV could not be written: {0}")]
    Csv(#[from] ::csv::Error),
    /// The Parquet writer refused.
    #[error("Parquet could not be written: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
}

impl Format {
    /// The media type of a file.
    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }

    /// What names of such files end with; also the name of the format.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

impl FromStr for Format {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let all = [Self::Ndjson, Self::Csv, Self::Parquet];
        let found = all.into_iter().find(|format| format.extension() == name);
        found.ok_or(())
    }
}

/// One file while it is written: rows in, bytes out. [`Writer::end`] or [`Writer::broken`] gives the last of them.
pub(crate) enum Writer {
    /// See [`Format::Ndjson`].
    Ndjson(json::Lines),
    /// See [`Format::Csv`].
    Csv(csv::Records),
    /// See [`Format::Parquet`].
    Parquet(Box<parquet::Groups>),
}

impl Writer {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// The format's own writer refuses the columns.
    pub(crate) fn new(format: Format, columns: &[Column]) -> Result<Self, FormatError> {
        Ok(match format {
            Format::Ndjson => Self::Ndjson(json::Lines::new(columns)),
            Format::Csv => Self::Csv(csv::Records::new(columns)?),
            Format::Parquet => Self::Parquet(Box::new(parquet::Groups::new(columns)?)),
        })
    }

    /// Writes rows, and gives the bytes that are ready; there may be none yet. A group of rows of Parquet takes some tens
    /// of milliseconds of a processor every some ten thousand rows.
    ///
    /// # Errors
    /// [`FormatError`]: the file is broken then, and has no end.
    pub(crate) fn write(&mut self, rows: &[Row]) -> Result<Vec<u8>, FormatError> {
        match self {
            Self::Ndjson(lines) => lines.write(rows),
            Self::Csv(records) => records.write(rows),
            Self::Parquet(groups) => groups.write(rows),
        }
    }

    /// Ends the file: what is still to be written, and what says that it is whole.
    ///
    /// # Errors
    /// [`FormatError`].
    pub(crate) fn end(self) -> Result<Vec<u8>, FormatError> {
        match self {
            Self::Ndjson(lines) => Ok(lines.end()),
            Self::Csv(mut records) => records.write(&[]),
            Self::Parquet(groups) => groups.end(),
        }
    }

    /// The last bytes of a file whose rows broke off: what keeps it from being taken for whole.
    pub(crate) fn broken(self) -> Vec<u8> {
        match self {
            // No line `end`, no footer.
            Self::Ndjson(_) | Self::Parquet(_) => Vec::new(),
            Self::Csv(records) => records.broken(),
        }
    }
}

/// Whether a row has a cell for each column; with what does not fit.
fn check(columns: &[Column], row: &Row) -> Result<(), FormatError> {
    match columns.get(row.len()) {
        Some(missing) => Err(FormatError::Misfit(missing.name)),
        None if row.len() > columns.len() => Err(FormatError::Misfit("")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
