//! The embedded PostgreSQL through everything that happens to servers: restarts, kills at bad
//! moments, left-overs, deep folders, two servers on one folder.
#![cfg(test)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use onrecord::postgres::{Cluster, Durability, PostgresError};
use rustix::process::{Pid, Signal, geteuid, getpgid, kill_process, test_kill_process};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

async fn start(data_dir: &Path) -> Result<Cluster, PostgresError> {
    Cluster::start(data_dir, Durability::Durable, None).await
}

async fn connect(cluster: &Cluster) -> PgConnection {
    PgConnection::connect(cluster.url()).await.unwrap()
}

async fn text(connection: &mut PgConnection, query: &'static str) -> String {
    sqlx::query_scalar(query)
        .fetch_one(connection)
        .await
        .unwrap()
}

async fn write_a_row(cluster: &Cluster) {
    let mut connection = connect(cluster).await;
    sqlx::raw_sql("create table kept (word text); insert into kept values ('here')")
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn assert_the_row_is_there(cluster: &Cluster) {
    assert_eq!(
        text(&mut connect(cluster).await, "select word from kept").await,
        "here"
    );
}

fn kill(pid: u32) {
    kill_process(pid_of(pid), Signal::KILL).unwrap();
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// The folder of the cluster's socket, out of its address.
fn socket_folder(cluster: &Cluster) -> PathBuf {
    cluster
        .url()
        .split("host=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap()
        .into()
}

#[tokio::test]
async fn a_new_cluster_is_private_checked_and_survives_a_restart() {
    let dir = TempDir::new().unwrap();
    let cluster = start(dir.path()).await.unwrap();
    let mut connection = connect(&cluster).await;
    for (query, expected) in [
        ("select current_user::text", "postgres"),
        ("show server_encoding", "UTF8"),
        (
            "select datcollate::text from pg_database where datname = 'postgres'",
            "C",
        ),
        ("show data_checksums", "on"),
        ("show listen_addresses", ""),
        ("show fsync", "on"),
        ("show full_page_writes", "on"),
        (
            "select count(*)::text from pg_hba_file_rules where type <> 'local' or error is not null",
            "0",
        ),
    ] {
        let found: String = sqlx::query_scalar(query)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(found, expected, "{query}");
    }
    let folder = socket_folder(&cluster);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    write_a_row(&cluster).await;
    // A connection that stays open must not hold the stop up.
    cluster.stop().await.unwrap();
    assert!(!folder.exists(), "{} is left over", folder.display());
    assert!(!dir.path().join("postgres/postmaster.pid").exists());

    let cluster = start(dir.path()).await.unwrap();
    assert_the_row_is_there(&cluster).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_postmaster_that_was_killed_recovers() {
    let dir = TempDir::new().unwrap();
    let mut cluster = start(dir.path()).await.unwrap();
    write_a_row(&cluster).await;
    let mut open = connect(&cluster).await;
    sqlx::raw_sql("begin; insert into kept values ('never committed')")
        .execute(&mut open)
        .await
        .unwrap();
    kill(cluster.pid());
    let error = cluster.exited().await;
    assert!(matches!(error, PostgresError::Exited { .. }), "{error}");
    drop(cluster);

    let cluster = start(dir.path()).await.unwrap();
    assert_the_row_is_there(&cluster).await;
    assert_eq!(
        text(
            &mut connect(&cluster).await,
            "select count(*)::text from kept"
        )
        .await,
        "1"
    );
    cluster.stop().await.unwrap();
}

/// A server in a process of its own, for the tests that kill one: run by [`Server::start`] only.
#[tokio::test]
#[ignore = "a part of other tests"]
#[expect(
    clippy::disallowed_methods,
    reason = "how the tests tell this process its folder"
)]
async fn server_process() {
    let Some(dir) = std::env::var_os("POSTGRES_CLUSTER_TEST_DIR") else {
        return;
    };
    let cluster = start(Path::new(&dir)).await.unwrap();
    write_a_row(&cluster).await;
    eprintln!("postmaster {}", cluster.pid());
    std::future::pending::<()>().await;
}

struct Server {
    process: std::process::Child,
    postmaster: u32,
}

impl Server {
    fn start(data_dir: &Path) -> Server {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_process", "--ignored", "--nocapture"])
            .env("POSTGRES_CLUSTER_TEST_DIR", data_dir)
            .env("PGDATA", "/nowhere")
            .env("ONRECORD_TOKEN", "secret")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines
            .map_while(Result::ok)
            .find(|line| line.starts_with("postmaster "));
        let postmaster = line
            .expect("the server starts")
            .split_once(' ')
            .unwrap()
            .1
            .parse()
            .unwrap();
        Server {
            process,
            postmaster,
        }
    }

    fn kill(mut self) -> u32 {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.postmaster
    }
}

#[tokio::test]
async fn a_postgres_that_outlived_its_killed_server_is_replaced() {
    let dir = TempDir::new().unwrap();
    let postmaster = Server::start(dir.path()).kill();
    test_kill_process(pid_of(postmaster)).expect("the postmaster outlives its server");

    let cluster = start(dir.path()).await.unwrap();
    assert_ne!(cluster.pid(), postmaster);
    assert_the_row_is_there(&cluster).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn postgres_sees_nothing_of_the_servers_environment() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path());
    match fs::read(format!("/proc/{}/environ", server.postmaster)) {
        Ok(environment) => {
            let text = String::from_utf8_lossy(&environment).into_owned();
            assert!(
                !text.contains("PGDATA") && !text.contains("ONRECORD_TOKEN"),
                "{text}"
            );
        }
        Err(error) => eprintln!("skipped: a process's environment cannot be read here: {error}"),
    }
    server.kill();
    start(dir.path()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn server_and_postmaster_killed_together_recover() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path());
    kill(server.postmaster);
    server.kill();

    let cluster = start(dir.path()).await.unwrap();
    assert_the_row_is_there(&cluster).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn ctrl_c_in_the_terminal_does_not_reach_postgres() {
    // A terminal signals its foreground process group, which a server shares with the shell's job.
    let dir = TempDir::new().unwrap();
    let cluster = start(dir.path()).await.unwrap();
    let group = getpgid(Some(pid_of(cluster.pid()))).unwrap();
    assert_ne!(group, getpgid(None).unwrap());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_process_id_that_was_given_to_another_program_is_no_obstacle() {
    let dir = TempDir::new().unwrap();
    let mut cluster = start(dir.path()).await.unwrap();
    write_a_row(&cluster).await;
    kill(cluster.pid());
    cluster.exited().await;
    drop(cluster);
    // A program of the same user, which PostgreSQL by itself would take for a living postmaster.
    let pid_file = dir.path().join("postgres/postmaster.pid");
    let owner = fs::metadata(&pid_file).unwrap();
    let mut sleeper = Command::new("sleep");
    sleeper.arg("600");
    if geteuid().is_root() {
        sleeper.uid(owner.uid()).gid(owner.gid());
    }
    let mut sleeper = sleeper.spawn().unwrap();
    let old = fs::read_to_string(&pid_file).unwrap();
    let rest = old.split_once('\n').unwrap().1;
    fs::write(&pid_file, format!("{}\n{rest}", sleeper.id())).unwrap();

    let cluster = start(dir.path()).await;
    assert!(
        sleeper.try_wait().unwrap().is_none(),
        "the other program must not be harmed"
    );
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let cluster = cluster.unwrap();
    assert_the_row_is_there(&cluster).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn two_servers_on_one_folder_are_refused() {
    let dir = TempDir::new().unwrap();
    let cluster = start(dir.path()).await.unwrap();
    // Another spelling of the same folder is the same folder.
    let spelling = dir
        .path()
        .join(".")
        .join("..")
        .join(dir.path().file_name().unwrap());
    let error = start(&spelling).await.unwrap_err();
    let PostgresError::InUse { holder, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(holder, std::process::id().to_string());
    assert_eq!(
        text(
            &mut connect(&cluster).await,
            "select current_database()::text"
        )
        .await,
        "postgres"
    );
    cluster.stop().await.unwrap();
    start(dir.path()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_deep_and_unusual_folder_serves() {
    let dir = TempDir::new().unwrap();
    let deep = dir
        .path()
        .join("a folder, with 'signs' & spaces/".to_owned() + &"deep/".repeat(30));
    let cluster = start(&deep).await.unwrap();
    write_a_row(&cluster).await;
    cluster.stop().await.unwrap();
    let cluster = start(&deep).await.unwrap();
    assert_the_row_is_there(&cluster).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_initdb_that_was_cut_off_is_done_again() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("postgres.new/base")).unwrap();
    fs::write(dir.path().join("postgres.new/PG_VERSION"), "1").unwrap();
    let cluster = start(dir.path()).await.unwrap();
    connect(&cluster).await;
    cluster.stop().await.unwrap();
    assert!(!dir.path().join("postgres.new").exists());
}

#[tokio::test]
async fn a_folder_that_is_no_cluster_is_not_touched() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("postgres")).unwrap();
    fs::write(dir.path().join("postgres/thesis.txt"), "years of work").unwrap();
    let error = start(dir.path()).await.unwrap_err();
    if geteuid().is_root() {
        assert!(
            matches!(
                error,
                PostgresError::NotACluster { .. } | PostgresError::ForeignOwner { .. }
            ),
            "{error}"
        );
    } else {
        assert!(
            matches!(error, PostgresError::NotACluster { .. }),
            "{error}"
        );
    }
    assert_eq!(
        fs::read_to_string(dir.path().join("postgres/thesis.txt")).unwrap(),
        "years of work"
    );
}

#[tokio::test]
async fn a_cluster_of_a_version_that_is_not_installed_says_which() {
    let dir = TempDir::new().unwrap();
    start(dir.path()).await.unwrap().stop().await.unwrap();
    fs::write(dir.path().join("postgres/PG_VERSION"), "99\n").unwrap();
    let error = start(dir.path()).await.unwrap_err();
    assert!(
        matches!(error, PostgresError::VersionNotInstalled { wanted: 99, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_setting_that_postgres_refuses_shows_its_own_words() {
    let dir = TempDir::new().unwrap();
    start(dir.path()).await.unwrap().stop().await.unwrap();
    fs::write(
        dir.path().join("postgres/postgresql.conf"),
        "shared_buffers = 'a lot'\n",
    )
    .unwrap();
    let error = start(dir.path()).await.unwrap_err();
    assert!(matches!(error, PostgresError::Exited { .. }), "{error}");
    assert!(error.to_string().contains("shared_buffers"), "{error}");
}

#[tokio::test]
async fn a_dropped_cluster_ends() {
    let dir = TempDir::new().unwrap();
    let cluster = start(dir.path()).await.unwrap();
    let (pid, folder) = (pid_of(cluster.pid()), socket_folder(&cluster));
    drop(cluster);
    assert!(test_kill_process(pid).is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn root_drops_to_an_unprivileged_user() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root drops to another user");
        return;
    }
    let dir = TempDir::new().unwrap();
    let cluster = start(dir.path()).await.unwrap();
    let owner = fs::metadata(format!("/proc/{}", cluster.pid()))
        .unwrap()
        .uid();
    assert_ne!(owner, 0);
    assert_eq!(
        fs::metadata(dir.path().join("postgres")).unwrap().uid(),
        owner
    );
    assert_eq!(
        fs::metadata(dir.path()).unwrap().uid(),
        0,
        "only the cluster is given away"
    );
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn root_is_told_which_folder_shuts_the_user_out() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root drops to another user");
        return;
    }
    let closed = TempDir::new().unwrap();
    set_mode(closed.path(), 0o700); // As /root is.
    let error = start(&closed.path().join("data")).await.unwrap_err();
    let PostgresError::Unreachable { folder, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(folder, &closed.path().canonicalize().unwrap());
    assert!(error.to_string().contains("/var/lib/onrecord"), "{error}");
}

fn set_mode(folder: &Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
}
