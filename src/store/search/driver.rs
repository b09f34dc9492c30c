//! Which index leads to the runs of a branch, newest first.

use super::condition::{Comparison, Condition, Scope, Value, compare};
use super::field::{EXPIRES_AT, LAST_AT, OPENED_AT, OUTCOME, SEALED_AT, STATUS, Source, TIER};
use super::said::Said;
use crate::store::id::Uuid;
use crate::store::{StoreError, Tx};
use onrecord_core::facts::FactField;
use onrecord_core::id::RunId;
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder};

/// Runs that are counted to find out which index leads to the fewest.
const COUNTED: i64 = 5_000;
/// How long before its opening the id of a run may have been made, in microseconds.
pub(crate) const OPENING_MICROS: i64 = 60_000_000;

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
    /// Those of which it is said.
    Said(Said, String),
    /// Those that expire in a stretch of time; not in the order of their ids, and so for few only.
    Expiring(Vec<(Comparison, Timestamp)>),
}

/// Between which ids runs are, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(super) first: Uuid,
    pub(super) last: Uuid,
}

impl Driver {
    /// Whether it leads to rows of `runs`, which are called `r`, so that the rest need not be looked up.
    pub(super) fn is_runs(&self) -> bool {
        !matches!(self, Self::Said(..) | Self::Expiring(_))
    }

