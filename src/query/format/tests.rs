//! What was written is read again: Parquet by the crate's reader, CSV by its, JSON by serde.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails")]

use super::*;
use crate::query::table::{Cell, ColumnType};
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use onrecord_core::timestamp::Timestamp;
use serde_json::{Value, json};

const COLUMNS: [Column; 5] = [
    Column {
        name: "agent",
        kind: ColumnType::Text,
    },
    Column {
        name: "size",
        kind: ColumnType::Number,
    },
    Column {
        name: "at",
        kind: ColumnType::Time,
    },
    Column {
        name: "held",
        kind: ColumnType::Bool,
    },
    Column {
        name: "models",
        kind: ColumnType::List,
    },
];
const FORMATS: [Format; 3] = [Format::Ndjson, Format::Csv, Format::Parquet];

/// Texts that formats and spreadsheets trip over.
fn nasty() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "'=1",
        "''",
        "＝1",
        "a,b",
        "a\"b",
        "\"",
        "a\r\nb",
        "\0",
        "null",
        "NULL",
        "\u{feff}x",
        "[]",
        "[\"a\"]",
        "ünï 漢字 🦀",
        "\u{202e}x",
        "end",
    ]
    .map(str::to_owned)
    .into();
    let shared = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut found = shared.map(|folder| folder.join("shared/vectors/naughty-strings/blns.json"));
    if let Some(path) = found.find(|path| path.exists()) {
        let list = std::fs::read(path).unwrap();
        texts.extend(serde_json::from_slice::<Vec<String>>(&list).unwrap());
    } else {
        eprintln!("skipped: no naughty strings beside the repository");
    }
    texts
}

fn rows() -> Vec<Row> {
    let texts = nasty();
    let mut rows = vec![
        vec![Cell::Null; 5],
        vec![
            Cell::Text("coder".to_owned()),
            Cell::Number(i64::MAX as u64),
            Cell::Time(Timestamp::MIN),
            Cell::Bool(false),
            Cell::List(Vec::new()),
        ],
    ];
    for (at, text) in texts.iter().enumerate() {
        let at = at as u64;
        rows.push(vec![
            Cell::Text(text.clone()),
            Cell::Number(at),
            Cell::Time(Timestamp::from_micros(1_790_000_000_000_001 + at as i64).unwrap()),
            Cell::Bool(at.is_multiple_of(2)),
            Cell::List(texts[..at as usize % 4].to_vec()),
        ]);
    }
    rows
}

/// A file of pages of some rows each.
fn written(format: Format, rows: &[Row], page: usize) -> Vec<u8> {
    let mut writer = Writer::new(format, &COLUMNS).unwrap();
    let mut bytes = Vec::new();
    for page in rows.chunks(page) {
        bytes.extend(writer.write(page).unwrap());
    }
    bytes.extend(writer.end().unwrap());
    bytes
}

fn from_json(object: &Value) -> Row {
    let cell = |column: &Column| match (column.kind, object.get(column.name)) {
        (_, None) => Cell::Null,
        (ColumnType::Time, Some(value)) => Cell::Time(value.as_str().unwrap().parse().unwrap()),
        (_, Some(Value::String(text))) => Cell::Text(text.clone()),
        (_, Some(Value::Bool(yes))) => Cell::Bool(*yes),
        (_, Some(Value::Number(number))) => Cell::Number(number.as_u64().unwrap()),
        (_, Some(list)) => Cell::List(serde_json::from_value(list.clone()).unwrap()),
    };
    COLUMNS.iter().map(cell).collect()
}

#[test]
fn ndjson_reads_back_and_says_that_it_is_whole() {
    let rows = rows();
    let file = String::from_utf8(written(Format::Ndjson, &rows, 7)).unwrap();
    let mut lines: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let end = lines.pop().unwrap();
    assert_eq!(end, json!({"end": {"rows": rows.len()}}));
    assert_eq!(lines.iter().map(from_json).collect::<Vec<_>>(), rows);
}

