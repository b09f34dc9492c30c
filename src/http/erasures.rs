//! `/v1/erasures`: what is to be erased, and how far that is.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, ErasurePath, idempotency_key, merge_key};
use crate::access::{Caller, Role, is_name};
use crate::retention::erasure::{Erasure, ErasureRequest, NAMED, What};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const BODY_BYTES: usize = 262_144;
/// Characters of a policy, of a reason, and of a subject.
const CHARS: usize = 200;
/// Erasures of a page, unless it says otherwise, and at most.
const PAGE: (u32, u32) = (50, 500);
const EXPECTED: &str =
    "{\"reason\": \"…\"} with one of run and commits, run and tier, subject, or \"tenant\": true";

/// What to erase: payloads of a run, a tier of a run, all about a subject, or everything.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewErasureRequest {
    /// Why, as a code: it stands on the ledger.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// Under which policy; by default `request`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    policy: Option<String>,
    /// By which a retry finds the erasure; the header `Idempotency-Key` is the same.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    key: Option<String>,
    /// The run.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    run: Option<RunId>,
    /// Commitments of payloads of the run.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 1000)]
    commits: Option<Vec<Hash>>,
    /// A tier of the run: all its payloads until now.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 3)]
    tier: Option<u8>,
    /// A subject: all payloads that their writers named it in.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    subject: Option<String>,
    /// Every payload of the tenant.
    #[serde(default)]
    tenant: bool,
}

impl NewErasureRequest {
    fn what(&self) -> Option<What> {
        let (run, tier) = (self.run.clone(), self.tier);
        let commits = self.commits.clone();
        Some(match (run, commits, tier, &self.subject, self.tenant) {
            (Some(run), Some(commits), None, None, false)
                if (1..=NAMED).contains(&commits.len()) =>
            {
                What::Payloads(run, commits)
            }
            (Some(run), None, Some(tier), None, false) if tier <= 3 => What::Tier(run, tier),
            (None, None, None, Some(subject), false) if is_name(subject, CHARS) => {
                What::Subject(subject.clone())
            }
            (None, None, None, None, true) => What::Tenant,
            _ => return None,
        })
    }
}

/// An erasure, and how far it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasureBody {
    /// Its id.
    erasure: String,
    /// requested, keys_destroyed, ciphertext_removed or final.
    state: &'static str,
    /// payloads, subject, tier or tenant; expiry for what expired under a schedule.
    scope: &'static str,
    /// The run, where it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// The tier, where it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<u8>,
    /// Under which policy.
    policy: String,
    /// Why.
    reason: String,
    /// Who asked for it.
    #[schema(value_type = Object)]
    by: Actor,
    /// When it was asked for.
    #[schema(format = DateTime)]
    requested_at: String,
    /// When no key was left in the store that opens any of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    keys_destroyed_at: Option<String>,
    /// When the last ciphertext was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    removed_at: Option<String>,
    /// When the last epoch was destroyed that had wrapped a key of it: no copy of the database opens any of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    final_at: Option<String>,
    /// Matter of a hold that part of it waits for, or the floor of the retention policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
    /// Tiers of runs that it is about.
    parts: u64,
    /// How many of them are done.
    parts_done: u64,
    /// Payloads that were erased so far.
    count: u64,
    /// Entries of the ledger that certify it so far.
    entries: u64,
}

impl From<Erasure> for ErasureBody {
    fn from(one: Erasure) -> Self {
        let state = match (one.keys_destroyed_at, one.removed_at, one.final_at) {
            (.., Some(_)) => "final",
            (_, Some(_), _) => "ciphertext_removed",
            (Some(_), ..) => "keys_destroyed",
            _ => "requested",
        };
        Self {
            erasure: one.id.to_string(),
            state,
            scope: one.scope,
            run: one.run.map(|run| run.to_string()),
            tier: one.tier,
            policy: one.policy,
            reason: one.reason,
            by: one.by,
            requested_at: one.requested_at.to_string(),
            keys_destroyed_at: one.keys_destroyed_at.map(|at| at.to_string()),
            removed_at: one.removed_at.map(|at| at.to_string()),
            final_at: one.final_at.map(|at| at.to_string()),
            held: one.held,
            parts: one.parts,
            parts_done: one.parts_done,
            count: one.count,
            entries: one.entries,
        }
    }
}

/// Erasures.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasuresBody {
    /// Newest first.
    erasures: Vec<ErasureBody>,
    /// `before` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn may_look(caller: &Caller) -> Result<(), Problem> {
    Ok(caller.needs(&[Role::Auditor, Role::Compliance, Role::Admin])?)
}

