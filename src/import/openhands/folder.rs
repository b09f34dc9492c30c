//! The folder of a conversation: its events one a file, and with the SDK its state beside them.
//!
//! The SDK's is named by `base_state.json`, the older server's by its first event; the other files are read
//! along, and refused where they are named.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::history::History;
use super::sdk::ended;
use crate::import::conversation::{self, cwd_payload};
use crate::import::document::{self, FILE_BYTES};
use crate::import::payload::Payload;
use crate::import::record::{self, Reading, Record};
use crate::import::request::{FrameRequest, Turn, key_part};
use crate::import::{
    Event, Format, ImportError, Notice, Opening, Sink, Tally, Transcript, read_whole,
};

/// The name of the file with a conversation's state.
const STATE: &str = "base_state.json";

/// Reads a folder, an event's file after the other.
struct Folder {
    opening: Option<Opening>,
    files: VecDeque<(u64, PathBuf)>,
    /// The number that the next file should have.
    next: u64,
    state: Option<Record>,
    history: History,
    total: u64,
    tally: Tally,
}

/// Whether this is the state of a conversation.
pub(super) fn is_state(document: &Value) -> bool {
    let member = |name: &str| document.get(name).is_some();
    document.get("id").is_some_and(Value::is_string)
        && document.get("agent").is_some_and(Value::is_object)
        && document.get("workspace").is_some_and(Value::is_object)
        && (member("execution_status") || member("agent_status") || member("persistence_dir"))
}

/// Whether the file has the name and the place of an event's.
pub(super) fn is_event_file(path: &Path) -> bool {
    path.parent()
        .and_then(Path::file_name)
        .is_some_and(|name| name == "events")
        && number(path).is_some()
}

/// The folder of the events that are read with this file, which is a conversation's state or first event.
pub(super) fn events_of(path: &Path) -> Option<PathBuf> {
    if path.file_name().is_some_and(|name| name == STATE) {
        return Some(path.with_file_name("events"));
    }
    let parent = path.parent().filter(|_| is_event_file(path));
    parent.map(Path::to_owned)
}

/// Opens the folder of a conversation of the SDK by its state.
///
/// # Errors
/// The file or the folder beside it cannot be read.
pub(super) fn open_state(
    path: &Path,
    session: Option<&str>,
) -> Result<Box<dyn Transcript>, ImportError> {
    let (record, _) = document::read(path, Format::OpenHands)?;
    let id = record.value.get("id").and_then(Value::as_str);
    let name = session.or(id).unwrap_or_default().to_owned();
    let folder = path.with_file_name("events");
    let files = if folder.is_dir() {
        event_files(&folder)?
    } else {
        VecDeque::new()
    };
    let cwd = record
        .value
        .pointer("/workspace/working_dir")
        .and_then(Value::as_str);

    Ok(Folder::open(&name, cwd_payload(cwd), files, Some(record)))
}

/// Opens the folder of a conversation by its first event.
///
/// # Errors
/// Another file is the one to name, or the folder cannot be read.
pub(super) fn open_events(
    path: &Path,
    session: Option<&str>,
) -> Result<Box<dyn Transcript>, ImportError> {
    let refused = |why: String| Format::OpenHands.refused(path, why);
    let folder = path.parent().unwrap_or(Path::new(""));
    let conversation = folder.parent().unwrap_or(Path::new(""));
    let state = conversation.join(STATE);
    if state.is_file() {
        let why = format!(
            "this is one event of a conversation; name {} to import all of them",
            state.display()
        );
        return Err(refused(why));
    }
    let files = event_files(folder)?;
    match files.front() {
        Some((_, first)) if first.file_name() != path.file_name() => {
            let why = format!(
                "this is one event of a conversation; name its first one, {}, to import all of them",
                first.display()
            );
            return Err(refused(why));
        }
        _ => {}
    }
    let name = conversation
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = session.map(str::to_owned).or(name).unwrap_or_default();
    Ok(Folder::open(&name, Vec::new(), files, None))
}

/// The number in the name of an event's file: `7.json`, or `event-00007-ID.json`.
fn number(path: &Path) -> Option<u64> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".json")?;
    let digits = match stem.strip_prefix("event-") {
        Some(rest) => rest.split('-').next()?,
        None => stem,
    };
    digits.parse().ok()
}

/// The files of a folder's events, in the order of their numbers.
fn event_files(folder: &Path) -> Result<VecDeque<(u64, PathBuf)>, ImportError> {
    let io = |source| ImportError::Io {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if let Some(number) = number(&path) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files.into())
}

