//! What observations become: a frame when they begin, and one when they end.

use serde_json::Value;

use super::order::is_moment;
use super::{Trace, time};
use crate::import::Sink;
use crate::import::payload::Payload;
use crate::import::record::digest;
use crate::import::request::{FrameRequest, labels};

/// What an observation is, by its type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Model,
    Tool,
    Retrieval,
    Guardrail,
    /// A stretch of time with others in it.
    Span,
    Moment,
    Unknown,
}

impl What {
    fn of(observation: &Value) -> Self {
        match kind(observation) {
            "GENERATION" | "EMBEDDING" => Self::Model,
            "TOOL" => Self::Tool,
            "RETRIEVER" => Self::Retrieval,
            "GUARDRAIL" => Self::Guardrail,
            "SPAN" | "AGENT" | "CHAIN" | "EVALUATOR" => Self::Span,
            "EVENT" => Self::Moment,
            _ => Self::Unknown,
        }
    }

    /// Whether both frames are of one kind, so that they say which one they are.
    fn has_phases(self) -> bool {
        matches!(self, Self::Span | Self::Retrieval)
    }

    /// The names of the payloads of what went in and what came out.
    fn payloads(self) -> (&'static str, &'static str) {
        match self {
            Self::Model => ("messages", "response"),
            Self::Tool => ("arguments", "result"),
            Self::Retrieval => ("query", "chunks"),
            _ => ("input", "output"),
        }
    }
}

fn kind(observation: &Value) -> &str {
    observation
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("")
}

impl Trace {
    /// An observation begins: what it is, and what was given to it.
    pub(super) fn begin(&mut self, index: usize, out: &mut Sink<'_>) {
        out.record();
        let mut observation = self.observations[index].take();
        let what = What::of(&observation);
        if what == What::Unknown {
            out.unmapped();
        }
        let key = self.nodes[index].key.clone();
        self.conversation.at(time(&observation, "startTime"));
        let mut frame = match what {
            What::Model => self.conversation.frame("model_call", key),
            What::Tool => self.conversation.call(key, None, observation.get("name")),
            What::Retrieval => self.conversation.frame("retrieval", key),
            _ => self.stretch(&observation, what, key),
        };
        if what.has_phases() {
            frame.put("phase", "begin");
        }
        for (from, to) in [
            ("id", "observation_id"),
            ("type", "type"),
            ("name", "name"),
            ("parentObservationId", "parent_observation_id"),
            ("version", "version"),
        ] {
            frame.copy(&observation, from, to);
        }
        if let Some(parent) = self.nodes[index].place.parent {
            frame.link("derived_from", self.nodes[parent].key.clone());
        }
        if what == What::Model {
            self.model_settings(&mut observation, &mut frame);
        }
        let (input, output) = what.payloads();
        self.take(&mut observation, &mut frame, &[("input", input)]);
        if is_moment(&observation) || !observation.is_object() {
            self.finish(&mut observation, &mut frame, output);
        }
        self.observations[index] = observation;
        out.frame(frame);
    }

    /// It ends: what came of it, and all that is left of the observation.
    pub(super) fn end(&mut self, index: usize, out: &mut Sink<'_>) {
        let mut observation = self.observations[index].take();
        let what = What::of(&observation);
        let begin = self.nodes[index].key.clone();
        let key = format!("{begin}/end");
        self.conversation.at(time(&observation, "endTime"));
        let mut frame = match what {
            What::Model => self.conversation.answer(key),
            What::Tool => self.conversation.result(key, None).0,
            What::Retrieval => self.conversation.frame("retrieval", key),
            What::Guardrail => self.conversation.classed("decision", "guardrail", key),
            _ => self.stretch(&observation, what, key),
        };
        let rel = match what {
            What::Model | What::Tool => "answers",
            _ => "derived_from",
        };
        frame.link(rel, begin);
        if what.has_phases() {
            frame.put("phase", "end");
        }
        for (from, to) in [("id", "observation_id"), ("name", "name")] {
            frame.copy(&observation, from, to);
        }
        if what == What::Model {
            self.model_answer(&mut observation, &mut frame);
        }
        self.finish(&mut observation, &mut frame, what.payloads().1);
        out.frame(frame);
    }

