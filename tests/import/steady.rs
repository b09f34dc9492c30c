//! What must hold of a file that grows, and of one that somebody made to do harm.

use std::path::{Path, PathBuf};

use onrecord::import::{Format, Reader};
use serde_json::{Value, json};

use crate::check::{check_grows, read};
use crate::fixture;

/// A copy of a file's folder, in which the file may be changed. `above` is how many folders up the
/// copy begins.
pub struct Copy {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Copy {
    pub fn of(path: &Path, above: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = path.ancestors().nth(above + 1).unwrap();
        copy(root, folder.path());
        let path = folder.path().join(path.strip_prefix(root).unwrap());
        Self {
            _folder: folder,
            path,
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &to);
        } else {
            std::fs::write(&to, std::fs::read(&entry).unwrap()).unwrap();
        }
    }
}

/// A file of lines, cut after each of its lines, gives the frames that the whole file gives.
pub fn lines_grow(path: &Path) {
    let copy = Copy::of(path, 0);
    let whole = std::fs::read(path).unwrap();
    let longer = read(&copy.path);
    let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut read_shorter = 0;
    for (end, _) in ends {
        std::fs::write(&copy.path, &whole[..=end]).unwrap();
        // The first lines alone may not tell the format.
        if Reader::open(&copy.path, None, None).is_ok() {
            check_grows(&read(&copy.path), &longer);
            read_shorter += 1;
        }
    }
    assert!(read_shorter > 0, "{} was never read", path.display());
}

/// Every value of every record is replaced by values of other types; nothing may panic, and what is
/// answered has to be what the API takes. The records are lines, or the one value of the file.
pub fn hostile(format: Format, path: &Path, lines: bool) {
    let copy = Copy::of(path, 0);
    let text = std::fs::read_to_string(path).unwrap();
    let records: Vec<&str> = match lines {
        true => text.lines().collect(),
        false => vec![&text],
    };
    for (at, record) in records.iter().enumerate() {
        for changed in variants(&serde_json::from_str(record).unwrap()) {
            let changed = changed.to_string();
            let mut all = records.clone();
            all[at] = &changed;
            std::fs::write(&copy.path, all.join("\n") + "\n").unwrap();
            survives(format, &copy.path);
        }
    }
}

/// Reads a file that may be refused, but may not panic.
pub fn survives(format: Format, path: &Path) {
    if Reader::open(path, None, None).is_ok_and(|reader| reader.format() == format) {
        read(path);
    } else if let Ok(mut reader) = Reader::open(path, Some(format), None) {
        let mut events = Vec::new();
        while reader.step(&mut events).unwrap_or(false) {
            events.clear();
        }
    }
}

/// The value with each of its parts replaced, one at a time, by two of the other values in turn: all of
/// them at every place would take minutes.
pub fn variants(value: &Value) -> Vec<Value> {
    let mut deep = json!("deep");
    for _ in 0..60 {
        deep = json!([deep]);
    }
    let others = [
        json!(null),
        json!(-1.5e300),
        json!(9_007_199_254_740_993_u64),
        json!("\u{0}\u{fffe} odd/../.."),
        json!(["x", 3, null, {"type": 5}]),
        json!({"text": {"a": []}, "type": ["b"]}),
        deep,
    ];
    let mut places = Vec::new();
    pointers(value, String::new(), &mut places);
    let mut turns = others.iter().cycle();
    let changed = places.iter().flat_map(|place| [place, place]);
    let changed = changed.map(|place| {
        let mut changed = value.clone();
        changed
            .pointer_mut(place)
            .unwrap()
            .clone_from(turns.next().unwrap());
        changed
    });
    changed.collect()
}

fn pointers(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointers(item, format!("{at}/{index}"), places);
            }
        }
        Value::Object(members) => {
            for (name, item) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(item, format!("{at}/{name}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}

/// A file of these lines, and whether its reader says that the session has ended.
fn has_ended(lines: &[&str]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    std::fs::write(&path, lines.concat()).unwrap();
    let mut reader = Reader::open(&path, None, None).unwrap();
    let mut events = Vec::new();
    while reader.step(&mut events).unwrap() {}
    reader.ended()
}

#[test]
fn a_session_has_ended_when_its_last_record_says_so() {
    for (name, last) in [
        ("copilot/session.jsonl", "\"session.shutdown\""),
        ("droid/stream.jsonl", "\"completion\""),
    ] {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        let end = lines.iter().position(|line| line.contains(last)).unwrap();
        assert!(!has_ended(&lines[..end]), "{name}: before its end");
        assert!(has_ended(&lines[..=end]), "{name}: at its end");
        assert!(!has_ended(&lines[..end + 2]), "{name}: it went on");
    }
}
