//! A real PostgreSQL for tests: `let database = harness::database().await;` gives a new, empty
//! database of its own to each test.
//!
//! Each test process runs a cluster of its own, so that neither `cargo test` (many tests in a
//! process) nor `cargo nextest` (a process for each test) has anything to agree on. `initdb` runs
//! once per machine and version: its result is kept as a template in memory (or, where there is too
//! little, in the folder for temporary files), and copied. A database is about 300 files, so where
//! they lie decides how long one takes.
//!
//! A process cannot be relied upon to clean up at its end, so a small shell outlives it: it reads
//! from a pipe whose other end the test process holds, and at the end of that, however it came
//! about, stops PostgreSQL and removes the folder.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::ErrorKind,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use onrecord::postgres::{Cluster, Durability, Installation};
use onrecord::start::{Config, RootSource};
use sqlx::{Connection, PgConnection};
use tokio::sync::{mpsc, oneshot};

/// A database for one test. It is dropped with this value, also under open connections.
pub struct TestDatabase {
    /// The superuser's address of the database, as sqlx and `--database-url` read it.
    pub url: String,
    /// The database's name.
    pub name: String,
}

/// Creates an empty database in this process's cluster, which the first call starts.
pub async fn database() -> TestDatabase {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let (done, created) = oneshot::channel();
    keeper()
        .orders
        .send(Order::Create(name.clone(), done))
        .expect("the cluster's thread runs");
    TestDatabase {
        url: created.await.expect("the database is created"),
        name,
    }
}

impl TestDatabase {
    /// Another database with all that is in this one, which nobody uses meanwhile.
    pub async fn copy(&self) -> TestDatabase {
        let copy = database().await;
        // Names are the harness's own; what a server left open of a connection is no use of it.
        let orders = [
            format!("drop database {}", copy.name),
            format!(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'",
                self.name
            ),
            format!("create database {} template {}", copy.name, self.name),
        ];
        let admin = self.url.replace(&format!("/{}", self.name), "/postgres");
        let mut admin = PgConnection::connect(&admin).await.expect("a connection");
        for order in orders {
            sqlx::raw_sql(sqlx::AssertSqlSafe(order))
                .execute(&mut admin)
                .await
                .expect("the order is carried out");
        }
        copy
    }

    /// The settings of a server over it, with its keys in a folder.
    pub fn config(&self, data_dir: &Path) -> Config {
        Config {
            data_dir: data_dir.to_owned(),
            database_url: Some(self.url.clone()),
            key_database_url: None,
            postgres_bin: None,
            keys: None,
            root_key: RootSource::File(None),
            public_host: "records.example".to_owned(),
            connections: 6,
            durability: Durability::Disposable,
            new_token: false,
            redaction: true,
            literals: None,
            anchors: Default::default(),
        }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = keeper().orders.send(Order::Drop(self.name.clone()));
    }
}

/// What the tests ask of the thread that has the cluster.
enum Order {
    Create(String, oneshot::Sender<String>),
    Drop(String),
}

struct Keeper {
    orders: mpsc::UnboundedSender<Order>,
}

/// The thread that has the cluster. It has a runtime of its own, since those of tests end.
fn keeper() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let (orders, received) = mpsc::unbounded_channel();
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(keep(received));
        });
        Keeper { orders }
    })
}

async fn keep(mut orders: mpsc::UnboundedReceiver<Order>) {
    let home = Home::open();
    let template = home.template().await;
    home.remove_left_overs();
    let data_dir = home.copy(&template);
    let cluster = Cluster::start(&data_dir, Durability::Disposable, None)
        .await
        .expect("a cluster");
    let _watch = watch(&cluster, &data_dir);
    let mut admin = PgConnection::connect(cluster.url())
        .await
        .expect("a connection");
    while let Some(order) = orders.recv().await {
        // Names are made above, of a word and a number.
        let (query, answer) = match order {
            Order::Create(name, done) => (
                format!("create database {name}"),
                Some((done, cluster.database_url(&name))),
            ),
            Order::Drop(name) => (format!("drop database {name} with (force)"), None),
        };
        sqlx::raw_sql(sqlx::AssertSqlSafe(query))
            .execute(&mut admin)
            .await
            .expect("the order is carried out");
        if let Some((done, url)) = answer {
            let _ = done.send(url);
        }
    }
}

