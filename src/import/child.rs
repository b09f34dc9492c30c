//! A child's run (a subagent's, a sample's) and its parent's, linked both ways.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use onrecord_core::digest::Hash;
use serde_json::Value;

use super::request::{FrameRequest, Link, Turn, key_part, label};
use super::{open_file, stem};

/// The frame of a child's run that says where it came from. `label` is the key of the call that
/// started it, or `session` where that is not known; a later import that knows more adds another.
pub fn spawned_by(label: &str, parent: Link) -> FrameRequest {
    let mut frame = FrameRequest::new("observation", format!("spawned-by/{label}"), Turn::Run);
    frame.put("observation", "spawned_by");
    frame.links.push(parent);
    frame
}

/// The frame of the parent's run that points to a child's run.
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

/// The two frames that link the run of a thread and the run of a child thread of the same file: the
/// child's first, then the parent's. The call's frame must be `linked_to`.
pub fn linked(
    parent: usize,
    child: usize,
    agent: &str,
    call: Option<&str>,
) -> (FrameRequest, FrameRequest) {
    let up = Link::Thread {
        rel: "derived_from",
        thread: parent,
        key: call.map(str::to_owned),
    };
    let down = Link::Thread {
        rel: "caused",
        thread: child,
        key: None,
    };
    (
        spawned_by(call.unwrap_or("session"), up),
        subagent_run(agent, call, down),
    )
}

/// Whether the file's name, its folder or its beginning says that it is a child's. Of files that are
/// imported together the others come first, since a child's run points to its parent's.
pub fn is_child_file(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    let folder = folder.is_some_and(|name| name == "subagents" || name == "subagent");
    folder || stem(path).starts_with("agent-") || says_child(path)
}

/// Whether the file, or its first line, is an object that names a parent or calls itself a subagent's.
fn says_child(path: &Path) -> bool {
    const BYTES: u64 = 64 * 1024;
    let mut head = Vec::new();
    let read = open_file(path).map(|(file, _)| file.take(BYTES).read_to_end(&mut head));
    if !matches!(read, Ok(Ok(_))) {
        // The import of the file will say why.
        return false;
    }
    let line = head.split(|byte| *byte == b'\n').next();
    [Some(head.as_slice()), line]
        .into_iter()
        .flatten()
        .any(|bytes| {
            serde_json::from_slice::<Value>(bytes).is_ok_and(|head| {
                head.get("parentID").is_some_and(Value::is_string)
                    || head.get("kind").and_then(Value::as_str) == Some("subagent")
            })
        })
}

/// Whether an id of a transcript may be the name of a file or folder: it leads nowhere else.
pub(super) fn is_plain(id: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
    !id.is_empty() && id.chars().all(plain)
}

/// The calls that start children, by what they told them, for formats in which neither names the other.
/// Only digests are kept.
#[derive(Default)]
pub(super) struct Prompts(HashMap<Hash, Option<String>>);

impl Prompts {
    /// A call told a child this.
    pub fn told(&mut self, prompt: &str, call: &str) {
        // Two calls that said the same: which of them started the child would be a guess.
        let other = self.0.contains_key(&Self::digest(prompt));
        let call = (!other).then(|| call.to_owned());
        self.0.insert(Self::digest(prompt), call);
    }

    /// The key of the one call that told a child this.
    pub fn call_of(&self, prompt: &str) -> Option<String> {
        self.0.get(&Self::digest(prompt)).cloned().flatten()
    }

    fn digest(prompt: &str) -> Hash {
        Hash::of(&[prompt.trim().as_bytes()])
    }
}
