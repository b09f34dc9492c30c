//! Events of a sample.

use serde_json::Value;

use super::answer::take_error;
use super::head::error;
use super::sample::{SampleRun, fill_score};
use super::{model, text};
use crate::import::Sink;
use crate::import::record::extract;
use crate::import::request::{FrameRequest, label, object};
use crate::import::text::{is_label, written_time};

/// Events that are only kept: kind, class, the members of the body, and those that are payloads.
type Plain = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

fn plain(event: &str) -> Option<Plain> {
    Some(match event {
        "span_begin" => (
            "observation",
            "span_begin",
            &["id", "parent_id", "type", "name"],
            &[],
        ),
        "span_end" => ("observation", "span_end", &["id"], &[]),
        "step" => ("observation", "step", &["action", "type", "name"], &[]),
        "state" => ("observation", "state_change", &[], &["changes"]),
        "store" => ("observation", "store_change", &[], &["changes"]),
        "info" => ("observation", "info", &["source"], &["data"]),
        "input" => ("observation", "user_input", &[], &["input", "input_ansi"]),
        "sample_limit" => ("observation", "limit", &["type", "limit"], &["message"]),
        "anchor" => ("observation", "anchor", &["anchor_id", "source"], &[]),
        "branch" => ("observation", "branch", &["from_span", "from_anchor"], &[]),
        "interrupt" => (
            "observation",
            "interrupted",
            &["source", "interrupted", "interrupted_tool_call_id"],
            &[],
        ),
        "checkpoint" => (
            "snapshot",
            "checkpoint",
            &["checkpoint_id", "trigger", "turn"],
            &[],
        ),
        "compaction" => (
            "context",
            "compacted",
            &["tokens_before", "tokens_after", "source", "type"],
            &[],
        ),
        "score_edit" => ("observation", "score_edit", &["score_name"], &["edit"]),
        _ => return None,
    })
}

/// Posts the frames of an event; a reference to its record stands in its place afterwards. Events within it,
/// as older versions have them, are events like all others: numbered on, and posted between the frames of
/// its beginning and its end.
pub(super) fn post(run: &mut SampleRun, event: &mut Value, out: &mut Sink<'_>) {
    out.record();
    run.events += 1;
    let key = key(run.events);
    let mut inner = match event.get_mut("events") {
        Some(Value::Array(events)) => std::mem::take(events),
        _ => Vec::new(),
    };
    run.store.resolve(event);
    let time = text(event, "timestamp").and_then(written_time);
    run.conversation.at(time);
    let (mut begin, mut end) = map(run, &key, event, out);
    if !inner.is_empty() {
        let mut next = run.events + 1;
        let references = inner.iter().map(|event| {
            let at = self::key(next);
            next += count(event);
            // Nothing is taken out of these.
            if event.is_null() || event.as_str() == Some("") {
                return event.clone();
            }
            object([("$frame", at.into()), ("$payload", "record".into())])
        });
        event["events"] = references.collect();
    }
    let mut frames = begin.iter_mut().chain(&mut end);
    if let Some(frame) = frames.find(|frame| frame.key == key) {
        extract(event, frame, "record", run.strict);
    }
    for frame in begin {
        out.frame_of(run.thread, frame);
    }
    for event in &mut inner {
        post(run, event, out);
    }
    for frame in end {
        out.frame_of(run.thread, frame);
    }
}

fn key(number: usize) -> String {
    format!("event/{number}")
}

/// How many events this is, with those within it.
fn count(event: &Value) -> usize {
    let inner = event.get("events").and_then(Value::as_array);
    1 + inner.into_iter().flatten().map(count).sum::<usize>()
}