/// Where files are made fastest: in memory if there is plenty (containers often have 64 MiB).
pub fn fast_folder() -> PathBuf {
    const PLENTY: u64 = 2 * 1024 * 1024 * 1024;
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(found) if found.f_bavail.saturating_mul(found.f_frsize) >= PLENTY => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Starts the shell that cleans up after this process, when the pipe that this returns is closed.
fn watch(cluster: &Cluster, data_dir: &Path) -> ChildStdin {
    // An immediate stop, for nothing in it is needed again. The pid file is the last to go.
    const SCRIPT: &str = r#"
        read -r _
        kill -QUIT "$1"
        tries=0
        while [ -e "$2/postgres/postmaster.pid" ] && [ "$tries" -lt 100 ]; do
            sleep 0.05
            tries=$((tries + 1))
        done
        rm -rf "$2"
        rmdir "$3"
    "#;
    let socket_folder = cluster
        .url()
        .split("host=")
        .nth(1)
        .and_then(|rest| rest.split('&').next());
    Command::new("sh")
        .args(["-c", SCRIPT, "watch", &cluster.pid().to_string()])
        .arg(data_dir)
        .arg(socket_folder.expect("the address names the socket's folder"))
        .current_dir("/")
        .process_group(0) // Ctrl-C must not end it before its work.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
        .stdin
        .take()
        .expect("its pipe")
}

/// The folder for all test clusters of this user. Not below `target`: when root runs the tests,
/// PostgreSQL's user may not enter root's folders.
struct Home(PathBuf);

impl Home {
    fn open() -> Home {
        let uid = rustix::process::geteuid().as_raw();
        let home = fast_folder().join(format!("onrecord-tests-{uid}"));
        match DirBuilder::new().mode(0o711).create(&home) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                panic!("{}: {error}", home.display())
            }
            _ => {}
        }
        let found = fs::symlink_metadata(&home).expect("the folder is there");
        let ours = found.is_dir() && found.uid() == uid;
        assert!(
            ours,
            "{} is another user's, or no folder: remove it",
            home.display()
        );
        fs::set_permissions(&home, fs::Permissions::from_mode(0o711)).expect("the folder is ours");
        Home(home)
    }

    /// A data folder whose cluster was created, started once and stopped, for copying.
    async fn template(&self) -> PathBuf {
        let major = Installation::find(None)
            .expect("an installed PostgreSQL")
            .major();
        let template = self.0.join(format!("template-{major}"));
        let finished = template.join("finished");
        if finished.exists() {
            return template;
        }
        // The first process makes it, while the others wait for the lock.
        let lock = File::create(self.0.join("lock")).expect("a lock file");
        lock.lock().expect("the lock");
        if !finished.exists() {
            let cluster = Cluster::start(&template, Durability::Disposable, None).await;
            cluster
                .expect("a cluster")
                .stop()
                .await
                .expect("the cluster stops");
            File::create(&finished).expect("a mark");
        }
        template
    }

    /// A new data folder with a copy of the template's cluster.
    fn copy(&self, template: &Path) -> PathBuf {
        let data_dir = tempfile::Builder::new()
            .prefix("run-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir_in(&self.0)
            .expect("a folder")
            .keep(); // The shell removes it.
        let copied = Command::new("cp")
            .arg("-a")
            .arg(template.join("postgres"))
            .arg(&data_dir)
            .status();
        assert!(copied.expect("cp").success(), "the template is copied");
        data_dir
    }

    /// Removes the folders of processes that ended together with their shell. A PostgreSQL that
    /// still runs in one notices within a minute, and ends.
    fn remove_left_overs(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let lock = entry.path().join("postgres.lock");
            let Ok(found) = fs::metadata(&lock) else {
                continue;
            };
            let old = found.modified().ok().and_then(|at| at.elapsed().ok());
            let is_run = entry.file_name().as_encoded_bytes().starts_with(b"run-");
            let unused = || {
                OpenOptions::new()
                    .write(true)
                    .open(&lock)
                    .is_ok_and(|file| file.try_lock().is_ok())
            };
            if is_run && old.is_some_and(|age| age > Duration::from_secs(600)) && unused() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}
