//! Records of payloads that a condition is true of, by their runs and their places in them. Never what payloads say.

use super::bounds::Bounds;
use super::condition::{Condition, Scope};
use super::pace::{Effort, Found, Pace};
use super::piece::{Path, Piece, Search};
use super::resolve::resolved;
use super::{Order, of_runs, row_by_row};
use crate::store::facts::kind_of;
use crate::store::id::Uuid;
use crate::store::time::Time;
use crate::store::{StoreError, Tx, contradiction, hash, signed, unsigned};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use std::collections::HashMap;

/// Adds the records of payloads of which something is so, those that were removed too. What the agent kept has neither key
/// nor ciphertext, and what is erased has no key.
pub(super) fn push_records(
    sql: &mut QueryBuilder<Postgres>,
    so: impl Fn(&mut QueryBuilder<Postgres>),
) {
    sql.push(
        "select run, tenant, commit, seq, place, media, tier, size,
           case when octet_length(ciphertext) = 0 then 'kept' when octet_length(wrapped_dek) = 0 then 'erased' else 'stored' end as state,
           null::bigint as ledger_index, null::timestamptz as erased_at from payloads where ",
    );
    so(sql);
    sql.push(
        " union all select run, tenant, commit, seq, place, media, tier, size, 'erased', ledger_index, erased_at
           from erased_payloads where ",
    );
    so(sql);
}

/// Where a record is in the order of a search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PayloadKey {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
    pub(crate) place: u64,
}

/// What is recorded of a payload.
#[derive(Clone, Debug)]
pub(crate) struct PayloadRow {
    pub(crate) key: PayloadKey,
    pub(crate) commit: Hash,
    pub(crate) media: String,
    pub(crate) tier: u64,
    /// After padding, in bytes.
    pub(crate) size: u64,
    /// stored, kept or erased.
    pub(crate) state: String,
    /// Index of the ledger's entry that certifies the erasure, and when the row was removed.
    pub(crate) erased: Option<(u64, Timestamp)>,
    /// Time and kind of its frame.
    pub(crate) frame: Option<(Timestamp, Kind)>,
    pub(crate) run_no: u64,
    pub(crate) agent: Option<String>,
}

/// Which records, and from where on.
pub(crate) struct Payloads<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) condition: &'a Condition,
    pub(crate) order: Order,
    /// The last record of the page before.
    pub(crate) after: Option<&'a PayloadKey>,
}

/// A page of records.
pub(crate) async fn list(
    tx: &mut Tx,
    asked: &Payloads<'_>,
    limit: u32,
    effort: Effort,
) -> Result<Found<PayloadRow, PayloadKey>, StoreError> {
    row_by_row(tx).await?;
    let (tenant, order) = (asked.tenant.as_str(), asked.order);
    let scope = Scope::of_each(tenant, "r.run");
    let condition = resolved(tx, scope, asked.condition).await?;
    let mut pace = Pace::new(effort);
    let bounds = (Bounds::ALL, order, false);
    let search = Search::new(tx, tenant, &condition, bounds, pace.size()).await?;
    let mut ids = match asked.after {
        // A look that ended with a run goes on behind it: else one that takes a run at a time would never come further.
        Some(after) if *after == PayloadKey::last_of(after.run.clone(), order) => {
            Bounds::ALL.behind(Uuid::from(&after.run), order)
        }
        // The run of the last record may have more of them.
        Some(after) => Some(Bounds::from(Uuid::from(&after.run), order)),
        None => Some(Bounds::ALL),
    };
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut rows, mut looked_to) = (Vec::new(), None);
    while let Some(left) = ids {
        let piece = search.piece(tx, left, pace.size()).await?;
        let missing = most - rows.len();
        rows.extend(of_piece(tx, &piece, asked, missing).await?);
        let Some(end) = piece.end else { break };
        if rows.len() >= most {
            break;
        }
        if !pace.goes_on() {
            looked_to = Some(PayloadKey::last_of(end.into(), order));
            break;
        }
        ids = Bounds::ALL.behind(end, order);
    }
    let rows = with_frames(tx, rows).await?;
    Ok(Found { rows, looked_to })
}

/// The first records of a piece.
async fn of_piece(
    tx: &mut Tx,
    piece: &Piece,
    asked: &Payloads<'_>,
    most: usize,
) -> Result<Vec<PayloadRow>, StoreError> {
    let mut found: Vec<PayloadRow> = Vec::new();
    for path in &piece.paths {
        let worst = (found.len() >= most).then(|| found.last()).flatten();
        let mut sql = statement(path, asked, worst.map(|row| &row.key), most);
        let rows = sql.build().persistent(false).fetch_all(&mut **tx).await?;
        for row in &rows {
            found.push(read(row)?);
        }
        found.sort_by(|one, other| match asked.order {
            Order::Descending => other.key.cmp(&one.key),
            Order::Ascending => one.key.cmp(&other.key),
        });
        // Paths may lead to the same record.
        found.dedup_by(|one, other| one.key == other.key);
        found.truncate(most);
    }
    Ok(found)
}

impl PayloadKey {
    /// Where the records of a run end.
    fn last_of(run: RunId, order: Order) -> Self {
        let (seq, place) = match order {
            Order::Descending => (0, 0),
            Order::Ascending => (i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs()),
        };
        Self { run, seq, place }
    }
}

