//! `onrecord serve`: the server.

use super::key_place::KeyPlace;
use super::running::Running;
use crate::anchor;
use crate::client::UNIX;
use crate::http;
use crate::postgres::Durability;
use crate::start::{Config, HeadsEvery, Started, start};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How often runs that nobody writes to are looked for, and epochs that another process destroyed.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// How often erasures that are not final are looked for.
const ERASURE_CHECK: Duration = Duration::from_secs(30);
/// How often orders of holds are looked for that are not carried out, and what was recorded about subjects on hold.
const HOLD_CHECK: Duration = Duration::from_secs(5);
/// How often open runs are looked for that the ledger is to state.
const HEAD_CHECK: Duration = Duration::from_secs(5);
/// Connections to the database, unless told otherwise.
const CONNECTIONS: u32 = 16;

/// Where a server has its data, its database and its keys.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Its keys.
    #[command(flatten)]
    pub keys: KeyPlace,
    /// PostgreSQL to use; without it the server runs an embedded one in its data folder
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// PostgreSQL for the keys of runs; without it they are in a schema of their own beside the evidence
    #[arg(
        long,
        env = "ONRECORD_KEY_DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub key_database_url: Option<String>,
    /// Folder with PostgreSQL's programs, for the embedded one
    #[arg(long, env = "ONRECORD_POSTGRES_BIN", value_name = "DIR")]
    pub postgres_bin: Option<PathBuf>,
}

impl Place {
    /// A server's configuration there, with what `onrecord serve` has by default.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            data_dir: self.keys.data_dir()?,
            database_url: self.database_url.clone().filter(|url| !url.is_empty()),
            key_database_url: self.key_database_url.clone().filter(|url| !url.is_empty()),
            postgres_bin: self.postgres_bin.clone(),
            keys: self.keys.keys.clone(),
            root_key: self.keys.root_key()?,
            public_host: "localhost".to_owned(),
            connections: CONNECTIONS,
            durability: Durability::Durable,
            new_token: false,
            redaction: true,
            literals: None,
            anchors: Default::default(),
        })
    }
}

/// Whether the server does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOff {
    /// It does
    On,
    /// It does not
    Off,
}

impl OnOff {
    /// As it is given on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Who is told of the ledgers.
#[derive(Clone, Debug, clap::Args)]
pub struct AnchorArgs {
    /// Witness that cosigns the ledgers, its address and its verifier key; may be given several times, and all of them are
    /// asked
    #[arg(
        long,
        env = "ONRECORD_WITNESS",
        value_name = "URL=VKEY",
        value_delimiter = ' '
    )]
    pub witness: Vec<String>,
    /// Witnesses, and which of them are enough: a file of `witness`, `group` and `quorum` lines as in a trust file, with
    /// addresses
    #[arg(
        long,
        env = "ONRECORD_WITNESSES",
        value_name = "FILE",
        conflicts_with = "witness"
    )]
    pub witnesses: Option<PathBuf>,
    /// Time-stamping authority (RFC 3161) that stamps seals
    #[arg(long, env = "ONRECORD_TSA", value_name = "URL")]
    pub tsa: Option<String>,
    /// Folder of what was published last of each ledger, which must not go back with a backup of the database [default:
    /// published in the data folder]
    #[arg(long, env = "ONRECORD_PUBLISHED_DIR", value_name = "DIR")]
    pub published_dir: Option<PathBuf>,
}

impl AnchorArgs {
    fn config(&self) -> anyhow::Result<anchor::Config> {
        let witnesses = match &self.witnesses {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let policy = anchor::Policy::parse(&text);
                Some(policy.with_context(|| format!("--witnesses {}", path.display()))?)
            }
            None if self.witness.is_empty() => None,
            None => Some(anchor::Policy::of_all(&self.witness).context("--witness")?),
        };
        Ok(anchor::Config {
            published: self.published_dir.clone(),
            witnesses,
            authority: self.tsa.clone().filter(|url| !url.is_empty()),
        })
    }
}

