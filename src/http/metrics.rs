//! `GET /metrics` on a listener of its own: what this process does, in the text format of Prometheus (0.0.4).
//!
//! It asks for no token, and says nothing of any tenant: what there is of all of them is summed up. The format is a few lines
//! of text, so that no crate stands between the numbers and them.

use super::App;
use crate::export::examined::{Class, Examined};
use crate::export::quality::Quality;
use crate::listen;
use crate::record::Recorder;
use crate::record::figures::{BOUNDS_US, Histogram};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use onrecord_core::frame::Kind;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::fs;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Scraped {
    recorder: Recorder,
    /// One at a time asks the database.
    turn: Arc<Semaphore>,
    /// What replays would find, as it was measured last.
    quality: Arc<Mutex<Option<(Instant, Quality)>>>,
}

/// How long what replays would find is told as it was: measuring it takes a second.
const QUALITY: Duration = Duration::from_secs(300);

/// Serves the figures until `shutdown` is there.
pub async fn serve_metrics(
    listener: TcpListener,
    app: &App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let scraped = Scraped {
        recorder: app.recorder.clone(),
        turn: Arc::new(Semaphore::new(1)),
        quality: Arc::default(),
    };
    let router = Router::new()
        .route("/metrics", get(scrape))
        .with_state(scraped);
    listen::run(listener, router, shutdown, || {}).await;
    Ok(())
}

async fn scrape(State(scraped): State<Scraped>) -> Response {
    let mut text = Text::default();
    own(&mut text, &scraped.recorder);
    process(&mut text);
    let turn = scraped.turn.try_acquire();
    let gauges = match &turn {
        Ok(_) => scraped.recorder.gauges().await.ok(),
        Err(_) => None,
    };
    text.head(
        "onrecord_up",
        "gauge",
        "Whether the database answered this time; without it, what is counted there is left out.",
    );
    text.line("onrecord_up", "", u8::from(gauges.is_some()));
    if turn.is_ok()
        && let Some(quality) = scraped.quality().await
    {
        replays(&mut text, &quality);
    }
    if let Some(gauges) = gauges {
        let (tenants, sum) = (gauges.tenants, gauges.sum);
        for (name, help, value) in [
            ("onrecord_tenants", "Tenants.", tenants),
            (
                "onrecord_ledger_entries",
                "Entries of all ledgers.",
                sum.entries,
            ),
            (
                "onrecord_open_runs",
                "Runs that are not sealed.",
                sum.open_runs,
            ),
            (
                "onrecord_unstated_runs",
                "Open runs of which the ledger has not stated all frames.",
                sum.unstated_runs,
            ),
            ("onrecord_holds", "Holds in force.", sum.holds),
            (
                "onrecord_erasures_open",
                "Tiers of runs in which an erasure is not done.",
                sum.erasing,
            ),
            (
                "onrecord_expired_runs",
                "Runs of which something has expired that is not erased yet.",
                sum.expired_runs,
            ),
        ] {
            text.one(name, "gauge", help, value);
        }
    }
    let status = StatusCode::OK;
    (status, [(header::CONTENT_TYPE, MEDIA)], text.0).into_response()
}

impl Scraped {
    /// What replays would find of the last day, of all tenants together; none where the database does not say.
    async fn quality(&self) -> Option<Quality> {
        let known = self.quality.lock().ok()?.clone();
        if let Some((_, quality)) = known.filter(|(at, _)| at.elapsed() < QUALITY) {
            return Some(quality);
        }
        let quality = self.recorder.replay_quality_of_all().await.ok()?;
        *self.quality.lock().ok()? = Some((Instant::now(), quality.clone()));
        Some(quality)
    }
}

/// How well what was recorded in the last day could be repeated and checked again.
fn replays(text: &mut Text, quality: &Quality) {
    let manifests = &quality.manifests;
    let name = "onrecord_replay_sessions";
    text.one(
        name,
        "gauge",
        "Sessions of the last day that were looked at.",
        manifests.sessions,
    );
    let name = "onrecord_replay_pinned_sessions";
    text.head(name, "gauge", "Those of them that have a pin.");
    for (pin, count) in &manifests.pins {
        text.line(name, &format!("{{pin=\"{pin}\"}}"), count);
    }
    let name = "onrecord_replay_artifacts";
    text.head(
        name,
        "gauge",
        "Payloads of the last day's runs that were looked at, by tier and by what became of them.",
    );
    for (tier, artifacts) in &quality.artifacts {
        for (state, count) in [
            ("stored", artifacts.stored),
            ("kept", artifacts.kept),
            ("erased", artifacts.erased),
        ] {
            let labels = format!("{{tier=\"{tier}\",state=\"{state}\"}}");
            text.line(name, &labels, count);
        }
    }
    let agreement = quality.agreement;
    for (name, help, value) in [
        (
            "onrecord_replay_gates_asked_again",
            "Gates of the last day that judged a candidate more than once.",
            agreement.asked_again,
        ),
        (
            "onrecord_replay_gates_agreed",
            "Those of them that said the same each time.",
            agreement.agreed,
        ),
    ] {
        text.one(name, "gauge", help, value);
    }
    read_anew(text, &quality.examined);
}

