//! Between which ids runs are: an id begins with the time of the opening.

use super::Order;
use super::condition::{Comparison, Condition, Value};
use super::field::{LAST_AT, OPENED_AT, SEALED_AT, Source};
use crate::store::id::Uuid;
use onrecord_core::id::RunId;
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder};

/// How long before its opening the id of a run may have been made, in microseconds.
pub(crate) const OPENING_MICROS: i64 = 60_000_000;

/// Between which ids runs are, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(super) first: Uuid,
    pub(super) last: Uuid,
}

impl Bounds {
    /// Every id.
    pub(crate) const ALL: Self = Self {
        first: Uuid::MIN,
        last: Uuid::MAX,
    };

    /// Those of them that come after an id in an order; `None` where there are none.
    pub(super) fn behind(self, id: Uuid, order: Order) -> Option<Self> {
        let bounds = match order {
            Order::Descending => Self {
                last: self.last.min(id.before()?),
                ..self
            },
            Order::Ascending => Self {
                first: self.first.max(id.after()?),
                ..self
            },
        };
        (bounds.first <= bounds.last).then_some(bounds)
    }

    /// An id, and those that come after it in an order.
    pub(super) fn from(id: Uuid, order: Order) -> Self {
        match order {
            Order::Descending => Self {
                last: id,
                ..Self::ALL
            },
            Order::Ascending => Self {
                first: id,
                ..Self::ALL
            },
        }
    }

    /// Those of them that come no later than an id in an order.
    pub(super) fn up_to(self, id: Uuid, order: Order) -> Self {
        match order {
            Order::Descending => Self {
                first: self.first.max(id),
                ..self
            },
            Order::Ascending => Self {
                last: self.last.min(id),
                ..self
            },
        }
    }

    /// Those that are in both.
    pub(super) fn within(self, other: Self) -> Option<Self> {
        let both = Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        };
        (both.first <= both.last).then_some(both)
    }

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
