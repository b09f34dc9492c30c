//! Which frame each kind of record becomes.

use serde_json::Value;

use super::message;
use super::thread::Thread;
use super::tools;
use crate::import::blocks::type_of;
use crate::import::record::{Record, extract};
use crate::import::request::FrameRequest;
use crate::import::text::{Written, written_time};

/// What a record became.
pub(super) struct Mapped {
    /// Its frames, in order.
    pub frames: Vec<FrameRequest>,
    /// Whether no frame kind fits, so that it is kept as it is.
    pub unmapped: bool,
    /// The subagent that it names, and the key of the call that started it.
    pub subagent: Option<(String, Option<String>)>,
}

/// A record on its way to frames.
pub(super) struct Entry {
    pub line: u64,
    pub record: Record,
    at: Option<Written>,
}

/// Records that carry a conversation, and so tell about their session.
pub(super) fn is_conversation(record: &Value) -> bool {
    matches!(
        type_of(record),
        "user" | "assistant" | "system" | "attachment"
    )
}

/// Whether this is a record of Claude Code: of a type that is known, with one of its own members.
pub(super) fn is_claude(record: &Value) -> bool {
    let member = |name: &str| record.get(name).is_some();
    let own = ["sessionId", "uuid", "leafUuid", "parentUuid", "snapshot"];
    // A message that is a text is of any log.
    let own = own.into_iter().any(member) || record.pointer("/message/content").is_some();
    let known = match type_of(record) {
        // Others begin their sessions with a record of this type too.
        "system" => member("uuid"),
        kind => is_conversation(record) || plain(kind).is_some(),
    };
    known && own && record.get("payload").is_none()
}

/// Whether the record is marked as part of a subagent's conversation.
pub(super) fn sidechain(record: &Value) -> Option<bool> {
    record.get("isSidechain").and_then(Value::as_bool)
}

/// How a record without parts of its own is kept: frame kind, class, and the members that may stand
/// in the body.
type Plain = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Records beside the conversation. Their content stays in the payload `record`.
fn plain(kind: &str) -> Option<Plain> {
    Some(match kind {
        "summary" => ("context", "summary", &[("leafUuid", "leaf_uuid")]),
        "file-history-snapshot" => (
            "snapshot",
            "file_history",
            &[("messageId", "message_id"), ("isSnapshotUpdate", "update")],
        ),
        "permission-mode" => (
            "observation",
            "permission_mode",
            &[("permissionMode", "mode")],
        ),
        "mode" => ("observation", "mode", &[("mode", "mode")]),
        "progress" => (
            "observation",
            "progress",
            &[
                ("toolUseID", "tool_call_id"),
                ("parentToolUseID", "parent_tool_call_id"),
            ],
        ),
        "queue-operation" => (
            "observation",
            "queue_operation",
            &[("operation", "operation")],
        ),
        "agent-name" => ("observation", "agent_name", &[]),
        "agent-setting" => ("observation", "agent_setting", &[]),
        "agent-color" => ("observation", "agent_color", &[]),
        "custom-title" => ("observation", "custom_title", &[]),
        "ai-title" => ("observation", "ai_title", &[]),
        "tag" => ("observation", "tag", &[]),
        "last-prompt" => ("observation", "last_prompt", &[("leafUuid", "leaf_uuid")]),
        "frame-link" => ("observation", "frame_link", &[]),
        "pr-link" => ("observation", "pull_request", &[("prNumber", "number")]),
        "started" => (
            "observation",
            "subagent_started",
            &[("agentId", "agent_id")],
        ),
        "result" => ("observation", "subagent_result", &[("agentId", "agent_id")]),
        "relocated" => ("observation", "relocated", &[]),
        "worktree-state" => ("observation", "worktree_state", &[]),
        "bridge-session" => (
            "observation",
            "bridge_session",
            &[("lastSequenceNum", "last_sequence")],
        ),
        "atis-latch" => ("observation", "atis_latch", &[]),
        "content-replacement" => ("context", "content_replacement", &[]),
        _ => return None,
    })
}

