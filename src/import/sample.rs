//! What the formats look at to tell their files: the beginning of a file, read once for all of them.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::document::FILE_BYTES;
use super::lines::Lines;
use super::record::{self, Reading, mend_surrogates};
use super::{ImportError, open_file};

/// Lines that are looked through for records.
pub(super) const HEAD_LINES: usize = 1_000;
/// Bytes of them.
pub(super) const HEAD_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes that are kept as text.
const TEXT_BYTES: usize = 64 * 1024;
/// Levels of a document that are kept.
const DEPTH: usize = 5;
/// Items of each of its lists that are kept.
const ITEMS: usize = 8;
/// Bytes of each of its strings that are kept.
const STRING_BYTES: usize = 256;

/// The beginning of a file, as each of the things that it may be.
#[derive(Debug, Default)]
pub struct Sample {
    /// The file.
    pub path: PathBuf,
    /// The JSON objects among its first lines.
    pub records: Vec<Value>,
    /// The outline of the one JSON value that the file is: cut at five levels (what is deeper is `null`),
    /// at eight items a list, and its strings at 256 bytes.
    pub document: Option<Value>,
    /// The names in the ZIP archive that it is.
    pub members: Vec<String>,
    /// Its first 64 KiB, as far as they are text.
    pub text: String,
}

impl Sample {
    /// Looks at a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(path: &Path) -> Result<Self, ImportError> {
        let io = |source| ImportError::Io {
            path: path.to_owned(),
            source,
        };
        let (mut file, _) = open_file(path)?;
        let mut head = Vec::new();
        (&mut file)
            .take(TEXT_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(io)?;
        let mut sample = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        if head.starts_with(b"PK\x03\x04") {
            sample.members = members(file);
            return Ok(sample);
        }
        sample.text = text(&head);
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let mut lines = Lines::new(BufReader::new((&mut file).take(HEAD_BYTES)));
        for _ in 0..HEAD_LINES {
            let Some(line) = lines.read().map_err(io)? else {
                break;
            };
            if let Reading::Record(record) = record::read(&line.bytes) {
                sample.records.push(record.value);
            }
        }
        let bom = if head.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        };
        sample.document = outline(file, bom);
        Ok(sample)
    }

    /// The document's member, where the file is one JSON object.
    pub fn member(&self, name: &str) -> Option<&Value> {
        self.document.as_ref()?.get(name)
    }
}

/// The text that these bytes begin with: up to what is not UTF-8, such as a character that was cut.
fn text(bytes: &[u8]) -> String {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.trim_start_matches('\u{feff}').to_owned()
}

fn members(file: File) -> Vec<String> {
    match zip::ZipArchive::new(BufReader::new(file)) {
        Ok(archive) => {
            let names = archive.file_names().flatten();
            names.map(|name| name.into_owned()).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// The outline of the one JSON value in the file; `None` where it is no such value. Takes the same
/// memory however long the file is, unless it has halves of surrogate pairs to be mended.
fn outline(mut file: File, begin: u64) -> Option<Value> {
    file.seek(SeekFrom::Start(begin)).ok()?;
    let error = match outline_of(serde_json::Deserializer::from_reader(BufReader::new(&file))) {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    // serde_json has no other way of saying that a string has half of a surrogate pair.
    if !error.is_syntax() || !error.to_string().contains("hex escape") {
        return None;
    }
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    let mended = mend_surrogates(&text);
    outline_of(serde_json::Deserializer::from_str(&mended)).ok()
}

fn outline_of<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
) -> serde_json::Result<Value> {
    let value = Outline(DEPTH).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a value of which only so many levels are kept.
struct Outline(usize);

impl<'de> DeserializeSeed<'de> for Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            0 => deserializer
                .deserialize_ignored_any(IgnoredAny)
                .map(|_| Value::Null),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Outline {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value[..value.floor_char_boundary(STRING_BYTES)].into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < ITEMS {
            match items.next_element_seed(Outline(self.0 - 1))? {
                Some(item) => kept.push(item),
                None => return Ok(kept.into()),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        const MEMBERS: usize = 256;
        let mut kept = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Outline(self.0 - 1))?;
            if kept.len() < MEMBERS {
                kept.insert(name, value);
            }
        }
        Ok(kept.into())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(bytes: &[u8]) -> Sample {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        Sample::of(&path).unwrap()
    }

    #[test]
    fn a_document_is_kept_in_outline() {
        let long = "ä".repeat(200);
        let value = json!({"list": (0..20).collect::<Vec<_>>(), "text": long, "deep": [[[[[1]]]]], "none": null, "n": -0.5});
        let sample = sample(format!("\u{feff}{value}\n").as_bytes());
        let kept = sample.document.unwrap();
        assert_eq!(kept["list"], json!([0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(kept["text"], json!("ä".repeat(128)));
        assert_eq!(kept["deep"], json!([[[[null]]]]));
        assert_eq!((&kept["none"], &kept["n"]), (&json!(null), &json!(-0.5)));
        assert_eq!(sample.records.len(), 1, "one line is a record too");
    }

    #[test]
    fn halves_of_surrogate_pairs_hide_no_document() {
        let sample = sample(b"{\n  \"a\": \"x\\ud800\",\n  \"b\": 1\n}\n");
        assert_eq!(sample.document, Some(json!({"a": "x\u{fffd}", "b": 1})));
    }

    #[test]
    fn lines_are_no_document_and_torn_ones_no_records() {
        let sample = sample(b"{\"a\":1}\n{\"b\":\n[1]\n{\"c\":3}\n");
        assert_eq!(sample.records, [json!({"a": 1}), json!({"c": 3})]);
        assert_eq!(sample.document, None);
    }

    #[test]
    fn what_is_no_text_ends_the_text() {
        assert_eq!(sample(b"# Title\n\xff\xfe").text, "# Title\n");
        let empty = sample(b"");
        assert!(empty.text.is_empty() && empty.document.is_none() && empty.records.is_empty());
        let broken = sample(b"PK\x03\x04 no archive");
        assert!(broken.members.is_empty() && broken.text.is_empty());
    }
}
