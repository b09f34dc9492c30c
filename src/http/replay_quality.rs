//! `GET /v1/metrics/replay-quality`: how well runs could be repeated and checked again.

use super::App;
use super::problem::Problem;
use super::request::{Authenticated, PurposeHeader, purpose};
use super::search;
use crate::access::READERS;
use crate::export::examined::{Budget, Class, Examined};
use crate::export::quality::{Artifacts, Each, Quality, SAMPLE};
use crate::query::{Resource, time};
use crate::record::query::Question;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use onrecord_core::frame::Kind;
use onrecord_core::pins::PINNED;
use onrecord_core::timestamp::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use utoipa::IntoParams;

/// Days before now, where no time is named.
const DAYS: i64 = 30;

/// What is not measured, by name, and why. It is never told as zero.
const NOT_MEASURED: [(&str, &str); 6] = [
    ("full_replay", NO_REPLAY),
    ("partial_replay", NO_REPLAY),
    ("schedule_sensitivity", NO_REPLAY),
    ("counterfactual_coverage", NO_REPLAY),
    ("replay_cost", NO_REPLAY),
    ("replay_latency", NO_REPLAY),
];

const NO_REPLAY: &str =
    "this server records no replays yet; what could be replayed is in replayable";

/// Classes of payloads that are listed of a group: those that lack most, then those that are most. Names of payloads are their
/// writers', and there may be any number of them.
const CLASSES: usize = 100;

/// What is measured.
#[derive(Deserialize, IntoParams)]
pub(crate) struct QualityQuery {
    /// agent (the default), or day, week or month of the opening, UTC; weeks begin on Mondays.
    by: Option<String>,
    /// From this time on: RFC 3339, or a date. By default 30 days before `until`.
    since: Option<String>,
    /// Before this time. By default now.
    until: Option<String>,
    /// Why, as a code, if the header `Purpose` does not say so.
    purpose: Option<String>,
}

