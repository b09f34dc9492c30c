//! A database whose clock a test steps: a `clock_timestamp()` of its own stands before PostgreSQL's.

use crate::api::Api;
use crate::harness::TestDatabase;
use crate::running::Server;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::sync::Arc;

pub(crate) struct Clock {
    database: Arc<TestDatabase>,
    api: Api,
    /// Runs without payloads, one of each of the server's two lanes: a frame of it has the lane ask what time it is, which it
    /// else carries forward by itself.
    runs: [String; 2],
}

/// A server on a database whose clock is stepped.
pub(crate) async fn stepped() -> (Server, Clock) {
    let server = Server::start().await;
    let database = server.database.clone();
    let sql = format!(
        "create schema stepped;
         create table stepped.ahead (days double precision);
         insert into stepped.ahead values (0);
         create function stepped.clock_timestamp() returns timestamptz language sql volatile as
           'select pg_catalog.clock_timestamp() + (select days from stepped.ahead) * interval ''1 day''';
         grant usage on schema stepped to public;
         grant select on stepped.ahead to public;
         alter database {} set search_path = stepped, pg_catalog, public",
        database.name
    );
    let mut owner = server.sql().await;
    owner
        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)))
        .await
        .unwrap();
    let server = server.restart().await;
    let mut runs = [None, None];
    while runs.iter().any(Option::is_none) {
        let run = server.api.any_run().await.run;
        runs[usize::from(run.to_bits() % 2 == 1)] = Some(run.to_string());
    }
    let clock = Clock {
        database,
        api: server.api.clone(),
        runs: runs.map(Option::unwrap),
    };
    (server, clock)
}

impl Clock {
    /// Lets so many days pass.
    pub(crate) async fn step_days(&self, days: u32) {
        let mut owner = PgConnection::connect(&self.database.url).await.unwrap();
        sqlx::query("update stepped.ahead set days = days + $1")
            .bind(f64::from(days))
            .execute(&mut owner)
            .await
            .unwrap();
        let frame = json!({"kind": "observation"});
        for run in &self.runs {
            self.api.frame(run, &frame).await.is(201);
        }
    }
}