/// What was found in the runs that were read anew.
fn read_anew(text: &mut Text, examined: &Examined) {
    for (name, help, value) in [
        (
            "onrecord_replay_runs",
            "Runs of the last day that were read anew.",
            examined.runs,
        ),
        (
            "onrecord_replay_altered_runs",
            "Those of them of which something is not as it was recorded.",
            examined.altered_runs,
        ),
        (
            "onrecord_replay_frames",
            "Frames that these runs have to have.",
            examined.frames,
        ),
        (
            "onrecord_replay_verified_frames",
            "Those of them that are there, with the hash that is named behind them.",
            examined.verified_frames,
        ),
        (
            "onrecord_replay_payloads",
            "Payloads of these runs in the store that have not expired.",
            examined.payloads,
        ),
        (
            "onrecord_replay_verified_payloads",
            "Those of them that open, to what their frames commit to.",
            examined.verified_payloads,
        ),
    ] {
        text.one(name, "gauge", help, value);
    }
    // Names of payloads are their writers', and are summed up.
    let mut kinds: BTreeMap<(Kind, u8), Class> = BTreeMap::new();
    for ((kind, _, tier), class) in &examined.classes {
        let sum = kinds.entry((*kind, *tier)).or_default();
        sum.committed += class.committed;
        sum.missing += class.missing;
    }
    for (name, help, of) in [
        (
            "onrecord_replay_committed_artifacts",
            "Payloads that frames of these runs commit to, by the frame's kind and by tier.",
            (|class| class.committed) as fn(&Class) -> u64,
        ),
        (
            "onrecord_replay_missing_artifacts",
            "Those of them that are neither stored, nor kept by their agents, nor erased.",
            |class| class.missing,
        ),
    ] {
        text.head(name, "gauge", help);
        for ((kind, tier), class) in &kinds {
            let labels = format!("{{kind=\"{kind}\",tier=\"{tier}\"}}");
            text.line(name, &labels, of(class));
        }
    }
    let name = "onrecord_replayable_runs";
    text.head(
        name,
        "gauge",
        "Sealed ones of these runs by how much of them could be replayed; none was.",
    );
    for (possible, count) in [
        ("full", examined.full),
        ("partial", examined.partial),
        ("none", examined.none),
    ] {
        text.line(name, &format!("{{possible=\"{possible}\"}}"), count);
    }
}

/// What this process counted.
fn own(text: &mut Text, recorder: &Recorder) {
    let figures = &recorder.figures;
    for (name, help, value) in [
        (
            "onrecord_frames_appended_total",
            "Frames that were appended and are durable.",
            &figures.frames,
        ),
        (
            "onrecord_runs_opened_total",
            "Runs that were opened.",
            &figures.openings,
        ),
        (
            "onrecord_runs_sealed_total",
            "Runs that were sealed.",
            &figures.seals,
        ),
        (
            "onrecord_payload_readings_total",
            "Readings of payloads that were entered into a ledger.",
            &figures.readings,
        ),
        (
            "onrecord_expired_payloads_total",
            "Payloads that expired and that this process erased.",
            &figures.expired,
        ),
    ] {
        text.one(name, "counter", help, value.value());
    }
    text.histogram(
        "onrecord_append_seconds",
        "From when frames were handed over until they were durable or refused.",
        &figures.appends,
    );
    text.histogram(
        "onrecord_batch_seconds",
        "How long batches of frames took to be written.",
        &figures.batches,
    );
    text.one(
        "onrecord_queue_submissions",
        "gauge",
        "Submissions of frames that wait to be written.",
        recorder.queued(),
    );
    let name = "onrecord_refused_total";
    text.head(
        name,
        "counter",
        "Requests that were refused or not done, by the code of the problem.",
    );
    for (code, count) in figures.refused() {
        text.line(name, &format!("{{code=\"{code}\"}}"), count);
    }
}

/// What the system says of this process, where there is `/proc`.
fn process(text: &mut Text) {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    if let Some(pages) = pages {
        let bytes = pages * rustix::param::page_size() as u64;
        text.one(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory.",
            bytes,
        );
    }
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let ticks = stat.and_then(|text| {
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some(next()? + next()?)
    });
    if let Some(ticks) = ticks {
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        text.one(
            "process_cpu_seconds_total",
            "counter",
            "Processor time of all threads.",
            seconds,
        );
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        text.one("process_open_fds", "gauge", "Open files.", files.count());
    }
}

/// Lines of the format.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let (below, all, sum_us) = histogram.read();
        self.head(name, "histogram", help);
        for (bound, count) in BOUNDS_US.into_iter().zip(below) {
            let label = format!("{{le=\"{}\"}}", seconds(bound));
            self.line(&format!("{name}_bucket"), &label, count);
        }
        self.line(&format!("{name}_bucket"), "{le=\"+Inf\"}", all);
        self.line(&format!("{name}_sum"), "", seconds(sum_us));
        self.line(&format!("{name}_count"), "", all);
    }
}
