//! `/v1/settings`: what a tenant chooses for itself.

use super::App;
use super::encoding::EncodingHeader;
use super::problem::Problem;
use super::request::{Authenticated, has_media};
use crate::access::Role;
use crate::record::settings::{Settings, StandingSettings};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Actor;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const SETTINGS_BYTES: usize = 4_096;

/// What a tenant chooses. What is left out is the server's to say.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsRequest {
    /// Seconds after which a run that nobody writes to is sealed as interrupted; 0 for never.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    seal_idle_seconds: Option<u64>,
    /// How many people it takes to release a hold, 1 or 2; one where it is left out. Fewer than before takes an admin.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 2)]
    hold_release_people: Option<u64>,
}

/// Who chose.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChosenBy {
    /// agent, human, tool, verifier, importer or system.
    #[serde(rename = "type")]
    kind: String,
    /// Who.
    id: String,
}

/// A tenant's settings.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettingsBody {
    /// Their version, from 1; 0 where the tenant chose nothing.
    version: u64,
    /// Seconds after which a run that nobody writes to is sealed as interrupted, 0 for never; absent where the server's holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    seal_idle_seconds: Option<u64>,
    /// How many people it takes to release a hold; absent where nothing was chosen, and one person may.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_release_people: Option<u64>,
    /// When they were chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    at: Option<String>,
    /// Who chose them.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<ChosenBy>,
    /// Index of the ledger's entry whose subject they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl From<Actor> for ChosenBy {
    fn from(by: Actor) -> Self {
        Self {
            kind: by.kind.as_str().to_owned(),
            id: by.id,
        }
    }
}

impl From<StandingSettings> for SettingsBody {
    fn from(standing: StandingSettings) -> Self {
        let mut body = Self {
            version: 0,
            seal_idle_seconds: standing.settings.seal_idle_seconds,
            hold_release_people: standing.settings.hold_release_people,
            at: None,
            by: None,
            index: None,
        };
        if let Some((version, at, by, index)) = standing.chosen {
            body.version = version;
            body.at = Some(at.to_string());
            body.by = Some(ChosenBy::from(by));
            body.index = Some(index);
        }
        body
    }
}

/// Reads what the tenant chose for itself.
#[utoipa::path(
    get, path = "/v1/settings", tag = "administer", operation_id = "readSettings",
    responses(
        (status = 200, description = "The settings", body = SettingsBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_settings(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    let standing = app.recorder.settings(caller).await?;
    Ok(axum::Json(SettingsBody::from(standing)).into_response())
}

/// Chooses settings, in place of all that were chosen before. Every version is kept, and stands in the ledger.
#[utoipa::path(
    put, path = "/v1/settings", tag = "administer", operation_id = "changeSettings",
    params(EncodingHeader),
    request_body(content = SettingsRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "They hold now", body = SettingsBody),
        (status = 200, description = "They held already", body = SettingsBody),
        (status = "4XX", description = "Refused; nothing was changed", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done, or not known; send it again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change_settings(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin, Role::Compliance])?;
    if !has_media(&headers, "application/json") {
        return Err(Problem::media_type("application/json"));
    }
    let (bytes, _) = super::body::read(&app, &headers, body, SETTINGS_BYTES).await?;
    let request: SettingsRequest = onrecord_core::json::typed(&bytes)
        .map_err(|_| Problem::parameter("the body", "{\"seal_idle_seconds\": 86400} or {}"))?;
    if request
        .seal_idle_seconds
        .is_some_and(|seconds| seconds >= 1 << 53)
    {
        return Err(Problem::parameter("seal_idle_seconds", "at most 2^53 - 1"));
    }
    if request
        .hold_release_people
        .is_some_and(|people| !(1..=2).contains(&people))
    {
        return Err(Problem::parameter("hold_release_people", "1 or 2"));
    }
    let settings = Settings {
        seal_idle_seconds: request.seal_idle_seconds,
        hold_release_people: request.hold_release_people,
    };
    let standing = app.recorder.change_settings(caller, settings).await?;
    let status = if standing.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, axum::Json(SettingsBody::from(standing))).into_response())
}