/// Arguments of `onrecord serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    place: Place,
    /// Address to listen on
    #[arg(
        long,
        env = "ONRECORD_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8470"
    )]
    pub listen: String,
    /// Unix socket to listen on as well, for agents on this machine: cheaper than an address. They connect with
    /// --url unix:PATH
    #[arg(long, env = "ONRECORD_LISTEN_UNIX", value_name = "PATH")]
    pub listen_unix: Option<PathBuf>,
    /// Address to serve figures for Prometheus on, at /metrics: without a token, and without a word of any tenant
    #[arg(long, env = "ONRECORD_METRICS_LISTEN", value_name = "ADDR")]
    pub metrics_listen: Option<String>,
    /// Host in the names of new ledgers; it stands in evidence for ever
    #[arg(
        long,
        env = "ONRECORD_PUBLIC_HOST",
        value_name = "HOST",
        default_value = "localhost"
    )]
    pub public_host: String,
    /// Connections to the database
    #[arg(long, env = "ONRECORD_CONNECTIONS", value_name = "N", default_value_t = CONNECTIONS, value_parser = clap::value_parser!(u32).range(2..=500))]
    pub connections: u32,
    /// Seal runs as interrupted that nobody wrote to for so many hours, where their tenant chose nothing else; 0 for never
    #[arg(
        long,
        env = "ONRECORD_SEAL_IDLE_HOURS",
        value_name = "HOURS",
        default_value_t = 24
    )]
    pub seal_idle_hours: u64,
    /// State on the ledger how far an open run is whenever it has grown by so many frames; 0 for never
    #[arg(
        long,
        env = "ONRECORD_HEAD_EVERY_FRAMES",
        value_name = "N",
        default_value_t = 1_000
    )]
    pub head_every_frames: u64,
    /// State on the ledger how far an open run is once a frame has waited for it for so many seconds; 0 for never
    #[arg(
        long,
        env = "ONRECORD_HEAD_EVERY_SECONDS",
        value_name = "SECONDS",
        default_value_t = 300
    )]
    pub head_every_seconds: u64,
    /// Minutes after an erasure until its tenant's keys are rotated, by which no backup of the databases opens any of it; 0: only
    /// when somebody rotates them
    #[arg(
        long,
        env = "ONRECORD_FINAL_AFTER_MINUTES",
        value_name = "MINUTES",
        default_value_t = 60
    )]
    pub final_after_minutes: u64,
    /// Days that backups of the keys folder are kept for; certificates of erasure say from when on none is left
    #[arg(long, env = "ONRECORD_KEY_BACKUP_DAYS", value_name = "DAYS")]
    pub key_backup_days: Option<u32>,
    /// Seconds between two looks for what expired under a tenant's retention policy; 0: only when somebody asks for it
    #[arg(
        long,
        env = "ONRECORD_SWEEP_EVERY_SECONDS",
        value_name = "SECONDS",
        default_value_t = 30
    )]
    pub sweep_every_seconds: u64,
    /// Expired payloads that are erased a second at most; 0 for as many as go
    #[arg(
        long,
        env = "ONRECORD_SWEEP_RATE",
        value_name = "N",
        default_value_t = 20_000
    )]
    pub sweep_rate: u64,
    /// Take secrets out of payloads before they are recorded, and refuse them elsewhere
    #[arg(
        long,
        env = "ONRECORD_REDACTION",
        value_name = "WHETHER",
        default_value = "on"
    )]
    pub redaction: OnOff,
    /// File of further secrets, one a line, that are taken out wherever they stand
    #[arg(long, env = "ONRECORD_REDACT_LITERALS", value_name = "FILE")]
    pub redact_literals: Option<PathBuf>,
    #[command(flatten)]
    anchors: AnchorArgs,
    /// Make another owner's token, if the first one is lost
    #[arg(long)]
    pub new_admin_token: bool,
    /// Log as JSON
    #[arg(long, env = "ONRECORD_LOG_JSON")]
    pub log_json: bool,
}

impl ServeArgs {
    fn config(&self) -> anyhow::Result<Config> {
        if self.redact_literals.is_some() && self.redaction == OnOff::Off {
            anyhow::bail!(
                "--redact-literals has no effect with --redaction off; leave one of them out"
            );
        }
        Ok(Config {
            literals: self.redact_literals.clone(),
            anchors: self.anchors.config()?,
            public_host: self.public_host.clone(),
            connections: self.connections,
            new_token: self.new_admin_token,
            redaction: self.redaction == OnOff::On,
            ..self.place.config()?
        })
    }
}

