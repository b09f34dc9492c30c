//! Transcripts of Antigravity: JSON lines, one step a line; or one Markdown file that it wrote as an
//! artifact of its work (a plan, a list of tasks, a walkthrough).
//!
//! Calls have no ids and steps do not name the call that they answer: they are not linked to one another.

use std::path::Path;

use onrecord_core::digest::Hash;
use serde_json::Value;

use super::blocks::type_of;
use super::conversation::{Conversation, session as session_body};
use super::document::{Document, FILE_BYTES, Parts};
use super::jsonl::{JsonLines, LineMapper, key};
use super::payload::Payload;
use super::record::{Record, extract, extract_all, post};
use super::request::{FrameRequest, Turn, key_part};
use super::sample::Sample;
use super::text::{is_uuid, written_time};
use super::{Format, ImportError, Opening, Sink, Transcript, read_whole, stem};

/// Steps that are what a tool gave back, and are named after it.
const TOOLS: [&str; 19] = [
    "CODEBASE_SEARCH",
    "COMMAND_STATUS",
    "FIND",
    "GENERATE_IMAGE",
    "GENERIC",
    "GREP_SEARCH",
    "LIST_DIRECTORY",
    "LIST_RESOURCES",
    "MCP_TOOL",
    "OPEN_BROWSER_URL",
    "READ_RESOURCE",
    "READ_TERMINAL",
    "READ_URL_CONTENT",
    "RUN_COMMAND",
    "SEND_COMMAND_INPUT",
    "VIEW_CODE_ITEM",
    "VIEW_CONTENT_CHUNK",
    "VIEW_FILE",
    "VIEW_FILE_OUTLINE",
];

/// Maps the lines of a transcript.
#[derive(Default)]
struct Steps(Conversation);

/// A Markdown artifact, until it is posted.
struct Artifact(Option<FrameRequest>);

/// Whether the file has steps, or is Markdown in a folder of Antigravity: such a file says nothing of
/// where it comes from.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.records.iter().any(is_step) || is_artifact(&sample.path) && !sample.text.is_empty()
}

fn is_step(record: &Value) -> bool {
    let shouted = |word: &str| {
        let letter = |one: char| one.is_ascii_uppercase() || one == '_';
        !word.is_empty() && word.chars().all(letter)
    };
    let source = record.get("source").and_then(Value::as_str);
    record.get("step_index").is_some_and(Value::is_number)
        && source.is_some_and(shouted)
        && shouted(type_of(record))
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

fn is_artifact(path: &Path) -> bool {
    let mut parts = path.components();
    is_markdown(path)
        && parts.any(|part| part.as_os_str().to_string_lossy().contains("antigravity"))
}

/// Opens a transcript or an artifact.
///
/// # Errors
/// The file cannot be read, or is neither.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if let Some(first) = sample.records.iter().find(|record| is_step(record)) {
        let mut opening = opening(path, session, "transcript", true);
        let time = first.get("created_at").and_then(Value::as_str);
        opening.occurred_at = time.and_then(written_time).and_then(|time| time.at);
        let lines = JsonLines::open(path, opening, Steps::default())?;
        return Ok(Box::new(lines));
    }
    if !is_markdown(path) {
        let why = "no line among the first is a step (`step_index`, `source`, `type`), and it is no Markdown file";
        return Err(Format::Antigravity.refused(path, why));
    }
    let Some(bytes) = read_whole(path, FILE_BYTES)? else {
        let why = format!("it is larger than {} MiB", FILE_BYTES >> 20);
        return Err(Format::Antigravity.refused(path, why));
    };
    let opening = opening(path, session, "", false);
    let length = bytes.len() as u64;
    let artifact = Artifact(Some(artifact(&stem(path), bytes)));
    Ok(Box::new(Document::new(length, opening, artifact)))
}

/// Names the session by the folder with a session's name that the file is in, and the file in it unless
/// it is the one called `plain`.
fn opening(path: &Path, session: Option<&str>, plain: &str, times: bool) -> Opening {
    let folders = path.ancestors().skip(1);
    let mut names = folders.filter_map(|folder| folder.file_name()?.to_str());
    let folder = names.find(|name| is_uuid(name));
    let file = stem(path);
    let name = session.map_or_else(|| folder.unwrap_or(&file).to_owned(), str::to_owned);
    let mut key = format!("import/antigravity/{}", key_part(&name));
    if session.is_none() && folder.is_some() && file != plain {
        key.push_str(&format!("/file/{}", key_part(&file)));
    }
    Opening {
        key,
        session: session_body(Format::Antigravity, "antigravity", Some(&name), times),
        payloads: Vec::new(),
        occurred_at: None,
    }
}

/// The one frame of an artifact. The file is written anew as a whole: another text is another frame.
fn artifact(name: &str, bytes: Vec<u8>) -> FrameRequest {
    let key = format!("artifact/{}", &Hash::of(&[&bytes]).hex()[..16]);
    let (kind, class, payload) = match name {
        "implementation_plan" => ("decision", "plan", "plan"),
        "task" => ("observation", "task_list", "text"),
        "walkthrough" => ("observation", "walkthrough", "text"),
        _ => ("observation", "artifact", "text"),
    };
    let mut frame = FrameRequest::new(kind, key, Turn::Run);
    frame.class(class);
    frame.put("speaker", "model");
    let media = "text/markdown; charset=utf-8";
    frame.attach(match String::from_utf8(bytes) {
        Ok(text) => Payload::text_as(payload, text, Some(media)),
        Err(error) => Payload::bytes(payload, error.into_bytes(), None),
    });
    frame
}

