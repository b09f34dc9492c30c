//! Ways to the frames of a condition: a kind of frames, one run, or all frames of a few.

use super::bounds::Bounds;
use super::branch::branches;
use super::condition::{Comparison, Condition, Scope, Value};
use super::driver::{Driver, fewest};
use super::field::{FRAME_AT, Field, LAST_AT, NAME, OPENED_AT, SEALED_AT, VERDICT_NO};
use super::kinds::{of_any_kind, of_kind};
use crate::store::facts::{KINDS, kind_no};
use crate::store::id::Uuid;
use crate::store::{StoreError, Tx};
use onrecord_core::frame::Kind;
use onrecord_core::id::RunId;
use sqlx::{Postgres, QueryBuilder};

/// Frames up to which all of some runs are read and sorted.
const SORTED: i64 = 20_000;
/// Ways up to which a condition is looked for by each of its branches.
const WAYS: usize = 64;

/// One way to frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    by: By,
    rest: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    /// Frames of a kind, by time.
    Kind(Kind),
    /// Frames of a run, in which time does not go back.
    Run(RunId),
    /// All frames of a few runs, sorted.
    Runs(Driver, Bounds),
    /// Rows that are no frames.
    Other,
}

/// The ways to the frames of a condition, none of which leads where another one does.
pub(super) async fn ways_to_count(
    tx: &mut Tx,
    scope: Scope<'_>,
    condition: &Condition,
) -> Result<Vec<Way>, StoreError> {
    if let [branch] = &branches(condition)[..] {
        let rest = of_any_kind(condition);
        if let Some(run) = only_run(branch) {
            let by = By::Run(run);
            return Ok(vec![Way { by, rest }]);
        }
        if let Some(by) = few_runs(tx, scope, branch).await? {
            return Ok(vec![Way { by, rest }]);
        }
    }
    let mut branched = by_kinds(condition, false);
    for way in &mut branched {
        if let [branch] = &branches(&way.rest)[..] {
            let implied = implied(branch);
            way.rest = Condition::All([branch.clone(), implied].concat());
        }
    }
    Ok(branched)
}

/// The ways to the frames of a condition, which together lead to all of them.
pub(super) async fn ways(
    tx: &mut Tx,
    scope: Scope<'_>,
    condition: &Condition,
) -> Result<Vec<Way>, StoreError> {
    let mut ways: Vec<Way> = Vec::new();
    for mut branch in branches(condition) {
        branch.extend(implied(&branch));
        let by = match only_run(&branch) {
            Some(run) => Some(By::Run(run)),
            None => few_runs(tx, scope, &branch).await?,
        };
        let rest = Condition::All(branch);
        match by {
            Some(by) => ways.push(Way {
                by,
                rest: of_any_kind(&rest),
            }),
            None => ways.extend(by_kinds(&rest, true)),
        }
    }
    if ways.len() > WAYS {
        ways = by_kinds(condition, false);
    }
    ways.sort_by_key(Way::rank);
    ways.dedup();
    Ok(ways)
}

/// A way for each kind that the condition may be true of, or for each of its branches then.
fn by_kinds(condition: &Condition, branched: bool) -> Vec<Way> {
    let mut ways = Vec::new();
    for kind in KINDS {
        let left = of_kind(condition, kind);
        let by = By::Kind(kind);
        let way = |rest| Way {
            by: by.clone(),
            rest,
        };
        if left == Condition::never() {
            continue;
        }
        if branched {
            ways.extend(branches(&left).into_iter().map(Condition::All).map(way));
        } else {
            ways.push(way(left));
        }
    }
    ways
}

impl Way {
    /// All rows of another sort.
    pub(super) fn all(rest: Condition) -> Self {
        let by = By::Other;
        Self { by, rest }
    }