    /// The file does not say that it has ended: what it says now is kept, and a later export that says
    /// more adds to it.
    pub(super) fn unfinished(&mut self, index: usize, out: &mut Sink<'_>) {
        let observation = self.observations[index].take();
        let begin = self.nodes[index].key.clone();
        let key = format!("{begin}/unfinished/{}", digest(&observation));
        self.conversation.at(None);
        let mut frame = self.conversation.classed("observation", "unfinished", key);
        frame.copy(&observation, "id", "observation_id");
        frame.link("derived_from", begin);
        frame.attach(Payload::json("record", &observation, self.strict));
        out.frame(frame);
    }

    fn stretch(&self, observation: &Value, what: What, key: String) -> FrameRequest {
        let class = match what {
            What::Unknown => "unmapped".to_owned(),
            _ => kind(observation).to_ascii_lowercase(),
        };
        self.conversation.classed("observation", &class, key)
    }

    /// Which model was called, and how.
    fn model_settings(&self, observation: &mut Value, frame: &mut FrameRequest) {
        for (from, to) in [
            ("model", "model"),
            ("promptName", "prompt_name"),
            ("promptVersion", "prompt_version"),
            ("promptId", "prompt_id"),
        ] {
            frame.copy(observation, from, to);
        }
        frame.put("revision", "not_identifiable");
        if let Some(settings) = observation.get("modelParameters") {
            for (from, to) in [
                ("temperature", "temperature"),
                ("top_p", "top_p"),
                ("topP", "top_p"),
                ("seed", "seed"),
                ("max_tokens", "max_tokens"),
                ("maxTokens", "max_tokens"),
                ("service_tier", "service_tier"),
            ] {
                frame.copy(settings, from, to);
            }
        }
        // Some frameworks put instructions among the parameters.
        let settings = observation.get("modelParameters");
        if settings
            .and_then(Value::as_object)
            .is_some_and(|all| !all.is_empty())
        {
            self.take(observation, frame, &[("modelParameters", "parameters")]);
        }
        let tools = observation.get("toolDefinitions");
        if tools
            .and_then(Value::as_object)
            .is_some_and(|all| !all.is_empty())
        {
            self.take(observation, frame, &[("toolDefinitions", "tools")]);
        }
    }

    /// What the model's answer took. The calls that it asks for are kept with it: those that were run
    /// are observations of their own.
    fn model_answer(&self, observation: &mut Value, frame: &mut FrameRequest) {
        frame.copy(observation, "model", "model");
        frame.put("revision", "not_identifiable");
        let counts = ["usageDetails", "usage"]
            .into_iter()
            .find_map(|member| observation.get(member).filter(|all| all.is_object()));
        frame
            .put_usage(counts)
            .put_cost(observation.pointer("/costDetails/total"));
        let cost = observation.get("costDetails").map(labels);
        if let Some(cost) = cost.filter(|cost| !cost.is_empty()) {
            frame.put("cost", cost);
        }
        frame.put_millis("first_token_ms", observation.get("timeToFirstToken"));
        let calls = observation.get("toolCalls").and_then(Value::as_array);
        let calls = calls.map_or(0, Vec::len);
        if calls > 0 {
            frame.put("tool_calls", calls);
            self.take(observation, frame, &[("toolCalls", "tool_calls")]);
        }
    }

    /// Takes what came out and how it went, and leaves the frame the rest.
    fn finish(&self, observation: &mut Value, frame: &mut FrameRequest, output: &str) {
        frame.copy(observation, "level", "level");
        if observation.get("level").and_then(Value::as_str) == Some("ERROR") {
            frame.put("status", "error");
        }
        let took = match frame.kind {
            "model_result" => "latency_ms",
            _ => "duration_ms",
        };
        frame.put_millis(took, observation.get("latency"));
        self.take(
            observation,
            frame,
            &[("output", output), ("statusMessage", "status_message")],
        );
        frame.attach(Payload::json("record", observation, self.strict));
    }
}
