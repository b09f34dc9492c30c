//! Runs that are read anew for figures: what was altered is told with its run, what is lost with its class, and what could be
//! replayed is no replay.

use crate::api::Api;
use crate::running::Server;
use crate::signing_agent::kept;
use serde_json::{Value, json};
use sqlx::Executor as _;

/// A sealed run with all that a replay takes, but for what is changed of it.
async fn run(api: &Api, agent: &str, change: impl FnOnce(&mut Value)) -> String {
    let opening = json!({"session": {"agent": agent, "release": "r1"}, "payloads": [{"name": "task", "text": agent}]});
    let run = api.open(&opening).await.run.to_string();
    let mut call = json!({"kind": "tool_call", "body": {"name": "sh"},
        "payloads": [{"name": "arguments", "text": "ls", "tier": 1}],
        "result": {"body": {"status": "ok"}, "payloads": [{"name": "result", "text": "a b", "tier": 3}]}});
    change(&mut call);
    let turn = json!({"kind": "turn", "payloads": [{"name": "prompt", "text": "Go on."}]});
    for frame in [&turn, &call] {
        api.frame(&run, frame).await.is(201);
    }
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    run
}

/// What is measured of each agent, by name.
async fn measured(api: &Api) -> Value {
    let path = "/v1/metrics/replay-quality?purpose=case-7";
    let body = api.get(path).await.is(200).json();
    let groups = body["groups"].as_array().unwrap().iter();
    let mut all: Value = groups
        .map(|group| (group["agent"].as_str().unwrap().to_owned(), group.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    all["looked_at"] = body["looked_at"].clone();
    all["not_measured"] = body["not_measured"].clone();
    all
}

async fn as_owner(server: &Server, sql: &str) {
    let all = format!(
        "alter table frames disable trigger user; {sql}; alter table frames enable trigger user"
    );
    let text = sqlx::raw_sql(sqlx::AssertSqlSafe(all));
    server.sql().await.execute(text).await.unwrap();
}

async fn scraped(server: &Server) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let app = server.app.clone();
    let serving = tokio::spawn(async move {
        onrecord::http::serve_metrics(listener, &app, std::future::pending()).await
    });
    let text = reqwest::get(&url).await.unwrap().text().await.unwrap();
    serving.abort();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_altered_is_told_with_its_run() {
    let server = Server::start().await;
    let api = &server.api;
    let frame = run(api, "frame", |_| ()).await;
    let payload = run(api, "payload", |_| ()).await;
    let whole = run(api, "whole", |_| ()).await;
    // Session, turn, call, result, turn_end, session_end.
    let all = json!({"count": 6, "verified": 6, "share": 1.0});
    let payloads = json!({"count": 4, "verified": 4, "without_key": 0, "share": 1.0});
    let before = measured(api).await;
    for agent in ["frame", "payload", "whole"] {
        let hashes = &before[agent]["hash_verification"];
        assert_eq!(
            (&hashes["altered"], &hashes["runs"]),
            (&json!([]), &json!(1))
        );
        assert_eq!(hashes["frames"], all, "{agent}");
        assert_eq!(hashes["payloads"], payloads, "{agent}");
    }
    let looked = &before["looked_at"]["read_anew"];
    assert_eq!(
        (&looked["runs"], &looked["passed_over"]),
        (&json!(3), &json!(0))
    );
    assert!(looked["bytes"].as_u64().unwrap() > 3 * 4 * 256);
    let names = before["not_measured"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|one| one["metric"].as_str().unwrap()).collect();
    assert!(names.contains(&"full_replay") && !names.contains(&"hash_verification"));
    assert!(!names.contains(&"missing_artifacts"));

    as_owner(&server, &format!(
        "update frames set bytes = replace(convert_from(bytes, 'UTF8'), '\"name\":\"sh\"', '\"name\":\"rm\"')::bytea
           where run = run_uuid('{frame}') and seq = 2;
         update payloads set ciphertext = set_byte(ciphertext, 0, get_byte(ciphertext, 0) # 1)
           where run = run_uuid('{payload}') and seq = 3")).await;
    let after = measured(api).await;
    let hashes = |agent: &str| after[agent]["hash_verification"].clone();
    assert_eq!(
        hashes("frame")["frames"],
        json!({"count": 6, "verified": 5, "share": 5.0 / 6.0})
    );
    assert_eq!(hashes("frame")["altered"], json!([frame]));
    assert_eq!(hashes("payload")["frames"], all);
    assert_eq!(
        hashes("payload")["payloads"],
        json!({"count": 4, "verified": 3, "without_key": 0, "share": 0.75})
    );
    assert_eq!(hashes("payload")["altered"], json!([payload]));
    assert_eq!(hashes("whole")["altered_runs"], 0);
    for (agent, possible, lack) in [
        ("frame", "partial", "frame"),
        ("payload", "none", "payload"),
    ] {
        let replayable = &after[agent]["replayable"];
        assert_eq!(replayable[possible], 1, "{replayable}");
        assert_eq!(replayable["lacks"][lack], 1, "{replayable}");
    }

    // A whole chain that ends elsewhere than the seal says.
    as_owner(
        &server,
        &format!("delete from frames where run = run_uuid('{whole}') and seq = 5"),
    )
    .await;
    let cut = measured(api).await;
    assert_eq!(cut["whole"]["hash_verification"]["altered"], json!([whole]));

    let text = scraped(&server).await;
    for line in [
        "onrecord_replay_runs 3",
        "onrecord_replay_altered_runs 3",
        "onrecord_replay_frames 18",
        "onrecord_replay_verified_frames 15",
        "onrecord_replay_payloads 12",
        "onrecord_replay_verified_payloads 11",
        "onrecord_replay_committed_artifacts{kind=\"tool_call\",tier=\"1\"} 3",
        "onrecord_replay_missing_artifacts{kind=\"tool_call\",tier=\"1\"} 0",
        "onrecord_replayable_runs{possible=\"none\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_is_told_by_class_and_what_is_erased_or_kept_is_not_lost() {
    let server = Server::start().await;
    let api = &server.api;
    let lost = run(api, "lost", |_| ()).await;
    let erased = run(api, "erased", |_| ()).await;
    let of_agent = kept("arguments", "kept", [7; 32]);
    run(api, "kept", |call| call["payloads"] = json!([of_agent])).await;
    run(api, "unanswered", |call| {
        call.as_object_mut().unwrap().remove("result");
    })
    .await;
    run(api, "whole", |_| ()).await;
    let erasure = json!({"run": erased, "tier": 3, "reason": "window"});
    api.post("/v1/erasures", &erasure).await.is(201);
    as_owner(
        &server,
        &format!("delete from payloads where run = run_uuid('{lost}') and seq = 2"),
    )
    .await;
    let all = measured(api).await;
    let missing = |agent: &str| all[agent]["missing_artifacts"]["all"]["missing"].clone();
    for (agent, count) in [("lost", 1), ("erased", 0), ("kept", 0), ("whole", 0)] {
        assert_eq!(missing(agent), count, "{agent}");
    }
    // The class that lacks most comes first.
    assert_eq!(
        all["lost"]["missing_artifacts"]["classes"][0],
        json!({"class": "tool_call.arguments", "tier": 1, "committed": 1, "missing": 1, "share": 1.0})
    );
    let classes = all["whole"]["missing_artifacts"]["classes"].as_array();
    assert_eq!(classes.unwrap().len(), 4);
    for (agent, possible, lacks) in [
        ("whole", "full", json!({})),
        ("lost", "partial", json!({"payload": 1})),
        ("kept", "partial", json!({"payload": 1})),
        ("erased", "none", json!({"payload": 1})),
        ("unanswered", "none", json!({"answer": 1})),
    ] {
        let replayable = &all[agent]["replayable"];
        assert_eq!(replayable[possible], 1, "{agent}: {replayable}");
        assert_eq!(replayable["lacks"], lacks, "{agent}");
    }
    // A lost payload alters no frame, and a lost key is nobody's alteration.
    assert_eq!(all["lost"]["hash_verification"]["altered_runs"], 0);
    let sql = server
        .sql()
        .await
        .execute(sqlx::raw_sql("delete from keys.run_keys"))
        .await;
    sql.unwrap();
    let all = measured(api).await;
    let payloads = &all["whole"]["hash_verification"]["payloads"];
    assert_eq!(
        (&payloads["without_key"], &payloads["verified"]),
        (&json!(4), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_too_long_is_passed_over_and_the_others_are_read() {
    let server = Server::start().await;
    let api = &server.api;
    run(api, "short", |_| ()).await;
    let long = api.open(&json!({"session": {"agent": "long"}})).await.run;
    let frame = json!({"kind": "observation", "payloads": [{"name": "output", "text": "a"}]});
    api.frame(&long, &frame).await.is(201);
    // What lies there counts, and not what its row says of it.
    let big = format!(
        "update payloads set ciphertext = convert_to(repeat('x', 68000000), 'UTF8') where run = run_uuid('{long}')"
    );
    as_owner(&server, &big).await;
    let all = measured(api).await;
    assert_eq!(all["looked_at"]["read_anew"]["passed_over"], 1);
    assert_eq!(all["short"]["hash_verification"]["runs"], 1);
    assert_eq!(all["long"]["hash_verification"]["runs"], 0);
    assert_eq!(
        all["long"]["hash_verification"]["frames"]["share"],
        Value::Null
    );
}
