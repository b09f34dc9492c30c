//! Which facts of a record of use runs have, and how well they could be repeated: of one run, of many, and as figures.

use crate::api::Api;
use crate::running::Server;
use serde_json::{Value, json};

/// A sealed run of an agent; whole, it lacks nothing that is known at the seal.
async fn run(api: &Api, agent: &str, whole: bool) -> String {
    let mut session = json!({"agent": agent, "profile": "coding"});
    if whole {
        session["release"] = json!("r1");
        session["pins"] = json!({"model": "m", "repository": {"commit": "c"}});
    }
    let run = api.open(&json!({"session": session})).await.run.to_string();
    let mut frames = vec![
        json!({"kind": "turn", "body": {"model": "m"}, "payloads": [{"name": "prompt", "text": "Go on.", "tier": 2}]}),
        json!({"kind": "tool_call", "body": {"name": "sh"}}),
    ];
    let gate = |verdict: &str| {
        json!({"kind": "gate_result", "actor": {"type": "verifier", "id": "ci"},
            "body": {"name": "tests", "candidate": "c1", "verdict": verdict}})
    };
    if whole {
        frames[1]["result"] = json!({"body": {"status": "ok"}});
        let decision = json!({"kind": "decision", "actor": {"type": "human", "id": "ada"}});
        frames.extend([decision, gate("pass"), gate("pass")]);
        frames.push(json!({"kind": "outcome", "turn": null, "body": {"status": "completed"}, "links": [{"rel": "verified_by", "seq": 5}]}));
    } else {
        frames.extend([gate("pass"), gate("fail")]);
    }
    for frame in &frames {
        api.frame(&run, frame).await.is(201);
    }
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    run
}

