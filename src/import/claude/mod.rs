//! Claude Code sessions: JSON lines, one record a line, appended while the agent works.
//!
//! Keys are made of line numbers, since the file only grows and its uuids may repeat (a resumed
//! session copies records). A subagent is a run of its own: its own file beside the session's, or, in
//! older sessions, records marked `isSidechain` between the others.

mod entry;
mod message;
mod thread;
mod tools;

use std::fs::File;
use std::io::{BufReader, Read as _, Take};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::lines::{Line, Lines};
use super::payload::Payload;
use super::record::{self, Reading, Record};
use super::request::{FrameRequest, Link, Turn, key_part, label, object};
use super::text::{is_uuid, written_time};
use super::{Event, Format, ImportError, MAPPING, Notice, Opening, Tally, open_file, stem};
use thread::Threads;

/// Lines that are looked through for the head of a session.
const HEAD_LINES: usize = 1_000;
/// Bytes of them.
const HEAD_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a session line by line.
pub struct ClaudeReader {
    path: PathBuf,
    lines: Lines<BufReader<Take<File>>>,
    length: u64,
    opening: Option<Opening>,
    threads: Threads,
    tally: Tally,
}

/// What the first record of a conversation says about its session.
struct Head {
    record: Value,
    agent: Option<String>,
    session: String,
}

/// Whether the file has a record of a Claude Code session among its first lines.
pub(super) fn fits(path: &Path) -> Result<bool, ImportError> {
    Ok(head_record(path, entry::is_claude)?.is_some())
}

/// The first record of the head of the file that the question is true of.
fn head_record(path: &Path, wanted: impl Fn(&Value) -> bool) -> Result<Option<Value>, ImportError> {
    let (file, _) = open_file(path)?;
    let mut lines = Lines::new(BufReader::new(file.take(HEAD_BYTES)));
    for _ in 0..HEAD_LINES {
        let line = lines.read().map_err(|source| ImportError::Io {
            path: path.to_owned(),
            source,
        })?;
        let Some(line) = line else { break };
        if let Reading::Record(record) = record::read(&line.bytes)
            && wanted(&record.value)
        {
            return Ok(Some(record.value));
        }
    }
    Ok(None)
}