/// Members of `system` records that are ids, enums or counts.
const SYSTEM: &[(&str, &str)] = &[
    ("level", "level"),
    ("durationMs", "duration_ms"),
    ("messageCount", "messages"),
    ("hookCount", "hooks"),
    ("preventedContinuation", "prevented_continuation"),
    ("retryAttempt", "attempt"),
    ("maxRetries", "max_retries"),
    ("retryInMs", "retry_in_ms"),
    ("requestId", "request_id"),
    ("toolUseID", "tool_call_id"),
    ("apiRefusalCategory", "refusal_category"),
    ("originalModel", "original_model"),
    ("fallbackModel", "fallback_model"),
    ("trigger", "trigger"),
    ("logicalParentUuid", "logical_parent_uuid"),
];

/// Subtypes of `system` records that are observations.
const SYSTEM_OBSERVATIONS: &[&str] = &[
    "agents_killed",
    "api_error",
    "api_refusal",
    "away_summary",
    "bridge_status",
    "error",
    "file_snapshot",
    "informational",
    "init",
    "local_command",
    "memory_saved",
    "model_refusal_fallback",
    "permission_retry",
    "scheduled_task_fire",
    "session_start",
    "status",
    "stop_hook_summary",
    "thinking",
    "turn_duration",
    "warning",
];

/// What hooks said and did.
const HOOK: &[(&str, &str)] = &[
    ("hookName", "hook"),
    ("hookEvent", "event"),
    ("toolUseID", "tool_call_id"),
    ("exitCode", "exit"),
    ("durationMs", "duration_ms"),
];

/// Attachments that put something into the model's context.
const CONTEXT_ATTACHMENTS: &[&str] = &[
    "agent_listing_delta",
    "agent_mention",
    "auto_mode",
    "auto_mode_exit",
    "batching_reminder_sent",
    "budget_usd",
    "command_permissions",
    "compact_file_reference",
    "compaction_reminder",
    "critical_system_reminder",
    "date_change",
    "deferred_tools_delta",
    "diagnostics",
    "directory",
    "dynamic_skill",
    "edited_image_file",
    "edited_text_file",
    "file",
    "invoked_skills",
    "mcp_instructions_delta",
    "mcp_resource",
    "opened_file_in_ide",
    "output_style",
    "pdf_reference",
    "plan_file_reference",
    "plan_mode",
    "plan_mode_exit",
    "plan_mode_reentry",
    "queued_command",
    "read_truncation_notice",
    "selected_lines_in_ide",
    "silent_turn_reminder",
    "skill_listing",
    "task_reminder",
    "task_status",
    "teammate_mailbox",
    "todo",
    "todo_reminder",
    "token_usage",
    "total_tokens_reminder",
    "ultra_effort_enter",
    "ultra_effort_exit",
    "verify_plan_reminder",
];

/// Maps one record.
pub(super) fn map(line: u64, record: Record, thread: &mut Thread) -> Mapped {
    let at = record
        .value
        .get("timestamp")
        .and_then(Value::as_str)
        .and_then(written_time);
    let kind = type_of(&record.value).to_owned();
    let mut entry = Entry { line, record, at };
    let mapped = match kind.as_str() {
        "user" => message::user(&mut entry, thread),
        "assistant" => message::assistant(&mut entry, thread),
        "tool_use" => Some(tools::lone_call(&mut entry, thread)),
        "tool_result" => Some(tools::lone_result(&mut entry, thread)),
        "system" => system(&entry, thread),
        "attachment" => attachment(&mut entry, thread),
        other => plain(other).map(|plain| beside(&entry, thread, plain)),
    };
    let unmapped = mapped.is_none();
    let mut mapped = mapped.unwrap_or_else(|| {
        let mut frame = entry.frame("observation", "", thread);
        frame.put("observation", "unmapped");
        frame.copy(&entry.record.value, "type", "record_type");
        Mapped::one(frame)
    });
    mapped.unmapped = unmapped;
    entry.finish(&mut mapped.frames);
    mapped
}

impl Mapped {
    pub fn one(frame: FrameRequest) -> Self {
        Self::many(vec![frame])
    }

    pub fn many(frames: Vec<FrameRequest>) -> Self {
        Self {
            frames,
            unmapped: false,
            subagent: None,
        }
    }
}

impl Entry {
    /// The record.
    pub fn value(&mut self) -> &mut Value {
        &mut self.record.value
    }

