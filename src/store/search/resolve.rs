//! Tests of what runs' frames say that name no value: `begins` and `is set` become lists of the values that there are, where
//! these are few, since `run_facts` is in the order of values.

use super::condition::{Comparison, Condition, Scope, Value, last_beginning_with};
use super::field::{Field, Source};
use crate::store::facts::field_no;
use crate::store::{StoreError, Tx};
use onrecord_core::facts::FactField;

/// Values up to which a list is made of them.
const VALUES: usize = 32;

/// The condition with lists in the place of such tests. It holds for the transaction that it was made in.
pub(super) async fn resolved(
    tx: &mut Tx,
    scope: Scope<'_>,
    condition: &Condition,
) -> Result<Condition, StoreError> {
    let mut asked = Vec::new();
    collect(condition, &mut asked);
    let mut found = Vec::new();
    for (field, fact, beginning) in asked {
        if let Some(values) = values(tx, scope, fact, &beginning).await? {
            found.push((field, beginning, values));
        }
    }
    Ok(replaced(condition, &found))
}

type Asked = (&'static Field, FactField, String);
type Found = (&'static Field, String, Vec<String>);

fn asked(condition: &Condition) -> Option<Asked> {
    let (field, beginning) = match condition {
        Condition::Is(field, Comparison::Begins, Value::Text(text)) => (field, text.clone()),
        Condition::Present(field) => (field, String::new()),
        _ => return None,
    };
    match field.source {
        Source::Fact(fact) => Some((field, fact, beginning)),
        _ => None,
    }
}

fn collect(condition: &Condition, found: &mut Vec<Asked>) {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => {
            inner.iter().for_each(|one| collect(one, found));
        }
        Condition::Not(inner) => collect(inner, found),
        test => found.extend(asked(test)),
    }
}

fn replaced(condition: &Condition, found: &[Found]) -> Condition {
    match condition {
        Condition::All(inner) => {
            Condition::All(inner.iter().map(|one| replaced(one, found)).collect())
        }
        Condition::Any(inner) => {
            Condition::Any(inner.iter().map(|one| replaced(one, found)).collect())
        }
        Condition::Not(inner) => Condition::Not(Box::new(replaced(inner, found))),
        test => {
            let values = asked(test).and_then(|(field, _, beginning)| {
                let of = |one: &&Found| one.0 == field && one.1 == beginning;
                found.iter().find(of)
            });
            match values {
                None => test.clone(),
                Some((_, _, values)) if values.is_empty() => Condition::never(),
                Some((field, _, values)) => {
                    let values = values.iter().cloned().map(Value::Text).collect();
                    Condition::In(field, values)
                }
            }
        }
    }
}

/// The values of a field that begin so; `None` where they are many. From each the index is asked for the next, so that a
/// value costs the same for one run and for a million.
async fn values(
    tx: &mut Tx,
    scope: Scope<'_>,
    fact: FactField,
    beginning: &str,
) -> Result<Option<Vec<String>>, StoreError> {
    let most = i64::try_from(VALUES + 1).unwrap_or(i64::MAX);
    let values: Vec<String> = sqlx::query_scalar(
        "with recursive found (value) as (
           (select value from run_facts where tenant = $1 and field = $2 and value >= $3 and value <= $4 order by value limit 1)
           union all
           select (select value from run_facts where tenant = $1 and field = $2 and value > found.value and value <= $4 order by value limit 1)
           from found where found.value is not null
         ) select value from found where value is not null limit $5",
    )
    .bind(scope.tenant)
    .bind(field_no(fact))
    .bind(beginning)
    .bind(last_beginning_with(beginning))
    .bind(most)
    .fetch_all(&mut **tx)
    .await?;
    Ok((values.len() <= VALUES).then_some(values))
}
