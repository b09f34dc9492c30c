//! People: whom the pseudonyms in a ledger stand for.

use super::time::Time;
use super::{StoreError, Tx, contradiction};
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::HashMap;

/// A pseudonym and its person.
pub(crate) struct PersonRow {
    pub(crate) pseudonym: String,
    /// The id of the actor.
    pub(crate) person: String,
    pub(crate) since: Timestamp,
}

/// The pseudonyms of some people, by person; those who have none are left out.
pub(crate) async fn pseudonyms(
    tx: &mut Tx,
    tenant: &TenantId,
    people: &[&str],
) -> Result<HashMap<String, String>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select person, pseudonym from people where tenant = $1 and person = any($2)",
    )
    .bind(tenant.as_str())
    .bind(people)
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows.into_iter().collect())
}

/// Gives people pseudonyms, `(person, pseudonym)`; whoever got one at the same moment keeps that.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    people: &[(&str, String)],
) -> Result<(), StoreError> {
    let (people, pseudonyms): (Vec<&str>, Vec<&str>) = people
        .iter()
        .map(|(person, pseudonym)| (*person, pseudonym.as_str()))
        .unzip();
    sqlx::query(
        "insert into people (tenant, person, pseudonym) select $1, * from unnest($2::text[], $3::text[])
         on conflict (tenant, person) do nothing",
    )
    .bind(tenant.as_str())
    .bind(people)
    .bind(pseudonyms)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// All of a tenant, by person; or the one that has a pseudonym.
pub(crate) async fn list(
    tx: &mut Tx,
    tenant: &TenantId,
    pseudonym: Option<&str>,
) -> Result<Vec<PersonRow>, StoreError> {
    let rows = sqlx::query(
        "select pseudonym, person, since from people where tenant = $1 and ($2::text is null or pseudonym = $2) order by person",
    )
    .bind(tenant.as_str())
    .bind(pseudonym)
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(read).collect()
}

/// Removes the one that has a pseudonym, in a transaction that may erase; false where there is none.
pub(crate) async fn remove(
    tx: &mut Tx,
    tenant: &TenantId,
    pseudonym: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query("delete from people where tenant = $1 and pseudonym = $2")
        .bind(tenant.as_str())
        .bind(pseudonym)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Whether a pseudonym still leads to somebody.
pub(crate) async fn is_known(
    tx: &mut Tx,
    tenant: &TenantId,
    pseudonym: &str,
) -> Result<bool, StoreError> {
    Ok(list(tx, tenant, Some(pseudonym)).await?.len() == 1)
}

/// An actor of a statement, as two columns of a table have it: `NAME_type` and `NAME_id`.
pub(super) fn actor(row: &PgRow, table: &'static str, name: &str) -> Result<Actor, StoreError> {
    let kind: String = row.try_get(&*format!("{name}_type"))?;
    Ok(Actor {
        id: row.try_get(&*format!("{name}_id"))?,
        keyid: None,
        kind: ActorType::from_word(&kind).ok_or_else(|| contradiction(table, "type", kind))?,
    })
}

fn read(row: &PgRow) -> Result<PersonRow, StoreError> {
    Ok(PersonRow {
        pseudonym: row.try_get("pseudonym")?,
        person: row.try_get("person")?,
        since: row.try_get::<Time, _>("since")?.0,
    })
}
