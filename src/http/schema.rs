//! Shapes of requests, for the OpenAPI document; they are read by `record::intake`, strictly.
#![allow(dead_code, reason = "the document is made of the declarations, nobody makes a value")]

use utoipa::ToSchema;

/// Opens a run.
#[derive(ToSchema)]
pub(crate) struct OpenRequest {
    /// Body of the session frame: agent, mandate, profile, pins and what else describes the run. The
    /// store adds `suite`, `nonce`, `run_no`, `ledger` and, if absent, `retention`.
    session: serde_json::Map<String, serde_json::Value>,
    /// Idempotency key, 1 to 200 printable ASCII characters; unique among openings of the tenant.
    key: Option<String>,
    /// Who writes; by default the token's actor.
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime)]
    occurred_at: Option<String>,
    /// What is private, such as the task.
    payloads: Option<Vec<PayloadBody>>,
    /// Links to frames of other runs.
    links: Option<Vec<LinkBody>>,
    /// W3C trace context.
    trace: Option<TraceBody>,
}

/// A frame to append.
#[derive(ToSchema)]
pub(crate) struct FrameBody {
    /// What it records. `session` is posted to `/v1/runs`.
    #[schema(example = "tool_call")]
    kind: String,
    /// Idempotency key, 1 to 200 printable ASCII characters, unique in the run.
    key: Option<String>,
    /// Absent: the open turn, if there is one. `null`: run-level. A number: that turn, which has to be
    /// the open one. For kind `turn` absent or the next number.
    turn: Option<u64>,
    /// Who writes; by default the token's actor.
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime)]
    occurred_at: Option<String>,
    /// Members of the kind that are not private: ids, enums, counts, digests of public things.
    body: Option<serde_json::Map<String, serde_json::Value>>,
    /// What is private.
    payloads: Option<Vec<PayloadBody>>,
    /// Links to earlier frames, or to frames of other runs.
    links: Option<Vec<LinkBody>>,
    /// W3C trace context.
    trace: Option<TraceBody>,
    /// With kind `tool_call`: its result, which becomes a `tool_result` frame that answers it.
    result: Option<ResultBody>,
}

/// The result of a tool call that is posted whole.
#[derive(ToSchema)]
pub(crate) struct ResultBody {
    /// By default the call's key and `/result`.
    key: Option<String>,
    /// By default the tool that the call names.
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime)]
    occurred_at: Option<String>,
    /// Such as `exit`, `files`, `added`, `removed`.
    body: Option<serde_json::Map<String, serde_json::Value>>,
    /// What the tool answered.
    payloads: Option<Vec<PayloadBody>>,
    /// Further links.
    links: Option<Vec<LinkBody>>,
}

/// Who writes.
#[derive(ToSchema)]
pub(crate) struct ActorBody {
    /// agent, human, tool, verifier or importer.
    #[schema(rename = "type")]
    r#type: String,
    /// 1 to 200 characters.
    id: String,
}

/// A payload: exactly one of `json`, `text` and `base64`, of at most 16 MiB.
#[derive(ToSchema)]
pub(crate) struct PayloadBody {
    /// `[a-z][a-z0-9_.-]{0,63}`, unique in the frame.
    name: String,
    /// Media type; by default that of the form.
    media: Option<String>,
    /// Retention tier, 0 to 3; by default 2.
    tier: Option<u8>,
    /// Any JSON value, stored as RFC 8785.
    json: Option<serde_json::Value>,
    /// Text, stored as UTF-8.
    text: Option<String>,
    /// Bytes.
    base64: Option<String>,
}

/// A link: `{rel, seq}`, `{rel, key}` or `{rel, run, hash}`.
#[derive(ToSchema)]
pub(crate) struct LinkBody {
    /// derived_from, observed_by, selected_by, caused, verified_by, replaced, cancelled, answers or uses.
    rel: String,
    /// An earlier frame of this run.
    seq: Option<u64>,
    /// An earlier frame of this run by its key.
    key: Option<String>,
    /// Another run.
    run: Option<String>,
    /// The hash of the frame in the other run.
    hash: Option<String>,
}

/// W3C trace context.
#[derive(ToSchema)]
pub(crate) struct TraceBody {
    /// 32 hex digits.
    trace_id: String,
    /// 16 hex digits.
    span_id: String,
}
