//! SWE-agent trajectories: one JSON object, written anew after each step.
//!
//! Three generations are told apart by what they have: `history` alone; `trajectory` and `history` with
//! actions as text; and both with the model's calls of functions, `replay_config` and the messages of
//! each step. A step becomes a model's answer, the call of the tool and its result; the message of the
//! history that belongs to a step goes with it, the others become the prompt and its context.

mod steps;

use std::collections::HashSet;
use std::collections::VecDeque;
use std::path::Path;

use serde_json::{Map, Value};

use super::conversation;
use super::document::{self, Document, Parts};
use super::payload::Payload;
use super::record::{Record, extract};
use super::request::{FrameRequest, Turn, key_part, label, object, usage};
use super::sample::Sample;
use super::{Format, ImportError, Opening, Sink, Transcript, stem};

/// What is left of a trajectory while its steps become frames.
struct Trajectory {
    model: Option<Value>,
    /// The record of the whole file; what is mapped has been taken out.
    rest: Option<Record>,
    strict: bool,
    steps: VecDeque<Value>,
    history: VecDeque<Value>,
    step: usize,
    message: usize,
    records_total: usize,
    turn_open: bool,
    calls: Calls,
}

/// Calls without a result.
#[derive(Default)]
struct Calls {
    /// The keys of calls by the model's ids, in the order of the calls.
    open: Vec<(Option<String>, String)>,
    /// Ids that were seen, since a trajectory may give one twice.
    seen: HashSet<String>,
}

/// Whether the file is one JSON object with a trajectory or a history.
pub(super) fn fits(sample: &Sample) -> bool {
    let list = |name: &str| sample.member(name).and_then(Value::as_array);
    let of = |name: &str, members: &[&str]| {
        list(name).is_some_and(|items| {
            let own = |item: &Value| members.iter().all(|member| item.get(member).is_some());
            !items.is_empty() && items.iter().any(own)
        })
    };
    let begun = list("trajectory").is_some_and(Vec::is_empty) && sample.member("info").is_some();
    begun || of("trajectory", &["action", "observation"]) || of("history", &["role", "content"])
}

/// Reads a trajectory.
///
/// # Errors
/// The file cannot be read, is too large, or is no trajectory.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (mut record, length) = document::read(path, Format::SweAgent)?;
    let mut list = |name: &str| -> Option<VecDeque<Value>> {
        match record.value.get_mut(name)?.take() {
            Value::Array(items) => Some(items.into()),
            other => {
                record.value[name] = other;
                None
            }
        }
    };
    let (steps, history) = (list("trajectory"), list("history"));
    if steps.is_none() && history.is_none() {
        let why = "neither `trajectory` nor `history` is a list";
        return Err(Format::SweAgent.refused(path, why));
    }
    let strict = record.strict();
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let opening = opening(&name, &record.value);
    let (steps, history) = (steps.unwrap_or_default(), history.unwrap_or_default());
    let trajectory = Trajectory {
        model: record
            .value
            .pointer("/replay_config/agent/model/name")
            .and_then(label),
        rest: Some(record),
        strict,
        records_total: steps.len() + history.len(),
        steps,
        history,
        step: 0,
        message: 0,
        turn_open: false,
        calls: Calls::default(),
    };
    Ok(Box::new(Document::new(length, opening, trajectory)))
}

impl Parts for Trajectory {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let mut frames = Vec::new();
        let answers = self
            .history
            .front()
            .is_some_and(|message| role(message) == "assistant");
        if !self.history.is_empty() && !answers {
            self.message(&mut frames, out);
        } else if !self.steps.is_empty() {
            self.agent_step(&mut frames, out);
        } else if answers {
            self.lone_answer(&mut frames, out);
        } else if let Some(rest) = self.rest.take() {
            self.outcome(rest, &mut frames, out);
        } else {
            return false;
        }
        for frame in frames {
            out.frame(frame);
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        let left = self.steps.len() + self.history.len();
        (self.records_total - left, self.records_total)
    }
}

impl Trajectory {
    fn frame(&self, kind: &'static str, key: String) -> FrameRequest {
        let turn = if self.turn_open {
            Turn::Open
        } else {
            Turn::Run
        };
        FrameRequest::new(kind, key, turn)
    }

