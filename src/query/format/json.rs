//! Rows as JSON: an object each, without the members that a row has nothing for.

use super::{FormatError, check};
use crate::query::table::{Cell, Column, ColumnType, Row};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

/// NDJSON: a row a line, and a last line `{"end":{"rows":N}}` without which the file is cut. No column is named `end`.
pub(crate) struct Lines {
    columns: Vec<Column>,
    rows: u64,
}

impl Lines {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: 0,
        }
    }

    pub(super) fn write(&mut self, rows: &[Row]) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::new();
        for row in rows {
            check(&self.columns, row)?;
            write(&mut bytes, &self.columns, row)?;
            bytes.push(b'\n');
        }
        self.rows += rows.len() as u64;
        Ok(bytes)
    }

    pub(super) fn end(self) -> Vec<u8> {
        format!("{{\"end\":{{\"rows\":{}}}}}\n", self.rows).into_bytes()
    }
}

/// A page as one JSON object: the rows under the name of what they are, and where the next page begins, if there is one.
///
/// # Errors
/// [`FormatError::Misfit`].
pub(crate) fn page(
    name: &str,
    columns: &[Column],
    rows: &[Row],
    next: Option<&str>,
) -> Result<Vec<u8>, FormatError> {
    let mut bytes = format!("{{{}:[", serde_json::Value::from(name)).into_bytes();
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        check(columns, row)?;
        write(&mut bytes, columns, row)?;
    }
    bytes.push(b']');
    if let Some(next) = next {
        bytes.extend_from_slice(format!(",\"next\":{}", serde_json::Value::from(next)).as_bytes());
    }
    bytes.push(b'}');
    Ok(bytes)
}

fn write(bytes: &mut Vec<u8>, columns: &[Column], row: &Row) -> Result<(), FormatError> {
    for (column, cell) in columns.iter().zip(row) {
        let fits = matches!(
            (column.kind, cell),
            (_, Cell::Null)
                | (ColumnType::Text, Cell::Text(_))
                | (ColumnType::Number, Cell::Number(_))
                | (ColumnType::Time, Cell::Time(_))
                | (ColumnType::Bool, Cell::Bool(_))
                | (ColumnType::List, Cell::List(_))
        );
        if !fits {
            return Err(FormatError::Misfit(column.name));
        }
    }
    let misfit = |_| FormatError::Misfit("");
    serde_json::to_writer(bytes, &Object { columns, row }).map_err(misfit)
}

struct Object<'a> {
    columns: &'a [Column],
    row: &'a Row,
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (column, cell) in self.columns.iter().zip(self.row) {
            match cell {
                Cell::Null => {}
                Cell::Text(text) => object.serialize_entry(column.name, text)?,
                Cell::Number(number) => object.serialize_entry(column.name, number)?,
                Cell::Time(time) => object.serialize_entry(column.name, time)?,
                Cell::Bool(yes) => object.serialize_entry(column.name, yes)?,
                Cell::List(list) => object.serialize_entry(column.name, list)?,
            }
        }
        object.end()
    }
}
