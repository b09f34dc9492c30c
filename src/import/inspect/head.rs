//! What a log says of the evaluation as a whole.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{sample, text};
use crate::import::child::linked;
use crate::import::record::{Record, digest, extract};
use crate::import::request::{FrameRequest, Turn, key_part, label, remote};
use crate::import::text::{is_label, written_time};
use crate::import::{Format, Opening, Sink, conversation};

/// The run of a log, and those of its samples.
pub(super) struct Log {
    /// The key of the log's own run.
    key: String,
    session: String,
    /// Members of the `session` frames of the samples.
    common: Map<String, Value>,
    /// How often a sample of an epoch was seen: one that stands twice is two runs.
    seen: HashMap<String, usize>,
    threads: usize,
    /// Frames with the evaluation and its plan, by the digest of what they have.
    told: HashMap<String, String>,
}

impl Log {
    /// The run of an evaluation, named by its own id, or by those of its run and its task.
    pub fn new(eval: &Value, session: Option<&str>, stem: &str) -> (Self, Opening) {
        let session = session.map(str::to_owned).or_else(|| {
            let parts = match text(eval, "eval_id") {
                Some(id) => vec![id],
                None => ["run_id", "task_id"]
                    .into_iter()
                    .filter_map(|id| text(eval, id))
                    .collect(),
            };
            Some(parts.join("/")).filter(|name| !name.is_empty())
        });
        let session = session.unwrap_or_else(|| stem.to_owned());
        let key = format!("import/inspect/{}", key_part(&session));
        let mut body = conversation::session(Format::Inspect, "inspect", Some(&session), true);
        // What is evaluated need not be coding.
        body.remove("profile");
        let mut common = Map::new();
        if let Some(version) = eval.pointer("/packages/inspect_ai").and_then(label) {
            common.insert("agent_version".into(), version);
        }
        if let Some(task) = eval.get("task").and_then(label) {
            common.insert("task".into(), task);
        }
        let pins = pins(eval);
        if !pins.is_empty() {
            common.insert("pins".into(), pins.into());
        }
        body.extend(common.clone());
        for member in ["eval_id", "run_id", "task_id", "task_version"] {
            if let Some(value) = eval.get(member).and_then(label) {
                body.insert(member.into(), value);
            }
        }
        let created = text(eval, "created").and_then(written_time);
        let opening = Opening {
            key: key.clone(),
            session: body,
            payloads: Vec::new(),
            occurred_at: created.and_then(|time| time.at),
        };
        let log = Self {
            key,
            session,
            common,
            seen: HashMap::new(),
            threads: 1,
            told: HashMap::new(),
        };
        (log, opening)
    }

    /// The frames of the evaluation and of its plan. A later part of the file that has the same refers to them.
    pub fn begin(&mut self, log: &mut Value, strict: bool, out: &mut Sink<'_>) {
        for (member, class) in [("eval", "evaluation"), ("plan", "plan")] {
            let new = |value: &&mut Value| value.is_object() && value.get("$payload").is_none();
            let Some(slot) = log.get_mut(member).filter(new) else {
                continue;
            };
            let digest = digest(slot);
            let key = format!("{member}/{digest}");
            let mut frame = FrameRequest::new("context", key.clone(), Turn::Run);
            frame.class(class);
            for label in ["task", "model", "name"] {
                frame.copy(slot, label, label);
            }
            if let Some(dataset) = slot.get("dataset") {
                frame
                    .copy(dataset, "name", "dataset")
                    .copy(dataset, "samples", "dataset_samples");
            }
            extract(slot, &mut frame, "record", strict);
            if self.told.insert(digest, key).is_none() {
                out.record();
                out.frame(frame);
            }
        }
    }

