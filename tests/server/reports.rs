//! Reports of runs: how complete the record is, and who had to do with it.

use crate::api::{Answer, Api};
use crate::running::Server;
use onrecord::start::HeadsEvery;
use serde_json::{Value, json};
use sqlx::Executor as _;

async fn report(api: &Api, run: &str) -> Value {
    api.get(&format!("/v1/runs/{run}/report"))
        .await
        .is(200)
        .json()
}

async fn page(api: &Api, run: &str) -> Answer {
    api.get(&format!("/v1/runs/{run}/report.html"))
        .await
        .is(200)
}

/// What the events are, with who did them.
fn deeds(report: &Value) -> Vec<(String, String)> {
    let events = report["custody"]["events"].as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|one| (word(&one["what"]), word(&one["by"]["id"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_says_what_is_there_and_who_did_what() {
    let server = Server::start().await;
    let api = &server.api;
    let name = "<b>smith</b> & \"co\"";
    let opened =
        json!({"session": {"agent": name}, "payloads": [{"name": "task", "text": "work"}]});
    let run = api.open(&opened).await.run.to_string();
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let call =
        json!({"kind": "tool_call", "key": "c", "body": {"name": "<i>shell</i>"}, "result": {}});
    api.frame(&run, &call).await.is(201);
    api.frame(
        &run,
        &json!({"kind": "tool_call", "body": {"name": "shell"}}),
    )
    .await
    .is(201);
    api.frame(&run, &json!({"kind": "model_call"}))
        .await
        .is(201);
    let every = HeadsEvery {
        frames: 1,
        seconds: 0,
    };
    assert_eq!(server.app.recorder.state_heads(every).await.unwrap(), 1);

    let open = report(api, &run).await;
    assert!(
        open["completeness"]["says"]
            .as_str()
            .unwrap()
            .starts_with("open"),
        "{open}"
    );
    assert_eq!(open["completeness"]["seal"], Value::Null);
    assert_eq!(
        open["completeness"]["turns"],
        json!({"opened": 1, "closed": 0})
    );
    assert_eq!(
        open["completeness"]["tool_calls"],
        json!({"count": 2, "unanswered": 1, "frames": [4]})
    );
    assert_eq!(
        open["completeness"]["model_calls"],
        json!({"count": 1, "unanswered": 1, "frames": [5]})
    );
    assert_eq!(open["custody"]["heads"]["count"], 1);
    assert_eq!(open["custody"]["heads"]["last_size"], 6);

    let frame: Value = api
        .get(&format!("/v1/runs/{run}/frames/0"))
        .await
        .is(200)
        .json();
    let commit = frame["payloads"][0]["commit"].as_str().unwrap();
    let auditor = api.role("auditor").await;
    auditor
        .get(&format!("/v1/runs/{run}/payloads/{commit}?purpose=case-7"))
        .await
        .is(200);
    let compliance = api.role("compliance").await;
    let hold = json!({"matter": "m-1", "run": run});
    let hold = compliance.post("/v1/holds", &hold).await.is(201).json();
    compliance
        .post(&format!("/v1/holds/{}/release", hold["hold"]), &json!({}))
        .await
        .is(200);
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    auditor
        .get(&format!("/v1/runs/{run}/export?purpose=review"))
        .await
        .is(200);
    let erasure = json!({"run": run, "commits": [commit], "reason": "request-17"});
    compliance.post("/v1/erasures", &erasure).await;

    let sealed = report(&api.role("agent").await, &run).await;
    let said = &sealed["completeness"];
    assert!(
        said["says"].as_str().unwrap().starts_with("full"),
        "{sealed}"
    );
    assert_eq!(
        said["payloads"],
        json!({"count": 1, "stored": 0, "not_kept": 0, "erased": 1, "missing": 0})
    );
    assert_eq!(
        (&said["frames"], &said["size"], &said["missing_frames"]),
        (&json!(8), &json!(8), &json!(0))
    );
    let expected = [
        ("key-added", ""),
        ("key-added", ""),
        ("opened", ""),
        ("read", "a auditor"),
        ("held", "a compliance"),
        ("released", "a compliance"),
        ("sealed", ""),
        ("exported", "a auditor"),
        ("erased", "a compliance"),
    ];
    // People stand there as they do in the ledger; whom a pseudonym stands for, compliance may ask.
    let people = compliance.get("/v1/people").await.is(200).json();
    let pseudonym = |who: &str| {
        let mut people = people["people"].as_array().unwrap().iter();
        let person = people.find(|one| one["person"] == who);
        person.map_or("", |one| one["pseudonym"].as_str().unwrap())
    };
    assert_eq!(
        deeds(&sealed),
        expected.map(|(what, who)| (what.to_owned(), pseudonym(who).to_owned()))
    );
    assert_eq!(sealed["custody"]["unread"], json!([]));
    let key = sealed["custody"]["sealed_by"].as_str().unwrap();
    for event in sealed["custody"]["events"].as_array().unwrap() {
        assert_eq!(event["keyid"], key, "{event}");
    }
    // The indexes are the ledger's.
    let entries: Vec<(i64, String)> =
        sqlx::query_as("select idx, name from ledger_entries order by idx")
            .fetch_all(&mut server.sql().await)
            .await
            .unwrap();
    let indexes = sealed["custody"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["index"].as_i64().unwrap());
    let heads = entries
        .iter()
        .filter(|(_, name)| name == "run-head")
        .map(|(index, _)| *index);
    let mut told: Vec<i64> = indexes.chain(heads).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        entries.iter().map(|(index, _)| *index).collect::<Vec<_>>()
    );

    let answer = page(api, &run).await;
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert!(
        answer
            .header("content-security-policy")
            .starts_with("default-src 'none'")
    );
    let html = answer.text();
    assert!(
        html.contains("&lt;b&gt;smith&lt;/b&gt; &amp; &quot;co&quot;") && html.contains("case-7")
    );
    for markup in [
        "<b>",
        "<i>",
        "<script",
        "src=",
        "href=",
        "javascript",
        "onload",
    ] {
        assert!(!html.contains(markup), "{markup} in {html}");
    }
    server.audit(&run, &[]).await;
    api.new_tenant()
        .await
        .get(&format!("/v1/runs/{run}/report"))
        .await
        .problem(404, "run_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_out_of_the_database_is_told() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    for n in 0..4 {
        let frame =
            json!({"kind": "observation", "payloads": [{"name": "p", "text": format!("{n}")}]});
        api.frame(&run, &frame).await.is(201);
    }
    let whole = report(api, &run).await;
    assert_eq!(whole["completeness"]["payloads"]["stored"], 4);
    assert_eq!(whole["completeness"]["gaps"], json!([]));
    let taken = "alter table frames disable trigger user; delete from frames where seq in (2, 3);
        alter table frames enable trigger user; delete from payloads where seq = 1";
    server
        .sql()
        .await
        .execute(sqlx::raw_sql(taken))
        .await
        .unwrap();
    let less = report(api, &run).await;
    let said = &less["completeness"];
    assert_eq!(
        (&said["gaps"], &said["missing_frames"]),
        (&json!([[2, 3]]), &json!(2))
    );
    assert_eq!(
        said["payloads"],
        json!({"count": 2, "stored": 1, "not_kept": 0, "erased": 0, "missing": 1})
    );
    let html = page(api, &run).await.text();
    assert!(
        html.contains("2 to 3")
            && html.contains("2 frames are not there")
            && html.contains("1 payload is lost"),
        "{html}"
    );
}
