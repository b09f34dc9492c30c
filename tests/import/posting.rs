//! Posting over HTTP: once, again, and when something breaks.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use onrecord::cli::import::{Choice, Done, ImportArgs, Report, Screen, Status, import};
use onrecord::client::Client;
use serde_json::{Value, json};

use crate::fake::{self, Run};
use crate::{SESSION, fixture};

fn args(files: &[PathBuf], seal: bool) -> ImportArgs {
    ImportArgs {
        format: Choice::Auto,
        files: files.to_vec(),
        seal,
        json: true,
        strict: false,
        session: None,
    }
}

async fn run(client: &Client, args: &ImportArgs) -> Vec<Done> {
    let mut done = Vec::new();
    import(args, client, &Screen::new(true), |one| done.push(one)).await;
    done
}

pub async fn reports(client: &Client, files: &[PathBuf], seal: bool) -> Vec<Report> {
    let done = run(client, &args(files, seal)).await;
    done.into_iter().map(Result::unwrap).collect()
}

fn sent(run: &Run, key: &str) -> Value {
    let found = run.frames.iter().find(|frame| frame.0 == key);
    serde_json::from_str(&found.unwrap_or_else(|| panic!("no {key} in {}", run.id)).1).unwrap()
}

fn hash<'a>(run: &'a Run, key: &str) -> &'a str {
    &run.frames.iter().find(|frame| frame.0 == key).unwrap().2
}

#[tokio::test]
async fn a_session_and_its_subagents_become_runs_that_point_to_each_other() {
    let (fake, client) = fake::start().await;
    let reports = reports(&client, &[fixture(SESSION)], true).await;
    let runs = fake.runs.lock().unwrap().clone();
    assert_eq!(
        runs.len(),
        4,
        "the session, one subagent in its file, two beside it"
    );
    assert!(runs.iter().all(|run| run.sealed));
    assert_eq!(reports.len(), 3);
    let session = reports.last().unwrap();
    assert_eq!(
        (session.run.as_str(), session.sidechains.len()),
        ("run-0", 1)
    );
    assert_eq!(
        session.frames,
        (runs[0].frames.len() + runs[1].frames.len()) as u64
    );
    assert_eq!(
        session.seal,
        Some(json!({"run": "run-0", "size": runs[0].frames.len()}))
    );
    // Both directions, to the call where it is known and to the opening where it is not.
    for (child, pointer, from) in [
        (1, "subagent/line%2F14/line/13/call/1", "line/13/call/1"),
        (2, "subagent/a51f0e2/line/19/call/1", "line/19/call/1"),
        (3, "subagent/b77c310/session", "session"),
    ] {
        let child = &runs[child];
        let start = if from == "session" {
            &runs[0].frames[0].2
        } else {
            hash(&runs[0], from)
        };
        let spawned = sent(child, &format!("spawned-by/{from}"));
        assert_eq!(
            spawned["links"],
            json!([{"rel": "derived_from", "run": "run-0", "hash": start}])
        );
        let pointer = sent(&runs[0], pointer);
        assert_eq!(
            pointer["links"][0],
            json!({"rel": "caused", "run": child.id, "hash": child.frames[0].2})
        );
    }
    assert_eq!(reports[0].parent.as_deref(), Some("run-0"));
}

#[tokio::test]
async fn a_second_import_changes_nothing_even_after_sealing() {
    let (fake, client) = fake::start().await;
    let files = [
        fixture(SESSION),
        fixture("swe/functions.traj"),
        fixture("swe/text-actions.traj"),
    ];
    let first = reports(&client, &files, true).await;
    let before: Vec<_> = fake
        .runs
        .lock()
        .unwrap()
        .iter()
        .map(|run| run.frames.clone())
        .collect();
    let second = reports(&client, &files, true).await;
    let after: Vec<_> = fake
        .runs
        .lock()
        .unwrap()
        .iter()
        .map(|run| run.frames.clone())
        .collect();
    assert_eq!(before, after);
    for (first, second) in first.iter().zip(&second) {
        assert_eq!((first.already, second.already), (0, second.frames));
        assert_eq!((&first.run, first.frames), (&second.run, second.frames));
        assert!(second.seal.is_some());
    }
}

fn write(path: &Path, lines: &[&str], cut: &str) {
    std::fs::write(path, format!("{}\n{cut}", lines.join("\n"))).unwrap();
}