    /// The run of a sample.
    pub fn sample(&mut self, record: Record, out: &mut Sink<'_>) {
        let value = &record.value;
        let id = match value.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(id @ Value::Number(_)) => id.to_string(),
            _ => "none".to_owned(),
        };
        let epoch = value.get("epoch").and_then(Value::as_u64).unwrap_or(1);
        let mut name = format!("{id}/epoch/{epoch}");
        let seen = self.seen.entry(name.clone()).or_default();
        *seen += 1;
        if *seen > 1 {
            name = format!("{name}/{seen}");
        }
        let thread = self.threads;
        self.threads += 1;
        out.open(thread, self.opening(&name, value));
        let (up, down) = linked(0, thread, &name, None);
        out.frame_of(thread, up);
        out.frame(down);
        sample::post(record, thread, out);
    }

    fn opening(&self, name: &str, sample: &Value) -> Opening {
        let mut body = conversation::session(Format::Inspect, "inspect", Some(name), true);
        body.remove("profile");
        body.extend(self.common.clone());
        if is_label(&self.session, 200) {
            body.insert("parent_session_id".into(), self.session.as_str().into());
        }
        for (member, to) in [
            ("id", "sample_id"),
            ("epoch", "epoch"),
            ("uuid", "sample_uuid"),
        ] {
            if let Some(value) = sample.get(member).and_then(label) {
                body.insert(to.into(), value);
            }
        }
        let events = [
            "/started_at",
            "/events/0/timestamp",
            "/transcript/events/0/timestamp",
        ];
        let started = events
            .into_iter()
            .find_map(|pointer| sample.pointer(pointer)?.as_str());
        Opening {
            key: format!("{}/sample/{}", self.key, key_part(name)),
            session: body,
            payloads: Vec::new(),
            occurred_at: started.and_then(written_time).and_then(|time| time.at),
        }
    }

    /// The frames of what came out, and of all other members of the log.
    pub fn end(&mut self, mut rest: Record, out: &mut Sink<'_>) {
        let strict = rest.strict();
        self.begin(&mut rest.value, strict, out);
        for class in ["results", "stats", "reductions", "error"] {
            let slot = rest.value.get_mut(class);
            if let Some(slot) = slot.filter(|value| !value.is_null()) {
                out.record();
                out.frame(part(class, slot, strict));
            }
        }
        out.record();
        let status = text(&rest.value, "status").unwrap_or_default().to_owned();
        let key = format!("log/{}", digest(&rest.value));
        let mut frame = FrameRequest::new("observation", key, Turn::Run);
        frame
            .class("log")
            .copy(&rest.value, "status", "log_status")
            .copy(&rest.value, "version", "log_version");
        rest.leave_rest(&mut frame);
        out.frame(frame);
        let outcome = match status.as_str() {
            "success" => "completed",
            "error" => "failed",
            "cancelled" => "cancelled",
            // It is still running, or nobody said how it ended.
            _ => return,
        };
        let mut frame = FrameRequest::new("outcome", format!("outcome/{outcome}"), Turn::Run);
        frame.put("status", outcome);
        out.frame(frame);
    }
}

/// The frame of a part of the log that a later version may have otherwise.
fn part(class: &str, slot: &mut Value, strict: bool) -> FrameRequest {
    let key = format!("{class}/{}", digest(slot));
    let mut frame = FrameRequest::new("observation", key, Turn::Run);
    frame
        .class(class)
        .copy(slot, "started_at", "started_at")
        .copy(slot, "completed_at", "completed_at");
    match class {
        "results" => results(slot, &mut frame),
        "error" => error(slot, "text", &mut frame, strict),
        _ => {}
    }
    extract(slot, &mut frame, "record", strict);
    frame
}

/// How many samples there were, and the metrics of each score.
fn results(results: &Value, frame: &mut FrameRequest) {
    const METRICS: usize = 32;
    frame.copy(results, "total_samples", "total_samples").copy(
        results,
        "completed_samples",
        "completed_samples",
    );
    let mut metrics = Map::new();
    let scores = results.get("scores").and_then(Value::as_array);
    for score in scores.into_iter().flatten() {
        let name = text(score, "name").unwrap_or_default();
        let all = score.get("metrics").and_then(Value::as_object);
        for (metric, value) in all.into_iter().flatten() {
            let name = format!("{name}/{metric}");
            if let Some(value) = value.get("value").and_then(label)
                && metrics.len() < METRICS
                && is_label(&name, 64)
            {
                metrics.insert(name, value);
            }
        }
    }
    if !metrics.is_empty() {
        frame.put("metrics", metrics);
    }
}

/// An error that ended the evaluation or a sample.
pub(super) fn error(error: &mut Value, name: &str, frame: &mut FrameRequest, strict: bool) {
    for (member, name) in [
        ("message", name),
        ("traceback", "traceback"),
        ("traceback_ansi", "traceback_ansi"),
    ] {
        if let Some(slot) = error.get_mut(member) {
            extract(slot, frame, name, strict);
        }
    }
}

/// What the evaluation ran on.
fn pins(eval: &Value) -> Map<String, Value> {
    let at = |pointer: &str| eval.pointer(pointer).and_then(label);
    let model = [
        ("name", at("/model")),
        ("temperature", at("/model_generate_config/temperature")),
        ("top_p", at("/model_generate_config/top_p")),
        ("seed", at("/model_generate_config/seed")),
        ("max_tokens", at("/model_generate_config/max_tokens")),
    ];
    let repository = [
        ("remote", eval.pointer("/revision/origin").and_then(remote)),
        ("commit", at("/revision/commit")),
        ("dirty", at("/revision/dirty")),
    ];
    let container = [("type", at("/sandbox/type"))];
    let mut pins = Map::new();
    for (pin, members) in [
        ("model", &model[..]),
        ("repository", &repository[..]),
        ("container", &container[..]),
    ] {
        let known = members.iter();
        let known: Map<String, Value> = known
            .filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)))
            .collect();
        if !known.is_empty() {
            pins.insert(pin.into(), known.into());
        }
    }
    pins
}
