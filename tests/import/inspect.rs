//! Logs of Inspect.

use std::path::Path;

use onrecord::import::{Format, detect};
use serde_json::{Value, json};

use crate::check::{Read, kinds, read};
use crate::files;
use crate::restore::restored;
use crate::shared::shared;

/// The samples of a log as they are written, in the order of the runs.
fn written_samples(path: &Path) -> Vec<Value> {
    if path.extension().is_some_and(|ending| ending == "json") {
        let mut log: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        return log["samples"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default();
    }
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let names: Vec<String> = archive
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    let samples = names.iter().filter(|name| name.starts_with("samples/"));
    samples
        .map(|name| serde_json::from_reader(archive.by_name(name).unwrap()).unwrap())
        .collect()
}

/// What a sample keeps once for all of its events.
const KEPT_ONCE: [&str; 4] = [
    "/attachments",
    "/transcript/content",
    "/message_pool",
    "/call_pool",
];

/// The sample with its attachments and pools put in the places of their references.
fn resolved(mut sample: Value) -> Value {
    let [attachments, content, messages, _] = KEPT_ONCE.map(|pointer| {
        let slot = sample.pointer_mut(pointer);
        slot.map(Value::take).unwrap_or_default()
    });
    for events in ["/events", "/transcript/events"] {
        let events = sample.pointer_mut(events).and_then(Value::as_array_mut);
        for event in events.into_iter().flatten() {
            if let Some(refs) = event.as_object_mut().unwrap().shift_remove("input_refs") {
                event["input"] = expand(&refs, &messages);
            }
        }
    }
    put(&mut sample, &[attachments, content]);
    sample
}

fn expand(ranges: &Value, pool: &Value) -> Value {
    let ranges = ranges.as_array().unwrap().iter();
    let bound = |range: &Value, at: usize| usize::try_from(range[at].as_u64().unwrap()).unwrap();
    let indices = ranges.flat_map(|range| bound(range, 0)..bound(range, 1));
    indices.map(|index| pool[index].clone()).collect()
}

fn put(value: &mut Value, attachments: &[Value; 2]) {
    match value {
        Value::String(text) => {
            let hash = text
                .strip_prefix("attachment://")
                .or(text.strip_prefix("tc://"));
            let found = hash.and_then(|hash| attachments.iter().find_map(|all| all.get(hash)));
            if let Some(found) = found {
                *value = found.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, attachments)),
        Value::Object(members) => members.values_mut().for_each(|item| put(item, attachments)),
        _ => {}
    }
}

/// The record of a sample put together again. What it keeps once is used up.
fn sample_of(read: &Read, thread: usize) -> Value {
    let mut frames = read.frames[thread].iter();
    let last = frames
        .find(|frame| frame.key.starts_with("sample/"))
        .unwrap();
    let mut sample = restored(read, thread, &last.key, "record");
    for pointer in KEPT_ONCE {
        if let Some(rest) = sample.pointer_mut(pointer) {
            assert!(*rest == json!({}) || *rest == json!([]), "{rest}");
            *rest = Value::Null;
        }
    }
    sample
}

#[test]
fn every_shared_log_maps() {
    let Some(folder) = shared("data/inspect-ai") else {
        return;
    };
    let (mut records, mut unmapped) = (0, 0);
    let paths = [files(&folder, ".json"), files(&folder, ".eval")].concat();
    for path in &paths {
        assert_eq!(detect(path).unwrap(), Format::Inspect, "{}", path.display());
        let read = read(path);
        let all: Vec<_> = read.frames.iter().flatten().cloned().collect();
        eprintln!("{}: {:?} {:?}", path.display(), read.tally, kinds(&all));
        records += read.tally.records;
        unmapped += read.tally.unmapped;
        for (index, sample) in written_samples(path).into_iter().enumerate() {
            let (kept, written) = (sample_of(&read, index + 1), resolved(sample));
            assert_eq!(kept, written, "{} {}", path.display(), index);
        }
        if path.ends_with("2025-05-12T20-27-36-04-00_browser.json")
            || path.ends_with("log_message_deduplication.eval")
        {
            for frames in &read.frames {
                for frame in frames {
                    eprintln!(
                        "{} {} {:?} {} {:?} {:?}",
                        frame.kind,
                        frame.key,
                        frame.turn,
                        Value::Object(frame.body.clone()),
                        frame
                            .payloads
                            .iter()
                            .map(|p| (p.name.clone(), p.len()))
                            .collect::<Vec<_>>(),
                        frame.links
                    );
                }
            }
            eprintln!("{:?}", read.openings[0]);
            eprintln!("{:?}", read.openings[1]);
        }
    }
    assert!(
        unmapped * 20 <= records,
        "{unmapped} of {records} are unmapped"
    );
}
