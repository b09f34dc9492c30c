//! The program itself, as people and scripts run it against a server.

use crate::running::Server;
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

fn command(url: &str, token: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onrecord"));
    command
        .args(args)
        .env_clear()
        .env("ONRECORD_URL", url)
        .env("ONRECORD_TOKEN", token)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn with_server(server: &Server, args: &[&str]) -> Command {
    let token = server.api.token.as_deref().unwrap();
    command(&server.api.base, token, args)
}

/// What a command printed; it must succeed without a word on standard error.
pub async fn printed(server: &Server, args: &[&str]) -> String {
    let output = with_server(server, args).output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    assert_eq!(errors, "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub async fn output(server: &Server, args: &[&str]) -> Output {
    with_server(server, args).output().await.unwrap()
}

/// A sealed run with a turn, a call and a verdict.
pub async fn sealed_run(server: &Server) -> String {
    let api = &server.api;
    let run = api.open(&json!({"session": {"agent": "coder"}})).await.run;
    for frame in [
        json!({"kind": "turn", "body": {"label": "build"}}),
        json!({"kind": "tool_call", "body": {"name": "shell"}, "result": {"body": {"exit": 2}}}),
        json!({"kind": "outcome", "turn": null, "body": {"status": "failed"}}),
    ] {
        api.frame(&run, &frame).await.is(201);
    }
    let path = format!("/v1/runs/{run}/seal");
    api.post(&path, &json!({})).await.is(201);
    run.to_string()
}

/// Lines without their times, which are no two runs' same.
fn timeless(text: &str) -> Vec<String> {
    let time = |word: &str| word.len() >= 10 && word.starts_with(|one: char| one.is_ascii_digit());
    text.lines()
        .map(|line| {
            let words = line.split_whitespace();
            words
                .filter(|word| !time(word))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_show_print_what_scripts_and_people_read() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let other = server
        .api
        .open(&json!({"session": {"agent": "other"}}))
        .await;

    let table = printed(&server, &["runs"]).await;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(
        lines[1].starts_with(&format!("2   {}  open    unknown  1 ", other.run)),
        "{table}"
    );
    assert!(
        lines[2].starts_with(&format!("1   {run}  sealed  failed   7 ")),
        "{table}"
    );
    for filter in [
        &["--agent", "coder"][..],
        &["--status", "sealed"],
        &["--outcome", "failed"],
        &["--until", "2999-01-01", "--since", "1h", "--agent", "coder"],
    ] {
        let args = [&["runs", "--json"][..], filter].concat();
        let list = printed(&server, &args).await;
        let one: Value = serde_json::from_str(list.trim_end()).unwrap();
        assert_eq!(one["run"], run, "{filter:?}");
    }

    let expected = [
        "0 session coder",
        "",
        "turn 1 build",
        "1 turn",
        "2 tool_call shell",
        "3 └ tool_result exit 2",
        "4 outcome FAILED",
        "5 turn_end count=3",
        "6 session_end",
    ];
    for name in [run.as_str(), &run.to_lowercase()] {
        let lines = timeless(&printed(&server, &["show", name]).await);
        assert_eq!(lines[0], "run no. 1 coder");
        assert_eq!(
            lines[1],
            "sealed, outcome failed, 7 frames, 1 turn, 0 payloads"
        );
        assert_eq!(
            lines[6..],
            expected[..]
                .iter()
                .map(|line| (*line).to_owned())
                .collect::<Vec<_>>()[..],
            "{lines:#?}"
        );
    }
    let coloured = printed(&server, &["show", &run, "--color", "always"]).await;
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31mFAILED"), "{coloured}");
    let lines = timeless(
        &printed(
            &server,
            &["show", &run, "--kind", "outcome", "--kind", "turn"],
        )
        .await,
    );
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with(['1', '4']))
            .count(),
        2,
        "{lines:#?}"
    );

    let frames = server
        .api
        .get(&format!("/v1/runs/{run}/frames"))
        .await
        .text();
    let shown = printed(&server, &["show", &run, "--json"]).await;
    assert_eq!(shown.split_once('\n').unwrap().1, frames);
    let last = printed(&server, &["show", "--last", "--json"]).await;
    let last: Value = serde_json::from_str(last.lines().next().unwrap()).unwrap();
    assert_eq!(last["run"], other.run.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_printed_has_a_form_for_programs() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tar");
    let file = file.to_str().unwrap();
    let mut answers = Vec::new();
    for args in [
        &["seal", &run, "--json"][..],
        &["export", &run, "--purpose", "test", "-o", file, "--json"],
        &["trust", "--json"],
        &["token", "create", "t", "--role", "auditor", "--json"],
        &["tenant", "create", "second", "--json"],
        &["migrate", "--database-url", &server.database.url, "--json"],
    ] {
        let text = printed(&server, args).await;
        answers.push(
            serde_json::from_str::<Value>(&text)
                .unwrap_or_else(|error| panic!("{args:?}: {error}: {text}")),
        );
    }
    assert_eq!(answers[1]["bytes"], std::fs::metadata(file).unwrap().len());
    assert_eq!(answers[2]["lines"][0][0], "log");
    assert_eq!(answers[5], json!({"migrated": false}));
    // A whole token is as good as its id, and never gets into an address.
    let token = answers[3]["token"].as_str().unwrap();
    let revoked = printed(&server, &["token", "revoke", token, "--json"]).await;
    assert_eq!(
        revoked.trim_end(),
        json!({"revoked": answers[3]["id"]}).to_string()
    );
    let list = printed(&server, &["token", "list", "--json"]).await;
    assert_eq!(list.lines().count(), 2);
}

/// A way to a server that can be cut and led to another.
struct Way {
    url: String,
    to: Arc<Mutex<String>>,
    open: Arc<Mutex<JoinSet<()>>>,
}

impl Way {
    async fn new(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            to: Arc::new(Mutex::new(to.to_owned())),
            open: Arc::default(),
        };
        let (to, open) = (way.to.clone(), way.open.clone());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let to = to.lock().unwrap().clone();
                open.lock().unwrap().spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        way
    }

    fn lead(&self, to: &str) {
        to.clone_into(&mut self.to.lock().unwrap());
        *self.open.lock().unwrap() = JoinSet::new();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_follows_through_a_restart_until_the_seal() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let way = Way::new(server.api.address()).await;
    let token = server.api.token.clone().unwrap();
    let mut tail = command(&way.url, &token, &["tail", &run, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    let frame = async |server: &Server, seq: u64| {
        let path = format!("/v1/runs/{run}/frames/{seq}");
        server.api.get(&path).await.is(200).text()
    };
    assert_eq!(next().await, frame(&server, 0).await);
    server
        .api
        .frame(&run, &json!({"kind": "observation"}))
        .await
        .is(201);
    assert_eq!(next().await, frame(&server, 1).await);

    let server = server.restart().await;
    way.lead(server.api.address());
    server
        .api
        .frame(&run, &json!({"kind": "decision"}))
        .await
        .is(201);
    assert_eq!(next().await, frame(&server, 2).await);
    let path = format!("/v1/runs/{run}/seal");
    let seal = server.api.post(&path, &json!({})).await.is(201).text();
    assert_eq!(next().await, frame(&server, 3).await);
    assert_eq!(next().await, seal);
    let output = tail.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("following again from frame 2"), "{errors}");
    // Of a sealed run there is nothing to wait for.
    let text = printed(&server, &["tail", &run, "--from", "3"]).await;
    let lines = timeless(&text);
    assert_eq!(lines[lines.len() - 2], "3 session_end");
    assert!(lines.last().unwrap().starts_with("sealed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_surprise_is_said_although_nothing_failed() {
    let server = Server::start().await;
    let open = server.api.any_run().await.run.to_string();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let file = format!("{dir}/run.tar");
    for (args, words) in [
        (
            &["import", "auto", dir][..],
            "nothing to import: no files in the folders",
        ),
        (
            &["export", &open, "--purpose", "test", "-o", &file],
            "the run is open: the bundle ends where the run does now",
        ),
        (&["show", &open, "--turn", "9"], "no such frames"),
        (&["show", &open, "--kind", "memory"], "no such frames"),
    ] {
        let output = output(&server, args).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_quietly() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    for args in [
        &["show", &run][..],
        &["tail", &run],
        &["runs", "--json"],
        &["token", "list"],
        &["export", &run, "--purpose", "test", "-o", "-"],
        &["openapi"],
        &["completions", "bash"],
        &["man"],
        &["trust"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = with_server(&server, args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_what_to_do() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let second = server.api.any_run().await.run.to_string();
    let common: String = run
        .chars()
        .zip(second.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let nowhere = format!("{dir}/no/such/folder/run.tar");
    let (file, state) = (format!("{dir}/session.jsonl"), format!("{dir}/state"));
    std::fs::write(&file, "").unwrap();
    let candidate = "1".repeat(40);
    let tls = server.api.base.replace("http:", "https:");
    for (args, code, words) in [
        (
            &["show", "7ZZZZZ"][..],
            1,
            "no run begins with 7ZZZZZ; `onrecord runs` lists them",
        ),
        (&["show", &common], 1, "give more of the id"),
        (&["show", "not-a-run!"], 2, "`onrecord runs` lists them"),
        (&["show"], 2, "--last"),
        (&["seal", "01"], 2, "26 characters"),
        (
            &["show", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8"],
            1,
            "`onrecord runs` lists",
        ),
        (
            &["export", &run, "--purpose", "test", "-o", dir],
            1,
            "is a directory",
        ),
        (
            &["export", &run, "--purpose", "test", "-o", &nowhere],
            1,
            "run.tar: No such file or directory",
        ),
        (
            &["export", &run, "--purpose", "test", "-o", "-", "--json"],
            1,
            "give -o FILE",
        ),
        (&["runs", "--since", "yesterday"], 1, "such as 2h or 3d"),
        (&["token", "revoke", "a/b"], 1, "onrecord token list"),
        (
            &["token", "revoke", "aaaaaaaaaaaa"],
            1,
            "`onrecord token list` lists",
        ),
        (
            &["runs", "--token", "onr_x"],
            1,
            "give a token with --token or ONRECORD_TOKEN",
        ),
        (
            &["runs", "--url", "127.0.0.1:8470"],
            1,
            "give one such as http://127.0.0.1:8470",
        ),
        (
            &["runs", "--url", "http://127.0.0.1:1"],
            1,
            "is `onrecord serve` running there?",
        ),
        (&["runs", "--url", &tls], 1, "does not speak TLS"),
        (&["man", "nope"], 1, "it has: serve, demo"),
        (&["import", "nope", dir], 2, "auto, claude-code, codex"),
        (&["watch", &file], 1, "is a file, and a folder is followed"),
        (
            &["watch", dir, "--state", &state, "--token", "onr_x"],
            1,
            "give a token with --token or ONRECORD_TOKEN",
        ),
        (
            &["gate", "--run", &run, "--candidate", &candidate, dir],
            1,
            "is a folder: name the reports in it",
        ),
    ] {
        let output = output(&server, args).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.starts_with("error: "), "{args:?}: {errors}");
        assert!(
            errors.to_lowercase().contains(&words.to_lowercase()),
            "{args:?}: {errors}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_rotated_registered_and_revoked() {
    let server = Server::start().await;
    let list = async || printed(&server, &["signing-keys", "list"]).await;
    assert_eq!(list().await.matches("in force").count(), 1);
    let rotate = ["signing-keys", "rotate", "--reason", "compromised"];
    let done = output(&server, &rotate).await;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        text.starts_with("in force ") && text.contains("\nrevoked "),
        "{text}"
    );
    assert!(String::from_utf8_lossy(&done.stderr).contains("new trust file"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (public, proof) = (file("key.pem"), file("proof"));
    let agent = crate::signing_agent::Agent::new("smith", 1);
    let request = agent.registration(&server.api).await;
    std::fs::write(&public, &agent.pem).unwrap();
    let add = [
        "signing-keys",
        "agent-add",
        "smith",
        "--public",
        &public,
        "--proof",
        &proof,
    ];
    for (bytes, code) in [
        (&b"nonsense"[..], 1),
        (&[7; 64], 1),
        (request["proof"].as_str().unwrap().as_bytes(), 0),
    ] {
        std::fs::write(&proof, bytes).unwrap();
        let added = output(&server, &add).await;
        assert_eq!(added.status.code(), Some(code), "{added:?}");
    }
    let text = list().await;
    assert!(
        text.contains("frames of smith") && text.contains(&agent.keyid),
        "{text}"
    );
    let revoke = [
        "signing-keys",
        "agent-revoke",
        &agent.keyid,
        "--reason",
        "lost & found",
    ];
    printed(&server, &revoke).await;
    assert_eq!(list().await.matches("revoked from").count(), 2);
    let refused = output(&server, &["signing-keys", "agent-revoke", "../x"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let run = sealed_run(&server).await;
    server.audit(&run, &[]).await;
}

/// Runs doctor on a server's data folder and database; its exit code, and status and text of each check.
async fn doctor(server: &Server) -> (Option<i32>, Vec<(String, String, String)>) {
    let dir = server.data_dir.path().to_str().unwrap();
    let args = [
        "doctor",
        "--json",
        "--data-dir",
        dir,
        "--database-url",
        &server.database.url,
    ];
    let output = output(server, &args).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let secrets = [
        server.api.token.clone().unwrap(),
        std::fs::read_to_string(server.data_dir.path().join("keys/root.key")).unwrap(),
    ];
    for secret in secrets {
        let secret = secret.trim().rsplit('_').next().unwrap().to_owned();
        assert!(!text.contains(&secret), "{text}");
    }
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |name: &str| line[name].as_str().unwrap().to_owned();
        // What is wrong has a way out, in the finding or beside it.
        assert!(
            line["status"] != "failed"
                || line["do"].is_string()
                || line["found"].as_str().unwrap().len() > 40
        );
        (word("check"), word("status"), word("found"))
    });
    (output.status.code(), lines.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_what_was_broken() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start().await;
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(server.data_dir.path(), closed).unwrap();
    let wrong = |found: &[(String, String, String)]| -> Vec<String> {
        // The tests' cluster does not wait for its disk, and the machine's disk is the machine's.
        found
            .iter()
            .filter(|(check, status, _)| {
                !["durability", "disk", "disk space", "postgresql"].contains(&check.as_str())
                    && status != "ok"
            })
            .map(|(check, status, found)| format!("{status} {check}: {found}"))
            .collect()
    };
    let (code, found) = doctor(&server).await;
    assert_eq!(wrong(&found), Vec::<String>::new());
    let named = |name: &str| found.iter().any(|(check, ..)| check == name);
    for name in [
        "program",
        "version",
        "data folder",
        "token file",
        "database",
        "migrations",
        "protection",
        "root key",
        "keys",
        "tls",
        "server",
        "token",
        "clock",
    ] {
        assert!(named(name), "{name}");
    }
    let not_durable = found
        .iter()
        .filter(|(check, status, _)| check == "durability" && status == "failed");
    assert_eq!(
        (code, not_durable.count()),
        (Some(1), 2),
        "fsync and full_page_writes are off here"
    );

    let mut sql = server.sql().await;
    sqlx::raw_sql(
        "alter table frames disable trigger frames_no_truncate; alter table payloads disable row level security;
         grant delete on checkpoints to onrecord_app; update _sqlx_migrations set checksum = '\\x00';",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let keys = server.data_dir.path().join("keys");
    let tenant = std::fs::read_dir(&keys)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    std::fs::write(tenant.join("ledger.key"), "00\n").unwrap();
    std::fs::set_permissions(
        keys.join("root.key"),
        std::fs::Permissions::from_mode(0o640),
    )
    .unwrap();
    let (code, found) = doctor(&server).await;
    let wrong = wrong(&found).join("\n");
    for words in [
        "failed migrations: the tables are not those of this version",
        "failed protection: table payloads has no row security",
        "failed protection: table frames has no trigger against TRUNCATE",
        "failed protection: onrecord_app may delete checkpoints",
        "may be read by others (mode 0640)",
        "ledger.key does not open under the root key",
    ] {
        assert!(wrong.contains(words), "{words:?} in {wrong}");
    }
    assert_eq!((code, wrong.lines().count()), (Some(1), 6), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_shown_exported_and_proven() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let ledger = server.api.get("/v1/ledger").await.is(200).json();
    let shown = printed(&server, &["ledger", "show"]).await;
    let origin = ledger["origin"].as_str().unwrap();
    assert!(
        shown.starts_with(&format!("ledger {origin} of 4 entries\nroot ")),
        "{shown}"
    );
    assert!(shown.ends_with(ledger["checkpoint"].as_str().unwrap()));
    let listed = printed(&server, &["ledger", "entries", "--from", "2"]).await;
    let lines = listed.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // What stands between is the time.
        (words[0], words[words.len() - 2], words[words.len() - 1])
    });
    let (open, seal) = (("2", "run-open", &*run), ("3", "run-seal", &*run));
    let head = ("INDEX", "STATES", "RUN");
    assert_eq!(lines.collect::<Vec<_>>(), [head, open, seal], "{listed}");
    let json = printed(&server, &["ledger", "entries", "--limit", "3", "--json"]).await;
    let entries = server.api.get("/v1/ledger/entries").await.is(200).json();
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, entries["entries"].as_array().unwrap()[..3]);

    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ledger.tar");
    let path = file.to_str().unwrap();
    let written = output(&server, &["ledger", "export", "-o", path]).await;
    assert!(written.status.success());
    let trust = folder.path().join("trust.txt");
    std::fs::write(&trust, printed(&server, &["trust"]).await).unwrap();
    let verified = ["verify", "--trust", trust.to_str().unwrap(), path];
    let verified = printed(&server, &verified).await;
    assert!(verified.starts_with("VERIFIED"), "{verified}");

    let seal = server
        .api
        .get(&format!("/v1/runs/{run}/seal"))
        .await
        .is(200)
        .json();
    let proof = printed(&server, &["ledger", "prove", "3"]).await;
    assert_eq!(proof, seal["proof"].as_str().unwrap());
    let held = printed(&server, &["ledger", "consistency", "--from", "2"]).await;
    assert!(
        held.starts_with("the ledger of 2 entries is the beginning of that of 4\n"),
        "{held}"
    );
    assert!(held.contains(ledger["root"].as_str().unwrap()));
    let refused = output(&server, &["ledger", "prove", "4"]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("beyond"));
    assert_eq!(refused.status.code(), Some(1));
}
