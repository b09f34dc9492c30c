//! How queries find what they ask for, on tables that are too long to be read: PostgreSQL counts what it reads of each.

use crate::api::Api;
use crate::filters::filtered;
use crate::running::Server;
use sqlx::{PgConnection, Row as _};

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
             (12, case when n % 500 = 0 then '3' else '1' end), (14, 'src/' || n || '.rs')) as said (field, value)",
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

/// How often each of the big tables was read as a whole, and the rows that were read of them in any way.
async fn read(sql: &mut PgConnection) -> (i64, i64) {
    let (mut scans, mut rows) = (0, 0);
    for row in sqlx::query(
        "select relname, coalesce(seq_scan, 0) as scans,
           coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows from pg_stat_user_tables",
    )
    .fetch_all(sql)
    .await
    .unwrap()
    {
        if BIG.contains(&row.get::<String, _>("relname").as_str()) {
            scans += row.get::<i64, _>("scans");
            rows += row.get::<i64, _>("rows");
        }
    }
    (scans, rows)
}

/// What a query reads. Servers report what they read when they end, so that it ends with it.
async fn cost(server: Server, asked: impl AsyncFnOnce(&Api)) -> (Server, i64, i64) {
    let mut sql = server.sql().await;
    let server = server.restart().await;
    let before = read(&mut sql).await;
    asked(&server.api).await;
    let server = server.restart().await;
    sqlx::query("select pg_stat_clear_snapshot()")
        .execute(&mut sql)
        .await
        .unwrap();
    let after = read(&mut sql).await;
    (server, after.0 - before.0, after.1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_of_what_is_indexed_reads_a_big_table_as_a_whole() {
    let mut server = Server::start().await;
    fill(&server).await;
    let (idle, idle_scans, idle_rows) = cost(server, async |_| {}).await;
    server = idle;
    for (resource, filter) in [
        ("frames", "tool = \"tool-3\""),
        ("frames", "gate.verdict = fail"),
        ("frames", "gate.failed = \"unit\" and at < 2026-06-22"),
        ("frames", "kind in (tool_call, observation)"),
        ("frames", "run.agent = \"agent-7\" and kind = gate_result"),
        ("frames", "at >= 2026-06-22 and run.tool = \"tool-1\""),
        ("payload-records", "tier = 3"),
        ("payload-records", "run.agent = \"agent-7\""),
        ("payload-records", "run.outcome = failed and state = stored"),
        ("payload-records", ""),
        ("frames", ""),
    ] {
        let filter = if filter.is_empty() {
            "run is set"
        } else {
            filter
        };
        let address = format!("/v1/{resource}?limit=20&{}", filtered(filter));
        let asked = async |api: &Api| {
            let page = api.get(&address).await.is(200).json();
            let member = resource.replace('-', "_");
            assert_eq!(page[member].as_array().unwrap().len(), 20, "{filter}");
        };
        let (next, scans, rows) = cost(server, asked).await;
        server = next;
        assert_eq!(scans - idle_scans, 0, "{resource} where {filter}");
        let rows = rows - idle_rows;
        assert!(rows < RUNS, "{resource} where {filter}: {rows} rows");
    }
}
