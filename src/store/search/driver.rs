//! Which indexes lead to the runs of a branch, in the order of their ids.

use super::Order;
use super::bounds::Bounds;
use super::condition::{Comparison, Condition, Value, compare, last_beginning_with};
use super::field::{EXPIRES_AT, OUTCOME, SEALED_AT, STATUS, Source, TIER};
use super::said::Said;
use crate::store::{StoreError, Tx};
use onrecord_core::facts::FactField;
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder};

/// Runs up to which what leads to them in another order is listed and sorted, for each page anew.
const SORTED: i64 = 2_000;

/// What leads to runs in the order of their ids. A statement of one column, `run`, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// All of the tenant.
    Walk,
    /// Those that are not sealed.
    Unsealed,
    /// Those of these that have ended.
    Ended,
    /// Those that came out so.
    Outcome(String),
    /// Those of which one of these is said.
    Said(Said, Vec<String>),
    /// Those of which something is said that begins so; not in the order of their ids, and so for few only.
    Beginning(Said, String),
    /// Those that expire in a stretch of time; likewise.
    Expiring(Vec<(Comparison, Timestamp)>),
}

impl Driver {
    /// Whether it leads to rows of `runs`, which are called `r`, so that the rest need not be looked up.
    pub(super) fn is_runs(&self) -> bool {
        !matches!(
            self,
            Self::Said(..) | Self::Beginning(..) | Self::Expiring(_)
        )
    }

    /// Whether it leads to a run once.
    fn is_unique(&self) -> bool {
        match self {
            Self::Said(said, values) => said.is_unique() && values.len() == 1,
            Self::Beginning(..) => false,
            _ => true,
        }
    }

