//! What every endpoint asks of a request: who calls, which run, which head.

use super::App;
use super::problem::Problem;
use super::signature;
use crate::access::{AccessError, Caller, READERS, is_code};
use crate::export::{ExportRequest, Withhold};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use serde::Deserialize;
use utoipa::IntoParams;

/// The caller of a request, by its bearer token (RFC 6750).
pub(crate) struct Authenticated(pub(crate) Caller);

impl FromRequestParts<App> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if signature::is_signed(&parts.headers) {
            return Box::pin(signed(parts, app)).await.map(Self);
        }
        let value = parts
            .headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(token.trim())
        });
        let token = token.ok_or(AccessError::Unauthenticated)?;
        let tokens = app.recorder.callers();
        if let Some(caller) = tokens.remembered(token) {
            return Ok(Self(caller));
        }
        let (tokens, token) = (tokens.clone(), token.to_owned());
        let look_up = async move { Ok(tokens.look_up(&token).await?) };
        let caller = Box::pin(app.recorder.detached(look_up)).await?;
        Ok(Self(caller))
    }
}

/// The caller of a request that an agent signed.
async fn signed(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    if parts.headers.contains_key(header::AUTHORIZATION) {
        let why = "a token or a signature, not both".to_owned();
        return Err(AccessError::Signature(why).into());
    }
    let request = signature::read(parts)?;
    Ok(app.recorder.signed_caller(request).await?)
}

/// The run in the path.
pub(crate) struct RunPath(pub(crate) RunId);

impl FromRequestParts<App> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = path(parts, app).await?;
        let run = path.iter().find(|(name, _)| name == "run");
        run.and_then(|(_, run)| run.parse().ok())
            .map(Self)
            .ok_or_else(malformed_run)
    }
}

/// The members of the path, in its order.
async fn path(parts: &mut Parts, app: &App) -> Result<Vec<(String, String)>, Problem> {
    let Path(path) = Path::from_request_parts(parts, app)
        .await
        .map_err(|_| malformed_run())?;
    Ok(path)
}

fn malformed_run() -> Problem {
    Problem::parameter(
        "run",
        "a ULID of 26 upper-case characters, as the opening of the run answered it",
    )
}

/// The run in the path and the number behind it.
pub(crate) struct RunAnd(pub(crate) RunId, pub(crate) u64);

impl FromRequestParts<App> for RunAnd {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let RunPath(run) = RunPath::from_request_parts(parts, app).await?;
        let path = path(parts, app).await?;
        let number = path
            .last()
            .and_then(|(_, number)| number.parse().ok())
            .filter(|number| *number < 1 << 53);
        number
            .map(|number| Self(run, number))
            .ok_or_else(|| Problem::parameter("the number in the path", "digits"))
    }
}

/// The erasure in the path.
pub(crate) struct ErasurePath(pub(crate) RunId);

impl FromRequestParts<App> for ErasurePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = path(parts, app).await?;
        let id = path.last().and_then(|(_, id)| id.parse().ok());
        id.map(Self)
            .ok_or_else(|| Problem::parameter("erasure", "an id, as the request was answered"))
    }
}

/// The order in the path.
pub(crate) struct OrderPath(pub(crate) RunId);

impl FromRequestParts<App> for OrderPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = path(parts, app).await?;
        let id = path.last().and_then(|(_, id)| id.parse().ok());
        id.map(Self)
            .ok_or_else(|| Problem::parameter("order", "an id, as the order was answered"))
    }
}

/// The run in the path and the code behind it.
pub(crate) struct RunAndCode(pub(crate) RunId, pub(crate) String);

impl FromRequestParts<App> for RunAndCode {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let RunPath(run) = RunPath::from_request_parts(parts, app).await?;
        let path = path(parts, app).await?;
        let code = path.last().filter(|(_, code)| is_code(code));
        code.map(|(_, code)| Self(run, code.clone()))
            .ok_or_else(|| Problem::code_expected("flag"))
    }
}

/// The number that the path has.
pub(crate) struct NumberPath(pub(crate) u64);

impl FromRequestParts<App> for NumberPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = path(parts, app).await?;
        let number = path.last().and_then(|(_, number)| number.parse().ok());
        number
            .filter(|number| *number < 1 << 53)
            .map(Self)
            .ok_or_else(|| Problem::parameter("the number in the path", "digits"))
    }
}

/// The run in the path and the commitment of a payload behind it.
pub(crate) struct RunAndCommit(pub(crate) RunId, pub(crate) Hash);

