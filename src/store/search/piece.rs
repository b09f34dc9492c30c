//! Pieces of what leads to the runs of a condition: stretches of ids, one after the other, in each of which some index leads
//! to few runs.
//!
//! Which one that is, and how the others are asked, is found out for each piece anew, from how far their next entries reach:
//! of facts that are frequent the one that is rarer there leads, and those that are not much more frequent are read beside it
//! as a list. So facts that seldom meet cost a look at each of their entries, and not one at an index for each.

use super::Order;
use super::bounds::Bounds;
use super::branch::branches;
use super::condition::{Condition, Scope};
use super::driver::{Driver, offered};
use crate::store::id::Uuid;
use crate::store::{StoreError, Tx};
use sqlx::QueryBuilder;
use std::cmp::Ordering;

/// How many entries are read in a row in the time that one takes which is looked for.
const IN_A_ROW: u64 = 12;

/// One way to runs: what leads to them, and what is asked of each.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) driver: Driver,
    pub(super) rest: Condition,
    pub(super) bounds: Bounds,
    /// Of what `rest` asks for, what is read as a list.
    pub(super) listed: Vec<Driver>,
}

/// Ways to all runs of a condition in a stretch of ids.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) paths: Vec<Path>,
    /// The id with which it ends; `None` where nothing is behind it.
    pub(super) end: Option<Uuid>,
}

/// The branches of a condition, and what each of them offers.
pub(super) struct Search<'a> {
    tenant: &'a str,
    order: Order,
    /// Whether it is for runs: what leads to them leads to something else each time then.
    of_runs: bool,
    /// Entries of an index by which it is found out how close they stand.
    sample: i64,
    branches: Vec<Branch>,
}

struct Branch {
    tests: Vec<Condition>,
    bounds: Bounds,
    offered: Vec<Driver>,
    /// What else could be read as a list, which it denies.
    denied: Vec<Driver>,
}

/// The next entries of an index.
struct Ahead {
    first: Option<Uuid>,
    /// The last of so many; `None` where there are fewer.
    nth: Option<Uuid>,
}

/// What leads to the runs of a branch in a piece.
struct Lead<'b> {
    branch: &'b Branch,
    bounds: Bounds,
    /// The place of what leads among the branch's ways.
    way: usize,
    /// Of each of these.
    ahead: Vec<Ahead>,
}

/// How long a piece is; unknown where it has no runs.
#[derive(Clone, Copy)]
struct Stretch {
    millis: Option<u64>,
    /// Entries that were counted of each way.
    sample: u64,
}

impl<'a> Search<'a> {
    pub(super) async fn new(
        tx: &mut Tx,
        tenant: &'a str,
        condition: &Condition,
        (bounds, order, of_runs): (Bounds, Order, bool),
        sample: i64,
    ) -> Result<Self, StoreError> {
        let mut found = Vec::new();
        for tests in branches(condition) {
            let bounds = bounds.narrowed(&tests);
            if bounds.first > bounds.last {
                continue;
            }
            let offered = offered(tx, tenant, &tests, bounds).await?;
            if offered.is_empty() && bounds == Bounds::ALL {
                // All runs are looked at for this one: then once, for all of the condition.
                let (tests, denied) = (vec![condition.clone()], Vec::new());
                found = vec![Branch {
                    tests,
                    bounds,
                    offered,
                    denied,
                }];
                break;
            }
            let denied = tests.iter().filter_map(denied).collect();
            found.push(Branch {
                tests,
                bounds,
                offered,
                denied,
            });
        }
        Ok(Self {
            tenant,
            order,
            of_runs,
            sample,
            branches: found,
        })
    }

