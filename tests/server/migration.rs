//! What was recorded in an earlier shape of the database is the same in this one.

use crate::harness::{self, TestDatabase};
use crate::running::Server;
use futures_util::TryStreamExt as _;
use onrecord::audit::{Audit, State, Told};
use onrecord::store::Store;
use onrecord_core::receipt::Receipt;
use serde_json::json;
use sqlx::PgPool;
use sqlx::migrate::{Migrate as _, Migrator};
use sqlx::postgres::PgPoolCopyExt as _;
use std::path::Path;
use std::sync::Arc;

/// A server that has a sealed run with all that a row can have, and an open one in the midst of a turn.
async fn recorded() -> (Server, [Vec<Receipt>; 2]) {
    let server = Server::start().await;
    let api = &server.api;
    let (sealed, open) = (api.any_run().await, api.any_run().await);
    let mut receipts = [vec![sealed], vec![open]];
    for of_run in &mut receipts {
        let run = of_run[0].run.clone();
        let frames = [
            json!({"kind": "turn", "key": "a turn"}),
            json!({"kind": "tool_call", "key": "call", "body": {"name": "sh"}, "result": {"body": {"ok": true}}}),
            json!({"kind": "observation", "key": "seen", "payloads": [{"name": "p", "text": "private words"}]}),
            json!({"kind": "observation"}),
        ];
        for frame in frames {
            of_run.push(api.frame(&run, &frame).await.is(201).receipt());
        }
    }
    let path = format!("/v1/runs/{}/seal", receipts[0][0].run);
    api.post(&path, &json!({})).await.is(201);
    (server, receipts)
}

/// All rows of a table as text, in some order that is always the same.
async fn rows(pool: &PgPool, table: &str, columns: &str) -> Vec<u8> {
    let copy = format!("copy (select {columns} from {table} order by 1, 2) to stdout");
    let mut stream = pool.copy_out_raw(&copy).await.expect(table);
    let mut all = Vec::new();
    while let Some(part) = stream.try_next().await.expect(table) {
        all.extend_from_slice(&part);
    }
    all
}

