//! Claude Code sessions: JSON lines, one record a line, appended while the agent works.
//!
//! Keys are made of line numbers, since the file only grows and its uuids may repeat (a resumed
//! session copies records). A subagent is a run of its own: its own file beside the session's, or, in
//! older sessions, records marked `isSidechain` between the others.

mod entry;
mod message;
mod thread;
mod tools;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::child::is_plain;
use super::conversation::cwd_payload;
use super::jsonl::{JsonLines, LineMapper};
use super::record::Record;
use super::request::{Turn, key_part, label, object};
use super::sample::{HEAD_LINES, Sample};
use super::text::{is_uuid, written_time};
use super::{Format, ImportError, MAPPING, Opening, Sink, Transcript, stem};
use thread::Threads;

/// Maps the lines of a session.
struct Session {
    path: PathBuf,
    threads: Threads,
    /// Subagents that a record named.
    named: HashSet<String>,
}

/// What the first record of a conversation says about its session.
struct Head {
    record: Value,
    agent: Option<String>,
    session: String,
}

/// Whether the file has a record of a Claude Code session among its first lines.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(entry::is_claude)
}

/// Opens a session's file and reads its head.
///
/// # Errors
/// The file cannot be read, or has no record of a conversation.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let head = Head::of(path, session)?;
    let opening = head.opening();
    let sidechain = entry::sidechain(&head.record).unwrap_or(false);
    let mapper = Session {
        path: path.to_owned(),
        threads: Threads::new(opening.key.clone(), head.session, sidechain),
        named: HashSet::new(),
    };
    Ok(Box::new(JsonLines::open(path, opening, mapper)?))
}

impl Head {
    /// A session is named by its file where the file has a session's name, and otherwise by its first
    /// record of a conversation: both stay what they are while the file grows.
    fn of(path: &Path, session: Option<&str>) -> Result<Self, ImportError> {
        let mut records = Sample::of(path)?.records.into_iter();
        let record = records.find(entry::is_conversation).ok_or_else(|| {
            Format::ClaudeCode.refused(path, format!("no record of a conversation (user, assistant, system, attachment) in its first {HEAD_LINES} lines; if the session has just begun, import it later"))
        })?;
        let text = |member: &str| {
            record
                .get(member)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let stem = stem(path);
        let parent = parent_session(path);
        let agent = stem
            .strip_prefix("agent-")
            .map(|id| text("agentId").unwrap_or_else(|| id.to_owned()));
        let session = match session {
            Some(named) => named.to_owned(),
            None if is_uuid(&stem) => stem,
            None => parent.or_else(|| text("sessionId")).unwrap_or(stem),
        };
        Ok(Self {
            agent,
            session,
            record,
        })
    }

    fn opening(&self) -> Opening {
        let mut key = format!("import/claude-code/{}", key_part(&self.session));
        if let Some(agent) = &self.agent {
            key.push_str(&format!("/agent/{}", key_part(agent)));
        }
        opening(key, &self.session, self.agent.as_deref(), &self.record)
    }
}

/// The session whose subagents' folder the file is in: `SESSION/subagents/agent-ID.jsonl`.
fn parent_session(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    if folder.file_name()? != "subagents" {
        return None;
    }
    Some(folder.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// The `session` frame's request, from the first record of a thread.
fn opening(key: String, session: &str, agent: Option<&str>, first: &Value) -> Opening {
    let mut body = Map::new();
    body.insert("agent".into(), "claude-code".into());
    body.insert("profile".into(), "coding".into());
    for (member, id) in [("session_id", Some(session)), ("agent_id", agent)] {
        if let Some(id) = id.and_then(|id| label(&id.into())) {
            body.insert(member.into(), id);
        }
    }
    let pairs = [
        ("version", "agent_version"),
        ("entrypoint", "entrypoint"),
        ("attributionAgent", "agent_type"),
    ];
    for (from, to) in pairs {
        if let Some(value) = first.get(from).and_then(label) {
            body.insert(to.into(), value);
        }
    }
    if let Some(branch) = first.get("gitBranch").and_then(label) {
        body.insert(
            "pins".into(),
            object([("repository", object([("branch", branch)]))]),
        );
    }
    body.insert(
        "imported".into(),
        object([
            ("format", "claude-code".into()),
            ("importer", MAPPING.into()),
        ]),
    );
    body.insert("order".into(), "transcript".into());
    body.insert("times".into(), "writer".into());
    let cwd = first
        .get("cwd")
        .and_then(Value::as_str)
        .filter(|cwd| !cwd.is_empty());
    Opening {
        key,
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: first
            .get("timestamp")
            .and_then(Value::as_str)
            .and_then(written_time)
            .and_then(|time| time.at),
    }
}

impl LineMapper for Session {
    fn map(&mut self, line: u64, record: Record, out: &mut Sink<'_>) {
        let thread = self.threads.place(&record.value, line, out);
        let mapped = entry::map(line, record, self.threads.thread(thread));
        if mapped.unmapped {
            out.unmapped();
        }
        if let Some((agent, call)) = mapped.subagent
            && let Some(file) = subagent_file(&self.path, &agent)
        {
            out.child(agent.clone(), file, call);
            self.named.insert(agent);
        }
        for frame in mapped.frames {
            out.frame_of(thread, frame);
        }
    }

    fn turn(&self) -> Turn {
        self.threads.turn()
    }

    /// The subagents beside a session that none of its records names.
    fn beside(&mut self, out: &mut Sink<'_>) {
        for (agent, file) in subagent_files(&self.path) {
            if !self.named.contains(&agent) {
                out.child(agent, file, None);
            }
        }
    }
}

/// The files of the session's subagents, beside its own: `SESSION/subagents/agent-ID.jsonl`, with their
/// ids, in the order of their names.
fn subagent_files(session_file: &Path) -> Vec<(String, PathBuf)> {
    let folder = session_file.with_extension("").join("subagents");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?;
            let id = name.strip_prefix("agent-")?.strip_suffix(".jsonl")?;
            Some((id.to_owned(), path.clone()))
        })
        .collect();
    files.sort();
    files
}

/// The file of a subagent that a session, or another subagent of it, names.
fn subagent_file(path: &Path, agent: &str) -> Option<PathBuf> {
    // The id comes from a transcript: it names a file of these folders and no other.
    if !is_plain(agent) {
        return None;
    }
    let name = format!("agent-{agent}.jsonl");
    let beside = path.parent()?;
    // Versions before 2.1 put subagents beside their sessions, without a folder of their own.
    let folders = [path.with_extension("").join("subagents"), beside.to_owned()];
    folders
        .into_iter()
        .map(|folder| folder.join(&name))
        .find(|file| file.is_file())
}