/// The frames of an event: those of its beginning, and those of its end.
fn map(
    run: &mut SampleRun,
    key: &str,
    event: &mut Value,
    out: &mut Sink<'_>,
) -> (Vec<FrameRequest>, Vec<FrameRequest>) {
    let kind = text(event, "event").unwrap_or_default().to_owned();
    if let Some((frame, class, labels, payloads)) = plain(&kind) {
        let mut frame = run.conversation.classed(frame, class, key);
        for member in labels {
            frame.copy(
                event,
                member,
                if *member == "id" { "span_id" } else { member },
            );
        }
        for member in payloads {
            if let Some(slot) = event.get_mut(*member) {
                extract(slot, &mut frame, member, run.strict);
            }
        }
        return (vec![frame], Vec::new());
    }
    let frames = match kind.as_str() {
        "sample_init" => vec![init(run, key, event)],
        "model" => model::map(run, key, event),
        "tool" => return tool(run, key, event),
        "subtask" => return subtask(run, key, event),
        "sandbox" => sandbox(run, key, event),
        "approval" | "review" => vec![decision(run, key, event, &kind)],
        "logger" => vec![logger(run, key, event)],
        "score" => {
            let mut frame = run.conversation.classed("observation", "score", key);
            frame
                .copy(event, "intermediate", "intermediate")
                .copy(event, "scorer", "name");
            if let Some(score) = event.get_mut("score") {
                fill_score(score, &mut frame, &mut run.said, run.strict);
            }
            vec![frame]
        }
        "error" => {
            let mut frame = run.conversation.classed("observation", "error", key);
            if let Some(slot) = event.get_mut("error") {
                error(slot, "text", &mut frame, run.strict);
            }
            vec![frame]
        }
        _ => {
            out.unmapped();
            let mut frame = run.conversation.classed("observation", "unmapped", key);
            frame.copy(event, "event", "type");
            vec![frame]
        }
    };
    (frames, Vec::new())
}

/// The sample as it was given to the solver: its input is the prompt.
fn init(run: &mut SampleRun, key: &str, event: &mut Value) -> FrameRequest {
    let mut frame = run.conversation.prompt(key);
    if let Some(sample) = event.get_mut("sample") {
        frame.copy(sample, "id", "sample_id");
        for (member, name) in [
            ("input", "prompt"),
            ("target", "target"),
            ("metadata", "metadata"),
        ] {
            if let Some(slot) = sample.get_mut(member) {
                run.said.value(slot, &mut frame, name, run.strict);
            }
        }
    }
    if let Some(state) = event.get_mut("state") {
        extract(state, &mut frame, "state", run.strict);
    }
    frame
}

/// What a tool answered. Where no answer of the model has the call, the event is the call too.
fn tool(
    run: &mut SampleRun,
    key: &str,
    event: &mut Value,
) -> (Vec<FrameRequest>, Vec<FrameRequest>) {
    let strict = run.strict;
    let id = text(event, "id").map(str::to_owned);
    let waits = id
        .as_deref()
        .is_some_and(|id| run.conversation.waiting(id).is_some());
    let mut begin = Vec::new();
    let mut result_key = key.to_owned();
    if !waits {
        let name = event.get("function").cloned();
        let mut call = run.conversation.call(key, id.as_deref(), name.as_ref());
        if let Some(arguments) = event.get_mut("arguments") {
            extract(arguments, &mut call, "arguments", strict);
        }
        begin.push(call);
        result_key = format!("{key}/result");
    }
    if event.get("pending").and_then(Value::as_bool) == Some(true) {
        if waits {
            begin.push(run.conversation.classed("observation", "tool_pending", key));
        }
        return (begin, Vec::new());
    }
    if let Some(completed) = text(event, "completed").and_then(written_time) {
        run.conversation.at(Some(completed));
    }
    let (mut result, _) = run.conversation.result(result_key, id.as_deref());
    result
        .copy(event, "function", "name")
        .copy(event, "agent", "agent")
        .put("status", "ok");
    result.put_millis("duration_ms", event.get("working_time"));
    if event.get("failed").and_then(Value::as_bool) == Some(true) {
        result.put("status", "error");
    }
    if let Some(error) = event.get_mut("error").filter(|error| error.is_object()) {
        take_error(error, &mut result, strict);
    }
    if let Some(slot) = event.get_mut("result") {
        extract(slot, &mut result, "result", strict);
    }
    (begin, vec![result])
}

