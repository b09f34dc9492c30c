//! A retry is answered with what the first request got, and nothing else is (case 13).

use crate::api::{Api, receipt};
use crate::running::Server;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};

fn frame(key: &str, body: Value) -> Value {
    json!({"kind": "observation", "key": key, "body": body})
}

async fn assert_retry(api: &Api, first: &Receipt, body: &str, headers: &[(&str, &str)]) {
    let mut request = api
        .request(
            reqwest::Method::POST,
            &format!("/v1/runs/{}/frames", first.run),
        )
        .header("content-type", "application/json")
        .body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = crate::api::Answer::of(request).await.is(200);
    assert_eq!(answer.receipt(), *first);
    assert_eq!(answer.header("etag"), format!("\"{}\"", first.hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_the_first_receipt_for_ever() {
    let server = Server::start().await;
    let api = server.api.clone();
    let opened = api.any_run().await;
    let first = api
        .frame(&opened.run, &frame("K1", json!({"a": 1})))
        .await
        .is(201)
        .receipt();
    let same = r#"{"kind":"observation","key":"K1","body":{"a":1}}"#;
    assert_retry(&api, &first, same, &[]).await;
    // The same in another spelling is the same canonical form.
    let spelled = r#" {"body" : {"a":1.0}, "key":"\u004b1","kind":"observation"} "#;
    assert_retry(&api, &first, spelled, &[]).await;
    // Under an expected head too, the present one and one long past.
    for head in [first.hash, opened.hash] {
        let head = format!("\"{head}\"");
        assert_retry(&api, &first, same, &[("if-match", &head)]).await;
    }
    let conflict = api
        .frame(&opened.run, &frame("K1", json!({"a": 2})))
        .await
        .problem(409, "key_conflict");
    assert!(conflict["detail"].as_str().unwrap().contains("frame 1"));
    assert_eq!(api.size(&opened.run).await, 2);

    let second = api
        .frame(&opened.run, &frame("K2", json!({})))
        .await
        .is(201)
        .receipt();
    let server = server.restart().await;
    let api = server.api.clone();
    assert_retry(&api, &first, same, &[]).await;
    api.frame(&opened.run, &frame("K1", json!({"a": 2})))
        .await
        .problem(409, "key_conflict");
    // Asked for by a server that never saw the first request.
    let other = server.second().await;
    assert_retry(&other.api, &first, same, &[]).await;
    let receipts = [opened.clone(), first, second];
    assert_eq!(api.size(&opened.run).await, 3);
    server.audit(&opened.run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_of_a_request_counts_for_its_sameness() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let whole = json!({
        "kind": "tool_call", "key": "k", "turn": 1, "body": {"name": "shell"},
        "actor": {"type": "agent", "id": "smith"}, "occurred_at": "2026-08-09T11:00:00Z",
        "payloads": [{"name": "arguments", "tier": 1, "media": "text/plain", "text": "make"}],
        "links": [{"rel": "caused", "seq": 0}],
        "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"},
        "result": {"body": {"exit": 0}, "payloads": [{"name": "output", "text": "ok"}]},
    });
    let first = api.frame(&run, &whole).await.is(201).json();
    for (pointer, value) in [
        ("/kind", json!("observation")),
        ("/turn", json!(null)),
        ("/body/name", json!("bash")),
        ("/actor/id", json!("jones")),
        ("/occurred_at", json!("2026-08-09T11:00:00.000001Z")),
        ("/payloads/0/name", json!("argument")),
        ("/payloads/0/tier", json!(2)),
        ("/payloads/0/media", json!("text/html")),
        ("/payloads/0/text", json!("make ")),
        ("/links/0/rel", json!("uses")),
        ("/links/0/seq", json!(1)),
        ("/trace/span_id", json!("b7ad6b7169203332")),
        ("/result/body/exit", json!(1)),
        ("/result/payloads/0/text", json!("OK")),
    ] {
        let mut other = whole.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        if pointer == "/kind" {
            other.as_object_mut().unwrap().remove("result");
        }
        let problem = api.frame(&run, &other).await.problem(409, "key_conflict");
        assert!(problem["detail"].is_string(), "{pointer}");
    }
    // Another spelling of the same bytes is the same payload.
    let again = api.frame(&run, &whole).await.is(200).json();
    assert_eq!(again, first);
    assert_eq!(api.size(&run).await, 4);
    server.audit(&run, &[receipt(&first)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_the_same_moment_are_one_frame() {
    let server = Server::start().await;
    let other = server.second().await;
    let run = server.api.any_run().await.run;
    let mut receipts = Vec::new();
    for round in 0..15 {
        let body = frame(&format!("k{round}"), json!({"round": round}));
        let (one, two, three) = tokio::join!(
            server.api.frame(&run, &body),
            other.api.frame(&run, &body),
            server.api.frame(&run, &body),
        );
        let mut statuses = [one.status, two.status, three.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 201]);
        assert_eq!(one.receipt(), two.receipt());
        assert_eq!(one.receipt(), three.receipt());
        receipts.push(one.receipt());
    }
    assert_eq!(server.api.size(&run).await, 16);
    server.audit(&run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_repeat_itself() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    let lines = [
        frame("a", json!({"a": 1})),
        frame("b", json!({"b": 1})),
        frame("a", json!({"a": 1})),
        frame("a", json!({"a": 2})),
        frame("c", json!({})),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answers = api.frames(&run, body.clone()).await;
    let statuses: Vec<_> = answers.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(
        statuses,
        [
            json!(201),
            json!(201),
            json!(200),
            json!(409),
            json!(201),
            Value::Null
        ]
    );
    assert_eq!(receipt(&answers[0]), receipt(&answers[2]));
    assert_eq!(answers[5], json!({"done": 5, "failed": 1}));
    // The whole stream again, as after a lost answer.
    let again = api.frames(&run, body).await;
    for place in [0, 1, 2, 4] {
        assert_eq!(again[place]["status"], 200);
        assert_eq!(receipt(&again[place]), receipt(&answers[place]));
    }
    assert_eq!(api.size(&run).await, 4);
    server.audit(&run, &[receipt(&answers[4])]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_result_is_a_key_like_any_other() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    let call = |key: &str| json!({"kind": "tool_call", "key": key, "body": {"name": "shell"}, "result": {}});
    api.frame(&run, &frame("a/result", json!({}))).await.is(201);
    api.frame(&run, &call("a"))
        .await
        .problem(409, "key_conflict");
    // The call was not stored without its result.
    assert_eq!(api.size(&run).await, 2);
    let named = json!({"kind": "tool_call", "key": "b", "body": {}, "result": {"key": "b"}});
    let problem = api
        .frame(&run, &named)
        .await
        .problem(422, "malformed_member");
    assert_eq!(problem["pointer"], "/result/key");
    assert_eq!(api.size(&run).await, 2);

    // The result alone is a retry of itself, beside its call or later.
    let alone =
        json!({"kind": "tool_result", "key": "s/result", "actor": {"type": "tool", "id": "shell"}});
    let both = format!("{}\n{alone}\n", call("s"));
    let answers = api.frames(&run, both).await;
    assert_eq!(answers[1]["status"], 200, "{}", answers[1]);
    assert_eq!(receipt(&answers[1]), receipt(&answers[0]["result"]));
    let later = api.frame(&run, &alone).await;
    assert_eq!(later.status, answers[1]["status"], "{}", later.text());
    assert_eq!(api.size(&run).await, 4);

    // In one batch as well, in both orders, and the other lines are not hindered.
    let lines = [
        call("c"),
        frame("c/result", json!({})),
        frame("d/result", json!({})),
        call("d"),
        frame("e", json!({})),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answers = api.frames(&run, body).await;
    let statuses: Vec<_> = answers.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(
        statuses,
        [
            json!(201),
            json!(409),
            json!(201),
            json!(409),
            json!(201),
            Value::Null
        ]
    );
    assert_eq!(api.size(&run).await, 8);
    let receipts = [
        receipt(&answers[0]),
        receipt(&answers[0]["result"]),
        receipt(&answers[4]),
    ];
    server.audit(&run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_in_the_header_too_and_are_checked() {
    let server = Server::start().await;
    let api = &server.api;
    let opened = api.any_run().await;
    let path = format!("/v1/runs/{}/frames", opened.run);
    let plain = json!({"kind": "observation"});
    let first = api
        .post_with(&path, &plain, &[("idempotency-key", "\"h-1\"")])
        .await
        .is(201);
    for (body, header) in [(plain.clone(), "h-1"), (frame("h-1", json!({})), "h-1")] {
        let again = api
            .post_with(&path, &body, &[("idempotency-key", header)])
            .await
            .is(200);
        assert_eq!(again.receipt(), first.receipt());
    }
    api.post_with(
        &path,
        &frame("other", json!({})),
        &[("idempotency-key", "h-1")],
    )
    .await
    .problem(400, "malformed_parameter");
    let long = "k".repeat(201);
    for key in ["", &long, "k\u{e9}y", "onrecord/turn_end/1"] {
        let answer = api
            .post_with(&path, &plain, &[("idempotency-key", key)])
            .await;
        assert!((400..500).contains(&answer.status), "{key:?}");
        assert_eq!(answer.header("content-type"), crate::api::PROBLEM);
    }
    for (key, code) in [
        ("", "malformed_member"),
        (long.as_str(), "malformed_member"),
        ("k\u{e9}y", "malformed_member"),
        ("tab\tkey", "malformed_member"),
        ("onrecord/session", "reserved"),
        ("onrecord/", "reserved"),
    ] {
        let problem = api
            .frame(&opened.run, &frame(key, json!({})))
            .await
            .problem(422, code);
        assert_eq!(problem["pointer"], "/key");
    }
    let reserved = json!({"kind": "tool_call", "body": {}, "result": {"key": "onrecord/x"}});
    let problem = api
        .frame(&opened.run, &reserved)
        .await
        .problem(422, "reserved");
    assert_eq!(problem["pointer"], "/result/key");
    assert_eq!(api.size(&opened.run).await, 2);
    // Without a key the store gives one, and a repetition is another frame.
    api.frame(&opened.run, &plain).await.is(201);
    api.frame(&opened.run, &plain).await.is(201);
    server
        .audit(&opened.run, &[opened.clone(), first.receipt()])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opening_is_retried_like_a_frame() {
    let server = Server::start().await;
    let api = &server.api;
    let body = json!({"session": {"agent": "smith", "n": 1}, "key": "open",
        "payloads": [{"name": "task", "text": "work"}]});
    let (one, two) = tokio::join!(api.post("/v1/runs", &body), api.post("/v1/runs", &body));
    assert_eq!(one.status + two.status, 401);
    assert_eq!(one.receipt(), two.receipt());
    let mut spelled = body.clone();
    spelled["session"]["n"] = json!(1.0);
    assert_eq!(
        api.post("/v1/runs", &spelled).await.is(200).receipt(),
        one.receipt()
    );
    for (pointer, value) in [("/session/agent", "jones"), ("/payloads/0/text", "play")] {
        let mut other = body.clone();
        *other.pointer_mut(pointer).unwrap() = json!(value);
        api.post("/v1/runs", &other)
            .await
            .problem(409, "key_conflict");
    }
    let header = [("idempotency-key", "open")];
    let mut bare = body.clone();
    bare.as_object_mut().unwrap().remove("key");
    assert_eq!(
        api.post_with("/v1/runs", &bare, &header)
            .await
            .is(200)
            .receipt(),
        one.receipt()
    );
    // Another tenant's keys are its own.
    let other = api.new_tenant().await;
    assert_ne!(other.open(&body).await.run, one.receipt().run);
    let listed = api.get("/v1/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    server.audit(&one.receipt().run, &[one.receipt()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_insist_on_the_head_that_it_saw() {
    let server = Server::start().await;
    let api = &server.api;
    let opened = api.any_run().await;
    let path = format!("/v1/runs/{}/frames", opened.run);
    let head = api.get(&format!("/v1/runs/{}", opened.run)).await;
    let seen = head.header("etag").to_owned();
    assert_eq!(seen, format!("\"{}\"", opened.hash));
    let first = api
        .post_with(&path, &frame("1", json!({})), &[("if-match", &seen)])
        .await
        .is(201);
    let moved = api
        .post_with(&path, &frame("2", json!({})), &[("if-match", &seen)])
        .await
        .problem(412, "head_moved");
    assert_eq!(moved["head"], first.receipt().hash.hex());
    for wrong in ["abc", "W/\"abc\"", "\"abc\"", "\"\"", ""] {
        api.post_with(&path, &frame("2", json!({})), &[("if-match", wrong)])
            .await
            .problem(400, "malformed_parameter");
    }
    api.post_with(&path, &frame("2", json!({})), &[("if-match", "*")])
        .await
        .is(201);
    // With a stale head exactly one of many writers gets through.
    let head = api.run(&opened.run).await["head"].clone();
    let tag = format!("\"{}\"", head.as_str().unwrap());
    let race = (0..6).map(|n| {
        let (api, path, tag) = (api.clone(), path.clone(), tag.clone());
        tokio::spawn(async move {
            let body = frame(&format!("race-{n}"), json!({}));
            api.post_with(&path, &body, &[("if-match", &tag)])
                .await
                .status
        })
    });
    let mut statuses = Vec::new();
    for one in race.collect::<Vec<_>>() {
        statuses.push(one.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 412, 412, 412, 412, 412]);
    server
        .audit(&opened.run, &[opened.clone(), first.receipt()])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_among_the_frames_of_others_hinder_nobody() {
    const RUNS: usize = 8;
    const ROUNDS: usize = 12;
    let server = Server::start().await;
    let api = &server.api;
    let mut kept = Vec::new();
    for _ in 0..RUNS {
        let opened = api.any_run().await;
        let whole = frame("first", json!({"a": 1}));
        let first = api.frame(&opened.run, &whole).await.is(201).receipt();
        kept.push(vec![opened, first]);
    }
    for round in 0..ROUNDS {
        let write = async |run: usize, receipts: &[Receipt]| {
            let id = &receipts[0].run;
            let new = frame(&format!("new/{round}"), json!({}));
            // Every second run repeats itself, alone or beside what is new.
            if run % 2 == 1 {
                let answer = api.frame(id, &new).await.is(201);
                return vec![answer.receipt()];
            }
            let retry = frame("first", json!({"a": 1}));
            let other = frame("first", json!({"a": 2}));
            if round % 2 == 1 {
                let answer = api.frame(id, &retry).await.is(200);
                assert_eq!(answer.receipt(), receipts[1]);
                return Vec::new();
            }
            let lines = api.frames(id, format!("{retry}\n{new}\n{other}\n{new}\n"));
            let lines = lines.await;
            let status: Vec<_> = lines.iter().map(|line| line["status"].as_u64()).collect();
            assert_eq!(status, [Some(200), Some(201), Some(409), Some(200), None]);
            assert_eq!(receipt(&lines[0]), receipts[1]);
            assert_eq!(receipt(&lines[1]), receipt(&lines[3]));
            vec![receipt(&lines[1])]
        };
        let writes = kept
            .iter()
            .enumerate()
            .map(|(run, receipts)| write(run, receipts));
        let new = futures_util::future::join_all(writes).await;
        for (receipts, new) in kept.iter_mut().zip(new) {
            receipts.extend(new);
        }
    }
    for receipts in &kept {
        let run = &receipts[0].run;
        assert_eq!(api.size(run).await, receipts.len() as u64);
        server.audit(run, receipts).await;
    }
}
