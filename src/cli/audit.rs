//! `onrecord audit`: the whole database against itself and its ledgers.

use super::terminal::{BAD, BOLD, DIM, DOUBTFUL, GOOD, Line, Screen, show, tell};
use crate::audit::{Audit, Finding, Progress, State, Summary, Told};
use crate::postgres::{ClusterState, inspect};
use crate::start::DATABASE;
use anyhow::Context as _;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget};
use onrecord_verify::{Status, TRUST_BYTES, Trust};
use serde_json::json;
use std::io::Read as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `onrecord audit`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 everything fits; 1 something was altered; 2 something is missing that nothing certifies as
erased; 3 it could not be audited.")]
pub struct AuditArgs {
    /// PostgreSQL to audit, as a role that may at least read; without it the embedded one of a running server
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The data folder of that server
    #[arg(long, env = "ONRECORD_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Folder with PostgreSQL's programs, for the embedded one
    #[arg(long, env = "ONRECORD_POSTGRES_BIN", value_name = "DIR")]
    pub postgres_bin: Option<PathBuf>,
    /// Trust file, kept elsewhere than the database; may be given for each tenant. Without, signatures are checked with the
    /// keys that the ledger names itself, and those of checkpoints are not
    #[arg(long, value_name = "FILE")]
    pub trust: Vec<PathBuf>,
    /// File that remembers which runs were read: an audit that broke off goes on from it
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Do not read runs again that were clean when the last audit read them, and that their rows say have not changed
    #[arg(long, requires = "state")]
    pub incremental: bool,
    /// Runs that are read at the same time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: Option<u16>,
    /// Print a JSON line for each finding, and one at the end
    #[arg(long)]
    pub json: bool,
}

/// Runs the command. That it could not be made has an exit code of its own.
pub async fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    match audit(&args).await {
        Ok(summary) => Ok(ExitCode::from(summary.status.exit_code())),
        Err(error) if error.is::<super::terminal::Closed>() => Err(error),
        Err(error) => {
            tell(format_args!("error: {}", super::told(&error)));
            Ok(ExitCode::from(Status::Unusable.exit_code()))
        }
    }
}

async fn audit(args: &AuditArgs) -> anyhow::Result<Summary> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let audit = Audit {
        url: url(args)?,
        trusts: args
            .trust
            .iter()
            .map(|path| read_trust(path))
            .collect::<Result<_, _>>()?,
        jobs: args.jobs.map_or(cores, usize::from),
    };
    let mut state = match &args.state {
        Some(path) => State::open(path, args.incremental)?,
        None => State::none(),
    };
    let mut view = View::new(args.json);
    let summary = audit.run(&mut state, |told| view.tell(told)).await;
    view.bar.finish_and_clear();
    if let Some(error) = view.failed {
        return Err(error);
    }
    let summary = summary?;
    show(&view.end(&summary, &audit))?;
    Ok(summary)
}

/// The database that was named, or that of a server which runs on the data folder.
fn url(args: &AuditArgs) -> anyhow::Result<String> {
    if let Some(url) = args.database_url.as_ref().filter(|url| !url.is_empty()) {
        return Ok(url.clone());
    }
    let folder = super::key_place::data_dir(args.data_dir.as_ref())?;
    let found = inspect(&folder, args.postgres_bin.as_deref(), DATABASE)?;
    match found.state {
        ClusterState::Running { url } => Ok(url),
        _ => anyhow::bail!(
            "no PostgreSQL runs with a server in {}: start `onrecord serve`, or name one with --database-url",
            folder.display()
        ),
    }
}

/// Reads a trust file.
pub(super) fn read_trust(path: &Path) -> anyhow::Result<Trust> {
    let named = || path.display().to_string();
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(TRUST_BYTES as u64 + 1).read_to_string(&mut text))
        .with_context(named)?;
    if text.len() > TRUST_BYTES {
        anyhow::bail!("{}: more than {TRUST_BYTES} bytes", named());
    }
    Trust::parse(&text).with_context(named)
}

/// How often a log, where nobody looks at a terminal, has a line about how far it is.
const LOGGED: Duration = Duration::from_secs(30);