    /// The kind of all frames that it leads to.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.by {
            By::Kind(kind) => Some(kind),
            _ => None,
        }
    }

    /// The tests that one index answers: of the name, else of the verdict, and of the time.
    pub(super) fn indexed(&self) -> impl Iterator<Item = &Condition> {
        let all = match &self.rest {
            Condition::All(all) => &all[..],
            one => std::slice::from_ref(one),
        };
        let of = |asked: &'static Field| {
            let mut all = all.iter();
            all.find(|test| matches!(test, Condition::Is(field, Comparison::Equal, _) if **field == *asked))
        };
        let is_of_time =
            |test: &&Condition| matches!(test, Condition::Is(field, ..) if **field == FRAME_AT);
        let named = of(&NAME).or_else(|| of(&VERDICT_NO));
        named.into_iter().chain(all.iter().filter(is_of_time))
    }

    /// Whether it may lead to many frames that are not asked for.
    pub(super) fn is_wide(&self) -> bool {
        let tests = match &self.rest {
            Condition::All(all) => all.len(),
            _ => 1,
        };
        matches!(self.by, By::Kind(_)) && self.indexed().count() < tests
    }

    /// Whether its frames are those of one run, in which their places are in the order of their times.
    pub(super) fn is_of_one_run(&self) -> bool {
        matches!(self.by, By::Run(_))
    }

    /// What is still asked of them.
    pub(super) fn rest(&self) -> &Condition {
        &self.rest
    }

    /// Adds ` from … f`.
    pub(super) fn push_from(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str) {
        let By::Runs(driver, bounds) = &self.by else {
            sql.push(" from frames f");
            return;
        };
        sql.push(" from (select ")
            .push(driver.distinct())
            .push(driver.run())
            .push(" as run");
        driver.push(sql, tenant, *bounds, false);
        sql.push(
            ") d cross join lateral (select * from frames where frames.run = d.run offset 0) f",
        );
    }

    /// Adds ` where …`, without what is still asked.
    pub(super) fn push_where(&self, sql: &mut QueryBuilder<Postgres>, tenant: &str) {
        match &self.by {
            By::Kind(kind) => {
                sql.push(" where f.tenant = ").push_bind(tenant.to_owned());
                // Not an argument: parts of an index are for one kind.
                sql.push(format!(" and f.kind_no = {}", kind_no(*kind)));
            }
            By::Run(run) => {
                sql.push(" where f.run = ").push_bind(Uuid::from(run));
            }
            By::Runs(..) | By::Other => {
                sql.push(" where true");
            }
        }
    }

    /// What an index finds comes first, then frames that there are many of: a page is full the sooner.
    fn rank(&self) -> usize {
        let Self {
            by: By::Kind(kind),
            rest,
        } = self
        else {
            return 0;
        };
        let exact = |condition: &Condition| matches!(condition, Condition::Is(field, Comparison::Equal, _) if **field == NAME || **field == VERDICT_NO);
        let is_exact = match rest {
            Condition::All(all) => all.iter().any(exact),
            one => exact(one),
        };
        let common = [
            Kind::ToolCall,
            Kind::ToolResult,
            Kind::Observation,
            Kind::ModelCall,
            Kind::ModelResult,
            Kind::Turn,
            Kind::TurnEnd,
        ];
        let place = common.iter().position(|one| one == kind);
        1 + place.unwrap_or(common.len()) + if is_exact { 0 } else { common.len() + 1 }
    }
}

/// The run that a branch is about.
fn only_run(branch: &[Condition]) -> Option<RunId> {
    branch.iter().find_map(|condition| match condition {
        Condition::Is(_, Comparison::Equal, Value::Run(run)) => Some(run.clone()),
        _ => None,
    })
}

/// What leads to the runs of a branch, where all frames of them are few.
async fn few_runs(
    tx: &mut Tx,
    scope: Scope<'_>,
    branch: &[Condition],
) -> Result<Option<By>, StoreError> {
    let bounds = Bounds::ALL.narrowed(branch);
    let fewest = fewest(tx, scope.tenant, branch, (bounds, SORTED / 10));
    let Some(driver) = fewest.await? else {
        return Ok(None);
    };
    let mut sql = QueryBuilder::new("select coalesce(sum(r.size), 0)::bigint");
    driver.push(&mut sql, scope.tenant, bounds, true);
    let frames: i64 = sql
        .build_query_scalar()
        .persistent(false)
        .fetch_one(&mut **tx)
        .await?;
    Ok((frames <= SORTED).then_some(By::Runs(driver, bounds)))
}

/// What a branch says of its frames' times by what it says of their runs'.
fn implied(branch: &[Condition]) -> Vec<Condition> {
    let of_frames = |condition: &Condition| {
        let Condition::Is(field, comparison, value) = condition else {
            return None;
        };
        let after = matches!(comparison, Comparison::Greater | Comparison::GreaterOrEqual);
        let before = matches!(comparison, Comparison::Less | Comparison::LessOrEqual);
        let so = match field.source {
            OPENED_AT => after,
            LAST_AT | SEALED_AT => before,
            _ => false,
        };
        // Frames may have the very time of the opening, or of the seal.
        let comparison = if after {
            Comparison::GreaterOrEqual
        } else {
            Comparison::LessOrEqual
        };
        so.then(|| Condition::Is(&FRAME_AT, comparison, value.clone()))
    };
    branch.iter().filter_map(of_frames).collect()
}