    /// How it ended, where the file says so, and the members of the file that belong to no step.
    fn outcome(&mut self, mut rest: Record, frames: &mut Vec<FrameRequest>, out: &mut Sink<'_>) {
        let status = rest
            .value
            .pointer("/info/exit_status")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let mut frame = match &status {
            Some(status) => {
                let mut frame = FrameRequest::new("outcome", "outcome", Turn::Run);
                frame.put("status", outcome_status(status));
                frame
            }
            // Not ended yet: a later import of the longer trajectory adds another.
            None => {
                let mut frame = FrameRequest::new(
                    "observation",
                    format!("file/{}/{}", self.step, self.message),
                    Turn::Run,
                );
                frame.put("observation", "trajectory");
                frame
            }
        };
        if let Some(info) = rest.value.get_mut("info") {
            take_info(info, &mut frame, self.strict);
        }
        let members = rest.value.as_object_mut().into_iter().flatten();
        let mut unknown = Vec::new();
        for (name, value) in members {
            if matches!(name.as_str(), "trajectory" | "history") && value.is_null() {
                *value = object([("$frames", name.as_str().into())]);
                continue;
            }
            out.record();
            let known = [
                "info",
                "environment",
                "replay_config",
                "attempts",
                "trajectory",
                "history",
            ];
            if !known.contains(&name.as_str()) {
                out.unmapped();
                let mut frame = FrameRequest::new(
                    "observation",
                    format!("member/{}", key_part(name)),
                    Turn::Run,
                );
                frame.put("observation", "unmapped");
                extract(value, &mut frame, "record", self.strict);
                unknown.push(frame);
            }
        }
        rest.leave_rest(&mut frame);
        frames.append(&mut unknown);
        frames.push(frame);
    }

    fn take(&self, from: &mut Value, frame: &mut FrameRequest, members: &[(&str, &str)]) {
        for (member, name) in members {
            if let Some(slot) = from.get_mut(*member) {
                extract(slot, frame, name, self.strict);
            }
        }
    }

    /// Gives a frame what is left of a step or message, unless nothing is left but `known` members and
    /// references.
    fn leave(&self, value: &Value, known: &[&str], frame: &mut FrameRequest) {
        let reference = |value: &Value| value.get("$payload").is_some();
        let members = value.as_object().into_iter().flatten();
        let left =
            members.filter(|(name, value)| !reference(value) && !known.contains(&name.as_str()));
        if left.count() > 0 || !value.is_object() {
            frame.attach(Payload::json("record", value, self.strict));
        }
    }
}

/// How it ended and what it took, as SWE-agent and mini-swe-agent write it.
pub(super) fn take_info(info: &mut Value, frame: &mut FrameRequest, strict: bool) {
    frame.copy(info, "exit_status", "exit_status");
    if let Some(stats) = info.get("model_stats") {
        let mut counts = usage(stats);
        if let Some(cost) = counts.shift_remove("instance_cost") {
            frame.put("cost_usd", cost);
        }
        frame.put("usage", counts);
    }
    if let Some(slot) = info.get_mut("submission") {
        extract(slot, frame, "submission", strict);
    }
}

/// Marks a part that lacks the member which makes it what it is.
fn unmapped_without(value: &Value, member: &str, frame: &mut FrameRequest, out: &mut Sink<'_>) {
    if value.get(member).is_none() {
        out.unmapped();
        frame.put("unmapped", true);
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or("")
}

/// The format's word for SWE-agent's exit status. A submission that a limit forced
/// (`submitted (exit_cost)`) was not the agent's own end.
fn outcome_status(exit: &str) -> &'static str {
    match exit {
        "submitted" => "completed",
        exit if exit.contains("cancel") || exit.contains("interrupt") => "cancelled",
        _ => "failed",
    }
}

/// The `session` frame's request. It depends only on what a trajectory has from its first step on, so
/// that a later import of the same, longer trajectory finds its run.
fn opening(name: &str, file: &Value) -> Opening {
    // A trajectory has no times at all.
    let mut body = conversation::session(Format::SweAgent, "swe-agent", Some(name), false);
    if let Some(environment) = file.get("environment").and_then(label) {
        body.insert("environment".into(), environment);
    }
    let mut pins = Map::new();
    let config = |path: &str| {
        file.pointer(&format!("/replay_config{path}"))
            .and_then(label)
    };
    if let Some(image) = config("/env/deployment/image") {
        pins.insert("container".into(), object([("image", image)]));
    }
    if let Some(commit) = config("/env/repo/base_commit") {
        pins.insert("repository".into(), object([("commit", commit)]));
    }
    let settings = ["name", "temperature", "top_p"];
    let model: Map<String, Value> = settings
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), config(&format!("/agent/model/{name}"))?)))
        .collect();
    if !model.is_empty() {
        pins.insert("model".into(), model.into());
    }
    if !pins.is_empty() {
        body.insert("pins".into(), pins.into());
    }
    Opening {
        key: format!("import/swe-agent/{}", key_part(name)),
        session: body,
        payloads: Vec::new(),
        occurred_at: None,
    }
}
