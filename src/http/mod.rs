//! The wire: one endpoint a file. Handlers translate between requests and rooms; [`problem`] alone
//! knows status codes.

mod agent_keys;
mod anchors;
mod append_frames;
pub mod body;
mod counts;
mod coverage;
mod encoding;
mod envelope;
mod erasures;
mod export_run;
mod flags;
mod follow_run;
mod frame_stream;
mod health;
mod hold_orders;
mod holds;
mod ledger;
mod list_frames;
mod list_payload_records;
mod list_runs;
mod log;
mod metrics;
mod open_run;
mod people;
mod presentation;
pub mod problem;
mod queries;
mod read_frames;
mod read_payload;
mod read_run;
mod receipt;
mod redaction;
mod releases;
mod replay_quality;
mod report;
mod request;
mod retention;
mod retention_dry_run;
mod rotations;
mod saved_queries;
mod schema;
mod seal_run;
mod search;
mod serve;
mod settings;
mod signature;
mod signing_keys;
mod tenants;
mod tokens;
mod verification;

pub use crate::query::Effort;
pub use envelope::Envelope;
pub use follow_run::Streams;
pub use metrics::serve_metrics;
pub use serve::{Listener, UnixSocket, serve};

use crate::anchor::Anchors;
use crate::record::Recorder;
use crate::retention::erasure::Finality;
use crate::retention::pace::SweepLimits;
use axum::body::Body;
use axum::http::{HeaderName, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use problem::Problem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What every handler has.
#[derive(Clone)]
pub struct App {
    /// The rooms.
    pub recorder: Recorder,
    /// Host in the origins of new ledgers.
    pub public_host: Arc<str>,
    /// Bytes of an uploaded bundle at most.
    pub upload_bytes: usize,
    /// How long the next bytes of a body may take.
    pub body_idle: Duration,
    /// What bodies over a MiB may take together.
    pub body_memory: body::Memory,
    /// Verifications that may run at once: each takes a thread, and as long as its sender likes.
    pub verifications: Arc<Semaphore>,
    /// What a page of a query may take.
    pub effort: Effort,
    /// Streams of events.
    pub streams: Streams,
    /// When erasures are final.
    pub finality: Finality,
    /// What bounds the load of the sweeper.
    pub sweeping: SweepLimits,
    /// Who is told of the ledgers.
    pub anchors: Arc<Anchors>,
}

/// MiB of bodies that are read and recorded at once. A body takes up to six times its length while it is
/// decoded, encrypted and written.
pub const BODY_MEMORY_MIB: usize = 512;

/// Verifications at once.
pub const VERIFICATIONS: usize = 32;

/// How long the next bytes of a body may take, unless a test says otherwise.
pub const BODY_IDLE: Duration = Duration::from_secs(30);

/// 64 GiB: more than any bundle of ours has members for.
pub const UPLOAD_BYTES: usize = 64 * 1024 * 1024 * 1024;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "onrecord",
        description = "Keeps the evidence of what AI agents did. Every error is a problem (RFC 9457) with a stable code and a line that says what to do.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
        contact(),
    ),
    tags(
        (name = "record", description = "Agents and gates write"),
        (name = "read", description = "What was recorded"),
        (name = "verify", description = "Exports, proofs and checks"),
        (name = "ledger", description = "The tenant's ledger: a transparency log of signed statements"),
        (name = "retain", description = "Holds, flags and erasures"),
        (name = "administer", description = "Tokens, tenants, settings, keys and rules of redaction"),
        (name = "operate", description = "Health"),
    ),
    // Their addresses have steps that the document's form cannot say, so that the router has them apart.
    paths(log::read_tile, log::read_entry_tile),
    security(("token" = [])),
    modifiers(&Token),
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API token, `onr_…`"))
            .build();
        openapi
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(open_run::open_run, list_runs::list_runs))
        .routes(routes!(list_frames::list_frames))
        .routes(routes!(list_payload_records::list_payload_records))
        .routes(routes!(counts::count_runs))
        .routes(routes!(counts::count_frames))
        .routes(routes!(counts::count_payload_records))
        .routes(routes!(read_run::read_run))
        .routes(routes!(
            append_frames::append_frames,
            read_frames::read_frames
        ))
        .routes(routes!(read_frames::read_frame))
        .routes(routes!(follow_run::follow_run))
        .routes(routes!(seal_run::seal_run, seal_run::read_seal))
        .routes(routes!(seal_run::sign_head))
        .routes(routes!(read_payload::read_payload))
        .routes(routes!(export_run::export_run))
        .routes(routes!(verification::verify_run))
        .routes(routes!(report::report_run))
        .routes(routes!(report::print_run))
        .routes(routes!(coverage::cover_run))
        .routes(routes!(coverage::cover_runs))
        .routes(routes!(replay_quality::measure_replays))
        .routes(routes!(verification::prove_turn))
        .routes(routes!(verification::prove_frame))
        .routes(routes!(verification::verify_file))
        .routes(routes!(verification::read_trust))
        .routes(routes!(holds::set_hold, holds::list_holds))
        .routes(routes!(holds::release_hold, holds::keep_hold))
        .routes(routes!(hold_orders::list_orders))
        .routes(routes!(hold_orders::read_order))
        .routes(routes!(hold_orders::release_order, hold_orders::keep_order))
        .routes(routes!(flags::set_flag, flags::list_flags))
        .routes(routes!(flags::clear_flag))
        .routes(routes!(erasures::erase, erasures::list_erasures))
        .routes(routes!(erasures::read_erasure))
        .routes(routes!(erasures::read_certificate))
        .routes(routes!(erasures::read_entries))
        .routes(routes!(retention::read_policy, retention::change_policy))
        .routes(routes!(retention::list_presets))
        .routes(routes!(retention::read_retention))
        .routes(routes!(retention::sweep))
        .routes(routes!(
            retention_dry_run::dry_run,
            retention_dry_run::dry_run_of
        ))
        .routes(routes!(tokens::create_token, tokens::list_tokens))
        .routes(routes!(tokens::read_token, tokens::revoke_token))
        .routes(routes!(tenants::create_tenant))
        .routes(routes!(people::list_people))
        .routes(routes!(people::read_person, people::forget_person))
        .routes(routes!(rotations::rotate, rotations::read_rotations))
        .routes(routes!(rotations::rotate_run))
        .routes(routes!(presentation::present_payload))
        .routes(routes!(signing_keys::list_signing_keys))
        .routes(routes!(signing_keys::rotate_seal_key))
        .routes(routes!(agent_keys::add_agent_key))
        .routes(routes!(agent_keys::revoke_agent_key))
        .routes(routes!(redaction::read_rules, redaction::change_rules))
        .routes(routes!(redaction::dry_run))
        .routes(routes!(anchors::read_anchors))
        .routes(routes!(anchors::accept_rewind))
        .routes(routes!(releases::decide_release))
        .routes(routes!(ledger::read_ledger))
        .routes(routes!(ledger::list_entries))
        .routes(routes!(ledger::read_entry))
        .routes(routes!(ledger::prove_entry))
        .routes(routes!(ledger::prove_consistency))
        .routes(routes!(ledger::export_ledger))
        .routes(routes!(log::read_checkpoint))
        .route("/t/{log}/tile/{level}/{*index}", get(log::read_tile))
        .route("/t/{log}/tile/entries/{*index}", get(log::read_entry_tile))
        .routes(routes!(queries::list_queries))
        .routes(routes!(queries::forget_query))
        .routes(routes!(saved_queries::list_saved_queries))
        .routes(routes!(
            saved_queries::read_saved_query,
            saved_queries::save_query,
            saved_queries::remove_saved_query
        ))
        .routes(routes!(settings::read_settings, settings::change_settings))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
}

