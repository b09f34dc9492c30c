//! `onrecord bench`: what it counts is what the server has.

use crate::running::Server;
use serde_json::{Value, json};
use sqlx::Row as _;
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

async fn bench(url: &str, token: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onrecord"));
    command
        .args(["bench", "--url", url])
        .args(args)
        .env_clear()
        .env("ONRECORD_TOKEN", token)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command.output().await.unwrap()
}

/// The document that a bench printed, which must be all.
fn document(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn named<'a>(document: &'a Value, list: &str, name: &str) -> &'a Value {
    let list = document[list].as_array().unwrap();
    let found = list.iter().find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is in {list:?}"))
}

fn is_spread(value: &Value) -> bool {
    let part = |name: &str| value[name].as_f64();
    let (Some(min), Some(median), Some(max)) = (part("min"), part("median"), part("max")) else {
        return false;
    };
    min <= median && median <= max
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_in_the_runs() {
    let server = Server::start().await;
    let token = server.api.token.clone().unwrap();
    let args = [
        ["--seconds", "0.3", "--rounds", "2", "--connections", "3"],
        ["--runs", "5", "--batch", "7", "--payload-bytes", "2048"],
    ];
    let args = [
        &args.concat()[..],
        &[
            "--json",
            "--baseline",
            "--database-url",
            &server.database.url,
        ],
    ];
    let output = bench(&server.api.base, &token, &args.concat()).await;
    let document = document(&output);

    let mut acked = 0;
    for (name, runs, frames) in [
        ("single_hot_run", 1, 1),
        ("single_many_runs", 5, 1),
        ("batch", 3, 7),
        ("payload", 3, 7),
        ("lone", 1, 1),
    ] {
        let one = named(&document, "workloads", name);
        assert_eq!(one["runs"], runs, "{name}");
        assert_eq!(one["frames_per_request"], frames, "{name}");
        assert_eq!(one["rounds"].as_array().unwrap().len(), 2, "{name}");
        assert_eq!(
            (&one["refused"], &one["errors"]),
            (&json!({}), &json!({})),
            "{name}"
        );
        assert!(one["acked"].as_u64().unwrap() > 0, "{name}");
        assert_eq!(one["acked"], one["held"], "{name}");
        acked += one["acked"].as_u64().unwrap();
        for spread in [
            &one["frames_per_second"],
            &one["latency_ms"]["p50"],
            &one["latency_ms"]["p99"],
            &one["latency_ms"]["p99_9"],
            &one["bytes_per_frame"]["frame"],
            &one["bytes_per_frame"]["stored"],
            &one["bytes_per_frame"]["wal"],
        ] {
            assert!(is_spread(spread), "{name}: {one}");
        }
        // The server's process is not known, for it was not started here.
        assert!(one["cpu_us_per_frame"]["server"].is_null(), "{name}");
        // Numbers of later frames have up to five digits more than that of the frame that was tried.
        let bytes = one["bytes_per_frame"]["frame"]["max"].as_f64().unwrap();
        assert!((1024.0..=1029.0).contains(&bytes), "{name}: {bytes}");
    }
    for name in [
        "raw_single",
        "raw_lone",
        "raw_batch",
        "raw_payload",
        "trigger_hot_run",
        "trigger_many_runs",
    ] {
        let one = named(&document, "baselines", name);
        assert!(
            ["pgbench", "own loop"].contains(&one["by"].as_str().unwrap()),
            "{name}"
        );
        assert!(
            is_spread(&one["frames_per_second"]) && is_spread(&one["latency_ms"]["p99"]),
            "{name}: {one}"
        );
    }
    let ratios = document["ratios"].as_object().unwrap();
    assert_eq!(ratios.len(), 9, "{ratios:?}");
    assert!(ratios.contains_key("batch7_vs_raw_batch") && ratios.contains_key("payload_2k_vs_raw"));
    assert!(ratios.values().all(Value::is_number), "{ratios:?}");

    // Beside those frames each run has its session, its turn and the end of that; two had two tries each.
    let mut connection = server.sql().await;
    let row = sqlx::query("select count(*), sum(size)::bigint, count(sealed_at) from runs")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let (runs, size, sealed): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(runs, 2 * (1 + 5 + 3 + 3 + 1) + 2);
    assert_eq!(sealed, runs, "all are sealed");
    assert_eq!(size.unsigned_abs(), acked + 3 * runs.unsigned_abs() + 4);
    let left: i64 = sqlx::query_scalar(
        "select count(*) from pg_database where datname like 'onrecord\\_bench%'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(left, 0, "the database for plain rows is dropped");
}

/// A server that answers as it pleases, and counts how.
#[derive(Default)]
struct Moody {
    /// Load requests of one frame, and of many.
    asked: Mutex<(u64, u64)>,
    told: Mutex<BTreeMap<&'static str, u64>>,
    /// The last frame's length.
    posted: Mutex<usize>,
    /// Whether what was acknowledged is not there when somebody looks.
    forgets: bool,
}

const RUN: &str = "01M8N005FDHQ6P3YBYZVPD1PVM";

impl Moody {
    async fn start(self) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let moody = Arc::new(self);
        let shared = Arc::clone(&moody);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let moody = Arc::clone(&shared);
                tokio::spawn(async move { moody.serve(BufReader::new(stream)).await });
            }
        });
        (moody, url)
    }

    fn count(&self, what: &'static str, frames: u64) {
        *self.told.lock().unwrap().entry(what).or_default() += frames;
    }

    fn counted(&self, what: &str) -> u64 {
        self.told.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    async fn serve(&self, mut stream: BufReader<TcpStream>) {
        loop {
            let (mut head, mut line) = (String::new(), String::new());
            while line != "\r\n" {
                line.clear();
                if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return;
                }
                head.push_str(&line.to_lowercase());
            }
            let length = head.split("content-length: ").nth(1);
            let length = length.map_or(0, |rest| {
                rest.split("\r\n").next().unwrap().parse().unwrap()
            });
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            let Some(answer) = self.answer(&head, &String::from_utf8(body).unwrap()) else {
                return;
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// The answer to a request; `None` where the connection is closed without one.
    fn answer(&self, head: &str, body: &str) -> Option<String> {
        let with = |status: &str, body: String| {
            Some(format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
        };
        let receipt = || json!({"run": RUN, "seq": 1}).to_string();
        if head.starts_with("get /v1/runs/") && head.contains("/frames/") {
            let frame = json!({"frame": "x".repeat(*self.posted.lock().unwrap() + 200)});
            return with("200 OK", frame.to_string());
        }
        if head.starts_with("get ") {
            let size = if self.forgets {
                2
            } else {
                2 + self.counted("single") + self.counted("line")
            };
            return with(
                "200 OK",
                json!({"size": size, "bytes": size * 1024}).to_string(),
            );
        }
        if head.contains("ndjson") {
            return Some(self.lines(body));
        }
        let key = body.split("\"key\":\"").nth(1).unwrap_or("");
        if !head.contains("/frames ") || key.starts_with("turn/") || key.starts_with("size") {
            *self.posted.lock().unwrap() = body.len();
            return with("201 Created", receipt());
        }
        let turn = {
            let mut asked = self.asked.lock().unwrap();
            asked.0 += 1;
            asked.0 % 5
        };
        match turn {
            1 => {
                self.count("busy", 1);
                with("503 Busy", r#"{"status":503,"code":"busy"}"#.to_owned())
            }
            2 => {
                self.count("closed", 1);
                None
            }
            3 => {
                self.count("retry", 1);
                with("200 OK", receipt())
            }
            _ => {
                self.count("single", 1);
                with("201 Created", receipt())
            }
        }
    }

    /// An answer to many: a line of three is refused, and each other answer lacks its end.
    fn lines(&self, body: &str) -> String {
        let is_cut = {
            let mut asked = self.asked.lock().unwrap();
            asked.1 += 1;
            asked.1.is_multiple_of(2)
        };
        let mut answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        let lines = body.lines().count();
        for number in 0..lines {
            let line = if is_cut && number >= 4 {
                self.count("unanswered", 1);
                continue;
            } else if number % 3 == 2 {
                self.count("conflict", 1);
                json!({"status": 409, "problem": {"status": 409, "code": "key_conflict"}})
            } else {
                self.count("line", 1);
                json!({"status": 201, "run": RUN, "seq": number})
            };
            answer.push_str(&format!("{:x}\r\n{line}\n\r\n", line.to_string().len() + 1));
        }
        answer.push_str("0\r\n\r\n");
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_acknowledged_is_counted_by_its_name() {
    let (moody, url) = Moody::default().start().await;
    let args = [
        &[
            "--seconds",
            "0.3",
            "--rounds",
            "1",
            "--connections",
            "2",
            "--batch",
            "6",
            "--json",
        ][..],
        &["--workload", "single_hot_run", "--workload", "batch"],
    ];
    let output = bench(&url, "token", &args.concat()).await;
    let document = document(&output);
    let single = named(&document, "workloads", "single_hot_run");
    let count = |name: &str| moody.counted(name);
    assert!(
        count("single") > 0 && count("unanswered") > 0,
        "{:?}",
        moody.told
    );
    assert_eq!(single["acked"], count("single"));
    assert_eq!(
        single["refused"],
        json!({"200": count("retry"), "503 busy": count("busy")})
    );
    assert_eq!(
        single["errors"],
        json!({"closed before the end of an answer": count("closed")})
    );
    let batch = named(&document, "workloads", "batch");
    assert_eq!(batch["acked"], count("line"));
    assert_eq!(
        batch["refused"],
        json!({"200 (lines without an answer)": count("unanswered"), "409 key_conflict": count("conflict")})
    );
    assert_eq!(batch["errors"], json!({}));
    assert!(batch["cpu_us_per_frame"]["postgres"].is_null());
    assert!(batch["bytes_per_frame"]["stored"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_is_found_out() {
    let moody = Moody {
        forgets: true,
        ..Moody::default()
    };
    let (_, url) = moody.start().await;
    let args = ["--seconds", "0.1", "--rounds", "1", "--workload", "batch"];
    let output = bench(&url, "token", &args).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the server loses evidence"), "{errors}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("batch: refused: 409 key_conflict: "),
        "{table}"
    );
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{line:?} fits a terminal");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_measured_is_told() {
    let (_, url) = Moody::default().start().await;
    for (args, code, words) in [
        (&["--batch", "1"][..], 2, "1 is not in 2..=1000"),
        (&["--seconds", "0"], 2, "not a number from 0.05 to 3600"),
        (&["--seconds", "nan"], 2, "not a number from 0.05 to 3600"),
        (
            &["--frame-bytes", "70000"],
            2,
            "not a number from 1 to 65536",
        ),
        (
            &["--workload", "fast"],
            2,
            "single_hot_run, single_many_runs, batch, payload, lone",
        ),
        (
            &["--batch", "1000", "--payload-bytes", "100000"],
            1,
            "a request of more than 64 MiB",
        ),
        (&["--baseline"], 1, "--baseline needs --database-url"),
        (&["--frame-bytes", "100"], 1, "--frame-bytes must be "),
        (
            &["--database-url", "postgres://nobody@127.0.0.1:1/none"],
            1,
            "no answer from PostgreSQL at 127.0.0.1:1",
        ),
    ] {
        let output = bench(&url, "token", args).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let encrypted = bench(&url.replace("http", "https"), "token", &[]).await;
    let errors = String::from_utf8_lossy(&encrypted.stderr);
    assert!(errors.contains("plain HTTP only"), "{errors}");
    let server = Server::start().await;
    let refused = bench(&server.api.base, "onr_000000000000_none", &[]).await;
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("unauthenticated") || errors.contains("token"),
        "{errors}"
    );
}
