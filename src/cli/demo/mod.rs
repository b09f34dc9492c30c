//! `onrecord demo`: from nothing to a verdict, on this machine.
//!
//! A server of its own, a scripted agent that repairs a program in a git repository, a gate that judges
//! it, and an auditor who checks what they left.

mod agent;
mod evidence;
mod journal;
mod screen;
mod server;
mod step;
mod workspace;

use crate::client::{Client, ServerArgs};
use crate::start::TOKEN_FILE;
use agent::{AGENT, GATE, Work};
use evidence::Files;
use screen::{Ink, Screen};
use server::Server;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use workspace::Workspace;

/// Who checks.
const AUDITOR: &str = "demo-auditor";

/// Arguments of `onrecord demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Stop at the verdict and clean up, for scripts; the exit code is 0 if every step did as it should
    #[arg(long)]
    pub exit: bool,
    /// Folder for the server's data and the demo's files, which stay [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on [default: a free port of this machine]
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:0",
        hide_default_value = true
    )]
    pub listen: String,
    /// Folder with PostgreSQL's programs
    #[arg(long, env = "ONRECORD_POSTGRES_BIN", value_name = "DIR")]
    pub postgres_bin: Option<PathBuf>,
}

/// Where the server is, and the owner's token.
struct Address {
    url: String,
    token: String,
}

/// Runs the command.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    super::log_at("warn", false);
    let began = Instant::now();
    let screen = Screen::new();
    // Asked for before anything is started, so that Ctrl-C never leaves a PostgreSQL or a folder behind.
    let asked = super::serve::stop_signal()?;
    let mut closed = signal(SignalKind::hangup())?;
    let stop = async {
        tokio::select! {
            () = asked => {}
            _ = closed.recv() => {} // The terminal is gone.
        }
    };
    tokio::pin!(stop);
    screen.line(&format!(
        "{}  {}",
        screen.paint(Ink::Bold, "onrecord demo"),
        "an agent repairs a program, and every step goes on record"
    ))?;
    let workspace = Workspace::create(args.data_dir.as_deref()).await?;
    screen.line("")?;
    screen.fact("folder", &workspace.folder().display().to_string())?;
    let mut server = Server::start(workspace.data_dir(), &args.listen, args.postgres_bin).await?;
    screen.fact(
        "server",
        &format!("{}, with a PostgreSQL of its own", server.url),
    )?;
    let address = Address {
        url: server.url.clone(),
        token: server.token.clone(),
    };
    let mut done = tokio::select! {
        done = play(&screen, &workspace, &address, began) => done,
        () = &mut stop => Err(anyhow::anyhow!("stopped before its end")),
        error = server.failed() => Err(error),
    };
    if let (Ok((work, files)), false) = (&done, args.exit) {
        explore(&screen, &workspace, &address.url, work, files)?;
        tokio::select! {
            () = &mut stop => screen.line("")?,
            error = server.failed() => done = Err(error),
        }
    }
    server.stop().await?;
    workspace.remove()?;
    done.map(|_| ())
}

/// The whole play; whatever does not go as it should is an error.
async fn play(
    screen: &Screen,
    workspace: &Workspace,
    address: &Address,
    began: Instant,
) -> anyhow::Result<(Work, Files)> {
    let owner = Client::new(&ServerArgs {
        url: address.url.clone(),
        token: Some(address.token.clone()),
    })?;
    let agent = journal::client_for(&owner, "agent", ("agent", AGENT)).await?;
    let gate = journal::client_for(&owner, "gate", ("verifier", GATE)).await?;
    let auditor = journal::client_for(&owner, "auditor", ("human", AUDITOR)).await?;
    screen.fact("tokens", "one each for the agent, its gate and an auditor")?;
    screen.heading(
        "Record",
        "every line was posted over HTTP; the model is a script, the rest is real",
    )?;
    let work = agent::work(screen, workspace, agent.clone(), gate).await?;
    let size = evidence::seal(screen, &agent, &work).await?;
    let files = evidence::export(screen, &auditor, &work, workspace.folder()).await?;
    evidence::check(screen, &files, size)?;
    evidence::alter(screen, &auditor, &work, &files).await?;
    let seconds = began.elapsed().as_secs_f64();
    screen.line(&screen.paint(Ink::Dim, &format!("\n  The file shows what was recorded, when and under which key, and that it is\n  unchanged since; not that the agent was right. {seconds:.1} s in all.")))?;
    Ok((work, files))
}

/// What to look at while the server serves.
fn explore(
    screen: &Screen,
    workspace: &Workspace,
    url: &str,
    work: &Work,
    files: &Files,
) -> anyhow::Result<()> {
    let run = &work.run;
    screen.heading("Explore", "while this runs, in another terminal")?;
    screen.fact("docs", &format!("{url}/docs"))?;
    screen.fact("repository", &workspace.repository().display().to_string())?;
    screen.line("")?;
    let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
    let verify = format!("onrecord verify --trust {}", name(&files.trust));
    let token = workspace.data_dir().join(TOKEN_FILE);
    let token = token.strip_prefix(workspace.folder()).unwrap_or(&token);
    let token = token.display();
    for command in [
        format!("cd {}", workspace.folder().display()),
        format!("alias onrecord={}", program()),
        format!("export ONRECORD_URL={url}"),
        format!("export ONRECORD_TOKEN=$(cat {token})"),
        format!("onrecord show {run}"),
        format!("{verify} {}", name(&files.bundle)),
        format!("{verify} {}", name(&files.altered)),
        "curl -H \"Authorization: Bearer $ONRECORD_TOKEN\" $ONRECORD_URL/v1/runs".to_owned(),
    ] {
        screen.line(&format!("  {}", screen.paint(Ink::Cyan, &command)))?;
    }
    let end = if workspace.is_temporary() {
        "Ctrl-C stops the server and removes the folder (to keep it: --data-dir DIR)."
    } else {
        "Ctrl-C stops the server; the folder stays."
    };
    screen.line(&format!("\n{end}"))
}

/// This program's own path.
fn program() -> String {
    std::env::current_exe().map_or("onrecord".to_owned(), |path| path.display().to_string())
}
