//! Calls of tools, their results, and the files that they changed.
//!
//! The model's call and the result that it was shown are items. Events tell how a call went in between:
//! they are observations of the call, or, of a call of which no item tells, its call and result.

use serde_json::Value;

use super::item::take_content;
use super::outcome::{Outcome, shown};
use super::patch::{self, Change};
use super::{Part, Rollout};
use crate::import::conversation::Call;
use crate::import::payload::Payload;
use crate::import::recent::Recent;
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label};
use crate::import::text::is_label;

/// Tools that start a session of their own.
const SPAWNING: [&str; 2] = ["spawn_agent", "spawn_agents_on_csv"];

/// What is known of calls beside that they wait for a result.
#[derive(Default)]
pub(super) struct Tools {
    /// Calls that an event told of, so that its end is their result.
    own: Recent<()>,
    /// What a call that waits would change.
    patches: Recent<Vec<Change>>,
    /// How an event says that a call went whose result was not shown to the model yet.
    outcomes: Recent<Outcome>,
    /// The keys of calls that were answered: an event may come after the result.
    answered: Recent<String>,
}

impl Tools {
    /// Remembers that the call of this key has its result.
    pub fn answered(&mut self, id: Option<String>, key: &str) {
        if let Some(id) = id {
            self.answered.insert(id, key.to_owned());
        }
    }
}

/// A call that the model asked for.
pub(super) fn call(rollout: &mut Rollout, kind: &str, part: &mut Part) -> FrameRequest {
    rollout.prompts.answered();
    let named = part
        .value
        .get("name")
        .or_else(|| part.value.pointer("/function/name"));
    let own = Value::from(kind.strip_suffix("_call").unwrap_or(kind));
    let name = named.unwrap_or(&own).clone();
    let id = ["call_id", "id"]
        .into_iter()
        .find_map(|name| part.text(name));
    let id = id.map(str::to_owned);
    let mut frame = rollout
        .talk
        .call(part.key.clone(), id.as_deref(), Some(&name));
    for from in ["namespace", "status", "execution"] {
        frame.copy(&part.value, from, from);
    }
    if let Some(answer) = &rollout.answer {
        frame.link("derived_from", answer.clone());
    }
    let name = name.as_str();
    frame.linked_to = name.is_some_and(|name| SPAWNING.contains(&name));
    let members = ["arguments", "input", "action"];
    let arguments = members.into_iter().find_map(|name| part.value.get(name));
    let changes = arguments.and_then(|arguments| patch::of_call(name, arguments));
    if let Some((id, changes)) = id.zip(changes) {
        rollout.tools.patches.insert(id, changes);
    }
    for name in members {
        part.take(name, &mut frame, "arguments");
    }
    frame
}

/// A result as the model was shown it.
pub(super) fn result(rollout: &mut Rollout, part: &mut Part) -> Vec<FrameRequest> {
    rollout.answer = None;
    let id = part.text("call_id").map(str::to_owned);
    let (mut frame, call) = rollout.talk.result(part.key.clone(), id.as_deref());
    let shown = shown(&part.value);
    let told = id.as_ref().and_then(|id| rollout.tools.outcomes.remove(id));
    let outcome = told.unwrap_or(shown);
    outcome.put(&mut frame);
    for name in ["name", "execution"] {
        frame.copy(&part.value, name, name);
    }
    take_output(part, &mut frame);
    let changes = id.as_ref().and_then(|id| rollout.tools.patches.remove(id));
    let mut frames = vec![frame];
    if let Some(call) = &call {
        if outcome.status == "denied" {
            frames.push(denied(rollout, part, call));
        }
        rollout.tools.answered(id, &call.key);
    }
    let changes = changes
        .filter(|_| outcome.status == "ok")
        .unwrap_or_default();
    for (index, change) in changes.iter().enumerate() {
        frames.push(version(rollout, part, index, change, &part.key));
    }
    frames
}