    /// A member of the record that is text.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.record.value.get(member).and_then(Value::as_str)
    }

    /// Whether a member of the record is `true`.
    pub fn flag(&self, member: &str) -> bool {
        self.record.value.get(member).and_then(Value::as_bool) == Some(true)
    }

    /// A frame of this record. `part` is empty for its first and tells the others apart.
    pub fn frame(&self, kind: &'static str, part: &str, thread: &Thread) -> FrameRequest {
        let mut key = format!("line/{}", self.line);
        if !part.is_empty() {
            key.push('/');
            key.push_str(part);
        }
        let mut frame = FrameRequest::new(kind, key, thread.turn());
        frame.put("line", self.line);
        if let Some(time) = &self.at {
            frame.at(time);
        }
        frame
    }

    /// Gives the record's first frame its identity and what is left of the record.
    fn finish(self, frames: &mut [FrameRequest]) {
        let first = format!("line/{}", self.line);
        let Some(frame) = frames.iter_mut().find(|frame| frame.key == first) else {
            return;
        };
        for (from, to) in [
            ("uuid", "uuid"),
            ("parentUuid", "parent_uuid"),
            ("slug", "slug"),
            ("agentId", "agent_id"),
        ] {
            frame.copy(&self.record.value, from, to);
        }
        self.record.leave_rest(frame);
    }
}

fn beside(entry: &Entry, thread: &Thread, (kind, class, members): Plain) -> Mapped {
    let mut frame = entry.frame(kind, "", thread);
    frame.class(class);
    for (from, to) in members {
        frame.copy(&entry.record.value, from, to);
    }
    Mapped::one(frame)
}

fn system(entry: &Entry, thread: &Thread) -> Option<Mapped> {
    let subtype = entry.text("subtype").unwrap_or("");
    let compaction = matches!(subtype, "compact_boundary" | "microcompact_boundary");
    // Old versions wrote system messages without a subtype.
    let known = compaction || subtype.is_empty() || SYSTEM_OBSERVATIONS.contains(&subtype);
    if !known {
        return None;
    }
    let kind = if compaction { "context" } else { "observation" };
    let mut frame = entry.frame(kind, "", thread);
    match (compaction, subtype) {
        (true, _) => frame.class("compacted").put("compaction", subtype),
        (false, "") => frame.put("observation", "system"),
        (false, _) => frame.put("observation", format!("system.{subtype}")),
    };
    let value = &entry.record.value;
    for (from, to) in SYSTEM {
        frame.copy(value, from, to);
    }
    if let Some(compact) = value.get("compactMetadata") {
        for (from, to) in [
            ("trigger", "trigger"),
            ("preTokens", "tokens_before"),
            ("postTokens", "tokens_after"),
            ("durationMs", "duration_ms"),
        ] {
            frame.copy(compact, from, to);
        }
    }
    if let Some(error) = value.get("error") {
        frame.copy(error, "status", "status");
    }
    Some(Mapped::one(frame))
}

fn attachment(entry: &mut Entry, thread: &Thread) -> Option<Mapped> {
    let strict = entry.record.strict();
    let kind = type_of(entry.record.value.get("attachment")?).to_owned();
    let hook = kind.starts_with("hook_") || kind == "async_hook_response";
    let mut frame = match kind.as_str() {
        "nested_memory" => entry.frame("memory", "", thread),
        "hook_additional_context" => entry.frame("context", "", thread),
        _ if hook => entry.frame("observation", "", thread),
        known if CONTEXT_ATTACHMENTS.contains(&known) => entry.frame("context", "", thread),
        _ => return None,
    };
    match frame.kind {
        "memory" => frame.class("read"),
        "observation" => frame
            .put("observation", "hook")
            .put("result", kind.as_str()),
        _ => frame.class("attachment").put("attachment", kind.as_str()),
    };
    let attachment = entry.value().get_mut("attachment")?;
    let members: &[(&str, &str)] = if hook {
        HOOK
    } else {
        &[
            ("itemCount", "items"),
            ("skillCount", "skills"),
            ("commandMode", "mode"),
        ]
    };
    for (from, to) in members {
        frame.copy(attachment, from, to);
    }
    for member in ["prompt", "content"] {
        if let Some(slot) = attachment.get_mut(member) {
            extract(slot, &mut frame, member, strict);
        }
    }
    Some(Mapped::one(frame))
}
