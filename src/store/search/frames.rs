//! Frames that a condition is true of, by their time.
//!
//! There is no index of all frames by time: frames of a kind have one, of a kind and a name, of a verdict. So a page is
//! looked for kind by kind, and what was found bounds what is looked for next: once a page is full, of the other kinds
//! only what is newer than its last row is read.

use super::condition::{Condition, Scope};
use super::pace::{Effort, Found, Pace};
use super::resolve::resolved;
use super::ways::{Way, ways};
use super::{Order, of_runs, row_by_row};
use crate::store::facts::{kind_of, verdict_of};
use crate::store::id::Uuid;
use crate::store::time::Time;
use crate::store::{StoreError, Tx, contradiction, signed, unsigned};
use onrecord_core::facts::Verdict;
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

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
    let scope = Scope::of_each(asked.tenant.as_str(), "f.run");
    let condition = resolved(tx, scope, asked.condition).await?;
    let ways = ways(tx, scope, &condition).await?;
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
        sql.push(if place == 0 {
            "(select f.at"
        } else {
            ", (select f.at"
        });
        way.push_from(&mut sql, tenant);
        way.push_where(&mut sql, tenant);
        for test in way.indexed() {
            sql.push(" and ");
            test.push(&mut sql, Scope::of_each(tenant, "f.run"));
        }
        if let Some(from) = from {
            // Of another moment: each piece ends behind the one before, also where a moment has more frames than a piece.
            sql.push(" and f.at").push(order.behind());
            sql.push_bind(Time(from.at));
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

fn statement(
    way: &Way,
    asked: &Frames<'_>,
    (from, end): (Option<&FrameKey>, Option<&FrameKey>),
    (worst, limit): (Option<&FrameKey>, usize),
) -> QueryBuilder<Postgres> {
    let tenant = asked.tenant.as_str();
    let scope = Scope::of_each(tenant, "f.run");
    let with_run = way.rest().needs_run();
    let mut sql = QueryBuilder::new(
        "select f.run, f.seq, f.at, f.kind_no, f.turn, f.answers, f.key, f.name, f.verdict",
    );
    way.push_from(&mut sql, tenant);
    if with_run {
        sql.push(" cross join lateral (select * from runs where runs.run = f.run offset 0) r");
    }
    way.push_where(&mut sql, tenant);
    if *way.rest() != Condition::always() {
        sql.push(" and ");
        way.rest().push(&mut sql, scope);
    }
    if let Some(from) = from {
        beyond(&mut sql, asked.order.behind(), from);
    }
    if let Some(end) = worst.or(end) {
        beyond(&mut sql, asked.order.reversed().behind(), end);
    }
    let word = asked.order.word();
    match way.is_of_one_run() {
        true => sql.push(format!(" order by f.seq{word}")),
        false => sql.push(format!(" order by f.at{word}, f.run{word}, f.seq{word}")),
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
    let kind = kind_of(row.try_get("kind_no")?);
    let kind = kind.ok_or_else(|| contradiction("frames", "kind_no", &run))?;
    let verdict: Option<i16> = row.try_get("verdict")?;
    let verdict = verdict
        .map(|number| verdict_of(number).ok_or_else(|| contradiction("frames", "verdict", &run)));
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
