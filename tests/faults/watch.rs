//! `onrecord watch` and the server, each killed at bad moments: every line is on record exactly once.

use crate::api::audit::audit;
use crate::process::{DataDir, Process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// The longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);
const SESSION: &str = "0a4f6c1e-53f1-4f0e-9d0a-6d5a0c1b2e3f.jsonl";

/// `onrecord watch` in a process of its own.
struct Watch {
    child: Child,
    events: Receiver<Value>,
}

impl Watch {
    fn start(server: &Process, folder: &Path, state: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onrecord"))
            .args(["watch", "--json", "--state"])
            .arg(state)
            .args(arguments)
            .arg(folder)
            .env("ONRECORD_URL", &server.api.base)
            .env("ONRECORD_TOKEN", server.api.token.as_deref().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("its events"));
        let (told, events) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("a JSON line");
                if told.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, events }
    }

    /// Waits for an event.
    fn hear(&self, name: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("an event");
            if event["event"] == name {
                return event;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn terminate(mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed());
        let pid = pid.expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
        self.hear("stopped");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Appends some prompts, the last of them cut off if `cut`; answers what is left of it.
fn write(path: &Path, numbers: std::ops::Range<usize>, cut: bool) -> String {
    let mut text = String::new();
    for number in numbers {
        text.push_str(&format!(
            r#"{{"type":"user","uuid":"u{number}","sessionId":"s","message":{{"role":"user","content":"prompt {number}"}}}}"#
        ));
        text.push('\n');
    }
    let rest = if cut {
        text.split_off(text.len() - 30)
    } else {
        String::new()
    };
    append(path, &text);
    rest
}

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().append(true).create(true).open(path);
    let mut file = file.expect("the file");
    file.write_all(text.as_bytes()).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_and_a_server_that_are_killed_lose_and_double_nothing() {
    let data_dir = DataDir::new();
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let path = files.join(SESSION);
    let mut server = Process::start(&data_dir, &[]);
    let address = server.api.address().to_owned();
    let mut written = 0;
    let mut run = String::new();
    for round in 0..8 {
        let watch = Watch::start(&server, &files, &state, &["--seal-after", "never"]);
        let rest = write(&path, written..written + 120, round % 2 == 1);
        written += 120;
        match round {
            // Sometimes before the first acknowledgement is heard of, sometimes after it.
            0 => {
                let following = watch.hear("following");
                following["run"].as_str().unwrap().clone_into(&mut run);
            }
            1 | 4 => drop(watch.hear("appended")),
            2 => {
                watch.hear("appended");
                server.kill();
                append(&path, &rest);
                written += 20;
                write(&path, written - 20..written, false);
                watch.hear("away");
                server = Process::start_at(&data_dir, &address, &[]);
                watch.hear("back");
            }
            _ => {}
        }
        if round != 2 {
            append(&path, &rest);
        }
        watch.kill();
    }
    let watch = Watch::start(&server, &files, &state, &["--once", "--seal-after", "0s"]);
    assert_eq!(watch.hear("sealed")["run"], run.as_str());
    drop(watch);
    let (_, bundle) = audit(&server.api, &run, &[]).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for frame in bundle.frames() {
        let frame: Value = serde_json::from_slice(&frame).unwrap();
        if frame["kind"] == "turn" {
            let key = frame["key"].as_str().unwrap().to_owned();
            *counts.entry(key).or_default() += 1;
        }
    }
    let lines: BTreeMap<String, usize> = (1..=written)
        .map(|line| (format!("line/{line}"), 1))
        .collect();
    assert!(counts == lines, "{} of {written} lines", counts.len());

    // Resumed after its seal: one run more, and it ends when it is asked to.
    let watch = Watch::start(&server, &files, &state, &["--seal-after", "1h"]);
    write(&path, written..written + 3, false);
    watch.hear("continued");
    assert_eq!(
        watch.hear("appended")["frames"],
        4,
        "a session and three turns"
    );
    watch.terminate();
    let runs = server.api.get("/v1/runs").await.json();
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let newest = runs[0]["run"].as_str().unwrap();
    let (_, bundle) = audit(&server.api, newest, &[]).await;
    let opening: Value = serde_json::from_slice(&bundle.frames()[0]).unwrap();
    assert_eq!(opening["links"][0]["run"], run.as_str());
    assert_eq!(opening["body"]["continues"], run.as_str());
    server.stop();
}