/// Runs the server until it is told to stop, or PostgreSQL ends.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    super::log(args.log_json);
    let config = args.config()?;
    let listener = TcpListener::bind(&args.listen)
        .await
        .with_context(|| cannot_listen(&args.listen))?;
    let address = listener.local_addr()?;
    let mut listener = http::Listener::from(listener);
    if let Some(path) = &args.listen_unix {
        let socket = http::UnixSocket::bind(path);
        listener = listener.with_unix(socket.with_context(|| {
            format!(
                "cannot listen on {} for --listen-unix: give a path that nothing is at, in a folder that is there",
                path.display()
            )
        })?);
    }
    let metrics = match &args.metrics_listen {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address} for --metrics-listen"))?,
        ),
        None => None,
    };
    // Asked for before anything is started, so that Ctrl-C during the start is not the default's abrupt end.
    let stop = stop_signal()?;
    let mut started = start(&config).await?;
    let minutes = args.final_after_minutes;
    let finality = &mut started.app.finality;
    finality.rotate_after = (minutes > 0).then(|| Duration::from_secs(60 * minutes));
    finality.key_backup_days = args.key_backup_days;
    announce(
        &started,
        &format!("http://{address}"),
        args.listen_unix.as_deref(),
    );
    let hours = args.seal_idle_hours;
    let idle = (hours > 0).then(|| hours.saturating_mul(3_600));
    let recorder = started.app.recorder.clone();
    recorder.resume_rotations().await?;
    let sweeper = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(IDLE_CHECK);
        loop {
            ticks.tick().await;
            if let Err(error) = recorder.refresh_keys().await {
                tracing::warn!(%error, "the keys folder could not be looked at");
            }
            if let Err(error) = recorder.seal_idle(idle).await {
                tracing::warn!(%error, "idle runs could not be sealed");
            }
        }
    });
    let (recorder, finality) = (started.app.recorder.clone(), started.app.finality);
    let eraser = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(ERASURE_CHECK);
        loop {
            ticks.tick().await;
            if let Err(error) = recorder.erase_pending(finality).await {
                tracing::warn!(%error, "erasures could not be gone on with");
            }
        }
    });
    started.app.sweeping.payloads_per_second = args.sweep_rate;
    let (recorder, limits) = (started.app.recorder.clone(), started.app.sweeping);
    let expirer = tokio::spawn(async move {
        if args.sweep_every_seconds == 0 {
            return;
        }
        let mut ticks = tokio::time::interval(Duration::from_secs(args.sweep_every_seconds));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = recorder.sweep_all(limits).await {
                tracing::warn!(%error, "what expired could not be looked for");
            }
        }
    });
    let recorder = started.app.recorder.clone();
    let holder = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(HOLD_CHECK);
        loop {
            ticks.tick().await;
            if let Err(error) = recorder.carry_out_orders().await {
                tracing::warn!(%error, "orders of holds could not be gone on with");
            }
        }
    });
    tokio::spawn(started.app.anchors.clone().run());
    let recorder = started.app.recorder.clone();
    let every = HeadsEvery {
        frames: args.head_every_frames,
        seconds: args.head_every_seconds,
    };
    let stater = tokio::spawn(async move {
        if every.frames == 0 && every.seconds == 0 {
            return;
        }
        let mut ticks = tokio::time::interval(HEAD_CHECK);
        loop {
            ticks.tick().await;
            if let Err(error) = recorder.state_heads(every).await {
                tracing::warn!(%error, "how far open runs are could not be stated");
            }
        }
    });
    // It ends with the process: whoever scrapes at that moment comes again.
    let scraped = metrics.map(|listener| {
        let app = started.app.clone();
        tokio::spawn(async move {
            let served = http::serve_metrics(listener, &app, std::future::pending()).await;
            if let Err(error) = served {
                tracing::warn!(%error, "figures are not served any more");
            }
        })
    });
    let mut running = Running::new(started, listener);
    // Fails where there is no systemd to hear it.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let failure = tokio::select! {
        () = stop => {
            tracing::info!("stopping: requests end first");
            None
        }
        error = running.failed() => Some(error),
    };
    sweeper.abort();
    eraser.abort();
    expirer.abort();
    holder.abort();
    stater.abort();
    if let Some(scraped) = scraped {
        scraped.abort();
    }
    let stopped = running.stop().await;
    // What ended the server says more than what failed because of it.
    failure.map_or(stopped, Err)
}

/// What is wrong with an address to listen on, before the operating system's words.
pub(super) fn cannot_listen(address: &str) -> String {
    let port = address.rsplit_once(':').map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => format!("cannot listen on {address}; --listen takes another address"),
        _ => format!("cannot listen on {address}: give HOST:PORT, such as 127.0.0.1:8470"),
    }
}

/// Done at the first SIGINT or SIGTERM.
pub(super) fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Says where the server is, and its first token this once.
fn announce(started: &Started, url: &str, socket: Option<&Path>) {
    eprintln!("onrecord {} at {url}", env!("CARGO_PKG_VERSION"));
    if let Some(path) = socket {
        eprintln!("  socket  {UNIX}{}", path.display());
    }
    eprintln!("  docs    {url}/docs");
    if let Some((path, token)) = &started.token {
        eprintln!("  token   {token}");
        eprintln!(
            "          the owner's: every role, for any actor. Shown this once, and kept in {}",
            path.display()
        );
    }
}
