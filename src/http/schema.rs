//! Shapes of requests, for the OpenAPI document; they are read by `record::intake`, strictly.
#![allow(
    dead_code,
    reason = "the document is made of the declarations, nobody makes a value"
)]

use utoipa::ToSchema;

/// Opens a run.
#[derive(ToSchema)]
pub(crate) struct OpenRequest {
    /// Body of the session frame: agent, mandate, profile, pins and what else describes the run. The
    /// store adds `suite`, `nonce`, `run_no`, `ledger` and, if absent, `retention`.
    session: serde_json::Map<String, serde_json::Value>,
    /// Idempotency key, 1 to 200 printable ASCII characters; unique among openings of the tenant.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 200,
        pattern = "^[ -~]+$"
    )]
    key: Option<String>,
    /// Who writes; by default the token's actor.
    #[schema(nullable = false)]
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime, nullable = false)]
    occurred_at: Option<String>,
    /// What is private, such as the task.
    #[schema(nullable = false)]
    payloads: Option<Vec<PayloadBody>>,
    /// Links to frames of other runs.
    #[schema(nullable = false)]
    links: Option<Vec<LinkBody>>,
    /// W3C trace context.
    #[schema(nullable = false)]
    trace: Option<TraceBody>,
}

/// A frame to append.
#[derive(ToSchema)]
pub(crate) struct FrameBody {
    /// What it records. `session` is posted to `/v1/runs`.
    #[schema(example = "tool_call")]
    kind: String,
    /// Idempotency key, 1 to 200 printable ASCII characters, unique in the run.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 200,
        pattern = "^[ -~]+$"
    )]
    key: Option<String>,
    /// Absent: the open turn, if there is one. `null`: run-level. A number: that turn, which has to be
    /// the open one. For kind `turn` absent or the next number.
    #[schema(minimum = 1)]
    turn: Option<u64>,
    /// Who writes; by default the token's actor.
    #[schema(nullable = false)]
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime, nullable = false)]
    occurred_at: Option<String>,
    /// Members of the kind that are not private: ids, enums, counts, digests of public things.
    #[schema(nullable = false)]
    body: Option<serde_json::Map<String, serde_json::Value>>,
    /// What is private.
    #[schema(nullable = false)]
    payloads: Option<Vec<PayloadBody>>,
    /// Links to earlier frames, or to frames of other runs.
    #[schema(nullable = false)]
    links: Option<Vec<LinkBody>>,
    /// W3C trace context.
    #[schema(nullable = false)]
    trace: Option<TraceBody>,
    /// The agent's signature. It needs `key`, `turn`, an `actor` with the same `keyid`, and payloads with commitments.
    #[schema(nullable = false)]
    submitted: Option<SubmittedBody>,
    /// With kind `tool_call`: its result, which becomes a `tool_result` frame that answers it.
    #[schema(nullable = false)]
    result: Option<ResultBody>,
}

/// The result of a tool call that is posted whole.
#[derive(ToSchema)]
pub(crate) struct ResultBody {
    /// By default the call's key and `/result`.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 200,
        pattern = "^[ -~]+$"
    )]
    key: Option<String>,
    /// By default the tool that the call names.
    #[schema(nullable = false)]
    actor: Option<ActorBody>,
    /// The writer's clock, RFC 3339.
    #[schema(format = DateTime, nullable = false)]
    occurred_at: Option<String>,
    /// Such as `exit`, `files`, `added`, `removed`.
    #[schema(nullable = false)]
    body: Option<serde_json::Map<String, serde_json::Value>>,
    /// What the tool answered.
    #[schema(nullable = false)]
    payloads: Option<Vec<PayloadBody>>,
    /// Further links.
    #[schema(nullable = false)]
    links: Option<Vec<LinkBody>>,
}

/// Who writes.
#[derive(ToSchema)]
pub(crate) struct ActorBody {
    /// agent, human, tool, verifier or importer.
    #[schema(rename = "type")]
    r#type: String,
    /// 1 to 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    id: String,
    /// The key that the frame is signed with.
    #[schema(nullable = false, pattern = "^[0-9a-f]{64}$")]
    keyid: Option<String>,
}

/// An agent's signature on a frame.
#[derive(ToSchema)]
pub(crate) struct SubmittedBody {
    /// The key, which is registered for the actor.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    keyid: String,
    /// 1, 2, 3 … for the key in the run.
    #[schema(minimum = 1)]
    n: u64,
    /// Ed25519, 64 bytes in base64.
    sig: String,
}

/// A payload: exactly one of `json`, `text` and `base64`, of at most 16 MiB; or none, with `kept: false`.
#[derive(ToSchema)]
pub(crate) struct PayloadBody {
    /// `[a-z][a-z0-9_.-]{0,63}`, unique in the frame.
    #[schema(pattern = "^[a-z][a-z0-9_.-]{0,63}$")]
    name: String,
    /// Media type; by default that of the form.
    #[schema(nullable = false, min_length = 1, max_length = 127)]
    media: Option<String>,
    /// Retention tier, 0 to 3; by default 2.
    #[schema(nullable = false, minimum = 0, maximum = 3)]
    tier: Option<u8>,
    /// Any JSON value, stored as RFC 8785.
    #[schema(nullable = false)]
    json: Option<serde_json::Value>,
    /// Text, stored as UTF-8.
    #[schema(nullable = false)]
    text: Option<String>,
    /// Bytes.
    #[schema(nullable = false)]
    base64: Option<String>,
    /// Ids of whom it is about: all that is about one can be erased. The store keeps keyed fingerprints of them, and none
    /// is on the frame.
    #[schema(nullable = false, max_items = 16)]
    subjects: Option<Vec<String>>,
    /// The commitment that the agent made: with `dek` in a signed frame, or with `kept: false`.
    #[schema(nullable = false, pattern = "^[0-9a-f]{64}$")]
    commit: Option<String>,
    /// The key that the commitment is made with, 32 bytes in base64.
    #[schema(nullable = false)]
    dek: Option<String>,
    /// `false` where the agent keeps the payload and sends its commitment, `size` and `media` only.
    #[schema(nullable = false)]
    kept: Option<bool>,
    /// With `kept: false`: the length after padding.
    #[schema(nullable = false, minimum = 256)]
    size: Option<u64>,
}

/// A link: `{rel, seq}`, `{rel, key}` or `{rel, run, hash}`.
#[derive(ToSchema)]
pub(crate) struct LinkBody {
    /// derived_from, observed_by, selected_by, caused, verified_by, replaced, cancelled, answers or uses.
    rel: String,
    /// An earlier frame of this run.
    #[schema(nullable = false)]
    seq: Option<u64>,
    /// An earlier frame of this run by its key.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 200,
        pattern = "^[ -~]+$"
    )]
    key: Option<String>,
    /// Another run.
    #[schema(nullable = false)]
    run: Option<String>,
    /// The hash of the frame in the other run.
    #[schema(nullable = false)]
    hash: Option<String>,
}

/// W3C trace context.
#[derive(ToSchema)]
pub(crate) struct TraceBody {
    /// 32 hex digits.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    trace_id: String,
    /// 16 hex digits.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    span_id: String,
}