/// A function of the solver's own. It is no call of the model, but is called and answers like one.
fn subtask(
    run: &mut SampleRun,
    key: &str,
    event: &mut Value,
) -> (Vec<FrameRequest>, Vec<FrameRequest>) {
    let strict = run.strict;
    let name = event.get("name").and_then(label);
    let mut call = run.conversation.call(key, None, name.as_ref());
    call.put("operation", "subtask").copy(event, "type", "type");
    if let Some(input) = event.get_mut("input") {
        extract(input, &mut call, "arguments", strict);
    }
    if text(event, "completed").is_none() && event.get("result").is_none_or(Value::is_null) {
        return (vec![call], Vec::new());
    }
    if let Some(completed) = text(event, "completed").and_then(written_time) {
        run.conversation.at(Some(completed));
    }
    let (mut result, _) = run.conversation.result(format!("{key}/result"), None);
    result.link("answers", key);
    if let Some(name) = name {
        result.put("name", name);
    }
    result.put_millis("duration_ms", event.get("working_time"));
    if let Some(slot) = event.get_mut("result") {
        extract(slot, &mut result, "result", strict);
    }
    (vec![call], vec![result])
}

/// What was done in the sandbox. Texts are cut by the log to a hundred lines, so that what was written to a
/// file is all of it only below that.
fn sandbox(run: &mut SampleRun, key: &str, event: &mut Value) -> Vec<FrameRequest> {
    const LINES: usize = 100;
    let mut frame = run.conversation.classed("observation", "sandbox", key);
    frame.copy(event, "action", "action");
    if let Some(exit) = event.get("result").filter(|result| result.is_i64()) {
        frame.put("exit", exit.clone());
    }
    if let Some(path) = text(event, "file").filter(|path| is_label(path, 1_024)) {
        frame.put("path", path.to_owned());
    }
    let written = text(event, "file").filter(|_| text(event, "action") == Some("write_file"));
    let version = written.map(str::to_owned).map(|path| {
        let mut version = run
            .conversation
            .file_version(format!("{key}/file"), &path, "write", key);
        let input = text(event, "input").unwrap_or_default();
        let whole = input.lines().count() < LINES;
        if let Some(slot) = event.get_mut("input") {
            let name = if whole { "after" } else { "after_cut" };
            extract(slot, &mut version, name, run.strict);
        }
        version
    });
    for member in ["cmd", "input", "output"] {
        let slot = event.get_mut(member).filter(|slot| slot.is_string());
        if let Some(slot) = slot {
            extract(slot, &mut frame, member, run.strict);
        }
    }
    let mut frames = vec![frame];
    frames.extend(version);
    frames
}

/// Whether a call, or what it answered, was let through.
fn decision(run: &mut SampleRun, key: &str, event: &mut Value, class: &str) -> FrameRequest {
    let selected = text(event, "decision").unwrap_or_default();
    let rejected = matches!(selected, "reject" | "terminate");
    let who = text(event, "approver").or_else(|| text(event, "reviewer"));
    let speaker = if who == Some("human") {
        "user"
    } else {
        "program"
    };
    let class = if rejected && class == "approval" {
        "tool_denied"
    } else {
        class
    };
    let mut frame = run.conversation.classed("decision", class, key);
    frame.put("speaker", speaker);
    for (member, to) in [("approver", "by"), ("reviewer", "by"), ("stage", "stage")] {
        frame.copy(event, member, to);
    }
    match selected {
        "approve" => frame.put("selected", "approved"),
        "reject" => frame.put("selected", "denied"),
        _ => frame.selected(event.get("decision")),
    };
    let id = event.pointer("/call/id").and_then(Value::as_str);
    if let Some(call) = id.and_then(|id| run.conversation.waiting(id)) {
        let rel = if rejected {
            "cancelled"
        } else {
            "derived_from"
        };
        frame.link(rel, call.key.clone());
    }
    for (member, name) in [
        ("message", "text"),
        ("explanation", "explanation"),
        ("modified", "modified"),
    ] {
        if let Some(slot) = event.get_mut(member) {
            extract(slot, &mut frame, name, run.strict);
        }
    }
    frame
}

/// A line of the program's own log.
fn logger(run: &mut SampleRun, key: &str, event: &mut Value) -> FrameRequest {
    let mut frame = run.conversation.classed("observation", "log", key);
    if let Some(message) = event.get_mut("message") {
        for member in ["level", "name", "filename", "lineno"] {
            frame.copy(message, member, member);
        }
        if let Some(slot) = message.get_mut("message") {
            extract(slot, &mut frame, "text", run.strict);
        }
    }
    frame
}
