//! `onrecord query`, as people and scripts run it against a server.

use crate::command_line::{output, printed, sealed_run};
use crate::running::Server;
use serde_json::{Value, json};

/// What a command says as it fails.
async fn refused(server: &Server, args: &[&str]) -> String {
    let output = output(server, args).await;
    assert!(!output.status.success(), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_frames_are_asked_for_in_each_format() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let other = server.api.any_run().await.run.to_string();
    let ask = ["query", "runs", "--purpose", "case-7"];
    let with = |more: &[&'static str]| [&ask[..], more].concat();

    let table = printed(&server, &ask).await;
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("NO  RUN") && lines.len() == 3,
        "{table}"
    );
    assert!(
        lines[1].contains(&other) && lines[2].contains(&run),
        "{table}"
    );
    let failed = ["--filter", "outcome = failed"];
    let table = printed(&server, &with(&failed)).await;
    assert!(table.contains(&run) && !table.contains(&other), "{table}");

    let json = printed(&server, &with(&["--format", "json"])).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    assert_eq!(json["runs"][1]["run"], run);
    let lines = printed(&server, &with(&["--format", "ndjson"])).await;
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (lines.len(), &lines[1]["run"]),
        (3, &json["runs"][1]["run"])
    );
    assert_eq!(lines[2], json!({"end": {"rows": 2}}));
    let csv = printed(&server, &with(&["--format", "csv"])).await;
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.lines().nth(2).unwrap().contains(&run), "{csv}");

    // A file is there when it is whole.
    let folder = tempfile::tempdir().unwrap();
    for (format, option) in [
        ("table", "--output"),
        ("json", "-o"),
        ("csv", "--out"),
        ("parquet", "--output"),
    ] {
        let file = folder.path().join(format);
        let path = file.to_str().unwrap();
        let args = ["--format", format, option, path];
        let done = output(&server, &[&ask[..], &args].concat()).await;
        assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
        let bytes = std::fs::read(&file).unwrap();
        match format {
            "csv" => assert_eq!(bytes, csv.as_bytes()),
            "parquet" => assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")),
            _ => assert!(String::from_utf8(bytes).unwrap().contains(&run)),
        }
    }

    let frames = [
        "query",
        "frames",
        "--purpose",
        "case-7",
        "--filter",
        "tool = \"shell\"",
    ];
    let table = printed(&server, &frames).await;
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("AT (UTC)") && lines.len() == 2,
        "{table}"
    );
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[2..6], [&run[..], "2", "tool_call", "shell"]);

    let counted =
        |more: &[&'static str]| [&["query", "frames", "--purpose", "case-7"], more].concat();
    let table = printed(&server, &counted(&["--count"])).await;
    assert_eq!(table, "COUNT\n8\n");
    let by_agent = [
        "--by",
        "kind",
        "--filter",
        "run.agent = \"coder\" and kind in (turn, outcome)",
    ];
    let table = printed(&server, &counted(&by_agent)).await;
    let mut lines: Vec<&str> = table.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["kind     COUNT", "outcome  1", "turn     1"]);
    let csv = [&by_agent[..], &["--format", "csv"]].concat();
    let csv = printed(&server, &counted(&csv)).await;
    assert!(
        csv.starts_with("kind,count\r\n") && csv.lines().count() == 3,
        "{csv}"
    );
    let days = printed(&server, &counted(&["--by", "day"])).await;
    let day = days.lines().nth(1).unwrap();
    assert!(day.find(' ') == Some(10) && day.ends_with("  8"), "{days}");

    // A table says that there is more; who asks for nothing that is there is told so.
    let first = output(&server, &with(&["--limit", "1"])).await;
    let told = String::from_utf8(first.stderr).unwrap();
    assert!(told.contains("there are more"), "{told}");
    let none = output(&server, &with(&["--filter", "size > 999"])).await;
    assert!(none.status.success() && none.stdout.is_empty());
    assert_eq!(String::from_utf8(none.stderr).unwrap(), "no such runs\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_with_its_place() {
    let server = Server::start().await;
    let ask = ["query", "runs", "--purpose", "case-7"];
    let with = |more: &[&'static str]| [&ask[..], more].concat();
    let told = refused(
        &server,
        &with(&["--filter", "size > 3 and status = closed"]),
    )
    .await;
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[0].starts_with("error: the filter is wrong: expected one of open"),
        "{told}"
    );
    assert_eq!(lines[1], "  size > 3 and status = closed");
    assert_eq!(lines[2].find('^'), lines[1].find("closed"), "{told}");
    let save = ["query", "save", "x", "runs", "--filter", "colour = 1"];
    let told = refused(&server, &save).await;
    assert_eq!(told.lines().nth(2).unwrap(), "  ^", "{told}");

    for (more, said) in [
        (
            &["--format", "csv", "--limit", "3"][..],
            "--limit is for a table",
        ),
        (&["--saved", "nothing"], "onrecord query saved"),
        (&["--saved", "two words"], "a code of 1 to 64"),
    ] {
        let told = refused(&server, &with(more)).await;
        assert!(told.contains(said), "{told}");
    }
    let told = refused(&server, &["query", "runs", "--purpose", "two words"]).await;
    assert!(told.contains("a code of 1 to 64"), "{told}");
    let without = output(&server, &["query", "runs"]).await;
    assert_eq!(without.status.code(), Some(2));
    let told = String::from_utf8(without.stderr).unwrap();
    assert!(told.contains("--purpose <CODE>"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_saved_and_what_was_asked_is_listed() {
    let server = Server::start().await;
    let run = sealed_run(&server).await;
    let save = |name: &'static str, filter: &'static str| {
        let server = &server;
        async move {
            let args = ["query", "save", name, "runs", "--filter", filter];
            let done = output(server, &args).await;
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stderr).unwrap()
        }
    };
    assert_eq!(
        save("failed", "outcome = completed").await,
        "kept as failed; --saved failed asks with it\n"
    );
    let again = save("failed", "outcome = failed").await;
    assert!(again.contains("in place of what was kept there"), "{again}");
    save("open", "status = open").await;
    let list = printed(&server, &["query", "saved"]).await;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[1].starts_with("failed  runs  ") && lines[1].ends_with("  outcome = failed"));
    assert_eq!(lines.len(), 3, "{list}");
    let list = printed(&server, &["query", "saved", "--json"]).await;
    assert_eq!(list.lines().count(), 2);

    let ask = ["query", "runs", "--purpose", "case-7", "--saved", "failed"];
    assert!(printed(&server, &ask).await.contains(&run));
    let told = refused(
        &server,
        &[
            "query",
            "frames",
            "--purpose",
            "case-7",
            "--saved",
            "failed",
        ],
    )
    .await;
    assert!(told.contains("this is one of runs"), "{told}");
    let csv = ["query", "runs", "--purpose", "case-8", "--format", "csv"];
    printed(&server, &csv).await;

    let log = printed(&server, &["query", "log"]).await;
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with("INDEX  AT (UTC)"), "{log}");
    assert!(
        lines[1].contains("  case-8   runs  everything as csv"),
        "{log}"
    );
    assert!(
        lines[2].ends_with("  case-7   runs  [failed] outcome = failed"),
        "{log}"
    );
    assert_eq!(lines.len(), 3, "{log}");
    let log = printed(&server, &["query", "log", "--json", "--limit", "1"]).await;
    let last: Value = serde_json::from_str(&log).unwrap();
    let index = last["index"].to_string();
    let removed = output(&server, &["query", "log", "--remove", &index]).await;
    assert!(removed.status.success(), "{removed:?}");
    let log = printed(&server, &["query", "log", "--json"]).await;
    assert_eq!(log.lines().count(), 1, "{log}");

    let gone = output(&server, &["query", "forget", "open"]).await;
    assert!(gone.status.success());
    let told = refused(&server, &["query", "forget", "open"]).await;
    assert!(told.contains("no query is saved as open"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_breaks_off_is_not_taken_for_whole() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run;
    // More than are read at once.
    let lines =
        (0..1_100).map(|n| format!("{}\n", json!({"kind": "observation", "body": {"n": n}})));
    server.api.frames(&run, lines.collect::<String>()).await;
    // Of a row that comes late the database says what cannot be.
    let mut owner = server.sql().await;
    let sql = format!(
        "alter table frames disable trigger all; update frames set verdict = 99 where run = run_uuid('{run}') and seq = 3"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&mut owner)
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    for format in ["ndjson", "csv", "parquet"] {
        let path = format!("/v1/frames?purpose=case-7&format={format}");
        let request = server.api.request(reqwest::Method::GET, &path);
        let mut answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{format}");
        let mut file = Vec::new();
        let whole = loop {
            match answer.chunk().await {
                Ok(Some(chunk)) => file.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        assert!(!whole, "{format}: HTTP tells that it broke off");
        let text = String::from_utf8_lossy(&file);
        match format {
            "ndjson" => assert!(!text.contains("{\"end\":"), "{text:.100}"),
            "csv" => {
                let last = text.lines().last().unwrap();
                assert!(last.starts_with("INCOMPLETE: "), "{last}");
                let columns = text.lines().next().unwrap().split(',').count();
                assert_eq!(last.split(',').count(), columns + 1);
            }
            _ => assert!(!file.ends_with(b"PAR1")),
        }
        let file = folder.path().join(format);
        let output = file.to_str().unwrap();
        let args = [
            "query",
            "frames",
            "--purpose",
            "case-7",
            "--format",
            format,
            "--output",
            output,
        ];
        let told = refused(&server, &args).await;
        assert!(told.contains("broke off"), "{told}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