fn statement(
    path: &Path,
    asked: &Payloads<'_>,
    worst: Option<&PayloadKey>,
    limit: usize,
) -> QueryBuilder<Postgres> {
    let tenant = asked.tenant.as_str();
    let scope = path.scope(tenant, "r.run");
    let with_run = path.rest.needs_run();
    let mut sql = QueryBuilder::new("select p.* from (select ");
    sql.push(path.driver.distinct());
    // By what leads to the runs, in whose order they come: the planner does not see that it is that of their rows too.
    sql.push(path.driver.run()).push(" as found, ");
    if with_run {
        sql.push("r.*");
    } else {
        sql.push(path.driver.run()).push(" as run");
    }
    path.driver.push(&mut sql, tenant, path.bounds, with_run);
    let runs = |sql: &mut QueryBuilder<Postgres>, sign: &'static str, run: &RunId| {
        sql.push(" and ").push(path.driver.run());
        sql.push(sign.trim_end())
            .push("= ")
            .push_bind(Uuid::from(run));
    };
    let back = asked.order.reversed();
    if let Some(after) = asked.after {
        runs(&mut sql, asked.order.behind(), &after.run);
    }
    if let Some(worst) = worst {
        runs(&mut sql, back.behind(), &worst.run);
    }
    sql.push(") r cross join lateral (");
    push_records(&mut sql, |sql| {
        sql.push("run = r.run");
    });
    sql.push(" offset 0) p where ");
    path.rest.push(&mut sql, scope);
    if let Some(after) = asked.after {
        beyond(&mut sql, asked.order.behind(), after);
    }
    if let Some(worst) = worst {
        beyond(&mut sql, back.behind(), worst);
    }
    let word = asked.order.word();
    sql.push(format!(
        " order by r.found{word}, p.seq{word}, p.place{word} limit "
    ));
    sql.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    sql
}

fn beyond(sql: &mut QueryBuilder<Postgres>, sign: &'static str, key: &PayloadKey) {
    sql.push(" and (r.run, p.seq, p.place)")
        .push(sign)
        .push("(");
    sql.push_bind(Uuid::from(&key.run)).push(", ");
    sql.push_bind(signed(key.seq)).push(", ");
    sql.push_bind(signed(key.place)).push(")");
}

fn read(row: &PgRow) -> Result<PayloadRow, StoreError> {
    let number = |value: i64, name: &'static str| unsigned(value, "payloads", name);
    let erased = match (
        row.try_get::<Option<i64>, _>("ledger_index")?,
        row.try_get::<Option<Time>, _>("erased_at")?,
    ) {
        (Some(index), Some(at)) => Some((number(index, "ledger_index")?, at.0)),
        _ => None,
    };
    Ok(PayloadRow {
        commit: hash(row.try_get("commit")?, "payloads", "commit")?,
        media: row.try_get("media")?,
        tier: number(row.try_get::<i16, _>("tier")?.into(), "tier")?,
        size: number(row.try_get("size")?, "size")?,
        state: row.try_get("state")?,
        erased,
        frame: None,
        run_no: 0,
        agent: None,
        key: PayloadKey {
            run: row.try_get::<Uuid, _>("run")?.into(),
            seq: number(row.try_get("seq")?, "seq")?,
            place: number(row.try_get::<i16, _>("place")?.into(), "place")?,
        },
    })
}

/// The rows with what their frames and runs say.
async fn with_frames(
    tx: &mut Tx,
    mut rows: Vec<PayloadRow>,
) -> Result<Vec<PayloadRow>, StoreError> {
    let (runs, seqs): (Vec<Uuid>, Vec<i64>) = rows
        .iter()
        .map(|row| (Uuid::from(&row.key.run), signed(row.key.seq)))
        .unzip();
    let found = sqlx::query(
        "select f.run, f.seq, f.at, f.kind_no from (select distinct run, seq from unnest($1::uuid[], $2::bigint[]) as asked (run, seq)) as asked
           cross join lateral (select * from frames where frames.run = asked.run and frames.seq = asked.seq offset 0) as f",
    )
    .bind(&runs)
    .bind(seqs)
    .fetch_all(&mut **tx)
    .await?;
    let mut frames: HashMap<(RunId, u64), (Timestamp, Kind)> = HashMap::new();
    for row in &found {
        let run: RunId = row.try_get::<Uuid, _>("run")?.into();
        let kind = kind_of(row.try_get("kind_no")?);
        let kind = kind.ok_or_else(|| contradiction("frames", "kind_no", &run))?;
        let seq = unsigned(row.try_get("seq")?, "frames", "seq")?;
        frames.insert((run, seq), (row.try_get::<Time, _>("at")?.0, kind));
    }
    let runs = of_runs(tx, runs).await?;
    for row in &mut rows {
        row.frame = frames.get(&(row.key.run.clone(), row.key.seq)).copied();
        let run = runs.get(&row.key.run);
        let run = run.ok_or_else(|| contradiction("payloads", "run", &row.key.run))?;
        (row.run_no, row.agent) = run.clone();
    }
    Ok(rows)
}
