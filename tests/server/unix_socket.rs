//! A server at a Unix socket: as it is over TCP, for who is on the same machine.

use crate::command_line::{printed, sealed_run};
use crate::running::Server;
use onrecord::http::{self, Listener, UnixSocket};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Serves at a socket what a server serves, until it is told to stop.
async fn serve_at(
    path: &Path,
    server: &Server,
) -> (JoinHandle<std::io::Result<()>>, oneshot::Sender<()>) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = Listener::from(tcp).with_unix(UnixSocket::bind(path).unwrap());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(http::serve(listener, server.app.clone(), async {
        let _ = stopped.await;
    }));
    (task, stop)
}

async fn command(url: &str, token: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(args)
        .args(["--url", url, "--token", token])
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_the_load_tool_reach_a_server_at_its_socket() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onrecord.sock");
    let (task, stop) = serve_at(&path, &server).await;
    let token = server.api.token.clone().unwrap();
    // Both ways of writing the address, and what TCP says too.
    let by_tcp = printed(&server, &["show", &run, "--json"]).await;
    for url in [
        format!("unix:{}", path.display()),
        format!("unix://{}", path.display()),
    ] {
        let shown = command(&url, &token, &["show", &run, "--json"]).await;
        assert!(shown.status.success(), "{shown:?}");
        assert_eq!(String::from_utf8(shown.stdout).unwrap(), by_tcp);
    }
    let url = format!("unix:{}", path.display());
    let looked = command(&url, &token, &["doctor"]).await;
    let findings = String::from_utf8_lossy(&looked.stdout).into_owned();
    assert!(
        findings.contains("not needed: the server is on this machine"),
        "{findings}"
    );
    // Without a token nobody gets in: the socket's mode is no login.
    let refused = command(&url, "onr_000000000000_none", &["runs"]).await;
    assert!(!refused.status.success());
    let bench = ["bench", "--json", "--workload", "batch"];
    let bench = [&bench[..], &["--seconds", "0.2", "--rounds", "1"]].concat();
    let measured = command(&url, &token, &bench).await;
    assert!(measured.status.success(), "{measured:?}");
    let report: Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(report["server"]["url"], json!(url));
    assert!(report["workloads"][0]["acked"].as_u64().unwrap() > 0);

    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert!(!path.exists(), "the socket outlives its server");
    let gone = command(&url, &token, &["runs"]).await;
    let error = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(error.contains(&format!("no answer from {url}")), "{error}");
}

#[tokio::test]
async fn a_socket_is_for_its_owner_and_group_and_taken_over_only_from_the_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onrecord.sock");
    // A server that was killed leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = UnixSocket::bind(&path).unwrap();
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    // One that lives keeps it.
    let second = UnixSocket::bind(&path).err().unwrap();
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    UnixStream::connect(&path).await.unwrap();
    drop(socket);
    assert!(!path.exists());

    // What is no socket is not touched.
    std::fs::write(&path, "evidence").unwrap();
    assert!(UnixSocket::bind(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"evidence");
}