#[tokio::test]
async fn a_session_that_grew_goes_on_where_it_was() {
    let (fake, client) = fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.jsonl");
    let text = std::fs::read_to_string(fixture(SESSION)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    write(&path, &lines[..12], &lines[12][..30]);
    let half = reports(&client, std::slice::from_ref(&path), false)
        .await
        .remove(0);
    assert_eq!(
        (half.status, half.records, half.left_out_bytes),
        (Status::Torn, 12, 30)
    );
    write(&path, &lines, "");
    let whole = reports(&client, std::slice::from_ref(&path), true)
        .await
        .remove(0);
    assert_eq!(
        (whole.status, whole.already, &whole.run),
        (Status::Complete, half.frames, &half.run)
    );
    // The same frames as if it had been imported at once.
    let (other, fresh) = fake::start().await;
    reports(&fresh, std::slice::from_ref(&path), true).await;
    let keys = |fake: &fake::Fake| -> Vec<Vec<(String, String)>> {
        let runs = fake.runs.lock().unwrap();
        runs.iter()
            .map(|run| {
                run.frames
                    .iter()
                    .map(|frame| (frame.0.clone(), frame.1.clone()))
                    .collect()
            })
            .collect()
    };
    assert_eq!(keys(&fake), keys(&other));
    // A sealed run takes nothing more, and the import says so.
    write(&path, &[&lines[..], &[lines[3]]].concat(), "");
    let refused = run(&client, &args(std::slice::from_ref(&path), true))
        .await
        .remove(0)
        .unwrap_err()
        .1;
    assert!(
        refused.contains("grown since its run was sealed") && refused.contains("line/38"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_file_that_was_changed_is_refused() {
    let (_fake, client) = fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changes.jsonl");
    let text = std::fs::read_to_string(fixture(SESSION)).unwrap();
    std::fs::write(&path, &text).unwrap();
    reports(&client, std::slice::from_ref(&path), false).await;
    std::fs::write(&path, text.replace("off by one cent", "off by two cents")).unwrap();
    let refused = run(&client, &args(std::slice::from_ref(&path), false))
        .await
        .remove(0)
        .unwrap_err()
        .1;
    assert!(
        refused.contains("not what it was") && refused.contains("`line/4`"),
        "{refused}"
    );
    // Under a session of another name it is a run of its own.
    let named = ImportArgs {
        session: Some("other".to_owned()),
        ..args(&[path], false)
    };
    assert_eq!(run(&client, &named).await.remove(0).unwrap().already, 0);
}

#[tokio::test]
async fn a_broken_connection_loses_and_doubles_nothing() {
    let (fake, client) = fake::start().await;
    fake.cuts.store(2, Ordering::SeqCst);
    fake.refusals.store(2, Ordering::SeqCst);
    let report = reports(&client, &[fixture("swe/functions.traj")], false)
        .await
        .remove(0);
    let runs = fake.runs.lock().unwrap();
    assert_eq!(
        (runs.len(), runs[0].frames.len() as u64),
        (1, report.frames)
    );
    assert_eq!(
        fake.requests.load(Ordering::SeqCst),
        6,
        "two refused, one opening, two cut, one whole"
    );
}

#[tokio::test]
async fn one_file_that_fails_does_not_stop_the_others() {
    let (_fake, client) = fake::start().await;
    let files = [
        fixture("not-a-transcript.json"),
        fixture("missing.jsonl"),
        fixture("swe/history-only.traj"),
    ];
    let done = run(&client, &args(&files, false)).await;
    assert!(
        done[0]
            .as_ref()
            .unwrap_err()
            .1
            .contains("none of the formats")
    );
    assert!(done[1].is_err());
    assert_eq!(done[2].as_ref().unwrap().unmapped, 1);
}

#[tokio::test]
async fn of_a_folder_the_transcripts_are_taken_and_nothing_else() {
    let (fake, client) = fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("deep");
    std::fs::create_dir(&deep).unwrap();
    for (from, to) in [
        ("not-a-transcript.json", "notes.json"),
        ("swe/history-only.traj", "deep/one.traj"),
        ("chat/openai-list.json", "deep/chat.json"),
    ] {
        std::fs::copy(fixture(from), folder.path().join(to)).unwrap();
    }
    std::os::unix::fs::symlink(fixture("swe/functions.traj"), deep.join("outside.traj")).unwrap();
    let done = run(&client, &args(&[folder.path().to_owned()], false)).await;
    let taken: Vec<_> = done
        .iter()
        .map(|done| &done.as_ref().unwrap().file)
        .collect();
    assert_eq!(taken, [&deep.join("one.traj")]);
    assert_eq!(fake.runs.lock().unwrap().len(), 1);
}
