//! Starting and stopping the cluster.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::Write,
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Installation, PostgresError,
    account::Account,
    create,
    environment::Environment,
    left_over::{self, LOOK_EVERY, PidFile},
    log::Log,
    runtime_dir::{PORT, RuntimeDir},
};

/// How long PostgreSQL may take until it accepts connections. Long, because it may have to repeat
/// up to two GiB of its journal after a crash, and giving up would only make it begin again.
const START_SECONDS: u64 = 300;
/// How long processes of a killed postmaster may hold the cluster before it counts as stuck.
const ORPHANS_SECONDS: u64 = 30;
/// How long PostgreSQL may take to stop in good order, and then in a hurry.
const STOP_SECONDS: u64 = 60;
const HURRY_SECONDS: u64 = 10;
/// How long a forgotten [`Cluster`] may block its thread when it is dropped.
const DROP_SECONDS: u64 = 5;

/// Settings that hold whatever the cluster's `postgresql.conf` says.
///
/// The log has no statements, parameters or row contents: those are evidence, and evidence that
/// was copied into a log could not be erased.
///
/// No compiled queries: they gain nothing on short ones, and need memory that is writable and
/// executable, which a hardened service is denied.
const SETTINGS: [&str; 10] = [
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "cluster_name=onrecord",
    "logging_collector=off",
    "log_destination=stderr",
    "log_statement=none",
    "log_min_error_statement=panic",
    "log_error_verbosity=terse",
    "log_timezone=UTC",
    "jit=off",
];
const DURABLE: [&str; 3] = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];
const DISPOSABLE: [&str; 4] = [
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=200",
];

/// Whether what was committed must survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It must: for records.
    Durable,
    /// It need not: for tests, which are faster so.
    Disposable,
}

/// A running private PostgreSQL, whose superuser is `postgres`.
///
/// End it with [`Cluster::stop`]. Dropping it also ends it, but blocks the thread for some seconds
/// at most and hides errors. When this process is killed PostgreSQL goes on running, and the next
/// [`Cluster::start`] ends it first.
#[derive(Debug)]
pub struct Cluster {
    child: Child,
    exit: Option<ExitStatus>,
    url: String,
    runtime_dir: RuntimeDir,
    log: Log,
    log_mark: u64,
    trimmer: Option<tokio::task::JoinHandle<()>>,
    // The last field: the lock is given back after everything else has ended.
    _lock: File,
}

impl Cluster {
    /// Starts the cluster in `data_dir/postgres`, creating both where they are missing, and returns
    /// when it accepts connections.
    ///
    /// A PostgreSQL that a killed server left running is stopped first, and one that was killed
    /// itself recovers. `bin_dir` is as in [`Installation::find`]; an existing cluster needs the
    /// major version that created it.
    ///
    /// Started by root, PostgreSQL runs as the cluster's owner, or for a new one as `postgres` or
    /// else `nobody`; that user must be able to enter `data_dir`.
    ///
    /// Must be called in a tokio runtime. The cluster may outlive it.
    ///
    /// # Errors
    /// Any of [`PostgresError`].
    pub async fn start(
        data_dir: &Path,
        durability: Durability,
        bin_dir: Option<&Path>,
    ) -> Result<Cluster, PostgresError> {
        let environment = Environment::read();
        create_data_dir(data_dir)?;
        let data_dir = data_dir
            .canonicalize()
            .map_err(PostgresError::io("find", data_dir))?;
        let lock = lock(&data_dir)?;

        let cluster_dir = data_dir.join("postgres");
        let account = Account::choose(&cluster_dir)?;
        let installation = match create::cluster_major(&cluster_dir)? {
            Some(major) => {
                Installation::find_for_cluster(bin_dir, &environment, &cluster_dir, major)?
            }
            None => Installation::find(bin_dir)?,
        };
        account.open_way_to(&data_dir, &environment)?;
        if !cluster_dir.exists() {
            create::create(
                &cluster_dir,
                &installation,
                &account,
                &environment,
                durability,
            )
            .await?;
        }
        let bystander = left_over::stop(&cluster_dir).await?;
        let runtime_dir = RuntimeDir::prepare(&cluster_dir, &account, &environment)?;

        let mut postgres = account.command(&installation.program("postgres"), &environment);
        arguments(&mut postgres, &cluster_dir, runtime_dir.path(), durability);
        if let Some(bystander) = bystander {
            // PostgreSQL takes any living process that its old file names for a postmaster, except
            // this one. It still checks that nobody uses the cluster's shared memory.
            postgres.env("PG_GRANDPARENT_PID", bystander.as_raw_pid().to_string());
        }
        Cluster::launch(
            postgres,
            &cluster_dir,
            runtime_dir,
            Log::new(&data_dir),
            lock,
        )
        .await
    }

