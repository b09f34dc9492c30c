//! Runs that a condition is true of, by their ids.

use super::branch::branches;
use super::condition::{Condition, Scope};
use super::driver::{Bounds, Driver, choose};
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
) -> Result<Vec<RunRow>, StoreError> {
    row_by_row(tx).await?;
    let Some(mut sql) = statement(tx, asked, limit).await? else {
        return Ok(Vec::new());
    };
    // Planned for its values each time, since which index serves depends on them.
    let rows = sql.build().persistent(false).fetch_all(&mut **tx).await?;
    rows.iter().map(read).collect()
}

/// The statement of a page; `None` where the condition is true of nothing.
async fn statement(
    tx: &mut Tx,
    asked: &Runs<'_>,
    limit: u32,
) -> Result<Option<QueryBuilder<Postgres>>, StoreError> {
    let scope = Scope {
        tenant: asked.tenant.as_str(),
        run: "r.run",
        each: true,
    };
    let condition = resolved(tx, scope, asked.condition).await?;
    let paths = paths(tx, scope, &condition, asked.bounds).await?;
    if paths.is_empty() {
        return Ok(None);
    }
    let word = asked.order.word();
    let mut sql = QueryBuilder::new("select runs.* from (select run from (");
    for (place, path) in paths.iter().enumerate() {
        sql.push(if place == 0 {
            "(select "
        } else {
            " union (select "
        });
        sql.push(path.driver.distinct());
        sql.push(path.driver.run()).push(" as run");
        path.push(&mut sql, scope.tenant);
        if let Some(after) = asked.after {
            sql.push(" and ").push(path.driver.run());
            sql.push(asked.order.behind()).push_bind(Uuid::from(after));
        }
        sql.push(" order by ").push(path.driver.run()).push(word);
        sql.push(" limit ").push_bind(i64::from(limit)).push(")");
    }
    sql.push(") as branches order by run").push(word);
    sql.push(" limit ").push_bind(i64::from(limit));
    sql.push(") as found cross join lateral (select * from runs where runs.run = found.run offset 0) runs order by found.run");
    sql.push(word);
    Ok(Some(sql))
}

/// One way to runs: what leads to them, and what is asked of each.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) driver: Driver,
    pub(super) rest: Condition,
    pub(super) bounds: Bounds,
}

impl Path {
    /// Adds `from … where …`.
    fn push(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str) {
        self.driver.push(sql, tenant, self.rest.needs_run());
        self.bounds.push(sql, self.driver.run());
        if self.rest != Condition::always() {
            let run = self.driver.run();
            sql.push(" and ");
            self.rest.push(
                sql,
                Scope {
                    tenant,
                    run,
                    each: true,
                },
            );
        }
    }
}

/// The ways to the runs of a condition, which together lead to all of them.
pub(super) async fn paths(
    tx: &mut Tx,
    scope: Scope<'_>,
    condition: &Condition,
    bounds: Bounds,
) -> Result<Vec<Path>, StoreError> {
    let mut paths = Vec::new();
    for branch in branches(condition) {
        let bounds = bounds.narrowed(&branch);
        if bounds.first > bounds.last {
            continue;
        }
        let (driver, _) = choose(tx, scope, &branch, bounds).await?;
        if driver == Driver::Walk && bounds == Bounds::ALL {
            // All runs are looked at for this one: then once, for all of the condition.
            let rest = condition.clone();
            return Ok(vec![Path {
                driver,
                rest,
                bounds,
            }]);
        }
        let rest = branch.into_iter().filter(|one| !driver.is_said_by(one));
        paths.push(Path {
            rest: Condition::All(rest.collect()),
            driver,
            bounds,
        });
    }
    Ok(paths)
}
