//! `onrecord demo --exit`, as a script runs it: the whole product once, from an empty folder to a verdict.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails so"
)]

use onrecord::postgres::Installation;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Runs the demo; `None`, said aloud, where this machine has not what it needs.
fn demo(arguments: &[&str]) -> Option<Output> {
    let git = Command::new("git")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !git.is_ok_and(|status| status.success()) {
        eprintln!("skipped: git is not installed");
        return None;
    }
    if let Err(error) = Installation::find(None) {
        eprintln!("skipped: {error}");
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(["demo", "--exit"])
        .args(arguments)
        // A repository, a user and a server that are none of the demo's business.
        .env("GIT_DIR", "/nonexistent")
        .env("HOME", "/nonexistent")
        .env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .output();
    Some(output.expect("the demo runs"))
}

/// The value of a line such as `  folder        /tmp/…`.
fn fact<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .unwrap_or_else(|| panic!("no line {name:?} in:\n{text}"));
    line.trim()
}

#[test]
fn from_nothing_to_a_verdict() {
    let Some(output) = demo(&[]) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(errors, "", "nothing went wrong on the way");
    assert!(!text.contains('\u{1b}'), "no colours for scripts:\n{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?} fits a terminal");
    }

    // The failing test, the refused verdict, the passing test, and who judged.
    let gates: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("gate_result"))
        .collect();
    let [failed, refused, passed] = gates[..] else {
        panic!("three verdicts were posted:\n{text}")
    };
    assert!(failed.contains("FAIL"), "{failed}");
    assert!(refused.contains("refused"), "{refused}");
    assert!(passed.contains("PASS"), "{passed}");
    assert!(text.contains("403 actor_not_yours"), "{text}");

    // One byte of the failing gate's frame was changed, and the verdict names that frame.
    let frame = failed.split_whitespace().next().unwrap_or_default();
    assert!(fact(&text, "VERIFIED").contains("(exit code 0)"), "{text}");
    let altered = fact(&text, "ALTERED");
    assert!(altered.contains(&format!("frame {frame} ")), "{altered}");
    assert!(altered.contains("(exit code 1)"), "{altered}");
    let found = fact(&text, "found");
    assert!(
        found.starts_with(&format!("frame_prev at frame {frame}:")),
        "{found}"
    );

    let folder = PathBuf::from(fact(&text, "folder"));
    assert!(!folder.exists(), "{} is removed", folder.display());
}

#[test]
fn an_address_that_is_taken_is_told_and_nothing_is_left() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    let Some(output) = demo(&["--listen", &address]) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}\n{errors}");
    assert!(
        errors.contains(&format!("cannot listen on {address}")),
        "{errors}"
    );
    let folder = PathBuf::from(fact(&text, "folder"));
    assert!(!folder.exists(), "{} is removed", folder.display());
}