/// What people see: findings as they come, and how far it is.
struct View {
    bar: ProgressBar,
    json: bool,
    began: Instant,
    logged: Instant,
    failed: Option<anyhow::Error>,
}

impl View {
    fn new(json: bool) -> Self {
        let now = Instant::now();
        Self {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                .with_style(indicatif::ProgressStyle::default_spinner()),
            json,
            began: now,
            logged: now,
            failed: None,
        }
    }

    fn tell(&mut self, told: Told) {
        match told {
            Told::Finding(finding) => {
                let text = if self.json {
                    serde_json::to_string(&finding)
                        .map(|text| text + "\n")
                        .unwrap_or_default()
                } else {
                    line(&finding).render(Screen::stdout())
                };
                if let Err(error) = self.bar.suspend(|| show(&text)) {
                    self.failed.get_or_insert(error);
                }
            }
            Told::Progress(progress) => {
                let text = self.progress(&progress);
                if self.bar.is_hidden() {
                    if self.logged.elapsed() >= LOGGED {
                        self.logged = Instant::now();
                        tell(text);
                    }
                } else {
                    self.bar.set_message(text);
                    self.bar.tick();
                }
            }
        }
    }

    fn progress(&self, at: &Progress) -> String {
        let elapsed = self.began.elapsed();
        let left = at.all_frames.saturating_sub(at.frames);
        let eta = (at.frames > 0).then(|| elapsed.mul_f64(left as f64 / at.frames as f64));
        format!(
            "{} of {} runs, {} of {} frames, {}/s{}",
            HumanCount(at.runs + at.skipped),
            HumanCount(at.all_runs),
            HumanCount(at.frames),
            HumanCount(at.all_frames),
            HumanBytes(speed(at.bytes, elapsed)),
            eta.map_or_else(String::new, |eta| format!(", {} left", HumanDuration(eta))),
        )
    }

    fn end(&self, summary: &Summary, audit: &Audit) -> String {
        let progress = &summary.progress;
        let elapsed = self.began.elapsed();
        let mut not_checked = vec!["what ciphertexts hold, since nothing here opens them"];
        if audit.trusts.is_empty() {
            not_checked.push("signatures of checkpoints, and whose the keys are: give --trust");
        }
        if progress.skipped > 0 {
            not_checked.push("runs that have not changed since they were read before");
        }
        if self.json {
            let value = json!({
                "status": summary.status.as_str(), "findings": summary.findings, "ledgers": summary.ledgers,
                "runs": progress.runs, "skipped": progress.skipped, "frames": progress.frames, "bytes": progress.bytes,
                "seconds": elapsed.as_secs_f64(), "not_checked": not_checked,
            });
            return format!("{value}\n");
        }
        let screen = Screen::stdout();
        let (style, word) = match summary.status {
            Status::Verified => (GOOD, "everything fits"),
            Status::Altered => (BAD, "ALTERED"),
            _ => (DOUBTFUL, "INCOMPLETE"),
        };
        let mut text = Line::default();
        text.add(style, word).text(&format!(
            ": {} findings in {} ledgers and {} runs of {} frames ({}/s)",
            summary.findings,
            summary.ledgers,
            progress.runs,
            progress.frames,
            HumanBytes(speed(progress.bytes, elapsed)),
        ));
        let mut text = text.render(screen);
        for what in not_checked {
            let mut line = Line::default();
            line.add(DIM, &format!("not checked: {what}"));
            text.push_str(&line.render(screen));
        }
        text
    }
}

/// Bytes a second.
fn speed(bytes: u64, elapsed: Duration) -> u64 {
    (bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64
}

/// A finding for people.
fn line(finding: &Finding) -> Line {
    let style = match finding.status {
        Status::Altered => BAD,
        _ => DOUBTFUL,
    };
    let mut line = Line::default();
    line.add(style, finding.code).text(" ");
    let mut place = finding
        .run
        .clone()
        .unwrap_or_else(|| finding.tenant.clone());
    if let Some(seq) = finding.seq {
        place.push_str(&format!(" frame {seq}"));
    }
    if let Some(index) = finding.index {
        place.push_str(&format!(" entry {index}"));
    }
    line.add(BOLD, &place)
        .text(&format!(" {}.{}: ", finding.table, finding.column))
        .text(&finding.cause);
    line
}
