//! `onrecord serve` in a process of its own.

use crate::api::Api;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A data folder where PostgreSQL's user may go when root runs the tests, in memory where there is enough:
/// what is killed here are processes, and what they wrote outlives them there too. What is left of PostgreSQL
/// in it at the end of a test that failed is ended with it.
pub struct DataDir {
    folder: TempDir,
    mounted: bool,
}

impl DataDir {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("onrecord-faults-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(crate::harness::fast_folder());
        Self {
            folder: folder.expect("a folder"),
            mounted: false,
        }
    }

    /// A data folder on a disk of its own, of so many MiB; `None`, and said aloud, where nobody may mount one.
    pub fn on_small_disk(mib: u32) -> Option<Self> {
        let mut data_dir = Self::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={mib}m,mode=0755"))
            .arg("onrecord-tests")
            .arg(data_dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => {
                data_dir.mounted = true;
                return Some(data_dir);
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("skipped: no disk can be mounted here: {why}");
            }
            Err(error) => eprintln!("skipped: no disk can be mounted here: {error}"),
        }
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The embedded PostgreSQL, if one is there or was.
    pub fn postmaster(&self) -> Option<Pid> {
        let file = self.path().join("postgres/postmaster.pid");
        let text = fs::read_to_string(file).ok()?;
        Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if let Some(postmaster) = self.postmaster() {
            let _ = kill_process(postmaster, Signal::QUIT);
        }
        if self.mounted {
            // It goes when the last process has let go of it.
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

pub struct Process {
    child: Child,
    pub api: Api,
    log: Option<JoinHandle<String>>,
}

/// A test that fails leaves no server behind; ends without effect where the server has ended.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a server and returns when it says where it is.
    pub fn start(data_dir: &DataDir, arguments: &[&str]) -> Self {
        Self::start_at(data_dir, "127.0.0.1:0", arguments)
    }

    /// As [`Process::start`], at an address that is known before.
    pub fn start_at(data_dir: &DataDir, address: &str, arguments: &[&str]) -> Self {
        Self::start_logging(data_dir, address, arguments, "debug")
    }

    /// As [`Process::start_at`], with a log of this level, which is kept in memory.
    pub fn start_logging(
        data_dir: &DataDir,
        address: &str,
        arguments: &[&str],
        level: &str,
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onrecord"))
            .args(["serve", "--listen", address, "--data-dir"])
            .arg(data_dir.path())
            .args(arguments)
            .env_remove("DATABASE_URL")
            .env_remove("CREDENTIALS_DIRECTORY")
            .env("RUST_LOG", level)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("its errors"));
        let (found, address) = mpsc::channel();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once(" at http://")
                    && line.starts_with("onrecord ")
                {
                    let _ = found.send(format!("http://{url}"));
                }
                text.push_str(&line);
                text.push('\n');
            }
            text
        });
        let Ok(base) = address.recv() else {
            panic!(
                "the server does not start: {}",
                log.join().expect("its log")
            );
        };
        let token = fs::read_to_string(data_dir.path().join("admin.token"));
        let token = token.expect("the token's file");
        Self {
            child,
            api: Api::new(base, token.trim()),
            log: Some(log),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a pid")
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) -> String {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.log()
    }

    fn log(&mut self) -> String {
        let log = self.log.take().expect("asked for once");
        log.join().expect("its log")
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
    }

    /// Waits for its end; returns how it went, and its log.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ends");
        (status, self.log())
    }

    pub fn stop(self) -> String {
        self.terminate();
        let (status, log) = self.wait();
        assert!(status.success(), "{status}: {log}");
        log
    }
}