/// Moves what a call gave into payloads. Blocks stay where they are in the record, with references.
fn take_output(part: &mut Part, frame: &mut FrameRequest) {
    let members = [
        ("stdout", "stdout"),
        ("stderr", "stderr"),
        ("text", "result"),
        ("content", "result"),
        ("output", "result"),
    ];
    for member in ["output", "result"] {
        let Some(Value::Object(output)) = part.value.get_mut(member) else {
            take_content(part, member, frame, "result");
            continue;
        };
        let mut taken = false;
        for (name, to) in members {
            if let Some(slot) = output.get_mut(name) {
                extract(slot, frame, to, part.strict);
                taken = true;
            }
        }
        if !taken {
            part.take(member, frame, "result");
        }
    }
    part.take("tools", frame, "result");
}

/// A person, or a rule, did not let the tool run. Which of them, the session does not say.
fn denied(rollout: &Rollout, part: &Part, call: &Call) -> FrameRequest {
    let key = format!("{}/decision", part.key);
    let mut decision = rollout.talk.classed("decision", "tool_denied", key);
    decision.link("cancelled", call.key.clone());
    decision
}

fn version(
    rollout: &mut Rollout,
    part: &Part,
    index: usize,
    change: &Change,
    writer: &str,
) -> FrameRequest {
    let key = format!("{}/file/{}", part.key, index + 1);
    let mut frame = rollout
        .talk
        .file_version(key, &change.path, change.change, writer);
    if let Some(to) = &change.moved_to {
        if is_label(to, 1_024) {
            frame.put("moved_to", to.as_str());
        } else {
            frame.attach(Payload::text("moved_to", to.clone()));
        }
    }
    frame
}

/// What an event tells of a call.
pub(super) struct Told<'a> {
    /// The call's id.
    pub id: Option<String>,
    /// The tool.
    pub name: Value,
    /// The event's own name.
    pub class: &'a str,
}

/// The event that a call begins: a call, unless an item told of it.
pub(super) fn begins(rollout: &mut Rollout, part: &mut Part, told: Told<'_>) -> Vec<FrameRequest> {
    let id = told.id.as_deref();
    if let Some(key) = id.and_then(|id| known(rollout, id)) {
        return vec![observed(rollout, part, &told, key)];
    }
    let mut frame = told_call(rollout, part, &told);
    if let Some(id) = told.id {
        rollout.tools.own.insert(id, ());
    }
    take_arguments(part, &mut frame, true);
    vec![frame]
}

/// The event that a call ended: an observation of a call that an item tells of, the result of one that
/// an event told of, and both of a call that was not told of.
pub(super) fn ends(rollout: &mut Rollout, part: &mut Part, told: Told<'_>) -> Vec<FrameRequest> {
    let outcome = Outcome::of(&part.value);
    let id = told.id.clone();
    let own = id
        .as_deref()
        .is_some_and(|id| rollout.tools.own.remove(id).is_some());
    let known = id
        .as_deref()
        .and_then(|id| known(rollout, id))
        .filter(|_| !own);
    let mut frames = Vec::new();
    let mut writer = part.key.clone();
    if let Some(key) = known {
        let mut frame = observed(rollout, part, &told, key);
        outcome.put(&mut frame);
        take_arguments(part, &mut frame, false);
        take_ending(part, &mut frame);
        frames.push(frame);
        if let Some(id) = id.clone().filter(|id| rollout.talk.waiting(id).is_some()) {
            rollout.tools.outcomes.insert(id, outcome.clone());
        }
    } else {
        if !own {
            let mut frame = told_call(rollout, part, &told);
            take_arguments(part, &mut frame, false);
            frames.push(frame);
            writer.push_str("/result");
        }
        let (mut frame, call) = rollout.talk.result(writer.clone(), id.as_deref());
        outcome.put(&mut frame);
        take_ending(part, &mut frame);
        if id.is_none() {
            frame.link("answers", part.key.clone());
        }
        frames.push(frame);
        if let Some(call) = call {
            if outcome.status == "denied" {
                frames.push(denied(rollout, part, &call));
            }
            rollout.tools.answered(id.clone(), &call.key);
        }
    }
    frames.extend(changed(rollout, part, id.as_deref(), &outcome, &writer));
    frames
}

