//! Rows as Parquet: each column optional, texts as UTF-8, times as microseconds in UTC, lists as `LIST`, Snappy.
//!
//! Rows wait, column by column, until a group of them is full. What grows with the file is the place of each group, for the
//! footer: some hundred bytes for each column of some ten thousand rows.

use super::{FormatError, check};
use crate::query::table::{Cell, Column, ColumnType, Row};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::sync::Arc;

/// Bytes of what waits for its group, as they are in memory.
const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// Bytes that a cell takes beside its text.
const CELL_BYTES: usize = 48;
/// Rows of a group at most: where columns are few, what is written at once stays short.
const GROUP_ROWS: usize = 65_536;

pub(crate) struct Groups {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Column>,
    waiting: Vec<Waiting>,
    rows: usize,
    bytes: usize,
}

/// The cells of a column that wait for their group.
struct Waiting {
    column: Column,
    /// How much of the path to a value is there: 0 is none; of a list 1 is an empty one.
    definitions: Vec<i16>,
    /// Of lists: 0 begins a row, 1 goes on in its list.
    repetitions: Vec<i16>,
    values: Values,
}

/// The values that are there.
enum Values {
    Texts(Vec<ByteArray>),
    Integers(Vec<i64>),
    Bools(Vec<bool>),
}

impl Groups {
    pub(super) fn new(columns: &[Column]) -> Result<Self, FormatError> {
        let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("rows")
            .with_fields(fields)
            .build()?;
        let properties = WriterProperties::builder()
            .set_created_by(concat!("onrecord ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            // Statistics of groups let readers skip them; those of pages would stay in memory until the end.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?,
            columns: columns.to_vec(),
            waiting: columns.iter().map(Waiting::new).collect(),
            rows: 0,
            bytes: 0,
        })
    }

    pub(super) fn write(&mut self, rows: &[Row]) -> Result<Vec<u8>, FormatError> {
        for row in rows {
            check(&self.columns, row)?;
            for (waiting, cell) in self.waiting.iter_mut().zip(row) {
                self.bytes += waiting.push(cell)?;
            }
            self.rows += 1;
            if self.bytes >= GROUP_BYTES || self.rows >= GROUP_ROWS {
                self.write_group()?;
            }
        }
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    pub(super) fn end(mut self) -> Result<Vec<u8>, FormatError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        Ok(self.writer.into_inner()?)
    }

    fn write_group(&mut self) -> Result<(), FormatError> {
        let mut group = self.writer.next_row_group()?;
        for waiting in &mut self.waiting {
            let missing = FormatError::Misfit(waiting.column.name);
            let mut column = group.next_column()?.ok_or(missing)?;
            let definitions = Some(waiting.definitions.as_slice());
            let is_list = waiting.column.kind == ColumnType::List;
            let repetitions = is_list.then_some(waiting.repetitions.as_slice());
            match &waiting.values {
                Values::Texts(texts) => {
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(texts, definitions, repetitions)?
                }
                Values::Integers(integers) => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(integers, definitions, repetitions)?
                }
                Values::Bools(bools) => {
                    column
                        .typed::<BoolType>()
                        .write_batch(bools, definitions, repetitions)?
                }
            };
            column.close()?;
            *waiting = Waiting::new(&waiting.column);
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Waiting {
    fn new(column: &Column) -> Self {
        Self {
            column: *column,
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: match column.kind {
                ColumnType::Text | ColumnType::List => Values::Texts(Vec::new()),
                ColumnType::Number | ColumnType::Time => Values::Integers(Vec::new()),
                ColumnType::Bool => Values::Bools(Vec::new()),
            },
        }
    }

    /// Takes a cell, and says how many bytes it takes here.
    fn push(&mut self, cell: &Cell) -> Result<usize, FormatError> {
        let misfit = FormatError::Misfit(self.column.name);
        let mut bytes = CELL_BYTES;
        match (self.column.kind, cell, &mut self.values) {
            (_, Cell::Null, _) => self.level(0, 0),
            (ColumnType::Text, Cell::Text(text), Values::Texts(texts)) => {
                texts.push(ByteArray::from(text.as_str()));
                bytes += text.len();
                self.level(1, 0);
            }
            (ColumnType::Number, Cell::Number(number), Values::Integers(integers)) => {
                integers.push(i64::try_from(*number).map_err(|_| misfit)?);
                self.level(1, 0);
            }
            (ColumnType::Time, Cell::Time(time), Values::Integers(integers)) => {
                integers.push(time.micros());
                self.level(1, 0);
            }
            (ColumnType::Bool, Cell::Bool(yes), Values::Bools(bools)) => {
                bools.push(*yes);
                self.level(1, 0);
            }
            (ColumnType::List, Cell::List(list), Values::Texts(texts)) => {
                texts.extend(list.iter().map(|text| ByteArray::from(text.as_str())));
                bytes += list
                    .iter()
                    .map(|text| CELL_BYTES + text.len())
                    .sum::<usize>();
                if list.is_empty() {
                    self.level(1, 0);
                }
                for at in 0..list.len() {
                    self.level(2, i16::from(at > 0));
                }
            }
            _ => return Err(misfit),
        }
        Ok(bytes)
    }

    fn level(&mut self, definition: i16, repetition: i16) {
        self.definitions.push(definition);
        self.repetitions.push(repetition);
    }
}

/// The column as the schema has it.
fn field(column: &Column) -> Result<Arc<Type>, FormatError> {
    let primitive = |name, physical, logical| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
    };
    let in_utc = true;
    let time = LogicalType::timestamp(in_utc, TimeUnit::MICROS);
    let built = match column.kind {
        ColumnType::Text => {
            primitive(column.name, Physical::BYTE_ARRAY, Some(LogicalType::String)).build()
        }
        ColumnType::Number => primitive(column.name, Physical::INT64, None).build(),
        ColumnType::Time => primitive(column.name, Physical::INT64, Some(time)).build(),
        ColumnType::Bool => primitive(column.name, Physical::BOOLEAN, None).build(),
        ColumnType::List => {
            let element = primitive("element", Physical::BYTE_ARRAY, Some(LogicalType::String))
                .with_repetition(Repetition::REQUIRED)
                .build()?;
            let list = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![Arc::new(element)])
                .build()?;
            Type::group_type_builder(column.name)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(list)])
                .build()
        }
    };
    Ok(Arc::new(built?))
}
