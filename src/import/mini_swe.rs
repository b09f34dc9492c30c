//! Trajectories of mini-swe-agent: one JSON object with `messages` and `info`, or, of the first versions,
//! the list of messages alone. It is written anew after each step.
//!
//! Its records are messages, and the other members of the file. An answer has its command in a block of
//! code, or as calls of a function; newer versions say beside it (`extra`) which commands were run. The
//! message after an answer shows what came of them. The first message of the user is the task, and opens
//! the only turn.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::{Map, Value};

use super::conversation::{self, Conversation, cwd_payload};
use super::document::{Document, FILE_BYTES, Parts};
use super::payload::Payload;
use super::record::{self, Reading, Record, extract};
use super::request::{FrameRequest, Turn, key_part, label, object};
use super::sample::Sample;
use super::swe::take_info;
use super::text::counted_time;
use super::{Format, ImportError, Opening, Sink, Transcript, read_whole, stem};

/// What the prompts of every version say that ends a run.
const ENDINGS: [&str; 2] = [
    "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    "MINI_SWE_AGENT_FINAL_OUTPUT",
];

/// Whether the file is a trajectory that says so, or a list of messages whose prompt is mini-swe-agent's.
pub(super) fn fits(sample: &Sample) -> bool {
    let Some(document) = &sample.document else {
        return false;
    };
    let format = document.get("trajectory_format").and_then(Value::as_str);
    if format.is_some_and(|format| format.starts_with("mini-swe-agent")) {
        return document.get("messages").is_some_and(Value::is_array);
    }
    let ours = ENDINGS
        .into_iter()
        .any(|ending| sample.text.contains(ending));
    let first = document.get(0).or_else(|| {
        let info = document.get("info")?.get("mini_version");
        info.and(document.pointer("/messages/0"))
    });
    ours && first.is_some_and(|first| role(first) == "system")
}

/// Reads a trajectory.
///
/// # Errors
/// The file cannot be read, is too large, or is no trajectory.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let format = Format::MiniSweAgent;
    let Some(bytes) = read_whole(path, FILE_BYTES)? else {
        let why = format!("it is larger than {} MiB", FILE_BYTES >> 20);
        return Err(format.refused(path, why));
    };
    let length = bytes.len() as u64;
    let alone = bytes.trim_ascii_start().starts_with(b"[");
    let reading = if alone {
        // The list alone is read as the object that later versions write.
        record::read(&[br#"{"messages":"#, bytes.as_slice(), b"}"].concat())
    } else {
        record::read(&bytes)
    };
    let mut file = match reading {
        Reading::Record(record) => record,
        Reading::Blank => return Err(format.refused(path, "it is empty")),
        Reading::Torn(why) => return Err(format.refused(path, why)),
    };
    let messages: VecDeque<Value> = match file.value.get_mut("messages").map(Value::take) {
        Some(Value::Array(messages)) => messages.into(),
        _ => return Err(format.refused(path, "it has no list of messages")),
    };
    file.value["messages"] = object([("$frames", "message".into())]);
    if file.raw.is_some() && alone {
        file.raw = Some(record::raw_payload(&bytes));
    }
    let parts = Trajectory {
        strict: file.strict(),
        settings: file
            .value
            .pointer("/info/config")
            .cloned()
            .unwrap_or_default(),
        alone,
        talk: Conversation::default(),
        calls: VecDeque::new(),
        done: 0,
        total: messages.len(),
        messages,
        rest: Some(file),
    };
    let name = session.map_or_else(|| name(path), str::to_owned);
    let opening = parts.opening(&name);
    Ok(Box::new(Document::new(length, opening, parts)))
}

/// The file's name without its endings.
fn name(path: &Path) -> String {
    let stem = stem(path);
    stem.strip_suffix(".traj")
        .map_or(stem.clone(), str::to_owned)
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or("")
}

/// What is left of a trajectory while its messages become frames.
struct Trajectory {
    /// The file without its messages.
    rest: Option<Record>,
    strict: bool,
    /// The file is the list of messages alone.
    alone: bool,
    /// What agent, model and environment were set to.
    settings: Value,
    messages: VecDeque<Value>,
    done: usize,
    total: usize,
    talk: Conversation,
    /// The last answer's calls that wait: their ids, where they have one, and keys.
    calls: VecDeque<(Option<String>, String)>,
}

impl Parts for Trajectory {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        if let Some(message) = self.messages.pop_front() {
            self.done += 1;
            out.record();
            for frame in self.message(message, out) {
                out.frame(frame);
            }
            return true;
        }
        match self.rest.take() {
            Some(rest) => self.end(rest, out),
            None => return false,
        }
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.done, self.total)
    }
}