/// Measures for each agent, or each stretch of time, how well its runs could be repeated and checked again: how complete the
/// manifests of sessions are, what of the payloads is there, and whether gates that were asked again agreed. Of each at most
/// 5,000 sessions, results and runs are looked at, the newest. The newest 200 runs, as far as they have 64 MiB together, are read
/// anew: whether frames and payloads are those that were recorded, which payloads are lost, and what could be replayed. What is
/// not measured is named, with the reason.
///
/// Needs the role auditor, compliance or admin, and a purpose, and stands on the ledger.
#[utoipa::path(
    get, path = "/v1/metrics/replay-quality", tag = "read", operation_id = "measureReplays",
    params(QualityQuery, PurposeHeader),
    responses(
        (status = 200, description = "The figures", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn measure_replays(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Query(query): Query<QualityQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.needs(&READERS)?;
    let by = query.by.as_deref().unwrap_or("agent");
    let each = match by {
        "agent" => Each::Agent,
        "day" => Each::Day,
        "week" => Each::Week,
        "month" => Each::Month,
        _ => return Err(Problem::parameter("by", "agent, day, week or month")),
    };
    let moment = |name, text: Option<&String>| {
        let wrong =
            || Problem::parameter(name, "a time such as 2026-11-30T08:00:00Z or 2026-11-30");
        text.map(|text| time(text).ok_or_else(wrong)).transpose()
    };
    let (since, until) = (
        moment("since", query.since.as_ref())?,
        moment("until", query.until.as_ref())?,
    );
    let purpose = purpose(&headers, query.purpose)?.ok_or_else(Problem::purpose_of_query)?;
    let mut more = BTreeMap::from([("report", "replay-quality".to_owned())]);
    more.extend(query.since.map(|since| ("since", since)));
    more.extend(query.until.map(|until| ("until", until)));
    let question = Question {
        resource: Resource::Runs.as_str(),
        by: vec![by.to_owned()],
        count: true,
        format: Some("json"),
        more,
        ..Question::default()
    };
    let recorder = &app.recorder;
    recorder.enter_query(&caller, &purpose, &question).await?;
    let until = match until {
        Some(until) => until,
        None => recorder
            .store()
            .now()
            .await
            .map_err(crate::record::RecordError::from)?,
    };
    let days_before = until.micros() - DAYS * 86_400_000_000;
    let since = since.or_else(|| Timestamp::from_micros(days_before));
    let since = since.unwrap_or(Timestamp::MIN);
    let measured = recorder
        .replay_quality(caller.tenant.clone(), (since, until), (each, Budget::WHOLE))
        .await?;
    let groups = measured.groups.iter();
    let groups: Vec<Value> = groups
        .map(|(key, quality)| group(by, key, quality))
        .collect();
    let not_measured: Vec<Value> = NOT_MEASURED
        .iter()
        .map(|(name, why)| json!({"metric": name, "state": "not_measured", "why": why}))
        .collect();
    let body = json!({
        "by": by,
        "since": measured.since,
        "until": measured.until,
        "looked_at": {
            "sessions": measured.sessions,
            "gate_results": measured.gates,
            "at_most": SAMPLE,
            "read_anew": {
                "runs": measured.looked.runs,
                "bytes": measured.looked.bytes,
                "passed_over": measured.looked.passed_over,
                "at_most_runs": Budget::WHOLE.runs,
                "at_most_bytes": Budget::WHOLE.bytes,
            },
        },
        "groups": groups,
        "not_measured": not_measured,
    });
    Ok((search::PAGE, axum::Json(body)).into_response())
}

fn group(by: &str, key: &str, quality: &Quality) -> Value {
    let manifests = &quality.manifests;
    let pinned: u64 = manifests.pins.values().sum();
    let tiers = quality.artifacts.iter();
    let tiers: Map<String, Value> = tiers
        .map(|(tier, artifacts)| (tier.to_string(), of_tier(artifacts)))
        .collect();
    let mut all = Artifacts::default();
    for artifacts in quality.artifacts.values() {
        all.stored += artifacts.stored;
        all.kept += artifacts.kept;
        all.erased += artifacts.erased;
    }
    json!({
        by: key,
        "manifest_completeness": {
            "sessions": manifests.sessions,
            "share": share(pinned, manifests.sessions * PINNED as u64),
            "pins": manifests.pins,
        },
        "artifact_availability": {"all": of_tier(&all), "tiers": tiers},
        "verifier_agreement": {
            "asked_again": quality.agreement.asked_again,
            "agreed": quality.agreement.agreed,
            "share": share(quality.agreement.agreed, quality.agreement.asked_again),
        },
        "hash_verification": hashes(&quality.examined),
        "missing_artifacts": missing(&quality.examined),
        "replayable": replayable(&quality.examined),
    })
}

/// Whether frames and payloads are those that were recorded.
fn hashes(examined: &Examined) -> Value {
    let (frames, payloads) = (examined.frames, examined.payloads);
    json!({
        "runs": examined.runs,
        "altered_runs": examined.altered_runs,
        "altered": examined.altered,
        "frames": {
            "count": frames,
            "verified": examined.verified_frames,
            "share": share(examined.verified_frames, frames),
        },
        "payloads": {
            "count": payloads,
            "verified": examined.verified_payloads,
            "without_key": examined.without_key,
            "share": share(examined.verified_payloads, payloads),
        },
    })
}

/// Payloads that are lost, by class.
fn missing(examined: &Examined) -> Value {
    let mut classes: Vec<_> = examined.classes.iter().collect();
    classes.sort_by_key(|(_, class)| Reverse((class.missing, class.committed)));
    let sum = |of: fn(&Class) -> u64, all: &[(&_, &Class)]| -> u64 {
        all.iter().map(|(_, class)| of(class)).sum()
    };
    let told = |all: &[(&(Kind, String, u8), &Class)]| {
        let (committed, missing) = (sum(|one| one.committed, all), sum(|one| one.missing, all));
        json!({"committed": committed, "missing": missing, "share": share(missing, committed)})
    };
    let listed = classes.iter().take(CLASSES).map(|(place, class)| {
        let (kind, name, tier) = place;
        json!({
            "class": format!("{kind}.{name}"),
            "tier": tier,
            "committed": class.committed,
            "missing": class.missing,
            "share": share(class.missing, class.committed),
        })
    });
    json!({
        "all": told(&classes),
        "classes": listed.collect::<Vec<_>>(),
        "other": told(classes.get(CLASSES..).unwrap_or_default()),
    })
}

/// What could be replayed of sealed runs, which is no replay that was done.
fn replayable(examined: &Examined) -> Value {
    let Examined {
        full,
        partial,
        none,
        lacks,
        ..
    } = examined;
    json!({"runs": full + partial + none, "full": full, "partial": partial, "none": none, "lacks": lacks})
}

fn of_tier(artifacts: &Artifacts) -> Value {
    let Artifacts {
        stored,
        kept,
        erased,
    } = *artifacts;
    let committed = stored + kept + erased;
    json!({"committed": committed, "stored": stored, "kept": kept, "erased": erased, "share": share(stored, committed)})
}

/// A share of something; null of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
