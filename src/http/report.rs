//! `GET /v1/runs/{run}/report`: what is there of a run, and who had to do with it; as JSON, or as a page to print.

mod page;

use super::App;
use super::coverage;
use super::problem::Problem;
use super::request::{Authenticated, RunPath};
use crate::access::Caller;
use crate::export::RunReport;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onrecord_core::id::RunId;
use serde_json::{Value, json};

/// The page needs its own style and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What neither the report nor the ledger can say.
const LIMITS: [&str; 4] = [
    "The report is the store's own account. What proves it is the run's bundle, checked offline under keys that were pinned before.",
    "Reading frames, lists and this report leaves no entry, and neither does an export that withholds all payloads.",
    "The ledger says who read payloads through this store. Who had access to the database's host or to backups is not in it.",
    "Events that were never sent, and input that was false, cannot be seen.",
];

/// Reports on a run: how complete its record is, and who recorded, sealed, read, exported, held and erased, each with the
/// ledger's index and the key that signs it. `…/report.html` is the same as a page.
#[utoipa::path(
    get, path = "/v1/runs/{run}/report", tag = "verify", operation_id = "reportRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The report", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn report_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let report = report(&app, caller, run).await?;
    let headers = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((headers, axum::Json(body(&report))).into_response())
}

/// Reports on a run as a page that can be printed: HTML without script, in one file.
#[utoipa::path(
    get, path = "/v1/runs/{run}/report.html", tag = "verify", operation_id = "printRun",
    params(("run" = String, Path, description = "The run", pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn print_run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let report = report(&app, caller, run).await?;
    let headers = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    Ok((headers, page::page(&report)).into_response())
}

pub(super) async fn report(app: &App, caller: Caller, run: RunId) -> Result<RunReport, Problem> {
    // It reads all of the run, as a verification does.
    let Ok(_one) = app.verifications.try_acquire() else {
        return Err(Problem::busy());
    };
    Ok(app.recorder.report(caller, run).await?)
}

/// How complete the record is, in words; the first is the heading.
fn remarks(report: &RunReport) -> Vec<String> {
    let account = &report.account;
    let mut all = vec![match report.completeness {
        None if report.run.ended => {
            "open: it has ended, and no seal says that it is whole".to_owned()
        }
        None => "open: it may go on, and no seal says that it is whole".to_owned(),
        Some(completeness) => {
            use onrecord_core::statement::Completeness;
            match completeness {
                Completeness::Full => "full: recorded to its end, by the seal",
                Completeness::Sampled => "sampled: recorded to its end, and some frames were left out on purpose, by the seal",
                Completeness::Interrupted => "interrupted: it has no end of its own, by the seal",
            }
            .to_owned()
        }
    }];
    let mut note = |count: u64, one: &str, many: &str| match count {
        0 => {}
        1 => all.push(format!("1 {one}")),
        count => all.push(format!("{count} {many}")),
    };
    note(
        account.missing,
        "frame is not there, though the run's row counts it",
        "frames are not there, though the run's row counts them",
    );
    note(
        account.turns.opened - account.turns.closed.min(account.turns.opened),
        "turn has no end",
        "turns have no end",
    );
    note(
        account.tool_calls.unanswered,
        "tool call has no result: its outcome is unknown",
        "tool calls have no result: their outcome is unknown",
    );
    note(
        account.model_calls.unanswered,
        "model call has no result",
        "model calls have no result",
    );
    note(
        report.payloads.missing,
        "payload is lost",
        "payloads are lost",
    );
    note(
        report.payloads.erased,
        "payload was erased",
        "payloads were erased",
    );
    note(
        report.payloads.not_kept,
        "payload was kept by its agent",
        "payloads were kept by their agents",
    );
    note(
        account.redactions,
        "secret was taken out of payloads",
        "secrets were taken out of payloads",
    );
    if account.signed + account.unsigned > 0 {
        note(
            account.unsigned,
            "frame of an agent is not signed by it",
            "frames of agents are not signed by them",
        );
    }
    all
}

/// The report as JSON.
fn body(report: &RunReport) -> Value {
    let run = &report.run;
    let mut remarks = remarks(report).into_iter();
    json!({
        "run": run.run,
        "run_no": run.run_no,
        "tenant": run.tenant,
        "agent": run.agent,
        "ledger": report.origin,
        "made_at": report.made_at,
        "completeness": {
            "says": remarks.next(),
            "remarks": remarks.collect::<Vec<_>>(),
            "seal": report.completeness,
            "outcome": run.outcome,
            "opened_at": run.opened_at,
            "last_at": run.last_at,
            "sealed_at": run.sealed.map(|(at, _)| at),
            "size": run.size,
            "head": run.head,
            "root": run.root,
            "frames": report.account.frames,
            "missing_frames": report.account.missing,
            "gaps": report.account.gaps,
            "kinds": report.account.kinds,
            "turns": report.account.turns,
            "tool_calls": report.account.tool_calls,
            "model_calls": report.account.model_calls,
            "payloads": report.payloads,
            "redactions": report.account.redactions,
            "signed": report.account.signed,
            "unsigned": report.account.unsigned,
        },
        "coverage": coverage::facts(&report.coverage),
        "custody": {
            "recorded": report.account.writers,
            "sealed_by": report.sealed_by,
            "heads": report.custody.heads,
            "events": report.custody.events,
            "unread": report.custody.unread,
        },
        "limits": LIMITS,
    })
}