    /// The ways in the next piece of these ids, in which some `size` runs are looked at.
    pub(super) async fn piece(
        &self,
        tx: &mut Tx,
        ids: Bounds,
        size: i64,
    ) -> Result<Piece, StoreError> {
        let branches = self.branches.iter();
        let branches = branches.filter_map(|one| Some((one, one.bounds.within(ids)?)));
        let branches: Vec<(&Branch, Bounds)> = branches.collect();
        let is_direct = |branches: &[(&Branch, Bounds)]| {
            self.of_runs && branches.iter().all(|(branch, _)| branch.is_direct())
        };
        if branches.is_empty() || is_direct(&branches) {
            let path = |(branch, bounds): (&Branch, Bounds)| branch.path(branch.lead(0), bounds);
            return Ok(Piece {
                paths: branches.into_iter().map(path).collect(),
                end: None,
            });
        }
        let size = (size / i64::try_from(branches.len()).unwrap_or(1)).max(1);
        let asked = branches.iter().flat_map(|(branch, bounds)| {
            let asked = (0..branch.ways()).map(|way| (branch.way(way), *bounds));
            asked.collect::<Vec<_>>()
        });
        let sample = size.min(self.sample);
        // All runs come last: by these it is known how many of one way are those of another one too.
        let asked: Vec<_> = asked.chain([(Driver::Walk, ids)]).collect();
        let mut ahead = self.ahead(tx, &asked, (sample, self.order)).await?;
        let all = ahead.pop();
        let mut ahead = ahead.into_iter();
        let mut leads = Vec::new();
        for (branch, bounds) in branches {
            let ahead: Vec<Ahead> = ahead.by_ref().take(branch.ways()).collect();
            leads.extend(self.lead(branch, bounds, ahead));
        }
        self.paths(tx, (leads, all), (ids, size, sample)).await
    }

    /// What leads to the runs of a branch, by its place; `None` where nothing does.
    fn lead<'b>(&self, branch: &'b Branch, bounds: Bounds, ahead: Vec<Ahead>) -> Option<Lead<'b>> {
        let leading = &ahead[..branch.offered.len().max(1)];
        if leading.iter().any(|one| one.first.is_none()) {
            return None;
        }
        let further = |one: &Ahead, other: &Ahead| match (one.nth, other.nth, self.order) {
            (None, None, _) => Ordering::Equal,
            (None, Some(_), _) => Ordering::Greater,
            (Some(_), None, _) => Ordering::Less,
            (Some(one), Some(other), Order::Ascending) => one.cmp(&other),
            (Some(one), Some(other), Order::Descending) => other.cmp(&one),
        };
        let (lead, _) = leading
            .iter()
            .enumerate()
            .max_by(|(_, one), (_, other)| further(one, other))?;
        Some(Lead {
            branch,
            bounds,
            way: lead,
            ahead,
        })
    }

    async fn paths(
        &self,
        tx: &mut Tx,
        (leads, all): (Vec<Lead<'_>>, Option<Ahead>),
        (ids, size, sample): (Bounds, i64, i64),
    ) -> Result<Piece, StoreError> {
        let drivers = leads.iter().map(|lead| (lead.driver(), lead.bounds));
        let drivers: Vec<_> = drivers.collect();
        let mut ends: Vec<Option<Uuid>> = leads.iter().map(Lead::nth).collect();
        if size > sample {
            let further = self.ahead(tx, &drivers, (size, self.order)).await?;
            ends = further.into_iter().map(|one| one.nth).collect();
        }
        let end = nearest(ends.into_iter().flatten(), self.order);
        let last = match end {
            Some(end) => Some(end),
            None => {
                let back = self.order.reversed();
                let lasts = self.ahead(tx, &drivers, (1, back)).await?;
                nearest(lasts.into_iter().filter_map(|one| one.first), back)
            }
        };
        let firsts = leads.iter().flat_map(|lead| &lead.ahead);
        let start = nearest(firsts.filter_map(|one| one.first), self.order);
        let ids = end.map_or(ids, |end| ids.up_to(end, self.order));
        let stretch = Stretch {
            millis: start.zip(last).map(|(start, last)| start.millis_to(last)),
            sample: sample.unsigned_abs(),
        };
        let all = all.map_or(u64::MAX, |all| stretch.about(&all)).max(1);
        let path = |lead: Lead<'_>| {
            let mut path = lead.branch.path(lead.driver(), lead.bounds.within(ids)?);
            path.listed = lead.listed(stretch, (size.unsigned_abs(), all));
            Some(path)
        };
        Ok(Piece {
            paths: leads.into_iter().filter_map(path).collect(),
            end,
        })
    }

    /// The first of the next entries of each in an order, and the last of so many.
    async fn ahead(
        &self,
        tx: &mut Tx,
        asked: &[(Driver, Bounds)],
        (count, order): (i64, Order),
    ) -> Result<Vec<Ahead>, StoreError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = QueryBuilder::new("select array[");
        for (place, (driver, bounds)) in asked.iter().enumerate() {
            for (which, offset) in [0, count - 1].into_iter().enumerate() {
                sql.push(if place + which == 0 { "" } else { ", " });
                let within = (*bounds, order);
                driver.push_nth(&mut sql, self.tenant, within, offset);
            }
        }
        sql.push("]");
        let found: Vec<Option<Uuid>> = sql
            .build_query_scalar()
            .persistent(false)
            .fetch_one(&mut **tx)
            .await?;
        let pairs = found.chunks_exact(2);
        Ok(pairs
            .map(|pair| Ahead {
                first: pair[0],
                nth: pair[1],
            })
            .collect())
    }
}

