//! What a run should mean, beyond being intact: warnings, never verdicts (spec: `docs/spec/verification.md`, "Meaning").
//!
//! A reading above the format: frames go in one by one, warnings come out. What it keeps is a few
//! bytes for each gate result and for each tool call that waits for its answer.

use crate::digest::Hash;
use crate::frame::{Frame, Kind, Rel, Status};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Warnings that are listed; more are counted.
pub const LISTED: usize = 100;

/// Which invariant does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Invariant {
    /// An outcome selects a candidate by something else than an exact digest.
    CandidateNotExact,
    /// A PASS without evidence, an outcome without a gate, or a gate that judged another candidate.
    VerificationEvidenceDetached,
    /// A side effect that names no operation.
    SideEffectProvenanceMissing,
    /// A tool call without a result: its outcome is unknown, which is no success.
    MissingObservation,
    /// An observation without source or tool.
    ObservationSourceMissing,
    /// An observation without the environment it was made in.
    MissingEnvironmentSnapshot,
}

impl Invariant {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CandidateNotExact => "CANDIDATE_NOT_EXACT",
            Self::VerificationEvidenceDetached => "VERIFICATION_EVIDENCE_DETACHED",
            Self::SideEffectProvenanceMissing => "SIDE_EFFECT_PROVENANCE_MISSING",
            Self::MissingObservation => "MISSING_OBSERVATION",
            Self::ObservationSourceMissing => "OBSERVATION_SOURCE_MISSING",
            Self::MissingEnvironmentSnapshot => "MISSING_ENVIRONMENT_SNAPSHOT",
        }
    }
}

/// An invariant that does not hold at a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What was found.
    pub cause: String,
    /// Which invariant.
    pub code: Invariant,
    /// The frame.
    pub seq: u64,
}

/// The reading of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meaning {
    /// How many warnings there are beyond those listed.
    pub more: u64,
    /// At most [`LISTED`], in the order of their frames.
    pub warnings: Vec<Warning>,
}

/// What a gate said.
#[derive(Clone, Debug)]
struct Gate {
    candidate: Option<Hash>,
    passed: bool,
}

/// Reads a run frame by frame, in order.
#[derive(Clone, Debug, Default)]
pub struct Invariants {
    meaning: Meaning,
    unanswered: BTreeSet<u64>,
    gates: BTreeMap<u64, Gate>,
    /// Place of the first frame that was read: what a part of a run links to before it is not seen.
    first: Option<u64>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    candidate: Option<Value>,
    #[serde(default)]
    environment: Option<Value>,
    #[serde(default)]
    operation: Option<Value>,
    #[serde(default)]
    source: Option<Value>,
    #[serde(default)]
    tool: Option<Value>,
    #[serde(default)]
    verdict: Option<Value>,
}

impl Invariants {
    /// Before the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next frame of the run.
    pub fn read(&mut self, frame: &Frame<'_>) {
        self.first.get_or_insert(frame.seq);
        for link in frame.links() {
            if frame.kind == Kind::ToolResult
                && link.rel == Rel::Answers
                && let Some(call) = link.seq
            {
                self.unanswered.remove(&call);
            }
        }
        match frame.kind {
            Kind::ToolCall => {
                self.unanswered.insert(frame.seq);
            }
            Kind::GateResult => self.read_gate(frame),
            Kind::Outcome => self.read_outcome(frame),
            Kind::SideEffect if body(frame).is_none_or(|body| body.operation.is_none()) => {
                self.warn(
                    frame.seq,
                    Invariant::SideEffectProvenanceMissing,
                    "the side effect names no operation".to_string(),
                );
            }
            Kind::Observation => self.read_observation(frame),
            _ => {}
        }
    }

    /// All that was found, once the last frame was read.
    pub fn finish(mut self) -> Meaning {
        for call in core::mem::take(&mut self.unanswered) {
            self.warn(
                call,
                Invariant::MissingObservation,
                "no tool_result answers this tool_call: its outcome is unknown, which is no success"
                    .to_string(),
            );
        }
        self.meaning.warnings.sort_by_key(|warning| warning.seq);
        self.meaning
    }

