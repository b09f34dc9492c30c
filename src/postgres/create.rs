//! Creating the cluster.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt,
    path::Path,
    time::Duration,
};

use super::{
    Durability, Installation, PostgresError, account::Account, environment::Environment,
    log::last_lines, tuning,
};

/// How long `initdb` may take. It takes a second or two, and longer on a busy or slow disk.
const INITDB_SECONDS: u64 = 180;

/// Who may connect: everybody who can open the socket, and nobody over a network.
const HBA: &str = "# Written by onrecord. The socket's folder is closed to everybody else.\nlocal all all trust\n";

/// The major version that created the cluster at `cluster_dir`, or `None` when there is none.
pub(super) fn cluster_major(cluster_dir: &Path) -> Result<Option<u32>, PostgresError> {
    match fs::read_to_string(cluster_dir.join("PG_VERSION")) {
        Ok(text) => text
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| not_a_cluster(cluster_dir)),
        Err(_) if fs::symlink_metadata(cluster_dir).is_ok() => Err(not_a_cluster(cluster_dir)),
        Err(_) => Ok(None),
    }
}

fn not_a_cluster(cluster_dir: &Path) -> PostgresError {
    PostgresError::NotACluster {
        cluster_dir: cluster_dir.to_owned(),
    }
}

/// Creates the cluster at `cluster_dir`, which is not there. The caller holds the lock.
///
/// A crash at any step leaves either nothing, or `postgres.new`, which the next start throws away,
/// or the whole cluster: the name is given last.
pub(super) async fn create(
    cluster_dir: &Path,
    installation: &Installation,
    account: &Account,
    environment: &Environment,
    durability: Durability,
) -> Result<(), PostgresError> {
    let unfinished = cluster_dir.with_extension("new");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(PostgresError::io("remove", &unfinished)(error));
        }
        _ => {}
    }
    // Made here and given to the user of PostgreSQL, who may not write in the data folder itself.
    DirBuilder::new()
        .mode(0o700)
        .create(&unfinished)
        .map_err(PostgresError::io("create", &unfinished))?;
    account.give(&unfinished)?;

    let mut initdb = account.command(&installation.program("initdb"), environment);
    initdb.arg("--pgdata").arg(&unfinished);
    initdb.args([
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
    ]);
    if durability == Durability::Disposable {
        initdb.arg("--no-sync");
    }
    run(initdb, installation).await?;

    fs::write(unfinished.join("pg_hba.conf"), HBA)
        .map_err(PostgresError::io("write", &unfinished))?;
    if durability == Durability::Durable {
        sync(&unfinished.join("pg_hba.conf"))?;
        let path = unfinished.join("postgresql.conf");
        append(&path, &tuning::settings()).map_err(PostgresError::io("write", &path))?;
    }
    fs::rename(&unfinished, cluster_dir).map_err(PostgresError::io("rename", &unfinished))?;
    if durability == Durability::Durable {
        sync(cluster_dir.parent().unwrap_or(cluster_dir))?;
    }
    Ok(())
}

async fn run(
    initdb: std::process::Command,
    installation: &Installation,
) -> Result<(), PostgresError> {
    let mut initdb = tokio::process::Command::from(initdb);
    // A start that is given up takes its `initdb` with it.
    let output = initdb.kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(INITDB_SECONDS), output)
        .await
        .map_err(|_| PostgresError::TimedOut {
            step: "initdb",
            seconds: INITDB_SECONDS,
            log_tail: "is the disk very slow?".to_owned(),
        })?
        .map_err(PostgresError::io("run", &installation.program("initdb")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(PostgresError::InitFailed {
        status: output.status,
        output: last_lines(&output.stderr),
    })
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn sync(path: &Path) -> Result<(), PostgresError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(PostgresError::io("sync", path))
}
