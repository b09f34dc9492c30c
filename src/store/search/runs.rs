//! Runs that a condition is true of, by their ids.

use super::bounds::Bounds;
use super::condition::{Condition, Scope};
use super::pace::{Effort, Found, Pace};
use super::piece::{Path, Piece, Search};
use super::resolve::resolved;
use super::{Order, row_by_row};
use crate::store::id::Uuid;
use crate::store::runs::{RunRow, read};
use crate::store::{StoreError, Tx};
use onrecord_core::id::{RunId, TenantId};
use sqlx::{Postgres, QueryBuilder};

/// Which runs, and from where on.
pub(crate) struct Runs<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) condition: &'a Condition,
    pub(crate) bounds: Bounds,
    pub(crate) order: Order,
    /// The last run of the page before.
    pub(crate) after: Option<&'a RunId>,
}

/// A page of runs.
pub(crate) async fn list(
    tx: &mut Tx,
    asked: &Runs<'_>,
    limit: u32,
    effort: Effort,
) -> Result<Found<RunRow, RunId>, StoreError> {
    row_by_row(tx).await?;
    let (tenant, order) = (asked.tenant.as_str(), asked.order);
    let scope = Scope::of_each(tenant, "r.run");
    let condition = resolved(tx, scope, asked.condition).await?;
    let mut pace = Pace::new(effort);
    let bounds = (asked.bounds, order, true);
    let search = Search::new(tx, tenant, &condition, bounds, pace.size()).await?;
    let after = asked.after.map(Uuid::from);
    let mut ids = match after {
        Some(after) => asked.bounds.behind(after, order),
        None => Some(asked.bounds),
    };
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    while let Some(left) = ids {
        let piece = search.piece(tx, left, pace.size()).await?;
        if !piece.paths.is_empty() {
            let missing = i64::from(limit) - i64::try_from(rows.len()).unwrap_or(0);
            let mut sql = statement(&piece, asked, missing);
            // Planned for its values each time, since which index serves depends on them.
            for row in sql.build().persistent(false).fetch_all(&mut **tx).await? {
                rows.push(read(&row)?);
            }
        }
        let Some(end) = piece.end else { break };
        if rows.len() >= most {
            break;
        }
        if !pace.goes_on() {
            let looked_to = Some(end.into());
            return Ok(Found { rows, looked_to });
        }
        ids = asked.bounds.behind(end, order);
    }
    Ok(Found::all(rows))
}

/// The statement of a page of a piece.
fn statement(piece: &Piece, asked: &Runs<'_>, limit: i64) -> QueryBuilder<Postgres> {
    let word = asked.order.word();
    let mut sql = QueryBuilder::new("select runs.* from (select run from (");
    for (place, path) in piece.paths.iter().enumerate() {
        sql.push(if place == 0 {
            "(select "
        } else {
            " union (select "
        });
        sql.push(path.driver.distinct());
        sql.push(path.driver.run()).push(" as run");
        path.push(&mut sql, asked.tenant.as_str());
        sql.push(" order by ").push(path.driver.run()).push(word);
        sql.push(" limit ").push_bind(limit).push(")");
    }
    sql.push(") as branches order by run").push(word);
    sql.push(" limit ").push_bind(limit);
    sql.push(") as found cross join lateral (select * from runs where runs.run = found.run offset 0) runs order by found.run");
    sql.push(word);
    sql
}

impl Path {
    /// Adds `from … where …`.
    fn push(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str) {
        let with_run = self.rest.needs_run();
        self.driver.push(sql, tenant, self.bounds, with_run);
        if self.rest != Condition::always() {
            let run = self.driver.run();
            sql.push(" and ");
            self.rest.push(sql, self.scope(tenant, run));
        }
    }
}