    fn read_gate(&mut self, frame: &Frame<'_>) {
        let body = body(frame);
        let passed = body
            .as_ref()
            .and_then(|body| body.verdict.as_ref())
            .and_then(Value::as_str)
            .is_some_and(|verdict| verdict.eq_ignore_ascii_case("pass"));
        if passed && frame.payloads().is_empty() && frame.links().is_empty() {
            self.warn(
                frame.seq,
                Invariant::VerificationEvidenceDetached,
                "the gate passed without evidence: neither a payload nor a link".to_string(),
            );
        }
        let candidate = identity(body.as_ref().and_then(|body| body.candidate.as_ref()));
        self.gates.insert(frame.seq, Gate { candidate, passed });
    }

    fn read_outcome(&mut self, frame: &Frame<'_>) {
        let candidate = body(frame).and_then(|body| body.candidate);
        let completed = frame.status() == Ok(Status::Completed);
        let exact = |value: &Value| value.as_str().is_some_and(is_digest);
        if completed && candidate.as_ref().is_some_and(|value| !exact(value)) {
            self.warn(
                frame.seq,
                Invariant::CandidateNotExact,
                "the candidate is no exact digest".to_string(),
            );
        }
        let candidate = identity(candidate.as_ref());
        let mut gates = 0;
        for link in frame
            .links()
            .iter()
            .filter(|link| link.rel == Rel::VerifiedBy)
        {
            gates += 1;
            if let Some(cause) = link.seq.and_then(|seq| self.detached(seq, candidate)) {
                self.warn(frame.seq, Invariant::VerificationEvidenceDetached, cause);
            }
        }
        if completed && gates == 0 {
            self.warn(
                frame.seq,
                Invariant::VerificationEvidenceDetached,
                "completed, but verified by nothing".to_string(),
            );
        }
    }

    /// Why the gate result at `seq` does not verify the candidate.
    fn detached(&self, seq: u64, candidate: Option<Hash>) -> Option<String> {
        let Some(gate) = self.gates.get(&seq) else {
            if self.first.is_some_and(|first| seq < first) {
                return None;
            }
            return Some(format!(
                "verified_by points to frame {seq}, which is no gate result"
            ));
        };
        if !gate.passed {
            return Some(format!(
                "verified by the gate of frame {seq}, which did not pass"
            ));
        }
        (candidate.is_some() && gate.candidate != candidate)
            .then(|| format!("the gate of frame {seq} judged another candidate"))
    }

    fn read_observation(&mut self, frame: &Frame<'_>) {
        let body = body(frame);
        let has = |member: fn(&Body) -> bool| body.as_ref().is_some_and(member);
        let (source, environment) = (
            has(|body| body.source.is_some() || body.tool.is_some()),
            has(|body| body.environment.is_some()),
        );
        if !source {
            self.warn(
                frame.seq,
                Invariant::ObservationSourceMissing,
                "the observation names neither its source nor the tool that made it".to_string(),
            );
        }
        if !environment {
            self.warn(
                frame.seq,
                Invariant::MissingEnvironmentSnapshot,
                "the observation names no environment snapshot".to_string(),
            );
        }
    }

    fn warn(&mut self, seq: u64, code: Invariant, cause: String) {
        if self.meaning.warnings.len() < LISTED {
            let warning = Warning { cause, code, seq };
            self.meaning.warnings.push(warning);
        } else {
            self.meaning.more += 1;
        }
    }
}

fn body(frame: &Frame<'_>) -> Option<Body> {
    crate::json::typed(frame.body.as_bytes()).ok()
}

/// What a candidate is compared by: a digest of its text, which may be long.
fn identity(candidate: Option<&Value>) -> Option<Hash> {
    let text = candidate?.as_str()?;
    Some(Hash::of(&[text.as_bytes()]))
}

/// `sha256:` and 64 hex digits, or a git object's 40 or 64: what names one thing and no other.
fn is_digest(text: &str) -> bool {
    let hex = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    match text.strip_prefix("sha256:") {
        Some(digits) => digits.len() == 64 && hex(digits),
        None => matches!(text.len(), 40 | 64) && hex(text),
    }
}
