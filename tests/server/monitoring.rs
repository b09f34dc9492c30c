//! `onrecord monitor` as an auditor runs it: a process with a folder and a trust file, and a log that is not to be trusted.

use crate::fake_log::{FakeLog, ORIGIN, keyid, run, spki, state};
use ed25519_dalek::SigningKey;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::statement::{Erasure, Hold, HoldAction, Key, KeyAction, KeyRole, Predicate};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// An auditor: a folder with a trust file.
pub struct Auditor {
    pub folder: TempDir,
    pub url: String,
    pub token: Option<String>,
}

/// What a look came to: the exit code, the alarms, the last line, and what was said on standard error.
#[derive(Debug)]
pub struct Look {
    pub code: i32,
    pub alarms: Vec<Value>,
    pub end: Value,
    pub errors: String,
}

impl Look {
    pub fn codes(&self) -> Vec<&str> {
        let codes = self
            .alarms
            .iter()
            .map(|alarm| alarm["alarm"].as_str().unwrap());
        codes.collect()
    }
}

impl Auditor {
    pub fn new(url: &str, trust: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("trust.txt"), trust).unwrap();
        Self {
            folder,
            url: url.to_owned(),
            token: None,
        }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onrecord"));
        command
            .args(["monitor", &self.url, "--json"])
            .arg("--dir")
            .arg(self.path("monitor"))
            .arg("--trust")
            .arg(self.path("trust.txt"))
            .args(args)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(token) = &self.token {
            command.env("ONRECORD_TOKEN", token);
        }
        command
    }

    pub async fn look(&self) -> Look {
        self.look_with(&[]).await
    }

    pub async fn look_with(&self, args: &[&str]) -> Look {
        let args = [&["--once"], args].concat();
        let output = self.command(&args).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let code = output.status.code().unwrap();
        let end = if code == 2 { None } else { lines.pop() };
        Look {
            code,
            alarms: lines,
            end: end.unwrap_or_default(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The copy verifies by itself, as far as the entries go.
    pub fn verify(&self) -> onrecord_verify::Report {
        let trust = std::fs::read_to_string(self.path("trust.txt")).unwrap();
        let options = onrecord_verify::Options {
            trust: Some(onrecord_verify::Trust::parse(&trust).unwrap()),
            ..Default::default()
        };
        let copy = std::fs::File::open(self.path("monitor/ledger.tar")).unwrap();
        onrecord_verify::verify(copy, &options)
    }
}

/// Far enough from the log's clock that no run counts as left open.
const CALM: [&str; 2] = ["--open-after", "36500d"];

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_grows_is_believed_and_copied() {
    let mut log = FakeLog::start().await;
    let auditor = Auditor::new(&log.base, &log.trust());
    let mut size = 0;
    // Below a tile, up to its end, over it, and over a level.
    for more in [1, 3, 124, 1, 200] {
        let first = size / 2 + 1;
        log.runs(first..first + more);
        log.publish();
        let look = auditor.look().await;
        assert_eq!((look.code, look.codes()), (0, vec![]), "{look:?}");
        assert_eq!(look.end["new"], 2 * more);
        size += 2 * more;
        assert_eq!(
            (&look.end["size"], &look.end["origin"]),
            (&size.into(), &ORIGIN.into())
        );
        let report = auditor.verify();
        assert_eq!(
            report.verdict.code.as_str(),
            "verified",
            "{:?}",
            report.findings
        );
        assert_eq!(report.facts.size, Some(size));
    }
    let look = auditor.look().await;
    assert_eq!((look.code, &look.end["new"]), (0, &0.into()));
    // By the server's address the log is that of the trust file.
    let mut by_server = Auditor::new(log.base.trim_end_matches("/t/abc"), &log.trust());
    assert_eq!(by_server.look().await.end["size"], size);
    by_server.url = format!("{}/t/other", by_server.url);
    assert_eq!(by_server.look().await.code, 2);
    let output = auditor.command(&["--once"]);
    let mut human = Command::new(env!("CARGO_BIN_EXE_onrecord"));
    let args = output.as_std().get_args().filter(|arg| *arg != "--json");
    let said = human.args(args).env_clear().output().await.unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(
        said,
        format!("everything fits: {size} entries of {ORIGIN}, 0 of them new\n")
    );
}

/// What is in the log, and which alarm there has to be.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_entries_say_is_held_against_the_rules() {
    let by = || Actor {
        id: "officer".to_owned(),
        keyid: None,
        kind: ActorType::Human,
    };
    type Change = Box<dyn Fn(&mut FakeLog)>;
    let changes: Vec<(&str, Change)> = vec![
        ("second_seal", Box::new(|log| log.seal(1, 3))),
        ("run_gap", Box::new(|log| log.runs([5]))),
        ("second_open", Box::new(|log| log.open(2))),
        (
            "run_head",
            Box::new(|log| {
                log.open(4);
                log.seal(4, 0);
            }),
        ),
        (
            "ledger_time",
            Box::new(|log| {
                log.clock -= 1_000;
                log.runs([4]);
            }),
        ),
        (
            "signer_unknown",
            Box::new(|log| {
                log.seal = SigningKey::from_bytes(&[9; 32]);
                log.runs([4]);
            }),
        ),
        (
            "key_revoked",
            Box::new(|log| {
                let at = log.now();
                log.add(&Predicate::Key(Key {
                    action: KeyAction::Revoked,
                    at,
                    keyid: keyid(&log.seal),
                    reason: None,
                    role: KeyRole::Seal,
                    spki: spki(&log.seal),
                }));
                log.runs([4]);
            }),
        ),
        (
            "erasure_held",
            Box::new(move |log| {
                let at = log.now();
                log.add(&Predicate::Hold(Hold {
                    action: HoldAction::Set,
                    at,
                    by: by(),
                    matter: "case".to_owned(),
                    reason: None,
                    run: None,
                    with: None,
                }));
                let at = log.now();
                log.add(&Predicate::Erasure(Erasure {
                    at,
                    by: by(),
                    commits: None,
                    count: 1,
                    method: "crypto-shredding".to_owned(),
                    policy: "p".to_owned(),
                    reason: "r".to_owned(),
                    state: state(1, 2),
                    tier: Some(2),
                    tiers: None,
                }));
            }),
        ),
        (
            "statement",
            Box::new(|log| log.entries.push(b"{}".to_vec())),
        ),
    ];
    for (code, change) in changes {
        let mut log = FakeLog::start().await;
        let auditor = Auditor::new(&log.base, &log.trust());
        log.runs(1..4);
        log.publish();
        assert_eq!(auditor.look().await.code, 0);
        change(&mut log);
        log.publish();
        let look = auditor.look().await;
        assert_eq!(look.code, 1, "{code}: {look:?}");
        assert!(look.codes().contains(&code), "{code}: {look:?}");
        // It stands, in a new process too.
        let again = auditor.look().await;
        assert_eq!((again.code, &again.alarms), (1, &look.alarms));
        assert!(
            auditor
                .verify()
                .findings
                .iter()
                .any(|one| one.code.as_str() == code)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tree_and_an_older_one_are_alarms_with_evidence() {
    let mut log = FakeLog::start().await;
    log.runs(1..201);
    log.publish();
    let auditor = Auditor::new(&log.base, &log.trust());
    assert_eq!(auditor.look().await.code, 0);
    let believed = log.checkpoint(400);
    let good = log.entries.clone();

    // Back, in the same tree.
    log.entries.truncate(300);
    log.publish();
    let look = auditor.look().await;
    assert_eq!((look.code, look.codes()), (1, vec!["rollback"]));
    let evidence = Path::new(look.alarms[0]["evidence"].as_str().unwrap()).to_owned();
    let read = |name: &str| std::fs::read_to_string(evidence.join(name)).unwrap();
    assert_eq!(read("believed.checkpoint"), believed);
    assert_eq!(read("shown.checkpoint"), log.checkpoint(300));
    // It stands until somebody has looked at it, also when the log is as it was.
    log.entries = good.clone();
    log.publish();
    assert_eq!(auditor.look().await.codes(), ["rollback"]);
    std::fs::remove_dir_all(&evidence).unwrap();
    assert_eq!(auditor.look().await.code, 0);

    // Another tree: smaller, of the same size, larger; an entry dropped, changed in the first tile and in the last.
    for (index, size) in [
        (3, 300),
        (3, 400),
        (399, 400),
        (3, 420),
        (399, 420),
        (399, 700),
    ] {
        log.entries = good.clone();
        while log.entries.len() < 800 {
            let next = log.entries.len() as u64 / 2 + 1;
            log.runs([next]);
        }
        log.entries[index] = good[index - 1].clone();
        log.entries.truncate(size);
        log.publish();
        let look = auditor.look().await;
        assert_eq!(
            (look.code, look.codes()),
            (1, vec!["split_view"]),
            "{index} {size}: {look:?}"
        );
        assert_eq!(look.end["size"], 400, "it is not believed");
        std::fs::remove_dir_all(look.alarms[0]["evidence"].as_str().unwrap()).unwrap();
    }
    // The signed tree goes on, but the entries that are shown are not its.
    log.entries = good.clone();
    log.runs(201..211);
    log.publish();
    let mut bundle = Vec::new();
    log.entries[256..420].iter().rev().for_each(|entry| {
        onrecord_core::note::write_entry(&mut bundle, entry).unwrap();
    });
    log.show("tile/entries/001.p/164", bundle);
    assert_eq!(auditor.look().await.codes(), ["ledger_root"]);
    std::fs::remove_dir_all(auditor.path("monitor/evidence")).unwrap();
    log.publish();
    let look = auditor.look().await;
    assert_eq!((look.code, &look.end["size"]), (0, &420.into()));
    // Hashes that others would check the log by.
    log.runs(211..221);
    log.publish();
    log.show("tile/0/001.p/184", vec![7; 32 * 184]);
    assert_eq!(auditor.look().await.codes(), ["ledger_tile"]);
    assert_eq!(auditor.verify().verdict.code.as_str(), "verified");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_signed_is_not_believed_and_what_is_no_log_not_checked() {
    let mut log = FakeLog::start().await;
    log.runs(1..4);
    log.publish();
    let auditor = Auditor::new(&log.base, &log.trust());
    assert_eq!(auditor.look().await.code, 0);
    log.runs(4..6);
    log.publish();
    let good = log.checkpoint(10);
    let larger = good.replacen("\n10\n", "\n11\n", 1);
    for (shown, code, words) in [
        (larger.clone(), 1, "checkpoint_signature"),
        (
            larger.replace("records.example/t/abc", "records.example/t/abd"),
            1,
            "signer_unknown",
        ),
        ("nonsense".to_owned(), 2, "checkpoint"),
        (String::new(), 2, "checkpoint"),
        ("x".repeat(70_000), 2, "more than 65536 bytes"),
    ] {
        log.show("checkpoint", shown);
        let look = auditor.look().await;
        assert_eq!(look.code, code, "{look:?}");
        let said = format!("{:?} {}", look.codes(), look.errors);
        assert!(said.contains(words), "{words}: {said}");
    }
    log.publish();
    // As a witness is asked for that did not sign.
    std::fs::write(auditor.path("trust.txt"), log.trust_with_witness()).unwrap();
    let look = auditor.look().await;
    assert_eq!((look.code, look.codes()), (1, vec!["witness_quorum"]));
    assert_eq!(look.end["size"], 10);
    std::fs::write(auditor.path("trust.txt"), log.trust()).unwrap();

    // Tiles that are none.
    log.runs(6..7);
    for (name, bytes) in [
        ("tile/entries/000.p/12", None),
        ("tile/entries/000.p/12", Some(vec![0; 3])),
        ("tile/entries/000.p/12", Some(vec![0xff; 40_000])),
        ("tile/entries/000.p/12", Some(vec![1; 20 << 20])),
        ("tile/0/000.p/12", Some(vec![1; 31])),
    ] {
        log.publish();
        match bytes {
            Some(bytes) => log.show(name, bytes),
            None => log.hide(name),
        }
        let look = auditor.look().await;
        assert_eq!(look.code, 2, "{name}: {look:?}");
        assert!(look.errors.starts_with("error: "), "{}", look.errors);
    }
    log.publish();
    assert_eq!(auditor.look().await.code, 0);
    // A log that grew has the full tile where the part was.
    log.runs(7..140);
    log.publish();
    let full = log.entries.len();
    log.show("checkpoint", log.checkpoint(200));
    let look = auditor.look().await;
    assert_eq!(
        (look.code, &look.end["size"]),
        (0, &200.into()),
        "{full} {look:?}"
    );
    let mut nowhere = Auditor::new("http://127.0.0.1:1/t/abc", &log.trust());
    assert_eq!(nowhere.look().await.code, 2);
    nowhere.url = log.base.clone();
    std::fs::write(nowhere.path("trust.txt"), "").unwrap();
    let look = nowhere.look().await;
    assert_eq!(look.code, 2);
    assert!(look.errors.contains("pins no log"), "{}", look.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_are_left_open_are_an_alarm_until_they_are_sealed() {
    let mut log = FakeLog::start().await;
    log.runs(1..3);
    log.open(3);
    log.publish();
    // Of 2026-09, by the fake's clock.
    let auditor = Auditor::new(&log.base, &log.trust());
    assert_eq!(auditor.look_with(&CALM).await.code, 0);
    log.clock = 1_600_000_000;
    let mut old = FakeLog::start().await;
    old.clock = 1_600_000_000;
    old.runs(1..3);
    old.open(3);
    old.publish();
    let auditor = Auditor::new(&old.base, &old.trust());
    let look = auditor.look().await;
    assert_eq!((look.code, look.codes()), (1, vec!["run_left_open"]));
    assert_eq!(look.alarms[0]["run"], run(3).to_string());
    assert_eq!(look.alarms[0]["index"], 4);
    assert_eq!(auditor.look_with(&CALM).await.code, 0);
    old.seal(3, 2);
    old.publish();
    assert_eq!(auditor.look().await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_that_goes_on_tells_each_alarm_once() {
    let mut log = FakeLog::start().await;
    log.runs(1..3);
    log.publish();
    let auditor = Auditor::new(&log.base, &log.trust());
    let every = ["--every", "1s"];
    let follow = || {
        let mut child = auditor.command(&every).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        (child, lines, errors)
    };
    let (mut child, mut lines, mut errors) = follow();
    log.seal(1, 3);
    log.publish();
    let first: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(first["alarm"], "second_seal");
    // Two at a time would not know what the other believes.
    let second = auditor.look().await;
    assert_eq!(second.code, 2);
    assert!(
        second.errors.contains("in use by another monitor"),
        "{}",
        second.errors
    );
    log.hide("checkpoint");
    let said = errors.next_line().await.unwrap().unwrap();
    assert!(said.starts_with("not checked: "), "{said}");
    log.publish();
    assert_eq!(errors.next_line().await.unwrap().unwrap(), "checked again");
    child.kill().await.unwrap();
    // Killed and started again, it tells what is new only.
    let (mut child, mut lines, _errors) = follow();
    log.runs([9]);
    log.publish();
    let next: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(next["alarm"], "run_gap");
    child.kill().await.unwrap();
    let look = auditor.look().await;
    assert_eq!(look.code, 1);
    assert!(look.codes().starts_with(&["second_seal"]), "{look:?}");
}

/// Whatever of a round was written, the next one begins with what was believed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_leaves_is_not_believed() {
    let mut log = FakeLog::start().await;
    log.runs(1..3);
    log.publish();
    let auditor = Auditor::new(&log.base, &log.trust());
    assert_eq!(auditor.look().await.code, 0);
    let entries = auditor.path("monitor/entries");
    let good = std::fs::read(&entries).unwrap();
    std::fs::write(&entries, [&good[..], b"half an entry"].concat()).unwrap();
    std::fs::remove_file(auditor.path("monitor/ledger.tar")).unwrap();
    log.runs(3..5);
    log.publish();
    assert_eq!(auditor.look().await.code, 0);
    assert_eq!(auditor.verify().verdict.code.as_str(), "verified");
    // What somebody changed in the folder is named, and nothing is believed on top of it.
    let good = std::fs::read(&entries).unwrap();
    let mut changed = good.clone();
    changed[9] ^= 1;
    for bytes in [&changed[..], &good[..20]] {
        std::fs::write(&entries, bytes).unwrap();
        let look = auditor.look().await;
        assert_eq!(look.code, 2);
        assert!(
            look.errors.contains("start with an empty folder"),
            "{}",
            look.errors
        );
    }
    std::fs::write(&entries, &good).unwrap();
    assert_eq!(auditor.look().await.code, 0);
    std::fs::write(auditor.path("monitor/state.json"), "{}").unwrap();
    assert_eq!(auditor.look().await.code, 2);
}
