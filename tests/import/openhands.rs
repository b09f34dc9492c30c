//! What OpenHands writes.

use onrecord::import::Format;
use serde_json::Value;

use crate::check::{Records, check_files, check_no_string_lost, check_nothing_lost, frame, kinds, read};
use crate::restore::restored;
use crate::shared::shared;

#[test]
fn every_shared_file_maps() {
    let Some(folder) = shared("data/openhands") else {
        return;
    };
    let events = [folder.join("events.jsonl")];
    check_files(Format::OpenHands, &Records::Lines, &events);
    let documents = [
        "base_state.json",
        "litellm_proxy__anthropic__claude-sonnet-4-20250514-1757015046.707.json",
        "litellm_proxy__deepseek__deepseek-chat-1757015076.651.json",
        "example_model_output.json",
    ];
    let documents = documents.map(|name| folder.join(name));
    check_files(Format::OpenHands, &Records::Document, &documents);
    let output = folder.join("output.jsonl");
    let read = read(&output);
    for (index, line) in std::fs::read_to_string(&output).unwrap().lines().enumerate() {
        let written: Value = serde_json::from_str(line).unwrap();
        let key = format!("line/{}", index + 1);
        assert_eq!(restored(&read, index + 1, &key, "record"), written);
    }
    for (index, frames) in read.frames.iter().enumerate() {
        eprintln!("{index} {:?}", kinds(frames));
    }
    eprintln!("{:?}", read.tally);
    for thread in 0..2 {
    for frame in &read.frames[thread] {
        eprintln!("{} {} {:?} {} {:?} {:?}", frame.kind, frame.key, frame.turn, Value::Object(frame.body.clone()), frame.payloads.iter().map(|p| (p.name.clone(), p.len())).collect::<Vec<_>>(), frame.links);
    } }
    let read = crate::check::read(&events[0]);
    for frame in &read.frames[0] {
        eprintln!("{} {} {:?} {} {:?} {:?}", frame.kind, frame.key, frame.turn, Value::Object(frame.body.clone()), frame.payloads.iter().map(|p| (p.name.clone(), p.len())).collect::<Vec<_>>(), frame.links);
    }
    let read = crate::check::read(&documents[2]);
    for frame in &read.frames[0] {
        eprintln!("{} {} {:?} {} {:?} {:?}", frame.kind, frame.key, frame.turn, Value::Object(frame.body.clone()), frame.payloads.iter().map(|p| (p.name.clone(), p.len())).collect::<Vec<_>>(), frame.links);
    }
}
