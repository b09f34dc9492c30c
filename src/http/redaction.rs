//! `/v1/redaction`: the rules that a tenant adds, and what rules would do.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::{Caller, Role};
use crate::record::{DOCUMENT_BYTES, DRY_RUNS, Standing, Tried, TryRequest, document_media};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::json::{self, Limits};
use onrecord_core::limits;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

/// Bytes of a request to try rules.
const TRY_BYTES: usize = 2 * 1024 * 1024;
/// Wrappers around a sample: the request and its member.
const TRY_LIMITS: Limits = Limits {
    bytes: TRY_BYTES,
    depth: limits::DEPTH + 3,
    object: true,
};

/// Which document.
#[derive(Deserialize, IntoParams)]
pub(crate) struct RulesQuery {
    /// A version of before; by default the one that holds.
    version: Option<u64>,
}

/// Who changed the rules.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangedBy {
    /// agent, human, tool, verifier, importer or system.
    #[serde(rename = "type")]
    kind: String,
    /// Who.
    id: String,
}

/// A tenant's document of rules.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulesBody {
    /// Its version, from 1; 0 where the tenant has added nothing.
    version: u64,
    /// What stands beside redactions under it, such as `builtin/1+t/3`; absent where the server does not redact.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<String>,
    /// When it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    at: Option<String>,
    /// Who changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<ChangedBy>,
    /// Index of the ledger's entry whose subject it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    /// application/toml or application/json.
    #[serde(skip_serializing_if = "Option::is_none")]
    media: Option<String>,
    /// The document, exactly as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<String>,
}

impl From<Standing> for RulesBody {
    fn from(standing: Standing) -> Self {
        let set = standing.set;
        let Some(row) = standing.row else {
            return Self {
                version: 0,
                set,
                at: None,
                by: None,
                index: None,
                media: None,
                document: None,
            };
        };
        Self {
            version: row.version,
            set,
            at: Some(row.at.to_string()),
            by: Some(ChangedBy {
                kind: row.by.kind.as_str().to_owned(),
                id: row.by.id,
            }),
            index: Some(row.ledger_index),
            media: Some(row.media),
            document: Some(String::from_utf8_lossy(&row.document).into_owned()),
        }
    }
}

fn may(caller: &Caller) -> Result<(), Problem> {
    Ok(caller.needs(&[Role::Admin, Role::Compliance])?)
}

/// Reads the rules of redaction that the tenant has added to the server's.
#[utoipa::path(
    get, path = "/v1/redaction/rules", tag = "administer", operation_id = "readRedactionRules",
    params(RulesQuery),
    responses(
        (status = 200, description = "The document", body = RulesBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_rules(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<RulesQuery>,
) -> Result<Response, Problem> {
    may(&caller)?;
    if query
        .version
        .is_some_and(|version| version == 0 || version >= 1 << 53)
    {
        return Err(Problem::parameter("version", "a number from 1"));
    }
    let standing = app.recorder.redaction_rules(caller, query.version).await?;
    Ok(axum::Json(RulesBody::from(standing)).into_response())
}

/// Replaces the rules that the tenant has added to the server's. Every version is kept, and stands in the ledger.
///
/// The same document again changes nothing. Other processes of the server follow within a second.
#[utoipa::path(
    put, path = "/v1/redaction/rules", tag = "administer", operation_id = "changeRedactionRules",
    params(EncodingHeader),
    request_body(content((String = "application/toml"), (Value = "application/json"))),
    responses(
        (status = 201, description = "They hold now", body = RulesBody),
        (status = 200, description = "They held already", body = RulesBody),
        (status = "4XX", description = "Refused; nothing was changed", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; send it again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change_rules(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    may(&caller)?;
    let media = headers.get(header::CONTENT_TYPE);
    let media = media.and_then(|media| document_media(media.to_str().ok()?));
    let media = media.ok_or_else(|| Problem::media_type("application/toml or application/json"))?;
    let (document, _) = super::body::read(&app, &headers, body, DOCUMENT_BYTES).await?;
    let changed = app.recorder.change_redaction_rules(caller, media, document);
    let standing = changed.await?;
    let status = if standing.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(RulesBody::from(standing))).into_response())
}

/// What to try.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunRequest<'a> {
    /// A document in place of the tenant's: TOML as a string, or JSON of the same shape.
    #[serde(default, borrow)]
    #[schema(value_type = Option<Value>)]
    rules: Option<&'a RawValue>,
    /// A sample to redact.
    #[serde(default, borrow)]
    sample: Option<DryRunSample<'a>>,
    /// Recorded runs to look at.
    #[serde(default)]
    runs: Option<DryRunRuns>,
}

/// A sample: one of the two.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunSample<'a> {
    /// JSON, read as a payload of that name is.
    #[serde(default, borrow)]
    #[schema(value_type = Option<Value>)]
    json: Option<&'a RawValue>,
    /// Text.
    #[serde(default)]
    text: Option<String>,
}

/// Recorded runs.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunRuns {
    /// How many of the newest.
    #[schema(minimum = 1, maximum = 1000)]
    last: u32,
}

/// What rules would do. Nothing of a secret is in it.
#[derive(Serialize, ToSchema)]
pub(crate) struct DryRunBody {
    /// The version of the rules; `t/0` is a document that was given with the request.
    set: String,
    /// The sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<SampleBody>,
    /// The recorded runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<RunsFound>,
}