impl Trajectory {
    /// The `session` frame's request: what stands in the file from its first step on.
    fn opening(&self, name: &str) -> Opening {
        let setting = |pointer: &str| self.settings.pointer(pointer).and_then(label);
        let format = Format::MiniSweAgent;
        let mut body = conversation::session(format, "mini-swe-agent", Some(name), !self.alone);
        let info = self.rest.as_ref().and_then(|rest| rest.value.get("info"));
        let version = info.and_then(|info| info.get("mini_version"));
        if let Some(version) = version.and_then(label) {
            body.insert("agent_version".into(), version);
        }
        let mut pins = Map::new();
        if let Some(image) = setting("/environment/image") {
            pins.insert("container".into(), object([("image", image)]));
        }
        let mut model = Map::new();
        for (pointer, name) in [
            ("/model/model_name", "name"),
            ("/model/model_kwargs/temperature", "temperature"),
            ("/model/model_kwargs/top_p", "top_p"),
        ] {
            model.extend(setting(pointer).map(|value| (name.to_owned(), value)));
        }
        if !model.is_empty() {
            pins.insert("model".into(), model.into());
        }
        if !pins.is_empty() {
            body.insert("pins".into(), pins.into());
        }
        let cwd = self
            .settings
            .pointer("/environment/cwd")
            .and_then(Value::as_str);
        let cwd = cwd.filter(|cwd| !cwd.is_empty());
        Opening {
            key: format!("import/mini-swe-agent/{}", key_part(name)),
            session: body,
            payloads: cwd_payload(cwd),
            occurred_at: None,
        }
    }

    fn message(&mut self, mut message: Value, out: &mut Sink<'_>) -> Vec<FrameRequest> {
        let key = format!("message/{}", self.done);
        let time = message
            .pointer("/extra/timestamp")
            .or_else(|| message.get("timestamp"));
        self.talk.at(time.and_then(counted_time));
        let output = message.get("output").is_some();
        let kind = message.get("type").and_then(Value::as_str).unwrap_or("");
        let (mut frames, place, name) = match role(&message) {
            "assistant" => self.answer(&key, &message),
            // Answers and results as the Responses API has them.
            "" if output && message.get("object").is_some() => self.answer(&key, &message),
            "" if output && kind.ends_with("call_output") => self.result(&key, &message),
            "tool" => self.result(&key, &message),
            "user" if self.talk.turn() == Turn::Run => {
                let mut frame = self.talk.prompt(&key);
                frame.put("prompt", "task");
                (vec![frame], 0, "prompt")
            }
            "user" if !self.calls.is_empty() => self.result(&key, &message),
            "exit" => {
                let mut frame = self.talk.classed("observation", "exit", &key);
                if let Some(extra) = message.get("extra") {
                    frame.copy(extra, "exit_status", "exit_status");
                }
                (vec![frame], 0, "text")
            }
            role @ ("system" | "user" | "developer") => {
                let class = if role == "user" {
                    "message"
                } else {
                    "system_prompt"
                };
                let mut frame = self.talk.classed("context", class, &key);
                frame.put("speaker", "program");
                (vec![frame], 0, "text")
            }
            _ => {
                out.unmapped();
                (
                    vec![self.talk.classed("observation", "unmapped", &key)],
                    0,
                    "text",
                )
            }
        };
        let members = [
            ("/content", name),
            ("/output", name),
            ("/reasoning_content", "thinking"),
            ("/extra/raw_output", "output"),
            ("/extra/exception_info", "error"),
            ("/extra/submission", "submission"),
            ("/extra/response", "response"),
        ];
        if let Some(frame) = frames.get_mut(place) {
            for (pointer, name) in members {
                if let Some(slot) = message.pointer_mut(pointer) {
                    extract(slot, frame, name, self.strict);
                }
            }
            frame.attach(Payload::json("record", &message, self.strict));
        }
        frames
    }

    /// An answer, with the call of the model before it and the calls of tools after it; says which
    /// frame is the answer's.
    fn answer(&mut self, key: &str, message: &Value) -> (Vec<FrameRequest>, usize, &'static str) {
        self.calls.clear();
        let response = message.pointer("/extra/response").unwrap_or(message);
        let setting = |pointer: &str| self.settings.pointer(pointer).and_then(label);
        let model = response.get("model").and_then(label);
        let model = model.or_else(|| setting("/model/model_name"));
        let mut answer = self.talk.answer(key);
        let mut frames = Vec::new();
        if let Some(model) = model {
            let mut call = self.talk.frame("model_call", format!("{key}/model"));
            call.put("model", model.clone())
                .put("revision", "not_identifiable");
            call.copy(response, "id", "response_id");
            if let Some(temperature) = setting("/model/model_kwargs/temperature") {
                call.put("temperature", temperature);
            }
            answer
                .put("model", model)
                .put("revision", "not_identifiable");
            answer.link("answers", call.key.clone());
            frames.push(call);
        }
        if let Some(reason) = response.pointer("/choices/0/finish_reason").and_then(label) {
            answer.put("finish_reason", reason);
        }
        answer
            .put_usage(response.get("usage"))
            .put_cost(message.pointer("/extra/cost"));
        let place = frames.len();
        frames.push(answer);
        for (index, (id, command)) in commands(message).into_iter().enumerate() {
            let call = format!("{key}/call/{}", index + 1);
            let mut call = self.talk.call(call, id.as_deref(), Some(&"bash".into()));
            call.link("derived_from", key);
            call.attach(Payload::text("arguments", command));
            self.calls.push_back((id, call.key.clone()));
            frames.push(call);
        }
        (frames, place, "text")
    }

