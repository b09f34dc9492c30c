//! Commands that a gate runs.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_passed_on_and_recorded() {
    let place = Place::new().await;
    let script = "printf 'to out\\377\\n'; printf 'to err' >&2; exit 7";
    let done = place
        .gate(&["--name", "s", "--", "sh", "-c", script])
        .output()
        .await
        .unwrap();
    assert_eq!(done.status.code(), Some(7), "the command's own");
    assert_eq!(done.stdout, b"to out\xff\n");
    assert!(done.stderr.starts_with(b"to err"), "{}", err(&done));
    let frame = place.last().await;
    let body = &frame["body"];
    assert_eq!(
        (&body["verdict"], &body["exit"], &body["format"]),
        (&json!("fail"), &json!(7), &json!("plain"))
    );
    // What is judged has no token to write its own verdict with.
    let mut asked = place.gate(&[
        "--name",
        "t",
        "--",
        "sh",
        "-c",
        "echo ${ONRECORD_TOKEN-none}",
    ]);
    assert_eq!(asked.output().await.unwrap().stdout, b"none\n");
    // Each run is an attempt, the same or not.
    let second = place
        .gate(&["--name", "s", "--fail", "--", "true"])
        .output()
        .await
        .unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", err(&second));
    let passed = place.last().await;
    assert_eq!(
        (&passed["body"]["attempt"], &passed["body"]["verdict"]),
        (&json!(2), &json!("pass"))
    );
    let bundle = place.sealed().await;
    assert_eq!(payload(&bundle, &frame, "stdout"), b"to out\xff\n");
    assert_eq!(payload(&bundle, &frame, "stderr"), b"to err");
    starts(
        payload(&bundle, &frame, "command"),
        br#"{"argv":["sh","-c","#,
    );
    starts(
        payload(&bundle, &frame, "order"),
        br#"{"more":false,"pieces":[["std"#,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_prints_and_writes_is_read() {
    let place = Place::new().await;
    let good = "<testsuite><testcase name=\"a\"/></testsuite>";
    let bad = "<testsuite><testcase name=\"a\"><failure/></testcase></testsuite>";
    for (name, arguments, script, verdict, code, disagrees) in [
        (
            "printed",
            vec![],
            "echo 3 passed in 0.1s".to_owned(),
            "pass",
            0,
            false,
        ),
        (
            "printed",
            vec![],
            "echo 3 passed in 0.1s; exit 1".to_owned(),
            "fail",
            1,
            true,
        ),
        (
            "printed",
            vec![],
            "echo 1 failed in 0.1s".to_owned(),
            "fail",
            0,
            true,
        ),
        (
            "printed",
            vec!["--fail"],
            "echo 1 failed in 0.1s".to_owned(),
            "fail",
            2,
            true,
        ),
        (
            "to err",
            vec![],
            "echo error: could not compile \\`x\\` >&2; exit 101".to_owned(),
            "error",
            101,
            false,
        ),
        (
            "written",
            vec!["--report", "r.xml"],
            format!("echo '{good}' > r.xml"),
            "pass",
            0,
            false,
        ),
        // The report of the run before is no report of this one.
        (
            "written",
            vec!["--report", "r.xml"],
            "true".to_owned(),
            "error",
            0,
            false,
        ),
        (
            "written",
            vec!["--report", "r.xml"],
            format!("echo '{bad}' > r.xml"),
            "fail",
            0,
            true,
        ),
        (
            "none",
            vec!["--report", "none.xml"],
            "true".to_owned(),
            "error",
            0,
            false,
        ),
        (
            "odd",
            vec!["--report", "odd.txt"],
            "echo hello > odd.txt".to_owned(),
            "error",
            0,
            false,
        ),
        (
            "killed",
            vec![],
            "kill -KILL $$".to_owned(),
            "error",
            137,
            false,
        ),
    ] {
        let arguments = [
            &["--name", name][..],
            &arguments,
            &["--", "sh", "-c", &script],
        ]
        .concat();
        let done = place.gate(&arguments).output().await.unwrap();
        assert_eq!(done.status.code(), Some(code), "{script}: {}", err(&done));
        let body = place.last().await["body"].clone();
        assert_eq!(body["verdict"], verdict, "{script}: {body}");
        assert_eq!(body["disagrees"] == true, disagrees, "{script}: {body}");
    }
    let frames = place.frames().await;
    assert_eq!(
        frames[6]["payloads"].as_array().unwrap().len(),
        2,
        "command and report: {}",
        frames[6]
    );
    assert_eq!(frames[11]["body"]["signal"], "SIGKILL");
    place.sealed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_the_commands_and_the_verdict_an_error() {
    let place = Place::new().await;
    let script = "trap 'echo ended; exit 0' INT; echo begun; while :; do sleep 0.05; done";
    let mut child = place
        .gate(&["--name", "i", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ended"));
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let body = place.last().await["body"].clone();
    assert_eq!(
        (&body["verdict"], &body["signal"], &body["exit"]),
        (&json!("error"), &json!("SIGINT"), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_kept_and_recorded_later() {
    let place = Place::new().await;
    // The agent's token may post parts and no verdict.
    let script = "yes evidence | head -c 9000000; exit 5";
    let arguments = ["--name", "late", "--actor", "ci", "--", "sh", "-c", script];
    let done = place
        .gate(&arguments)
        .env("ONRECORD_TOKEN", place.agent.token.as_deref().unwrap())
        .output()
        .await
        .unwrap();
    assert_eq!(done.status.code(), Some(125), "{}", err(&done));
    assert_eq!(done.stdout.len(), 9_000_000);
    let text = err(&done);
    let folder = text.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(
        text.contains("actor_not_yours") && Path::new(&folder).join("stdout").exists(),
        "{text}"
    );
    for fail in [0, 1] {
        let mut again = place.command(&["--json", "--resume", &folder]);
        let done = again.output().await.unwrap();
        assert_eq!(done.status.code(), Some(fail), "{}", err(&done));
    }
    let frame = place.last().await;
    let body = &frame["body"];
    assert_eq!(
        (&body["verdict"], &body["exit"], &body["attempt"]),
        (&json!("fail"), &json!(5), &json!(1))
    );
    assert_eq!(frame["links"].as_array().unwrap().len(), 2);
    assert!(
        !Path::new(&folder).exists(),
        "it is removed when it is recorded"
    );
    place.sealed().await;
}
