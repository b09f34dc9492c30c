//! Files in which everything has the wrong type once, and files that are cut where they grew.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::{check_grows, check_nothing_lost, read};

/// The values that no member is expected to have.
fn odd() -> Vec<Value> {
    let deep = (0..20).fold(json!(1), |inner, _| json!([inner]));
    vec![
        Value::Null,
        json!(-1),
        json!(1e300),
        json!(true),
        json!("\u{0}\u{fffe}"),
        json!("x".repeat(2_000)),
        json!([]),
        json!([null, 7, "text", {"type": 3}]),
        json!({}),
        json!({"text": {"type": []}, "content": [[]], "type": {}}),
        deep,
    ]
}

/// The value with each of its members in turn replaced by each odd value, and left out.
fn mutants(value: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    collect(value, String::new(), &mut pointers);
    let mut found = Vec::new();
    for pointer in pointers {
        for odd in odd() {
            let mut mutant = value.clone();
            *mutant.pointer_mut(&pointer).unwrap() = odd;
            found.push(mutant);
        }
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let mut mutant = value.clone();
        if let Some(Value::Object(members)) = mutant.pointer_mut(parent) {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
            found.push(mutant);
        }
    }
    found
}

fn collect(value: &Value, at: String, pointers: &mut Vec<String>) {
    let mut each = |name: String, value: &Value| {
        let pointer = format!("{at}/{name}");
        pointers.push(pointer.clone());
        collect(value, pointer, pointers);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            each(name.replace('~', "~0").replace('/', "~1"), value);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| each(index.to_string(), value)),
        _ => {}
    }
}

/// Nothing of a file of lines is lost, and nothing breaks, whatever its members are.
pub fn check_odd_lines(path: &Path) {
    let written = std::fs::read_to_string(path).unwrap();
    for line in written.lines() {
        let mut lines: Vec<_> = written.lines().map(str::to_owned).collect();
        let value: Value = serde_json::from_str(line).unwrap();
        lines.extend(mutants(&value).iter().map(Value::to_string));
        let (_folder, odd) = file(path, &(lines.join("\n") + "\n"));
        check_nothing_lost(&odd, &read(&odd));
    }
}

/// Nothing breaks, whatever the items of a list of a document are.
pub fn check_odd_items(path: &Path, list: &str) {
    let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let items = written.pointer(list).unwrap().as_array().unwrap().clone();
    let mut odd = items.clone();
    odd.extend(items.iter().flat_map(mutants));
    let mut changed = written;
    *changed.pointer_mut(list).unwrap() = odd.into();
    let (_folder, odd) = file(path, &changed.to_string());
    read(&odd);
}

/// A file of lines that is cut after any line but the first few gives the frames that the whole one gives.
pub fn check_lines_grow(path: &Path, first: usize) {
    let whole = read(path);
    let written = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = written.split_inclusive('\n').collect();
    for count in first..lines.len() {
        let (_folder, cut) = file(path, &lines[..count].concat());
        check_grows(&read(&cut), &whole);
    }
}

/// A document whose list is cut after any item but the first few gives the frames that the whole one gives.
pub fn check_items_grow(path: &Path, list: &str, first: usize, change: impl Fn(&mut Value)) {
    let whole = read(path);
    let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let items = written.pointer(list).unwrap().as_array().unwrap();
    for count in first..items.len() {
        let mut shorter = written.clone();
        *shorter.pointer_mut(list).unwrap() = items[..count].to_vec().into();
        change(&mut shorter);
        let (_folder, cut) = file(path, &shorter.to_string());
        let read = read(&cut);
        // What a file says about itself that has not ended is a frame of its own.
        let mut read = read;
        read.frames[0].retain(|frame| !frame.key.starts_with("file/"));
        check_grows(&read, &whole);
    }
}

/// A file of this content with the other's name, in a folder that goes with the first of both.
fn file(path: &Path, content: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(path.file_name().unwrap());
    std::fs::write(&file, content).unwrap();
    (folder, file)
}
