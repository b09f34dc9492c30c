//! Every golden vector through the command line: exit code, code and frame.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its vectors fails"
)]

use onrecord_verify::Report;
use onrecord_verify::cli::{Surroundings, run};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    file: String,
    attack: String,
    exit_code: u8,
    code: String,
    first_bad_seq: Option<u64>,
    #[serde(default = "usual")]
    trust: Option<String>,
    #[serde(default)]
    args: Vec<String>,
}

fn usual() -> Option<String> {
    Some("trust.txt".into())
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

fn expected(list: &str) -> Vec<Expected> {
    let list = std::fs::read(vectors().join(list)).unwrap();
    let list: Vec<Expected> = serde_json::from_slice(&list).unwrap();
    assert!(!list.is_empty());
    list
}

/// Arguments of a case; `folder` is where its file is.
fn arguments(case: &Expected, folder: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--json".into()];
    if let Some(trust) = &case.trust {
        args.extend(["--trust".into(), vectors().join(trust).into()]);
    }
    for arg in &case.args {
        args.push(if arg.starts_with("--") {
            arg.into()
        } else {
            vectors().join(arg).into()
        });
    }
    args.push(folder.join(&case.file).into());
    args
}

fn report(args: Vec<OsString>) -> (u8, Report) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let surroundings = Surroundings {
        config_dir: None,
        stdin: &mut std::io::empty(),
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let code = run(args, surroundings);
    (code, serde_json::from_slice(&stdout).unwrap())
}

fn judge(list: &str, folder: &Path) {
    let mut wrong = Vec::new();
    for case in expected(list) {
        let (exit_code, report) = report(arguments(&case, folder));
        let verdict = &report.verdict;
        let found = (
            exit_code,
            verdict.exit_code,
            verdict.code.as_str(),
            verdict.first_bad_seq,
        );
        if found
            != (
                case.exit_code,
                case.exit_code,
                case.code.as_str(),
                case.first_bad_seq,
            )
        {
            wrong.push(format!(
                "{} ({}): expected {} {} {:?}, found {found:?}: {}",
                case.file,
                case.attack,
                case.exit_code,
                case.code,
                case.first_bad_seq,
                verdict.detail
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {list}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn good_files_have_their_verdicts() {
    judge("expected.json", &vectors());
}

#[test]
fn every_attack_is_named() {
    judge("tampered/expected.json", &vectors().join("tampered"));
}

#[test]
fn the_binary_says_the_same() {
    let lists = [
        ("expected.json", vectors()),
        ("tampered/expected.json", vectors().join("tampered")),
    ];
    for (list, folder) in lists {
        for case in expected(list).iter().step_by(7) {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_onrecord-verify"))
                .args(arguments(case, &folder))
                .env("XDG_CONFIG_HOME", "/nonexistent")
                .output()
                .unwrap();
            let report: Report = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(
                output.status.code(),
                Some(i32::from(case.exit_code)),
                "{}",
                case.attack
            );
            assert_eq!(report.verdict.code.as_str(), case.code, "{}", case.attack);
            assert_eq!(
                report.verdict.first_bad_seq, case.first_bad_seq,
                "{}",
                case.attack
            );
        }
    }
}

#[test]
fn reports_read_back_as_they_were_written() {
    for case in expected("expected.json") {
        let (_, report) = report(arguments(&case, &vectors()));
        let text = serde_json::to_string(&report).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
