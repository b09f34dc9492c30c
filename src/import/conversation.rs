//! What the conversations of all formats have in common: the open turn, calls that wait for their
//! results, versions of files, and the time of the record that is being mapped.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::payload::Payload;
use super::recent::Recent;
use super::request::{FrameRequest, Turn, label, object};
use super::text::{Written, is_label};
use super::{Format, MAPPING, Sink};

/// The body of a `session` frame: who worked, in which session, and that all of it is a transcript.
/// `times` says whether the format has a clock.
pub(super) fn session(
    format: Format,
    agent: &str,
    session: Option<&str>,
    times: bool,
) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("agent".into(), agent.into());
    body.insert("profile".into(), "coding".into());
    if let Some(id) = session.and_then(|id| label(&id.into())) {
        body.insert("session_id".into(), id);
    }
    let imported = [
        ("format", format.as_str().into()),
        ("importer", MAPPING.into()),
    ];
    body.insert("imported".into(), object(imported));
    body.insert("order".into(), "transcript".into());
    body.insert("times".into(), if times { "writer" } else { "none" }.into());
    body
}

/// The folder that the agent worked in, as the payload `cwd` of the `session` frame, where it is known.
pub(super) fn cwd_payload(cwd: Option<&str>) -> Vec<Payload> {
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    cwd.map(|cwd| Payload::text("cwd", cwd.to_owned()))
        .into_iter()
        .collect()
}

/// A call whose result has not come yet.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The key of its `tool_call` frame.
    pub key: String,
    /// The tool's name.
    pub name: Option<Value>,
}

/// What later records refer back to.
#[derive(Default)]
pub(super) struct Conversation {
    turn_open: bool,
    calls: Recent<Call>,
    files: HashMap<String, String>,
    time: Option<Written>,
}

impl Conversation {
    /// Sets the time of the frames that follow ([`written_time`], [`counted_time`]).
    ///
    /// [`written_time`]: super::text::written_time
    /// [`counted_time`]: super::text::counted_time
    pub fn at(&mut self, time: Option<Written>) {
        self.time = time;
    }

    /// The turn of the next frame.
    pub fn turn(&self) -> Turn {
        if self.turn_open {
            Turn::Open
        } else {
            Turn::Run
        }
    }

    /// A frame in the open turn, with the record's time.
    pub fn frame(&self, kind: &'static str, key: impl Into<String>) -> FrameRequest {
        let mut frame = FrameRequest::new(kind, key, self.turn());
        if let Some(time) = &self.time {
            frame.at(time);
        }
        frame
    }

    /// A frame of a kind and class, see [`FrameRequest::class`].
    pub fn classed(&self, kind: &'static str, class: &str, key: impl Into<String>) -> FrameRequest {
        let mut frame = self.frame(kind, key);
        frame.class(class);
        frame
    }

    /// What a record of no known kind becomes: it is kept whole, and counted.
    pub fn unmapped(&self, key: impl Into<String>, out: &mut Sink<'_>) -> Vec<FrameRequest> {
        out.unmapped();
        vec![self.classed("observation", "unmapped", key)]
    }

    /// What a person asked for: opens the next turn. The server closes the one before.
    pub fn prompt(&mut self, key: impl Into<String>) -> FrameRequest {
        self.turn_open = true;
        let mut frame = self.frame("turn", key);
        frame.put("prompt", "message").put("speaker", "user");
        frame
    }

    /// What the model said.
    pub fn answer(&self, key: impl Into<String>) -> FrameRequest {
        let mut frame = self.frame("model_result", key);
        frame.put("speaker", "model");
        frame
    }

    /// A call of a tool. With an id its result finds it.
    pub fn call(
        &mut self,
        key: impl Into<String>,
        id: Option<&str>,
        name: Option<&Value>,
    ) -> FrameRequest {
        let mut frame = self.frame("tool_call", key);
        let name = name.and_then(label);
        if let Some(name) = &name {
            frame.put("name", name.clone());
        }
        if let Some(id) = id {
            if let Some(id) = label(&id.into()) {
                frame.put("tool_call_id", id);
            }
            let key = frame.key.clone();
            self.calls.insert(id.to_owned(), Call { key, name });
        }
        frame
    }

    /// The result of a call, linked to it where the id is that of a call that waits. `status` stands in
    /// the body as `not stated` until the format says how it went.
    pub fn result(
        &mut self,
        key: impl Into<String>,
        id: Option<&str>,
    ) -> (FrameRequest, Option<Call>) {
        let mut frame = self.frame("tool_result", key);
        frame.put("status", "not stated");
        if let Some(id) = id.and_then(|id| label(&id.into())) {
            frame.put("tool_call_id", id);
        }
        let call = id.and_then(|id| self.calls.remove(id));
        if let Some(call) = &call {
            frame.link("answers", call.key.clone());
            if let Some(name) = &call.name {
                frame.put("name", name.clone());
            }
        }
        (frame, call)
    }

    /// A call that waits for its result.
    pub fn waiting(&self, id: &str) -> Option<&Call> {
        self.calls.get(id)
    }

    /// A version of a file that the frame `writer` (a result or a call) wrote; it replaces the version
    /// that was seen before.
    pub fn file_version(
        &mut self,
        key: impl Into<String>,
        path: &str,
        change: &str,
        writer: &str,
    ) -> FrameRequest {
        let mut frame = self.frame("file_version", key);
        if is_label(path, 1_024) {
            frame.put("path", path);
        } else {
            frame.attach(Payload::text("path", path.to_owned()));
        }
        frame.put("change", change).link("derived_from", writer);
        let before = self.files.insert(path.to_owned(), frame.key.clone());
        if let Some(before) = before {
            frame.link("replaced", before);
        }
        frame
    }
}
