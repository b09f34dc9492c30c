//! Sessions of OpenCode: a folder of small JSON files, `session/PROJECT/SESSION.json`, `message/SESSION/*.json`
//! and `part/MESSAGE/*.json` (of old versions `part/*.json`). The session's own file is the one to name; the
//! others are read from the folders beside, a message at a time. A record is a file.
//!
//! The files are rewritten while the agent works. A message that the model is still writing, and all that
//! comes after it, is left for the next import; what changes later (the session's own file, the summary
//! of a message, the removal of an old output) is posted as frames of its own.

mod message;
mod tool;

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::message::{Message, Part};
use super::child::is_plain;
use super::conversation::{Conversation, cwd_payload, session as session_body};
use super::document;
use super::record::{self, Reading, Record, digest, raw_payload};
use super::request::{FrameRequest, Turn, key_part, label, labels};
use super::sample::Sample;
use super::text::counted_time;
use super::{
    Event, Format, ImportError, Notice, Opening, Sink, Tally, Transcript, read_whole, stem,
};

/// A session whose messages become frames one after the other.
struct Session {
    path: PathBuf,
    root: PathBuf,
    id: String,
    opening: Option<Opening>,
    /// The session's own file, until it is posted.
    own: Option<Record>,
    messages: VecDeque<PathBuf>,
    /// Files of parts that are in no folder of their message, by the message's id.
    flat: HashMap<String, Vec<PathBuf>>,
    conversation: Conversation,
    /// The calls that started sessions of children, by the children's ids.
    spawned: HashMap<String, String>,
    done: u64,
    total: u64,
    tally: Tally,
}

/// Whether the file is a session's own, or one of its messages or parts, which are refused with a word.
pub(super) fn fits(sample: &Sample) -> bool {
    sample
        .document
        .as_ref()
        .is_some_and(|document| is_session(document) || is_message(document) || is_part(document))
}

fn texts(document: &Value, names: &[&str]) -> bool {
    names
        .iter()
        .all(|name| document.get(name).is_some_and(Value::is_string))
}

fn is_session(document: &Value) -> bool {
    texts(document, &["id", "projectID", "directory"]) && document.get("time").is_some()
}

fn is_message(document: &Value) -> bool {
    texts(document, &["id", "sessionID", "role"]) && document.get("time").is_some()
}

fn is_part(document: &Value) -> bool {
    texts(document, &["id", "messageID", "type"])
}

/// Opens a session by its own file.
///
/// # Errors
/// The file cannot be read, or is not a session's own.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let (record, _) = document::read(path, Format::OpenCode)?;
    if !is_session(&record.value) {
        let why = "this is not a session's own file; name `session/PROJECT/ses_….json`, its messages and parts are read from the folders beside";
        return Err(Format::OpenCode.refused(path, why));
    }
    let id = record.value.get("id").and_then(Value::as_str);
    let id = id.unwrap_or_default().to_owned();
    let root = path.ancestors().nth(3).unwrap_or(Path::new("")).to_owned();
    let messages = match is_plain(&id) {
        true => json_files(&root.join("message").join(&id))?,
        false => Vec::new(),
    };
    Ok(Box::new(Session {
        path: path.to_owned(),
        opening: Some(opening(session.unwrap_or(&id), &record.value)),
        flat: flat_parts(&root.join("part"))?,
        root,
        id,
        own: Some(record),
        total: messages.len() as u64 + 1,
        messages: messages.into(),
        conversation: Conversation::default(),
        spawned: HashMap::new(),
        done: 0,
        tally: Tally::default(),
    }))
}

/// The folders of a session's messages and of their parts. The files of both are named by their ids.
pub(super) fn folders(path: &Path, session: Option<&str>) -> Vec<PathBuf> {
    let Some(id) = session.filter(|id| is_plain(id)) else {
        return Vec::new();
    };
    let root = path.ancestors().nth(3).unwrap_or(Path::new(""));
    let messages = root.join("message").join(id);
    let parts = root.join("part");
    let mut folders = Vec::new();
    let mut flat = false;
    // What cannot be read is told by the reading.
    for message in json_files(&messages).unwrap_or_default() {
        let own = parts.join(stem(&message));
        match own.is_dir() {
            true => folders.push(own),
            false => flat = true,
        }
    }
    folders.push(messages);
    folders.extend(flat.then_some(parts));
    folders
}

/// The request of the `session` frame, from members that do not change.
fn opening(name: &str, own: &Value) -> Opening {
    let mut body = session_body(Format::OpenCode, "opencode", Some(name), true);
    let members = [
        ("version", "agent_version"),
        ("projectID", "project"),
        ("parentID", "parent_session_id"),
    ];
    for (from, to) in members {
        if let Some(value) = own.get(from).and_then(label) {
            body.insert(to.into(), value);
        }
    }
    let cwd = own.get("directory").and_then(Value::as_str);
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    let created = own.pointer("/time/created").and_then(counted_time);
    Opening {
        key: format!("import/opencode/{}", key_part(name)),
        session: body,
        payloads: cwd_payload(cwd),
        occurred_at: created.and_then(|time| time.at),
    }
}

/// The JSON files in a folder, in the order of their names, which is that of time; none where there is no
/// such folder.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let io = |source| ImportError::Io {
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The parts that old versions put into one folder for all messages. Only their places are kept.
fn flat_parts(folder: &Path) -> Result<HashMap<String, Vec<PathBuf>>, ImportError> {
    let mut flat: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for file in json_files(folder)? {
        let sample = Sample::of(&file)?;
        let message = sample.member("messageID").and_then(Value::as_str);
        if let Some(message) = message {
            flat.entry(message.to_owned()).or_default().push(file);
        }
    }
    Ok(flat)
}

