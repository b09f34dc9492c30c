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
    if let Some(found) = referred(value, payloads) {
        *value = found;
        return;
    }
    match value {
        Value::Array(items) => {
            // A list that begins with the first items of another one.
            let first = items.first().and_then(|item| item["$first"].as_u64());
            if let Some(first) = first {
                let Some(Value::Array(mut shared)) = referred(&items[0], payloads) else {
                    panic!("{} is no list", items[0]);
                };
                shared.truncate(usize::try_from(first).unwrap());
                items.splice(..1, shared);
            }
            items.iter_mut().for_each(|item| restore(item, payloads));
        }
        Value::Object(members) => members
            .values_mut()
            .for_each(|item| restore(item, payloads)),
        _ => {}
    }
}

/// What a reference refers to, restored.
fn referred(value: &Value, payloads: &HashMap<(&str, &str), &Payload>) -> Option<Value> {
    let (frame, name) = (value["$frame"].as_str()?, value["$payload"].as_str()?);
    let payload = payloads
        .get(&(frame, name))
        .unwrap_or_else(|| panic!("no payload {name} of {frame}"));
    let mut found = value_of(payload);
    restore(&mut found, payloads);
    Some(found)
}
