//! Records that are put together again from the frames, also where a payload has references of its own.

use std::collections::HashMap;

use onrecord::import::payload::Payload;
use serde_json::Value;

use crate::check::{Read, frame, payload, value_of};

/// A payload of a frame with the payloads of its run put back, at any depth.
pub fn restored(read: &Read, thread: usize, key: &str, name: &str) -> Value {
    let mut payloads = HashMap::new();
    for frame in &read.frames[thread] {
        for payload in &frame.payloads {
            payloads.insert((frame.key.as_str(), payload.name.as_str()), payload);
        }
    }
    let mut value = payload(frame(read, thread, key), name);
    restore(&mut value, &payloads);
    value
}

fn restore(value: &mut Value, payloads: &HashMap<(&str, &str), &Payload>) {
    if let (Some(frame), Some(name)) = (value["$frame"].as_str(), value["$payload"].as_str()) {
        let mut found = value_of(payloads[&(frame, name)]);
        restore(&mut found, payloads);
        if let Some(first) = value["$first"].as_u64() {
            let mut items = found.as_array().unwrap().clone();
            items.truncate(usize::try_from(first).unwrap());
            found = items.into();
        }
        *value = found;
        return;
    }
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| restore(item, payloads));
            splice(items);
        }
        Value::Object(members) => members.values_mut().for_each(|item| restore(item, payloads)),
        _ => {}
    }
}

/// Whether the value names another list of which the first items stand here.
fn splice(_items: &mut Vec<Value>) {}
