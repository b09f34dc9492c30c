//! `onrecord bench seed`: what is made up is evidence like any other.

use crate::api::Api;
use crate::api::audit::audit;
use crate::running::Server;
use onrecord::audit::{Audit, State, Told};
use onrecord::seed::{Seed, Seeded, Seeding};
use onrecord_core::invariants::{Invariant, Warning};
use onrecord_verify::Status;
use serde_json::Value;

const RUNS: u64 = 430;

async fn seeded(server: &Server, seed: u64) -> (Api, String, Seeded) {
    let seed = Seed {
        runs: RUNS,
        frames: 20,
        payloads: 2,
        days: 30,
        seed,
        host: "localhost".to_owned(),
    };
    let seeding = Seeding::begin(&server.app.recorder, seed).await.unwrap();
    let mut steps = Vec::new();
    let done = seeding.fill(|seeded| {
        steps.push(seeded.runs);
        true
    });
    let done = done.await.unwrap();
    assert_eq!(steps, [200, 400, 430]);
    let tenant = seeding.tenant().to_string();
    (server.api.with(seeding.token()), tenant, done)
}

async fn runs(api: &Api) -> Vec<Value> {
    let mut runs = Vec::new();
    let mut path = "/v1/runs?limit=200".to_owned();
    loop {
        let page = api.get(&path).await.is(200).json();
        runs.extend(page["runs"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/runs?limit=200&cursor={next}"),
            None => return runs,
        }
    }
}

/// What is said of a tenant's runs, in the order of their numbers.
async fn facts(server: &Server, tenant: &str) -> Vec<(i64, i16, String)> {
    let sql =
        "select run_no, field, value from run_facts join runs using (run) where runs.tenant = $1
        order by run_no, field, value collate \"C\"";
    let mut connection = server.sql().await;
    let rows = sqlx::query_as(sql).bind(tenant);
    rows.fetch_all(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_up_verifies_and_the_audit_finds_nothing() {
    let server = Server::start().await;
    let (api, _, done) = seeded(&server, 7).await;
    assert_eq!((done.runs, done.frames), (RUNS, RUNS * 20));
    let audit_all = Audit {
        url: server.database.url.clone(),
        trusts: Vec::new(),
        jobs: 2,
    };
    let mut found = Vec::new();
    let mut state = State::none();
    let summary = audit_all.run(&mut state, |told| {
        if let Told::Finding(finding) = told {
            found.push(finding);
        }
    });
    let summary = summary.await.unwrap();
    assert_eq!((found, summary.status), (Vec::new(), Status::Verified));
    assert_eq!(summary.progress.frames, RUNS * 20);

    let runs = runs(&api).await;
    assert_eq!(runs.len() as u64, RUNS);
    let of = |status: &str| {
        runs.iter()
            .filter(|run| run["status"] == status)
            .collect::<Vec<_>>()
    };
    let (sealed, open) = (of("sealed"), of("open"));
    assert_eq!(sealed.len() as u64, done.sealed);
    let interrupted: Vec<_> = sealed
        .iter()
        .filter(|run| run["outcome"] == "unknown")
        .collect();
    let failed: Vec<_> = sealed
        .iter()
        .filter(|run| run["outcome"] == "failed")
        .collect();
    let some = [
        &sealed[0],
        &sealed[sealed.len() - 1],
        interrupted[0],
        failed[0],
    ];
    for run in some.into_iter().chain(open.first()) {
        assert_eq!(run["size"], 20, "{run}");
        let (report, _) = audit(&api, run["run"].as_str().unwrap(), &[]).await;
        let mut warnings = report.meaning.warnings.iter();
        let unanswered = |one: &Warning| one.code == Invariant::MissingObservation;
        assert!(warnings.all(unanswered), "{:?}", report.meaning);
    }
    // It is a tenant like any other: what comes after is recorded in it.
    let after = api.any_run().await;
    audit(&api, &after.run, std::slice::from_ref(&after)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_number_makes_up_the_same_runs() {
    let server = Server::start().await;
    let (_, one, _) = seeded(&server, 7).await;
    let (_, same, _) = seeded(&server, 7).await;
    let (_, other, _) = seeded(&server, 8).await;
    let said = facts(&server, &one).await;
    assert_eq!(said, facts(&server, &same).await);
    assert_ne!(said, facts(&server, &other).await);
    let has = |value: &str| said.iter().filter(|(.., found)| found == value).count();
    assert_eq!(has("seismograph"), 1);
    assert!(has("shell") > has("refund") && has("refund") > 0);
    for value in [
        "pass",
        "fail",
        "error",
        "skipped",
        "unit tests",
        "coding",
        "regulated",
        "password",
        "3",
    ] {
        assert!(has(value) > 0, "{value}");
    }
}
