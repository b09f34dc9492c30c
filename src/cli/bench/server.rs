//! The server that is measured: a private one in a process of its own, or one that is there.

use super::Transport;
use crate::cli::serve::OnOff;
use crate::cli::{temporary, terminal};
use crate::client::UNIX;
use crate::postgres::{ClusterState, inspect};
use crate::start::{DATABASE, TOKEN_FILE};
use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// Variables that would lead the private server to data, keys or an address that are not its own, or that an option of
/// this command says.
const FOREIGN: [&str; 13] = [
    "DATABASE_URL",
    "ONRECORD_KEY_DATABASE_URL",
    "CREDENTIALS_DIRECTORY",
    "ONRECORD_DATA_DIR",
    "ONRECORD_KEYS",
    "ONRECORD_ROOT_KEY",
    "ONRECORD_ROOT_KEY_TRANSIT",
    "ONRECORD_LISTEN",
    "ONRECORD_LISTEN_UNIX",
    "ONRECORD_METRICS_LISTEN",
    "ONRECORD_LOG_JSON",
    "ONRECORD_REDACTION",
    "ONRECORD_REDACT_LITERALS",
];
/// The data folder in the temporary one.
const DATA: &str = "data";
/// The Unix socket in the temporary folder.
const SOCKET: &str = "socket";
/// Lines of a server's log that are repeated when it ends.
const TOLD: usize = 12;

/// `onrecord serve` with a cluster of its own, in a temporary folder.
pub(super) struct PrivateServer {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    last: VecDeque<String>,
    folder: TempDir,
    transport: Transport,
    /// Its address.
    pub url: String,
    /// The owner's token.
    pub token: String,
    /// The superuser's address of its database.
    pub database_url: String,
    /// The folder of PostgreSQL's programs.
    pub postgres_bin: PathBuf,
}

impl PrivateServer {
    /// Starts it; [`PrivateServer::ready`] says when it serves. Settings of `serve` in the environment hold, such as
    /// `ONRECORD_CONNECTIONS`, but not those that say where it is.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn start(
        postgres_bin: Option<&Path>,
        redaction: OnOff,
        transport: Transport,
    ) -> anyhow::Result<Self> {
        let folder = temporary::folder("onrecord-bench-")?;
        warn_of_memory(folder.path());
        let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join(DATA))
            .args(["--redaction", redaction.word()])
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for this command, which then ends the server.
            .process_group(0)
            .kill_on_drop(true);
        for name in FOREIGN {
            command.env_remove(name);
        }
        if let Some(folder) = postgres_bin {
            command.arg("--postgres-bin").arg(folder);
        }
        if transport == Transport::Unix {
            let socket = folder.path().join(SOCKET);
            command.arg("--listen-unix").arg(socket);
        }
        let mut child = command.spawn().context("the server cannot be run")?;
        let Some(errors) = child.stderr.take() else {
            bail!("the server's log cannot be read");
        };
        Ok(Self {
            child,
            log: BufReader::new(errors).lines(),
            last: VecDeque::new(),
            folder,
            transport,
            url: String::new(),
            token: String::new(),
            database_url: String::new(),
            postgres_bin: PathBuf::new(),
        })
    }

    /// Returns when it serves. `postgres_bin` is as for the start.
    ///
    /// # Errors
    /// It ended; the error has the end of its log.
    pub async fn ready(&mut self, postgres_bin: Option<&Path>) -> anyhow::Result<()> {
        self.url = self.announced().await?;
        if self.transport == Transport::Unix {
            let socket = self.folder.path().join(SOCKET);
            self.url = format!("{UNIX}{}", socket.display());
        }
        let data_dir = self.folder.path().join(DATA);
        self.look(&data_dir, postgres_bin)
    }

    /// Waits for the line that says where it is.
    async fn announced(&mut self) -> anyhow::Result<String> {
        while let Some(line) = self.log.next_line().await? {
            if let Some((_, url)) = line.split_once(" at http://")
                && line.starts_with("onrecord ")
            {
                return Ok(format!("http://{url}"));
            }
            self.keep(line);
        }
        Err(self.ended().await)
    }

    /// Reads where its token and its database are.
    fn look(&mut self, data_dir: &Path, postgres_bin: Option<&Path>) -> anyhow::Result<()> {
        let token = data_dir.join(TOKEN_FILE);
        let text = std::fs::read_to_string(&token)
            .with_context(|| format!("cannot read {}", token.display()))?;
        text.trim().clone_into(&mut self.token);
        let found = inspect(data_dir, postgres_bin, DATABASE)?;
        if let ClusterState::Running { url } = found.state {
            self.database_url = url;
        }
        self.postgres_bin = found.installation?.bin_dir().to_owned();
        Ok(())
    }

    /// The server's process.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Repeats what the server complains of; returns when it ended by itself, with the reason.
    pub async fn failed(&mut self) -> anyhow::Error {
        while let Ok(Some(line)) = self.log.next_line().await {
            // The address of the documents and the token come after its own address.
            if !line.starts_with("  ") {
                terminal::tell(format_args!("server: {line}"));
                self.keep(line);
            }
        }
        self.ended().await
    }

    fn keep(&mut self, line: String) {
        self.last.push_back(line);
        if self.last.len() > TOLD {
            self.last.pop_front();
        }
    }

    async fn ended(&mut self) -> anyhow::Error {
        let how = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let log = Vec::from(std::mem::take(&mut self.last)).join("\n");
        anyhow::anyhow!("the server ended ({how}):\n{log}")
    }

    /// Asks it to stop, waits until it and its PostgreSQL have ended, and removes the folder.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // A child that was not waited for has its id still.
            kill_process(pid, Signal::TERM).context("the server cannot be stopped")?;
        }
        let last_words = async { while let Ok(Some(_)) = self.log.next_line().await {} };
        let (status, ()) = tokio::join!(self.child.wait(), last_words);
        status.context("the server did not stop")?;
        let folder = self.folder.path().to_owned();
        self.folder
            .close()
            .with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// A commit into memory costs nothing, and says nothing of a disk.
fn warn_of_memory(folder: &Path) {
    const TMPFS: u64 = 0x0102_1994; // statfs(2)
    let is_memory = rustix::fs::statfs(folder).is_ok_and(|found| found.f_type as u64 == TMPFS);
    if is_memory {
        terminal::tell(format_args!(
            "warning: {} is in memory, where a durable write costs nothing: name a folder on a disk with TMPDIR",
            folder.display()
        ));
    }
}
