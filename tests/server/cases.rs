//! Collected cases of what goes wrong elsewhere, where their folder is there.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The input of a case; none where the cases are not there, which is said.
pub fn input(id: &str) -> Option<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["..", "../..", "../../..", "../../../.."];
    let found = folders
        .iter()
        .map(|up| {
            manifest
                .join(up)
                .join("shared/cases")
                .join(format!("{id}.json"))
        })
        .find(|path: &PathBuf| path.exists());
    let Some(path) = found else {
        eprintln!("skipped: case {id}, ../shared/cases is not here");
        return None;
    };
    let text = std::fs::read(path).expect("the case");
    let case: Value = serde_json::from_slice(&text).expect("JSON");
    Some(case["input"].clone())
}

/// Strings of a list in a case, in addition to our own.
pub fn with_ours(ours: &[&str], id: &str, member: &str) -> Vec<String> {
    let mut all: Vec<String> = ours.iter().map(|text| (*text).to_owned()).collect();
    let theirs = input(id);
    let theirs = theirs
        .iter()
        .flat_map(|input| input[member].as_array().expect("a list"));
    for text in theirs {
        let text = text.as_str().expect("text").to_owned();
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
