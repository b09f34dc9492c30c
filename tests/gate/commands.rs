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
