//! Collected cases of what goes wrong elsewhere, where their folder is there.

use crate::shared::shared;
use serde_json::Value;

/// The input of a case; none where the cases are not there, which is said.
pub fn input(id: &str) -> Option<Value> {
    let path = shared(&format!("cases/{id}.json"))?;
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