/// The OpenAPI document as it is committed: pretty, with a newline at its end.
pub fn openapi() -> String {
    let (_, document) = routes().split_for_parts();
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The whole service.
pub fn router(app: App) -> Envelope {
    let (router, document) = routes().split_for_parts();
    let steps = document.paths.paths.keys().flat_map(|path| path.split('/'));
    let words = steps.filter(|step| !step.starts_with('{'));
    let words = words.chain(["docs", "openapi.json"]);
    let (words, recorder) = (words.map(str::to_owned).collect(), app.recorder.clone());
    let router = router
        .merge(utoipa_swagger_ui::SwaggerUi::new("/docs").url("/openapi.json", document))
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(|| async { method_not_allowed() })
        .with_state(app);
    Envelope::new(router, recorder, words)
}

fn not_found() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "No such address",
        "there is nothing at this address",
        "See /docs for the addresses.",
    )
}

fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "The method is not known here",
        "this address does not take this method",
        "See /docs for the addresses and their methods.",
    )
}

/// Whatever refused a request before a handler did: its answer becomes a problem too.
fn only_problems(response: Response<Body>) -> Response<Body> {
    let status = response.status();
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == problem::MEDIA);
    if !(status.is_client_error() || status.is_server_error()) || is_problem {
        return response;
    }
    let problem = match status {
        StatusCode::BAD_REQUEST => {
            Problem::parameter("the query or the path", "what /docs says of this address")
        }
        StatusCode::NOT_FOUND => not_found(),
        StatusCode::METHOD_NOT_ALLOWED => method_not_allowed(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Problem::media_type("what /docs says of this address")
        }
        status if status.is_client_error() => Problem::new(
            status,
            "refused",
            "The request was refused",
            "the request does not fit this address",
            "See /docs for the addresses and what they take.",
        ),
        _ => Problem::internal(),
    };
    let mut answer = problem.into_response();
    if let Some(methods) = response.headers().get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, methods.clone());
    }
    answer
}
