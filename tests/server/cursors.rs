//! Pages and files of queries: cursors are for whoever got them, and each query stands on the ledger once.

use crate::api::{Api, JSON};
use crate::filters::{filtered, hurried, many, walk};
use crate::running::Server;
use serde_json::{Value, json};
use std::time::Duration;

/// Puts runs into the table as they would be after a busy millisecond: `same` at one and the same microsecond, `near` within
/// a millisecond, and others around them.
async fn crowd(server: &Server, same: usize, near: usize, others: usize) {
    let mut runs = Vec::new();
    for _ in 0..same + near + others {
        runs.push(server.api.any_run().await.run.to_string());
    }
    let mut sql = server.sql().await;
    sqlx::query("set session_replication_role = replica")
        .execute(&mut sql)
        .await
        .unwrap();
    for (n, run) in runs.iter().enumerate() {
        let micros = if n < same {
            0
        } else if n < same + near {
            37 * (n - same) + 1
        } else {
            10_000 * n
        };
        let sql = &mut sql;
        let moved = "update frames set at = timestamptz '2026-11-30 08:00:00.123456Z' + $2 * interval '1 microsecond' where run = run_uuid($1)";
        let micros = i64::try_from(micros).unwrap();
        sqlx::query(moved)
            .bind(run)
            .bind(micros)
            .execute(sql)
            .await
            .unwrap();
    }
}

