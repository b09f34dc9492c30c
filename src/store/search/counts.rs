//! How many rows a condition is true of, in groups.
//!
//! Other than a page, a count may look at all that it is about: the planner chooses how. Frames are counted kind by kind, so
//! that what their indexes have is counted without a look at the rows.

use super::SECONDS_OF_COUNTS;
use super::bounds::Bounds;
use super::condition::{Condition, Scope};
use super::field::{Field, FieldType, Source};
use super::payloads::push_records;
use super::resolve::resolved;
use super::said::Said;
use super::ways::{Way, ways_to_count};
use crate::store::facts::{kind_no, kind_of, verdict_of};
use crate::store::search::branch::branches;
use crate::store::time::Time;
use crate::store::{StoreError, Tx, unsigned};
use onrecord_core::frame::Kind;
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder, Row as _};

/// Groups that are answered at most.
pub(crate) const GROUPS: usize = 1_000;

/// What rows are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The values of a field; a row with several counts for each.
    Field(&'static Field),
    /// The beginning of the time that the row is in, UTC; weeks begin on Mondays.
    Time(Unit),
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

/// What a group has in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupKey {
    Text(Option<String>),
    Time(Timestamp),
}

/// Rows that are alike, and how many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) keys: Vec<GroupKey>,
    pub(crate) count: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Runs,
    Frames,
    Payloads,
}

/// The groups of the rows that a condition is true of, in the order of their keys: [`GROUPS`] and one more at most.
pub(crate) async fn count(
    tx: &mut Tx,
    tenant: &TenantId,
    of: Of,
    condition: &Condition,
    by: &[By],
) -> Result<Vec<Group>, StoreError> {
    sqlx::query(
        "select set_config('statement_timeout', $1, true), set_config('work_mem', '64MB', true)",
    )
    .bind(format!("{SECONDS_OF_COUNTS}s"))
    .execute(&mut **tx)
    .await?;
    let scope = Scope {
        run: match of {
            Of::Runs => "r.run",
            Of::Frames => "f.run",
            Of::Payloads => "p.run",
        },
        ..Scope::of_all(tenant)
    };
    let condition = resolved(tx, scope, condition).await?;
    let parts = match of {
        Of::Frames => ways_to_count(tx, scope, &condition).await?,
        Of::Runs | Of::Payloads => vec![Way::all(condition)],
    };
    let names: Vec<String> = (0..by.len()).map(|place| format!("key_{place}")).collect();
    let keys = names.join(", ");
    let mut sql = QueryBuilder::new("select ");
    for (name, by) in names.iter().zip(by) {
        sql.push(match by {
            By::Field(_) => format!("{name}::text, "),
            By::Time(_) => format!("{name}, "),
        });
    }
    sql.push("sum(part)::bigint as count from (");
    for (place, part) in parts.iter().enumerate() {
        sql.push(if place == 0 { "" } else { " union all " });
        push_part(&mut sql, scope, of, part, by);
    }
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    sql.push(") as parts");
    if by.is_empty() {
        sql.push(" having sum(part) is not null");
    } else {
        sql.push(format!(" group by {keys} order by {keys}"));
    }
    let most = i64::try_from(GROUPS + 1).unwrap_or(i64::MAX);
    sql.push(" limit ").push_bind(most);
    let rows = sql.build().persistent(false).fetch_all(&mut **tx).await?;
    let group = |row: &sqlx::postgres::PgRow| {
        let key = |(place, by): (usize, &By)| match by {
            By::Time(_) => Ok(GroupKey::Time(row.try_get::<Time, _>(place)?.0)),
            By::Field(field) => Ok(GroupKey::Text(word(field, row.try_get(place)?))),
        };
        let keys: Result<Vec<GroupKey>, StoreError> = by.iter().enumerate().map(key).collect();
        Ok(Group {
            keys: keys?,
            count: unsigned(row.try_get("count")?, "frames", "count")?,
        })
    };
    rows.iter().map(group).collect()
}

