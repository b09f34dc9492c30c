//! Requests to release holds and orders, where that takes two people.

use super::people::actor;
use super::time::Time;
use super::{StoreError, Tx, contradiction, signed};
use onrecord_core::frame::Actor;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::Row as _;

/// What is to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A hold, by its number.
    Hold(u64),
    /// An order.
    Order(RunId),
}

/// A request that waits for a second person.
#[derive(Clone, Debug)]
pub(crate) struct RequestRow {
    pub(crate) id: RunId,
    /// Who asked first.
    pub(crate) by: Actor,
    pub(crate) at: Timestamp,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Somebody released what it is about.
    Completed,
    /// Somebody took it back.
    Withdrawn,
    /// It is not known any longer who asked.
    Void,
}

/// The request about something that waits, if there is one.
pub(crate) async fn waiting(
    tx: &mut Tx,
    tenant: &TenantId,
    of: &Of,
) -> Result<Option<RequestRow>, StoreError> {
    let (hold, order) = columns(of);
    let row = sqlx::query(
        "select * from hold_releases where tenant = $1 and ended is null and (hold = $2 or hold_order = $3)",
    )
    .bind(tenant.as_str())
    .bind(hold)
    .bind(order)
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| {
        let id: String = row.try_get("id")?;
        Ok(RequestRow {
            by: actor(&row, "hold_releases", "by")?,
            at: row.try_get::<Time, _>("requested_at")?.0,
            id: id
                .parse()
                .map_err(|_| contradiction("hold_releases", "id", &id))?,
        })
    })
    .transpose()
}

/// Adds a request.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: &TenantId,
    of: &Of,
    request: &RequestRow,
) -> Result<(), StoreError> {
    let (hold, order) = columns(of);
    sqlx::query(
        "insert into hold_releases (id, tenant, hold, hold_order, by_type, by_id, requested_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(request.id.to_string())
    .bind(tenant.as_str())
    .bind(hold)
    .bind(order)
    .bind(request.by.kind.as_str())
    .bind(&request.by.id)
    .bind(Time(request.at))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes the end of a request.
pub(crate) async fn end(
    tx: &mut Tx,
    id: &RunId,
    how: Ended,
    by: &Actor,
    at: Timestamp,
) -> Result<(), StoreError> {
    let how = match how {
        Ended::Completed => "completed",
        Ended::Withdrawn => "withdrawn",
        Ended::Void => "void",
    };
    sqlx::query(
        "update hold_releases set ended = $2, ended_by_type = $3, ended_by_id = $4, ended_at = $5 where id = $1 and ended is null",
    )
    .bind(id.to_string())
    .bind(how)
    .bind(by.kind.as_str())
    .bind(&by.id)
    .bind(Time(at))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn columns(of: &Of) -> (Option<i64>, Option<String>) {
    match of {
        Of::Hold(index) => (Some(signed(*index)), None),
        Of::Order(id) => (None, Some(id.to_string())),
    }
}
