//! Frames that a condition is true of, by their time.
//!
//! There is no index of all frames by time: frames of a kind have one, of a kind and a name, of a verdict. So a page is
//! looked for kind by kind, and what was found bounds what is looked for next: once a page is full, of the other kinds
//! only what is newer than its last row is read.

use super::bounds::Bounds;
use super::branch::branches;
use super::condition::{Comparison, Condition, Scope, Value};
use super::driver::{Driver, fewest};
use super::field::{FRAME_AT, LAST_AT, NAME, OPENED_AT, SEALED_AT, VERDICT_NO};
use super::kinds::{kind_no, of_any_kind, of_kind};
use super::pace::{Effort, Found, Pace};
use super::resolve::resolved;
use super::{Order, of_runs, row_by_row};
use crate::store::facts::KINDS;
use crate::store::id::Uuid;
use crate::store::time::Time;
use crate::store::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::facts::Verdict;
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

/// Frames up to which all of some runs are read and sorted.
const SORTED: i64 = 20_000;
/// Ways up to which a condition is looked for by each of its branches.
const WAYS: usize = 64;

/// Where a frame is in the order of a search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameKey {
    pub(crate) at: Timestamp,
    pub(crate) run: RunId,
    pub(crate) seq: u64,
}

/// A frame as a search finds it: what its columns have, and its run's.
#[derive(Clone, Debug)]
pub(crate) struct FrameRow {
    pub(crate) key: FrameKey,
    pub(crate) kind: Kind,
    pub(crate) turn: Option<u64>,
    /// The frame that it answers.
    pub(crate) answers: Option<u64>,
    /// The writer's key.
    pub(crate) writer_key: String,
    /// What it is about.
    pub(crate) name: Option<String>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) run_no: u64,
    pub(crate) agent: Option<String>,
}

/// Which frames, and from where on.
pub(crate) struct Frames<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) condition: &'a Condition,
    pub(crate) order: Order,
    /// The last frame of the page before.
    pub(crate) after: Option<&'a FrameKey>,
}

/// A page of frames.
pub(crate) async fn list(
    tx: &mut Tx,
    asked: &Frames<'_>,
    limit: u32,
    effort: Effort,
) -> Result<Found<FrameRow, FrameKey>, StoreError> {
    row_by_row(tx).await?;
    let ways = ways(tx, asked).await?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut rows, mut pace, mut looked_to) = (Vec::new(), Pace::new(effort), None);
    let mut from = asked.after.cloned();
    loop {
        let end = end(tx, asked, &ways, (from.as_ref(), pace.size())).await?;
        let stretch = (from.as_ref(), end.as_ref());
        let missing = most - rows.len();
        rows.extend(of_stretch(tx, asked, &ways, stretch, missing).await?);
        if end.is_none() || rows.len() >= most {
            break;
        }
        from = end;
        if !pace.goes_on() {
            looked_to = from;
            break;
        }
    }
    let rows = with_runs(tx, rows).await?;
    Ok(Found { rows, looked_to })
}

/// The first frames between two places.
async fn of_stretch(
    tx: &mut Tx,
    asked: &Frames<'_>,
    ways: &[Way],
    stretch: (Option<&FrameKey>, Option<&FrameKey>),
    most: usize,
) -> Result<Vec<FrameRow>, StoreError> {
    let mut found: Vec<FrameRow> = Vec::new();
    for way in ways {
        let worst = (found.len() >= most).then(|| found.last()).flatten();
        let worst = worst.map(|row| row.key.clone());
        let mut sql = statement(way, asked, stretch, (worst.as_ref(), most));
        // Planned for its values each time, since which index serves depends on them.
        let rows = sql.build().persistent(false).fetch_all(&mut **tx).await?;
        for row in &rows {
            found.push(read(row)?);
        }
        found.sort_by(|one, other| match asked.order {
            Order::Descending => other.key.cmp(&one.key),
            Order::Ascending => one.key.cmp(&other.key),
        });
        // Branches may lead to the same frame.
        found.dedup_by(|one, other| one.key == other.key);
        found.truncate(most);
    }
    Ok(found)
}

