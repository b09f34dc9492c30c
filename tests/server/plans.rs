//! How queries find what they ask for, on tables that are too long to be read: PostgreSQL counts what it reads of each.

use crate::api::Api;
use crate::filters::filtered;
use crate::running::Server;
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

const RUNS: i64 = 4_000;
const BIG: [&str; 4] = ["runs", "frames", "payloads", "run_facts"];

/// Fills the tables as the owner may, with rows as appends write them: 4,000 runs of 12 frames, a minute apart.
async fn fill(server: &Server) {
    let run = server.api.any_run().await.run.to_string();
    let mut sql = server.sql().await;
    for statement in [
        "set session_replication_role = replica",
        "create function nth_run(n bigint) returns uuid language sql immutable as
           $$ select (lpad(to_hex(1782000000000 + n * 60000), 12, '0') || substr(md5(n::text), 1, 20))::uuid $$",
        "insert into run_facts (run, field, tenant, value) select nth_run(n), said.field::smallint, one.tenant, said.value
           from runs one, generate_series(1, 4000) n, lateral (values (1, 'agent-' || n % 50), (5, 'model-' || n % 4), (6, 'tool-' || n % 7),
             (7, 'unit'), (8, case when n % 100 = 0 then 'fail' else 'pass' end), (10, 'session'), (10, 'tool_call'),
             (12, case when n % 500 = 0 then '3' else '1' end), (4, case n % 2 when 0 then 'even' else 'odd' end), (14, 'src/' || n || '.rs')) as said (field, value)",
        "insert into frames (seq, at, turn, kind_no, run, tenant, key, bytes, name, verdict)
           select seq, to_timestamp(1782000000 + n * 60 + seq), 0, (array[1, 4, 6, 9])[1 + seq % 4]::smallint,
             nth_run(n), one.tenant, seq::text, '\\x00', case seq % 4 when 1 then 'tool-' || n % 7 when 2 then 'unit' end,
             case when seq % 4 = 2 then case when n % 100 = 0 then 2 else 1 end end
           from runs one, generate_series(1, 4000) n, generate_series(0, 11) seq",
        "insert into payloads (run, commit, tenant, seq, place, media, tier, size, wrapped_dek, ciphertext)
           select nth_run(n), sha256((n || '/' || seq)::bytea), one.tenant, seq, 0, 'text/plain', case when n % 500 = 0 then 3 else 1 end, 16, '\\x01', '\\x02'
           from runs one, generate_series(1, 4000) n, generate_series(1, 2) seq",
    ] {
        sqlx::query(statement).execute(&mut sql).await.unwrap();
    }
    // A copy of the run that is there, under other names: of a chain only its own run and head are compared.
    let copies = "insert into runs (run, tenant, run_no, agent, opened_at, open_index, size, head, last_at, chain, outcome, ended, sealed_at, seal_index, seal_proof)
        select nth_run(n), tenant, n + 1, 'agent-' || n % 50, to_timestamp(1782000000 + n * 60), n, 12, head, to_timestamp(1782000011 + n * 60), chain,
          case when n % 40 = 0 then 'failed' else 'completed' end, n % 90 > 0, case when n % 30 > 0 then to_timestamp(1782000020 + n * 60) end,
          case when n % 30 > 0 then n end, case when n % 30 > 0 then '' end
        from runs, generate_series(1, 4000) n where run = run_uuid($1)";
    sqlx::query(copies)
        .bind(run)
        .execute(&mut sql)
        .await
        .unwrap();
    for table in BIG {
        let statement = format!("vacuum analyze {table}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
            .execute(&mut sql)
            .await
            .unwrap();
    }
}

/// How often tables that only queries read were read as a whole, and the rows that were read of all big ones in any way.
async fn read(sql: &mut PgConnection) -> (i64, i64) {
    let (mut scans, mut rows) = (0, 0);
    for row in sqlx::query(
        "select relname::text as name, coalesce(seq_scan, 0) as scans,
           coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows from pg_stat_user_tables",
    )
    .fetch_all(sql)
    .await
    .unwrap()
    {
        let name: String = row.get("name");
        if BIG.contains(&name.as_str()) {
            rows += row.get::<i64, _>("rows");
            scans += if name == "runs" {
                0
            } else {
                row.get::<i64, _>("scans")
            };
        }
    }
    (scans, rows)
}

/// What a query reads. Sessions report what they read when they end at the latest, so that the server's are ended.
async fn cost(
    server: &Server,
    sql: &mut PgConnection,
    asked: impl AsyncFnOnce(&Api),
) -> (i64, i64) {
    settle(sql).await;
    let before = read(sql).await;
    asked(&server.api).await;
    settle(sql).await;
    let after = read(sql).await;
    (after.0 - before.0, after.1 - before.1)
}

/// Has all sessions of servers end, so that what they read is counted.
pub(crate) async fn settle(sql: &mut PgConnection) {
    let sessions = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name = 'onrecord'";
    let pids: Vec<i32> = sqlx::query_scalar(sessions)
        .fetch_all(&mut *sql)
        .await
        .unwrap();
    for pid in pids {
        // It waits until the session is gone.
        let end = "select pg_terminate_backend($1, 10000)";
        sqlx::query(end).bind(pid).execute(&mut *sql).await.unwrap();
    }
    let anew = "select pg_stat_clear_snapshot()";
    sqlx::query(anew).execute(sql).await.unwrap();
}

/// How often anything was looked up in an index of what runs say, and the entries that were read of it.
async fn looks(sql: &mut PgConnection) -> (i64, i64) {
    let looks = "select sum(idx_scan)::bigint as looks, sum(idx_tup_read)::bigint as entries from pg_stat_user_indexes where relname = 'run_facts'";
    let row = sqlx::query(looks).fetch_one(sql).await.unwrap();
    (row.get("looks"), row.get("entries"))
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_are_frequent_and_never_meet_are_read_in_a_row() {
    let server = Server::start_as(|app| app.effort.patience = Duration::from_secs(60)).await;
    fill(&server).await;
    let mut sql = server.sql().await;
    for (filter, found, most) in [
        // 1,000 runs of one, 2,000 of the other; and all of them, but for the one that the others are copies of.
        (r#"label = "even" and model = "model-1""#, 0, 3 * RUNS),
        (r#"not (label = "even" or label = "odd")"#, 1, 6 * RUNS),
        // 80 of one, which are looked up by themselves.
        (r#"agent = "agent-7" and label = "even""#, 0, 2 * RUNS),
    ] {
        settle(&mut sql).await;
        let before = looks(&mut sql).await;
        let address = format!("/v1/runs?{}", filtered(filter));
        let page = server.api.get(&address).await.is(200).json();
        assert_eq!(page["runs"].as_array().unwrap().len(), found, "{filter}");
        assert_eq!(page.get("next"), None, "{filter}");
        settle(&mut sql).await;
        let after = looks(&mut sql).await;
        let (looks, entries) = (after.0 - before.0, after.1 - before.1);
        assert!(looks < 150, "{filter}: {looks} looks");
        assert!(entries < most, "{filter}: {entries} entries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_of_what_is_indexed_reads_a_big_table_as_a_whole() {
    // However slow the machine is, a page is one piece of work here.
    let server = Server::start_as(|app| app.effort.patience = Duration::from_secs(60)).await;
    fill(&server).await;
    let mut sql = server.sql().await;
    for (resource, filter) in [
        ("frames", "tool = \"tool-3\""),
        ("frames", "gate.verdict = fail"),
        ("frames", "gate.failed = \"unit\" and at < 2026-06-22"),
        ("frames", "kind in (tool_call, observation)"),
        ("frames", "run.agent = \"agent-7\" and kind = gate_result"),
        ("frames", "at >= 2026-06-22 and run.tool = \"tool-1\""),
        ("frames", "run is set"),
        ("payload-records", "tier = 3"),
        ("payload-records", "run.agent = \"agent-7\""),
        ("payload-records", "run.outcome = failed and state = stored"),
        ("payload-records", "run.opened_at < 2026-06-22"),
        ("payload-records", "run is set"),
    ] {
        let limit = if filter == "tier = 3" { 16 } else { 20 };
        let address = format!("/v1/{resource}?limit={limit}&{}", filtered(filter));
        let asked = async |api: &Api| {
            let page = api.get(&address).await.is(200).json();
            let rows = page[resource.replace('-', "_")].as_array().unwrap().len();
            assert_eq!(rows, limit, "{resource} where {filter}");
        };
        let (scans, rows) = cost(&server, &mut sql, asked).await;
        assert_eq!(scans, 0, "{resource} where {filter}");
        // All frames of some runs may be read and sorted.
        assert!(rows < 4 * RUNS, "{resource} where {filter}: {rows} rows");
    }
    // That this tells one from the other: without its index, frames of a kind are found by reading all.
    let broken = "drop index frames_kind, frames_name, frames_verdict";
    sqlx::query(broken).execute(&mut sql).await.unwrap();
    let address = format!("/v1/frames?limit=20&{}", filtered("kind = observation"));
    let asked = async |api: &Api| {
        api.get(&address).await.is(200);
    };
    let (_, rows) = cost(&server, &mut sql, asked).await;
    assert!(rows > 8 * RUNS, "{rows} rows");
}