fn named<'a>(body: &'a Value, fact: &str) -> &'a Value {
    let mut facts = body["facts"].as_array().unwrap().iter();
    facts.find(|one| one["fact"] == fact).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_asked_for_each_fact_and_what_it_lacks_is_found() {
    let server = Server::start().await;
    let api = &server.api;
    let (whole, part) = (
        run(api, "coder", true).await,
        run(api, "tester", false).await,
    );
    let body = api
        .get(&format!("/v1/runs/{whole}/coverage"))
        .await
        .is(200)
        .json();
    assert_eq!(
        (&body["run"], &body["sealed"]),
        (&json!(whole), &json!(true))
    );
    assert_eq!(body["facts"].as_array().unwrap().len(), 20);
    for (fact, seq) in [
        ("use_started", 0),
        ("model", 1),
        ("input", 1),
        ("tool_results", 3),
        ("oversight", 4),
        ("outcome_verified", 7),
    ] {
        let found = named(&body, fact);
        assert_eq!(
            (&found["state"], &found["seq"]),
            (&json!("recorded"), &json!(seq)),
            "{fact}"
        );
    }
    assert_eq!(named(&body, "errors")["state"], "not_applicable");
    assert_eq!(named(&body, "mandate")["state"], "absent");
    let body = api
        .get(&format!("/v1/runs/{part}/coverage"))
        .await
        .is(200)
        .json();
    let lacks = [
        "release",
        "decision",
        "oversight",
        "tool_results",
        "outcome",
    ];
    for fact in lacks {
        assert_eq!(named(&body, fact)["state"], "absent", "{fact}");
    }
    assert_eq!(named(&body, "errors")["seq"], 4);
    let report = api
        .get(&format!("/v1/runs/{part}/report"))
        .await
        .is(200)
        .json();
    assert_eq!(report["coverage"], body["facts"]);
    let page = api
        .get(&format!("/v1/runs/{part}/report.html"))
        .await
        .is(200)
        .text();
    assert!(page.contains("What a record of use should have"));

    // An open run lacks nothing yet, as filters see it, and is in no share.
    let open = api.any_run().await.run;
    for kind in ["turn", "tool_call", "model_call"] {
        api.frame(&open, &json!({ "kind": kind })).await.is(201);
    }
    for fact in lacks {
        let path = format!("/v1/runs?filter=missing%20%3D%20{fact}&purpose=case-7");
        let found = api.get(&path).await.is(200).json();
        let runs = found["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1, "{fact}");
        assert_eq!(runs[0]["run"], part, "{fact}");
    }
    api.get("/v1/runs?filter=missing%20%3D%20mandate&purpose=case-7")
        .await
        .problem(400, "malformed_filter");

    let shares = api.get("/v1/coverage?purpose=case-7").await.is(200).json();
    assert_eq!(shares["runs"], 2);
    for (fact, counts) in [
        ("agent", (2, 0, 0)),
        ("release", (1, 1, 0)),
        ("model", (2, 0, 0)),
        ("tool_results", (1, 1, 0)),
        ("use_ended", (2, 0, 0)),
    ] {
        let share = named(&shares, fact);
        let found =
            ["recorded", "absent", "not_applicable"].map(|name| share[name].as_u64().unwrap());
        assert_eq!((found[0], found[1], found[2]), counts, "{fact}");
    }
    // Where everything is true of a run, the same is counted as anybody may count.
    let counted = api.get("/v1/coverage?filter=run_no%20%3E%200&purpose=case-7");
    assert_eq!(counted.await.is(200).json(), shares);
    let some = api
        .get("/v1/coverage?filter=agent%20%3D%20%22tester%22&purpose=case-7")
        .await
        .is(200)
        .json();
    assert_eq!(
        (&some["runs"], &named(&some, "release")["absent"]),
        (&json!(1), &json!(1))
    );
    api.get("/v1/coverage")
        .await
        .problem(400, "purpose_required");
    api.get("/v1/coverage?filter=agent%20%3D&purpose=case-7")
        .await
        .problem(400, "malformed_filter");
    let agent = api.role("agent").await;
    agent
        .get("/v1/coverage?purpose=case-7")
        .await
        .problem(403, "role_missing");
    for run in [&whole, &part] {
        server.audit(run, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_well_runs_could_be_repeated_is_measured_and_what_is_not_is_named() {
    let server = Server::start().await;
    let api = &server.api;
    run(api, "coder", true).await;
    let part = run(api, "tester", false).await;
    let erasure = json!({"run": part, "tier": 2, "reason": "window"});
    api.post("/v1/erasures", &erasure).await.is(201);
    let body = api
        .get("/v1/metrics/replay-quality?purpose=case-7")
        .await
        .is(200)
        .json();
    let groups = body["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{body}");
    let (coder, tester) = (&groups[0], &groups[1]);
    assert_eq!(
        (&coder["agent"], &tester["agent"]),
        (&json!("coder"), &json!("tester"))
    );
    let manifest = &coder["manifest_completeness"];
    assert_eq!(manifest["sessions"], 1);
    assert_eq!(manifest["share"], json!(5.0 / 18.0), "{manifest}");
    assert_eq!(
        (&manifest["pins"]["model"], &manifest["pins"]["image"]),
        (&json!(1), &json!(0))
    );
    let available = |group: &Value| group["artifact_availability"]["all"].clone();
    let of = |stored: u64, erased: u64, share: f64| json!({"committed": 1, "stored": stored, "kept": 0, "erased": erased, "share": share});
    assert_eq!(available(coder), of(1, 0, 1.0));
    assert_eq!(available(tester), of(0, 1, 0.0));
    let agreement = |group: &Value| group["verifier_agreement"].clone();
    assert_eq!(
        agreement(coder),
        json!({"asked_again": 1, "agreed": 1, "share": 1.0})
    );
    assert_eq!(
        agreement(tester),
        json!({"asked_again": 1, "agreed": 0, "share": 0.0})
    );
    let not_measured = body["not_measured"].as_array().unwrap();
    let names: Vec<&str> = not_measured
        .iter()
        .map(|one| one["metric"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"schedule_sensitivity") && names.contains(&"full_replay"));
    for by in ["day", "week", "month"] {
        let path = format!("/v1/metrics/replay-quality?by={by}&purpose=case-7");
        let body = api.get(&path).await.is(200).json();
        let groups = body["groups"].as_array().unwrap();
        // Around midnight there may be two of them.
        let sessions = groups
            .iter()
            .map(|one| one["manifest_completeness"]["sessions"].as_u64().unwrap());
        assert_eq!(sessions.sum::<u64>(), 2, "{body}");
    }
    let before = "/v1/metrics/replay-quality?until=2020-01-01&purpose=case-7";
    assert_eq!(api.get(before).await.is(200).json()["groups"], json!([]));
    api.get("/v1/metrics/replay-quality?by=tool&purpose=case-7")
        .await
        .problem(400, "malformed_parameter");
    api.get("/v1/metrics/replay-quality")
        .await
        .problem(400, "purpose_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_scraped_without_a_token_and_name_nobody() {
    let server = Server::start().await;
    let api = &server.api;
    let run = run(api, "coder", true).await;
    api.frame(&run, &json!({"kind": "turn"})).await.is(409);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let app = server.app.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let stopped = async move {
            let _ = stopped.await;
        };
        onrecord::http::serve_metrics(listener, &app, stopped).await
    });
    let answer = reqwest::get(&url).await.unwrap();
    let media = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(media, "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.unwrap();
    let value = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.split(' ').next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // A turn, a call with its result, a decision, two gates and an outcome.
    for (name, expected) in [
        ("onrecord_frames_appended_total", 7.0),
        ("onrecord_append_seconds_count", 7.0),
        ("onrecord_append_seconds_bucket{le=\"+Inf\"}", 7.0),
        ("onrecord_runs_opened_total", 1.0),
        ("onrecord_runs_sealed_total", 1.0),
        ("onrecord_refused_total{code=\"run_sealed\"}", 1.0),
        ("onrecord_up", 1.0),
        ("onrecord_tenants", 1.0),
        ("onrecord_open_runs", 0.0),
        ("onrecord_holds", 0.0),
        ("onrecord_queue_submissions", 0.0),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    assert!(
        value("onrecord_ledger_entries") >= 4.0 && value("onrecord_batch_seconds_count") >= 1.0
    );
    let tenant = api.run(&run).await["tenant"].as_str().unwrap().to_owned();
    for private in [&run, "coder", &tenant, "ada"] {
        assert!(!text.contains(private), "{private} in {text}");
    }
    // Each metric has one head, before its values.
    let heads: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .collect();
    let distinct: std::collections::BTreeSet<&&str> = heads.iter().collect();
    assert_eq!(heads.len(), distinct.len());
    let missing = reqwest::get(url.replace("/metrics", "/v1/runs"))
        .await
        .unwrap();
    assert_eq!(missing.status(), 404);
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
