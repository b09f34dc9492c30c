//! Tests that other rows say more about, answered before rows are looked for.
//!
//! What is said of runs is in the order of values: `begins` and `is set` become lists of the values that there are, where
//! these are few. A hold over the whole tenant holds every run. Numbers of runs are given in the order of their openings,
//! so that a bound on one is a bound on the other. All of it holds for the transaction that it was read in.

use super::condition::{Comparison, Condition, Scope, Value, last_beginning_with};
use super::field::{Field, RUN_NO, RUN_OPENED_AT, Source};
use super::said::Said;
use crate::store::time::Time;
use crate::store::{StoreError, Tx, signed};
use sqlx::QueryBuilder;

/// Values up to which a list is made of them.
const VALUES: usize = 32;

/// The condition with what other rows say.
pub(super) async fn resolved(
    tx: &mut Tx,
    scope: Scope<'_>,
    condition: &Condition,
) -> Result<Condition, StoreError> {
    let mut tests = Vec::new();
    collect(condition, &mut tests);
    let whole: Vec<String> = if tests.iter().any(|test| is_of_holds(test)) {
        sqlx::query_scalar(
            "select matter from holds where tenant = $1 and released_index is null and run is null",
        )
        .bind(scope.tenant)
        .fetch_all(&mut **tx)
        .await?
    } else {
        Vec::new()
    };
    let mut found = Vec::new();
    for test in tests {
        let told = if is_of_holds(test) && holds_all(test, &whole) {
            Some(Condition::always())
        } else if let Some((field, said, beginning)) = listed(test) {
            let values = values(tx, scope, said, &beginning).await?;
            values.map(|values| match values.len() {
                0 => Condition::never(),
                _ => Condition::In(field, values.into_iter().map(Value::Text).collect()),
            })
        } else if let Condition::Is(field, comparison, Value::Number(number)) = test
            && field.source == RUN_NO
        {
            bounded(tx, scope, (test, *comparison), *number).await?
        } else {
            None
        };
        if let Some(told) = told {
            found.push((test.clone(), told));
        }
    }
    Ok(replaced(condition, &found))
}

fn collect<'a>(condition: &'a Condition, found: &mut Vec<&'a Condition>) {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => {
            inner.iter().for_each(|one| collect(one, found));
        }
        Condition::Not(inner) => collect(inner, found),
        test if !found.contains(&test) => found.push(test),
        _ => {}
    }
}

fn replaced(condition: &Condition, found: &[(Condition, Condition)]) -> Condition {
    let all = |inner: &[Condition]| inner.iter().map(|one| replaced(one, found)).collect();
    match condition {
        Condition::All(inner) => Condition::All(all(inner)),
        Condition::Any(inner) => Condition::Any(all(inner)),
        Condition::Not(inner) => Condition::Not(Box::new(replaced(inner, found))),
        test => {
            let told = found.iter().find(|(asked, _)| asked == test);
            told.map_or_else(|| test.clone(), |(_, told)| told.clone())
        }
    }
}

fn is_of_holds(test: &Condition) -> bool {
    test.asks(&|field| field.source == Source::Said(Said::Hold))
}

/// Whether a test of holds is true of what holds the whole tenant.
fn holds_all(test: &Condition, whole: &[String]) -> bool {
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    whole.iter().any(|matter| match test {
        Condition::Is(_, Comparison::Begins, value) => {
            text(value).is_some_and(|beginning| matter.starts_with(&beginning))
        }
        Condition::Is(_, _, value) => text(value).as_ref() == Some(matter),
        Condition::In(_, values) => values
            .iter()
            .any(|value| text(value).as_ref() == Some(matter)),
        _ => true,
    })
}

/// A test that names no value of what is said, and the beginning of those that it is true of.
fn listed(test: &Condition) -> Option<(&'static Field, Said, String)> {
    let (field, beginning) = match test {
        Condition::Is(field, Comparison::Begins, Value::Text(text)) => (field, text.clone()),
        Condition::Present(field) => (field, String::new()),
        _ => return None,
    };
    match field.source {
        Source::Said(said) => Some((field, said, beginning)),
        _ => None,
    }
}

/// The values that begin so; `None` where they are many. From each the index is asked for the next, so that a value costs
/// the same for one run and for a million.
async fn values(
    tx: &mut Tx,
    scope: Scope<'_>,
    said: Said,
    beginning: &str,
) -> Result<Option<Vec<String>>, StoreError> {
    let (column, last) = (said.column(), last_beginning_with(beginning));
    let mut sql = QueryBuilder::new("with recursive found (value) as ((select ");
    sql.push(column);
    said.push(&mut sql, scope.tenant, false);
    sql.push(format!(" and {column} >= "));
    sql.push_bind(beginning.to_owned());
    sql.push(format!(" and {column} <= "));
    sql.push_bind(last.clone());
    sql.push(format!(
        " order by {column} limit 1) union all select (select {column}"
    ));
    said.push(&mut sql, scope.tenant, false);
    sql.push(format!(" and {column} > found.value and {column} <= "));
    sql.push_bind(last);
    sql.push(format!(
        " order by {column} limit 1) from found where found.value is not null)
         select value from found where value is not null limit {}",
        VALUES + 1
    ));
    let values: Vec<String> = sql
        .build_query_scalar()
        .persistent(false)
        .fetch_all(&mut **tx)
        .await?;
    Ok((values.len() <= VALUES).then_some(values))
}

/// A bound on the numbers of runs together with the bound on their openings that follows from it.
async fn bounded(
    tx: &mut Tx,
    scope: Scope<'_>,
    (test, comparison): (&Condition, Comparison),
    number: u64,
) -> Result<Option<Condition>, StoreError> {
    let first =
        "select opened_at from runs where tenant = $1 and run_no >= $2 order by run_no limit 1";
    let last = "select opened_at from runs where tenant = $1 and run_no <= $2 order by run_no desc limit 1";
    let mut bounds = Vec::new();
    for (sql, bound, asked) in [
        (
            first,
            Comparison::GreaterOrEqual,
            [Comparison::Greater, Comparison::GreaterOrEqual],
        ),
        (
            last,
            Comparison::LessOrEqual,
            [Comparison::Less, Comparison::LessOrEqual],
        ),
    ] {
        if comparison != Comparison::Equal && !asked.contains(&comparison) {
            continue;
        }
        let opened: Option<Time> = sqlx::query_scalar(sql)
            .bind(scope.tenant)
            .bind(signed(number))
            .fetch_optional(&mut **tx)
            .await?;
        let Some(Time(opened)) = opened else {
            return Ok(Some(Condition::never()));
        };
        bounds.push(Condition::Is(&RUN_OPENED_AT, bound, Value::Time(opened)));
    }
    bounds.push(test.clone());
    Ok(Some(Condition::All(bounds)))
}
