//! What a server that was killed leaves behind: a postmaster that still runs, or its files.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::PostgresError;

/// How long a left-over postmaster may take to shut down in good order, and then without.
const FAST_SECONDS: u64 = 60;
const IMMEDIATE_SECONDS: u64 = 10;

/// Between two looks at a process.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What `postmaster.pid` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PidFile {
    pub pid: Pid,
    /// Whether the postmaster accepts connections.
    pub ready: bool,
}

impl PidFile {
    /// Reads the cluster's file; `None` when there is none or it is not written yet.
    pub fn read(cluster_dir: &Path) -> Option<PidFile> {
        PidFile::parse(&fs::read_to_string(cluster_dir.join("postmaster.pid")).ok()?)
    }

    /// The first line is the process id (negative in single-user mode), the eighth the state.
    fn parse(text: &str) -> Option<PidFile> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse::<i32>().ok()?.checked_abs()?;
        let ready = lines.nth(6).is_some_and(|line| line.trim() == "ready");
        Some(PidFile {
            pid: Pid::from_raw(pid)?,
            ready,
        })
    }
}

/// Ends a postmaster of this cluster that outlived its server. The caller holds the data folder's
/// lock, so no living server needs it.
///
/// It is stopped rather than used: what its dead server left half done is rolled back and unlocked,
/// and it may have been started with other settings.
///
/// Returns the id of a process that `postmaster.pid` names and that is something else, as happens
/// when ids are used again after a restart of the machine or container.
pub(super) async fn stop(cluster_dir: &Path) -> Result<Option<Pid>, PostgresError> {
    let Some(PidFile { pid, .. }) = PidFile::read(cluster_dir) else {
        return Ok(None);
    };
    if !is_postmaster(pid, cluster_dir) {
        return Ok(Some(pid));
    }
    tracing::warn!(
        pid = pid.as_raw_pid(),
        "stopping a PostgreSQL that outlived its server"
    );
    for (signal, seconds) in [
        (Signal::INT, FAST_SECONDS),
        (Signal::QUIT, IMMEDIATE_SECONDS),
    ] {
        // An error means that it has just ended, or is another user's; the wait below tells.
        let _ = kill_process(pid, signal);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline {
            if !is_postmaster(pid, cluster_dir) {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Err(PostgresError::TimedOut {
        step: "stopping the PostgreSQL that outlived its server",
        seconds: FAST_SECONDS + IMMEDIATE_SECONDS,
        log_tail: format!("its process id is {}", pid.as_raw_pid()),
    })
}

/// Whether a process is a postmaster that was started for this cluster. Its id alone is no proof,
/// so its command line must name the cluster's folder.
pub(super) fn is_postmaster(pid: Pid, cluster_dir: &Path) -> bool {
    let wanted = cluster_dir.as_os_str().as_bytes();
    let proc = Path::new("/proc");
    if proc.join("self").exists() {
        // A process that ended and was not collected has an empty command line.
        let file = proc.join(pid.as_raw_pid().to_string()).join("cmdline");
        return fs::read(file)
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == wanted));
    }
    let ps = Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &pid.as_raw_pid().to_string()])
        .output();
    ps.is_ok_and(|said| said.stdout.windows(wanted.len()).any(|part| part == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_state_of_a_postmaster() {
        let text =
            "4711\n/data/postgres\n1764462000\n5432\n/run/onrecord-1\n\n  123456  7\nready   \n";
        let pid = Pid::from_raw(4711).unwrap();
        assert_eq!(PidFile::parse(text), Some(PidFile { pid, ready: true }));
        assert_eq!(
            PidFile::parse(&text.replace("ready", "starting")),
            Some(PidFile { pid, ready: false })
        );
        assert_eq!(
            PidFile::parse("4711\n/data/postgres\n"),
            Some(PidFile { pid, ready: false })
        );
        assert_eq!(
            PidFile::parse("-4711\n/data\n"),
            Some(PidFile { pid, ready: false })
        );
        for torn in ["", "\n", "0\n", "x\n", "-2147483648\n"] {
            assert_eq!(PidFile::parse(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn another_program_with_that_process_id_is_no_postmaster() {
        let this = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert!(!is_postmaster(this, Path::new("/data/postgres")));
    }
}