#[test]
fn a_page_is_one_object() {
    let rows = rows();
    let page = json::page("runs", &COLUMNS, &rows, Some("c\"x")).unwrap();
    let page: Value = serde_json::from_slice(&page).unwrap();
    assert_eq!(page["next"], "c\"x");
    let read = page["runs"].as_array().unwrap().iter().map(from_json);
    assert_eq!(read.collect::<Vec<_>>(), rows);
    let empty = json::page("runs", &COLUMNS, &[], None).unwrap();
    assert_eq!(empty, br#"{"runs":[]}"#);
}

#[test]
fn csv_reads_back_without_a_formula() {
    let rows = rows();
    let file = written(Format::Csv, &rows, 7);
    let mut reader = ::csv::Reader::from_reader(&file[..]);
    assert_eq!(
        reader.headers().unwrap(),
        vec!["agent", "size", "at", "held", "models"]
    );
    let mut read = Vec::new();
    for record in reader.records() {
        let record = record.unwrap();
        for field in &record {
            let first = field.chars().next().unwrap_or('x');
            assert!(!"=+-@\t\r\n＝＋－＠".contains(first), "{field:?}");
        }
        let text = record[0].strip_prefix('\'').unwrap_or(&record[0]);
        let optional = |at: usize| Some(&record[at]).filter(|cell| !cell.is_empty());
        read.push(vec![
            // A text that is empty and none look alike.
            Cell::Text(text.to_owned()),
            optional(1).map_or(Cell::Null, |cell| Cell::Number(cell.parse().unwrap())),
            optional(2).map_or(Cell::Null, |cell| Cell::Time(cell.parse().unwrap())),
            optional(3).map_or(Cell::Null, |cell| Cell::Bool(cell.parse().unwrap())),
            optional(4).map_or(Cell::Null, |cell| {
                Cell::List(serde_json::from_str(cell).unwrap())
            }),
        ]);
    }
    let mut expected = rows;
    expected[0][0] = Cell::Text(String::new());
    assert_eq!(read, expected);
    assert!(file.ends_with(b"\r\n") && !file.ends_with(b"\r\n\r\n"));
}

fn from_parquet(file: Vec<u8>) -> (usize, Vec<Row>) {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let cells = row.get_column_iter().map(|(_, field)| match field {
            Field::Null => Cell::Null,
            Field::Str(text) => Cell::Text(text.clone()),
            Field::Long(number) => Cell::Number(*number as u64),
            Field::TimestampMicros(micros) => Cell::Time(Timestamp::from_micros(*micros).unwrap()),
            Field::Bool(yes) => Cell::Bool(*yes),
            Field::ListInternal(list) => {
                let text = |field: &Field| match field {
                    Field::Str(text) => text.clone(),
                    other => panic!("{other:?}"),
                };
                Cell::List(list.elements().iter().map(text).collect())
            }
            other => panic!("{other:?}"),
        });
        cells.collect()
    });
    let rows = rows.collect();
    (reader.num_row_groups(), rows)
}

#[test]
fn parquet_reads_back_in_groups() {
    let rows = rows();
    assert_eq!(
        from_parquet(written(Format::Parquet, &rows, 7)),
        (1, rows.clone())
    );
    // Enough rows for some groups, however many columns there are.
    let many: Vec<Row> = rows.iter().cycle().take(100_000).cloned().collect();
    let (groups, read) = from_parquet(written(Format::Parquet, &many, 500));
    assert!(groups > 2, "{groups}");
    assert!(read == many, "many rows read back");
}

#[test]
fn parquet_keeps_the_types() {
    let file = bytes::Bytes::from(written(Format::Parquet, &[], 1));
    let reader = SerializedFileReader::new(file).unwrap();
    let mut schema = Vec::new();
    let root = reader.metadata().file_metadata().schema();
    ::parquet::schema::printer::print_schema(&mut schema, root);
    assert_eq!(
        String::from_utf8(schema).unwrap(),
        "message rows {
  OPTIONAL BYTE_ARRAY agent (STRING);
  OPTIONAL INT64 size;
  OPTIONAL INT64 at (TIMESTAMP(MICROS,true));
  OPTIONAL BOOLEAN held;
  OPTIONAL group models (LIST) {
    REPEATED group list {
      REQUIRED BYTE_ARRAY element (STRING);
    }
  }
}
"
    );
}

#[test]
fn nothing_found_is_a_whole_file() {
    assert_eq!(written(Format::Ndjson, &[], 1), b"{\"end\":{\"rows\":0}}\n");
    assert_eq!(
        written(Format::Csv, &[], 1),
        b"agent,size,at,held,models\r\n"
    );
    assert_eq!(from_parquet(written(Format::Parquet, &[], 1)), (0, vec![]));
}

#[test]
fn a_file_that_broke_off_is_not_taken_for_whole() {
    for format in FORMATS {
        let mut writer = Writer::new(format, &COLUMNS).unwrap();
        let mut file = writer.write(&rows()).unwrap();
        file.extend(writer.broken());
        let is_refused = match format {
            Format::Ndjson => !String::from_utf8(file)
                .unwrap()
                .lines()
                .last()
                .unwrap()
                .contains("{\"end\":"),
            Format::Csv => ::csv::Reader::from_reader(&file[..])
                .records()
                .last()
                .unwrap()
                .is_err(),
            Format::Parquet => SerializedFileReader::new(bytes::Bytes::from(file)).is_err(),
        };
        assert!(is_refused, "{format:?}");
    }
}

#[test]
fn a_row_that_does_not_fit_is_refused() {
    let mut wrong: Vec<Row> = vec![vec![Cell::Null; 4], vec![Cell::Null; 6]];
    for at in 0..5 {
        let mut row = vec![Cell::Null; 5];
        row[at] = if at == 0 {
            Cell::Number(1)
        } else {
            Cell::Text("x".to_owned())
        };
        wrong.push(row);
    }
    for format in FORMATS {
        for row in &wrong {
            let mut writer = Writer::new(format, &COLUMNS).unwrap();
            let refused = writer.write(std::slice::from_ref(row));
            assert!(
                matches!(refused, Err(FormatError::Misfit(_))),
                "{format:?} {row:?}"
            );
        }
    }
}
