//! The command line: one command a file.
//!
//! Exit codes: 0 done, 1 failed (or, of `verify`, altered), 2 of `verify` incomplete, and of `import`
//! with `--strict` torn; 3 of `verify` unusable; 64 and above are the shell's.

pub mod completions;
pub mod demo;
pub mod export;
pub mod import;
pub mod migrate;
mod running;
pub mod runs;
pub mod seal;
pub mod serve;
pub mod show;
mod table;
pub mod tenant;
pub mod token;
pub mod trust;
pub mod verify;
pub mod watch;

use crate::client::{Client, ServerArgs};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Keeps the evidence of what AI agents did: chained, sealed, and checkable by anyone.
#[derive(Parser)]
#[command(name = "onrecord", version, about, max_term_width = 100)]
pub struct Cli {
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
    /// Follow a folder of transcripts while agents write them
    Watch(WithServer<watch::WatchArgs>),
    /// List runs, newest first
    Runs(WithServer<runs::RunsArgs>),
    /// Show a run as a timeline
    Show(WithServer<show::ShowArgs>),
    /// Seal a run
    Seal(WithServer<seal::SealArgs>),
    /// Export a run as a bundle that anyone can check
    Export(WithServer<export::ExportArgs>),
    /// Print the trust file for the server's keys
    Trust(WithServer<trust::TrustArgs>),
    /// Check a bundle, a turn proof or a ledger, offline
    Verify(verify::VerifyArgs),
    /// Make, list and revoke API tokens
    Token(WithServer<token::TokenArgs>),
    /// Make a tenant with keys and a ledger of its own
    Tenant(WithServer<tenant::TenantArgs>),
    /// Bring a database's tables to this version, as the role that owns them
    Migrate(migrate::MigrateArgs),
    /// Print the OpenAPI document
    Openapi,
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
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
    eprintln!("error: {}", told(error));
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
        Command::Watch(args) => {
            let (args, client) = args.client()?;
            return watch::run(args, client).await;
        }
        Command::Runs(args) => {
            let (args, client) = args.client()?;
            runs::run(args, client).await?;
        }
        Command::Show(args) => {
            let (args, client) = args.client()?;
            show::run(args, client).await?;
        }
        Command::Seal(args) => {
            let (args, client) = args.client()?;
            seal::run(args, client).await?;
        }
        Command::Export(args) => {
            let (args, client) = args.client()?;
            export::run(args, client).await?;
        }
        Command::Trust(args) => {
            let (args, client) = args.client()?;
            trust::run(args, client).await?;
        }
        Command::Verify(args) => return Ok(verify::run(args)),
        Command::Token(args) => {
            let (args, client) = args.client()?;
            token::run(args, client).await?;
        }
        Command::Tenant(args) => {
            let (args, client) = args.client()?;
            tenant::run(args, client).await?;
        }
        Command::Migrate(args) => migrate::run(args).await?,
        Command::Openapi => print(&crate::http::openapi())?,
        Command::Completions(args) => completions::run(&args)?,
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
    use anyhow::Context as _;

    #[test]
    fn a_cause_is_told_once() {
        let error = Err::<(), _>(std::io::Error::other("disk full"))
            .context("cannot write x: disk full")
            .context("no export")
            .unwrap_err();
        assert_eq!(told(&error), "no export: cannot write x: disk full");
    }
}