    /// Whether it leads to a run once.
    fn is_unique(&self) -> bool {
        match self {
            Self::Said(said, _) => said.is_unique(),
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

    /// Adds `from … where …`; other conditions on the ids may follow.
    pub(super) fn push(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str, with_run: bool) {
        match self {
            Self::Said(said, value) => {
                said.push(sql, tenant, with_run);
                sql.push(" and ").push(said.column()).push(" = ");
                sql.push_bind(value.clone());
                return;
            }
            Self::Expiring(tests) => {
                sql.push(" from run_retention d");
                if with_run {
                    sql.push(" cross join lateral (select * from runs where runs.run = d.run offset 0) r");
                }
                sql.push(" where d.tenant = ").push_bind(tenant.to_owned());
                for (comparison, time) in tests {
                    sql.push(" and ");
                    compare(sql, "d.due", *comparison, &Value::Time(*time));
                }
                return;
            }
            _ => {}
        }
        sql.push(" from runs r where r.tenant = ");
        sql.push_bind(tenant.to_owned());
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
            Self::Walk | Self::Said(..) | Self::Expiring(_) => {}
        }
    }

    /// Whether a member of a branch asks for no more than that it leads to a run.
    pub(super) fn is_said_by(&self, condition: &Condition) -> bool {
        match (self, condition) {
            (Self::Said(said, named), Condition::Is(field, Comparison::Equal, value)) => {
                field.source == Source::Said(*said) && *named == value.as_said()
            }
            _ => false,
        }
    }

    /// What a member of a branch offers.
    fn of(condition: &Condition) -> Option<Self> {
        match condition {
            Condition::Is(field, Comparison::Equal, value) => match (field.source, value) {
                (Source::Said(said), value) => Some(Self::Said(said, value.as_said())),
                // A payload of a tier makes its run one that has such.
                (TIER, value) => Some(Self::Said(Said::Fact(FactField::Tier), value.as_said())),
                (STATUS, Value::Text(word)) if word == "open" => Some(Self::Unsealed),
                (STATUS, Value::Text(word)) if word == "ended" => Some(Self::Ended),
                (OUTCOME, Value::Text(word)) if word != "unknown" => {
                    Some(Self::Outcome(word.clone()))
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

/// The driver of a branch: of those that it offers the one that leads to the fewest runs, as far as they are counted; and
/// how many they are, up to [`COUNTED`].
pub(super) async fn choose(
    tx: &mut Tx,
    scope: Scope<'_>,
    branch: &[Condition],
    bounds: Bounds,
) -> Result<(Driver, Option<i64>), StoreError> {
    let mut offered: Vec<Driver> = Vec::new();
    for driver in branch.iter().filter_map(Driver::of) {
        if !offered.contains(&driver) {
            offered.push(driver);
        }
    }
    offered.extend(expiring(branch));
    if offered.is_empty() {
        return Ok((Driver::Walk, None));
    }
    let mut sql = QueryBuilder::new("select array[");
    for (place, driver) in offered.iter().enumerate() {
        sql.push(if place == 0 { "" } else { ", " });
        sql.push("(select count(*) from (select");
        driver.push(&mut sql, scope.tenant, false);
        bounds.push(&mut sql, driver.run());
        sql.push(" limit ").push_bind(COUNTED).push(") as counted)");
    }
    sql.push("]");
    let counts: Vec<i64> = sql
        .build_query_scalar()
        .persistent(false)
        .fetch_one(&mut **tx)
        .await?;
    let usable = |(driver, count): &(Driver, i64)| {
        !matches!(driver, Driver::Expiring(_)) || *count < COUNTED
    };
    let counted = offered.into_iter().zip(counts).filter(usable);
    let fewest = counted.min_by_key(|(_, count)| *count);
    Ok(fewest.map_or((Driver::Walk, None), |(driver, count)| {
        (driver, Some(count))
    }))
}

/// The driver of what a branch asks of the expiry.
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

impl Bounds {
    /// Every id.
    pub(crate) const ALL: Self = Self {
        first: Uuid::MIN,
        last: Uuid::MAX,
    };

    /// Ids that begin with digits of ULIDs. A beginning that no id has is refused before; here it would be that of none.
    pub(crate) fn prefix(prefix: &str) -> Self {
        if prefix.is_empty() {
            return Self::ALL;
        }
        let bound = |digit: &str| {
            let rest = digit.repeat(26_usize.saturating_sub(prefix.len()));
            let id: Option<RunId> = format!("{prefix}{rest}").parse().ok();
            id.as_ref().map(Uuid::from)
        };
        Self {
            first: bound("0").unwrap_or(Uuid::MAX),
            last: bound("Z").unwrap_or(Uuid::MIN),
        }
    }

    /// What is left of them for a branch: an id begins with the milliseconds of the opening, so that what is asked of times
    /// says something about ids too.
    pub(super) fn narrowed(self, branch: &[Condition]) -> Self {
        let mut bounds = self;
        for condition in branch {
            let Condition::Is(field, comparison, value) = condition else {
                continue;
            };
            let (above, below) = match comparison {
                Comparison::Equal => (true, true),
                Comparison::Greater | Comparison::GreaterOrEqual => (true, false),
                Comparison::Less | Comparison::LessOrEqual => (false, true),
                Comparison::Begins => (false, false),
            };
            match (field.source, value) {
                (Source::RunId, Value::Run(run)) => {
                    let run = Uuid::from(run);
                    bounds.first = bounds.first.max(run);
                    bounds.last = bounds.last.min(run);
                }
                (OPENED_AT, Value::Time(time)) => {
                    if above {
                        bounds.first = bounds.first.max(first_opened(*time));
                    }
                    if below {
                        bounds.last = bounds.last.min(last_opened(*time));
                    }
                }
                // What happened in a run happened after its opening.
                (LAST_AT | SEALED_AT, Value::Time(time)) if below => {
                    bounds.last = bounds.last.min(last_opened(*time));
                }
                _ => {}
            }
        }
        bounds
    }

    /// Adds ` and RUN between …`.
    pub(super) fn push(&self, sql: &mut QueryBuilder<Postgres>, run: &str) {
        if *self == Self::ALL {
            return;
        }
        sql.push(" and ").push(run).push(" between ");
        sql.push_bind(self.first).push(" and ").push_bind(self.last);
    }
}

/// The lowest id of a run that was opened at a time: it is made a moment before.
fn first_opened(time: Timestamp) -> Uuid {
    let begun = time.micros().saturating_sub(OPENING_MICROS);
    id(Timestamp::from_micros(begun).unwrap_or(Timestamp::MIN), 0)
}

fn last_opened(time: Timestamp) -> Uuid {
    id(time, 255)
}

fn id(time: Timestamp, random: u8) -> Uuid {
    let millis = u64::try_from(time.micros() / 1_000).unwrap_or(0);
    Uuid::from(&RunId::from_parts(millis, [random; 10]))
}
