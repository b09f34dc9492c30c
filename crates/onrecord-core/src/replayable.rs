//! Whether a run could be replayed from what is kept of it: a possibility, and no replay that was done. A reading above the
//! format, frame by frame; names stand in bodies as `docs/kinds.md` has them.
//!
//! A replay gives an agent what its tools and models answered, by what was recorded, and asks nothing outside. So it takes to
//! know what to run again, an answer to each call, and the bytes of each payload.

use crate::frame::{Frame, Kind, PayloadRef, Rel};
use crate::pins;
use alloc::collections::{BTreeMap, BTreeSet};

/// How much of a run could be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Possible {
    /// All of it.
    Full,
    /// Some of what it was answered is there, and something is lacking.
    Partial,
    /// Nothing that it was answered is there.
    None,
}

/// What is lacking for a full replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// A frame: it is not there, cannot be read, or is not the one that was recorded.
    Frame,
    /// The session says no agent.
    Agent,
    /// The session says no release of it.
    Release,
    /// The session has no task.
    Task,
    /// A call of a tool or model has no answer, or one that carries nothing of what was returned.
    Answer,
    /// A payload is not there: erased, expired, lost, altered, or kept by its agent.
    Payload,
}

/// Reads a run frame by frame, in order.
#[derive(Clone, Debug, Default)]
pub struct Replayable {
    lacks: BTreeSet<Lack>,
    has_session: bool,
    /// Of each call whether it has an answer that carries something.
    calls: BTreeMap<u64, bool>,
    /// Whether anything is there that a replay would give the agent.
    serves: bool,
}

impl Lack {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Agent => "agent",
            Self::Release => "release",
            Self::Task => "task",
            Self::Answer => "answer",
            Self::Payload => "payload",
        }
    }
}

impl Replayable {
    /// Before the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next frame, as it was recorded; `is_there` says of each of its payloads whether its bytes can be had.
    pub fn read(&mut self, frame: &Frame<'_>, is_there: impl Fn(&PayloadRef) -> bool) {
        let here = frame.payloads().iter().filter(|one| is_there(one)).count();
        if here < frame.payloads().len() {
            self.lacks.insert(Lack::Payload);
        }
        match frame.kind {
            Kind::Session => {
                self.has_session = true;
                for (name, is_pinned) in pins::of(frame) {
                    let lack = match name {
                        "agent" => Lack::Agent,
                        "release" => Lack::Release,
                        "task" => Lack::Task,
                        _ => continue,
                    };
                    if !is_pinned {
                        self.lacks.insert(lack);
                    }
                }
            }
            Kind::ToolCall | Kind::ModelCall => {
                self.calls.insert(frame.seq, false);
            }
            Kind::ToolResult | Kind::ModelResult => {
                let answers = frame.links().iter().filter(|link| link.rel == Rel::Answers);
                for call in answers.filter_map(|link| link.seq) {
                    if let Some(answered) = self.calls.get_mut(&call) {
                        *answered |= !frame.payloads().is_empty();
                    }
                }
                self.serves |= here > 0;
            }
            Kind::Observation | Kind::Retrieval | Kind::Memory => self.serves |= here > 0,
            _ => {}
        }
    }

    /// A place without a frame as it was recorded.
    pub fn without_frame(&mut self) {
        self.lacks.insert(Lack::Frame);
    }

    /// What could be replayed, and what is lacking for all of it.
    pub fn finish(mut self) -> (Possible, BTreeSet<Lack>) {
        if !self.has_session {
            let all = [Lack::Frame, Lack::Agent, Lack::Release, Lack::Task];
            self.lacks.extend(all);
        }
        if self.calls.values().any(|answered| !answered) {
            self.lacks.insert(Lack::Answer);
        }
        let possible = match (self.serves, self.lacks.is_empty()) {
            (true, true) => Possible::Full,
            (true, false) => Possible::Partial,
            (false, _) => Possible::None,
        };
        (possible, self.lacks)
    }
}
