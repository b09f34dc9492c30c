//! Retention: how long what is kept, what expires, and that nothing goes that has to stay. The database's clock is the one that
//! counts, so the tests step that.

pub(crate) mod clock;
mod model;
mod reads;
mod records;

use self::clock::stepped;
use crate::api::audit::{check, export, trust};
use crate::api::{Answer, Api};
use crate::erasing::{break_table, mend_table};
use crate::running::Server;
use onrecord_core::digest::Hash;
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::{Code, Report};
use reqwest::Method;
use serde_json::{Value, json};

pub(crate) async fn put(api: &Api, policy: &Value) -> Answer {
    let request = api
        .request(Method::PUT, "/v1/retention/policy")
        .header("content-type", "application/json")
        .body(policy.to_string());
    Answer::of(request).await
}

/// Tiers 2 and 3 expire so many days after the opening.
fn window(name: &str, evidence: u32, forensic: u32) -> Value {
    json!({"schedules": [{"name": name, "tiers": {
        "2": {"trigger": "opened", "ceiling_days": evidence},
        "3": {"trigger": "opened", "ceiling_days": forensic}}}], "default": name})
}

/// A run with a payload of each tier, whose texts are `TIER of NAME`; sealed where it is so.
async fn run_with(api: &Api, session: Value, name: &str, sealed: bool) -> (String, [String; 4]) {
    let run = api
        .open(&json!({ "session": session }))
        .await
        .run
        .to_string();
    let mut commits = Vec::new();
    for tier in 0..4 {
        let payload = json!({"name": "said", "text": format!("{tier} of {name}"), "tier": tier});
        let frame =
            json!({"kind": "observation", "key": format!("k{tier}"), "payloads": [payload]});
        let seq = api.frame(&run, &frame).await.is(201).json()["seq"].clone();
        let path = format!("/v1/runs/{run}/frames/{seq}");
        let frame = api.get(&path).await.is(200).json();
        commits.push(frame["payloads"][0]["commit"].as_str().unwrap().to_owned());
    }
    if sealed {
        seal(api, &run).await;
    }
    (run, commits.try_into().unwrap())
}

async fn seal(api: &Api, run: &str) {
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
}

async fn read(api: &Api, run: &str, commit: &str) -> Answer {
    api.get(&format!("/v1/runs/{run}/payloads/{commit}?purpose=test"))
        .await
}

/// Sweeps until nothing is due; how many payloads went.
async fn sweep(api: &Api) -> u64 {
    let mut payloads = 0;
    loop {
        let swept = api
            .post("/v1/retention/sweep", &json!({}))
            .await
            .is(200)
            .json();
        payloads += swept["payloads"].as_u64().unwrap();
        if swept["more"] == false {
            return payloads;
        }
    }
}