fn names(rows: &[Value]) -> Vec<(Value, Value)> {
    rows.iter()
        .map(|row| (row["run"].clone(), row["seq"].clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_moment_are_met_once_each() {
    let server = Server::start().await;
    let api = &server.api;
    crowd(&server, 12, 10, 31).await;
    for filter in [
        "kind = session",
        "run.agent = \"any\"",
        "at >= 2026-11-30T08:00:00.123456Z and at < 2026-11-30T09:00:00Z",
    ] {
        let query = filtered(filter);
        let mut all = names(&walk(api, "frames", &query, 500, async || {}).await);
        assert!(all.len() >= 53);
        for order in ["desc", "asc"] {
            for limit in [1, 3, 5, 50] {
                let query = format!("{query}&order={order}");
                let mut opened = 0;
                let found = walk(api, "frames", &query, limit, async || {
                    opened += 1;
                    if opened < 10 {
                        api.any_run().await;
                    }
                });
                let mut found = names(&found.await);
                found.retain(|name| all.contains(name));
                assert_eq!(found, all, "{filter} {order}, pages of {limit}");
            }
            all.reverse();
        }
    }
}

/// The page of a query.
async fn page(api: &Api, address: &str) -> Value {
    api.get(address).await.is(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_goes_on_with_its_own_query_only() {
    let server = Server::start().await;
    let api = &server.api;
    many(api, 6).await;
    let query = filtered("kind != session");
    let first = page(api, &format!("/v1/frames?limit=2&{query}")).await;
    let next = first["next"].as_str().unwrap();
    page(
        api,
        &format!("/v1/frames?limit=3&filter=kind+%21%3D+session&cursor={next}"),
    )
    .await;
    let auditor = api.role("auditor").await;
    let other = api.new_tenant().await;
    let mut changed = next.to_owned();
    changed.replace_range(30..31, if &next[30..31] == "A" { "B" } else { "A" });
    for (api, address) in [
        (
            api,
            format!("/v1/frames?filter=kind+%3D+session&cursor={next}"),
        ),
        (api, format!("/v1/frames?cursor={next}")),
        (api, format!("/v1/frames?{query}&order=asc&cursor={next}")),
        (api, format!("/v1/payload-records?cursor={next}")),
        (api, format!("/v1/runs?cursor={next}")),
        (api, format!("/v1/frames?{query}&cursor={changed}")),
        (
            api,
            format!("/v1/frames?{query}&cursor={}", &next[..next.len() - 4]),
        ),
        (api, format!("/v1/frames?{query}&cursor=x")),
        (api, format!("/v1/frames?{query}&cursor=")),
        (&auditor, format!("/v1/frames?{query}&cursor={next}")),
        (&other, format!("/v1/frames?{query}&cursor={next}")),
    ] {
        api.get(&address).await.problem(400, "malformed_cursor");
    }
    for limit in ["0", "-1", "501", "99999999999"] {
        let address = format!("/v1/frames?{query}&limit={limit}");
        api.get(&address).await.problem(400, "malformed_parameter");
    }
    // What is not known is not passed over: whoever pages by a parameter that is gone would get the same page for ever.
    for address in [
        "/v1/runs?before=3",
        "/v1/frames?purpose=p&until=2026-11-30",
        "/v1/payload-records?purpose=p&before=3",
        "/v1/frames/counts?purpose=p&bye=day",
    ] {
        api.get(address).await.problem(400, "malformed_parameter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_query_states_its_purpose_and_stands_on_the_ledger_once() {
    let server = Server::start().await;
    let api = &server.api;
    many(api, 8).await;
    let entries = async || {
        page(api, "/v1/queries").await["queries"]
            .as_array()
            .unwrap()
            .len()
    };
    for address in [
        "/v1/frames",
        "/v1/payload-records",
        "/v1/runs?filter=run+is+set",
        "/v1/runs?format=csv",
        "/v1/runs/counts",
        "/v1/frames/counts?by=day",
        "/v1/payload-records/counts",
    ] {
        api.get(address).await.problem(400, "purpose_required");
    }
    assert_eq!(entries().await, 0);
    page(api, "/v1/runs?limit=1").await;
    assert_eq!(entries().await, 0, "a list is no query");
    let found = walk(api, "frames", "purpose=test", 3, async || {}).await;
    assert!(found.len() > 20);
    assert_eq!(entries().await, 1, "a walk is one query");
    for (address, media) in [
        (
            "/v1/frames?format=ndjson&purpose=test",
            "application/x-ndjson",
        ),
        (
            "/v1/frames?format=csv&purpose=test",
            "text/csv; charset=utf-8; header=present",
        ),
        (
            "/v1/frames?format=parquet&purpose=test",
            "application/vnd.apache.parquet",
        ),
    ] {
        let file = api.get(address).await.is(200);
        assert_eq!(file.header("content-type"), media);
        let rows = match media {
            "application/x-ndjson" => {
                let mut lines = file.lines();
                let end = lines.pop().unwrap();
                assert_eq!(end, json!({"end": {"rows": found.len()}}));
                assert_eq!(lines, found);
                lines.len()
            }
            "text/csv; charset=utf-8; header=present" => file.text().lines().count() - 1,
            _ => found.len(),
        };
        assert_eq!(rows, found.len(), "{address}");
    }
    assert_eq!(entries().await, 4);
    for role in ["agent", "gate"] {
        let api = api.role(role).await;
        for address in [
            "/v1/frames",
            "/v1/payload-records",
            "/v1/frames/counts",
            "/v1/runs/counts",
        ] {
            let answer = api.get(&format!("{address}?purpose=test")).await;
            answer.problem(403, "role_missing");
        }
        page(&api, "/v1/runs").await;
    }
    assert_eq!(api.get("/v1/runs").await.header("content-type"), JSON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_takes_long_ends_where_it_came_to_and_the_next_goes_on() {
    let server = Server::start().await;
    many(&server.api, 20).await;
    let hurried = hurried(&server, 4, Duration::ZERO).await;
    let api = &hurried.api;
    for (resource, nothing, everything) in [
        ("runs", "size > 1000", "not size > 1000"),
        ("frames", "seq > 1000 and run is set", "not seq > 1000"),
        (
            "payload-records",
            "size > 100000000",
            "not size > 100000000",
        ),
    ] {
        for order in ["desc", "asc"] {
            let query = format!("{}&order={order}", filtered(nothing));
            let mut pages = 1;
            let rows = walk(api, resource, &query, 50, async || pages += 1).await;
            assert!(rows.is_empty(), "{resource}");
            assert!((3..200).contains(&pages), "{resource}: {pages} pages");
            let query = format!("{}&order={order}", filtered(everything));
            let found = walk(api, resource, &query, 50, async || {}).await;
            let all = walk(&server.api, resource, &query, 50, async || {}).await;
            assert!(found == all && all.len() >= 10, "{resource} {order}");
            // A file goes on by itself.
            let file = format!("/v1/{resource}?format=ndjson&{query}");
            let mut lines = api.get(&file).await.is(200).lines();
            assert_eq!(lines.pop().unwrap(), json!({"end": {"rows": all.len()}}));
            assert_eq!(names(&lines), names(&all), "{resource} {order}");
        }
    }
}
