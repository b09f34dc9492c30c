//! `onrecord gate -- COMMAND` where the command leaves something behind that is in the way.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::recording::{Place, err};

/// The command ends, and what it started prints for ever: nobody has to wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_running_is_not_waited_for_longer_than_wanted() {
    let place = Place::new().await;
    // It prints from when the command is gone.
    let script = "main=$$; (while kill -0 $main 2>/dev/null; do sleep 0.05; done; \
                  while :; do echo left; sleep 0.1; done) & exit 0";
    let mut child = place
        .gate(&["--name", "server", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("left"));
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let body = place.last().await["body"].clone();
    assert_eq!(
        (&body["verdict"], &body["notices"]),
        (&json!("pass"), &json!(["output_left_open"]))
    );
}

/// What never ends is no report, whatever stands in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_or_a_device_is_no_report() {
    let place = Place::new().await;
    for script in [
        "mkfifo r.xml",
        "ln -sf /dev/zero r.xml",
        "rm r.xml; mkdir r.xml",
    ] {
        let arguments = ["--name", "r", "--report", "r.xml", "--", "sh", "-c", script];
        let done = place.gate(&arguments).output().await.unwrap();
        assert_eq!(done.status.code(), Some(0), "{script}: {}", err(&done));
        let body = place.last().await["body"].clone();
        assert_eq!(
            (&body["verdict"], &body["notices"]),
            (&json!("error"), &json!(["no_report"])),
            "{script}"
        );
    }
}

/// What was tested is the candidate only as long as it stays what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_changes_meanwhile_was_not_tested() {
    let place = Place::new().await;
    let file = place.file("app", "one");
    let run = place.run.run.to_string();
    let tree = place.folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@example"];
        let mut command = std::process::Command::new("git");
        let done = command
            .current_dir(&tree)
            .args(who)
            .args(arguments)
            .output();
        assert!(done.unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    std::fs::write(tree.join("a"), "one").unwrap();
    git(&["add", "a"]);
    git(&["commit", "-q", "-m", "first"]);
    git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    for (candidate, script, verdict) in [
        (["--candidate-file", &file], "true", "pass"),
        (["--candidate-file", &file], "echo two > ../app", "error"),
        (["--candidate-file", &file], "rm ../app", "error"),
        (
            ["--candidate", "HEAD"],
            "echo new > made; echo 1 passed in 1s",
            "pass",
        ),
        (
            ["--candidate", "HEAD"],
            "git checkout -q --detach HEAD~1",
            "error",
        ),
        (
            ["--candidate", "HEAD"],
            "echo two > a; echo 1 passed in 1s",
            "error",
        ),
    ] {
        let name = [["--run", &run], ["--name", "c"]].concat();
        let mut command =
            place.command(&[&name, &candidate[..], &["--", "sh", "-c", script]].concat());
        let done = command.current_dir(&tree).output().await.unwrap();
        assert_eq!(done.status.code(), Some(0), "{script}: {}", err(&done));
        let body = place.last().await["body"].clone();
        assert_eq!(body["verdict"], verdict, "{script}: {body}");
        let changed = body["notices"] == json!(["candidate_changed"]);
        assert_eq!(changed, verdict == "error", "{script}: {body}");
        if script.contains("new > made") {
            std::fs::remove_file(tree.join("made")).unwrap();
        }
    }
}

/// An exit code does not make a log of what should have been a report; and other slips are told.
#[tokio::test(flavor = "multi_thread")]
async fn slips_are_told() {
    let place = Place::new().await;
    let empty = place.file("empty.xml", "\n");
    let begun = place.file("begun.xml", "<?xml version='1.0'?>");
    let page = place.file("page.xml", "<html>502</html>");
    let good = place.file("good.xml", "<testsuite><testcase/></testsuite>");
    for (arguments, why) in [
        (vec!["--exit", "0", &empty], "it is empty"),
        (vec!["--exit", "0", &good, &begun], "cut off before"),
        (vec!["--exit", "0", &page], "<html>"),
        (vec![&good, &good], "is given twice"),
        (vec!["cargo", "test"], "after `--`"),
    ] {
        let done = place.gate(&arguments).output().await.unwrap();
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {}", err(&done));
        assert!(err(&done).contains(why), "{arguments:?}: {}", err(&done));
    }
    let said = place
        .recorded(&["--name", "e", "--format", "plain", "--exit", "0", &empty])
        .await;
    assert_eq!(said["verdict"], "pass");
}