/// Erases payloads: destroys their keys, certifies it on the ledger, and removes their ciphertexts. The run's evidence verifies
/// without them. What takes longer than five seconds goes on by itself; ask for the erasure to see how far it is.
#[utoipa::path(
    post, path = "/v1/erasures", tag = "retain", operation_id = "erase",
    params(EncodingHeader),
    request_body(content = NewErasureRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The erasure, as far as it is", body = ErasureBody),
        (status = 200, description = "It was asked for before", body = ErasureBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; ask again with the same key", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn erase(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance])?;
    let (bytes, _) = super::body::read(&app, &headers, body, BODY_BYTES).await?;
    let request: NewErasureRequest =
        onrecord_core::json::typed(&bytes).map_err(|_| Problem::parameter("the body", EXPECTED))?;
    let what = request
        .what()
        .ok_or_else(|| Problem::parameter("the body", EXPECTED))?;
    let policy = request.policy.unwrap_or_else(|| "request".to_owned());
    for (name, text) in [("reason", &request.reason), ("policy", &policy)] {
        if !is_name(text, CHARS) {
            let expected =
                "1 to 200 characters, none of them a control character or a noncharacter";
            return Err(Problem::parameter(name, expected));
        }
    }
    let mut key = request.key;
    if let Some(key) = &key {
        crate::record::intake::check_key("/key", key)?;
    }
    merge_key(&mut key, idempotency_key(&headers)?)?;
    let request = ErasureRequest {
        what,
        policy,
        reason: request.reason,
        key,
    };
    let (erasure, created) = app.recorder.erase(caller, request, app.finality).await?;
    let location = format!("/v1/erasures/{}", erasure.id);
    let location = HeaderValue::from_str(&location).unwrap_or(HeaderValue::from_static("/"));
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = axum::Json(ErasureBody::from(erasure));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// Which page.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ErasuresQuery {
    /// Erasures before this one.
    before: Option<String>,
    /// At most so many, 1 to 500; by default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Lists erasures, newest first.
#[utoipa::path(
    get, path = "/v1/erasures", tag = "retain", operation_id = "listErasures",
    params(ErasuresQuery),
    responses(
        (status = 200, description = "A page", body = ErasuresBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_erasures(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<ErasuresQuery>,
) -> Result<Response, Problem> {
    may_look(&caller)?;
    let before = query.before.map(|before| before.parse()).transpose();
    let before = before.map_err(|_| Problem::parameter("before", "`next` of the page before"))?;
    let limit = query.limit.unwrap_or(PAGE.0);
    if !(1..=PAGE.1).contains(&limit) {
        return Err(Problem::parameter("limit", "1 to 500"));
    }
    let page = app.recorder.erasures(caller.tenant, before, limit).await?;
    let full = page.len() == usize::try_from(limit).unwrap_or(usize::MAX);
    let next = page.last().filter(|_| full).map(|last| last.id.to_string());
    let erasures = page.into_iter().map(ErasureBody::from).collect();
    Ok(axum::Json(ErasuresBody { erasures, next }).into_response())
}

/// Reads an erasure: how far it is.
#[utoipa::path(
    get, path = "/v1/erasures/{erasure}", tag = "retain", operation_id = "readErasure",
    params(("erasure" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The erasure", body = ErasureBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_erasure(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    ErasurePath(id): ErasurePath,
) -> Result<Response, Problem> {
    may_look(&caller)?;
    let erasure = app.recorder.read_erasure(caller.tenant, id).await?;
    Ok(axum::Json(ErasureBody::from(erasure)).into_response())
}

/// The certificate of disposal, as far as the erasure is now: a DSSE envelope signed with the tenant's seal key. Its subject is
/// the list at `/v1/erasures/{erasure}/entries`.
#[utoipa::path(
    get, path = "/v1/erasures/{erasure}/certificate", tag = "retain", operation_id = "readCertificate",
    params(("erasure" = String, Path, description = "Id of the erasure")),
    responses(
        (status = 200, description = "The envelope", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_certificate(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    ErasurePath(id): ErasurePath,
) -> Result<Response, Problem> {
    may_look(&caller)?;
    let certificate = app
        .recorder
        .certificate(caller.tenant, id, app.finality)
        .await?;
    let media = [(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    )];
    Ok((media, certificate).into_response())
}

/// The ledger's entries that certify an erasure: a line `INDEX LEAF RUN` for each, by index. The certificate's subject is the
/// SHA-256 of exactly these bytes.
#[utoipa::path(
    get, path = "/v1/erasures/{erasure}/entries", tag = "retain", operation_id = "readErasureEntries",
    params(("erasure" = String, Path, description = "Id of the erasure")),
    responses(
        (status = 200, description = "The lines", body = String, content_type = "text/plain"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_entries(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    ErasurePath(id): ErasurePath,
) -> Result<Response, Problem> {
    may_look(&caller)?;
    let entries = app.recorder.erasure_entries(caller.tenant, id).await?;
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, media)], entries).into_response())
}
