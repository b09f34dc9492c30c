//! What runs and frames are found by, filled in for records of before: as core says it of new ones.

use crate::api::Api;
use crate::harness::{self, TestDatabase};
use crate::migration::{recorded, rows};
use crate::signing_agent::kept;
use onrecord::audit::{Audit, State, Told};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use std::path::Path;

/// Columns of a table, apart from those that are generated.
async fn names(pool: &PgPool, schema: &str, table: &str) -> Vec<String> {
    let names = sqlx::query_scalar(
        "select column_name::text from information_schema.columns
         where table_schema = $1 and table_name = $2 and is_generated = 'NEVER' order by ordinal_position",
    );
    let names = names.bind(schema).bind(table);
    names.fetch_all(pool).await.expect("columns")
}

/// A database as it was after a migration, with the records of another one.
async fn as_it_was(now: &PgPool, version: i64) -> TestDatabase {
    let database = harness::database().await;
    let then = PgPool::connect(&database.url).await.expect("a connection");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut keys = Migrator::new(folder.join("keys"))
        .await
        .expect("migrations");
    keys.dangerous_set_table_name("keys._sqlx_migrations");
    keys.create_schema("keys");
    keys.run(&then).await.expect("keys");
    let migrations = Migrator::new(folder).await.expect("migrations");
    let shaped = migrations.run_to(version, &then).await;
    shaped.expect("a shape of then");
    let tables: Vec<(String, String)> = sqlx::query_as(
        "select table_schema::text, table_name::text from information_schema.tables
         where table_schema in ('public', 'keys') and table_name <> '_sqlx_migrations'",
    )
    .fetch_all(&then)
    .await
    .expect("tables");
    let mut sink = then.acquire().await.expect("a connection");
    // Without foreign keys, in whatever order tables come.
    sqlx::query("set session_replication_role = replica")
        .execute(&mut *sink)
        .await
        .expect("as who may do everything");
    for (schema, table) in &tables {
        let of_now = names(now, schema, table).await;
        let columns = names(&then, schema, table).await;
        // Kinds were words then.
        let select = columns.iter().map(|name| match name.as_str() {
            "kind" if table == "frames" => "frame_kind(kind_no)".to_owned(),
            name => name.to_owned(),
        });
        let known = |name: &String| name == "kind" || of_now.contains(name);
        assert!(
            columns.iter().all(known),
            "{table}: {columns:?}, {of_now:?}"
        );
        let select = Vec::from_iter(select).join(", ");
        let data = rows(now, &format!("{schema}.{table}"), &select).await;
        let copy = format!("copy {schema}.{table} ({}) from stdin", columns.join(", "));
        let mut copying = sink.copy_in_raw(&copy).await.expect(table);
        copying.send(data).await.expect(table);
        copying.finish().await.expect(table);
    }
    drop(sink);
    then.close().await;
    database
}

