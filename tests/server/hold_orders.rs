//! Orders of holds: over what a filter finds and over subjects. What an order found is never erased, also before its holds are
//! set, and whatever interrupts it, it is carried out to its end.

use crate::api::{Answer, Api};
use crate::running::Server;
use onrecord::audit::{Audit, State};
use onrecord_verify::Status;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// A run of an agent with a payload, about somebody or nobody; the run and the payload's commitment.
async fn run_of(api: &Api, agent: &str, about: &[&str]) -> (String, String) {
    let run = api.open(&json!({"session": {"agent": agent}})).await;
    let run = run.run.to_string();
    let commit = said(api, &run, "k", about).await;
    (run, commit)
}

/// A payload more; its commitment.
async fn said(api: &Api, run: &str, key: &str, about: &[&str]) -> String {
    let payload = json!({"name": "said", "text": format!("said {key}"), "subjects": about});
    let frame = json!({"kind": "observation", "key": key, "payloads": [payload]});
    let seq = api.frame(run, &frame).await.is(201).receipt().seq;
    let path = format!("/v1/runs/{run}/frames/{seq}");
    let frame = api.get(&path).await.is(200).json();
    frame["payloads"][0]["commit"].as_str().unwrap().to_owned()
}

async fn erase(api: &Api, run: &str, commit: &str) -> Answer {
    let erasure = json!({"run": run, "commits": [commit], "reason": "r"});
    api.post("/v1/erasures", &erasure).await
}

/// Orders a hold; the id and the answer.
async fn order(api: &Api, wanted: Value, status: u16) -> (String, Value) {
    let answer = api.post("/v1/holds", &wanted).await.is(status).json();
    (answer["order"].as_str().unwrap().to_owned(), answer)
}

async fn read(api: &Api, id: &str) -> Value {
    let path = format!("/v1/hold-orders/{id}");
    api.get(&path).await.is(200).json()
}

async fn release(api: &Api, id: &str, status: u16) -> Value {
    let path = format!("/v1/hold-orders/{id}/release");
    api.post(&path, &json!({})).await.is(status).json()
}

async fn holds(api: &Api, matter: &str) -> Vec<Value> {
    let path = format!("/v1/holds?matter={matter}");
    let answer = api.get(&path).await.is(200).json();
    answer["holds"].as_array().unwrap().clone()
}

