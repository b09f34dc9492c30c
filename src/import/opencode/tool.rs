//! A call of a tool and its result: one part, of which the state says how far it is.

use std::collections::HashMap;

use serde_json::Value;

use super::message::Part;
use crate::import::blocks;
use crate::import::conversation::Conversation;
use crate::import::payload::Payload;
use crate::import::record::{extract, extract_all};
use crate::import::request::{FrameRequest, label};
use crate::import::text::counted_time;

/// How the error begins of a call that a person, or a rule of theirs, did not allow.
const DENIALS: [(&str, &str); 2] = [
    ("The user rejected permission", "user"),
    ("The user has specified a rule which prevents", "program"),
];

/// The tool that ends well only where a person agreed to leave the plan and build.
const AGREED: &str = "plan_exit";

/// The call, its result when it is over, and what follows from it.
pub(super) fn frames(
    part: Part,
    answer: &str,
    conversation: &mut Conversation,
    spawned: &mut HashMap<String, String>,
) -> Vec<FrameRequest> {
    let Part { key, mut record } = part;
    let strict = record.strict();
    let value = &mut record.value;
    let evicted = evicted(&key, value, conversation);
    let id = value
        .get("callID")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let name = value.get("tool").cloned();
    at(value, "/state/time/start", conversation);
    let mut call = conversation.call(key.clone(), id.as_deref(), name.as_ref());
    call.link("derived_from", answer);
    let child = ["/state/metadata/sessionId", "/state/metadata/sessionID"]
        .into_iter()
        .find_map(|pointer| value.pointer(pointer)?.as_str());
    if let Some(child) = child.filter(|_| name.as_ref().is_some_and(|name| name == "task")) {
        spawned.insert(child.to_owned(), key.clone());
        call.linked_to = true;
    }
    let plan = value
        .pointer("/state/input")
        .and_then(|input| blocks::plan(input, &call, conversation));
    let mut after = Vec::new();
    if is_over(value) {
        result(&key, id.as_deref(), value, conversation, strict, &mut after);
    }
    if let Some(state) = value.get_mut("state") {
        extract_all(state, &[("input", "arguments")], &mut call, strict);
    }
    record.leave_rest(&mut call);
    let mut frames = vec![call];
    frames.extend(plan);
    frames.append(&mut after);
    frames.extend(evicted);
    frames
}

fn is_over(value: &Value) -> bool {
    let status = value.pointer("/state/status").and_then(Value::as_str);
    matches!(status, Some("completed" | "success" | "error"))
}

fn at(value: &Value, pointer: &str, conversation: &mut Conversation) {
    if let Some(time) = value.pointer(pointer).and_then(counted_time) {
        conversation.at(Some(time));
    }
}

fn result(
    key: &str,
    id: Option<&str>,
    value: &mut Value,
    conversation: &mut Conversation,
    strict: bool,
    frames: &mut Vec<FrameRequest>,
) {
    at(value, "/state/time/end", conversation);
    let (mut frame, call) = conversation.result(format!("{key}/result"), id);
    if call.is_none() {
        frame.link("answers", key);
    }
    let Some(state) = value.get_mut("state") else {
        return;
    };
    let failed = state.get("status").and_then(Value::as_str) == Some("error");
    frame.put("status", if failed { "error" } else { "ok" });
    if let Some(metadata) = state.get("metadata") {
        frame.copy(metadata, "exit", "exit");
    }
    let time = |name: &str| state.get("time").and_then(|time| time.get(name)?.as_i64());
    if let (Some(start), Some(end)) = (time("start"), time("end")) {
        let millis = label(&end.saturating_sub(start).into());
        frame
            .body
            .extend(millis.map(|millis| ("duration_ms".to_owned(), millis)));
    }
    let said = state.get("error").and_then(Value::as_str).unwrap_or("");
    let denial = DENIALS
        .into_iter()
        .find(|(start, _)| failed && said.starts_with(start));
    if denial.is_some() {
        frame.put("status", "denied");
    }
    let agreed = call.is_some_and(|call| call.name == Some(AGREED.into())) && !failed;
    let key_of_decision = format!("{key}/decision");
    let decision = if let Some((_, speaker)) = denial {
        let mut decision = conversation.classed("decision", "tool_denied", key_of_decision);
        decision.put("speaker", speaker).link("cancelled", key);
        Some(decision)
    } else if agreed {
        let mut decision = conversation.classed("decision", "approval", key_of_decision);
        decision.selected(Some(&true.into())).put("speaker", "user");
        decision.link("derived_from", frame.key.clone());
        Some(decision)
    } else {
        None
    };
    let members = [
        ("output", "result"),
        ("error", "result"),
        ("attachments", "attachments"),
    ];
    extract_all(state, &members, &mut frame, strict);
    let version = (!failed)
        .then(|| file_version(key, &frame.key, state, conversation, strict))
        .flatten();
    frames.push(frame);
    frames.extend(decision);
    frames.extend(version);
}

/// The version of a file that an edit wrote, as the call's account of it tells.
fn file_version(
    key: &str,
    result: &str,
    state: &mut Value,
    conversation: &mut Conversation,
    strict: bool,
) -> Option<FrameRequest> {
    let metadata = state.get("metadata")?;
    let edited =
        metadata.get("filediff").is_some() || metadata.get("diff").is_some_and(Value::is_string);
    let written = metadata.get("filepath").is_some() && metadata.get("exists").is_some();
    if !edited && !written {
        return None;
    }
    let path = [
        "/metadata/filediff/file",
        "/metadata/filepath",
        "/input/filePath",
    ]
    .into_iter()
    .find_map(|pointer| state.pointer(pointer)?.as_str())?
    .to_owned();
    let created = metadata.get("exists").and_then(Value::as_bool) == Some(false);
    let change = if created { "create" } else { "update" };
    let mut frame = conversation.file_version(format!("{key}/file"), &path, change, result);
    let parts = [
        ("/metadata/filediff/before", "before"),
        ("/metadata/filediff/after", "after"),
        ("/metadata/diff", "patch"),
        ("/input/content", "after"),
    ];
    for (pointer, name) in parts
        .into_iter()
        .filter(|(pointer, _)| written || *pointer != "/input/content")
    {
        if let Some(slot) = state.pointer_mut(pointer).filter(|slot| slot.is_string()) {
            extract(slot, &mut frame, name, strict);
        }
    }
    Some(frame)
}

/// That the output was taken out of the conversation later, to make room. The output itself is kept.
fn evicted(key: &str, value: &mut Value, conversation: &mut Conversation) -> Option<FrameRequest> {
    let time = value.pointer_mut("/state/time")?.as_object_mut()?;
    let evicted = time.remove("compacted").filter(|time| !time.is_null())?;
    let mut frame = conversation.classed("context", "evicted", format!("{key}/evicted"));
    frame.link("derived_from", key);
    match counted_time(&evicted) {
        Some(time) => {
            frame.at(&time);
        }
        None => {
            frame.attach(Payload::json("compacted", &evicted, false));
        }
    }
    Some(frame)
}