/// Runs whose frames say what is hard to fill in: U+0000, what looks like it, long and wide names, many labels, secrets.
async fn odd_runs(api: &Api) -> Vec<String> {
    let labels: Vec<Value> = (0..70)
        .map(|n| {
            if n % 9 == 0 {
                json!(n)
            } else {
                json!(format!("label {n}"))
            }
        })
        .collect();
    let session = json!({"session": {"agent": "coder", "labels": labels, "profile": "a\u{0}b", "release": "r".repeat(300),
        "mandate": "\u{0}\u{0}"}});
    let run = api.open(&session).await.run.to_string();
    let long = format!("x{}", "\u{fc}".repeat(150));
    let frames = [
        json!({"kind": "turn", "body": {"model": "m\u{0}"}}),
        json!({"kind": "tool_call", "body": {"name": "back\\u0000slash"}, "result": {"body": {"status": "ok"}}}),
        json!({"kind": "tool_call", "body": {"name": "two\\\u{0}\u{0}nuls", "\u{0}": 1}}),
        json!({"kind": "tool_call", "body": {"name": long}}),
        json!({"kind": "tool_call", "body": {"name": format!("{}\u{0}{long}", "y".repeat(130))}}),
        json!({"kind": "tool_call", "body": {"name": 7}}),
        json!({"kind": "model_call", "body": {"model": "m-1"}}),
        json!({"kind": "file_version", "body": {"path": "src/\u{1f980}.rs"}}),
        json!({"kind": "gate_result", "body": {"name": "\u{0}", "verdict": "fail"}}),
        json!({"kind": "gate_result", "body": {"name": "tests", "verdict": "maybe"}}),
        json!({"kind": "gate_result", "body": {"verdict": "error"}}),
        json!({"kind": "observation", "payloads": [{"name": "p", "text": "AKIAIOSFODNN7EXAMPLQ and more", "tier": 3}]}),
        json!({"kind": "outcome", "turn": null, "body": {"status": "failed"}}),
    ];
    for frame in frames {
        api.frame(&run, &frame).await.is(201);
    }
    let sealed = api.any_run().await.run.to_string();
    let run_of_all = api
        .open(&json!({"session": {"agent": "a", "profile": "p", "release": "r"}}))
        .await;
    let whole = run_of_all.run.to_string();
    for frame in [
        json!({"kind": "turn", "body": {"model": "m"}}),
        json!({"kind": "decision", "actor": {"type": "human", "id": "ada"}}),
        json!({"kind": "tool_call", "body": {"name": "sh"}, "result": {"body": {}}}),
        json!({"kind": "gate_result", "body": {"name": "t", "verdict": "pass"}}),
        json!({"kind": "outcome", "turn": null, "body": {"status": "completed"}}),
    ] {
        api.frame(&whole, &frame).await.is(201);
    }
    for one in [&run, &sealed, &whole] {
        api.post(&format!("/v1/runs/{one}/seal"), &json!({}))
            .await
            .is(201);
    }
    vec![run, sealed, whole]
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_frames_of_before_are_those_that_new_frames_have() {
    let (server, _) = recorded().await;
    let runs = odd_runs(&server.api).await;
    let now = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let tables = [
        (
            "run_facts",
            "run, field, tenant, encode(convert_to(value, 'UTF8'), 'hex')",
        ),
        ("frames", "run, seq, kind_no, verdict, name"),
    ];
    let mut wanted = Vec::new();
    for (table, columns) in tables {
        let copy = format!("(select {columns} from {table} order by 1, 2, 4) as all_of_it");
        wanted.push((copy.clone(), rows(&now, &copy, "*").await));
    }
    let missing: Vec<(String, i64)> = sqlx::query_as(
        "select run_id(run), count(*) from run_facts where field = 15 group by run order by 1",
    )
    .fetch_all(&now)
    .await
    .expect("rows");
    // The sealed one of `recorded`, the odd one and the empty one lack something; the whole one nothing.
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(missing.iter().all(|(run, _)| *run != runs[2]));
    // The tenth brought facts.
    let database = as_it_was(&now, 9).await;
    now.close().await;
    let server = server.moved_to(database, None).await;
    let migrated = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    for (copy, before) in wanted {
        let after = rows(&migrated, &copy, "*").await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&after), text(&before), "{copy}");
    }
    migrated.close().await;
    let audit = Audit {
        url: server.database.url.clone(),
        trusts: Vec::new(),
        jobs: 1,
    };
    let mut found = Vec::new();
    let mut state = State::none();
    let summary = audit.run(&mut state, |told| {
        if let Told::Finding(finding) = told {
            found.push(finding);
        }
    });
    summary.await.expect("an audit");
    assert_eq!(found, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_that_were_erased_before_there_were_records_of_them_get_these() {
    let (server, receipts) = recorded().await;
    let api = &server.api;
    let (sealed, open) = (receipts[0][0].run.clone(), receipts[1][0].run.clone());
    // Two of four in one frame, one by its commitment, all of a tier, and one that its agent kept.
    let payloads: Vec<Value> = (0..4)
        .map(|n| json!({"name": format!("p{n}"), "text": format!("{n}"), "tier": n % 2 + 1}))
        .collect();
    let frame = json!({"kind": "observation", "payloads": payloads});
    let frame = api.frame(&open, &frame).await.is(201).receipt();
    let mine = json!({"kind": "observation", "payloads": [kept("q", "kept", [7; 32])]});
    api.frame(&open, &mine).await.is(201);
    let path = format!("/v1/runs/{open}/frames/{}", frame.seq);
    let commit = api.get(&path).await.is(200).json()["payloads"][1]["commit"].clone();
    for erasure in [
        json!({"run": open, "commits": [commit], "reason": "request-17"}),
        json!({"run": open, "tier": 1, "reason": "window"}),
        json!({"run": sealed, "tier": 2, "reason": "window"}),
    ] {
        api.post("/v1/erasures", &erasure).await.is(201);
    }
    // In the erased tier, and after it.
    let later =
        json!({"kind": "observation", "payloads": [{"name": "later", "text": "l", "tier": 1}]});
    api.frame(&open, &later).await.is(201);
    let now = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let columns = "run, encode(commit, 'hex'), seq, place, media, tier, size, ledger_index, tenant";
    let wanted = rows(&now, "erased_payloads", columns).await;
    // One of a payload and two of a tier in the open run, and the sealed one's.
    assert_eq!(wanted.iter().filter(|byte| **byte == b'\n').count(), 4);
    // The eleventh brought records of erased payloads.
    let database = as_it_was(&now, 10).await;
    now.close().await;
    let server = server.moved_to(database, None).await;
    let listed = async || {
        let path = "/v1/payload-records?filter=state%20%3D%20erased&purpose=case-7";
        let body = server.api.get(path).await.is(200).json();
        body["payload_records"].as_array().unwrap().len()
    };
    assert_eq!(listed().await, 0);
    // An erasure at each call.
    for _ in 0..3 {
        let finality = server.app.finality;
        server.app.recorder.erase_pending(finality).await.unwrap();
    }
    assert_eq!(listed().await, 4);
    let migrated = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let found = rows(&migrated, "erased_payloads", columns).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&found), text(&wanted));
    let (left, others): (i64, i64) = sqlx::query_as(
        "select (select count(*) from erasures where unlisted_from is not null),
           (select count(*) from erased_payloads where erased_at not in (select removed_at from erasures))",
    )
    .fetch_one(&migrated)
    .await
    .unwrap();
    assert_eq!((left, others), (0, 0));
    migrated.close().await;
}