impl Branch {
    /// What leads to its runs, and what else may be read as a list, by its place.
    fn way(&self, place: usize) -> Driver {
        let leads = self.offered.len().max(1);
        match place.checked_sub(leads) {
            Some(place) => self.denied.get(place).cloned().unwrap_or(Driver::Walk),
            None => self.lead(place),
        }
    }

    fn is_denied(&self, way: usize) -> bool {
        way >= self.offered.len().max(1)
    }

    fn ways(&self) -> usize {
        self.offered.len().max(1) + self.denied.len()
    }

    /// All runs, where it offers nothing.
    fn lead(&self, place: usize) -> Driver {
        self.offered.get(place).cloned().unwrap_or(Driver::Walk)
    }

    /// Whether all that it asks for is said by the one thing that leads to its runs.
    fn is_direct(&self) -> bool {
        match &self.offered[..] {
            [] => self.tests.is_empty(),
            [one] => one.is_ordered() && self.tests.iter().all(|test| one.is_said_by(test)),
            _ => false,
        }
    }

    fn path(&self, driver: Driver, bounds: Bounds) -> Path {
        let rest = self.tests.iter().filter(|test| !driver.is_said_by(test));
        Path {
            rest: Condition::All(rest.cloned().collect()),
            driver,
            bounds,
            listed: Vec::new(),
        }
    }
}

impl Lead<'_> {
    fn driver(&self) -> Driver {
        self.branch.lead(self.way)
    }

    fn nth(&self) -> Option<Uuid> {
        self.ahead.get(self.way)?.nth
    }

    /// What else is read as a list, for so many runs that are looked at, of so many of all: the rarest first, each of which
    /// leaves fewer runs for the others to be asked of.
    fn listed(&self, stretch: Stretch, (mut left, all): (u64, u64)) -> Vec<Driver> {
        let others = self.ahead.iter().enumerate();
        let others = others.filter(|(way, _)| *way != self.way);
        let mut others: Vec<(u64, usize)> = others
            .map(|(way, ahead)| (stretch.about(ahead), way))
            .collect();
        others.sort_unstable();
        let mut listed = Vec::new();
        for (entries, way) in others {
            if entries <= IN_A_ROW.saturating_mul(left) {
                listed.push(self.branch.way(way));
            }
            let met = left.saturating_mul(entries.min(all)) / all;
            left = if self.branch.is_denied(way) {
                left - met
            } else {
                met
            };
            left = left.max(1);
        }
        listed
    }
}

impl Stretch {
    /// How many entries of an index are in it, about: so many times those that were counted as it is longer than theirs.
    fn about(&self, ahead: &Ahead) -> u64 {
        match (ahead.first, ahead.nth, self.millis) {
            (Some(first), Some(nth), Some(millis)) => {
                millis.saturating_mul(self.sample) / first.millis_to(nth)
            }
            (_, None, _) => self.sample,
            _ => u64::MAX,
        }
    }
}

/// The first of some ids in an order.
fn nearest(ids: impl Iterator<Item = Uuid>, order: Order) -> Option<Uuid> {
    match order {
        Order::Descending => ids.max(),
        Order::Ascending => ids.min(),
    }
}

/// What a test denies.
fn denied(condition: &Condition) -> Option<Driver> {
    match condition {
        Condition::Not(inner) => Driver::exactly(inner),
        _ => None,
    }
}

impl Path {
    /// What conditions on its runs are put into a statement about, whose ids are called so.
    pub(super) fn scope<'a>(&'a self, tenant: &'a str, run: &'static str) -> Scope<'a> {
        Scope {
            tenant,
            run,
            each: true,
            listed: &self.listed,
            bounds: self.bounds,
        }
    }
}