    /// What came of a call: the one that the message names, or else the first that waits.
    fn result(&mut self, key: &str, message: &Value) -> (Vec<FrameRequest>, usize, &'static str) {
        let named = ["tool_call_id", "call_id"]
            .into_iter()
            .find_map(|name| message.get(name));
        let named = named.and_then(Value::as_str);
        let place = match named {
            Some(id) => self
                .calls
                .iter()
                .position(|(call, _)| call.as_deref() == Some(id)),
            None => Some(0),
        };
        let call = place.and_then(|place| self.calls.remove(place));
        let (id, call) = call.unzip();
        let id = named.map(str::to_owned).or(id.flatten());
        let (mut frame, known) = self.talk.result(key, id.as_deref());
        if let Some(call) = call.filter(|_| known.is_none()) {
            frame.link("answers", call).put("name", "bash");
        }
        let told = message.pointer("/extra/returncode").and_then(Value::as_i64);
        let text = message.get("content").or_else(|| message.get("output"));
        let shown = text.and_then(Value::as_str).and_then(|text| {
            let text = text.strip_prefix("<returncode>")?;
            text.split_once("</returncode>")?.0.trim().parse().ok()
        });
        if let Some(exit) = told.or(shown) {
            frame
                .put("exit", exit)
                .put("status", if exit == 0 { "ok" } else { "error" });
        }
        (vec![frame], 0, "result")
    }

    /// How it ended, where the file says so, and its other members.
    fn end(&mut self, mut rest: Record, out: &mut Sink<'_>) {
        if self.alone && rest.strict() {
            return;
        }
        self.talk.at(None);
        let names = rest.value.as_object().map(Map::keys).into_iter().flatten();
        for name in names.filter(|name| *name != "messages") {
            out.record();
            if !["info", "trajectory_format", "instance_id"].contains(&name.as_str()) {
                out.unmapped();
            }
        }
        let status = rest
            .value
            .pointer("/info/exit_status")
            .and_then(Value::as_str);
        let mut frame = match status.filter(|status| !status.is_empty()) {
            Some(status) => {
                let mut frame = FrameRequest::new("outcome", "outcome", Turn::Run);
                frame.put("status", outcome(status));
                frame
            }
            // Not ended yet: a later import of the longer trajectory adds another.
            None => {
                let key = format!("file/{}", record::digest(&rest.value));
                let mut frame = FrameRequest::new("observation", key, Turn::Run);
                frame.class("trajectory");
                frame
            }
        };
        if let Some(info) = rest.value.get_mut("info") {
            take_info(info, &mut frame, self.strict);
        }
        rest.leave_rest(&mut frame);
        out.frame(frame);
    }
}

/// The format's word for how mini-swe-agent ended.
fn outcome(exit: &str) -> &'static str {
    match exit {
        "Submitted" => "completed",
        exit if exit.contains("Interrupt") || exit.contains("Cancel") => "cancelled",
        _ => "failed",
    }
}

/// The commands that an answer asks for, with the ids of the calls: as the file says them, or else as the
/// answer has them. What has no block of a command, or several, was not run.
fn commands(message: &Value) -> Vec<(Option<String>, String)> {
    let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
    let list = |pointer: &str| message.pointer(pointer).and_then(Value::as_array);
    if let Some(actions) = list("/extra/actions") {
        let action =
            |action: &Value| Some((text(action, "tool_call_id"), text(action, "command")?));
        return actions.iter().filter_map(action).collect();
    }
    if let Some(calls) = list("/tool_calls") {
        let call =
            |call: &Value| Some((text(call, "id"), text(call.get("function")?, "arguments")?));
        return calls.iter().filter_map(call).collect();
    }
    let content = message.get("content").and_then(Value::as_str).unwrap_or("");
    let mut blocks = Vec::new();
    for start in ["```mswea_bash_command\n", "```bash\n"] {
        let mut rest = content;
        while let Some((block, after)) = rest
            .split_once(start)
            .and_then(|(_, rest)| rest.split_once("\n```"))
        {
            blocks.push((None, block.to_owned()));
            rest = after;
        }
    }
    if blocks.len() == 1 {
        blocks
    } else {
        Vec::new()
    }
}