/// The whole database fits its ledger.
pub async fn fits(server: &Server) {
    let audit = Audit {
        url: server.database.url.clone(),
        trusts: Vec::new(),
        jobs: 2,
    };
    let mut told = Vec::new();
    let summary = audit
        .run(&mut State::none(), |one| told.push(format!("{one:?}")))
        .await
        .unwrap();
    assert_eq!(
        (summary.findings, summary.status),
        (0, Status::Verified),
        "{told:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_filter_found_is_held_run_by_run_and_released_with_its_order() {
    let server = Server::start().await;
    let api = &server.api.role("compliance").await;
    let agent = &server.api;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(run_of(agent, "a", &[]).await);
    }
    let (other, other_commit) = run_of(agent, "b", &[]).await;
    let wanted = json!({"matter": "case-7", "reason": "subpoena", "filter": "agent = \"a\""});
    let (id, set) = order(api, wanted, 201).await;
    assert_eq!(
        (&set["state"], &set["found"], &set["held"], &set["over"]),
        (&json!("in-force"), &json!(3), &json!(3), &json!("filter"))
    );
    assert_eq!(read(api, &id).await, set);
    let list = holds(api, "case-7").await;
    assert_eq!(list.len(), 3);
    for hold in &list {
        assert_eq!(
            (&hold["order"], &hold["reason"]),
            (&json!(id), &json!("subpoena"))
        );
    }
    for (run, commit) in &found {
        server.audit(run, &[]).await;
        erase(agent, run, commit).await.problem(409, "held");
    }
    erase(agent, &other, &other_commit).await.is(201);
    // What comes later is not of the result.
    let (later, later_commit) = run_of(agent, "a", &[]).await;
    erase(agent, &later, &later_commit).await.is(201);
    fits(&server).await;

    // Somebody wants one of them for itself: that is the same hold, and it stays.
    let single = json!({"matter": "case-7", "run": found[0].0});
    let one = api.post("/v1/holds", &single).await.is(200).json();
    let path = format!("/v1/holds/{}/release", one["hold"]);
    let refused = api.post(&path, &json!({})).await;
    refused.problem(409, "hold_of_order");
    // Another order for the same matter wants another.
    let wanted = json!({"matter": "case-7", "filter": "agent = \"a\" and run_no = 2"});
    let (second, set) = order(api, wanted, 201).await;
    assert_eq!((&set["found"], &set["held"]), (&json!(1), &json!(1)));
    assert_eq!(holds(api, "case-7").await.len(), 3);

    let released = release(api, &id, 200).await;
    assert_eq!(
        (&released["state"], &released["let_go"]),
        (&json!("released"), &json!(3))
    );
    assert_eq!(release(api, &id, 200).await, released);
    let left: Vec<Value> = holds(api, "case-7").await;
    let mut left: Vec<&str> = left
        .iter()
        .map(|one| one["run"].as_str().unwrap())
        .collect();
    left.sort_unstable();
    let mut wanted = [found[0].0.as_str(), found[1].0.as_str()];
    wanted.sort_unstable();
    assert_eq!(left, wanted);
    erase(agent, &found[2].0, &found[2].1).await.is(201);
    erase(agent, &found[1].0, &found[1].1)
        .await
        .problem(409, "held");
    release(api, &second, 200).await;
    erase(agent, &found[1].0, &found[1].1).await.is(201);
    api.post(&path, &json!({})).await.is(200);
    erase(agent, &found[0].0, &found[0].1).await.is(201);
    for (run, _) in &found {
        server.audit(run, &[]).await;
    }
    fits(&server).await;
    let orders = api.get("/v1/hold-orders").await.is(200).json();
    assert_eq!(orders["orders"], json!([]));
    let orders = api
        .get("/v1/hold-orders?state=all&limit=1")
        .await
        .is(200)
        .json();
    assert_eq!(orders["orders"][0]["order"], json!(second));
    assert_eq!(orders["next"], json!(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_later_about_a_subject_is_held_at_once() {
    let server = Server::start().await;
    let api = &server.api;
    let (before, before_commit) = run_of(api, "a", &["ada"]).await;
    let (free, free_commit) = run_of(api, "a", &["bob"]).await;
    let wanted = json!({"matter": "case-7", "subject": "ada"});
    let (id, set) = order(api, wanted.clone(), 201).await;
    assert_eq!((&set["found"], &set["held"]), (&json!(1), &json!(1)));
    assert_eq!(set["filter"], Value::Null);
    // The same again is the same order.
    assert_eq!(order(api, wanted, 200).await.0, id);
    erase(api, &before, &before_commit)
        .await
        .problem(409, "held");
    erase(api, &free, &free_commit).await.is(201);
    // Before anybody looked: the decision finds the payload itself, in a run that was free and in a new one.
    let about = said(api, &free, "k2", &["bob", "ada"]).await;
    erase(api, &free, &about).await.problem(409, "held");
    let (after, after_commit) = run_of(api, "b", &["ada"]).await;
    let refused = erase(api, &after, &after_commit).await;
    refused.problem(409, "held");
    let tier = json!({"run": after, "tier": 2, "reason": "r"});
    api.post("/v1/erasures", &tier).await.problem(409, "held");
    server.app.recorder.carry_out_orders().await.unwrap();
    let seen = read(api, &id).await;
    assert_eq!(
        (&seen["state"], &seen["found"], &seen["held"]),
        (&json!("in-force"), &json!(3), &json!(3))
    );
    assert_eq!(holds(api, "case-7").await.len(), 3);
    for run in [&before, &free, &after] {
        server.audit(run, &[]).await;
    }
    // The name is nowhere.
    let rows: Vec<String> = sqlx::query_scalar("select hold_orders::text from hold_orders")
        .fetch_all(&mut server.sql().await)
        .await
        .unwrap();
    // As a cell: a fingerprint may have the same letters.
    let cells = |row: &String| row.split([',', '(', ')', '"']).any(|cell| cell == "ada");
    assert!(!rows.iter().any(cells), "{rows:?}");
    release(api, &id, 200).await;
    erase(api, &after, &after_commit).await.is(201);
    fits(&server).await;
}

/// Every way to ask for an erasure, of a run and of more.
fn ways(run: &str, commit: &str) -> [(Value, bool); 4] {
    [
        (
            json!({"run": run, "commits": [commit], "reason": "r"}),
            true,
        ),
        (json!({"run": run, "tier": 2, "reason": "r"}), true),
        (json!({"subject": "ada", "reason": "r"}), false),
        (json!({"tenant": true, "reason": "r"}), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_hold_is_in_the_way_of_every_way_of_erasing() {
    for kind in ["run", "tenant", "filter", "subject"] {
        let server = Server::start().await;
        let api = &server.api;
        let (run, commit) = run_of(api, "a", &["ada"]).await;
        let wanted = match kind {
            "run" => json!({"matter": "m", "run": run}),
            "tenant" => json!({"matter": "m", "tenant": true}),
            "filter" => json!({"matter": "m", "filter": "agent = \"a\""}),
            _ => json!({"matter": "m", "subject": "ada"}),
        };
        api.post("/v1/holds", &wanted).await.is(201);
        for (way, of_run) in ways(&run, &commit) {
            let answer = api.post("/v1/erasures", &way).await;
            if of_run || kind == "tenant" {
                answer.problem(409, "held");
            } else {
                // It waits, and nothing of it was done.
                let erasure = answer.is(201).json();
                assert_eq!(
                    (&erasure["held"], &erasure["count"]),
                    (&json!("m"), &json!(0)),
                    "{kind} {way}"
                );
            }
            let finality = server.app.finality;
            server.app.recorder.erase_pending(finality).await.unwrap();
            let (report, _) = server.audit(&run, &[]).await;
            assert_eq!(report.payloads.disclosed, 1, "{kind} {way}");
        }
    }
}

/// Holds are refused by the database from now on, as a failure there would.
async fn broken(sql: &mut PgConnection) {
    sql.execute(
        "create function broken() returns trigger language plpgsql as $$ begin
           raise exception 'broken' using errcode = 'internal_error'; end $$;
         create trigger broken before insert on holds for each row execute function broken()",
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_not_through_is_in_the_way_and_goes_on() {
    let server = Server::start().await;
    let api = &server.api;
    let (run, commit) = run_of(api, "a", &["ada"]).await;
    let (free, free_commit) = run_of(api, "b", &[]).await;
    let mut sql = server.sql().await;
    broken(&mut sql).await;
    let filter = json!({"matter": "m", "filter": "agent = \"a\""});
    let (id, set) = order(api, filter, 202).await;
    assert_eq!(
        (&set["state"], &set["found"], &set["held"]),
        (&json!("holding"), &json!(1), &json!(0))
    );
    for (way, of_run) in ways(&run, &commit) {
        let answer = api.post("/v1/erasures", &way).await;
        if of_run {
            answer.problem(409, "held");
        } else {
            assert_eq!(answer.is(201).json()["held"], "m", "{way}");
        }
    }
    server.audit(&run, &[]).await;
    erase(api, &free, &free_commit).await;
    server.app.recorder.carry_out_orders().await.unwrap();
    assert_eq!(read(api, &id).await["held"], 0);
    sql.execute("drop trigger broken on holds").await.unwrap();
    let server = server.restart().await;
    let api = &server.api;
    server.app.recorder.carry_out_orders().await.unwrap();
    let done = read(api, &id).await;
    assert_eq!(
        (&done["state"], &done["held"]),
        (&json!("in-force"), &json!(1))
    );
    let finality = server.app.finality;
    server.app.recorder.erase_pending(finality).await.unwrap();
    let (report, _) = server.audit(&run, &[]).await;
    assert_eq!(report.payloads.disclosed, 1);
    fits(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_server_is_killed_goes_on_in_the_next() {
    let server = Server::start().await;
    let api = &server.api;
    let opened = (0..300).map(|_| api.any_run());
    let runs = futures_util::future::join_all(opened).await;
    let mut sql = server.sql().await;
    // The second batch waits for this lock in the middle of its rows.
    sql.execute(
        "create function wait() returns trigger language plpgsql as $$ begin
           if (select count(*) from holds) >= 256 then perform pg_advisory_xact_lock(7); end if; return new; end $$;
         create trigger wait before insert on holds for each row execute function wait()",
    )
    .await
    .unwrap();
    let mut lock = server.sql().await;
    lock.execute("select pg_advisory_lock(7)").await.unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(server.data_dir.path())
        .env("DATABASE_URL", &server.database.url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let base = loop {
        let line = lines.next_line().await.unwrap().expect("it starts");
        if let Some((_, url)) = line.split_once(" at http://") {
            break format!("http://{url}");
        }
    };
    let drained = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let wanted = json!({"matter": "m", "filter": "agent = \"any\""});
    let (id, set) = order(&api.at(base), wanted, 202).await;
    assert_eq!(
        (&set["found"], &set["held"], &set["state"]),
        (&json!(300), &json!(256), &json!("holding"))
    );
    process.kill().await.unwrap();
    drained.await.unwrap();
    lock.close().await.unwrap();
    server.app.recorder.carry_out_orders().await.unwrap();
    let done = read(api, &id).await;
    assert_eq!(
        (&done["held"], &done["state"]),
        (&json!(300), &json!("in-force"))
    );
    // Each run has one hold.
    let mut held = BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = api
            .get(&format!("/v1/holds?matter=m&limit=100{after}"))
            .await
            .is(200)
            .json();
        for hold in page["holds"].as_array().unwrap() {
            assert!(held.insert(hold["run"].as_str().unwrap().to_owned()));
        }
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let wanted: BTreeSet<String> = runs.iter().map(|run| run.run.to_string()).collect();
    assert_eq!(held, wanted);
    server.audit(&runs[0].run, &[]).await;
    fits(&server).await;
}

/// What is held, without a database.
#[derive(Default)]
struct Model {
    /// Holds that somebody set: the run, or none for the tenant, and the matter; with their numbers.
    single: BTreeMap<(Option<String>, String), Value>,
    /// Orders in force: matter, the runs that they found, and the subject.
    orders: BTreeMap<String, (String, BTreeSet<String>, Option<String>)>,
    /// Whom payloads of runs are about.
    about: BTreeMap<String, BTreeSet<String>>,
}

impl Model {
    fn is_held(&self, run: &str) -> bool {
        let single = self
            .single
            .keys()
            .any(|(over, _)| over.as_deref().is_none_or(|over| over == run));
        let about = &self.about[run];
        single
            || self.orders.values().any(|(_, found, subject)| {
                found.contains(run) || subject.as_ref().is_some_and(|one| about.contains(one))
            })
    }

    fn wanted_by_order(&self, run: &str, matter: &str) -> bool {
        let wants =
            |(of, found, _): &(String, BTreeSet<String>, _)| of == matter && found.contains(run);
        self.orders.values().any(wants)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_order_of_holds_and_releases_decides_as_a_plain_list_does() {
    let server = Server::start().await;
    let api = &server.api;
    let mut runs = Vec::new();
    let mut model = Model::default();
    for (agent, about) in [
        ("a", "ada"),
        ("a", ""),
        ("b", "ada"),
        ("b", "bob"),
        ("c", ""),
    ] {
        let about: Vec<&str> = Some(about)
            .filter(|one| !one.is_empty())
            .into_iter()
            .collect();
        let (run, _) = run_of(api, agent, &about).await;
        let about = about.into_iter().map(str::to_owned).collect();
        model.about.insert(run.clone(), about);
        runs.push((run, agent));
    }
    // The same steps each time: a generator with a fixed beginning.
    let mut state = 0x5eed_u64;
    let mut below = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    for step in 0..120 {
        let matter = ["m1", "m2"][below(2)].to_owned();
        let run = runs[below(runs.len())].0.clone();
        match below(9) {
            0 => {
                let hold = api
                    .post("/v1/holds", &json!({"matter": matter, "run": run}))
                    .await
                    .json();
                model
                    .single
                    .insert((Some(run), matter), hold["hold"].clone());
            }
            1 if step % 3 == 0 => {
                let hold = api
                    .post("/v1/holds", &json!({"matter": matter, "tenant": true}))
                    .await
                    .json();
                model.single.insert((None, matter), hold["hold"].clone());
            }
            2 | 3 => {
                let agent = ["a", "b", "c"][below(3)];
                let filter = format!("agent = \"{agent}\"");
                let wanted = json!({"matter": matter, "filter": filter});
                let (id, _) = order(api, wanted, 201).await;
                let found = runs.iter().filter(|(_, of)| *of == agent);
                let found = found.map(|(run, _)| run.clone()).collect();
                model.orders.insert(id, (matter, found, None));
            }
            4 => {
                let subject = ["ada", "bob"][below(2)].to_owned();
                let wanted = json!({"matter": matter, "subject": subject});
                let answer = api.post("/v1/holds", &wanted).await.json();
                let id = answer["order"].as_str().unwrap().to_owned();
                let found = model
                    .about
                    .iter()
                    .filter(|(_, about)| about.contains(&subject));
                let found: BTreeSet<String> = found.map(|(run, _)| run.clone()).collect();
                model
                    .orders
                    .entry(id)
                    .or_insert((matter, found, Some(subject)));
            }
            5 => {
                // Somebody is spoken of in another run.
                let subject = ["ada", "bob"][below(2)];
                said(api, &run, &format!("s{step}"), &[subject]).await;
                model
                    .about
                    .get_mut(&run)
                    .unwrap()
                    .insert(subject.to_owned());
                server.app.recorder.carry_out_orders().await.unwrap();
                for (_, found, of) in model.orders.values_mut() {
                    if of.as_deref() == Some(subject) {
                        found.insert(run.clone());
                    }
                }
            }
            6 | 7 if !model.orders.is_empty() => {
                let id = model
                    .orders
                    .keys()
                    .nth(below(model.orders.len()))
                    .unwrap()
                    .clone();
                release(api, &id, 200).await;
                model.orders.remove(&id);
            }
            8 if !model.single.is_empty() => {
                let (name, hold) = model.single.iter().nth(below(model.single.len())).unwrap();
                let (name, path) = (name.clone(), format!("/v1/holds/{hold}/release"));
                let answer = api.post(&path, &json!({})).await;
                let wanted = name.0.as_deref();
                if wanted.is_some_and(|run| model.wanted_by_order(run, &name.1)) {
                    answer.problem(409, "hold_of_order");
                } else {
                    answer.is(200);
                    model.single.remove(&name);
                }
            }
            _ => {}
        }
        let (run, _) = &runs[below(runs.len())];
        let commit = said(api, run, &format!("probe{step}"), &[]).await;
        let answer = erase(api, run, &commit).await;
        if model.is_held(run) {
            answer.problem(409, "held");
        } else {
            answer.is(201);
        }
    }
    for (run, _) in &runs {
        server.audit(run, &[]).await;
    }
    fits(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_reads_what_is_over_its_run_and_no_more() {
    const OTHERS: i64 = 20_000;
    let server = Server::start().await;
    let api = &server.api;
    let (run, _) = run_of(api, "a", &["bob"]).await;
    order(api, json!({"matter": "m", "subject": "ada"}), 201).await;
    order(api, json!({"matter": "m", "filter": "agent = \"c\""}), 201).await;
    let mut sql = server.sql().await;
    let others = format!(
        "insert into holds (tenant, ledger_index, run, matter, set_at, by_type, by_id, alone)
         select tenant, 1000 + n, gen_random_uuid(), 'other', now(), 'human', 'p', true from tenants, generate_series(1, {OTHERS}) as n;
         insert into hold_order_runs (run, hold_order, tenant, state)
         select gen_random_uuid(), id, tenant, n % 2 from hold_orders, generate_series(1, {OTHERS}) as n where filter is not null;
         analyze holds, hold_order_runs"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(others))
        .execute(&mut sql)
        .await
        .unwrap();
    for n in 0..20 {
        let commit = said(api, &run, &format!("n{n}"), &[]).await;
        erase(api, &run, &commit).await.is(201);
    }
    let database = server.database.clone();
    // Sessions tell what they read when they end.
    server.stop().await;
    let mut sql = PgConnection::connect(&database.url).await.unwrap();
    let read: Vec<(String, i64)> = sqlx::query_as(
        "select relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
         where relname in ('holds', 'hold_order_runs') order by 1",
    )
    .fetch_all(&mut sql)
    .await
    .unwrap();
    assert_eq!(read.len(), 2);
    for (table, read) in read {
        assert!(read < OTHERS / 4, "{read} rows of {table} were read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_order_is_refused() {
    let server = Server::start().await;
    let api = &server.api;
    for (wrong, code) in [
        (
            json!({"matter": "m", "filter": "agent"}),
            "malformed_filter",
        ),
        (
            json!({"matter": "m", "filter": "agent = \"a\"", "tenant": true}),
            "malformed_parameter",
        ),
        (json!({"matter": "m", "subject": ""}), "malformed_parameter"),
        (
            json!({"matter": "m", "subject": "a\nb"}),
            "malformed_parameter",
        ),
        (
            json!({"matter": "m", "subject": "s", "reason": "Doe v. Roe"}),
            "code_expected",
        ),
    ] {
        api.post("/v1/holds", &wrong).await.problem(400, code);
    }
    let unknown = "/v1/hold-orders/01K7Q4Z8V2N5R3T6Y9B1C0D4E8";
    api.get(unknown).await.problem(404, "hold_order_not_found");
    let path = format!("{unknown}/release");
    let answer = api.post(&path, &json!({})).await;
    answer.problem(404, "hold_order_not_found");
    api.delete(&path).await.problem(404, "release_not_found");
    let answer = api.get("/v1/hold-orders/x").await;
    answer.problem(400, "malformed_parameter");
    // An order that finds nothing is done.
    let nothing = json!({"matter": "m", "filter": "agent = \"nobody\""});
    let (id, set) = order(api, nothing, 201).await;
    assert_eq!(
        (&set["found"], &set["state"]),
        (&json!(0), &json!("in-force"))
    );
    let other = server.api.new_tenant().await;
    let path = format!("/v1/hold-orders/{id}");
    other.get(&path).await.problem(404, "hold_order_not_found");
    for role in ["agent", "gate"] {
        let api = server.api.role(role).await;
        api.get(&path).await.problem(403, "role_missing");
        let wanted = json!({"matter": "m", "subject": "s"});
        let answer = api.post("/v1/holds", &wanted).await;
        answer.problem(403, "role_missing");
    }
    release(api, &id, 200).await;
}
