//! `onrecord bench`: what a server takes, and beside it what a plain PostgreSQL takes on the same machine
//! at the same time.
//!
//! Machines differ and are seldom quiet, so everything is measured in rounds, one after the other in
//! each, and compared within a round. `docs/performance.md` says how to read what it prints.

mod baseline;
mod connection;
mod load;
mod process;
mod report;
mod request;
mod runs;
mod seed;
mod server;
mod session;
mod tables;
mod workload;

use super::serve::OnOff;
use super::terminal;
use server::PrivateServer;
use session::Session;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use workload::Workload;

/// Exit code of a command that Ctrl-C ended, as shells say it.
const INTERRUPTED: u8 = 130;

/// Arguments of `onrecord bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// Load this server, which keeps the runs, instead of a private one
    #[arg(long, env = "ONRECORD_URL", value_name = "URL")]
    url: Option<String>,
    /// API token with the role agent, for --url
    #[arg(
        long,
        env = "ONRECORD_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// Measure this; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    workload: Vec<Workload>,
    /// Connections [default: 64 for single frames, 16 for batches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Option<u32>,
    /// Runs of `single_many_runs`
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Frames of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1000))]
    batch: u32,
    /// Size of a frame in its canonical bytes, as it is stored
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = size(65_536))]
    frame_bytes: usize,
    /// Size of the payloads of `payload`
    #[arg(long, value_name = "BYTES", default_value_t = 8192, value_parser = size(1024 * 1024))]
    payload_bytes: usize,
    /// How long one measurement takes; less than a second will do, except for pgbench
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Also measure a plain PostgreSQL with the same bytes: single rows, many at once, and a trigger
    /// that chains hashes
    #[arg(long)]
    baseline: bool,
    /// With --url: the PostgreSQL of that server, to see how it grows, and for --baseline, which makes a
    /// database there and drops it
    #[arg(long, value_name = "URL", requires = "url")]
    database_url: Option<String>,
    /// Folder with PostgreSQL's programs
    #[arg(long, env = "ONRECORD_POSTGRES_BIN", value_name = "DIR")]
    postgres_bin: Option<PathBuf>,
    /// Whether the private server takes secrets out: a plain PostgreSQL does not
    #[arg(
        long,
        value_name = "WHETHER",
        default_value = "off",
        conflicts_with = "url"
    )]
    redaction: OnOff,
    /// How the private server is reached. The plain PostgreSQL is reached by a Unix socket
    #[arg(
        long,
        value_name = "HOW",
        default_value = "unix",
        conflicts_with = "url"
    )]
    transport: Transport,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// How a server on this machine is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Transport {
    /// By a Unix socket
    Unix,
    /// By TCP over the loopback address
    Tcp,
}

/// What is done instead of measuring.
#[derive(Clone, Debug, clap::Subcommand)]
enum Instead {
    /// Fill a database with runs that are made up, to measure on
    Seed(seed::SeedArgs),
}

/// A number of bytes from 1 to so many.
fn size(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(bytes) if (1..=most).contains(&bytes) => Ok(bytes),
        _ => Err(format!("not a number from 1 to {most}")),
    }
}

/// How long a measurement may take.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number from 0.05 to 3600".to_owned()),
    }
}

/// The longest request, which every connection keeps a copy of.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Runs the command.
pub async fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(Instead::Seed(args)) = &args.instead {
        return seed::run(args).await;
    }
    let request = (args.payload_bytes + args.frame_bytes).saturating_mul(args.batch as usize);
    anyhow::ensure!(
        request <= REQUEST_BYTES,
        "{} frames with {} bytes of payload are a request of more than 64 MiB: --batch or --payload-bytes must be less",
        args.batch,
        args.payload_bytes
    );
    // Asked for before anything is started, so that Ctrl-C never leaves a server or a folder behind.
    let asked = super::serve::stop_signal()?;
    let mut closed = signal(SignalKind::hangup())?;
    let stop = async {
        tokio::select! {
            () = asked => {}
            _ = closed.recv() => {} // The terminal is gone.
        }
    };
    if args.url.is_some() {
        return measured(&args, None, stop).await;
    }
    terminal::tell("starting a private server");
    let mut private =
        PrivateServer::start(args.postgres_bin.as_deref(), args.redaction, args.transport)?;
    let done = measured(&args, Some(&mut private), stop).await;
    let stopped = private.stop().await;
    // What went wrong first says more than what went wrong because of it.
    let code = done?;
    stopped?;
    Ok(code)
}

/// Measures and prints, unless it is stopped or the private server ends.
async fn measured(
    args: &BenchArgs,
    mut private: Option<&mut PrivateServer>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    tokio::pin!(stop);
    if let Some(private) = &mut private {
        tokio::select! {
            ready = private.ready(args.postgres_bin.as_deref()) => ready?,
            () = &mut stop => return Ok(ExitCode::from(INTERRUPTED)),
        }
    }
    let mut session = Session::begin(args, private.as_deref()).await?;
    let failed = async {
        match private {
            Some(private) => private.failed().await,
            None => std::future::pending().await,
        }
    };
    let report = tokio::select! {
        report = session.measure() => Some(report),
        error = failed => Some(Err(error)),
        () = stop => None,
    };
    let ended = session.end().await;
    let Some(report) = report else {
        terminal::tell("stopped before its end: nothing is printed");
        ended?;
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let report = report?;
    ended?;
    if args.json {
        terminal::show(&report.json()?)?;
    } else {
        report.print()?;
    }
    match report.lost() {
        0 => Ok(ExitCode::SUCCESS),
        lost => anyhow::bail!(
            "{lost} frames were acknowledged and are not in their runs: the server loses evidence"
        ),
    }
}