impl Transcript for Session {
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
            return Ok(true);
        }
        let mut tally = self.tally;
        let mut out = Sink::new(events, &mut tally);
        let more = if let Some(file) = self.messages.pop_front() {
            self.done += 1;
            self.message(&file, &mut out)?;
            true
        } else if let Some(own) = self.own.take() {
            self.done = self.total;
            out.record();
            out.frame(own_frame(own));
            self.children(&mut out)?;
            true
        } else {
            false
        };
        self.tally = tally;
        Ok(more)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    /// In messages: how long they are is not known before they are read.
    fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }
}

impl Session {
    fn message(&mut self, file: &Path, out: &mut Sink<'_>) -> Result<(), ImportError> {
        let last = self.messages.is_empty();
        let bytes = read_bytes(file)?;
        let info = match record::read(&bytes) {
            Reading::Record(info) => info,
            _ if last => {
                self.leave(file, bytes.len() as u64, out);
                return Ok(());
            }
            _ => {
                out.frame(self.torn(&format!("message/{}", key_part(&stem(file))), &bytes));
                self.tally_torn(file, out);
                return Ok(());
            }
        };
        let mut message = Message {
            key: format!("message/{}", key_part(&stem(file))),
            info,
            parts: Vec::new(),
        };
        for file in self.part_files(&message.info.value)? {
            let bytes = read_bytes(&file)?;
            let key = format!("{}/{}", message.key, key_part(&stem(&file)));
            match record::read(&bytes) {
                Reading::Record(record) => message.parts.push(Part { key, record }),
                _ if last => {
                    self.leave(&file, bytes.len() as u64, out);
                    return Ok(());
                }
                _ => {
                    out.frame(self.torn(&key, &bytes));
                    self.tally_torn(&file, out);
                }
            }
        }
        if message.is_growing() && !self.answered_later()? {
            self.leave(file, bytes.len() as u64, out);
            return Ok(());
        }
        for frame in message.frames(&mut self.conversation, &mut self.spawned, out) {
            out.frame(frame);
        }
        Ok(())
    }

    /// The files of a message's parts.
    fn part_files(&mut self, info: &Value) -> Result<Vec<PathBuf>, ImportError> {
        let id = info.get("id").and_then(Value::as_str).unwrap_or_default();
        let mut files = self.flat.remove(id).unwrap_or_default();
        if is_plain(id) {
            files.extend(json_files(&self.root.join("part").join(id))?);
        }
        Ok(files)
    }

    /// Whether the model answered after this message, so that this one grows no more: the next prompt
    /// may be there while the model still writes, the next answer not.
    fn answered_later(&self) -> Result<bool, ImportError> {
        for file in &self.messages {
            let sample = Sample::of(file)?;
            if sample.member("role").and_then(Value::as_str) == Some("assistant") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leaves this message, and all that come after it, for the next import.
    fn leave(&mut self, file: &Path, bytes: u64, out: &mut Sink<'_>) {
        self.messages.clear();
        out.left_out(bytes);
        let what = format!(
            "`{}` is still being written; it and what comes after it will be taken by the next import, when it is complete",
            stem(file)
        );
        out.unfinished(Notice {
            line: 0,
            offset: 0,
            what,
        });
    }

    /// A file that is no JSON object, as it is.
    fn torn(&self, key: &str, bytes: &[u8]) -> FrameRequest {
        let mut frame = self.conversation.classed("observation", "torn_file", key);
        frame.put("bytes", bytes.len());
        frame.attach(raw_payload(bytes));
        frame
    }

    fn tally_torn(&self, file: &Path, out: &mut Sink<'_>) {
        out.torn();
        let what = format!(
            "`{}` is no JSON object; it is kept as raw bytes",
            stem(file)
        );
        out.notice(Notice {
            line: 0,
            offset: 0,
            what,
        });
    }

    /// The sessions that this one started: those of the project that name it as their parent.
    fn children(&self, out: &mut Sink<'_>) -> Result<(), ImportError> {
        let Some(folder) = self.path.parent() else {
            return Ok(());
        };
        for file in json_files(folder)? {
            let sample = Sample::of(&file)?;
            let parent = sample.member("parentID").and_then(Value::as_str);
            let child = sample.member("id").and_then(Value::as_str);
            if let (Some(parent), Some(child)) = (parent, child)
                && parent == self.id
                && child != self.id
            {
                out.child(child, file.clone(), self.spawned.get(child).cloned());
            }
        }
        Ok(())
    }
}

fn read_bytes(file: &Path) -> Result<Vec<u8>, ImportError> {
    read_whole(file, document::FILE_BYTES)?.ok_or_else(|| {
        let why = format!("it is larger than {} MiB", document::FILE_BYTES >> 20);
        Format::OpenCode.refused(file, why)
    })
}

/// The session's own file. It changes while the agent works, and then is another frame.
fn own_frame(own: Record) -> FrameRequest {
    let key = format!("session/{}", digest(&own.value));
    let mut frame = FrameRequest::new("observation", key, Turn::Run);
    frame.class("session_summary");
    let changes = own.value.get("summary").map(labels);
    if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
        frame.put("changes", changes);
    }
    if let Some(time) = own.value.pointer("/time/updated").and_then(counted_time) {
        frame.at(&time);
    }
    own.leave_rest(&mut frame);
    frame
}