    /// Runs PostgreSQL and waits until it is ready.
    async fn launch(
        mut postgres: Command,
        cluster_dir: &Path,
        runtime_dir: RuntimeDir,
        log: Log,
        lock: File,
    ) -> Result<Cluster, PostgresError> {
        log.trim();
        let log_mark = log.len();
        let child = spawn(&mut postgres, &log)?;
        let mut cluster = Cluster {
            child,
            exit: None,
            url: String::new(),
            runtime_dir,
            log: log.clone(),
            log_mark,
            trimmer: None,
            _lock: lock,
        };
        cluster.url = cluster.database_url("postgres");
        let orphans_until = Instant::now() + Duration::from_secs(ORPHANS_SECONDS);
        while let Err(error) = cluster.ready(cluster_dir).await {
            // The children of a killed postmaster notice its death within moments, and until then
            // a new one must not (and does not) touch the cluster.
            let orphans = matches!(&error, PostgresError::Exited { log_tail, .. }
                if log_tail.contains("pre-existing shared memory block"));
            if !orphans || Instant::now() > orphans_until {
                return Err(error);
            }
            tokio::time::sleep(10 * LOOK_EVERY).await;
            cluster.log_mark = log.len();
            cluster.child = spawn(&mut postgres, &log)?;
            cluster.exit = None;
        }
        cluster.trimmer = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(60)).await;
                log.trim();
            }
        }));
        Ok(cluster)
    }

    /// Waits until PostgreSQL accepts connections.
    async fn ready(&mut self, cluster_dir: &Path) -> Result<(), PostgresError> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        loop {
            if let Some(status) = self.try_wait()? {
                return Err(PostgresError::Exited {
                    status,
                    log_tail: self.log.tail(self.log_mark),
                });
            }
            let own = self.process();
            if PidFile::read(cluster_dir).is_some_and(|file| file.ready && Some(file.pid) == own) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.timed_out("starting PostgreSQL", START_SECONDS));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The superuser's address of the maintenance database `postgres`, as sqlx reads it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The superuser's address of a database in this cluster.
    pub fn database_url(&self, name: &str) -> String {
        let folder = self.runtime_dir.path().display();
        format!(
            "postgres:///{}?host={folder}&port={PORT}&user=postgres",
            percent_encoded(name)
        )
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Completes when PostgreSQL has ended without having been asked to, with the reason.
    pub async fn exited(&mut self) -> PostgresError {
        loop {
            match self.try_wait() {
                Ok(Some(status)) => {
                    return PostgresError::Exited {
                        status,
                        log_tail: self.log.tail(self.log_mark),
                    };
                }
                Ok(None) => tokio::time::sleep(Duration::from_millis(500)).await,
                Err(error) => return error,
            }
        }
    }

    /// Stops the cluster: open transactions are rolled back, everything is written out. Returns
    /// when it has ended.
    ///
    /// # Errors
    /// [`PostgresError::TimedOut`] when it does not end; [`PostgresError::Io`].
    pub async fn stop(mut self) -> Result<(), PostgresError> {
        for (signal, seconds) in [(Signal::INT, STOP_SECONDS), (Signal::QUIT, HURRY_SECONDS)] {
            self.signal(signal);
            let deadline = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < deadline {
                if self.try_wait()?.is_some() {
                    return Ok(()); // `drop` removes the socket's folder.
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Err(self.timed_out("stopping PostgreSQL", STOP_SECONDS + HURRY_SECONDS))
    }

    /// How PostgreSQL ended, if it has.
    fn try_wait(&mut self) -> Result<Option<ExitStatus>, PostgresError> {
        if self.exit.is_none() {
            self.exit = self
                .child
                .try_wait()
                .map_err(PostgresError::io("wait for", Path::new("postgres")))?;
        }
        Ok(self.exit)
    }

    /// The process to signal; `None` once it has ended, when its id may be another's.
    fn process(&self) -> Option<Pid> {
        let pid = i32::try_from(self.child.id()).ok()?;
        Pid::from_raw(pid).filter(|_| self.exit.is_none())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.process() {
            // It cannot fail: the process is a child that has not been collected.
            let _ = kill_process(pid, signal);
        }
    }

    fn timed_out(&self, step: &'static str, seconds: u64) -> PostgresError {
        PostgresError::TimedOut {
            step,
            seconds,
            log_tail: self.log.tail(self.log_mark),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(trimmer) = self.trimmer.take() {
            trimmer.abort();
        }
        let deadline = Instant::now() + Duration::from_secs(DROP_SECONDS);
        let mut asked = false;
        while let Ok(None) = self.try_wait() {
            if !asked {
                self.signal(Signal::INT);
                asked = true;
            }
            if Instant::now() > deadline {
                // Left to finish its shutdown; the next start waits for it.
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.runtime_dir.remove();
    }
}

/// Creates the data folder, closed to others; the folders above it as the user's mask has them.
fn create_data_dir(data_dir: &Path) -> Result<(), PostgresError> {
    if let Some(parent) = data_dir.parent() {
        fs::create_dir_all(parent).map_err(PostgresError::io("create", parent))?;
    }
    DirBuilder::new()
        .recursive(true) // It may be there already.
        .mode(0o700)
        .create(data_dir)
        .map_err(PostgresError::io("create", data_dir))
}

/// Takes the lock that keeps two servers off one data folder. It ends with the process, however
/// that ends.
fn lock(data_dir: &Path) -> Result<File, PostgresError> {
    let path: PathBuf = data_dir.join("postgres.lock");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false) // It may hold the id of the process that has the lock.
        .mode(0o600)
        .open(&path)
        .map_err(PostgresError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let holder = if holder.trim().is_empty() {
                "unknown"
            } else {
                holder.trim()
            };
            return Err(PostgresError::InUse {
                data_dir: data_dir.to_owned(),
                holder: holder.to_owned(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(PostgresError::io("lock", &path)(error)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(PostgresError::io("write", &path))?;
    Ok(file)
}

fn arguments(
    postgres: &mut Command,
    cluster_dir: &Path,
    runtime_dir: &Path,
    durability: Durability,
) {
    postgres
        .arg("-D")
        .arg(cluster_dir)
        .arg("-k")
        .arg(runtime_dir)
        .args(["-p", &PORT.to_string()]);
    let durability: &[&str] = match durability {
        Durability::Durable => &DURABLE,
        Durability::Disposable => &DISPOSABLE,
    };
    for setting in SETTINGS.iter().chain(durability) {
        postgres.args(["-c", setting]);
    }
}

/// Starts the postmaster in a process group of its own: Ctrl-C in a terminal goes to the whole
/// group, and would otherwise end PostgreSQL before the server has finished with it.
fn spawn(postgres: &mut Command, log: &Log) -> Result<Child, PostgresError> {
    let output = log.open()?;
    let errors = output
        .try_clone()
        .map_err(PostgresError::io("open", Path::new("postgres.log")))?;
    let program = PathBuf::from(postgres.get_program());
    postgres
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(PostgresError::io("run", &program))
}

/// A database's name as a segment of an address (RFC 3986, section 2.1).
fn percent_encoded(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