    /// What a list of its runs begins with, so that each is there once before they are cut to a page.
    pub(super) fn distinct(&self) -> &'static str {
        if self.is_unique() { "" } else { "distinct " }
    }

    /// The expression of the run's id in [`Driver::push`].
    pub(super) fn run(&self) -> &'static str {
        if self.is_runs() { "r.run" } else { "d.run" }
    }

    /// Adds `from … where …`, of those between bounds; other conditions on the ids may follow.
    pub(super) fn push(
        &self,
        sql: &mut QueryBuilder<Postgres>,
        tenant: &str,
        bounds: Bounds,
        with_run: bool,
    ) {
        match self {
            Self::Said(said, values) if self.is_ordered() => {
                said.push(sql, "d", tenant, with_run);
                for value in values {
                    sql.push(" and ").push(said.column()).push(" = ");
                    sql.push_bind(value.clone());
                }
            }
            Self::Said(..) | Self::Beginning(..) | Self::Expiring(_) => {
                // With `offset 0` they are read by what is asked of them, and not in the order in which a page wants them.
                sql.push(" from (select d.run");
                self.push_unordered(sql, tenant);
                bounds.push(sql, "d.run");
                sql.push(" offset 0) d");
                if with_run {
                    sql.push(" cross join lateral (select * from runs where runs.run = d.run offset 0) r");
                }
                sql.push(" where true");
                return;
            }
            Self::Walk | Self::Unsealed | Self::Ended | Self::Outcome(_) => {
                sql.push(" from runs r where r.tenant = ");
                sql.push_bind(tenant.to_owned());
            }
        }
        match self {
            Self::Unsealed => {
                sql.push(" and r.sealed_at is null");
            }
            Self::Ended => {
                sql.push(" and r.ended and r.sealed_at is null");
            }
            Self::Outcome(outcome) => {
                sql.push(" and r.outcome = ").push_bind(outcome.clone());
            }
            _ => {}
        }
        bounds.push(sql, self.run());
    }

    /// Adds `from … d where …` of what leads to runs in another order.
    fn push_unordered(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str) {
        match self {
            Self::Said(said, values) => {
                said.push(sql, "d", tenant, false);
                sql.push(" and ").push(said.column()).push(" = any(");
                sql.push_bind(values.clone()).push(")");
            }
            Self::Beginning(said, beginning) => {
                said.push(sql, "d", tenant, false);
                sql.push(" and ").push(said.column()).push(" >= ");
                sql.push_bind(beginning.clone());
                sql.push(" and ").push(said.column()).push(" <= ");
                sql.push_bind(last_beginning_with(beginning));
            }
            Self::Expiring(tests) => {
                sql.push(" from run_retention d where d.tenant = ");
                sql.push_bind(tenant.to_owned());
                for (comparison, time) in tests {
                    sql.push(" and ");
                    compare(sql, "d.due", *comparison, &Value::Time(*time));
                }
            }
            Self::Walk | Self::Unsealed | Self::Ended | Self::Outcome(_) => {}
        }
    }

    /// Adds `(select …)`, the id that comes as the one after so many others; null where there is none. Where several values
    /// lead to runs, each of them leads to no more than its share up to there.
    pub(super) fn push_nth(
        &self,
        sql: &mut QueryBuilder<Postgres>,
        tenant: &str,
        (bounds, order): (Bounds, Order),
        others: i64,
    ) {
        let run = self.run();
        let ordered = |sql: &mut QueryBuilder<Postgres>, others: i64| {
            sql.push(" order by ").push(run).push(order.word());
            sql.push(" offset ").push_bind(others).push(" limit 1)");
        };
        match self {
            Self::Said(said, values) if values.len() > 1 => {
                sql.push("(select n.run from unnest(")
                    .push_bind(values.clone());
                sql.push(") v (value) cross join lateral (select d.run");
                said.push(sql, "d", tenant, false);
                sql.push(" and ").push(said.column()).push(" = v.value");
                bounds.push(sql, run);
                let share = i64::try_from(values.len()).unwrap_or(i64::MAX);
                ordered(sql, others / share);
                sql.push(" n order by n.run")
                    .push(order.word())
                    .push(" limit 1)");
            }
            _ => {
                sql.push("(select ").push(run);
                self.push(sql, tenant, bounds, false);
                ordered(sql, others);
            }
        }
    }

    /// Whether the runs come in the order of their ids as they are read.
    pub(super) fn is_ordered(&self) -> bool {
        match self {
            Self::Said(_, values) => values.len() == 1,
            Self::Beginning(..) | Self::Expiring(_) => false,
            _ => true,
        }
    }

    /// Whether a member of a branch asks for no more than that it leads to a run.
    pub(super) fn is_said_by(&self, condition: &Condition) -> bool {
        Self::exactly(condition).as_ref() == Some(self)
    }

    /// What leads to the runs that a test is true of, and to no others, in the order of their ids.
    pub(super) fn exactly(condition: &Condition) -> Option<Self> {
        let driver = Self::of(condition)?;
        let is_wider = match condition {
            // What has ended is no longer open; a run has payloads of several tiers.
            Condition::Is(field, ..) => driver == Self::Unsealed || field.source == TIER,
            _ => false,
        };
        (!is_wider).then_some(driver)
    }

    /// What a member of a branch offers.
    fn of(condition: &Condition) -> Option<Self> {
        match condition {
            Condition::Is(field, Comparison::Equal, value) => match (field.source, value) {
                (Source::Said(said), value) => Some(Self::Said(said, vec![value.as_said()])),
                // A payload of a tier makes its run one that has such.
                (TIER, value) => {
                    let tier = Said::Fact(FactField::Tier);
                    Some(Self::Said(tier, vec![value.as_said()]))
                }
                (STATUS, Value::Text(word)) if word == "open" => Some(Self::Unsealed),
                (STATUS, Value::Text(word)) if word == "ended" => Some(Self::Ended),
                (OUTCOME, Value::Text(word)) if word != "unknown" => {
                    Some(Self::Outcome(word.clone()))
                }
                _ => None,
            },
            Condition::In(field, values) => match field.source {
                Source::Said(said) if !values.is_empty() => {
                    let mut values: Vec<String> = values.iter().map(Value::as_said).collect();
                    // Twice the same would count twice.
                    values.sort_unstable();
                    values.dedup();
                    Some(Self::Said(said, values))
                }
                _ => None,
            },
            Condition::Not(inner) => match &**inner {
                Condition::Present(field) if field.source == SEALED_AT => Some(Self::Unsealed),
                Condition::Is(field, Comparison::Equal, Value::Text(word))
                    if field.source == STATUS && word == "sealed" =>
                {
                    Some(Self::Unsealed)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// What a branch offers, each of which leads to all of its runs.
pub(super) async fn offered(
    tx: &mut Tx,
    tenant: &str,
    branch: &[Condition],
    bounds: Bounds,
) -> Result<Vec<Driver>, StoreError> {
    let mut offered: Vec<Driver> = Vec::new();
    for driver in branch.iter().filter_map(Driver::of) {
        if !offered.contains(&driver) {
            offered.push(driver);
        }
    }
    let mut sorted: Vec<Driver> = branch.iter().filter_map(beginning).collect();
    sorted.extend(expiring(branch));
    let counts = counted(tx, tenant, &sorted, bounds, SORTED + 1).await?;
    let few = sorted.into_iter().zip(counts);
    offered.extend(few.filter(|(_, count)| *count <= SORTED).map(|few| few.0));
    Ok(offered)
}

/// Of what a branch offers that which leads to the fewest runs, where these are so few.
pub(super) async fn fewest(
    tx: &mut Tx,
    tenant: &str,
    branch: &[Condition],
    (bounds, most): (Bounds, i64),
) -> Result<Option<Driver>, StoreError> {
    let offered = offered(tx, tenant, branch, bounds).await?;
    let counts = counted(tx, tenant, &offered, bounds, most + 1).await?;
    let counts = offered.into_iter().zip(counts);
    let fewest = counts.min_by_key(|(_, count)| *count);
    Ok(fewest.filter(|(_, count)| *count <= most).map(|few| few.0))
}

/// How many runs each leads to, as far as so many are counted.
async fn counted(
    tx: &mut Tx,
    tenant: &str,
    drivers: &[Driver],
    bounds: Bounds,
    most: i64,
) -> Result<Vec<i64>, StoreError> {
    if drivers.is_empty() {
        return Ok(Vec::new());
    }
    let mut sql = QueryBuilder::new("select array[");
    for (place, driver) in drivers.iter().enumerate() {
        sql.push(if place == 0 { "" } else { ", " });
        sql.push("(select count(*) from (select");
        driver.push(&mut sql, tenant, bounds, false);
        sql.push(" limit ").push_bind(most).push(") as counted)");
    }
    sql.push("]");
    let counts = sql.build_query_scalar().persistent(false);
    Ok(counts.fetch_one(&mut **tx).await?)
}

/// What a test of a beginning offers. Where few values begin so, it is a list of them before it comes here.
fn beginning(condition: &Condition) -> Option<Driver> {
    let (field, beginning) = match condition {
        Condition::Is(field, Comparison::Begins, Value::Text(text)) => (field, text.clone()),
        Condition::Present(field) => (field, String::new()),
        _ => return None,
    };
    match field.source {
        Source::Said(said) => Some(Driver::Beginning(said, beginning)),
        _ => None,
    }
}

/// What the tests of the expiry in a branch offer.
fn expiring(branch: &[Condition]) -> Option<Driver> {
    let tests = branch.iter().filter_map(|condition| match condition {
        Condition::Is(field, comparison, Value::Time(time)) if field.source == EXPIRES_AT => {
            Some((*comparison, *time))
        }
        _ => None,
    });
    let tests: Vec<_> = tests.collect();
    (!tests.is_empty()).then_some(Driver::Expiring(tests))
}
