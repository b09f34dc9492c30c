//! Erasures: what is erased is gone for every reader, what survives is read as before, and the evidence verifies after each step.

use crate::api::audit::{check, export, trust};
use crate::api::{Answer, Api};
use crate::running::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::{Code, Report};
use serde_json::{Value, json};
use sqlx::PgConnection;

/// The commitment of a frame's first payload.
async fn commit(api: &Api, run: &str, seq: u64) -> String {
    let path = format!("/v1/runs/{run}/frames/{seq}");
    let frame = api.get(&path).await.is(200).json();
    frame["payloads"][0]["commit"].as_str().unwrap().to_owned()
}

async fn observe(api: &Api, run: &str, key: &str, text: &str, more: Value) -> Answer {
    let mut payload = json!({"name": "said", "text": text});
    payload
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let frame = json!({"kind": "observation", "key": key, "payloads": [payload]});
    api.frame(run, &frame).await
}

/// Observations `kN`, each with a payload "said N" of tier 2.
async fn said(api: &Api, run: &str, which: std::ops::Range<u64>) {
    for n in which {
        let (key, text) = (format!("k{n}"), format!("said {n}"));
        observe(api, run, &key, &text, json!({})).await.is(201);
    }
}

/// Makes a table refuse rows of which something is true, as a failure at that step would.
pub(crate) async fn break_table(sql: &mut PgConnection, verb: &str, table: &str, when: &str) {
    let row = if verb == "delete" { "old" } else { "new" };
    let broken = format!(
        "create function broken() returns trigger language plpgsql as $$ begin
           if {when} then raise exception 'broken' using errcode = 'internal_error'; end if; return {row}; end $$;
         create trigger broken before {verb} on {table} for each row execute function broken()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(broken))
        .execute(sql)
        .await
        .unwrap();
}

/// Mends it again.
pub(crate) async fn mend_table(sql: &mut PgConnection, table: &str) {
    let mended = format!("drop trigger broken on {table}; drop function broken()");
    sqlx::raw_sql(sqlx::AssertSqlSafe(mended))
        .execute(sql)
        .await
        .unwrap();
}

async fn read(api: &Api, run: &str, commit: &str) -> Answer {
    api.get(&format!("/v1/runs/{run}/payloads/{commit}?purpose=test"))
        .await
}

/// Verifies what the run's export says: it holds, but for the seal where there is none; and the server says the same.
async fn audited(api: &Api, run: &str) -> Report {
    let bytes = export(api, run).await;
    let report = check(&bytes, &trust(api).await, &[]);
    let codes: Vec<Code> = report.findings.iter().map(|found| found.code).collect();
    let sealed = api.run(run).await["status"] == "sealed";
    let expected: &[Code] = if sealed { &[] } else { &[Code::Unsealed] };
    assert_eq!(codes, expected, "{:#?}", report.findings);
    let own = api
        .get(&format!("/v1/runs/{run}/verification"))
        .await
        .is(200)
        .json();
    assert_eq!(own["verdict"]["code"], report.verdict.code.as_str());
    assert_eq!(report.payloads.missing, 0);
    report
}