impl Folder {
    fn open(
        name: &str,
        payloads: Vec<Payload>,
        files: VecDeque<(u64, PathBuf)>,
        state: Option<Record>,
    ) -> Box<dyn Transcript> {
        let opening = Opening {
            key: format!("import/openhands/{}", key_part(name)),
            session: conversation::session(Format::OpenHands, "openhands", Some(name), true),
            payloads,
            occurred_at: None,
        };
        Box::new(Self {
            opening: Some(opening),
            total: files.len() as u64 + u64::from(state.is_some()),
            next: files.front().map_or(0, |(first, _)| *first),
            files,
            state,
            history: History::default(),
            tally: Tally::default(),
        })
    }

    fn file(
        &mut self,
        number: u64,
        path: &Path,
        events: &mut Vec<Event>,
    ) -> Result<(), ImportError> {
        let words = |what: String| Notice {
            line: number,
            offset: 0,
            what,
        };
        let notice = |what: String| Event::Notice(words(what));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if number > self.next {
            events.push(notice(format!(
                "before {name}, events from number {} on are missing",
                self.next
            )));
        }
        if number < self.next {
            // The key is the number's: a second file of it would be another event under the same key.
            events.push(notice(format!(
                "{name} has the number of the file before it; it is left out"
            )));
            return Ok(());
        }
        self.next = number.saturating_add(1);
        let Some(bytes) = read_whole(path, FILE_BYTES)? else {
            let why = format!("it is larger than {} MiB", FILE_BYTES >> 20);
            return Err(Format::OpenHands.refused(path, why));
        };
        let key = format!("event/{number}");
        match record::read(&bytes) {
            Reading::Record(record) => {
                self.tally.records += 1;
                let mut out = Sink::new(events, &mut self.tally);
                self.history.record(&key, record, &mut out);
            }
            // The writer may be in the middle of it.
            _ if self.files.is_empty() => {
                self.tally.left_out_bytes = bytes.len() as u64;
                let what = format!("{name} is no whole event yet; it is left out");
                events.push(Event::Unfinished(words(what)));
            }
            _ => {
                self.tally.torn += 1;
                events.push(notice(format!(
                    "{name} is no event; it is kept as raw bytes"
                )));
                let mut frame =
                    FrameRequest::new("observation", key, self.history.conversation.turn());
                frame.class("torn_file").put("bytes", bytes.len());
                frame.attach(Payload::bytes("raw", bytes, None));
                Sink::new(events, &mut self.tally).frame(frame);
            }
        }
        Ok(())
    }

    /// The state as it is now. It is written anew with each change, so that its key is made of what it is.
    fn state(&mut self, record: Record, events: &mut Vec<Event>) {
        self.tally.records += 1;
        let mut out = Sink::new(events, &mut self.tally);
        let state = &record.value;
        let key = format!("state/{}", record::digest(state));
        let status = ["execution_status", "agent_status"]
            .into_iter()
            .find_map(|member| state.get(member)?.as_str());
        let ended = status.and_then(ended).filter(|_| !self.history.ended);
        self.history.conversation.at(None);
        let mut frame = self
            .history
            .conversation
            .classed("snapshot", "conversation_state", &key);
        // Of no turn: while the state stays the same, the events that came before it may become more.
        frame.turn = Turn::Run;
        frame
            .copy(state, "execution_status", "status")
            .copy(state, "agent_status", "status");
        if let Some(llm) = state.pointer("/agent/llm") {
            for member in ["model", "temperature", "top_p", "seed"] {
                frame.copy(llm, member, member);
            }
            frame.copy(llm, "reasoning_effort", "effort");
        }
        record.leave_rest(&mut frame);
        out.frame(frame);
        if let Some(status) = ended {
            let mut outcome = self
                .history
                .conversation
                .frame("outcome", format!("{key}/outcome"));
            outcome.turn = Turn::Run;
            outcome.put("status", status).link("derived_from", key);
            out.frame(outcome);
        }
    }
}

impl Transcript for Folder {
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
        } else if let Some((number, path)) = self.files.pop_front() {
            self.file(number, &path, events)?;
        } else if let Some(state) = self.state.take() {
            self.state(state, events);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn progress(&self) -> (u64, u64) {
        let left = self.files.len() as u64 + u64::from(self.state.is_some());
        (self.total - left, self.total)
    }
}