/// Adds the groups of one part of the rows.
fn push_part(sql: &mut QueryBuilder<Postgres>, scope: Scope<'_>, of: Of, part: &Way, by: &[By]) {
    let kind = part.kind();
    sql.push("select ");
    for (place, by) in by.iter().enumerate() {
        sql.push(key(*by, place, (of, kind), scope));
        sql.push(format!(" as key_{place}, "));
    }
    sql.push("count(*) as part");
    let asks_run = by.iter().any(|by| match by {
        By::Field(field) => matches!(field.source, Source::Run(_)),
        By::Time(_) => of == Of::Payloads,
    });
    let with_run = part.rest().needs_run() || asks_run;
    match of {
        Of::Runs => {
            sql.push(" from runs r");
        }
        Of::Frames => part.push_from(sql, scope.tenant),
        Of::Payloads => {
            sql.push(" from (");
            push_records(sql, |sql| {
                sql.push("tenant = ").push_bind(scope.tenant.to_owned());
            });
            sql.push(") p");
        }
    }
    if with_run && of != Of::Runs {
        sql.push(" join runs r on r.run = ").push(scope.run);
    }
    for (place, by) in by.iter().enumerate() {
        if let By::Field(Field {
            source: Source::Said(said),
            ..
        }) = by
        {
            let column = said.column();
            sql.push(format!(
                " left join (select distinct d.run, {column} as value"
            ));
            said.push(sql, "d", scope.tenant, false);
            sql.push(format!(") g{place} on g{place}.run = {}", scope.run));
        }
    }
    match of {
        Of::Runs => {
            sql.push(" where r.tenant = ")
                .push_bind(scope.tenant.to_owned());
            // Times say something about ids, by which runs are found, where the condition is one branch.
            if let [branch] = &branches(part.rest())[..] {
                Bounds::ALL.narrowed(branch).push(sql, "r.run");
            }
        }
        Of::Frames => part.push_where(sql, scope.tenant),
        Of::Payloads => {
            sql.push(" where true");
        }
    }
    sql.push(" and ");
    part.rest().push(sql, scope);
    if !by.is_empty() {
        let places: Vec<String> = (1..=by.len()).map(|place| place.to_string()).collect();
        sql.push(format!(" group by {}", places.join(", ")));
    }
}

/// The expression of a key, of frames as it is for those of a kind.
fn key(by: By, place: usize, (of, kind): (Of, Option<Kind>), scope: Scope<'_>) -> String {
    let field = match by {
        By::Time(unit) => {
            let time = match of {
                Of::Frames => "f.at",
                Of::Runs | Of::Payloads => "r.opened_at",
            };
            // 2001 began on a Monday.
            let bin = |width| format!("date_bin('{width}', {time}, '2001-01-01 00:00:00+00')");
            return match unit {
                Unit::Hour => bin("1 hour"),
                Unit::Day => bin("1 day"),
                Unit::Week => bin("7 days"),
                Unit::Month => format!("date_trunc('month', {time}, 'UTC')"),
            };
        }
        By::Field(field) => field,
    };
    match (field.source, kind) {
        (Source::Run(_) | Source::Payload(_) | Source::Frame(_) | Source::Retention(_), _) => {
            format!("{}::text", field.source.expression(scope))
        }
        (Source::Said(_), _) => format!("g{place}.value"),
        (Source::Kind, Some(kind)) => format!("'{}'::text", kind_no(kind)),
        (Source::Kind, None) => "f.kind_no::text".to_owned(),
        (Source::Name(kinds), Some(kind)) if kinds.contains(&kind) => "f.name".to_owned(),
        (Source::Name(kinds), None) => {
            let numbers = kinds.iter().map(|kind| kind_no(*kind).to_string());
            let numbers: Vec<String> = numbers.collect();
            format!(
                "case when f.kind_no in ({}) then f.name end",
                numbers.join(", ")
            )
        }
        // As text only once it is counted, since this is done for each row.
        (Source::Verdict, Some(Kind::GateResult) | None) => "f.verdict".to_owned(),
        (Source::Verdict, Some(_)) => "null::smallint".to_owned(),
        (Source::FailedGate, Some(Kind::GateResult) | None) => {
            "case when f.verdict in (2, 3) then f.name end".to_owned()
        }
        _ => "null::text".to_owned(),
    }
}

/// The value as people know it: kinds and verdicts are numbers in the table.
fn word(field: &Field, text: Option<String>) -> Option<String> {
    let number = || text.as_deref()?.parse::<i16>().ok();
    match field.source {
        Source::Kind => kind_of(number()?).map(|kind| kind.as_str().to_owned()),
        Source::Verdict => verdict_of(number()?).map(|verdict| verdict.as_str().to_owned()),
        _ => text,
    }
}

impl Field {
    /// Whether rows may be counted by it.
    pub(crate) fn is_countable(&self) -> bool {
        matches!(self.kind, FieldType::Text | FieldType::Word(_))
            && ![
                Source::Frame("f.key"),
                // A hold over the tenant holds every run.
                Source::Said(Said::Hold),
                Source::Held,
            ]
            .contains(&self.source)
            || self.source == super::field::TIER
    }
}