async fn erase(api: &Api, body: Value) -> Value {
    let answer = api.post("/v1/erasures", &body).await.is(201);
    let erasure = answer.json();
    let path = format!("/v1/erasures/{}", erasure["erasure"].as_str().unwrap());
    assert_eq!(answer.header("location"), path);
    assert_eq!(api.get(&path).await.is(200).json(), erasure);
    erasure
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_erased_and_the_others_of_its_tier_survive() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    said(api, &run, 0..4).await;
    let commits = [
        commit(api, &run, 1).await,
        commit(api, &run, 2).await,
        commit(api, &run, 3).await,
    ];
    let wanted =
        json!({"run": run, "commits": [commits[1]], "reason": "request-17", "policy": "gdpr-17"});
    let erasure = erase(api, wanted).await;
    assert_eq!(erasure["state"], "ciphertext_removed");
    assert_eq!(
        (&erasure["count"], &erasure["entries"]),
        (&json!(1), &json!(1))
    );
    read(api, &run, &commits[1])
        .await
        .problem(410, "payload_erased");
    assert_eq!(read(api, &run, &commits[0]).await.is(200).text(), "said 0");
    assert_eq!(read(api, &run, &commits[2]).await.is(200).text(), "said 2");
    let report = audited(api, &run).await;
    assert_eq!(
        (
            report.payloads.count,
            report.payloads.erased,
            report.payloads.disclosed
        ),
        (4, 1, 3)
    );
    // The run goes on, under the new key of the tier, and a retry of what was erased is the same frame still.
    observe(api, &run, "k4", "said 4", json!({})).await.is(201);
    let again = observe(api, &run, "k1", "said 1", json!({})).await.is(200);
    assert_eq!(again.json()["seq"], 2);
    let other = observe(api, &run, "k2", "said 2", json!({})).await.is(200);
    assert_eq!(other.json()["seq"], 3);
    observe(api, &run, "k2", "another", json!({}))
        .await
        .problem(409, "key_conflict");
    assert_eq!(audited(api, &run).await.payloads.disclosed, 4);
    // The seal counts it.
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let report = audited(api, &run).await;
    assert_eq!((report.payloads.erased, report.payloads.disclosed), (1, 4));
    let sealed = seal(api, &run).await;
    assert_eq!((sealed.payloads.count, sealed.payloads.erased), (5, 1));
    // After the seal as well, and a turn or the like alone says so too.
    let wanted = json!({"run": run, "commits": [commits[0], commits[1]], "reason": "again"});
    assert_eq!(
        erase(api, wanted).await["count"],
        1,
        "what is gone already is not erased twice"
    );
    assert_eq!(audited(api, &run).await.payloads.erased, 2);
}

