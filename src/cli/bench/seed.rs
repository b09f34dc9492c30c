//! `onrecord bench seed`: a database to measure on.

use super::INTERRUPTED;
use crate::cli::serve::{Place, stop_signal};
use crate::cli::terminal;
use crate::seed::{LEAST_FRAMES, Seed, Seeded, Seeding};
use crate::start::{Config, DATABASE, Started, start, write_token};
use crate::store::Store;
use anyhow::Context as _;
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Name of the file with the new tenant's token, in the data folder.
const TOKEN_FILE: &str = "seed.token";
/// How often a log, where nobody looks at a terminal, has a line about how far it is.
const LOGGED: Duration = Duration::from_secs(30);

/// Arguments of `onrecord bench seed`.
#[derive(Clone, Debug, clap::Args)]
pub struct SeedArgs {
    #[command(flatten)]
    place: Place,
    /// Runs to make up
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    runs: u64,
    /// Frames of each run
    #[arg(long, value_name = "M", default_value_t = 20, value_parser = clap::value_parser!(u64).range(LEAST_FRAMES..=10_000))]
    frames: u64,
    /// Payloads of each run, of some words each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    payloads_per_run: u64,
    /// Days before now over which the runs are spread
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// Number that all chance follows from: the same one makes up the same runs, but for their ids, keys and dates
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub(super) async fn run(args: &SeedArgs) -> anyhow::Result<ExitCode> {
    // Asked for before anything is started, so that Ctrl-C never leaves a PostgreSQL behind.
    let stop = stop_signal()?;
    let config = args.place.config()?;
    let started = start(&config).await?;
    let done = fill(args, (&config, &started), stop).await;
    let Started { app, cluster, .. } = started;
    app.recorder.drain().await;
    app.recorder.store().close().await;
    if let Some(cluster) = cluster {
        cluster.stop().await?;
    }
    let code = done?;
    if config.database_url.is_none() {
        terminal::tell(format_args!(
            "start a server on it with: onrecord serve --data-dir {}",
            config.data_dir.display()
        ));
    }
    Ok(code)
}

async fn fill(
    args: &SeedArgs,
    (config, started): (&Config, &Started),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    let seed = Seed {
        runs: args.runs,
        frames: args.frames,
        payloads: args.payloads_per_run,
        days: args.days,
        seed: args.seed,
        host: config.public_host.clone(),
    };
    let seeding = Seeding::begin(&started.app.recorder, seed).await?;
    let token = config.data_dir.join(TOKEN_FILE);
    write_token(&token, seeding.token())
        .with_context(|| format!("cannot write {}", token.display()))?;
    let began = Instant::now();
    let mut view = View::new(args.runs);
    let stopped = Cell::new(false);
    let asked = async {
        stop.await;
        stopped.set(true);
        // What is under way is written to its end.
        std::future::pending().await
    };
    let seeded = tokio::select! {
        seeded = seeding.fill(|seeded| {
            view.show(&seeded);
            !stopped.get()
        }) => seeded?,
        () = asked => return Ok(ExitCode::from(INTERRUPTED)),
    };
    view.bar.finish_and_clear();
    let filled = began.elapsed();
    if !stopped.get() {
        let cluster = started.cluster.as_ref();
        let own = cluster.map(|cluster| cluster.database_url(DATABASE));
        if let Some(url) = own.or_else(|| config.database_url.clone()) {
            terminal::tell("PostgreSQL looks over its tables");
            Store::vacuum(&url).await?;
        }
    }
    terminal::show(&format!(
        "{} runs of {} frames in {}, {} of them sealed, {} frames/s\ntenant {}\ntoken  {}\n",
        HumanCount(seeded.runs),
        HumanCount(seeded.frames),
        HumanDuration(filled),
        HumanCount(seeded.sealed),
        HumanCount((seeded.frames as f64 / filled.as_secs_f64().max(0.001)) as u64),
        seeding.tenant(),
        token.display(),
    ))?;
    Ok(if stopped.get() {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// How far it is, for people.
struct View {
    bar: ProgressBar,
    runs: u64,
    began: Instant,
    logged: Instant,
}

impl View {
    fn new(runs: u64) -> Self {
        let now = Instant::now();
        Self {
            bar: ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr())
                .with_style(ProgressStyle::default_spinner()),
            runs,
            began: now,
            logged: now,
        }
    }

    fn show(&mut self, seeded: &Seeded) {
        let elapsed = self.began.elapsed();
        let left = self.runs.saturating_sub(seeded.runs);
        let left = elapsed.mul_f64(left as f64 / seeded.runs.max(1) as f64);
        let text = format!(
            "{} of {} runs, {} frames, {}/s, {} left",
            HumanCount(seeded.runs),
            HumanCount(self.runs),
            HumanCount(seeded.frames),
            HumanCount((seeded.frames as f64 / elapsed.as_secs_f64().max(0.001)) as u64),
            HumanDuration(left),
        );
        if !self.bar.is_hidden() {
            self.bar.set_position(seeded.runs);
            self.bar.set_message(text);
        } else if self.logged.elapsed() >= LOGGED {
            self.logged = Instant::now();
            terminal::tell(text);
        }
    }
}
