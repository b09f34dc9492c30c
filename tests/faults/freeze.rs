//! The database is slow, and for a while it does not answer at all (case 19).

use crate::api::audit::audit;
use crate::api::raw::Raw;
use crate::chance::Chance;
use crate::harness;
use crate::insist::{Client, Tally, singles};
use crate::load::frame;
use crate::process::{DataDir, Process};
use crate::processes::check_log;
use crate::proxy::{Fault, Moment, Proxy};
use futures_util::StreamExt as _;
use sqlx::{Connection as _, PgConnection};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a transaction that does nothing may stand open, in seconds.
const IDLE_LIMIT_S: i64 = 60;

/// A time from the environment, in milliseconds.
fn millis(name: &str, default: u64) -> Duration {
    Duration::from_millis(crate::setting(name).unwrap_or(default))
}

async fn number(sql: &mut PgConnection, query: &str) -> i64 {
    let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
    query.fetch_one(sql).await.expect("a number")
}

/// Appends whose clients are gone after a part of a time by chance, so many of them at once.
async fn hang_up(
    process: &Process,
    run: &str,
    chance: &mut Chance,
    most: Duration,
    at_once: usize,
) {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let token = process.api.token.as_deref().expect("a token");
    let most = u64::try_from(most.as_micros()).expect("a short time");
    let clients = (0..100).map(|_| {
        let patience = Duration::from_micros(chance.of(0..most));
        let (address, line) = (process.api.address(), format!("POST /v1/runs/{run}/frames"));
        let name = format!("gone-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        async move {
            let body = frame(&name).to_string();
            let length = format!("content-length: {}", body.len());
            let headers = ["content-type: application/json", &length];
            let mut raw = Raw::connect(address).await;
            raw.head(&line, token, &headers).await;
            raw.send(body.as_bytes()).await;
            tokio::time::sleep(patience).await;
        }
    });
    let clients = futures_util::stream::iter(clients).buffer_unordered(at_once);
    clients.collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_and_a_database_that_stands_still_leave_the_pool_whole() {
    // 200 and 20,000 in the case itself.
    let delay = millis("ONRECORD_FAULTS_DELAY_MS", 3);
    let freeze = millis("ONRECORD_FAULTS_FREEZE_MS", 1_500);
    let mut chance = Chance::new("clients that hang up");
    let database = harness::database().await;
    let proxy = Proxy::before(&database.url).await;
    let data_dir = DataDir::new();
    let arguments = ["--database-url", proxy.url(), "--connections", "2"];
    let process = Process::start(&data_dir, &arguments);
    let opened = process.api.any_run().await;
    let run = opened.run.to_string();

    proxy.delay(delay);
    hang_up(&process, &run, &mut chance, 2 * delay, 100).await;
    // As many connections as clients, so that each of them gets as far as its patience lasts.
    hang_up(&process, &run, &mut chance, 16 * delay, 2).await;
    let tally = Tally::new(&[10, 60]);
    let clients = |name: &'static str, count: usize, tally: &std::sync::Arc<Tally>| {
        let clients = (0..5).map(|n| {
            let client = Client::of(&process.api, tally);
            let (run, name) = (run.clone(), format!("{name}-{n}"));
            tokio::spawn(singles(client, run, name, count))
        });
        clients.collect::<Vec<_>>()
    };
    let mut kept = vec![opened];
    for client in clients("ordinary", 10, &tally) {
        kept.extend(client.await.unwrap());
    }
    let mut sql = PgConnection::connect(&database.url).await.unwrap();
    let ordinary = "select count(*) from frames where key like 'ordinary-%'";
    assert_eq!(number(&mut sql, ordinary).await, 50);

    let frozen = clients("frozen", 12, &tally);
    tally.acknowledged.reached().await;
    tally.acknowledged.reached().await;
    proxy.freeze();
    process.api.get("/health/live").await.is(200);
    tokio::time::sleep(freeze).await;
    proxy.thaw();
    for client in frozen {
        kept.extend(client.await.unwrap());
    }
    println!("{tally}");
    proxy.delay(Duration::ZERO);

    let sessions = "select count(*) from pg_stat_activity where datname = current_database()
        and application_name = 'onrecord' and state like 'idle in transaction%'";
    let old = format!(
        "{sessions} and state_change < clock_timestamp() - {IDLE_LIMIT_S} * interval '1 s'"
    );
    assert_eq!(number(&mut sql, &old).await, 0);
    // What clients that are gone had begun comes to its end, and nothing stays open.
    while number(&mut sql, sessions).await > 0 {}
    let passed = proxy.passed();
    for code in ["25P02", "25001", "25P01"] {
        assert!(!passed.codes.contains_key(code), "{:?}", passed.codes);
    }
    process.api.get("/health/ready").await.is(200);
    audit(&process.api, &run, &kept).await;
    let names = "select count(*) - count(distinct key) from frames where key like 'gone-%'";
    assert_eq!(number(&mut sql, names).await, 0);
    check_log(&process.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_outlives_its_server_is_found_by_the_next() {
    let database = harness::database().await;
    let proxy = Proxy::before(&database.url).await;
    let data_dir = DataDir::new();
    let one = Process::start(&data_dir, &["--database-url", proxy.url()]);
    let two = Process::start(&data_dir, &["--database-url", &database.url]);
    let opened = one.api.any_run().await;
    let run = opened.run.to_string();
    proxy.arm(Moment::Commit, Fault::Freeze, 1);
    let (api, path) = (one.api.clone(), run.clone());
    let first = tokio::spawn(async move {
        let path = format!("/v1/runs/{path}/frames");
        let request = api.request(reqwest::Method::POST, &path);
        let request = request.header("content-type", crate::api::JSON);
        let answer = crate::api::Answer::try_of(request.body(frame("k").to_string())).await;
        answer.is_err()
    });
    proxy.fired().await;
    check_log(&one.kill());
    assert!(first.await.unwrap(), "nobody is told that it is stored");
    // The commit is still under way when the other server is asked for the same frame.
    let (api, path) = (two.api.clone(), run.clone());
    let retry = tokio::spawn(async move { api.frame(&path, &frame("k")).await });
    let mut sql = PgConnection::connect(&database.url).await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while number(&mut sql, waiting).await == 0 && !retry.is_finished() {}
    proxy.thaw();
    // Whichever of the two was first: there is one.
    let retried = retry.await.unwrap();
    assert!(matches!(retried.status, 200 | 201), "{}", retried.text());
    let receipt = retried.receipt();
    assert_eq!(receipt.seq, 1);
    audit(&two.api, &run, &[opened, receipt]).await;
    assert_eq!(two.api.size(&run).await, 2);
    check_log(&two.stop());
}
