//! `/v1/ledger/anchors` and `/v1/ledger/rewind`: what others say of the tenant's ledger.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{READERS, Role};
use crate::anchor::{AnchorState, WitnessState};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const BODY_BYTES: usize = 16_384;
/// Characters of a reason.
const REASON_CHARS: usize = 500;

/// How it stands with what is told of a ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnchorsBody {
    /// The witnesses that the server asks.
    witnesses: Vec<WitnessBody>,
    /// Size of the largest checkpoint that enough of them cosigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cosigned_size: Option<u64>,
    /// The time-stamping authority that the server asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<AuthorityBody>,
    /// The last seal that was stamped: its index.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamped_seal: Option<PlaceBody>,
    /// The last checkpoint that was stamped: its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamped_checkpoint: Option<PlaceBody>,
    /// What was published and is not in the ledger.
    rewinds: Vec<RewindBody>,
    /// Whether nothing is recorded until a rewind is accepted.
    rewound: bool,
}

/// A witness.
#[derive(Serialize, ToSchema)]
pub(crate) struct WitnessBody {
    /// Its verifier key, `NAME+ID+BASE64`.
    witness: String,
    /// Where it is asked.
    url: String,
    /// The largest checkpoint that it cosigned: its size, and when its answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    cosigned: Option<PlaceBody>,
    /// Why it did not cosign when it was asked last; absent where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The authority.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuthorityBody {
    /// Where it is asked.
    url: String,
    /// Why it did not stamp when it was asked last; absent where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A place in the ledger, and a time.
#[derive(Serialize, ToSchema)]
pub(crate) struct PlaceBody {
    /// A size or an index.
    number: u64,
    /// When.
    #[schema(format = DateTime)]
    at: String,
}

/// A checkpoint that was published and that the ledger has not.
#[derive(Serialize, ToSchema)]
pub(crate) struct RewindBody {
    /// Who knows it: `published` for the server's own file, or a witness's verifier key.
    told_by: String,
    /// Its size.
    published_size: u64,
    /// Its root in hex, where whoever knows the size says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    published_root: Option<String>,
    /// Size of the ledger when it was found.
    size: u64,
    /// When it was found.
    #[schema(format = DateTime)]
    found_at: String,
    /// Whether somebody accepted it.
    accepted: bool,
}

impl From<AnchorState> for AnchorsBody {
    fn from(state: AnchorState) -> Self {
        let rewound = state.rewinds.iter().any(|one| !one.accepted);
        let rewinds = state.rewinds.into_iter().map(|one| RewindBody {
            told_by: one.told_by,
            published_size: one.told_size,
            published_root: one.told_root.map(|root| root.hex()),
            size: one.size,
            found_at: one.found_at.to_string(),
            accepted: one.accepted,
        });
        Self {
            witnesses: state.witnesses.into_iter().map(witness).collect(),
            cosigned_size: state.cosigned_size,
            authority: state
                .authority
                .map(|(url, problem)| AuthorityBody { url, problem }),
            stamped_seal: state.stamped_seal.map(place),
            stamped_checkpoint: state.stamped_checkpoint.map(place),
            rewinds: rewinds.collect(),
            rewound,
        }
    }
}

fn witness(state: WitnessState) -> WitnessBody {
    WitnessBody {
        witness: state.witness,
        url: state.url,
        cosigned: state.cosigned.map(place),
        problem: state.problem,
    }
}

fn place((number, at): (u64, Timestamp)) -> PlaceBody {
    PlaceBody {
        number,
        at: at.to_string(),
    }
}

/// Shows what witnesses and the time-stamping authority did for the tenant's ledger, and whether the ledger lacks what was
/// published of it.
///
/// Needs the role auditor, compliance or admin.
#[utoipa::path(
    get, path = "/v1/ledger/anchors", tag = "verify", operation_id = "readAnchors",
    responses(
        (status = 200, description = "How it stands", body = AnchorsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_anchors(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let state = app.anchors.state(caller.tenant).await?;
    Ok(axum::Json(AnchorsBody::from(state)).into_response())
}

/// Why a ledger may go on from before what was published of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptRewindRequest {
    /// Why, as the ledger says for ever.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// A rewind that was accepted.
#[derive(Serialize, ToSchema)]
pub(crate) struct AcceptedRewindBody {
    /// Index of the statement in the ledger.
    index: u64,
    /// Size of the ledger that goes on, which is that index.
    size: u64,
    /// Its root, in hex.
    root: String,
    /// What was published and is not there: sizes.
    published_sizes: Vec<u64>,
    /// When.
    #[schema(format = DateTime)]
    at: String,
}

/// Accepts that the ledger goes on from where it is, though more of it was published: after the database was put back
/// from a backup. The ledger says so for ever, with what was published before.
///
/// Needs the role admin.
#[utoipa::path(
    post, path = "/v1/ledger/rewind", tag = "administer", operation_id = "acceptRewind",
    params(EncodingHeader),
    request_body(content = AcceptRewindRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "Accepted; recording goes on", body = AcceptedRewindBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn accept_rewind(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let expected = || Problem::parameter("the body", "{\"reason\": \"…\"} of 1 to 500 characters");
    let request: AcceptRewindRequest =
        onrecord_core::json::typed(&bytes).map_err(|_| expected())?;
    if !(1..=REASON_CHARS).contains(&request.reason.chars().count()) {
        return Err(expected());
    }
    let accepted = app.recorder.accept_rewind(caller, request.reason).await?;
    let statement = accepted.statement;
    let body = AcceptedRewindBody {
        index: accepted.index,
        size: statement.size,
        root: statement.root.hex(),
        published_sizes: statement.published.iter().map(|one| one.size).collect(),
        at: statement.at.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}
