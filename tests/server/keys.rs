//! The keys of runs in a database of their own.

use crate::harness::{self, TestDatabase};
use crate::rotation::{ROTATIONS, rotated};
use crate::running::Server;
use onrecord::postgres::Installation;
use onrecord::store::Store;
use onrecord_core::receipt::Receipt;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::process::Command;
use std::sync::Arc;

async fn recorded(server: &Server, key: &str) -> Vec<Receipt> {
    let opened = server.api.any_run().await;
    let frame = json!({"kind": "observation", "key": key, "payloads": [{"name": "p", "text": "private words"}]});
    let seen = server.api.frame(&opened.run, &frame).await.is(201);
    vec![opened, seen.receipt()]
}

/// The evidence's database as a dump has it.
fn dump(database: &TestDatabase) -> String {
    let beside = Installation::find(None).expect("PostgreSQL");
    let beside = beside.bin_dir().join("pg_dump");
    let program = if beside.exists() {
        beside
    } else {
        "pg_dump".into()
    };
    let out = Command::new(program).arg(&database.url).output();
    let out = out.expect("pg_dump runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

async fn keys_in(database: &TestDatabase) -> Vec<(String, String)> {
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    sqlx::query_as(
        "select run::text || tier || version, encode(wrapped, 'hex') from keys.run_keys order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_the_evidence_has_no_key_where_they_are_elsewhere() {
    let server = Server::start().await;
    let first = recorded(&server, "one").await;
    let state = rotated(&server).await;
    let before = keys_in(&server.database).await;
    assert_eq!(before.len(), 4);
    let beside = dump(&server.database);
    assert!(beside.contains(&before[0].1), "a dump shows what is there");

    // They are moved, with what is recorded afterwards.
    let keys = Arc::new(harness::database().await);
    let server = server.with_keys_in(keys.clone()).await;
    let moved = server.api.get(ROTATIONS).await.is(200).json();
    assert_eq!(moved, state, "what was known of epochs is known");
    let second = recorded(&server, "two").await;
    let frame = json!({"kind": "observation", "key": "more", "payloads": [{"name": "p", "text": "more words"}]});
    let more = server.api.frame(&first[0].run, &frame).await.is(201);
    server
        .audit(
            &first[0].run,
            &[first.as_slice(), &[more.receipt()]].concat(),
        )
        .await;
    server.audit(&second[0].run, &second).await;
    let after = keys_in(&keys).await;
    assert_eq!(after.len(), 8);
    assert!(before.iter().all(|key| after.contains(key)));
    let alone = dump(&server.database);
    assert!(alone.contains(&before[0].0[..36]), "it has the runs");
    for (run, wrapped) in &after {
        assert!(!alone.contains(wrapped), "a key of {run}");
    }
    assert!(!alone.contains("keys.run_keys"));
    // There they are moved from epoch to epoch as they were beside the evidence.
    let state = rotated(&server).await;
    assert_eq!((&state["done"], &state["of"]), (&json!(8), &json!(8)));
    assert!(keys_in(&keys).await.iter().all(|key| !after.contains(key)));
    server.audit(&second[0].run, &second).await;

    // A start that looks for them where they were makes nothing new there.
    let data_dir = server.data_dir.clone();
    let config = server.database.config(data_dir.path());
    let started = onrecord::start::start(&config).await;
    let error = started.err().expect("no start without keys").to_string();
    assert!(error.contains("--key-database-url"), "{error}");
    server.restart().await.audit(&second[0].run, &second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_differ_from_those_to_be_moved_stop_it_and_nothing_is_lost() {
    let server = Server::start().await;
    let receipts = recorded(&server, "one").await;
    let before = keys_in(&server.database).await;
    let (database, data_dir) = (server.database.clone(), server.data_dir.clone());
    let keys = Arc::new(harness::database().await);
    Store::migrate(&keys.url, None).await.unwrap();
    // As a move that was cut off left it, but for a byte.
    let mut to = PgConnection::connect(&keys.url).await.unwrap();
    let tenant = data_dir.path().join("keys");
    let tenant = std::fs::read_dir(tenant)
        .unwrap()
        .flatten()
        .find(|entry| entry.path().is_dir())
        .unwrap();
    let tenant = tenant.file_name().into_string().unwrap();
    let run = &before[0].0[..36];
    let insert = format!(
        "insert into keys.epochs (tenant, epoch) values ('{tenant}', 1);
         insert into keys.run_keys (run, epoch, tier, version, tenant, wrapped) values ('{run}', 1, 0, 0, '{tenant}', '\\x00')"
    );
    to.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(insert)))
        .await
        .unwrap();
    let moved = Store::migrate(&database.url, Some(&keys.url)).await;
    let error = moved.expect_err("they differ").to_string();
    assert!(error.contains("keys.run_keys.wrapped"), "{error}");
    assert_eq!(keys_in(&database).await, before);
    let repair = format!(
        "update keys.run_keys set wrapped = '\\x{}' where tier = 0",
        before[0].1
    );
    to.execute(sqlx::AssertSqlSafe(repair)).await.unwrap();
    assert!(
        Store::migrate(&database.url, Some(&keys.url))
            .await
            .unwrap()
    );
    assert!(
        !Store::migrate(&database.url, Some(&keys.url))
            .await
            .unwrap()
    );
    // The same address twice is one database, and nothing is moved out of it.
    assert!(!Store::migrate(&keys.url, Some(&keys.url)).await.unwrap());
    assert_eq!(keys_in(&keys).await, before);
    let server = server.with_keys_in(keys).await;
    server.audit(&receipts[0].run, &receipts).await;
}