impl FromRequestParts<App> for RunAndCommit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let RunPath(run) = RunPath::from_request_parts(parts, app).await?;
        let path = path(parts, app).await?;
        let commit = path.last().and_then(|(_, commit)| commit.parse().ok());
        commit.map(|commit| Self(run, commit)).ok_or_else(|| {
            Problem::parameter(
                "commit",
                "the payload's commitment, 64 hex digits in lower case",
            )
        })
    }
}

/// The head that `If-Match` names; `*` and no header name none.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<Hash>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    if value == "*" {
        return Ok(None);
    }
    let hash = value
        .to_str()
        .ok()
        .and_then(|value| value.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    hash.map(Some).ok_or_else(|| {
        Problem::parameter(
            "If-Match",
            "one strong ETag: the head's 64 hex digits in double quotes",
        )
    })
}

/// The key that `Idempotency-Key` names, quoted or not.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| {
        Problem::parameter("Idempotency-Key", "1 to 200 printable ASCII characters")
    })?;
    let key = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    crate::record::intake::check_key("Idempotency-Key", key)?;
    Ok(Some(key.to_owned()))
}

/// Sets the key of a request from the header, where the body has none; the two may not differ.
pub(crate) fn merge_key(key: &mut Option<String>, header: Option<String>) -> Result<(), Problem> {
    match (key.as_ref(), header) {
        (Some(own), Some(header)) if *own != header => Err(Problem::parameter(
            "Idempotency-Key",
            "the same key as in the body, or one of the two alone",
        )),
        (None, Some(header)) => {
            *key = Some(header);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Why a payload is read: the header `Purpose`, or `purpose` of the query where no header can be set.
///
/// # Errors
/// It is malformed, or said twice and differently.
pub(crate) fn purpose(
    headers: &HeaderMap,
    query: Option<String>,
) -> Result<Option<String>, Problem> {
    let header = headers.get("purpose").map(|value| {
        std::str::from_utf8(value.as_bytes())
            .unwrap_or_default()
            .to_owned()
    });
    let stated = match (header, query) {
        (Some(header), Some(query)) if header != query => {
            return Err(Problem::parameter(
                "purpose",
                "the same purpose in the header and in the query, or one of the two alone",
            ));
        }
        (header, query) => header.or(query),
    };
    match stated {
        Some(purpose) if !is_code(&purpose) => Err(Problem::code_expected("purpose")),
        stated => Ok(stated),
    }
}

/// The header of [`purpose`], for the description.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header that is read by name")]
pub(crate) struct PurposeHeader {
    /// Why payloads are read, as a code of 1 to 64 letters, digits, `.`, `_` and `-`; stands on the ledger.
    #[param(rename = "Purpose", required = false)]
    purpose: String,
}

/// What is asked for of a run's payloads, by whom and why.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Disclosing {
    /// Why, as a code, if the header `Purpose` does not say so. Needed where payloads are disclosed.
    purpose: Option<String>,
    /// `all` (the default) discloses payloads, `none` withholds them.
    payloads: Option<String>,
    /// Payloads that are withheld, rules separated by commas: `name:NAME`, `tier:0` to `tier:3`, `kind:KIND` of frames,
    /// `frames:FIRST-LAST` by place.
    withhold: Option<String>,
}

impl Disclosing {
    /// What is to be exported.
    ///
    /// # Errors
    /// Something is malformed; the caller may read no payload, or does not say why.
    pub(crate) fn request(
        self,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<ExportRequest, Problem> {
        let rules = self.withhold.unwrap_or_default();
        let mut withhold = Withhold::parse(&rules).map_err(|rule| {
            let expected = format!(
                "name:NAME, tier:0 to tier:3, kind:KIND or frames:FIRST-LAST, not {rule:?}"
            );
            Problem::parameter("withhold", &expected)
        })?;
        match self.payloads.as_deref() {
            None | Some("all") => {}
            Some("none") => withhold = Withhold::all(),
            Some(_) => return Err(Problem::parameter("payloads", "all or none")),
        }
        let stated = purpose(headers, self.purpose)?;
        let purpose = if withhold.is_all() {
            stated.unwrap_or_else(|| "export".to_owned())
        } else {
            caller.needs(&READERS)?;
            stated.ok_or_else(Problem::purpose_required)?
        };
        Ok(ExportRequest {
            purpose,
            on_ledger: true,
            withhold,
        })
    }
}

/// Whether a request says that its body has this media type.
pub(crate) fn has_media(headers: &HeaderMap, media: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value
                .split(';')
                .next()
                .is_some_and(|kind| kind.trim().eq_ignore_ascii_case(media))
        })
}