/// The key of a call that waits, or that was answered a short while ago.
fn known(rollout: &Rollout, id: &str) -> Option<String> {
    let waiting = rollout.talk.waiting(id).map(|call| call.key.as_str());
    let key = waiting.or_else(|| rollout.tools.answered.get(id).map(String::as_str));
    key.map(str::to_owned)
}

fn observed(rollout: &Rollout, part: &Part, told: &Told<'_>, call: String) -> FrameRequest {
    let key = part.key.clone();
    let mut frame = rollout.talk.classed("observation", told.class, key);
    frame.put("tool", told.name.clone());
    if let Some(id) = told.id.as_ref().and_then(|id| label(&id.as_str().into())) {
        frame.put("tool_call_id", id);
    }
    frame.link("observed_by", call);
    frame
}

fn told_call(rollout: &mut Rollout, part: &Part, told: &Told<'_>) -> FrameRequest {
    let key = part.key.clone();
    let mut frame = rollout.talk.call(key, told.id.as_deref(), Some(&told.name));
    let name = told.name.as_str();
    frame.linked_to = name.is_some_and(|name| SPAWNING.contains(&name));
    let members = [
        ("/source", "source"),
        ("/namespace", "namespace"),
        ("/server", "server"),
        ("/invocation/server", "server"),
    ];
    for (from, to) in members {
        if let Some(value) = part.value.pointer(from).and_then(label) {
            frame.put(to, value);
        }
    }
    frame
}

/// What a call was told, as its event has it. `begins`: the changes of a patch are still to be made.
fn take_arguments(part: &mut Part, frame: &mut FrameRequest, begins: bool) {
    let members = [
        "command",
        "invocation",
        "arguments",
        "prompt",
        "revised_prompt",
        "path",
    ];
    for name in members {
        part.take(name, frame, "arguments");
    }
    part.take("cwd", frame, "cwd");
    if begins {
        part.take("changes", frame, "arguments");
    }
}

fn take_ending(part: &mut Part, frame: &mut FrameRequest) {
    let members = [
        ("stdout", "stdout"),
        ("stderr", "stderr"),
        ("aggregated_output", "result"),
        ("formatted_output", "shown"),
        ("result", "result"),
        ("content_items", "result"),
        ("contentItems", "result"),
        ("error", "error"),
        ("agent_statuses", "result"),
        ("statuses", "result"),
        ("agents_states", "result"),
    ];
    for (member, name) in members {
        part.take(member, frame, name);
    }
}

/// The files that an event says were changed. The result that the model is shown does not tell them again.
fn changed(
    rollout: &mut Rollout,
    part: &mut Part,
    id: Option<&str>,
    outcome: &Outcome,
    writer: &str,
) -> Vec<FrameRequest> {
    let Some(Value::Object(changes)) = part.value.get_mut("changes") else {
        return Vec::new();
    };
    let mut changes = std::mem::take(changes);
    if let Some(id) = id.filter(|_| !changes.is_empty()) {
        rollout.tools.patches.remove(id);
    }
    let mut frames = Vec::new();
    let applied = changes.iter_mut().filter(|_| outcome.status == "ok");
    for (index, (path, change)) in applied.enumerate() {
        // Older versions name the change by the member that holds it.
        let legacy = ["add", "update", "delete"]
            .into_iter()
            .find(|name| change.get(*name).is_some());
        let word = legacy
            .or_else(|| change.get("type")?.as_str())
            .unwrap_or("");
        let word = match word {
            "add" => "create",
            "delete" => "delete",
            _ => "update",
        };
        let slot = match legacy {
            Some(name) => &mut change[name],
            None => change,
        };
        let moved_to = slot.get("move_path").and_then(Value::as_str);
        let change = Change {
            path: path.clone(),
            change: word,
            moved_to: moved_to.map(str::to_owned),
        };
        let mut frame = version(rollout, part, index, &change, writer);
        let content = if word == "delete" { "before" } else { "after" };
        for (member, name) in [("content", content), ("unified_diff", "patch")] {
            if let Some(slot) = slot.get_mut(member) {
                extract(slot, &mut frame, name, part.strict);
            }
        }
        frames.push(frame);
    }
    part.value["changes"] = changes.into();
    frames
}