async fn seal(api: &Api, run: &str) -> onrecord_core::statement::RunSeal {
    let seal = api
        .get(&format!("/v1/runs/{run}/seal"))
        .await
        .is(200)
        .json();
    let signed = Signed::parse(seal["seal"].as_str().unwrap().as_bytes()).unwrap();
    match signed.predicate().unwrap() {
        Some(Predicate::RunSeal(seal)) => seal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_of_an_open_run_is_erased_until_now() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    for n in 0..3 {
        observe(api, &run, &format!("a{n}"), "forensic", json!({"tier": 3}))
            .await
            .is(201);
        observe(api, &run, &format!("b{n}"), "kept", json!({"tier": 1}))
            .await
            .is(201);
    }
    let erasure = erase(api, json!({"run": run, "tier": 3, "reason": "window"})).await;
    assert_eq!(
        (&erasure["count"], &erasure["parts"], &erasure["entries"]),
        (&json!(3), &json!(1), &json!(1))
    );
    observe(api, &run, "a3", "after", json!({"tier": 3}))
        .await
        .is(201);
    let report = audited(api, &run).await;
    assert_eq!((report.payloads.erased, report.payloads.disclosed), (3, 4));
    let mut sql = server.sql().await;
    let left: i64 = sqlx::query_scalar("select count(*) from payloads where tier = 3")
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(left, 1);
    // Nothing of it is left: asked for again it is done at once, with what came since.
    let erasure = erase(api, json!({"run": run, "tier": 3, "reason": "window"})).await;
    assert_eq!(erasure["count"], 1);
    let erasure = erase(api, json!({"run": run, "tier": 3, "reason": "window"})).await;
    assert_eq!(
        (&erasure["count"], &erasure["state"]),
        (&json!(0), &json!("final"))
    );
    assert_eq!(audited(api, &run).await.payloads.erased, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_about_a_subject_is_found_by_a_fingerprint_and_erased() {
    let server = Server::start().await;
    let api = &server.api;
    let (one, other) = (
        api.any_run().await.run.to_string(),
        api.any_run().await.run.to_string(),
    );
    let ada = json!({"subjects": ["ada@example.org", "user:7"]});
    for run in [&one, &other] {
        observe(api, run, "ada", "about ada", ada.clone())
            .await
            .is(201);
        observe(
            api,
            run,
            "bob",
            "about bob",
            json!({"subjects": ["bob@example.org"], "tier": 3}),
        )
        .await
        .is(201);
        observe(
            api,
            run,
            "both",
            "about both",
            json!({"subjects": ["bob@example.org", "ada@example.org"], "tier": 0}),
        )
        .await
        .is(201);
        observe(api, run, "none", "about none", json!({}))
            .await
            .is(201);
    }
    // Another subject is another request.
    observe(api, &one, "ada", "about ada", json!({}))
        .await
        .problem(409, "key_conflict");
    observe(api, &one, "ada", "about ada", ada).await.is(200);
    // No frame, and no row but in fingerprints, says whom.
    let mut sql = server.sql().await;
    let named: i64 = sqlx::query_scalar(
        "select count(*) from frames where position('example.org' in encode(bytes, 'escape')) > 0",
    )
    .fetch_one(&mut sql)
    .await
    .unwrap();
    assert_eq!(named, 0);
    let erasure = erase(
        api,
        json!({"subject": "ada@example.org", "reason": "gdpr-17"}),
    )
    .await;
    assert_eq!(
        (&erasure["count"], &erasure["parts"]),
        (&json!(4), &json!(4))
    );
    for run in [&one, &other] {
        let report = audited(api, run).await;
        assert_eq!((report.payloads.erased, report.payloads.disclosed), (2, 2));
    }
    let erasure = erase(api, json!({"subject": "nobody@example.org", "reason": "x"})).await;
    assert_eq!(
        (&erasure["count"], &erasure["state"]),
        (&json!(0), &json!("final"))
    );
    for wrong in [
        json!({"subjects": "x"}),
        json!({"subjects": [""]}),
        json!({"subjects": ["a\nb"]}),
        json!({"subjects": vec!["x"; 17]}),
    ] {
        observe(api, &one, "wrong", "x", wrong)
            .await
            .problem(422, "malformed_member");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_with_the_old_keys_in_its_memory_loses_nothing() {
    let server = Server::start().await;
    let second = server.second().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    for n in 0..2 {
        observe(api, &run, &format!("k{n}"), &format!("said {n}"), json!({}))
            .await
            .is(201);
        observe(
            &second.api,
            &run,
            &format!("s{n}"),
            &format!("second {n}"),
            json!({}),
        )
        .await
        .is(201);
    }
    let first = commit(api, &run, 1).await;
    erase(api, json!({"run": run, "commits": [first], "reason": "r"})).await;
    // Both have the keys of before: what they write now is wrapped with the new ones, and order is kept within a request.
    let call = json!({"kind": "tool_call", "key": "c", "body": {"name": "shell"}, "payloads": [{"name": "arguments", "text": "a"}],
        "result": {"payloads": [{"name": "result", "text": "r"}]}});
    second.api.frame(&run, &call).await.is(201);
    observe(api, &run, "last", "last", json!({})).await.is(201);
    let lines: Vec<String> = (0..20)
        .map(|n| json!({"kind": "observation", "key": format!("l{n}"), "payloads": [{"name": "said", "text": format!("line {n}")}]}).to_string() + "\n")
        .collect();
    erase(
        &second.api,
        json!({"run": run, "commits": [commit(api, &run, 2).await], "reason": "r"}),
    )
    .await;
    let answers = api.frames(&run, lines.concat()).await;
    assert!(
        answers[..20]
            .iter()
            .all(|answer| answer["status"] == 201 || answer["seq"].is_u64()),
        "{answers:?}"
    );
    let retry = observe(&second.api, &run, "k1", "said 1", json!({}))
        .await
        .is(200);
    assert_eq!(retry.json()["seq"], 3);
    let report = audited(&second.api, &run).await;
    assert_eq!((report.payloads.erased, report.payloads.disclosed), (2, 25));
    let text = read(&second.api, &run, &commit(api, &run, 3).await)
        .await
        .is(200)
        .text();
    assert_eq!(text, "said 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_and_erasures_at_once_leave_every_payload_readable_or_certified() {
    let server = Server::start().await;
    let second = server.second().await;
    let run = server.api.any_run().await.run.to_string();
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let api = [&server.api, &second.api][writer % 2].clone();
        let run = run.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..25 {
                observe(
                    &api,
                    &run,
                    &format!("{writer}/{n}"),
                    &format!("{writer} {n}"),
                    json!({"tier": n % 2}),
                )
                .await
                .is(201);
            }
        }));
    }
    let (api, of_run) = (server.api.clone(), run.clone());
    tasks.push(tokio::spawn(async move {
        for n in 0..6 {
            // Among the frames, however slowly these come.
            let mut size = 1;
            while size <= 1 + 10 * n {
                size = api.size(&of_run).await;
            }
            let commit = commit(&api, &of_run, size - 1).await;
            erase(
                &api,
                json!({"run": of_run, "commits": [commit], "reason": "r"}),
            )
            .await;
            if n == 3 {
                erase(&api, json!({"run": of_run, "tier": 1, "reason": "r"})).await;
            }
        }
    }));
    for task in tasks {
        task.await.unwrap();
    }
    server
        .app
        .recorder
        .erase_pending(server.app.finality)
        .await
        .unwrap();
    let report = audited(&server.api, &run).await;
    assert_eq!(report.payloads.count, 100);
    assert_eq!(report.payloads.disclosed + report.payloads.erased, 100);
    assert!(
        report.payloads.erased > 1 && report.payloads.disclosed > 10,
        "{:?}",
        report.payloads
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_under_a_hold_is_erased_on_any_path() {
    let server = Server::start().await;
    let api = &server.api;
    let (held, free) = (
        api.any_run().await.run.to_string(),
        api.any_run().await.run.to_string(),
    );
    for run in [&held, &free] {
        observe(api, run, "k", "about ada", json!({"subjects": ["ada"]}))
            .await
            .is(201);
    }
    let commit = commit(api, &held, 1).await;
    let hold = api
        .post("/v1/holds", &json!({"matter": "case-7", "run": held}))
        .await
        .is(201)
        .json();
    let paths = [
        json!({"run": held, "commits": [commit], "reason": "r"}),
        json!({"run": held, "tier": 2, "reason": "r"}),
    ];
    for path in &paths {
        api.post("/v1/erasures", path).await.problem(409, "held");
    }
    // What is of several runs goes as far as it may, and waits for the rest.
    let erasure = erase(api, json!({"subject": "ada", "reason": "r"})).await;
    assert_eq!(
        (&erasure["held"], &erasure["count"], &erasure["state"]),
        (&json!("case-7"), &json!(1), &json!("requested"))
    );
    assert_eq!(audited(api, &held).await.payloads.disclosed, 1);
    assert_eq!(audited(api, &free).await.payloads.erased, 1);
    let all = erase(api, json!({"tenant": true, "reason": "r"})).await;
    assert_eq!(all["held"], "case-7");
    assert_eq!(audited(api, &held).await.payloads.disclosed, 1);
    // A hold over the tenant is over everything.
    let whole = api
        .post("/v1/holds", &json!({"matter": "all", "tenant": true}))
        .await
        .is(201)
        .json();
    for path in paths.iter().chain(&[
        json!({"run": free, "tier": 2, "reason": "r"}),
        json!({"subject": "bob", "reason": "r"}),
        json!({"tenant": true, "reason": "r"}),
    ]) {
        api.post("/v1/erasures", path).await.problem(409, "held");
    }
    api.post(&format!("/v1/holds/{}/release", whole["hold"]), &json!({}))
        .await
        .is(200);
    server
        .app
        .recorder
        .erase_pending(server.app.finality)
        .await
        .unwrap();
    assert_eq!(audited(api, &held).await.payloads.disclosed, 1);
    api.post(&format!("/v1/holds/{}/release", hold["hold"]), &json!({}))
        .await
        .is(200);
    server
        .app
        .recorder
        .erase_pending(server.app.finality)
        .await
        .unwrap();
    assert_eq!(audited(api, &held).await.payloads.erased, 1);
    let path = format!("/v1/erasures/{}", erasure["erasure"].as_str().unwrap());
    let done = api.get(&path).await.json();
    assert_eq!(
        (&done["state"], &done["held"], &done["count"]),
        (&json!("ciphertext_removed"), &Value::Null, &json!(2))
    );
}

/// Where a step fails, as a kill there would: everything of before holds, and the work goes on afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_each_step_leaves_a_run_that_verifies_and_the_work_goes_on() {
    let steps = [
        ("insert", "keys.run_keys", "new.version > 0"),
        (
            "update",
            "erasure_parts",
            "new.key_version is distinct from old.key_version",
        ),
        ("insert", "ledger_entries", "new.name = 'erasure'"),
        ("insert", "checkpoints", "true"),
        ("update", "runs", "new.key_version > old.key_version"),
        ("update", "erasure_parts", "new.certified"),
        ("update", "payloads", "new.wrapped_dek = ''"),
        ("update", "payloads", "new.key_version > old.key_version"),
        ("delete", "keys.run_keys", "true"),
        ("update", "erasure_parts", "new.keys_destroyed"),
        ("delete", "payloads", "true"),
        ("update", "erasure_parts", "new.removed"),
        ("update", "erasures", "new.removed_at is not null"),
    ];
    let server = Server::start().await;
    let api = &server.api;
    let mut sql = server.sql().await;
    for (verb, table, when) in steps {
        let run = api.any_run().await.run.to_string();
        said(api, &run, 0..3).await;
        let gone = commit(api, &run, 2).await;
        break_table(&mut sql, verb, table, when).await;
        let wanted = json!({"run": run, "commits": [gone], "reason": "r"});
        let erasure = api.post("/v1/erasures", &wanted).await.is(201).json();
        let step = format!("{verb} of {table} where {when}");
        assert!(
            ["requested", "keys_destroyed"].contains(&erasure["state"].as_str().unwrap()),
            "{step}: {erasure}"
        );
        if table != "ledger_entries" && table != "checkpoints" {
            // Recording goes on meanwhile, and whoever reads sees the payload or its certificate.
            observe(api, &run, "more", "more", json!({})).await.is(201);
            let report = audited_unless_broken(&server, &run, table).await;
            assert!(
                report.is_none_or(|report| report.payloads.disclosed + report.payloads.erased == 4),
                "{step}"
            );
        }
        mend_table(&mut sql, table).await;
        server
            .app
            .recorder
            .erase_pending(server.app.finality)
            .await
            .unwrap();
        let path = format!("/v1/erasures/{}", erasure["erasure"].as_str().unwrap());
        let done = api.get(&path).await.is(200).json();
        assert_eq!(
            (&done["state"], &done["count"]),
            (&json!("ciphertext_removed"), &json!(1)),
            "{step}"
        );
        read(api, &run, &gone).await.problem(410, "payload_erased");
        observe(api, &run, "last", "last", json!({})).await.is(201);
        let report = audited(api, &run).await;
        assert_eq!(report.payloads.erased, 1, "{step}");
        assert_eq!(
            report.payloads.disclosed,
            report.payloads.count - 1,
            "{step}"
        );
        let old: i64 = sqlx::query_scalar(
            "select count(*) from keys.run_keys where run = run_uuid($1) and tier = 2",
        )
        .bind(&run)
        .fetch_one(&mut sql)
        .await
        .unwrap();
        assert_eq!(old, 1, "{step}: of the tier there is one key, which is new");
    }
}

/// An erasure that is cut off after its certificate, and others of the same tier before it goes on: what the ledger says is
/// erased is not brought under a key that stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_certified_and_not_removed_is_not_renewed_by_others() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    said(api, &run, 0..3).await;
    let mut sql = server.sql().await;
    break_table(&mut sql, "delete", "keys.run_keys", "true").await;
    let first = api
        .post(
            "/v1/erasures",
            &json!({"run": run, "tier": 2, "reason": "r"}),
        )
        .await
        .is(201)
        .json();
    assert_eq!(
        (&first["state"], &first["entries"]),
        (&json!("requested"), &json!(1))
    );
    mend_table(&mut sql, "keys.run_keys").await;
    // Recorded since, it is not covered, and another erasure and a renewal of the keys come before the first goes on.
    said(api, &run, 3..6).await;
    let later = commit(api, &run, 5).await;
    let second = erase(api, json!({"run": run, "commits": [later], "reason": "r"})).await;
    assert_eq!(second["state"], "ciphertext_removed");
    api.post(&format!("/v1/runs/{run}/keys/rotation"), &json!({}))
        .await
        .is(200);
    // Nor does a second erasure of the tier count what the first one certified.
    let third = erase(api, json!({"run": run, "tier": 2, "reason": "r"})).await;
    assert_eq!(
        (&third["state"], &third["count"]),
        (&json!("ciphertext_removed"), &json!(2))
    );
    let opens: i64 = sqlx::query_scalar(
        "select count(*) from payloads join keys.run_keys using (run, tier) where payloads.key_version = run_keys.version and seq < 4",
    )
    .fetch_one(&mut sql)
    .await
    .unwrap();
    assert_eq!(opens, 0, "no key is left for what is certified");
    server
        .app
        .recorder
        .erase_pending(server.app.finality)
        .await
        .unwrap();
    let left: i64 = sqlx::query_scalar("select count(*) from payloads")
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(left, 0);
    let report = audited(api, &run).await;
    assert_eq!((report.payloads.erased, report.payloads.disclosed), (6, 0));
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    assert_eq!(seal(api, &run).await.payloads.erased, 6, "each counts once");
}

#[tokio::test(flavor = "multi_thread")]
async fn erasures_that_are_asked_for_at_once_are_all_carried_out() {
    let server = Server::start().await;
    let second = server.second().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    said(api, &run, 0..12).await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let api = [api, &second.api][n % 2].clone();
        let run = run.clone();
        tasks.push(tokio::spawn(async move {
            let commit = commit(&api, &run, n as u64 + 1).await;
            let wanted = json!({"run": run, "commits": [commit], "reason": "r"});
            api.post("/v1/erasures", &wanted).await.is(201).json()
        }));
    }
    for task in tasks {
        let erasure = task.await.unwrap();
        assert_eq!(
            (&erasure["state"], &erasure["count"]),
            (&json!("ciphertext_removed"), &json!(1))
        );
    }
    let report = audited(api, &run).await;
    assert_eq!((report.payloads.erased, report.payloads.disclosed), (8, 4));
}

/// Exports write to the ledger and so to checkpoints, which a broken table may not take.
async fn audited_unless_broken(server: &Server, run: &str, table: &str) -> Option<Report> {
    match table {
        "ledger_entries" | "checkpoints" => None,
        _ => Some(audited(&server.api, run).await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_signed_over_the_entries_and_says_how_far_it_is() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    observe(api, &run, "a", "a", json!({"tier": 1}))
        .await
        .is(201);
    observe(api, &run, "b", "b", json!({"tier": 3}))
        .await
        .is(201);
    let erasure = erase(
        api,
        json!({"tenant": true, "reason": "end of contract", "policy": "contract"}),
    )
    .await;
    let path = format!("/v1/erasures/{}", erasure["erasure"].as_str().unwrap());
    let entries = api.get(&format!("{path}/entries")).await.is(200);
    assert_eq!(entries.text().lines().count(), 2);
    let envelope = api.get(&format!("{path}/certificate")).await.is(200);
    let signed = Signed::parse(&envelope.bytes).unwrap();
    assert_eq!(signed.subject, "erasure-entries.txt");
    assert_eq!(signed.digest, Hash::of(&[&entries.bytes]));
    let Some(Predicate::Disposal(disposal)) = signed.predicate().unwrap() else {
        panic!("a disposal");
    };
    assert_eq!(
        (disposal.count, disposal.entries, &disposal.scope[..]),
        (2, 2, "tenant")
    );
    assert!(
        disposal.keys_destroyed_at.is_some()
            && disposal.removed_at.is_some()
            && disposal.final_at.is_none()
    );
    assert_eq!(
        (&disposal.reason[..], &disposal.policy[..]),
        ("end of contract", "contract")
    );
    let body: Value = serde_json::from_slice(&envelope.bytes).unwrap();
    let sig = STANDARD
        .decode(body["signatures"][0]["sig"].as_str().unwrap())
        .unwrap();
    assert_eq!(sig.len(), 64);
    // Each line is an entry of the ledger, as the bundle has it.
    let bundle = crate::api::bundle::Bundle::read(&export(api, &run).await);
    let ledger = String::from_utf8_lossy(bundle.member("ledger.ndjson")).into_owned();
    let leaves: Vec<String> = ledger
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            onrecord_core::digest::leaf_hash(line["entry"].as_str().unwrap().as_bytes()).hex()
        })
        .collect();
    for line in entries.text().lines() {
        let mut words = line.split(' ').skip(1);
        assert!(leaves.contains(&words.next().unwrap().to_owned()), "{line}");
        assert_eq!(words.next(), Some(&run[..]));
    }
    // Final, it is on the ledger itself, which verifies still.
    for role in ["agent", "gate"] {
        let other = api.role(role).await;
        other
            .get(&format!("{path}/certificate"))
            .await
            .problem(403, "role_missing");
    }
    audited(api, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_erasure_is_refused_and_a_retry_finds_its_own() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    observe(api, &run, "k", "x", json!({})).await.is(201);
    let commit = commit(api, &run, 1).await;
    for wrong in [
        json!({"reason": "r"}),
        json!({"run": run, "reason": "r"}),
        json!({"run": run, "tier": 4, "reason": "r"}),
        json!({"run": run, "tier": 2, "commits": [commit], "reason": "r"}),
        json!({"run": run, "commits": [], "reason": "r"}),
        json!({"run": run, "commits": ["x"], "reason": "r"}),
        json!({"commits": [commit], "reason": "r"}),
        json!({"tenant": true, "run": run, "reason": "r"}),
        json!({"tenant": true, "reason": ""}),
        json!({"tenant": true, "reason": "a\nb"}),
        json!({"tenant": true}),
        json!({"subject": "", "reason": "r"}),
        json!({"tenant": true, "reason": "r", "policy": ""}),
        json!({"tenant": true, "reason": "r", "when": "now"}),
    ] {
        api.post("/v1/erasures", &wrong)
            .await
            .problem(400, "malformed_parameter");
    }
    let unknown = json!({"run": run, "commits": ["0".repeat(64)], "reason": "r"});
    api.post("/v1/erasures", &unknown)
        .await
        .problem(404, "payload_not_found");
    let unknown = json!({"run": "01K7Q4Z8V2N5R3T6Y9B1C0D4E8", "tier": 2, "reason": "r"});
    api.post("/v1/erasures", &unknown)
        .await
        .problem(404, "run_not_found");
    api.get("/v1/erasures/01K7Q4Z8V2N5R3T6Y9B1C0D4E8")
        .await
        .problem(404, "erasure_not_found");
    let wanted = json!({"run": run, "tier": 2, "reason": "r", "key": "once"});
    for role in ["agent", "gate", "auditor", "admin"] {
        api.role(role)
            .await
            .post("/v1/erasures", &wanted)
            .await
            .problem(403, "role_missing");
    }
    let other = api.new_tenant().await;
    other
        .post("/v1/erasures", &wanted)
        .await
        .problem(404, "run_not_found");
    let first = api.post("/v1/erasures", &wanted).await.is(201).json();
    let again = api.post("/v1/erasures", &wanted).await.is(200).json();
    assert_eq!(first["erasure"], again["erasure"]);
    let another = json!({"run": run, "tier": 1, "reason": "r", "key": "once"});
    api.post("/v1/erasures", &another)
        .await
        .problem(409, "key_conflict");
    let path = format!("/v1/erasures/{}", first["erasure"].as_str().unwrap());
    other.get(&path).await.problem(404, "erasure_not_found");
    assert_eq!(
        other.get("/v1/erasures").await.is(200).json(),
        json!({"erasures": []})
    );
    let second = erase(api, json!({"run": run, "tier": 1, "reason": "r"})).await;
    let page = api.get("/v1/erasures?limit=1").await.is(200).json();
    assert_eq!(page["erasures"][0]["erasure"], second["erasure"]);
    let page = api
        .get(&format!(
            "/v1/erasures?limit=1&before={}",
            page["next"].as_str().unwrap()
        ))
        .await
        .is(200)
        .json();
    assert_eq!(page["erasures"][0]["erasure"], first["erasure"]);
    api.get("/v1/erasures?limit=0")
        .await
        .problem(400, "malformed_parameter");
    api.get("/v1/erasures?before=x")
        .await
        .problem(400, "malformed_parameter");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_run_are_renewed_while_it_is_written_to() {
    let server = Server::start().await;
    let second = server.second().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    for n in 0..4 {
        observe(
            api,
            &run,
            &format!("k{n}"),
            &format!("said {n}"),
            json!({"tier": n}),
        )
        .await
        .is(201);
    }
    let ciphertexts = |server: &Server| {
        let url = server.database.url.clone();
        async move {
            let mut sql = <sqlx::PgConnection as sqlx::Connection>::connect(&url)
                .await
                .unwrap();
            sqlx::query_as::<_, (Vec<u8>, Vec<u8>)>(
                "select commit, ciphertext from payloads order by commit",
            )
            .fetch_all(&mut sql)
            .await
            .unwrap()
        }
    };
    let before = ciphertexts(&server).await;
    let path = format!("/v1/runs/{run}/keys/rotation");
    let done = api.post(&path, &json!({})).await.is(200).json();
    assert_eq!(done, json!({"run": run, "rewrapped": 4}));
    assert_eq!(
        ciphertexts(&server).await,
        before,
        "no ciphertext is touched"
    );
    observe(&second.api, &run, "k4", "said 4", json!({}))
        .await
        .is(201);
    observe(api, &run, "k1", "said 1", json!({"tier": 1}))
        .await
        .is(200);
    let keys: Vec<(i16, i16)> =
        sqlx::query_as("select tier, version from keys.run_keys order by tier")
            .fetch_all(&mut server.sql().await)
            .await
            .unwrap();
    assert_eq!(keys, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    assert_eq!(audited(api, &run).await.payloads.disclosed, 5);
    for role in ["agent", "compliance", "auditor"] {
        api.role(role)
            .await
            .post(&path, &json!({}))
            .await
            .problem(403, "role_missing");
    }
    let unknown = "/v1/runs/01K7Q4Z8V2N5R3T6Y9B1C0D4E8/keys/rotation";
    api.post(unknown, &json!({}))
        .await
        .problem(404, "run_not_found");
}
