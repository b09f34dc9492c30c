//! The tutorials, followed to the letter: every command of `docs/tutorials/` is run in the order of its
//! page, and prints what the page says.
//!
//! A block `sh` is a part of one shell's script. One that begins with `# terminal 1` is a server, which runs
//! beside it. Each line of a block `text` has to be printed by the block before it, in this order; `…`
//! stands for anything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails so"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use onrecord::postgres::Installation;
use rustix::process::{Pid, Signal, kill_process};

/// What stands between the outputs of two blocks.
const MARK: &str = "=== the next block ===";

/// A block of commands, and the lines that it has to print.
struct Block {
    commands: String,
    printed: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for part in page.split("\n```").skip(1) {
        let (language, text) = part.split_once('\n').unwrap_or((part, ""));
        match language {
            "sh" => blocks.push(Block {
                commands: text.to_owned(),
                printed: Vec::new(),
            }),
            "text" => {
                let lines = text.lines().map(str::to_owned);
                blocks.last_mut().unwrap().printed.extend(lines);
            }
            // The end of a block, and the prose after it.
            "" => {}
            other => panic!("a block of the language {other:?}"),
        }
    }
    blocks
}

/// Whether the line is what the page says.
fn fits(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    for (index, part) in pattern.split('…').map(str::trim).enumerate() {
        match rest.find(part) {
            Some(at) if index > 0 || at == 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    pattern.ends_with('…') || rest.trim().is_empty()
}

/// A server in a folder; ended with the test, with its PostgreSQL.
struct Server {
    child: Child,
    url: String,
    data: PathBuf,
}

impl Server {
    fn start(commands: &str, folder: &Path) -> Self {
        let mut child = shell(folder)
            .arg("-c")
            .arg(format!("exec {}", commands.trim()))
            .env("ONRECORD_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = said.by_ref().map_while(Result::ok).find_map(|line| {
            let at = line.split_once(" at http://")?.1.to_owned();
            Some(format!("http://{at}"))
        });
        // Read to its end, so that the server never waits for its log to be read.
        std::thread::spawn(move || said.for_each(drop));
        Self {
            child,
            url: url.expect("the server says where it is"),
            data: folder.join("evidence"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
        // What is left of PostgreSQL where the server failed.
        let file = fs::read_to_string(self.data.join("postgres/postmaster.pid"));
        let left = file
            .ok()
            .and_then(|text| text.lines().next()?.trim().parse().ok());
        if let Some(postmaster) = left.and_then(Pid::from_raw) {
            let _ = kill_process(postmaster, Signal::QUIT);
        }
    }
}

/// A shell that knows our program and nothing of whoever runs the test.
fn shell(folder: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_onrecord"));
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        program.parent().unwrap().display()
    );
    let mut shell = Command::new("bash");
    shell
        .args(["-eu", "-o", "pipefail"])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path)
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    shell
}

fn follow(name: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/tutorials")
        .join(name);
    let mut blocks = blocks(&fs::read_to_string(page).unwrap());
    let folder = tempfile::Builder::new()
        .prefix("onrecord-tutorial-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    std::os::unix::fs::symlink(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"),
        folder.path().join("tests"),
    )
    .unwrap();
    let terminal = "# terminal 1\n";
    let is_server = |block: &Block| block.commands.starts_with(terminal);
    let server = blocks.iter().position(is_server).map(|at| {
        let block = blocks.remove(at);
        Server::start(&block.commands[terminal.len()..], folder.path())
    });
    let script: Vec<_> = blocks.iter().map(|block| block.commands.as_str()).collect();
    let mut shell = shell(folder.path());
    if let Some(server) = &server {
        shell.env("ONRECORD_URL", &server.url);
    }
    let done = shell
        .arg("-c")
        .arg(script.join(&format!("\necho '{MARK}'\n")))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{name}: {}\n{printed}\n{complaints}",
        done.status
    );
    let outputs: Vec<&str> = printed.split(MARK).collect();
    assert_eq!(outputs.len(), blocks.len(), "{name}");
    for (block, output) in blocks.iter().zip(outputs) {
        let mut lines = output.lines();
        for expected in &block.printed {
            assert!(
                lines.any(|line| fits(line, expected)),
                "{name}: {expected:?} is not printed by\n{}\nwhich prints\n{output}",
                block.commands
            );
        }
    }
}

/// Whether the programs are there that the pages use; says so if they are not.
fn tools(names: &str) -> bool {
    let found = Command::new("bash")
        .args(["-c", &format!("command -v {names}")])
        .output()
        .is_ok_and(|done| done.status.success());
    if !found {
        eprintln!("skipped: not all of {names} are installed");
    }
    found
}

fn postgres() -> bool {
    Installation::find(None)
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

#[test]
fn whoever_builds_agents() {
    if tools("curl git sed") && postgres() {
        follow("agents.md");
    }
}

#[test]
fn auditors() {
    if tools("tar grep dd sha256sum") {
        follow("auditors.md");
    }
}

#[test]
fn compliance() {
    if tools("sed wc") && postgres() {
        follow("compliance.md");
    }
}

#[test]
fn what_a_page_says_is_compared() {
    assert!(fits("run 01ABC, 5 frames, done", "run …, 5 frames…"));
    assert!(fits("VERIFIED", "VERIFIED"));
    assert!(!fits("NOT VERIFIED", "VERIFIED"));
    assert!(!fits("VERIFIED, almost", "VERIFIED"));
    let page = "a\n```sh\none\n```\n\n```text\nx\ny\n```\nb\n```sh\ntwo\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks.len(), 2);
    assert_eq!(
        (blocks[0].commands.as_str(), blocks[0].printed.len()),
        ("one", 2)
    );
}
