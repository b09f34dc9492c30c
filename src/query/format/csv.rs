//! Rows as CSV (RFC 4180): a header, lines that end in CR LF, quotes where they are needed.
//!
//! A list is a JSON array. A text that a spreadsheet would run as a formula, or that begins with an apostrophe already, gets
//! an apostrophe before it: whoever reads takes away one apostrophe where a text begins with it, and has what was recorded.

use super::{FormatError, check};
use crate::query::table::{Cell, Column, ColumnType, Row};
use csv::{Terminator, WriterBuilder};
use std::borrow::Cow;

/// What begins a formula in one spreadsheet or another; and the apostrophe, so that it can be taken away again.
const GUARDED: [char; 12] = [
    '=', '+', '-', '@', '\t', '\r', '\n', '\'', '＝', '＋', '－', '＠',
];
/// First words of the last record of a file that is not whole.
const BROKEN: &str = "INCOMPLETE: the query broke off here";

pub(crate) struct Records {
    columns: Vec<Column>,
    writer: csv::Writer<Vec<u8>>,
}

impl Records {
    pub(super) fn new(columns: &[Column]) -> Result<Self, FormatError> {
        let mut records = Self {
            columns: columns.to_vec(),
            writer: writer(),
        };
        records
            .writer
            .write_record(columns.iter().map(|column| column.name))?;
        Ok(records)
    }

    pub(super) fn write(&mut self, rows: &[Row]) -> Result<Vec<u8>, FormatError> {
        for row in rows {
            check(&self.columns, row)?;
            for (column, cell) in self.columns.iter().zip(row) {
                self.writer.write_field(text(column, cell)?.as_bytes())?;
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        let writer = std::mem::replace(&mut self.writer, writer());
        taken(writer)
    }

    /// A record that has one cell more than the header: who reads strictly refuses it, and who looks sees it.
    pub(super) fn broken(self) -> Vec<u8> {
        let more = ",".repeat(self.columns.len());
        format!("{BROKEN}{more}\r\n").into_bytes()
    }
}

fn writer() -> csv::Writer<Vec<u8>> {
    WriterBuilder::new()
        .terminator(Terminator::CRLF)
        .from_writer(Vec::new())
}

fn taken(writer: csv::Writer<Vec<u8>>) -> Result<Vec<u8>, FormatError> {
    let io = |error: csv::IntoInnerError<_>| csv::Error::from(error.into_error());
    Ok(writer.into_inner().map_err(io)?)
}

fn text<'a>(column: &Column, cell: &'a Cell) -> Result<Cow<'a, str>, FormatError> {
    Ok(match (column.kind, cell) {
        (_, Cell::Null) => Cow::Borrowed(""),
        (ColumnType::Text, Cell::Text(text)) if text.starts_with(GUARDED) => {
            Cow::Owned(format!("'{text}"))
        }
        (ColumnType::Text, Cell::Text(text)) => Cow::Borrowed(text),
        (ColumnType::Number, Cell::Number(number)) => Cow::Owned(number.to_string()),
        (ColumnType::Time, Cell::Time(time)) => Cow::Owned(time.to_string()),
        (ColumnType::Bool, Cell::Bool(yes)) => Cow::Borrowed(if *yes { "true" } else { "false" }),
        (ColumnType::List, Cell::List(list)) => {
            Cow::Owned(serde_json::Value::from(list.as_slice()).to_string())
        }
        _ => return Err(FormatError::Misfit(column.name)),
    })
}