/// A sample without its secrets.
#[derive(Serialize, ToSchema)]
pub(crate) struct SampleBody {
    /// What was taken out, in its order; at most 1000.
    found: Vec<SampleMark>,
    /// The sample, where it was JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Value>,
    /// The sample, where it was text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// A secret in a sample.
#[derive(Serialize, ToSchema)]
pub(crate) struct SampleMark {
    /// What kind of secret.
    kind: String,
    /// Id of the rule.
    rule: String,
    /// RFC 6901 pointer to where the placeholder is, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// Where it is, in bytes of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<(u64, u64)>,
}

/// What rules find in what is recorded outside of payloads, where it would be refused today.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunsFound {
    /// Runs that were looked at to their end.
    runs: u64,
    /// Frames that were looked at.
    frames: u64,
    /// Whether that were all of them: the work is bounded.
    complete: bool,
    /// By rule.
    found: Vec<RuleFound>,
}

/// What a rule finds.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleFound {
    /// Id of the rule.
    rule: String,
    /// What kind of secret.
    kind: String,
    /// How often.
    count: u64,
    /// The first ten places.
    places: Vec<PlaceFound>,
}

/// A place in a recorded frame.
#[derive(Serialize, ToSchema)]
pub(crate) struct PlaceFound {
    /// The run.
    run: String,
    /// The frame.
    seq: u64,
    /// RFC 6901 pointer into it.
    pointer: String,
}

/// Findings that are listed of a sample.
const LISTED: usize = 1_000;

impl DryRunBody {
    fn of(tried: Tried, is_json: bool) -> Self {
        let sample = tried.sample.map(|(bytes, marks)| {
            let found = marks.into_iter().take(LISTED).map(|mark| SampleMark {
                kind: mark.kind,
                rule: mark.rule,
                pointer: mark.pointer,
                range: mark.range,
            });
            let text = || String::from_utf8_lossy(&bytes).into_owned();
            SampleBody {
                found: found.collect(),
                json: is_json.then(|| serde_json::from_slice(&bytes).unwrap_or_default()),
                text: (!is_json).then(text),
            }
        });
        let runs = tried.runs.map(|tried| RunsFound {
            runs: tried.runs,
            frames: tried.frames,
            complete: tried.complete,
            found: tried.found.into_iter().map(RuleFound::from).collect(),
        });
        Self {
            set: tried.set,
            sample,
            runs,
        }
    }
}

impl<P: IntoIterator<Item = crate::record::TriedPlace>> From<((String, String), (u64, P))>
    for RuleFound
{
    fn from(((rule, kind), (count, places)): ((String, String), (u64, P))) -> Self {
        let places = places.into_iter().map(|place| PlaceFound {
            run: place.run.to_string(),
            seq: place.seq,
            pointer: place.pointer,
        });
        Self {
            rule,
            kind,
            count,
            places: places.collect(),
        }
    }
}

fn read_dry_run(bytes: &[u8]) -> Result<(TryRequest, bool), Problem> {
    let wrong = |name: &str, expected: &str| Problem::parameter(name, expected);
    let checked = json::members(bytes, TRY_LIMITS).is_ok();
    let request = checked.then(|| serde_json::from_slice::<DryRunRequest<'_>>(bytes).ok());
    let request = request.flatten().ok_or_else(|| {
        wrong(
            "the body",
            "{rules?, sample?: {json} or {text}, runs?: {last}} in strict JSON",
        )
    })?;
    let rules = request.rules.map(|rules| {
        let raw = rules.get();
        match serde_json::from_str::<String>(raw) {
            Ok(toml) => ("application/toml", toml.into_bytes()),
            Err(_) => ("application/json", raw.as_bytes().to_vec()),
        }
    });
    let rules = rules.and_then(|(media, document)| Some((document_media(media)?, document)));
    if rules
        .as_ref()
        .is_some_and(|(_, document)| document.len() > DOCUMENT_BYTES)
    {
        return Err(Problem::body_too_large(DOCUMENT_BYTES));
    }
    let is_json = request
        .sample
        .as_ref()
        .is_some_and(|sample| sample.json.is_some());
    let sample = match request.sample.map(|sample| (sample.json, sample.text)) {
        None => None,
        Some((Some(json), None)) => {
            let bytes = json::canonicalize(json.get().as_bytes(), Limits::PAYLOAD);
            let bytes = bytes.map_err(|_| wrong("sample.json", "JSON that can be kept exactly"))?;
            Some((bytes, true))
        }
        Some((None, Some(text))) => Some((text.into_bytes(), false)),
        Some(_) => return Err(wrong("sample", "one of json and text")),
    };
    let runs = request.runs.map(|runs| runs.last);
    if runs.is_some_and(|last| !(1..=DRY_RUNS).contains(&last)) {
        return Err(wrong("runs.last", &format!("1 to {DRY_RUNS}")));
    }
    let request = TryRequest {
        rules,
        sample,
        runs,
    };
    Ok((request, is_json))
}

/// Tries rules of redaction: on a sample, and on what the newest runs have outside of payloads. Nothing is stored.
#[utoipa::path(
    post, path = "/v1/redaction/dry-run", tag = "administer", operation_id = "tryRedaction",
    params(EncodingHeader),
    request_body(content = DryRunRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "What the rules would do", body = DryRunBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dry_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    may(&caller)?;
    let (bytes, _room) = super::body::read(&app, &headers, body, TRY_BYTES).await?;
    let (request, is_json) = read_dry_run(&bytes)?;
    let tried = app.recorder.try_redaction(caller, request).await?;
    let body = DryRunBody::of(tried, is_json);
    Ok(([(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}
