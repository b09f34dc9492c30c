//! The conversations in one file: the file's own, and those of subagents that older versions of
//! Claude Code wrote between its records (`isSidechain`).

use std::collections::HashMap;

use serde_json::Value;

use super::entry::sidechain;
use super::opening;
use crate::import::Sink;
use crate::import::child::linked;
use crate::import::recent::Recent;
use crate::import::request::{Turn, key_part};

/// A tool call whose result has not come yet.
pub(super) struct Call {
    /// The key of its `tool_call` frame.
    pub key: String,
    /// The tool's name.
    pub tool: Option<String>,
    /// What a subagent was told, where the call starts one.
    pub prompt: Option<String>,
}

/// What later records of a conversation refer back to.
#[derive(Default)]
pub(super) struct Thread {
    /// Whether a turn is open.
    pub turn_open: bool,
    /// The model's message that is being written: its id and the key of its `model_call` frame. One
    /// message of the model is spread over several records.
    pub message: Option<(String, String)>,
    /// Calls without a result, by their id.
    pub calls: Recent<Call>,
    /// The last version of each file, by its path.
    pub files: HashMap<String, String>,
}

impl Thread {
    /// The turn of the next frame.
    pub fn turn(&self) -> Turn {
        if self.turn_open {
            Turn::Open
        } else {
            Turn::Run
        }
    }
}

/// All conversations of a file; number 0 is the file's own.
pub(super) struct Threads {
    key: String,
    session: String,
    /// The file is itself a subagent's: all of it is one conversation.
    sidechain: bool,
    threads: Vec<Thread>,
    /// Threads by the uuid of their records, or by their agent's id.
    by_id: HashMap<String, usize>,
}

impl Threads {
    pub fn new(key: String, session: String, sidechain: bool) -> Self {
        Self {
            key,
            session,
            sidechain,
            threads: vec![Thread::default()],
            by_id: HashMap::new(),
        }
    }

    /// The turn of the file's own conversation.
    pub fn turn(&self) -> Turn {
        self.threads[0].turn()
    }

    pub fn thread(&mut self, index: usize) -> &mut Thread {
        &mut self.threads[index]
    }

    /// The thread of a record. A subagent's first record opens a run, linked both ways.
    pub fn place(&mut self, record: &Value, line: u64, out: &mut Sink<'_>) -> usize {
        if self.sidechain || sidechain(record) != Some(true) {
            return 0;
        }
        let text = |member: &str| record.get(member).and_then(Value::as_str);
        let agent = text("agentId");
        let uuid = text("uuid");
        let known = match agent {
            Some(agent) => self.by_id.get(agent).copied(),
            None => text("parentUuid").and_then(|parent| self.by_id.get(parent).copied()),
        };
        let thread = known.unwrap_or_else(|| {
            let name = agent.map_or_else(|| format!("line/{line}"), key_part);
            self.open(&name, agent, record, out)
        });
        for id in [agent, uuid].into_iter().flatten() {
            self.by_id.insert(id.to_owned(), thread);
        }
        thread
    }

    fn open(
        &mut self,
        name: &str,
        agent: Option<&str>,
        record: &Value,
        out: &mut Sink<'_>,
    ) -> usize {
        let thread = self.threads.len();
        self.threads.push(Thread::default());
        let key = format!("{}/sidechain/{name}", self.key);
        let opening = opening(key, &self.session, agent, record);
        out.open(thread, opening);
        // The call that started it is known by what it told the subagent, where just one call did.
        let prompt = record.pointer("/message/content").and_then(Value::as_str);
        let mut callers = self.threads[0]
            .calls
            .values()
            .filter(|call| prompt.is_some() && call.prompt.as_deref() == prompt);
        let call = match (callers.next(), callers.next()) {
            (Some(call), None) => Some(call.key.clone()),
            _ => None,
        };
        let (up, down) = linked(0, thread, name, call.as_deref());
        out.frame_of(thread, up);
        out.frame(down);
        thread
    }
}
