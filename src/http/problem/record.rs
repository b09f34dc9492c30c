//! What became of a request that was to be carried out.

use super::{Problem, database, internal};
use crate::anchor::AnchorError;
use crate::http::envelope::{span, without_secrets};
use crate::record::RecordError;
use axum::http::StatusCode;

impl From<AnchorError> for Problem {
    fn from(error: AnchorError) -> Self {
        match error {
            AnchorError::Record(error) => error.into(),
            other => internal(&other),
        }
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let detail = error.to_string();
        let conflict = |code: &str, title: &str, action: &str| {
            Self::new(StatusCode::CONFLICT, code, title, &detail, action)
        };
        let missing = |code: &str, title: &str| {
            Self::new(
                StatusCode::NOT_FOUND,
                code,
                title,
                &detail,
                "Check the address; a token sees its own tenant's runs only.",
            )
        };
        match error {
            RecordError::Intake(error) => error.into(),
            RecordError::Access(error) => error.into(),
            RecordError::NoRun(_) => missing("run_not_found", "No such run"),
            RecordError::NoFrame { .. } => missing("frame_not_found", "No such frame"),
            RecordError::NoPayload { .. } => missing("payload_not_found", "No such payload"),
            RecordError::Held { .. } => conflict(
                "held",
                "A hold is in force",
                "Release the hold first, where that is right; see GET /v1/holds.",
            ),
            RecordError::Floor { .. } => conflict(
                "retention_floor",
                "It has to be kept for longer",
                "Ask again after that time; see GET /v1/retention/policy for the schedule.",
            ),
            RecordError::NoPolicy(_) => {
                missing("policy_not_found", "No such version of the policy")
            }
            RecordError::BadPolicy { ref pointer, .. } => {
                let problem = Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "malformed_policy",
                    "The retention policy cannot be used",
                    detail,
                    "Correct what is at the pointer; nothing was changed. Policies are described in docs/retention.md.",
                );
                Self {
                    pointer: Some(without_secrets(pointer.clone())),
                    ..problem
                }
            }
            RecordError::ErasureKey(_) => conflict(
                "key_conflict",
                "The key was used for another request",
                "A retry sends the same request; another erasure needs another key.",
            ),
            RecordError::NoErasure(_) => missing("erasure_not_found", "No such erasure"),
            RecordError::NoHold(_) => missing("hold_not_found", "No such hold"),
            RecordError::NoHoldOrder(_) => {
                missing("hold_order_not_found", "No such order of holds")
            }
            RecordError::NoHoldRelease => missing("release_not_found", "No request to release it"),
            RecordError::NoFlag { .. } => missing("flag_not_found", "No such flag"),
            RecordError::HoldOfOrder { .. } => conflict(
                "hold_of_order",
                "An order wants the hold",
                "Release the order, where that is right; see GET /v1/hold-orders.",
            ),
            RecordError::NotKept { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "payload_not_kept",
                "The payload was never sent",
                detail,
                "Ask whoever runs the agent for it; it can be checked against the commitment.",
            ),
            RecordError::Missing { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "payload_missing",
                "The payload is lost",
                detail,
                "Ask the operator: somebody removed it from the database without a certificate.",
            ),
            RecordError::Erased { .. } => Self::new(
                StatusCode::GONE,
                "payload_erased",
                "The payload was erased",
                detail,
                "Nobody can bring it back; the run's evidence verifies without it.",
            ),
            RecordError::Expired { .. } => Self::new(
                StatusCode::GONE,
                "payload_expired",
                "The payload expired",
                detail,
                "Nobody can bring it back; GET /v1/retention/policy has the schedule, and the run's evidence verifies without it.",
            ),
            RecordError::NoTurn { .. } => missing("turn_not_found", "No such turn"),
            RecordError::NoPerson(_) => missing("person_not_found", "No such person"),
            RecordError::NoQuery(_) => missing("query_not_found", "No such query"),
            RecordError::NoSavedQuery(_) => missing("saved_query_not_found", "No such saved query"),
            RecordError::NoLog(_) => Self::new(
                StatusCode::NOT_FOUND,
                "ledger_not_found",
                "No such ledger",
                detail,
                "Check the address: it ends as the origin of the ledger does, which frame 0 of each run names.",
            ),
            RecordError::BeyondCheckpoint { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "beyond_checkpoint",
                "The ledger does not reach so far",
                detail,
                "Read the checkpoint, and ask for what is below its size; a tile that is not full is asked for by its width, as in tile/0/000.p/5.",
            ),
            RecordError::NoCheckpoint { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "checkpoint_not_found",
                "No checkpoint of that size",
                detail,
                "Ask for the size that is named, or leave `size` out for the latest checkpoint.",
            ),
            RecordError::Unsigned { .. } => Self::new(
                StatusCode::FORBIDDEN,
                "frame_unsigned",
                "The agent signs its frames",
                detail,
                "Sign the frame with a key of the agent, or write as another actor.",
            ),
            RecordError::AgentKey { .. } => Self::new(
                StatusCode::FORBIDDEN,
                "agent_key_unknown",
                "The key signs nothing of this agent",
                detail,
                "Register the key, POST /v1/agent-keys, or sign with one that counts.",
            ),
            RecordError::FalseSignature => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "signature_false",
                "The signature is false",
                detail,
                "Sign exactly the frame as it will stand there: docs/spec/frames.md, \"Submitted frames\".",
            ),
            RecordError::WrongCount { expected, .. } => {
                let problem = conflict(
                    "wrong_count",
                    "The key does not count on",
                    "Sign the frame again with the `n` of this problem, after the frames before it have their receipts.",
                );
                Self {
                    n: Some(expected),
                    ..problem
                }
            }
            RecordError::CommitUsed(_) => conflict(
                "commitment_used",
                "The commitment is in the run already",
                "Commit to each payload with a key of its own.",
            ),
            RecordError::AgentKeyTaken(_) => conflict(
                "agent_key_taken",
                "The key was registered before",
                "Make a new key: one that signed for another, or that was revoked, is not taken again.",
            ),
            RecordError::WroteUnsigned { .. } => conflict(
                "actor_wrote_unsigned",
                "The actor wrote frames that it did not sign",
                "Give the agent that signs an id of its own. With `\"unsigned_before\": true` the key is taken nevertheless, and those frames become faults under the trust file.",
            ),
            RecordError::NoAgentKey(_) => missing("agent_key_not_found", "No such agent's key"),
            RecordError::KeyNotInForce { .. } => conflict(
                "key_not_in_force",
                "Another seal key is in force",
                "If your rotation was answered by nobody, it was done. Look: GET /v1/keys.",
            ),
            RecordError::Sealed(_) => conflict(
                "run_sealed",
                "The run is sealed",
                "Open a run of its own and link it to this one; a sealed run does not change.",
            ),
            RecordError::Open(_) => conflict(
                "run_open",
                "The run is not sealed",
                "Seal it first: POST /v1/runs/{run}/seal.",
            ),
            RecordError::Ended(_) => conflict(
                "run_ended",
                "The run has ended",
                "Seal it; what comes later is a run of its own, linked to this one.",
            ),
            RecordError::TurnNotOpen { .. } => conflict(
                "turn_not_open",
                "The turn is not open",
                "Post the frame in the open turn (leave `turn` out) with a link `answers` to what it answers; a parallel subagent is a run of its own, linked to this one.",
            ),
            RecordError::TurnNumber { .. } => conflict(
                "turn_number",
                "Turns are numbered densely",
                "Leave `turn` out: the store numbers turns.",
            ),
            RecordError::TurnTooLarge { .. } => conflict(
                "turn_too_large",
                "The turn is too large for a proof of its own",
                "Export the run, whose bundle has no such limit, or ask with payloads=none.",
            ),
            RecordError::KeyConflict { .. } => conflict(
                "key_conflict",
                "The key was used for another request",
                "A retry sends the same request; another frame needs another key.",
            ),
            RecordError::HeadMoved { head, .. } => {
                let problem = Self::new(
                    StatusCode::PRECONDITION_FAILED,
                    "head_moved",
                    "The run's head moved",
                    detail,
                    "Read what was appended since, then decide again with If-Match of the present head.",
                );
                Self {
                    head: Some(head.hex()),
                    ..problem
                }
            }
            RecordError::NoLink { pointer, .. } => {
                let problem = Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "link_not_found",
                    "A link points to nothing",
                    detail,
                    "Links in a run point to earlier frames, by `seq` or by `key`.",
                );
                Self {
                    pointer: Some(without_secrets(pointer)),
                    ..problem
                }
            }
            RecordError::FrameTooLarge { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "frame_too_large",
                "The frame is too large",
                detail,
                "Put what is long into payloads; a frame without its payloads has at most 65,536 bytes.",
            ),
            RecordError::Fault(fault) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                fault.code.as_str(),
                "The frame may not stand here",
                detail,
                "Correct the frame; the specification names the rule by this code.",
            ),
            RecordError::ClockBehind { .. } => {
                let problem = Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "clock_behind",
                    "The database's clock is behind",
                    detail,
                    "Set the clock of the database's machine; nothing was stored.",
                );
                Self {
                    retry_after_s: Some(5),
                    ..problem
                }
            }
            RecordError::Rewound => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "rewound",
                "The ledger was put back",
                detail,
                "Nothing was stored. Put back a newer backup, or let an admin accept it: `onrecord ledger accept-rewind`.",
            ),
            RecordError::NotRewound => Self::new(
                StatusCode::CONFLICT,
                "not_rewound",
                "There is nothing to accept",
                detail,
                "Leave it; `GET /v1/ledger/anchors` says how it stands.",
            ),
            RecordError::TooSlow => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "query_too_slow",
                "The query takes too long",
                detail,
                "Ask for less: a bound on the time, or a field that is indexed, as docs/queries.md has them; what few rows are is found only by looking at many otherwise.",
            ),
            RecordError::Store(error) => {
                database(error.is_storage_full(), error.is_transient(), &error)
            }
            RecordError::NotStored(error) => {
                database(error.is_storage_full(), error.is_transient(), &error)
            }
            RecordError::BadRules(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "malformed_rules",
                "The rules cannot be used",
                detail,
                "Correct the rule that is named; nothing was changed.",
            ),
            RecordError::NoRules(_) => Self::new(
                StatusCode::NOT_FOUND,
                "rules_not_found",
                "No such version of the rules",
                detail,
                "Leave `version` out for the document that holds; versions count from 1.",
            ),
            RecordError::Busy => Self::queue_full(),
            RecordError::Stopping => Self {
                detail: "the server is stopping".to_owned(),
                ..Self::busy()
            },
            RecordError::Unknown => Self::outcome_unknown(),
            RecordError::Vault(error) if error.is_service() => {
                span().in_scope(|| tracing::error!(%error, "the root key's service failed"));
                Self::key_service_unavailable()
            }
            RecordError::NoTenant(_)
            | RecordError::Vault(_)
            | RecordError::Rotation(_)
            | RecordError::StoredRules(_)
            | RecordError::CutOff => internal(&error),
        }
    }
}
