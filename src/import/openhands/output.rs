//! The output of an evaluation: an instance a line, with its whole history.
//!
//! The file is a run that lists its instances; each is a run of its own. The frames of a line have the same
//! keys wherever they stand, so that the rest of a line can name the payloads taken out of it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::history::History;
use crate::import::child::linked;
use crate::import::conversation;
use crate::import::jsonl::{self, JsonLines, LineMapper};
use crate::import::record::{Record, extract};
use crate::import::request::{FrameRequest, Turn, key_part, label};
use crate::import::sample::Sample;
use crate::import::text::written_time;
use crate::import::{Format, ImportError, Opening, Sink, Transcript, stem};

/// Maps the lines of the output.
struct Output {
    /// The key of the file's own run.
    key: String,
    session: String,
    /// How often an instance was seen: one that was tried again has a line for each try.
    seen: HashMap<String, usize>,
    threads: usize,
}

/// Whether this is an instance with its history.
pub(super) fn is_instance(value: &Value) -> bool {
    let member = |name: &str| value.get(name).is_some();
    value.get("instance_id").is_some_and(Value::is_string)
        && value.get("history").is_some_and(Value::is_array)
        && (member("test_result") || member("metadata") || member("instruction"))
}

/// Opens an evaluation's output. Such files have one name: what tells them apart is the folder that the
/// evaluation says it writes to.
pub(super) fn open(
    path: &Path,
    sample: &Sample,
    session: Option<&str>,
) -> Result<Box<dyn Transcript>, ImportError> {
    let first = sample.records.iter().find(|record| is_instance(record));
    let metadata = first.and_then(|first| first.get("metadata"));
    let folder = metadata.and_then(|metadata| metadata.get("eval_output_dir"));
    let folder = folder
        .and_then(Value::as_str)
        .filter(|folder| !folder.is_empty());
    let session = match (session, folder) {
        (Some(session), _) => session.to_owned(),
        (None, Some(folder)) => folder.to_owned(),
        (None, None) => stem(path),
    };
    let name = session.rsplit('/').find(|part| !part.is_empty());
    let mut body = conversation::session(Format::OpenHands, "openhands", name, true);
    for member in ["agent_class", "dataset", "data_split", "max_iterations"] {
        if let Some(value) = metadata
            .and_then(|metadata| metadata.get(member))
            .and_then(label)
        {
            body.insert(member.into(), value);
        }
    }
    let key = format!("import/openhands/{}", key_part(&session));
    let opening = Opening {
        key: key.clone(),
        session: body,
        payloads: Vec::new(),
        occurred_at: None,
    };
    let mapper = Output {
        key,
        session: name.unwrap_or_default().to_owned(),
        seen: HashMap::new(),
        threads: 1,
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

impl LineMapper for Output {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        if is_instance(&record.value) {
            return self.instance(&jsonl::key(line), record, out);
        }
        out.unmapped();
        let mut frame = FrameRequest::new("observation", jsonl::key(line), Turn::Run);
        frame.class("unmapped");
        record.leave_rest(&mut frame);
        out.frame(frame);
    }

    fn turn(&self) -> Turn {
        Turn::Run
    }
}

impl Output {
    fn instance(&mut self, key: &str, mut record: Record, out: &mut Sink<'_>) {
        let strict = record.strict();
        let thread = self.open(&record.value, out);
        let mut history = History::default();
        let mut events = record.value["history"].take();
        let asked = flat(&mut events).any(|event| is_prompt(event));
        if !asked
            && record
                .value
                .get("instruction")
                .is_some_and(Value::is_string)
        {
            let mut frame = history.conversation.prompt(format!("{key}/prompt"));
            extract(
                &mut record.value["instruction"],
                &mut frame,
                "prompt",
                strict,
            );
            out.frame_of(thread, frame);
        }
        for (index, event) in flat(&mut events).enumerate() {
            let key = format!("{key}/event/{}", index + 1);
            history.inner(&key, event, strict, thread, out);
        }
        record.value["history"] = events;
        history.conversation.at(None);
        let mut frame = end(key, &mut record.value, strict);
        if let Some(score) = score(key, &record.value) {
            out.frame_of(thread, score);
        }
        record.leave_rest(&mut frame);
        out.frame_of(thread, frame);
    }

    /// Opens the run of an instance, linked with the file's own.
    fn open(&mut self, instance: &Value, out: &mut Sink<'_>) -> usize {
        let thread = self.threads;
        self.threads += 1;
        let id = instance["instance_id"].as_str().unwrap_or_default();
        let count = self.seen.entry(id.to_owned()).or_default();
        *count += 1;
        let name = match count {
            1 => id.to_owned(),
            again => format!("{id}/{again}"),
        };
        out.open(thread, self.opening(&name, instance));
        let (up, down) = linked(0, thread, &name, None);
        out.frame_of(thread, up);
        out.frame(down);
        thread
    }

    fn opening(&self, name: &str, instance: &Value) -> Opening {
        let mut body = conversation::session(Format::OpenHands, "openhands", Some(name), true);
        body.insert("parent_session_id".into(), self.session.as_str().into());
        let at = |pointer: &str| instance.pointer(pointer).and_then(label);
        if let Some(id) = at("/instance_id") {
            body.insert("instance_id".into(), id);
        }
        if let Some(version) = at("/metadata/git_commit") {
            body.insert("agent_version".into(), version);
        }
        let mut pins = Map::new();
        let repository = [
            ("remote", at("/instance/repo")),
            ("commit", at("/instance/base_commit")),
        ];
        let config = |name: &str| at(&format!("/metadata/llm_config/{name}"));
        let model = [
            ("name", config("model")),
            ("temperature", config("temperature")),
            ("top_p", config("top_p")),
            ("seed", config("seed")),
            ("effort", config("reasoning_effort")),
        ];
        for (pin, members) in [("repository", &repository[..]), ("model", &model[..])] {
            let known = members
                .iter()
                .filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
            let known: Map<String, Value> = known.collect();
            if !known.is_empty() {
                pins.insert(pin.into(), known.into());
            }
        }
        if !pins.is_empty() {
            body.insert("pins".into(), pins.into());
        }
        let time = instance.pointer("/history/0/timestamp");
        Opening {
            key: format!("{}/instance/{}", self.key, key_part(name)),
            session: body,
            payloads: Vec::new(),
            occurred_at: time
                .and_then(Value::as_str)
                .and_then(written_time)
                .and_then(|time| time.at),
        }
    }
}

/// The events of a history: older ones are pairs of an action and its observation.
fn flat(history: &mut Value) -> impl Iterator<Item = &mut Value> {
    let items = history.as_array_mut().into_iter().flatten();
    items.flat_map(|item| match item {
        Value::Array(pair) => pair.iter_mut().collect::<Vec<_>>(),
        event => vec![event],
    })
}

fn is_prompt(event: &Value) -> bool {
    let says = |member: &str, word: &str| event.get(member).and_then(Value::as_str) == Some(word);
    says("source", "user") && (says("action", "message") || says("kind", "MessageEvent"))
}

/// What the evaluation says about the instance after its history. An error is how it ended; where the agent
/// ended by itself, its history has the outcome.
fn end(key: &str, instance: &mut Value, strict: bool) -> FrameRequest {
    let failed = instance
        .get("error")
        .and_then(Value::as_str)
        .is_some_and(|error| !error.is_empty());
    let mut frame = if failed {
        let mut frame = FrameRequest::new("outcome", key, Turn::Run);
        frame.put("status", "failed");
        frame
    } else {
        let mut frame = FrameRequest::new("observation", key, Turn::Run);
        frame.class("instance");
        frame
    };
    frame.copy(instance, "instance_id", "instance_id");
    if let Some(metrics) = instance.get("metrics") {
        frame.copy(metrics, "accumulated_cost", "cost_usd");
        frame.put_usage(metrics.get("accumulated_token_usage"));
    }
    for (pointer, name) in [
        ("/error", "error"),
        ("/test_result/git_patch", "patch"),
        ("/instruction", "instruction"),
    ] {
        if let Some(slot) = instance.pointer_mut(pointer) {
            // A reference: the instruction is the prompt's payload.
            if slot.get("$payload").is_none() {
                extract(slot, &mut frame, name, strict);
            }
        }
    }
    frame
}

/// Whether the patch solved the instance, where the evaluation has judged it already.
fn score(key: &str, instance: &Value) -> Option<FrameRequest> {
    let places = [
        "/report/resolved",
        "/test_result/report/resolved",
        "/test_result/resolved",
        "/resolved",
    ];
    let resolved = places
        .into_iter()
        .find_map(|place| instance.pointer(place)?.as_bool())?;
    let mut frame = FrameRequest::new("observation", format!("{key}/score"), Turn::Run);
    frame
        .class("score")
        .put("name", "resolved")
        .put("value", resolved);
    Some(frame)
}
