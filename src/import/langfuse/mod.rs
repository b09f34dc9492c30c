//! Traces exported from Langfuse: one JSON object, written anew at each export.
//!
//! Two shapes have the same members: the export of the web page (`trace` and `observations` beside each
//! other) and the answer of the API (the trace, with `observations` in it). The records that are counted
//! are the trace, its observations, scores and corrections.
//!
//! The file has its observations in no order. Frames stand in the order of their times: an observation
//! is a frame when it begins and one when it ends, parents before children, whatever their clocks say.
//! The frame of the end carries what is left of the observation, since an export of a running trace has
//! observations that have not ended, and a later one says more about them.

mod observation;
mod order;

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use serde_json::{Map, Value};

use super::conversation::{Conversation, session};
use super::document::{self, Document, Parts};
use super::payload::Payload;
use super::record::{Record, digest, extract};
use super::request::{FrameRequest, Turn, key_part, label, object};
use super::sample::Sample;
use super::text::{Written, written_time};
use super::{Format, ImportError, Opening, Sink, Transcript};
use order::{Node, Step};

/// What is left of a trace while its observations become frames.
struct Trace {
    /// The whole file; what is mapped has been taken out.
    rest: Option<Record>,
    /// Whether the trace is a member of its own in it.
    nested: bool,
    strict: bool,
    observations: Vec<Value>,
    nodes: Vec<Node>,
    /// Their keys.
    keys: HashSet<String>,
    steps: VecDeque<Step>,
    steps_total: usize,
    /// Scores and corrections, with their class.
    judgements: VecDeque<(&'static str, Value)>,
    input_done: bool,
    conversation: Conversation,
}

/// Whether the file is one JSON object with a trace and its observations.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.document.as_ref().is_some_and(is_trace)
}

fn is_trace(file: &Value) -> bool {
    let trace = file.get("trace").unwrap_or(file);
    let text = |value: &Value, member: &str| value.get(member).is_some_and(Value::is_string);
    let observations = file.get("observations").and_then(Value::as_array);
    let own = |one: &Value| text(one, "type") && text(one, "traceId") && text(one, "startTime");
    text(trace, "id")
        && text(trace, "timestamp")
        && observations.is_some_and(|all| all.iter().all(own))
}

/// Reads an export.
///
/// # Errors
/// The file cannot be read, is too large, or is no trace of Langfuse.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut record, length) = document::read(path, Format::Langfuse)?;
    let Some(Value::Array(observations)) = record.value.get_mut("observations").map(Value::take)
    else {
        return Err(Format::Langfuse.refused(path, "`observations` is no list"));
    };
    record.value["observations"] = object([("$frames", "observation".into())]);
    let nested = record.value.get("trace").is_some_and(Value::is_object);
    let strict = record.strict();
    let trace = trace_of(&mut record.value, nested);
    let id = match (session, trace.get("id")) {
        (Some(id), _) => id.to_owned(),
        (None, Some(Value::String(id))) => id.clone(),
        (None, _) => return Err(Format::Langfuse.refused(path, "the trace has no `id`")),
    };
    let judgements = judgements(trace);
    let opening = opening(&id, trace);
    let nodes = order::nodes(&observations);
    let steps = order::steps(&observations, &nodes);
    let keys = nodes.iter().map(|node| node.key.clone()).collect();
    let parts = Trace {
        rest: Some(record),
        nested,
        strict,
        steps_total: steps.len() + judgements.len(),
        observations,
        nodes,
        keys,
        steps,
        judgements,
        input_done: false,
        conversation: Conversation::default(),
    };
    Ok(Box::new(Document::new(length, opening, parts)))
}

fn trace_of(file: &mut Value, nested: bool) -> &mut Value {
    match nested {
        true => &mut file["trace"],
        false => file,
    }
}

/// Takes what people and programs thought of the trace out of it.
fn judgements(trace: &mut Value) -> VecDeque<(&'static str, Value)> {
    let mut all = VecDeque::new();
    for (member, class) in [("scores", "score"), ("corrections", "correction")] {
        let Some(Value::Array(items)) = trace.get_mut(member) else {
            continue;
        };
        if !items.is_empty() {
            all.extend(items.drain(..).map(|item| (class, item)));
            trace[member] = object([("$frames", class.into())]);
        }
    }
    all
}

impl Parts for Trace {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if !self.input_done {
            self.input_done = true;
            self.input(out);
        } else if let Some(step) = self.steps.pop_front() {
            match step {
                Step::Begin(index) => self.begin(index, out),
                Step::End(index) => self.end(index, out),
                Step::Unfinished(index) => self.unfinished(index, out),
            }
        } else if let Some((class, item)) = self.judgements.pop_front() {
            self.judgement(class, item, out);
        } else if let Some(rest) = self.rest.take() {
            self.trace(rest, out);
        } else {
            return false;
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        let left = self.steps.len() + self.judgements.len();
        (self.steps_total - left, self.steps_total)
    }
}