/// Verifies what the run's export says: it holds, but for the seal where there is none.
async fn audited(api: &Api, run: &str) -> Report {
    let report = check(&export(api, run).await, &trust(api).await, &[]);
    let codes: Vec<Code> = report.findings.iter().map(|found| found.code).collect();
    let sealed = api.run(run).await["status"] == "sealed";
    let expected: &[Code] = if sealed { &[] } else { &[Code::Unsealed] };
    // What expired and is not erased yet is withheld.
    let told = codes.iter().filter(|code| **code != Code::PayloadWithheld);
    assert!(told.eq(expected), "{:#?}", report.findings);
    assert_eq!(report.payloads.missing, 0);
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_stands_in_the_ledger_and_is_made_by_those_who_may() {
    let server = Server::start().await;
    let api = &server.api;
    let path = "/v1/retention/policy";
    assert_eq!(api.get(path).await.is(200).json(), json!({"version": 0}));
    let presets = api.get("/v1/retention/presets").await.is(200).json();
    let presets = presets["presets"].as_array().unwrap().clone();
    for (number, preset) in presets.iter().enumerate() {
        let put = put(api, preset).await.is(201).json();
        assert_eq!(put["version"], number + 1);
        assert_eq!(&put["policy"], preset);
    }
    let last = api.get(path).await.is(200).json();
    assert_eq!(last["by"], server.person("owner").await);
    assert_eq!(put(api, &last["policy"]).await.is(200).json(), last);
    let first = api.get(&format!("{path}?version=1")).await.is(200).json();
    assert_eq!(first["policy"], presets[0]);
    api.get(&format!("{path}?version=9"))
        .await
        .problem(404, "policy_not_found");
    for (role, status) in [
        ("agent", 403),
        ("gate", 403),
        ("auditor", 403),
        ("compliance", 201),
    ] {
        put(&api.role(role).await, &window("w", 2, 1))
            .await
            .is(status);
    }
    let problem = put(api, &window("w", 2, 99_999)).await;
    let problem = problem.problem(422, "malformed_policy");
    assert_eq!(problem["pointer"], "/schedules/0/tiers/3/ceiling_days");
    let bytes: Vec<u8> = sqlx::query_scalar("select bytes from ledger_entries where idx = $1")
        .bind(first["index"].as_i64().unwrap())
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap();
    let signed = Signed::parse(&bytes).unwrap();
    let document = onrecord_core::json::to_canonical(&presets[0]).unwrap();
    assert_eq!(
        (signed.subject.as_str(), signed.digest),
        ("retention", Hash::of(&[&document]))
    );
    assert!(
        matches!(signed.predicate().unwrap(), Some(Predicate::Policy(policy)) if policy.policy == "retention" && policy.version == 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_gone_for_readers_at_once_and_erased_by_the_sweep() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    let (sealed, of_sealed) = run_with(api, json!({}), "sealed", true).await;
    let (open, of_open) = run_with(api, json!({}), "open", false).await;
    assert_eq!(sweep(api).await, 0, "without a policy nothing expires");
    put(api, &window("w", 20, 10)).await.is(201);
    assert_eq!(sweep(api).await, 0);
    clock.step_days(11).await;
    for (run, commits) in [(&sealed, &of_sealed), (&open, &of_open)] {
        let problem = read(api, run, &commits[3]).await;
        let problem = problem.problem(410, "payload_expired");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("under w@1"), "{detail}");
        assert!(detail.contains("no certificate yet"), "{detail}");
        assert_eq!(
            read(api, run, &commits[2]).await.is(200).text().as_bytes()[0],
            b'2'
        );
        let report = audited(api, run).await;
        assert_eq!((report.payloads.withheld, report.payloads.erased), (1, 0));
    }
    let status = api.get("/v1/retention").await.is(200).json();
    assert_eq!((&status["due"], &status["version"]), (&json!(2), &json!(1)));
    assert!(status["lag_seconds"].as_u64().unwrap() > 80_000);
    assert_eq!(sweep(api).await, 2);
    assert_eq!(sweep(api).await, 0);
    for (run, commits) in [(&sealed, &of_sealed), (&open, &of_open)] {
        let problem = read(api, run, &commits[3]).await;
        let problem = problem.problem(410, "payload_expired");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("w@1 and was erased at"), "{detail}");
        let report = audited(api, run).await;
        assert_eq!((report.payloads.withheld, report.payloads.erased), (0, 1));
        assert_eq!(report.payloads.disclosed, 3);
    }
    // Later the next tier; and what an open run gets in a tier that expired goes too.
    let late = json!({"kind": "observation", "key": "late", "payloads": [{"name": "said", "text": "late", "tier": 3}]});
    api.frame(&open, &late).await.is(201);
    clock.step_days(10).await;
    assert_eq!(sweep(api).await, 3);
    for run in [&sealed, &open] {
        let report = audited(api, run).await;
        assert_eq!(report.payloads.disclosed, 2);
    }
    let erasures = api.get("/v1/erasures").await.is(200).json();
    let erasures = erasures["erasures"].as_array().unwrap().clone();
    assert!(
        erasures.iter().all(|one| one["scope"] == "expiry"
            && one["policy"] == "w@1"
            && one["reason"] == "expired"
            && one["state"] == "ciphertext_removed"),
        "{erasures:#?}"
    );
    let count: u64 = erasures
        .iter()
        .map(|one| one["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, 5);
    let left: (i64, i64) = sqlx::query_as(
        "select (select count(*) from payloads), (select count(*) from erased_payloads)",
    )
    .fetch_one(&mut server.sql().await)
    .await
    .unwrap();
    assert_eq!(left, (4, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_that_was_promised_outlives_the_policy() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    let kept = json!({"schedules": [{"name": "kept", "tiers": {"2": {"trigger": "opened", "floor_days": 30, "ceiling_days": 40}}}], "default": "kept"});
    put(api, &kept).await.is(201);
    let (run, commits) = run_with(api, json!({}), "x", true).await;
    put(api, &window("short", 1, 1)).await.is(201);
    clock.step_days(5).await;
    let (later, _) = run_with(api, json!({}), "later", true).await;
    assert_eq!(sweep(api).await, 1, "tier 3 had no floor");
    for what in [
        json!({"run": run, "tier": 2, "reason": "r"}),
        json!({"run": run, "tier": 0, "reason": "r"}),
        json!({"run": run, "commits": [commits[2]], "reason": "r"}),
    ] {
        let problem = api.post("/v1/erasures", &what).await;
        let problem = problem.problem(409, "retention_floor");
        assert!(problem["detail"].as_str().unwrap().contains("under kept@1"));
    }
    api.post(
        "/v1/erasures",
        &json!({"run": run, "tier": 1, "reason": "r"}),
    )
    .await
    .is(201);
    // A run that was opened later was promised nothing; and what is erased of many waits for the one.
    clock.step_days(2).await;
    assert_eq!(sweep(api).await, 2);
    assert_eq!(audited(api, &later).await.payloads.disclosed, 2);
    read(api, &run, &commits[2]).await.is(200);
    let everything = json!({"tenant": true, "reason": "r"});
    let erasure = api.post("/v1/erasures", &everything).await.is(201).json();
    assert!(
        erasure["held"].as_str().unwrap().contains("kept@1"),
        "{erasure}"
    );
    assert_eq!(audited(api, &run).await.payloads.disclosed, 2);
    clock.step_days(30).await;
    assert_eq!(
        sweep(api).await,
        1,
        "the floor ended, and the ceiling of the policy that holds is long past"
    );
    assert_eq!(audited(api, &run).await.payloads.disclosed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_under_a_hold_goes_until_it_is_released() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    put(api, &window("w", 1, 1)).await.is(201);
    let (held, commits) = run_with(api, json!({}), "held", true).await;
    let (free, _) = run_with(api, json!({}), "free", true).await;
    let hold = api
        .post("/v1/holds", &json!({"run": held, "matter": "case-7"}))
        .await;
    let hold = hold.is(201).json()["hold"].clone();
    clock.step_days(2).await;
    assert_eq!(sweep(api).await, 2);
    assert_eq!(audited(api, &free).await.payloads.disclosed, 2);
    assert_eq!(
        read(api, &held, &commits[3]).await.is(200).text(),
        "3 of held"
    );
    assert_eq!(audited(api, &held).await.payloads.disclosed, 4);
    let path = format!("/v1/holds/{hold}/release");
    api.post(&path, &json!({})).await.is(200);
    read(api, &held, &commits[3])
        .await
        .problem(410, "payload_expired");
    assert_eq!(
        sweep(api).await,
        2,
        "the release has the sweeper look again"
    );
    assert_eq!(audited(api, &held).await.payloads.erased, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_choose_by_what_a_run_says_and_samples_by_its_id() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    let schedule = |name: &str, days: u32| json!({"name": name, "tiers": {"3": {"trigger": "sealed", "ceiling_days": days}}});
    let policy = json!({
        "schedules": [
            schedule("long", 90), schedule("short", 2), schedule("gates", 60),
            {"name": "sampled", "tiers": {"3": {"trigger": "sealed", "ceiling_days": 30}}, "sample": {"keep_percent": 0, "otherwise_days": 1}},
            {"name": "never", "erase": "never"}],
        "rules": [
            {"when": "agent = \"precious\"", "schedule": "never"},
            {"when": "label in (\"incident\", \"audit\")", "schedule": "long"},
            {"when": "gate.failed is set", "schedule": "gates"},
            {"when": "profile = \"coding\" and not outcome = failed", "schedule": "sampled"}],
        "default": "short"});
    put(api, &policy).await.is(201);
    let mut runs = Vec::new();
    for (session, gate, outcome, days) in [
        (json!({"agent": "precious"}), None, None, None),
        (json!({"labels": ["audit"]}), None, None, Some(90)),
        (json!({}), Some("fail"), None, Some(60)),
        (json!({}), Some("pass"), None, Some(2)),
        (
            json!({"profile": "coding"}),
            None,
            Some("completed"),
            Some(1),
        ),
        (json!({"profile": "coding"}), None, Some("failed"), Some(2)),
    ] {
        let (run, _) = run_with(api, session, "x", false).await;
        if let Some(verdict) = gate {
            let frame =
                json!({"kind": "gate_result", "body": {"name": "tests", "verdict": verdict}});
            api.frame(&run, &frame).await.is(201);
        }
        if let Some(status) = outcome {
            let frame = json!({"kind": "outcome", "body": {"status": status}});
            api.frame(&run, &frame).await.is(201);
        }
        seal(api, &run).await;
        runs.push((run, days));
    }
    let mut passed = 0;
    for step in [0, 1, 1, 28, 30, 30] {
        clock.step_days(step).await;
        passed += step;
        sweep(api).await;
        for (run, days) in &runs {
            let erased = audited(api, run).await.payloads.erased;
            let expected = u64::from(days.is_some_and(|days| days <= passed));
            assert_eq!(
                erased, expected,
                "{run} after {passed} days, due after {days:?}"
            );
        }
    }
    let precious = &runs[0].0;
    api.post(
        "/v1/erasures",
        &json!({"run": precious, "tier": 3, "reason": "r"}),
    )
    .await
    .problem(409, "retention_floor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_without_a_tier_has_that_of_its_class() {
    let server = Server::start().await;
    let api = &server.api;
    let frame = |key: &str| {
        let result = json!({"payloads": [{"name": "output", "text": "o"}]});
        json!({"kind": "tool_call", "key": key, "body": {"name": "shell"}, "result": result,
            "payloads": [{"name": "arguments", "text": "a"}, {"name": "named", "text": "n", "tier": 2}]})
    };
    let run = api.any_run().await.run.to_string();
    api.frame(&run, &frame("before")).await.is(201);
    let classes = json!({"tool_call.arguments": 1, "tool_call.named": 3, "tool_result.output": 3, "session.task": 0});
    let policy = json!({"schedules": [{"name": "s"}], "classes": classes});
    put(api, &policy).await.is(201);
    // What was known of the classes holds for a second; another server asks at once.
    let second = server.second().await;
    let tiers = async |run: &str, seq: u64| {
        let frame = api.get(&format!("/v1/runs/{run}/frames/{seq}")).await;
        let payloads = frame.is(200).json()["payloads"].as_array().unwrap().clone();
        payloads
            .iter()
            .map(|one| one["tier"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    second.api.frame(&run, &frame("after")).await.is(201);
    assert_eq!(
        (tiers(&run, 1).await, tiers(&run, 2).await),
        (vec![2, 2], vec![2])
    );
    assert_eq!(
        (tiers(&run, 3).await, tiers(&run, 4).await),
        (vec![1, 2], vec![3])
    );
    let opening = json!({"session": {}, "key": "o", "payloads": [{"name": "task", "text": "t"}]});
    let opened = second.api.open(&opening).await.run.to_string();
    assert_eq!(tiers(&opened, 0).await, [0]);
    // What was sent before is the same frame, whatever its class is now.
    let again = second.api.frame(&run, &frame("before")).await.is(200);
    assert_eq!(again.json()["seq"], 1);
    audited(api, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_cut_off_is_gone_on_with_and_certified_once() {
    for (verb, table) in [
        ("insert", "erasure_parts"),
        ("delete", "keys.run_keys"),
        ("delete", "payloads"),
        ("insert", "erased_payloads"),
    ] {
        let (server, clock) = stepped().await;
        let api = &server.api;
        put(api, &window("w", 9, 1)).await.is(201);
        let mut runs = Vec::new();
        for name in ["a", "b", "c"] {
            runs.push(run_with(api, json!({}), name, true).await);
        }
        clock.step_days(2).await;
        let mut sql = server.sql().await;
        break_table(&mut sql, verb, table, "true").await;
        api.post("/v1/retention/sweep", &json!({})).await.is(500);
        // Before the entries are there nothing is erased; after it everything is, for every reader.
        let certified = table != "erasure_parts";
        for (run, commits) in &runs {
            let problem = read(api, run, &commits[3]).await;
            let problem = problem.problem(410, "payload_expired");
            let told = problem["detail"]
                .as_str()
                .unwrap()
                .contains("was erased at");
            assert_eq!(told, certified, "{verb} {table}: {problem}");
            let erased = audited(api, run).await.payloads.erased;
            assert_eq!(erased, u64::from(certified), "{verb} {table}");
        }
        mend_table(&mut sql, table).await;
        let finality = server.app.finality;
        server.app.recorder.erase_pending(finality).await.unwrap();
        assert_eq!(sweep(api).await, if certified { 0 } else { 3 });
        for (run, _) in &runs {
            assert_eq!(audited(api, run).await.payloads.erased, 1);
        }
        let left: (i64, i64, i64, i64) = sqlx::query_as(
            "select (select count(*) from payloads where tier = 3), (select count(*) from erased_payloads),
               (select count(*) from keys.run_keys where tier = 3 and run in (select run from runs where sealed_at is not null)),
               (select count(*) from ledger_entries where name = 'erasure')",
        )
        .fetch_one(&mut sql)
        .await
        .unwrap();
        assert_eq!(left, (0, 3, 0, 3), "{verb} {table}");
        let erasures = api.get("/v1/erasures").await.is(200).json();
        assert_eq!(erasures["erasures"][0]["state"], "ciphertext_removed");
        assert_eq!(erasures["erasures"][0]["count"], 3);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_go_is_what_goes() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    let compliance = api.role("compliance").await;
    let (first, _) = run_with(api, json!({}), "first", true).await;
    run_with(api, json!({}), "second", true).await;
    let hold = json!({"run": first, "matter": "case-7"});
    api.post("/v1/holds", &hold).await.is(201);
    let path = "/v1/retention/dry-run";
    let none = compliance.get(path).await.is(200).json();
    assert_eq!((&none["version"], &none["going"]), (&json!(0), &json!([])));
    let policy = window("w", 20, 10);
    let asked = compliance
        .post(&format!("{path}?at=2099-01-01"), &policy)
        .await
        .is(200)
        .json();
    assert_eq!(asked["version"], 1);
    assert_eq!(asked["going"].as_array().unwrap().len(), 4);
    assert_eq!(asked["going"][0]["held"], "case-7");
    assert_eq!(
        asked["totals"][0],
        json!({"schedule": "w", "tier": 2, "runs": 2, "payloads": 2, "bytes": asked["totals"][0]["bytes"], "held": 1})
    );
    put(api, &policy).await.is(201);
    clock.step_days(11).await;
    let page = compliance
        .get(&format!("{path}?limit=1"))
        .await
        .is(200)
        .json();
    let next = page["next"].as_str().unwrap();
    let mut going = page["going"].as_array().unwrap().clone();
    let mut after = Some(next.to_owned());
    while let Some(next) = after {
        let page = compliance
            .get(&format!("{path}?limit=1&after={next}"))
            .await
            .is(200)
            .json();
        going.extend(page["going"].as_array().unwrap().clone());
        after = page["next"].as_str().map(str::to_owned);
    }
    let free = going.iter().filter(|one| one["held"].is_null());
    let payloads: u64 = free.map(|one| one["payloads"].as_u64().unwrap()).sum();
    assert_eq!((going.len(), payloads), (2, 1));
    assert_eq!(sweep(api).await, payloads);
    api.role("agent").await.get(path).await.is(403);
    compliance
        .get(&format!("{path}?at=soon"))
        .await
        .problem(400, "malformed_parameter");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_sweep_at_once_erase_each_payload_once() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    put(api, &window("w", 2, 1)).await.is(201);
    for name in 0..6 {
        run_with(api, json!({}), &name.to_string(), name % 3 != 0).await;
    }
    let second = server.second().await;
    clock.step_days(3).await;
    let (one, other) = tokio::join!(sweep(api), sweep(&second.api));
    assert_eq!(one + other, 12);
    let entries: (i64, i64) = sqlx::query_as(
        "select (select count(*) from ledger_entries where name = 'erasure'), (select count(*) from payloads)",
    )
    .fetch_one(&mut server.sql().await)
    .await
    .unwrap();
    // Of each of the four that are sealed one for both tiers, of the others one for each.
    assert_eq!(entries, (8, 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_sets_shows_tries_and_sweeps() {
    let (server, clock) = stepped().await;
    let printed = async |args: &[&str]| {
        let args = [&["retention"], args].concat();
        let output = crate::command_line::output(&server, &args).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let presets = printed(&["presets"]).await;
    assert!(presets.contains("45 CFR 164.316(b)(2)(i)"), "{presets}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.json");
    std::fs::write(&file, printed(&["presets", "debug-30d"]).await).unwrap();
    let file = file.to_str().unwrap();
    let (run, _) = run_with(&server.api, json!({}), "x", true).await;
    assert_eq!(printed(&["show"]).await, "");
    let tried = printed(&["dry-run", "--policy", file, "--at", "2199-01-01"]).await;
    assert!(
        tried.starts_with("debug-30d tier 2: 1 payloads of 1 runs, "),
        "{tried}"
    );
    assert!(printed(&["set", file]).await.starts_with("version 1, "));
    assert!(
        printed(&["set", file])
            .await
            .starts_with("held already: version 1, ")
    );
    assert!(
        printed(&["show", "--version", "1"])
            .await
            .contains("\"debug-30d\"")
    );
    clock.step_days(31).await;
    let listed = printed(&["dry-run", "--list"]).await;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(
        listed.contains(&format!("{run} tier 3: 1 payloads, ")),
        "{listed}"
    );
    assert!(
        printed(&["status"])
            .await
            .contains(" runs are not looked at yet")
    );
    assert_eq!(
        printed(&["sweep"]).await,
        "2 payloads of 1 runs are erased\n"
    );
    assert!(printed(&["dry-run"]).await.starts_with("nothing of "));
    let status: Value = serde_json::from_str(&printed(&["status", "--json"]).await).unwrap();
    assert_eq!(
        (&status["due"], &status["last"]["payloads"]),
        (&json!(0), &json!(2))
    );
}
