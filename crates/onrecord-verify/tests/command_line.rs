//! The command line: arguments, the user's own trust file, streams.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its vectors fails"
)]

use onrecord_verify::cli::{Surroundings, config_dir, run};
use onrecord_verify::{PROVES, Report};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const MINIMAL: &str = "minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar";

fn vector(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(path)
}

struct Answer {
    code: u8,
    stdout: String,
    stderr: String,
}

fn ask(args: &[&str], config_dir: Option<&Path>, mut stdin: &[u8]) -> Answer {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let surroundings = Surroundings {
        config_dir: config_dir.map(Path::to_path_buf),
        stdin: &mut stdin as &mut dyn Read,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let code = run(args.iter().map(OsString::from), surroundings);
    Answer {
        code,
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

#[test]
fn wrong_usage_is_told_and_is_3() {
    let minimal = vector(MINIMAL);
    let minimal = minimal.to_str().unwrap();
    for args in [
        &[][..],
        &["--nonsense", minimal],
        &["-x", minimal],
        &["--trust"],
        &["--trust", "a", "--trust", "b", minimal],
        &["--full=yes", minimal],
        &["--trust", "/nonexistent/trust.txt", minimal],
        &["--ledger", "/nonexistent/ledger.tar", minimal],
        &["--receipts", "/nonexistent/receipts.ndjson", minimal],
        &["--receipts", "/dev/null", minimal],
        &[minimal, minimal],
    ] {
        let answer = ask(args, None, b"");
        assert_eq!(answer.code, 3, "{args:?}");
        assert!(
            answer.stderr.starts_with("onrecord-verify: "),
            "{args:?}: {}",
            answer.stderr
        );
        assert_eq!(answer.stdout, "", "{args:?}");
        let json: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        let report: Report = serde_json::from_str(&ask(&json, None, b"").stdout).unwrap();
        assert_eq!(
            (report.verdict.code.as_str(), report.verdict.exit_code),
            ("usage", 3),
            "{args:?}"
        );
    }
}

#[test]
fn input_that_is_not_there_is_3() {
    for file in ["/nonexistent", "/"] {
        let answer = ask(&[file], None, b"");
        assert_eq!(answer.code, 3, "{file}");
        assert!(
            answer.stdout.contains("UNUSABLE (input)"),
            "{}",
            answer.stdout
        );
    }
}

#[test]
fn what_could_not_be_read_is_not_checked() {
    let trust = format!("--trust={}", vector("trust.txt").to_str().unwrap());
    for (input, why) in [
        (&b"x"[..], "this is no bundle: it has less than 512 bytes"),
        (&[b'x'; 600], "this does not begin as a bundle does"),
    ] {
        let answer = ask(&[&trust, "-"], None, input);
        assert_eq!(answer.code, 3);
        assert!(answer.stdout.contains(why), "{}", answer.stdout);
        for line in ["Integrity", "Signer", "Completeness", "Ledger"] {
            let line = format!("{line:<14}not checked: the input");
            assert!(answer.stdout.contains(&line), "{line}: {}", answer.stdout);
        }
    }
    // The seal is read before the end that is missing, and cannot speak for it.
    let cut = std::fs::read(vector("tampered/tar-truncated.tar")).unwrap();
    let answer = ask(&[&trust, "-"], None, &cut);
    assert_eq!(answer.code, 3);
    for part in ["Signer        ok", "Completeness  not checked: the input"] {
        assert!(answer.stdout.contains(part), "{part}: {}", answer.stdout);
    }
}

#[test]
fn receipts_that_hold_are_told() {
    let trust = format!("--trust={}", vector("trust.txt").to_str().unwrap());
    let minimal = vector(MINIMAL);
    let args = [&trust, "--json", minimal.to_str().unwrap()];
    let report: Report = serde_json::from_str(&ask(&args, None, b"").stdout).unwrap();
    let receipt = serde_json::json!({
        "run": report.facts.run,
        "seq": report.facts.size.unwrap() - 1,
        "hash": report.facts.head,
        "at": "2026-08-09T11:00:08.750000Z",
    });
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("receipts.ndjson");
    std::fs::write(&kept, receipt.to_string()).unwrap();
    let receipts = format!("--receipts={}", kept.display());
    let answer = ask(&[&trust, &receipts, minimal.to_str().unwrap()], None, b"");
    assert!(
        answer.stdout.contains("unchanged, and the receipt holds"),
        "{}",
        answer.stdout
    );
}

#[test]
fn the_text_says_what_it_proves_and_what_not() {
    let trust = vector("trust.txt");
    let minimal = vector(MINIMAL);
    let args = [
        "--trust",
        trust.to_str().unwrap(),
        minimal.to_str().unwrap(),
    ];
    let answer = ask(&args, None, b"");
    assert_eq!(answer.code, 0);
    assert!(answer.stdout.starts_with("VERIFIED\n"), "{}", answer.stdout);
    for part in [
        PROVES,
        "Integrity     ok",
        "Signer        ok",
        "Ledger        ok",
        "no warnings",
    ] {
        assert!(answer.stdout.contains(part), "{part}: {}", answer.stdout);
    }
    assert!(answer.stdout.is_ascii());
}

#[test]
fn the_users_own_trust_file_is_found_and_help_to_get_one_is_given() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config");
    std::fs::create_dir_all(home.join("onrecord")).unwrap();
    let minimal = vector(MINIMAL);
    let args = [minimal.to_str().unwrap()];
    let without = ask(&args, Some(Path::new("/nonexistent")), b"");
    assert_eq!(without.code, 2);
    assert!(
        without.stdout.contains("INCOMPLETE (no_trust)"),
        "{}",
        without.stdout
    );
    assert!(
        without.stdout.contains("onrecord trust > FILE"),
        "{}",
        without.stdout
    );
    std::fs::copy(vector("trust.txt"), home.join("onrecord/trust.txt")).unwrap();
    assert_eq!(ask(&args, Some(&home), b"").code, 0);
    // One that is wrong is an error, not none.
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong");
    std::fs::create_dir_all(wrong.join("onrecord")).unwrap();
    std::fs::write(wrong.join("onrecord/trust.txt"), "nonsense").unwrap();
    assert_eq!(ask(&args, Some(&wrong), b"").code, 3);
}

#[test]
fn the_configuration_folder_is_where_the_system_has_it() {
    let folder = |xdg: &str, home: &str| {
        let given = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        config_dir(given(xdg), given(home))
    };
    assert_eq!(folder("/x", "/h"), Some("/x".into()));
    assert_eq!(folder("", ""), None);
    assert_eq!(folder("relative", ""), None);
    if cfg!(target_os = "linux") {
        assert_eq!(folder("", "/h"), Some("/h/.config".into()));
    }
}

#[test]
fn standard_input_and_options_after_the_file() {
    let bytes = std::fs::read(vector(MINIMAL)).unwrap();
    let trust = format!("--trust={}", vector("trust.txt").to_str().unwrap());
    assert_eq!(ask(&["-", &trust], None, &bytes).code, 0);
    assert_eq!(ask(&[&trust, "--", "-"], None, &bytes).code, 0);
    assert_eq!(ask(&["--help"], None, b"").code, 0);
    assert!(ask(&["--help"], None, b"").stdout.contains("Exit codes"));
    assert!(
        ask(&["--version"], None, b"")
            .stdout
            .starts_with("onrecord-verify ")
    );
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
    struct Closed(ErrorKind);
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }
    for (kind, code) in [(ErrorKind::BrokenPipe, 0), (ErrorKind::StorageFull, 3)] {
        let surroundings = Surroundings {
            config_dir: None,
            stdin: &mut io::empty(),
            stdout: &mut Closed(kind),
            stderr: &mut io::sink(),
        };
        let args: [OsString; 3] = [
            "--trust".into(),
            vector("trust.txt").into(),
            vector(MINIMAL).into(),
        ];
        assert_eq!(run(args, surroundings), code);
    }
}

#[test]
fn evidence_cannot_speak_to_the_terminal() {
    let name = "\u{1b}[2J\u{9b}31m\u{202e}";
    let proof = format!("{{\"{name}\":1}}");
    for args in [&["-"][..], &["--json", "-"]] {
        let answer = ask(args, None, proof.as_bytes());
        assert_eq!(answer.code, 3);
        assert!(
            answer
                .stdout
                .chars()
                .all(|one| one == '\n' || !one.is_control() && one != '\u{202e}'),
            "{:?}",
            answer.stdout
        );
    }
    let answer = ask(&["--\u{1b}[2J"], None, b"");
    assert!(!answer.stderr.contains('\u{1b}'), "{:?}", answer.stderr);
}
