//! Flags of runs: statements on the ledger, on sealed runs too.

use crate::hold_orders::fits;
use crate::running::Server;
use onrecord_core::statement::{FlagAction, Predicate, Signed};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn agents_gates_and_people_flag_runs_and_people_clear_them() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let path = format!("/v1/runs/{run}/flags");
    let agent = server.api.role("agent").await;
    let wanted = json!({"flag": "drift", "reason": "score-low"});
    let drift = agent.post(&path, &wanted).await.is(201).json();
    assert_eq!(drift["by"]["type"], "agent");
    assert_eq!(agent.post(&path, &wanted).await.is(200).json(), drift);
    server.audit(&run, &[]).await;
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let gate = server.api.role("gate").await;
    let wanted = json!({"flag": "drift", "incident": "inc-4"});
    let incident = gate.post(&path, &wanted).await.is(201).json();
    assert_eq!(incident["by"]["type"], "verifier");
    let auditor = server.api.role("auditor").await;
    let wanted = json!({"flag": "look"});
    let look = auditor.post(&path, &wanted).await.is(201).json();
    assert_eq!(look["by"], server.person("a auditor").await);
    let standing = json!({"flags": [drift, incident, look]});
    assert_eq!(agent.get(&path).await.is(200).json(), standing);
    assert_eq!(api.run(&run).await["flags"], standing["flags"]);
    server.audit(&run, &[]).await;
    fits(&server).await;

    for api in [&agent, &gate] {
        let answer = api.delete(&format!("{path}/look")).await;
        answer.problem(403, "role_missing");
    }
    let ended = auditor
        .delete(&format!("{path}/drift?incident=inc-4&reason=solved"))
        .await
        .is(200)
        .json();
    assert_eq!(ended["flags"][0]["index"], incident["index"]);
    let index = &ended["flags"][0]["cleared"]["index"];
    let entry = api
        .get(&format!("/v1/ledger/entries/{index}"))
        .await
        .is(200);
    let said = Signed::parse(&entry.bytes).unwrap().predicate().unwrap();
    let Some(Predicate::Flag(said)) = said else {
        panic!("an entry about a flag");
    };
    assert_eq!(said.action, FlagAction::Cleared);
    assert_eq!(said.incident.as_deref(), Some("inc-4"));
    assert_eq!(said.reason.as_deref(), Some("solved"));
    assert_eq!(said.run.to_string(), run);
    assert_eq!(
        api.get(&path).await.is(200).json(),
        json!({"flags": [drift, look]})
    );
    auditor.delete(&format!("{path}/drift")).await.is(200);
    let answer = auditor.delete(&format!("{path}/drift")).await;
    answer.problem(404, "flag_not_found");
    let all = api.get(&format!("{path}?state=all")).await.is(200).json();
    assert_eq!(all["flags"].as_array().unwrap().len(), 3);
    // Set again, it is a new one.
    let again = agent.post(&path, &json!({"flag": "drift"})).await.is(201);
    assert!(again.json()["index"].as_u64() > drift["index"].as_u64());
    // Who reads a report of the run sees what became of it.
    let report = format!("/v1/runs/{run}/report");
    let report = api.get(&report).await.is(200).json();
    let events = report["custody"]["events"].as_array().unwrap();
    let events = events.iter().map(|event| {
        let word = |name: &str| event[name].as_str().unwrap();
        (word("what"), word("detail"))
    });
    let events: Vec<_> = events
        .filter(|(what, _)| what.starts_with("flag"))
        .collect();
    assert_eq!(
        events,
        [
            ("flagged", "drift, for: score-low"),
            ("flagged", "drift, incident inc-4"),
            ("flagged", "look"),
            ("flag-cleared", "drift, incident inc-4, for: solved"),
            ("flag-cleared", "drift"),
            ("flagged", "drift"),
        ]
    );
    server.audit(&run, &[]).await;
    fits(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_flag_is_refused() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let path = format!("/v1/runs/{run}/flags");
    for (wrong, code) in [
        (json!({}), "malformed_parameter"),
        (json!({"flag": "f", "why": "w"}), "malformed_parameter"),
        (json!({"flag": "not a code"}), "code_expected"),
        (json!({"flag": "f", "incident": ""}), "code_expected"),
        (json!({"flag": "f", "reason": "a b"}), "code_expected"),
    ] {
        api.post(&path, &wrong).await.problem(400, code);
    }
    let flag = json!({"flag": "f"});
    let unknown = "/v1/runs/01K7Q4Z8V2N5R3T6Y9B1C0D4E8/flags";
    api.post(unknown, &flag).await.problem(404, "run_not_found");
    api.get(unknown).await.problem(404, "run_not_found");
    let answer = api.delete(&format!("{unknown}/f")).await;
    answer.problem(404, "run_not_found");
    api.post(&path, &flag).await.is(201);
    let other = server.api.new_tenant().await;
    other.post(&path, &flag).await.problem(404, "run_not_found");
    let answer = other.delete(&format!("{path}/f")).await;
    answer.problem(404, "run_not_found");
    assert_eq!(api.run(&run).await["flags"][0]["flag"], "f");
    // What no entry says is found, and so is what one says and is not there.
    let mut sql = server.sql().await;
    for (change, found) in [
        ("update run_flags set flag = 'g'", "flag"),
        (
            "alter table run_flags disable trigger all; delete from run_flags",
            "set_index",
        ),
    ] {
        sqlx::raw_sql(change).execute(&mut sql).await.unwrap();
        let told = findings(&server).await;
        assert_eq!(told, [format!("run_flags.{found}")]);
    }
}

/// What an audit finds.
async fn findings(server: &Server) -> Vec<String> {
    let audit = onrecord::audit::Audit {
        url: server.database.url.clone(),
        trusts: Vec::new(),
        jobs: 1,
    };
    let mut told = Vec::new();
    audit
        .run(&mut onrecord::audit::State::none(), |one| {
            if let onrecord::audit::Told::Finding(one) = one {
                told.push(format!("{}.{}", one.table, one.column));
            }
        })
        .await
        .unwrap();
    told
}

/// Holds are compared with the ledger too.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_somebody_ends_in_the_table_is_found() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let hold = json!({"matter": "m", "run": run});
    server.api.post("/v1/holds", &hold).await.is(201);
    assert_eq!(findings(&server).await, [""; 0]);
    let mut sql = server.sql().await;
    sqlx::raw_sql(
        "update holds set released_index = 1, released_at = now(), released_by_type = 'human', released_by_id = 'p'",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    assert_eq!(findings(&server).await, ["holds.released_index"]);
}
