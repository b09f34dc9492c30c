//! What a query answers: rows under named columns, whichever format they leave in.

use onrecord_core::timestamp::Timestamp;

/// A column: its name is the member in JSON, the header in CSV and the field in Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Unique in its table.
    pub(crate) name: &'static str,
    /// What each of its cells is, where it is not [`Cell::Null`].
    pub(crate) kind: ColumnType,
}

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// [`Cell::Text`].
    Text,
    /// [`Cell::Number`].
    Number,
    /// [`Cell::Time`].
    Time,
    /// [`Cell::Bool`].
    #[allow(dead_code, reason = "no table has one yet; every format can")]
    Bool,
    /// [`Cell::List`].
    List,
}

/// One value of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// There is none; any column may have it.
    Null,
    /// Any text, also what is not for a terminal or a spreadsheet.
    Text(String),
    /// From 0 to 2^63 - 1, which is what the database keeps.
    Number(u64),
    /// In microseconds, UTC.
    Time(Timestamp),
    /// Yes or no.
    #[allow(dead_code, reason = "no table has one yet; every format can")]
    Bool(bool),
    /// Texts in the order that they are to be shown in; may be empty.
    #[allow(dead_code, reason = "no table has one yet; every format can")]
    List(Vec<String>),
}

/// As many cells as there are columns, in their order.
pub(crate) type Row = Vec<Cell>;
