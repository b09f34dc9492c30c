//! Where the agent works: a folder of its own with a git repository, and the programs that run in it.

use crate::cli::temporary;
use anyhow::{Context as _, bail, ensure};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

/// The program that is to be repaired, and its test.
pub(super) const PROGRAM: &str = "days.sh";
pub(super) const TEST: &str = "test.sh";
const FILES: [(&str, &str); 2] = [
    (PROGRAM, include_str!("work/days.sh")),
    (TEST, include_str!("work/test.sh")),
];

/// Variables that would lead git to another repository, index or configuration.
const FOREIGN: [&str; 12] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_TEMPLATE_DIR",
];

/// What a program answered.
pub(super) struct Answer {
    /// Its exit code; a signal counts as 1.
    pub exit: i32,
    /// Standard output, then standard error.
    pub output: String,
}

/// What git says of the repository.
pub(super) struct State {
    /// The commit, 40 hex digits.
    pub commit: String,
    /// The branch.
    pub branch: String,
    /// Changed files.
    pub dirty: usize,
    /// Files that git does not know.
    pub untracked: usize,
}

/// A folder for everything that the demo makes.
pub(super) struct Workspace {
    folder: PathBuf,
    data_dir: PathBuf,
    /// Removes the folder when it goes; `None` where the folder is to stay.
    temporary: Option<TempDir>,
    git_version: String,
}

impl Workspace {
    /// Makes the folder: a temporary one, or one that stays in the data folder.
    ///
    /// # Errors
    /// git is not there, or the folder cannot be made.
    pub async fn create(data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let git_version = git_version().await?;
        let (folder, data_dir, temporary) = match data_dir {
            Some(data_dir) => {
                // Closed, as the server would make it.
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(data_dir)
                    .with_context(|| format!("cannot make {}", data_dir.display()))?;
                let data_dir = fs::canonicalize(data_dir)?;
                let made = tempfile::Builder::new()
                    .prefix("demo-")
                    .tempdir_in(&data_dir)
                    .with_context(|| format!("cannot make a folder in {}", data_dir.display()))?;
                (made.keep(), data_dir, None)
            }
            None => {
                let made = temporary::folder("onrecord-demo-")?;
                let folder = made.path().to_owned();
                let data_dir = folder.join("data");
                (folder, data_dir, Some(made))
            }
        };
        Ok(Self {
            folder,
            data_dir,
            temporary,
            git_version,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's data folder: the one that stays, or one in the temporary folder.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A name that no other demo has.
    pub fn name(&self) -> &str {
        self.folder
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or("demo")
    }

    /// Whether the folder goes with the demo.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Such as `git version 2.47.3`.
    pub fn git_version(&self) -> &str {
        &self.git_version
    }

    /// The agent's repository.
    pub fn repository(&self) -> PathBuf {
        self.folder.join("repository")
    }

    /// Removes the folder, if it is temporary.
    pub fn remove(self) -> anyhow::Result<()> {
        let folder = self.folder;
        self.temporary
            .map_or(Ok(()), TempDir::close)
            .with_context(|| format!("cannot remove {}", folder.display()))
    }

    /// Puts the program and its test under git.
    pub async fn prepare(&self) -> anyhow::Result<()> {
        let repository = self.repository();
        fs::create_dir(&repository)?;
        for (name, text) in FILES {
            fs::write(repository.join(name), text)?;
        }
        self.git(&["init", "--quiet"]).await?;
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--message", "Days of a year"])
            .await?;
        Ok(())
    }

    /// What git says of the repository.
    pub async fn state(&self) -> anyhow::Result<State> {
        let status = self.git(&["status", "--porcelain"]).await?;
        let untracked = status.lines().filter(|line| line.starts_with("??")).count();
        Ok(State {
            commit: self.git(&["rev-parse", "HEAD"]).await?,
            branch: self.git(&["symbolic-ref", "--short", "HEAD"]).await?,
            dirty: status.lines().count() - untracked,
            untracked,
        })
    }

    /// The digest of all files as they are now: what a gate judges and an outcome selects.
    pub async fn tree(&self) -> anyhow::Result<String> {
        self.git(&["add", "--all"]).await?;
        self.git(&["write-tree"]).await
    }

    /// Puts the files of a tree into a new folder of their own.
    pub async fn checkout(&self, tree: &str, into: &Path) -> anyhow::Result<()> {
        fs::create_dir(into)?;
        let index = into.with_extension("index");
        for arguments in [
            &["read-tree", tree][..],
            &[
                "checkout-index",
                "--all",
                &format!("--prefix={}/", into.display()),
            ],
        ] {
            let mut command = self.git_command(arguments);
            command.env("GIT_INDEX_FILE", &index);
            succeed(&mut command, "git").await?;
        }
        Ok(())
    }

    /// Applies a patch, as `git apply` does.
    pub async fn apply(&self, patch: &str) -> anyhow::Result<Answer> {
        let file = self.folder.join("patch");
        fs::write(&file, patch)?;
        let mut command = self.git_command(&["apply", "--verbose"]);
        command.arg(&file);
        answer(&mut command, "git").await
    }

    /// Commits what is there.
    pub async fn commit(&self, message: &str) -> anyhow::Result<Answer> {
        let mut command = self.git_command(&["commit", "--all", "--message", message]);
        answer(&mut command, "git").await
    }

    /// Runs git, which has to succeed; its standard output without the last line's end.
    async fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        succeed(&mut self.git_command(arguments), "git").await
    }

    /// Git in the repository, whatever the user's and the system's configuration are.
    fn git_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        for name in FOREIGN {
            command.env_remove(name);
        }
        command
            .current_dir(self.repository())
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            // Git before 2.32 knows of no other way, and a user without a home folder has none.
            .env("HOME", &self.folder)
            .env("XDG_CONFIG_HOME", &self.folder)
            .args(["-c", "user.name=onrecord demo"])
            .args(["-c", "user.email=demo@onrecord.invalid"])
            .args(["-c", "init.defaultBranch=main"])
            .args(arguments);
        command
    }
}

/// Runs the test in a folder.
pub(super) async fn run_test(folder: &Path) -> anyhow::Result<Answer> {
    answer(
        Command::new("sh")
            .arg(TEST)
            .current_dir(folder)
            .env("LC_ALL", "C"),
        "sh",
    )
    .await
}

async fn git_version() -> anyhow::Result<String> {
    let asked = Command::new("git")
        .arg("--version")
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .output()
        .await;
    match asked {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "git is not installed, and the demo's agent works in a git repository; install it, such as with `apt install git`"
        ),
        Err(error) => Err(error).context("git cannot be run"),
        Ok(output) => bail!(
            "git cannot be run: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

async fn answer(command: &mut Command, name: &str) -> anyhow::Result<Answer> {
    let output = command
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{name} cannot be run"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Answer {
        exit: output.status.code().unwrap_or(1),
        output: text,
    })
}

async fn succeed(command: &mut Command, name: &str) -> anyhow::Result<String> {
    let answer = answer(command, name).await?;
    let shown = command.as_std().get_args().last();
    ensure!(
        answer.exit == 0,
        "{name} ({}) failed: {}",
        shown.unwrap_or_default().display(),
        answer.output.trim()
    );
    Ok(answer.output.trim_end().to_owned())
}
