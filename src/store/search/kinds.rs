//! What a condition on frames asks of frames of one kind: their indexes begin with it.

use super::branch::{all, any};
use super::condition::{Comparison, Condition, Value};
use super::field::{Field, KIND_NO, NAME, Source, VERDICT_NO};
use crate::store::facts::{KINDS, kind_no, verdict_no};
use onrecord_core::facts::Verdict;
use onrecord_core::frame::Kind;

/// The condition of frames that are of a kind, without tests of what the kind decides.
pub(super) fn of_kind(condition: &Condition, kind: Kind) -> Condition {
    match condition {
        Condition::All(inner) => all(inner.iter().map(|one| of_kind(one, kind)).collect()),
        Condition::Any(inner) => any(inner.iter().map(|one| of_kind(one, kind)).collect()),
        Condition::Not(inner) => match of_kind(inner, kind) {
            decided if decided == Condition::always() => Condition::never(),
            decided if decided == Condition::never() => Condition::always(),
            left => Condition::Not(Box::new(left)),
        },
        Condition::Is(field, comparison, value) => {
            test(field, kind, &[value], &|field| match comparison {
                // Which of the words it is makes a list of one.
                Comparison::Equal => Condition::In(field, Vec::new()),
                _ => Condition::Is(field, *comparison, value.clone()),
            })
            .unwrap_or_else(|| condition.clone())
        }
        Condition::In(field, values) => {
            let values: Vec<_> = values.iter().collect();
            test(field, kind, &values, &|field| {
                Condition::In(field, Vec::new())
            })
            .unwrap_or_else(|| condition.clone())
        }
        Condition::Present(field) => {
            test(field, kind, &[], &Condition::Present).unwrap_or_else(|| condition.clone())
        }
    }
}

/// The condition as it has to be put of frames of every kind at once.
pub(super) fn of_any_kind(condition: &Condition) -> Condition {
    let decided = |field: &Field| {
        matches!(
            field.source,
            Source::Kind | Source::Name(_) | Source::Verdict | Source::FailedGate
        )
    };
    if !condition.asks(&decided) {
        return condition.clone();
    }
    let one = |kind: &Kind| {
        let number = Value::Number(kind_no(*kind).unsigned_abs().into());
        let is = Condition::Is(&KIND_NO, Comparison::Equal, number);
        all(vec![is, of_kind(condition, *kind)])
    };
    any(KINDS.iter().map(one).collect())
}

/// A test of a field that the kind decides, as far as it does; `None` of another field. `asked` makes the test of a column:
/// a list without values stands for the values.
fn test(
    field: &'static Field,
    kind: Kind,
    values: &[&Value],
    asked: &impl Fn(&'static Field) -> Condition,
) -> Option<Condition> {
    let ask = |field: &'static Field, values: Vec<Value>| match asked(field) {
        Condition::In(field, _) => Condition::In(field, values),
        other => other,
    };
    let given = || values.iter().map(|value| (*value).clone()).collect();
    let verdicts = |of: &[Verdict]| {
        let numbers = of.iter().map(|verdict| verdict_no(*verdict).unsigned_abs());
        numbers.map(|number| Value::Number(number.into())).collect()
    };
    let found = match field.source {
        Source::Kind => {
            let named =
                |value: &&Value| matches!(value, Value::Text(word) if word == kind.as_str());
            if values.is_empty() || values.iter().any(named) {
                Condition::always()
            } else {
                Condition::never()
            }
        }
        Source::Name(kinds) if kinds.contains(&kind) => ask(&NAME, given()),
        Source::Verdict if kind == Kind::GateResult => {
            let named = |verdict: &Verdict| {
                let is =
                    |value: &&Value| matches!(value, Value::Text(word) if word == verdict.as_str());
                values.iter().any(is)
            };
            let named: Vec<_> = Verdict::ALL.into_iter().filter(named).collect();
            ask(&VERDICT_NO, verdicts(&named))
        }
        Source::FailedGate if kind == Kind::GateResult => {
            let failed = verdicts(&[Verdict::Fail, Verdict::Error]);
            all(vec![
                Condition::In(&VERDICT_NO, failed),
                ask(&NAME, given()),
            ])
        }
        Source::Name(_) | Source::Verdict | Source::FailedGate => Condition::never(),
        _ => return None,
    };
    Some(found)
}
