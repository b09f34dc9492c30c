//! What the sweeper reads where the ledger is long, and where much is overdue: PostgreSQL counts it.

use super::clock::stepped;
use super::{audited, put, run_with, sweep, window};
use crate::plans::settle;
use serde_json::json;
use sqlx::PgConnection;

/// Entries that are about runs of which nothing else is there.
const ENTRIES: i64 = 20_000;

/// Rows of a table that were read, in any way.
async fn read(sql: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(
        "select (select sum(coalesce(seq_tup_read, 0)) from pg_stat_user_tables where relname = $1)::bigint
           + (select sum(coalesce(idx_tup_read, 0)) from pg_stat_user_indexes where relname = $1)::bigint",
    )
    .bind(table)
    .fetch_one(sql)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_does_not_read_the_ledger() {
    let (server, clock) = stepped().await;
    let api = &server.api;
    put(api, &window("w", 9, 1)).await.is(201);
    let mut runs = Vec::new();
    for number in 0..6 {
        runs.push(run_with(api, json!({}), &number.to_string(), true).await.0);
    }
    let mut sql = server.sql().await;
    sqlx::query("set session_replication_role = replica")
        .execute(&mut sql)
        .await
        .unwrap();
    sqlx::query(
        "insert into ledger_entries (tenant, idx, name, run, at, leaf, bytes)
         select tenant, 1000000 + n, 'erasure', md5(n::text)::uuid, now(), '', '' from tenants, generate_series(1, $1) n",
    )
    .bind(ENTRIES)
    .execute(&mut sql)
    .await
    .unwrap();
    sqlx::raw_sql("vacuum analyze ledger_entries")
        .execute(&mut sql)
        .await
        .unwrap();
    clock.step_days(2).await;
    settle(&mut sql).await;
    let before = read(&mut sql, "ledger_entries").await;
    assert_eq!(sweep(api).await, 6);
    settle(&mut sql).await;
    let rows = read(&mut sql, "ledger_entries").await - before;
    assert!(rows < ENTRIES / 20, "{rows} rows");
    // Of each run that something was erased of, the second time its own erasures are read.
    clock.step_days(9).await;
    settle(&mut sql).await;
    let before = read(&mut sql, "ledger_entries").await;
    assert_eq!(sweep(api).await, 6);
    settle(&mut sql).await;
    let rows = read(&mut sql, "ledger_entries").await - before;
    assert!(rows < ENTRIES / 20, "{rows} rows, the second time");
    sqlx::query("delete from ledger_entries where idx > 1000000")
        .execute(&mut sql)
        .await
        .unwrap();
    for run in &runs {
        assert_eq!(audited(api, run).await.payloads.erased, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_overdue_is_not_sorted_for_each_page() {
    let (server, _clock) = stepped().await;
    let api = &server.api;
    put(api, &window("w", 9, 1)).await.is(201);
    let mut sql = server.sql().await;
    // As sessions choose that have asked often, and without statistics.
    for statement in [
        "do $$ begin execute format('alter database %I set plan_cache_mode = force_generic_plan', current_database()); end $$",
        "alter table run_retention set (autovacuum_enabled = off)",
        "insert into run_retention (tenant, run, due, look_at, version, schedule)
           select tenant, md5(n::text)::uuid, now() - n * interval '1 s', now() - n * interval '1 s', 1, 'w'
           from tenants, generate_series(1, 8000) n",
    ] {
        sqlx::query(statement).execute(&mut sql).await.unwrap();
    }
    settle(&mut sql).await;
    let before = read(&mut sql, "run_retention").await;
    // Nothing is known of these runs, so that they are looked at later.
    assert_eq!(sweep(api).await, 0);
    settle(&mut sql).await;
    let rows = read(&mut sql, "run_retention").await - before;
    let left = "select count(*) from run_retention where look_at <= stepped.clock_timestamp()";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut sql).await.unwrap();
    assert_eq!(left, 0);
    // Each once when it is listed and once when it is written, and then what was written anew.
    assert!(rows < 5 * 8_000, "{rows} rows");
}
