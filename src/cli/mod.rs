//! The command line: one command a file.
//!
//! Exit codes: `EXIT_CODES`, which `--help` prints, and for people `docs/cli.md`.

mod anchors;
pub mod audit;
pub mod bench;
pub mod commit;
pub mod completions;
pub mod coverage;
pub mod demo;
pub mod doctor;
pub mod erase;
pub mod export;
pub mod flag;
pub mod gate;
pub mod hold;
pub mod import;
mod key_place;
pub mod keys;
pub mod ledger;
pub mod man;
pub mod migrate;
pub mod monitor;
pub mod payload;
pub mod people;
pub mod prove;
pub mod query;
pub mod redaction;
pub mod report;
pub mod retention;
mod running;
pub mod runs;
pub mod scan;
pub mod seal;
pub mod serve;
pub mod settings;
pub mod show;
pub mod signing_keys;
pub mod tail;
mod temporary;
pub mod tenant;
mod terminal;
mod timeline;
pub mod token;
pub mod trust;
pub mod verify;
pub mod watch;
mod which_run;
pub mod witness;

use crate::client::{Client, ServerArgs};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// What `--help` says of exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed, and standard error says why; of `verify` and `audit`: altered; of `doctor`: something
       is wrong; of `monitor --once`: an alarm stands
  2    the command line is wrong; of `verify` and `audit`: incomplete; of `import --strict`: lines
       not read; of `gate --fail`: recorded, and not a pass; of `monitor`: it could not be checked
  3    of `verify` and `audit`: it cannot be checked
  125  of `gate -- COMMAND`: not recorded; else its exit code is the command's own
  130  ended by Ctrl-C

Data goes to standard output, everything else to standard error.
With --json data is JSON, one value a line.";

/// Keeps the evidence of what AI agents did: chained, sealed, and checkable by anyone.
#[derive(Parser)]
#[command(name = "onrecord", version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// When to colour what is printed for people; `auto` on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = false
    )]
    color: clap::ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::ServeArgs),
    /// Show it all: a server, an agent at work, its evidence, and one changed byte
    Demo(demo::DemoArgs),
    /// Import transcripts of agents
    Import(WithServer<import::ImportArgs>),
    /// Record a gate's verdict: of a report, or of a command that it runs
    Gate(WithServer<gate::GateArgs>),
    /// Follow a folder of transcripts while agents write them
    Watch(WithServer<watch::WatchArgs>),
    /// List runs, newest first
    Runs(WithServer<runs::RunsArgs>),
    /// Query runs, frames and payload records for a stated purpose
    Query(WithServer<query::QueryArgs>),
    /// Show a run as a timeline
    Show(WithServer<show::ShowArgs>),
    /// Follow a run live, until it is sealed
    Tail(WithServer<tail::TailArgs>),
    /// Seal a run
    Seal(WithServer<seal::SealArgs>),
    /// Export a run as a bundle that anyone can check
    Export(WithServer<export::ExportArgs>),
    /// Prove one turn or one frame, as a file that anyone can check
    Prove(WithServer<prove::ProveArgs>),
    /// Report on a run: how complete its record is, and who had to do with it
    Report(WithServer<report::ReportArgs>),
    /// Which facts a record of use should have, and whether a run has them
    Coverage(WithServer<coverage::CoverageArgs>),
    /// Read one payload, for a stated purpose
    Payload(WithServer<payload::PayloadArgs>),
    /// Erase payloads, and get the certificates of it
    Erase(WithServer<erase::EraseArgs>),
    /// Set, release and list holds: what may not be erased
    Hold(WithServer<hold::HoldArgs>),
    /// Put a flag on a run, or take it off
    Flag(WithServer<flag::FlagArgs>),
    /// How long what is kept: the policy, what would go, and how far the sweeper is
    Retention(WithServer<retention::RetentionArgs>),
    /// Show, list, export and prove the tenant's ledger
    Ledger(WithServer<ledger::LedgerArgs>),
    /// Print the trust file for the server's keys
    Trust(WithServer<trust::TrustArgs>),
    /// Check a bundle, a proof of a turn or frame, or a ledger, offline
    Verify(verify::VerifyArgs),
    /// Run a witness of ledgers: it cosigns what goes on from what it saw, and nothing else
    Witness(witness::WitnessArgs),
    /// Watch a ledger from outside, and keep a copy of it
    Monitor(monitor::MonitorArgs),
    /// Commit to a payload that you keep, offline
    Commit(commit::CommitArgs),
    /// Make, list and revoke API tokens
    Token(WithServer<token::TokenArgs>),
    /// Whom the pseudonyms in the ledger stand for
    People(WithServer<people::PeopleArgs>),
    /// List the keys that sign for the tenant, and rotate its seal key
    SigningKeys(WithServer<signing_keys::SigningKeysArgs>),
    /// The tenant's rules of redaction, and what rules would do
    Redaction(WithServer<redaction::RedactionArgs>),
    /// Print what the tenant chose for itself, or choose
    Settings(WithServer<settings::SettingsArgs>),
    /// Make a tenant with keys and a ledger of its own
    Tenant(WithServer<tenant::TenantArgs>),
    /// Show and renew what the keys of runs are under
    Keys(keys::KeysArgs),
    /// Bring a database's tables to this version, as the role that owns them
    Migrate(migrate::MigrateArgs),
    /// Check a set-up, and say what is wrong and what to do
    Doctor(doctor::DoctorArgs),
    /// Check the whole database against itself and its ledgers
    Audit(audit::AuditArgs),
    /// Measure what a server takes: frames a second, latencies, and beside them a plain PostgreSQL
    Bench(bench::BenchArgs),
    /// Print the OpenAPI document
    Openapi,
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(man::ManArgs),
}

