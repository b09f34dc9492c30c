//! The tests' own PostgreSQL: databases are empty, separate, and there for all tests at once.
#![cfg(test)]

mod harness;

use sqlx::{Connection, PgConnection};

async fn is_empty_and_stays_ours() {
    let database = harness::database().await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let tables: i64 =
        sqlx::query_scalar("select count(*) from pg_tables where schemaname = 'public'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(tables, 0);
    sqlx::raw_sql("create table mine (word text)")
        .execute(&mut connection)
        .await
        .unwrap();
    let current: String = sqlx::query_scalar("select current_database()::text")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(current, database.name);
}

#[tokio::test]
async fn a_database_is_empty() {
    is_empty_and_stays_ours().await;
}

#[tokio::test]
async fn many_at_once_do_not_meet() {
    let tasks: Vec<_> = (0..20)
        .map(|_| tokio::spawn(is_empty_and_stays_ours()))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_database_goes_with_its_value_also_under_an_open_connection() {
    let database = harness::database().await;
    let _open = PgConnection::connect(&database.url).await.unwrap();
    let (name, other) = (database.name.clone(), harness::database().await);
    drop(database);
    // Orders are carried out one after another, so the next database comes after the drop.
    harness::database().await;
    let mut connection = PgConnection::connect(&other.url).await.unwrap();
    let there: i64 = sqlx::query_scalar("select count(*) from pg_database where datname = $1")
        .bind(name)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(there, 0);
}
