//! Events by their types.

use serde_json::Value;

use super::events::{EVENTS, MEMBERS};
use super::{Part, Thread, tool};
use crate::import::request::{FrameRequest, labels, object};

/// Events that have frames of their own making.
const OWN: [&str; 6] = [
    "user.message",
    "assistant.message",
    "assistant.reasoning",
    "tool.execution_start",
    "tool.execution_complete",
    "session.task_complete",
];

/// Whether this is the type of an event of Copilot CLI.
pub(super) fn known(kind: &str) -> bool {
    OWN.contains(&kind) || EVENTS.iter().any(|(name, ..)| *name == kind)
}

/// An event; `None` where its type is not known.
pub(super) fn map(thread: &mut Thread, kind: &str, part: &mut Part) -> Option<Vec<FrameRequest>> {
    Some(match kind {
        "user.message" => vec![prompt(thread, part)],
        "assistant.message" => answer(thread, part),
        "assistant.reasoning" => {
            let mut frame = thread.talk.answer(&part.key);
            frame.put("blocks", vec!["reasoning"]);
            frame.copy(&part.data, "reasoningId", "message_id");
            part.take("/content", &mut frame, "thinking");
            vec![frame]
        }
        "tool.execution_start" => tool::starts(thread, part),
        "tool.execution_complete" => tool::completes(thread, part),
        "session.task_complete" => {
            let mut frame = thread.talk.frame("outcome", part.key.clone());
            let failed = part.data.get("success").and_then(Value::as_bool) == Some(false);
            let open = ["continue", "blocked"];
            let open = part
                .text("outcome")
                .is_some_and(|outcome| open.contains(&outcome));
            if failed || open {
                frame = thread
                    .talk
                    .classed("observation", "task_not_complete", &part.key);
                frame.copy(&part.data, "outcome", "outcome");
            } else {
                frame.put("status", "completed");
            }
            part.take("/summary", &mut frame, "summary");
            vec![frame]
        }
        _ => vec![plain(thread, kind, part)?],
    })
}

fn plain(thread: &mut Thread, kind: &str, part: &mut Part) -> Option<FrameRequest> {
    let (_, frame, class, payloads) = EVENTS.iter().find(|(name, ..)| *name == kind)?;
    let mut frame = thread.talk.classed(frame, class, &part.key);
    for (from, to) in MEMBERS {
        frame.copy(&part.data, from, to);
    }
    match kind {
        "abort" => {
            frame.copy(&part.data, "reason", "reason");
        }
        "assistant.usage" => {
            frame.put_usage(Some(&part.data));
        }
        "permission.completed" => {
            if let Some(result) = part.data.get("result") {
                frame.copy(result, "kind", "selected");
            }
            let selected = frame.body.get("selected").and_then(Value::as_str);
            // `approved` and `denied` alone do not say who it was.
            let user = selected.is_some_and(|selected| selected.contains("by-user"));
            let rule = selected.is_some_and(|selected| selected.contains("rule"));
            if user || rule {
                frame.put("speaker", if user { "user" } else { "program" });
            }
        }
        "exit_plan_mode.requested" => {
            frame.put("speaker", "model");
        }
        "exit_plan_mode.completed" => {
            frame
                .put("speaker", "user")
                .selected(part.data.get("approved"));
            frame.copy(&part.data, "selectedAction", "action");
        }
        "session.shutdown" => {
            if let Some(changes) = part.data.get("codeChanges") {
                frame.put("code_changes", labels(changes));
            }
        }
        _ => {}
    }
    let call = part
        .text("toolCallId")
        .and_then(|id| thread.talk.waiting(id));
    if let Some(call) = call {
        frame.link("derived_from", call.key.clone());
    }
    for (from, to) in *payloads {
        part.take(from, &mut frame, to);
    }
    Some(frame)
}

/// A message of the user; one that the program put in is context.
fn prompt(thread: &mut Thread, part: &mut Part) -> FrameRequest {
    let source = part.text("source").unwrap_or("");
    let program = source == "system" || source.starts_with("skill");
    let mut frame = if program {
        let mut frame = thread.talk.classed("context", "meta_message", &part.key);
        frame.put("speaker", "program");
        frame
    } else {
        thread.talk.prompt(&part.key)
    };
    for (from, to) in [
        ("interactionId", "interaction_id"),
        ("delivery", "delivery"),
        ("agentMode", "mode"),
        ("source", "source"),
    ] {
        frame.copy(&part.data, from, to);
    }
    let same = part.data.get("transformedContent") == part.data.get("content");
    part.take(
        "/content",
        &mut frame,
        if program { "text" } else { "prompt" },
    );
    if same {
        // What the model was sent is what was typed: one payload is enough for both.
        if let Some(content) = part.data.get("content").cloned() {
            part.data["transformedContent"] = content;
        }
    } else {
        part.take("/transformedContent", &mut frame, "transformed");
    }
    let attached = part.data.get("attachments").and_then(Value::as_array);
    if attached.is_some_and(|list| !list.is_empty()) {
        part.take("/attachments", &mut frame, "attachments");
    }
    frame
}

/// A message of the model, with the request that it answers and the calls that it asks for.
fn answer(thread: &mut Thread, part: &mut Part) -> Vec<FrameRequest> {
    let mut frames = Vec::new();
    let mut answer = thread.talk.answer(&part.key);
    let id = ["apiCallId", "requestId"]
        .into_iter()
        .find_map(|name| part.text(name));
    if let Some((id, _)) = id.zip(part.text("model")) {
        let open = thread.request.as_ref().filter(|(open, _)| open == id);
        let call = match open {
            Some((_, key)) => key.clone(),
            None => {
                let key = format!("{}/model", part.key);
                let mut call = thread.talk.frame("model_call", &key);
                call.copy(&part.data, "model", "model").copy(
                    &part.data,
                    "apiCallId",
                    "api_call_id",
                );
                call.copy(&part.data, "requestId", "request_id");
                call.put("revision", "not_identifiable");
                frames.push(call);
                thread.request = Some((id.to_owned(), key.clone()));
                key
            }
        };
        answer.link("answers", call);
    }
    for (from, to) in [
        ("model", "model"),
        ("messageId", "message_id"),
        ("requestId", "request_id"),
        ("interactionId", "interaction_id"),
        ("turnId", "turn_id"),
        ("phase", "phase"),
        ("chunkIndex", "chunk"),
        ("chunkCount", "chunks"),
    ] {
        answer.copy(&part.data, from, to);
    }
    answer.put("revision", "not_identifiable");
    if let Some(tokens) = part
        .data
        .get("outputTokens")
        .filter(|tokens| tokens.is_u64())
    {
        let usage = object([("output_tokens", tokens.clone())]);
        answer.put("usage", usage);
    }
    for (pointer, name) in [
        ("/content", "text"),
        ("/reasoningText", "thinking"),
        ("/reasoningOpaque", "encrypted"),
        ("/encryptedContent", "encrypted"),
    ] {
        part.take(pointer, &mut answer, name);
    }
    frames.push(answer);
    tool::requests(thread, part, &mut frames);
    frames
}