impl Parts for Artifact {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let Some(frame) = self.0.take() else {
            return false;
        };
        out.record();
        out.frame(frame);
        true
    }

    fn progress(&self) -> (usize, usize) {
        (usize::from(self.0.is_none()), 1)
    }
}

impl LineMapper for Steps {
    fn map(&mut self, line: u64, mut record: Record, out: &mut Sink<'_>) {
        let time = record.value.get("created_at").and_then(Value::as_str);
        self.0.at(time.and_then(written_time));
        let mut frames = self
            .known(&key(line), &mut record)
            .unwrap_or_else(|| self.0.unmapped(key(line), out));
        frames[0].copy(&record.value, "step_index", "step");
        post(record, frames, out);
    }

    fn turn(&self) -> Turn {
        self.0.turn()
    }
}

impl Steps {
    /// The frames of a step of a known type. None of them is empty.
    fn known(&mut self, key: &str, record: &mut Record) -> Option<Vec<FrameRequest>> {
        let strict = record.strict();
        let value = &mut record.value;
        let kind = type_of(value).to_owned();
        let (mut frame, name) = match kind.as_str() {
            "USER_INPUT" => (self.0.prompt(key), "prompt"),
            "PLANNER_RESPONSE" | "GENERATE_RESPONSE" => {
                return Some(self.answer(key, value, strict));
            }
            "NOTIFY_USER" => (self.0.answer(key), "text"),
            "CONVERSATION_HISTORY"
            | "EPHEMERAL_MESSAGE"
            | "KNOWLEDGE_ARTIFACTS"
            | "SYSTEM_MESSAGE" => (
                self.0.classed("context", &kind.to_ascii_lowercase(), key),
                "text",
            ),
            // What the model goes on with after the conversation was cut.
            "CHECKPOINT" => (self.0.classed("context", "compact_summary", key), "text"),
            "MEMORY" => (self.0.classed("memory", "written", key), "content"),
            "TASK_BOUNDARY" => (self.0.classed("observation", "task_boundary", key), "text"),
            "ERROR_MESSAGE" => (self.0.classed("observation", "error", key), "text"),
            "CODE_ACKNOWLEDGEMENT" => {
                let mut frame = self.0.classed("decision", "approval", key);
                frame.put("speaker", "user");
                (frame, "text")
            }
            "SEARCH_WEB" => {
                let mut frame = self.0.frame("retrieval", key);
                frame.put("retriever", "search_web");
                (frame, "chunks")
            }
            "CODE_ACTION" => return Some(self.code_action(key, value, strict)),
            tool if TOOLS.contains(&tool) || tool.starts_with("BROWSER_") => {
                (self.result(key, tool, value), "result")
            }
            _ => return None,
        };
        if let Some(content) = value.get_mut("content") {
            extract(content, &mut frame, name, strict);
        }
        Some(vec![frame])
    }

    fn answer(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut answer = self.0.answer(key);
        extract_all(
            value,
            &[("thinking", "thinking"), ("content", "text")],
            &mut answer,
            strict,
        );
        let mut frames = vec![answer];
        let calls = value.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, block) in calls.into_iter().flatten().enumerate() {
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            let name = block.get("name").cloned();
            let key_of_call = format!("{key}/call/{}", index + 1);
            let mut call = self.0.call(key_of_call, id.as_deref(), name.as_ref());
            call.link("derived_from", key);
            extract_all(block, &[("args", "arguments")], &mut call, strict);
            frames.push(call);
        }
        frames
    }

    /// What a tool gave back. That a step is done does not say that it went well.
    fn result(&mut self, key: &str, tool: &str, value: &Value) -> FrameRequest {
        let (mut frame, _) = self.0.result(key, None);
        frame.put("name", tool.to_ascii_lowercase());
        let content = value.get("content").and_then(Value::as_str).unwrap_or("");
        let step = value.get("status").and_then(Value::as_str).unwrap_or("");
        // A command's step begins with how it went; the time of it may come before.
        let said = |words: &str| {
            tool == "RUN_COMMAND"
                && content
                    .lines()
                    .take(4)
                    .any(|line| line.trim().starts_with(words))
        };
        if step == "ERROR" || said("The command failed") {
            frame.put("status", "error");
        } else if said("The command completed successfully") {
            frame.put("status", "ok");
        }
        frame
    }

    /// A change of a file, and the version of the file that the step says it made.
    fn code_action(&mut self, key: &str, value: &mut Value, strict: bool) -> Vec<FrameRequest> {
        let mut frame = self.result(key, "CODE_ACTION", value);
        let content = value.get("content").and_then(Value::as_str).unwrap_or("");
        let changed = content.lines().find_map(changed_file);
        let changed = changed.filter(|_| frame.body.get("status") != Some(&"error".into()));
        if changed.is_some() {
            frame.put("status", "ok");
        }
        extract_all(value, &[("content", "result")], &mut frame, strict);
        let version = changed.map(|(path, change)| {
            self.0
                .file_version(format!("{key}/file"), &path, change, key)
        });
        [frame].into_iter().chain(version).collect()
    }
}

/// The file that a line of a code action says was changed, and how.
fn changed_file(line: &str) -> Option<(String, &'static str)> {
    let (rest, change) = if let Some(rest) = line.strip_prefix("Created file ") {
        (rest.split(" with requested content").next()?, "create")
    } else if line.starts_with("The following changes were made") {
        (line.split_once(" to: ")?.1, "update")
    } else {
        return None;
    };
    let path = rest.trim().trim_start_matches("file://");
    let path = path.split(". If relevant").next()?.trim_end_matches('.');
    (!path.is_empty()).then(|| (path.to_owned(), change))
}
