//! Looking at a data folder's cluster from outside, without touching it.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};

use super::{
    Installation, PostgresError,
    create::cluster_major,
    environment::Environment,
    left_over::{PidFile, is_postmaster},
};

/// A data folder's cluster, as it was found.
#[derive(Debug)]
pub struct Inspection {
    /// The programs that run it, or would make it.
    pub installation: Result<Installation, PostgresError>,
    /// What it does.
    pub state: ClusterState,
    /// Whether an `initdb` was cut off, or runs.
    pub unfinished: bool,
}

/// What a cluster does.
#[derive(Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// There is none.
    Absent,
    /// It was shut down.
    Stopped,
    /// It was killed: its pid file is there and its postmaster is not. The next start repairs it.
    Killed,
    /// It runs, and so does its server.
    Running {
        /// The superuser's address of a database of that name, as the server has it.
        url: String,
    },
    /// It runs, and its server does not. The next start stops it first.
    LeftOver {
        /// Its postmaster.
        pid: i32,
    },
}

/// Looks at the cluster of a data folder; `bin_dir` is as in [`Installation::find`], `database` the name of
/// the database in the address of a running one.
///
/// # Errors
/// [`PostgresError::NotACluster`], and [`PostgresError::Io`] where the folder is not there or closed.
pub fn inspect(
    data_dir: &Path,
    bin_dir: Option<&Path>,
    database: &str,
) -> Result<Inspection, PostgresError> {
    let data_dir = data_dir
        .canonicalize()
        .map_err(PostgresError::io("find", data_dir))?;
    let cluster_dir = data_dir.join("postgres");
    let environment = Environment::read();
    let major = cluster_major(&cluster_dir)?;
    let installation = match major {
        Some(major) => Installation::find_for_cluster(bin_dir, &environment, &cluster_dir, major),
        None => Installation::find(bin_dir),
    };
    let state = match (major, PidFile::read(&cluster_dir)) {
        (None, _) => ClusterState::Absent,
        (Some(_), None) => ClusterState::Stopped,
        (Some(_), Some(file)) if !is_postmaster(file.pid, &cluster_dir) => ClusterState::Killed,
        (Some(_), Some(file)) if !server_lives(&data_dir) => ClusterState::LeftOver {
            pid: file.pid.as_raw_pid(),
        },
        (Some(_), Some(_)) => ClusterState::Running {
            url: address(&cluster_dir, database)?,
        },
    };
    Ok(Inspection {
        installation,
        state,
        unfinished: data_dir.join("postgres.new").exists(),
    })
}

/// Whether the process that the lock's file names is there. The lock itself is not tried: whoever starts a
/// server at this moment would find it taken.
fn server_lives(data_dir: &Path) -> bool {
    let text = fs::read_to_string(data_dir.join("postgres.lock")).unwrap_or_default();
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    // Another user's process is one too.
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// The socket's folder and number are the fifth and fourth line of the pid file.
fn address(cluster_dir: &Path, database: &str) -> Result<String, PostgresError> {
    let path = cluster_dir.join("postmaster.pid");
    let text = fs::read_to_string(&path).map_err(PostgresError::io("read", &path))?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (port, folder) = (lines.get(3).unwrap_or(&""), lines.get(4).unwrap_or(&""));
    Ok(format!(
        "postgres:///{database}?host={folder}&port={port}&user=postgres"
    ))
}