impl Head {
    /// A session is named by its file where the file has a session's name, and otherwise by its first
    /// record of a conversation: both stay what they are while the file grows.
    fn of(path: &Path, session: Option<&str>) -> Result<Self, ImportError> {
        let record = head_record(path, entry::is_conversation)?.ok_or_else(|| {
            ImportError::NotThisFormat {
                path: path.to_owned(),
                format: Format::ClaudeCode,
                why: format!("no record of a conversation (user, assistant, system, attachment) in its first {HEAD_LINES} lines; if the session has just begun, import it later"),
            }
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
        payloads: cwd
            .map(|cwd| Payload::text("cwd", cwd.to_owned()))
            .into_iter()
            .collect(),
        occurred_at: first
            .get("timestamp")
            .and_then(Value::as_str)
            .and_then(written_time)
            .map(|time| time.at),
    }
}

impl ClaudeReader {
    /// Opens a session's file and reads its head.
    ///
    /// # Errors
    /// The file cannot be read, or has no record of a conversation.
    pub fn open(path: &Path, session: Option<&str>) -> Result<Self, ImportError> {
        let head = Head::of(path, session)?;
        let (file, length) = open_file(path)?;
        // What is appended while this reads is left for the next import.
        let lines = Lines::new(BufReader::with_capacity(256 * 1024, file.take(length)));
        let opening = head.opening();
        let sidechain = entry::sidechain(&head.record).unwrap_or(false);
        Ok(Self {
            path: path.to_owned(),
            lines,
            length,
            threads: Threads::new(opening.key.clone(), head.session, sidechain),
            opening: Some(opening),
            tally: Tally::default(),
        })
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes read, and bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.lines.position(), self.length)
    }

    /// Reads the next line and adds its events. `false` at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
            return Ok(true);
        }
        let line = self.lines.read().map_err(|source| ImportError::Io {
            path: self.path.clone(),
            source,
        })?;
        let Some(line) = line else { return Ok(false) };
        if line.piece.is_some() {
            self.keep_torn(
                &line,
                "the line is longer than the 64 MiB that are read at once",
                events,
            );
            return Ok(true);
        }
        match record::read(&line.bytes) {
            Reading::Blank => {}
            Reading::Record(record) => self.map(&line, record, events),
            // The writer may be in the middle of this line: with its end it may be a good record.
            Reading::Torn(_) if !line.ended => {
                self.tally.left_out_bytes = line.bytes.len() as u64;
                events.push(Event::Notice(Notice {
                    line: line.number,
                    offset: line.offset,
                    what: "the last line is cut off; it is left out and will be taken by the next import, when it is complete".to_owned(),
                }));
            }
            Reading::Torn(why) => self.keep_torn(&line, &why, events),
        }
        Ok(true)
    }

    fn map(&mut self, line: &Line, record: Record, events: &mut Vec<Event>) {
        self.tally.records += 1;
        let thread = self.threads.place(&record.value, line.number, events);
        let mapped = entry::map(line.number, record, self.threads.thread(thread));
        self.tally.unmapped += u64::from(mapped.unmapped);
        if let Some((agent, call)) = mapped.subagent {
            events.push(Event::Subagent { agent, call });
        }
        let frames = mapped.frames.into_iter().flat_map(FrameRequest::fitted);
        events.extend(frames.map(|frame| Event::Frame { thread, frame }));
    }

    /// Keeps a line that is no record as it is. Nothing is read out of it: half of one record glued
    /// to another would be an invention.
    fn keep_torn(&mut self, line: &Line, why: &str, events: &mut Vec<Event>) {
        let first = line.piece.is_none_or(|piece| piece == 1);
        if first {
            self.tally.torn += 1;
            events.push(Event::Notice(Notice {
                line: line.number,
                offset: line.offset,
                what: format!("{why}; the line is kept as raw bytes"),
            }));
        }
        let key = match line.piece {
            None | Some(1) => format!("line/{}", line.number),
            Some(piece) => format!("line/{}/piece/{piece}", line.number),
        };
        let mut frame = FrameRequest::new("observation", key, self.threads.thread(0).turn());
        frame
            .put("observation", "torn_line")
            .put("line", line.number)
            .put("offset", line.offset)
            .put("bytes", line.bytes.len());
        if let Some(piece) = line.piece {
            frame.put("piece", piece);
        }
        frame.attach(Payload::bytes("raw", line.bytes.clone(), None));
        let frames = frame.fitted().into_iter();
        events.extend(frames.map(|frame| Event::Frame { thread: 0, frame }));
    }
}

/// The frame of a subagent's run that says where it came from. `label` is the key of the call that
/// started it, or `session` where that is not known; a later import that knows more adds another.
pub fn spawned_by(label: &str, parent: Link) -> FrameRequest {
    let mut frame = FrameRequest::new("observation", format!("spawned-by/{label}"), Turn::Run);
    frame.put("observation", "spawned_by");
    frame.links.push(parent);
    frame
}

/// The frame of the parent's run that points to a subagent's run.
pub fn subagent_run(agent: &str, call: Option<&str>, child: Link) -> FrameRequest {
    let from = call.unwrap_or("session");
    let key = format!("subagent/{}/{from}", key_part(agent));
    let mut frame = FrameRequest::new("observation", key, Turn::Run);
    frame.put("observation", "subagent_run");
    if let Some(id) = label(&agent.into()) {
        frame.put("agent_id", id);
    }
    frame.links.push(child);
    if let Some(call) = call {
        frame.link("derived_from", call);
    }
    frame
}

/// The files of the session's subagents, beside its own: `SESSION/subagents/agent-ID.jsonl`, with their
/// ids, in the order of their names.
pub fn subagent_files(session_file: &Path) -> Vec<(String, PathBuf)> {
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

/// Whether the file is a subagent's own.
pub fn is_subagent_file(path: &Path) -> bool {
    stem(path).starts_with("agent-")
}