impl Trace {
    /// What the trace was asked opens its one turn.
    fn input(&mut self, out: &mut Sink<'_>) {
        let Some(rest) = &mut self.rest else { return };
        let trace = trace_of(&mut rest.value, self.nested);
        let time = time(trace, "timestamp");
        let Some(input) = trace.get_mut("input").filter(|input| asks(input)) else {
            return;
        };
        self.conversation.at(time);
        let mut frame = self.conversation.prompt("input");
        frame.put("prompt", "trace_input");
        extract(input, &mut frame, "prompt", self.strict);
        out.frame(frame);
    }

    /// A score or a correction: what somebody else thought, often long after. One that is changed in
    /// Langfuse is another frame.
    fn judgement(&mut self, class: &'static str, mut item: Value, out: &mut Sink<'_>) {
        out.record();
        let id = item.get("id").and_then(Value::as_str).map(key_part);
        let key = format!("{class}/{}/{}", id.unwrap_or_default(), digest(&item));
        self.conversation.at(time(&item, "timestamp"));
        let mut frame = self.conversation.classed("observation", class, key);
        frame.turn = Turn::Run;
        if !item.is_object() {
            out.unmapped();
            frame.class("unmapped");
        }
        for (from, to) in [
            ("id", "score_id"),
            ("name", "name"),
            ("value", "value"),
            ("dataType", "data_type"),
            ("source", "source"),
            ("observationId", "observation_id"),
        ] {
            frame.copy(&item, from, to);
        }
        let judged = item.get("observationId").and_then(Value::as_str);
        if let Some(judged) = judged.map(order::key).filter(|key| self.keys.contains(key)) {
            frame.link("derived_from", judged);
        }
        self.take(
            &mut item,
            &mut frame,
            &[
                ("comment", "comment"),
                ("stringValue", "string_value"),
                ("longStringValue", "long_value"),
            ],
        );
        frame.attach(Payload::json("record", &item, self.strict));
        out.frame(frame);
    }

    /// The trace as it was at this export; a later one that says something else is another frame.
    fn trace(&mut self, mut rest: Record, out: &mut Sink<'_>) {
        out.record();
        let key = format!("trace/{}", digest(&rest.value));
        let trace = trace_of(&mut rest.value, self.nested);
        self.conversation.at(time(trace, "updatedAt"));
        let mut frame = self.conversation.classed("observation", "trace", key);
        frame.turn = Turn::Run;
        frame.copy(trace, "bookmarked", "bookmarked");
        frame.copy(trace, "public", "public");
        let tags = trace.get("tags").and_then(Value::as_array);
        let tags = tags.into_iter().flatten().filter_map(label).take(32);
        let tags: Vec<_> = tags.filter(Value::is_string).collect();
        if !tags.is_empty() {
            frame.put("tags", tags);
        }
        frame.put_millis("duration_ms", trace.get("latency"));
        frame.copy(trace, "totalCost", "cost_usd");
        if let Some(output) = trace.get_mut("output") {
            extract(output, &mut frame, "output", self.strict);
        }
        rest.leave_rest(&mut frame);
        out.frame(frame);
    }

    fn take(&self, from: &mut Value, frame: &mut FrameRequest, members: &[(&str, &str)]) {
        for (member, name) in members {
            if let Some(slot) = from.get_mut(*member) {
                extract(slot, frame, name, self.strict);
            }
        }
    }
}

fn time(value: &Value, member: &str) -> Option<Written> {
    value.get(member)?.as_str().and_then(written_time)
}

/// Whether there is anything in an input.
fn asks(input: &Value) -> bool {
    match input {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

/// The `session` frame's request, from what the trace has from its beginning. Who used it is content.
fn opening(id: &str, trace: &Value) -> Opening {
    let name = trace.get("name").and_then(label);
    let mut body: Map<String, Value> = session(Format::Langfuse, "langfuse", Some(id), true);
    // Langfuse watches agents of any profession.
    body.remove("profile");
    body.insert("order".into(), "time".into());
    if let Some(name) = name.filter(Value::is_string) {
        body.insert("agent".into(), name);
    }
    for (from, to) in [
        ("version", "agent_version"),
        ("release", "release"),
        ("environment", "environment"),
        ("projectId", "project_id"),
        ("sessionId", "conversation_id"),
    ] {
        if let Some(value) = trace.get(from).and_then(label) {
            body.insert(to.into(), value);
        }
    }
    let user = trace.get("userId").and_then(Value::as_str);
    Opening {
        key: format!("import/langfuse/{}", key_part(id)),
        session: body,
        payloads: user
            .filter(|user| !user.is_empty())
            .map(|user| Payload::text("user", user.to_owned()))
            .into_iter()
            .collect(),
        occurred_at: time(trace, "timestamp").and_then(|time| time.at),
    }
}
