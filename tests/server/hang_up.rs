//! Clients that hang up in the middle of a request (case 19).

use crate::api::raw::Raw;
use crate::running::Server;
use serde_json::json;
use sqlx::{Connection as _, Executor as _};

const SESSIONS: &str = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_leave_no_transaction_behind() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let token = server.api.token.clone().unwrap();
    // Somebody holds the run, so that appends stand in the middle of their transactions.
    let mut holder = server.sql().await;
    let mut hold = holder.begin().await.unwrap();
    let lock = format!("select run from runs where run = run_uuid('{run}') for update");
    hold.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
    let mut clients = Vec::new();
    for n in 0..100 {
        let body = json!({"kind": "observation", "key": format!("gone-{n}")}).to_string();
        let mut raw = Raw::connect(server.api.address()).await;
        let length = format!("content-length: {}", body.len());
        let headers = ["content-type: application/json", &length];
        raw.head(&format!("POST /v1/runs/{run}/frames"), &token, &headers)
            .await;
        // Some hang up before their body is whole.
        let sent = if n % 3 == 0 {
            body.len() / 2
        } else {
            body.len()
        };
        raw.send(&body.as_bytes()[..sent]).await;
        clients.push(raw);
    }
    let mut sql = server.sql().await;
    let waiting = format!("{SESSIONS} and wait_event_type = 'Lock'");
    loop {
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(waiting.clone()))
            .fetch_one(&mut sql)
            .await
            .unwrap();
        if count > 0 {
            break;
        }
    }
    drop(clients);
    hold.commit().await.unwrap();

    let mut receipts = Vec::new();
    for n in 0..50 {
        let frame = json!({"kind": "observation", "key": format!("after-{n}")});
        receipts.push(server.api.frame(&run, &frame).await.is(201).receipt());
    }
    server.audit(&run, &receipts).await;
    // Once everything that was begun is done, no session stands in a transaction.
    let server = server.drained().await;
    let idle = format!("{SESSIONS} and application_name = 'onrecord' and state <> 'idle'");
    let busy: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(idle))
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(busy, 0);
    let sessions: i64 = sqlx::query_scalar(SESSIONS)
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert!(sessions > 0, "the pool is still open");
    // What a client did not wait for is there once, or not at all.
    let stored: Vec<String> = sqlx::query_scalar("select key from frames where key like 'gone-%'")
        .fetch_all(&mut sql)
        .await
        .unwrap();
    assert!(!stored.is_empty(), "an append goes on without its client");
    for key in &stored {
        let number: usize = key["gone-".len()..].parse().unwrap();
        assert_ne!(number % 3, 0, "half a body is no frame");
    }
    let server = server.restart().await;
    server.audit(&run, &receipts).await;
}