/// Where the next piece ends, in which each way leads to `size` frames at most; `None` where all of them are in it, or
/// where each frame that a way leads to is one of the page.
async fn end(
    tx: &mut Tx,
    asked: &Frames<'_>,
    ways: &[Way],
    (from, size): (Option<&FrameKey>, i64),
) -> Result<Option<FrameKey>, StoreError> {
    let wide = ways.iter().filter(|way| way.is_wide());
    let wide: Vec<&Way> = wide.collect();
    if wide.is_empty() {
        return Ok(None);
    }
    // The most frequent of the kinds is where this ends, so that all of them are some times as many.
    let size = (4 * size / i64::try_from(wide.len()).unwrap_or(1)).clamp(1, size);
    let (tenant, order) = (asked.tenant.as_str(), asked.order);
    let mut sql = QueryBuilder::new("select array[");
    for (place, way) in wide.iter().enumerate() {
        sql.push(if place == 0 { "(select f.at" } else { ", (select f.at" });
        way.push_from(&mut sql, tenant);
        way.push_where(&mut sql, tenant);
        for test in way.indexed() {
            sql.push(" and ");
            test.push(&mut sql, Scope::of_each(tenant, "f.run"));
        }
        if let Some(from) = from {
            let sign = order.behind().trim_end();
            sql.push(" and f.at").push(sign).push("= ").push_bind(Time(from.at));
        }
        sql.push(" order by f.at").push(order.word());
        sql.push(" offset ").push_bind(size - 1).push(" limit 1)");
    }
    sql.push("]");
    let ends: Vec<Option<Time>> = sql
        .build_query_scalar()
        .persistent(false)
        .fetch_one(&mut **tx)
        .await?;
    let ends = ends.into_iter().flatten().map(|time| time.0);
    let end = match order {
        Order::Descending => ends.max(),
        Order::Ascending => ends.min(),
    };
    Ok(end.map(|at| FrameKey::last_at(at, order)))
}

