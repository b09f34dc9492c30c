//! What was recorded in an earlier shape of the database is the same in this one.

use crate::harness::{self, TestDatabase};
use crate::running::Server;
use futures_util::TryStreamExt as _;
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
            "kind" if table == "frames" => "frame_kind(kind_no)".to_owned(),
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

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_ledger_says_of_holds_is_in_their_table() {
    let (server, receipts) = recorded().await;
    let api = &server.api;
    let (one, other) = (&receipts[0][0].run, &receipts[1][0].run);
    let set = async |hold: serde_json::Value| {
        let answer = api.post("/v1/holds", &hold).await.is(201).json();
        answer["hold"].clone()
    };
    let over = |run: &_, matter: &str| json!({"matter": matter, "run": run});
    let mut ended = Vec::new();
    for hold in [
        over(one, "m"),
        over(one, "n"),
        json!({"matter": "m", "tenant": true}),
        over(other, "m"),
    ] {
        ended.push(set(hold).await);
    }
    ended.remove(1);
    for hold in ended {
        let path = format!("/v1/holds/{hold}/release");
        api.post(&path, &json!({})).await.is(200);
    }
    set(over(one, "m")).await;
    set(json!({"matter": "n", "tenant": true})).await;
    let now = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let before = rows(&now, "holds", "*").await;
    assert_eq!(String::from_utf8_lossy(&before).lines().count(), 6);
    let (database, _) = in_the_first_shape(&now).await;
    now.close().await;
    let server = server.moved_to(database, None).await;
    let migrated = PgPool::connect(&server.database.url)
        .await
        .expect("a connection");
    let after = rows(&migrated, "holds", "*").await;
    migrated.close().await;
    assert_eq!(
        String::from_utf8_lossy(&after),
        String::from_utf8_lossy(&before)
    );
    crate::hold_orders::fits(&server).await;
}