/// A command that talks to a server.
#[derive(clap::Args)]
struct WithServer<T: clap::Args> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    args: T,
}

impl<T: clap::Args> WithServer<T> {
    fn client(self) -> anyhow::Result<(T, Client)> {
        Ok((self.args, Client::new(&self.server)?))
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.color {
        clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
        clap::ColorChoice::Always => anstream::ColorChoice::Always,
        clap::ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let done = runtime.block_on(run(cli.command));
    // A thread that still reads standard input or a file must not keep the process.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    // Whoever closed standard output has seen enough.
    let is_closed = error.is::<terminal::Closed>()
        || error.chain().any(|cause| {
            let cause = cause.downcast_ref::<std::io::Error>();
            cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
        });
    if is_closed {
        return ExitCode::SUCCESS;
    }
    terminal::tell(format_args!("error: {}", told(error)));
    ExitCode::FAILURE
}

/// An error and its causes, without those that the text before them has told already.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::run(args).await?,
        Command::Demo(args) => demo::run(args).await?,
        Command::Import(args) => {
            let (args, client) = args.client()?;
            return import::run(args, client).await;
        }
        Command::Gate(args) => {
            let (args, client) = args.client()?;
            return gate::run(args, client).await;
        }
        Command::Watch(args) => {
            let (args, client) = args.client()?;
            return watch::run(args, client).await;
        }
        Command::Runs(args) => {
            let (args, client) = args.client()?;
            runs::run(args, client).await?;
        }
        Command::Query(args) => {
            let (args, client) = args.client()?;
            query::run(args, client).await?;
        }
        Command::Show(args) => {
            let (args, client) = args.client()?;
            show::run(args, client).await?;
        }
        Command::Tail(args) => {
            let (args, client) = args.client()?;
            tail::run(args, client).await?;
        }
        Command::Seal(args) => {
            let (args, client) = args.client()?;
            seal::run(args, client).await?;
        }
        Command::Export(args) => {
            let (args, client) = args.client()?;
            export::run(args, client).await?;
        }
        Command::Prove(args) => {
            let (args, client) = args.client()?;
            prove::run(args, client).await?;
        }
        Command::Report(args) => {
            let (args, client) = args.client()?;
            report::run(args, client).await?;
        }
        Command::Coverage(args) => {
            let (args, client) = args.client()?;
            coverage::run(args, client).await?;
        }
        Command::Payload(args) => {
            let (args, client) = args.client()?;
            payload::run(args, client).await?;
        }
        Command::Erase(args) => {
            let (args, client) = args.client()?;
            erase::run(args, client).await?;
        }
        Command::Hold(args) => {
            let (args, client) = args.client()?;
            hold::run(args, client).await?;
        }
        Command::Flag(args) => {
            let (args, client) = args.client()?;
            flag::run(args, client).await?;
        }
        Command::Retention(args) => {
            let (args, client) = args.client()?;
            retention::run(args, client).await?;
        }
        Command::Ledger(args) => {
            let (args, client) = args.client()?;
            ledger::run(args, client).await?;
        }
        Command::Trust(args) => {
            let (args, client) = args.client()?;
            trust::run(args, client).await?;
        }
        Command::Verify(args) => return Ok(verify::run(args)),
        Command::Witness(args) => witness::run(args).await?,
        Command::Monitor(args) => return monitor::run(args).await,
        Command::Commit(args) => commit::run(args)?,
        Command::Token(args) => {
            let (args, client) = args.client()?;
            token::run(args, client).await?;
        }
        Command::People(args) => {
            let (args, client) = args.client()?;
            people::run(args, client).await?;
        }
        Command::SigningKeys(args) => {
            let (args, client) = args.client()?;
            signing_keys::run(args, client).await?;
        }
        Command::Redaction(args) => {
            let (args, client) = args.client()?;
            redaction::run(args, client).await?;
        }
        Command::Settings(args) => {
            let (args, client) = args.client()?;
            settings::run(args, client).await?;
        }
        Command::Tenant(args) => {
            let (args, client) = args.client()?;
            tenant::run(args, client).await?;
        }
        Command::Keys(args) => keys::run(args).await?,
        Command::Migrate(args) => migrate::run(args).await?,
        Command::Doctor(args) => return doctor::run(args).await,
        Command::Audit(args) => return audit::run(args).await,
        Command::Bench(args) => return bench::run(args).await,
        Command::Openapi => print(&crate::http::openapi())?,
        Command::Completions(args) => completions::run(&args)?,
        Command::Man(args) => man::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output; whoever closed it has seen enough.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Logs to standard error: `RUST_LOG` says what, by default what an operator wants to see.
fn log(json: bool) {
    log_at("info,sqlx=warn", json);
}

/// Logs to standard error: `RUST_LOG` says what, else `what` does.
fn log_at(what: &str, json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(what));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second call, as in tests, finds the first one's logger in its place.
    let _ = if json {
        builder.json().try_init()
    } else {
        builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init()
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Format;
    use anyhow::Context as _;

    #[test]
    fn every_format_is_taken_by_the_name_that_is_told() {
        let names = Format::ALL.map(Format::as_str);
        for name in names {
            Cli::try_parse_from(["onrecord", "import", name, "file"]).unwrap();
            Cli::try_parse_from(["onrecord", "watch", ".", "--format", name]).unwrap();
        }
        Cli::try_parse_from(["onrecord", "import", "auto", "file"]).unwrap();
        let refused = Cli::try_parse_from(["onrecord", "import", "Codex", "file"]).err();
        let refused = refused.unwrap().to_string();
        assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = Err::<(), _>(std::io::Error::other("disk full"))
            .context("cannot write x: disk full")
            .context("no export")
            .unwrap_err();
        assert_eq!(told(&error), "no export: cannot write x: disk full");
    }
}
