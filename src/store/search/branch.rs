//! Conditions taken apart into branches, each of which an index may serve.

use super::condition::{Comparison, Condition};

/// Branches that a condition is taken apart into at most.
pub(super) const BRANCHES: usize = 16;

/// The condition as branches: it is true of a row exactly if everything in one of them is. At most [`BRANCHES`]; what would
/// be more stays together, as one member of a branch.
pub(super) fn branches(condition: &Condition) -> Vec<Vec<Condition>> {
    split(&positive(condition, false)).unwrap_or_else(|| vec![vec![condition.clone()]])
}

/// `None` where it would be too many.
fn split(condition: &Condition) -> Option<Vec<Vec<Condition>>> {
    let found = match condition {
        Condition::Any(any) => {
            let mut found = Vec::new();
            for one in any {
                found.extend(split(one)?);
                if found.len() > BRANCHES {
                    return None;
                }
            }
            found
        }
        Condition::All(all) => {
            let mut found: Vec<Vec<Condition>> = vec![Vec::new()];
            for one in all {
                let parts = match split(one) {
                    Some(parts) if parts.len() * found.len() <= BRANCHES => parts,
                    _ => vec![vec![one.clone()]],
                };
                found = found
                    .iter()
                    .flat_map(|begun| parts.iter().map(|part| [&begun[..], part].concat()))
                    .collect();
            }
            found
        }
        Condition::In(field, values) if field.is_indexed() && values.len() <= BRANCHES => {
            let mut values = values.clone();
            let mut found = Vec::new();
            while let Some(value) = values.pop() {
                // Twice the same would be the same branch twice.
                if !values.contains(&value) {
                    found.push(vec![Condition::Is(field, Comparison::Equal, value)]);
                }
            }
            found
        }
        one => vec![vec![one.clone()]],
    };
    Some(found)
}

/// The same with `not` before single tests only.
fn positive(condition: &Condition, negated: bool) -> Condition {
    match condition {
        Condition::Not(inner) => positive(inner, !negated),
        Condition::All(inner) | Condition::Any(inner) => {
            let inner = inner.iter().map(|one| positive(one, negated)).collect();
            if matches!(condition, Condition::All(_)) == negated {
                any(inner)
            } else {
                all(inner)
            }
        }
        test if negated => Condition::Not(Box::new(test.clone())),
        test => test.clone(),
    }
}

/// All of some conditions, without those that are always true; never, where one of them is.
pub(super) fn all(conditions: Vec<Condition>) -> Condition {
    let mut found = Vec::new();
    for one in conditions {
        match one {
            Condition::All(inner) => found.extend(inner),
            never if never == Condition::never() => return never,
            other => found.push(other),
        }
    }
    match found.len() {
        1 => found.remove(0),
        _ => Condition::All(found),
    }
}

/// Any of some conditions, without those that never are true; always, where one of them is.
pub(super) fn any(conditions: Vec<Condition>) -> Condition {
    let mut found = Vec::new();
    for one in conditions {
        match one {
            Condition::Any(inner) => found.extend(inner),
            always if always == Condition::always() => return always,
            other => found.push(other),
        }
    }
    match found.len() {
        1 => found.remove(0),
        _ => Condition::Any(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::search::condition::Value;
    use crate::store::search::field::RUN_FIELDS;

    fn is(name: &str, value: &str) -> Condition {
        let field = RUN_FIELDS.iter().find(|field| field.name == name).unwrap();
        Condition::Is(field, Comparison::Equal, Value::Text(value.to_owned()))
    }

    fn not(condition: Condition) -> Condition {
        Condition::Not(Box::new(condition))
    }

    #[test]
    fn a_condition_becomes_branches() {
        let (a, b, c) = (is("agent", "a"), is("tool", "b"), is("model", "c"));
        let both = |one: &Condition, other: &Condition| vec![one.clone(), other.clone()];
        let condition = Condition::All(vec![Condition::Any(vec![a.clone(), b.clone()]), c.clone()]);
        assert_eq!(branches(&condition), [both(&a, &c), both(&b, &c)]);
        let condition = not(Condition::Any(vec![a.clone(), not(b.clone())]));
        assert_eq!(branches(&condition), [both(&not(a.clone()), &b)]);
        assert_eq!(branches(&Condition::always()), [vec![]]);
        assert_eq!(branches(&Condition::never()), Vec::<Vec<_>>::new());
    }

    #[test]
    fn there_are_never_too_many() {
        let pair = |n: usize| {
            Condition::Any(vec![
                is("tool", &n.to_string()),
                is("model", &n.to_string()),
            ])
        };
        let condition = Condition::All((0..10).map(pair).collect());
        let found = branches(&condition);
        assert_eq!(found.len(), BRANCHES);
        assert!(found.iter().all(|branch| branch.len() == 10));
        let condition = Condition::Any((0..17).map(|n| is("tool", &n.to_string())).collect());
        assert_eq!(branches(&condition), [vec![condition.clone()]]);
    }
}
