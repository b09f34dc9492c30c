//! What can go wrong with the embedded PostgreSQL, each with what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use super::installation::OLDEST_MAJOR;

/// Why the embedded PostgreSQL could not be found, created, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// No usable PostgreSQL server is installed in any of the known places.
    #[error(
        "no PostgreSQL {OLDEST_MAJOR} or later is installed: install it (Debian, Ubuntu: apt install postgresql; \
         Red Hat, Fedora: dnf install postgresql-server; macOS: brew install postgresql@17) or give --database-url"
    )]
    NotInstalled,
    /// The folder that was named as PostgreSQL's has no usable server in it.
    #[error(
        "{bin_dir} has no PostgreSQL {OLDEST_MAJOR} or later: both initdb and postgres must be there"
    )]
    NotInBinDir {
        /// The folder that was named.
        bin_dir: PathBuf,
    },
    /// The cluster was created by a major version that is not installed (any more).
    #[error(
        "{cluster_dir} was created by PostgreSQL {wanted}, which is not installed: install PostgreSQL {wanted}, \
         or upgrade the cluster with pg_upgrade"
    )]
    VersionNotInstalled {
        /// The cluster's folder.
        cluster_dir: PathBuf,
        /// The major version that created it.
        wanted: u32,
    },
    /// Another server holds the lock of the data folder.
    #[error(
        "{data_dir} is in use by another server (process {holder}): stop it, or give another data folder"
    )]
    InUse {
        /// The data folder.
        data_dir: PathBuf,
        /// The process id in the lock file, or `unknown`.
        holder: String,
    },
    /// The process is root's and the machine has no unprivileged user for PostgreSQL.
    #[error(
        "PostgreSQL refuses to run as root, and /etc/passwd has neither a `postgres` nor a `nobody` user to run it as: \
         start onrecord as an ordinary user"
    )]
    NoAccount,
    /// The process is root's without the right to become another user, as in some containers.
    #[error(
        "PostgreSQL refuses to run as root, and this process may not become user {user} ({source}): start onrecord as an ordinary user"
    )]
    CannotDrop {
        /// The user that was to run PostgreSQL.
        user: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The user that runs PostgreSQL may not enter the data folder.
    #[error(
        "user {user} runs PostgreSQL for root and may not enter {folder}: \
         keep root's data where that user may go, such as /var/lib/onrecord"
    )]
    Unreachable {
        /// The user that root drops to.
        user: String,
        /// The first folder on the way that shuts the user out.
        folder: PathBuf,
    },
    /// The cluster's folder belongs to a user that this process cannot become.
    #[error(
        "{cluster_dir} belongs to user id {owner}, but PostgreSQL would run as user id {runs_as}: chown it, or start onrecord as its owner"
    )]
    ForeignOwner {
        /// The cluster's folder.
        cluster_dir: PathBuf,
        /// The user id that owns it.
        owner: u32,
        /// The user id that PostgreSQL would have.
        runs_as: u32,
    },
    /// The cluster's folder exists and is something else. It is never touched.
    #[error(
        "{cluster_dir} is there but is no PostgreSQL cluster: move it away, or give another data folder"
    )]
    NotACluster {
        /// The cluster's folder.
        cluster_dir: PathBuf,
    },
    /// The folder for the socket is not private to the user who runs PostgreSQL.
    #[error("{folder} cannot hold the database's socket: {problem}; remove it")]
    UnsafeRuntimeDir {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No place was found for the socket's folder.
    #[error("no folder for the database's socket could be made; tried: {tried}")]
    NoRuntimeDir {
        /// Each place with the reason it did not serve.
        tried: String,
    },
    /// `initdb` failed.
    #[error("initdb could not create the cluster ({status}): {output}")]
    InitFailed {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of what it said.
        output: String,
    },
    /// PostgreSQL ended while it was starting or while it was needed.
    #[error("PostgreSQL ended ({status}): {log_tail}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log_tail: String,
    },
    /// A step took too long.
    #[error("{step} took more than {seconds} s: {log_tail}")]
    TimedOut {
        /// The step.
        step: &'static str,
        /// The limit that passed, in seconds.
        seconds: u64,
        /// The last lines of the log, where there is one.
        log_tail: String,
    },
    /// The system refused something.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// With which file, folder or program.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl PostgresError {
    /// For `map_err`: adds what was tried to the system's answer.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PostgresError {
        let path = path.to_owned();
        move |source| PostgresError::Io {
            action,
            path,
            source,
        }
    }
}