impl FrameKey {
    /// Where the frames of a moment end.
    fn last_at(at: Timestamp, order: Order) -> Self {
        let (run, seq) = match order {
            Order::Descending => (Uuid::MIN, 0),
            Order::Ascending => (Uuid::MAX, i64::MAX.unsigned_abs()),
        };
        Self {
            at,
            run: run.into(),
            seq,
        }
    }
}

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
async fn ways(tx: &mut Tx, asked: &Frames<'_>) -> Result<Vec<Way>, StoreError> {
    let scope = Scope::of_each(asked.tenant.as_str(), "f.run");
    let condition = resolved(tx, scope, asked.condition).await?;
    let mut ways: Vec<Way> = Vec::new();
    for mut branch in branches(&condition) {
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
        ways = by_kinds(&condition, false);
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

    /// The tests that its index answers: of the name or the verdict, and of the time.
    fn indexed(&self) -> impl Iterator<Item = &Condition> {
        let all = match &self.rest {
            Condition::All(all) => &all[..],
            one => std::slice::from_ref(one),
        };
        all.iter().filter(|test| match test {
            Condition::Is(field, Comparison::Equal, _) => {
                [&NAME, &VERDICT_NO, &FRAME_AT].contains(field)
            }
            Condition::Is(field, ..) => **field == FRAME_AT,
            _ => false,
        })
    }

    /// Whether it may lead to many frames that are not asked for.
    fn is_wide(&self) -> bool {
        let tests = match &self.rest {
            Condition::All(all) => all.len(),
            _ => 1,
        };
        let names = self.indexed().filter(|test| matches!(test, Condition::Is(field, ..) if **field != FRAME_AT));
        // Two of them are not answered by one index.
        matches!(self.by, By::Kind(_)) && (self.indexed().count() < tests || names.count() > 1)
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
        driver.push(sql, tenant, false);
        bounds.push(sql, driver.run());
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
    driver.push(&mut sql, scope.tenant, true);
    bounds.push(&mut sql, driver.run());
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

fn statement(
    way: &Way,
    asked: &Frames<'_>,
    (from, end): (Option<&FrameKey>, Option<&FrameKey>),
    (worst, limit): (Option<&FrameKey>, usize),
) -> QueryBuilder<Postgres> {
    let tenant = asked.tenant.as_str();
    let scope = Scope::of_each(tenant, "f.run");
    let with_run = way.rest.needs_run();
    let mut sql = QueryBuilder::new(
        "select f.run, f.seq, f.at, f.kind_no, f.turn, f.answers, f.key, f.name, f.verdict",
    );
    way.push_from(&mut sql, tenant);
    if with_run {
        sql.push(" cross join lateral (select * from runs where runs.run = f.run offset 0) r");
    }
    way.push_where(&mut sql, tenant);
    if way.rest != Condition::always() {
        sql.push(" and ");
        way.rest.push(&mut sql, scope);
    }
    if let Some(from) = from {
        beyond(&mut sql, asked.order.behind(), from);
    }
    let before = match asked.order {
        Order::Descending => Order::Ascending,
        Order::Ascending => Order::Descending,
    };
    if let Some(end) = worst.or(end) {
        beyond(&mut sql, before.behind(), end);
    }
    let word = asked.order.word();
    match way.by {
        By::Run(_) => sql.push(format!(" order by f.seq{word}")),
        _ => sql.push(format!(" order by f.at{word}, f.run{word}, f.seq{word}")),
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    sql.push(" limit ").push_bind(limit);
    sql
}

/// Adds that frames are on one side of another one. The time alone is for the index, which has no more.
fn beyond(sql: &mut QueryBuilder<Postgres>, sign: &'static str, key: &FrameKey) {
    sql.push(" and f.at").push(sign.trim_end()).push("= ");
    sql.push_bind(Time(key.at))
        .push(" and (f.at, f.run, f.seq)");
    sql.push(sign).push("(").push_bind(Time(key.at)).push(", ");
    sql.push_bind(Uuid::from(&key.run)).push(", ");
    sql.push_bind(signed(key.seq)).push(")");
}

fn read(row: &PgRow) -> Result<FrameRow, StoreError> {
    let number = |name: &'static str| -> Result<Option<u64>, StoreError> {
        let value: Option<i64> = row.try_get(name)?;
        value
            .map(|value| unsigned(value, "frames", name))
            .transpose()
    };
    let run: RunId = row.try_get::<Uuid, _>("run")?.into();
    let kind: i16 = row.try_get("kind_no")?;
    let kind = usize::try_from(kind)
        .ok()
        .and_then(|kind| KINDS.get(kind.checked_sub(1)?))
        .copied()
        .ok_or_else(|| contradiction("frames", "kind_no", &run))?;
    let verdict: Option<i16> = row.try_get("verdict")?;
    let verdict = verdict.map(|number| {
        Verdict::ALL
            .into_iter()
            .find(|verdict| crate::store::facts::verdict_no(*verdict) == number)
            .ok_or_else(|| contradiction("frames", "verdict", &run))
    });
    let turn: Option<i32> = row.try_get("turn")?;
    let turn = turn.map(|turn| unsigned(turn.into(), "frames", "turn"));
    Ok(FrameRow {
        kind,
        verdict: verdict.transpose()?,
        turn: turn.transpose()?,
        answers: number("answers")?,
        writer_key: row.try_get("key")?,
        name: row.try_get("name")?,
        run_no: 0,
        agent: None,
        key: FrameKey {
            at: row.try_get::<Time, _>("at")?.0,
            seq: unsigned(row.try_get("seq")?, "frames", "seq")?,
            run,
        },
    })
}

/// The rows with the numbers and agents of their runs.
async fn with_runs(tx: &mut Tx, mut rows: Vec<FrameRow>) -> Result<Vec<FrameRow>, StoreError> {
    let runs = rows.iter().map(|row| Uuid::from(&row.key.run)).collect();
    let runs = of_runs(tx, runs).await?;
    for row in &mut rows {
        let run = runs.get(&row.key.run);
        let run = run.ok_or_else(|| contradiction("frames", "run", &row.key.run))?;
        (row.run_no, row.agent) = run.clone();
    }
    Ok(rows)
}