/// A database in its first shape, with the records of another one, whose rows it returns by table.
async fn in_the_first_shape(now: &PgPool) -> (TestDatabase, Vec<(String, Vec<u8>)>) {
    let database = harness::database().await;
    let first = PgPool::connect(&database.url).await.expect("a connection");
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrations = Migrator::new(migrations).await.expect("migrations");
    let mut connection = first.acquire().await.expect("a connection");
    connection
        .ensure_migrations_table("_sqlx_migrations")
        .await
        .expect("a table");
    connection
        .apply("_sqlx_migrations", &migrations.migrations[0])
        .await
        .expect("the first");
    drop(connection);
    let tables: Vec<String> = sqlx::query_scalar(
        "select table_name::text from information_schema.tables
         where table_schema = 'public' and table_name <> '_sqlx_migrations'
         order by array_position(array['tenants', 'tokens', 'runs'], table_name::text), 1",
    )
    .fetch_all(&first)
    .await
    .expect("tables");
    let mut kept = Vec::new();
    for table in tables {
        // What was beside the evidence then has a schema of its own today.
        let schema = if table == "run_keys" {
            "keys"
        } else {
            "public"
        };
        let columns = |pool, schema| {
            sqlx::query_as::<_, (String, String)>(
                "select column_name::text, udt_name::text from information_schema.columns
                 where table_schema = $2 and table_name = $1 order by ordinal_position",
            )
            .bind(&table)
            .bind(schema)
            .fetch_all(pool)
        };
        let then = columns(&first, "public").await.unwrap();
        let today = columns(now, schema).await.unwrap();
        let names = |columns: &[(String, String)]| {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            names.join(", ")
        };
        let as_then = |(name, _): &(String, String)| match name.as_str() {
            "hash" if table == "frames" => "sha256('\\x00'::bytea || bytes)".to_owned(),
            "request_mac" => "request_mac || sha256('more')".to_owned(),
            _ if today.contains(&(name.clone(), "uuid".to_owned())) => format!("run_id({name})"),
            _ => name.clone(),
        };
        let selected: Vec<String> = then.iter().map(as_then).collect();
        let place = format!("{schema}.{table}");
        let data = rows(now, &place, &selected.join(", ")).await;
        assert!(!data.is_empty(), "{table} has rows to be kept");
        let copy = format!("copy {table} ({}) from stdin", names(&then));
        let mut sink = first.copy_in_raw(&copy).await.expect(&table);
        sink.send(data).await.expect(&table);
        sink.finish().await.expect(&table);
        let data = rows(now, &place, &names(&today)).await;
        kept.push((format!("{place}: {}", names(&today)), data));
    }
    first.close().await;
    (database, kept)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_shape_had_is_kept_and_verifies() {
    let (server, receipts) = recorded().await;
    let now = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let (database, kept) = in_the_first_shape(&now).await;
    now.close().await;
    let server = server.moved_to(database, None).await;
    let migrated = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    for (table, before) in kept {
        let (name, columns) = table.split_once(": ").expect("a name");
        let after = rows(&migrated, name, columns).await;
        assert_eq!(
            String::from_utf8_lossy(&after),
            String::from_utf8_lossy(&before),
            "{table}"
        );
    }
    migrated.close().await;
    for of_run in &receipts {
        server.audit(&of_run[0].run, of_run).await;
    }
    // It goes on where it was, and knows its keys.
    let run = &receipts[1][0].run;
    let again = json!({"kind": "observation", "key": "seen", "payloads": [{"name": "p", "text": "private words"}]});
    assert_eq!(
        server.api.frame(run, &again).await.is(200).receipt(),
        receipts[1][3]
    );
    let next = json!({"kind": "observation", "key": "next"});
    let next = server.api.frame(run, &next).await.is(201).receipt();
    assert_eq!(next.seq, receipts[1][4].seq + 1);
    server
        .audit(run, &[receipts[1].as_slice(), &[next]].concat())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_first_shape_are_moved_into_another_database_and_not_lost_on_the_way() {
    let (server, receipts) = recorded().await;
    let now = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let (database, _) = in_the_first_shape(&now).await;
    now.close().await;
    // By whatever else applies migrations they are not dropped.
    let first = PgPool::connect(&database.url).await.expect("a connection");
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrations = Migrator::new(migrations).await.expect("migrations");
    let error = migrations.run(&first).await.expect_err("there are keys");
    assert!(error.to_string().contains("are not moved yet"), "{error}");
    let count = "select count(*) from run_keys";
    let kept: i64 = sqlx::query_scalar(count).fetch_one(&first).await.unwrap();
    assert_eq!(kept, 8);
    first.close().await;
    let keys = Arc::new(harness::database().await);
    Store::migrate(&database.url, Some(&keys.url))
        .await
        .expect("they are moved");
    let there = PgPool::connect(&keys.url).await.expect("a connection");
    let count = "select count(*) from keys.run_keys";
    let moved: i64 = sqlx::query_scalar(count).fetch_one(&there).await.unwrap();
    assert_eq!(moved, kept);
    there.close().await;
    let server = server.moved_to(database, Some(keys)).await;
    for of_run in &receipts {
        server.audit(&of_run[0].run, of_run).await;
    }
}

/// Columns of a table, apart from those that are generated.
async fn names(pool: &PgPool, schema: &str, table: &str) -> Vec<String> {
    let names = sqlx::query_scalar(
        "select column_name::text from information_schema.columns
         where table_schema = $1 and table_name = $2 and is_generated = 'NEVER' order by ordinal_position",
    );
    let names = names.bind(schema).bind(table);
    names.fetch_all(pool).await.expect("columns")
}

/// A database as it was before there were facts, with the records of another one.
async fn before_facts(now: &PgPool) -> TestDatabase {
    const BEFORE: i64 = 9;
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
    migrations.run_to(BEFORE, &then).await.expect("the ninth");
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
async fn odd_runs(api: &crate::api::Api) -> Vec<String> {
    let labels: Vec<serde_json::Value> = (0..70)
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
        json!({"kind": "gate_result", "body": {"verdict": "error"}, "actor": {"type": "human", "id": "ada"}}),
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
    let database = before_facts(&now).await;
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
