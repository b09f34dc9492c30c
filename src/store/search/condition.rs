//! Conditions on rows, as queries ask for them: data here, SQL at the end.
//!
//! A condition has two values and never three: a comparison with what a row does not have is false, and `Not` is
//! exactly the opposite of what it is about. So `not (a = b)` is true of a row without `a`, which `a <> b` of SQL is not.

use super::bounds::Bounds;
use super::driver::Driver;
use super::field::{Field, HOLD, Source};
use crate::store::id::Uuid;
use crate::store::signed;
use crate::store::time::Time;
use onrecord_core::facts;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder};

/// A value of a field's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Time(Timestamp),
    Run(RunId),
}

/// How a field is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The field's text begins with the value.
    Begins,
}

/// A condition on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// The row has a value of the field, which compares so.
    Is(&'static Field, Comparison, Value),
    /// The row has one of these values.
    In(&'static Field, Vec<Value>),
    /// The row has a value.
    Present(&'static Field),
}

/// What a condition is put into a statement about.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(super) tenant: &'a str,
    /// The expression of the run's id.
    pub(super) run: &'static str,
    /// Whether each row is looked at by itself, so that a page of them costs what the page has; else the planner may join
    /// all of them at once.
    pub(super) each: bool,
    /// What is asked by a list of the runs that it leads to, rather than by a look for each row.
    pub(super) listed: &'a [Driver],
    /// The ids between which the rows' runs are; a list is of these.
    pub(super) bounds: Bounds,
}

impl<'a> Scope<'a> {
    /// All runs of a tenant, whose rows are called `r`.
    pub(crate) fn of_all(tenant: &'a TenantId) -> Self {
        Self {
            each: false,
            ..Self::of_each(tenant.as_str(), "r.run")
        }
    }

    /// One row after the other.
    pub(super) fn of_each(tenant: &'a str, run: &'static str) -> Self {
        Self {
            tenant,
            run,
            each: true,
            listed: &[],
            bounds: Bounds::ALL,
        }
    }

    /// What a test is asked by, if it is by a list.
    fn list(&self, test: &Condition) -> Option<&Driver> {
        if self.listed.is_empty() {
            return None;
        }
        let driver = Driver::exactly(test)?;
        self.listed.iter().find(|one| **one == driver)
    }
}

impl Condition {
    /// Nothing is asked.
    pub(crate) fn always() -> Self {
        Self::All(Vec::new())
    }

    /// No row is so.
    pub(super) fn never() -> Self {
        Self::Any(Vec::new())
    }

    /// The same with tests of what follows from another field as tests of that.
    pub(crate) fn plain(self) -> Self {
        let held = |values: &[Value]| {
            let held = Self::Present(&HOLD);
            let word = |word: &str| values.contains(&Value::Text(word.to_owned()));
            match (word("yes"), word("no")) {
                (true, true) => Self::always(),
                (true, false) => held,
                _ => Self::Not(Box::new(held)),
            }
        };
        match self {
            Self::All(all) => Self::All(all.into_iter().map(Self::plain).collect()),
            Self::Any(any) => Self::Any(any.into_iter().map(Self::plain).collect()),
            Self::Not(inner) => Self::Not(Box::new(inner.plain())),
            Self::Is(field, _, value) if field.source == Source::Held => held(&[value]),
            Self::In(field, values) if field.source == Source::Held => held(&values),
            Self::Present(field) if field.source == Source::Held => Self::always(),
            other => other,
        }
    }

    /// Whether any test in it is of such a field.
    pub(super) fn asks(&self, of: &impl Fn(&Field) -> bool) -> bool {
        match self {
            Self::All(inner) | Self::Any(inner) => inner.iter().any(|one| one.asks(of)),
            Self::Not(inner) => inner.asks(of),
            Self::Is(field, ..) | Self::In(field, _) | Self::Present(field) => of(field),
        }
    }

    /// Whether the run's row has to be there to tell.
    pub(super) fn needs_run(&self) -> bool {
        self.asks(&|field| matches!(field.source, Source::Run(_)))
    }

    /// Adds the condition to a statement, its values as arguments.
    ///
    /// Null counts as false under `and` and `or`, and at the top of a `where`; only `not` has to say so.
    pub(crate) fn push(&self, sql: &mut QueryBuilder<Postgres>, scope: Scope<'_>) {
        if let Some(driver) = scope.list(self) {
            // Said in such a way, it is read once and looked up by a hash, and does not become a join.
            sql.push("(").push(scope.run).push(" in (select ");
            sql.push(driver.run());
            driver.push(sql, scope.tenant, scope.bounds, false);
            sql.push(") is true)");
            return;
        }
        match self {
            Self::All(all) => joined(sql, " and ", "true", all, scope),
            Self::Any(any) => joined(sql, " or ", "false", any, scope),
            Self::Not(inner) => {
                sql.push("(");
                inner.push(sql, scope);
                sql.push(") is not true");
            }
            Self::Is(field, comparison, value) => match field.source {
                Source::Said(said) => {
                    let test = (*comparison, std::slice::from_ref(value));
                    said.push_test(sql, scope, Some(test));
                }
                source => {
                    let expression = source.expression(scope);
                    let value = match comparison {
                        Comparison::Begins => value.clone(),
                        _ => value.as_kept(field),
                    };
                    compare(sql, &expression, *comparison, &value);
                }
            },
            Self::In(field, values) => {
                let any = values
                    .iter()
                    .map(|value| Self::Is(field, Comparison::Equal, value.clone()));
                match field.source {
                    Source::Said(said) => {
                        let test = (Comparison::Equal, &values[..]);
                        said.push_test(sql, scope, Some(test));
                    }
                    _ if values.len() == 1 => any.for_each(|one| one.push(sql, scope)),
                    source => {
                        sql.push(source.expression(scope)).push(" in (");
                        for (place, value) in values.iter().enumerate() {
                            sql.push(if place == 0 { "" } else { ", " });
                            value.as_kept(field).push(sql);
                        }
                        sql.push(")");
                    }
                }
            }
            Self::Present(field) => match field.source {
                Source::Said(said) => said.push_test(sql, scope, None),
                source => {
                    sql.push(source.expression(scope)).push(" is not null");
                }
            },
        }
    }
}

/// Adds a comparison of an expression with a value.
pub(super) fn compare(
    sql: &mut QueryBuilder<Postgres>,
    expression: &str,
    comparison: Comparison,
    value: &Value,
) {
    if let (Comparison::Begins, Value::Text(text)) = (comparison, value) {
        sql.push("(starts_with(").push(expression).push(", ");
        sql.push_bind(text.clone()).push(")");
        // An index knows a range only, and only these columns are in the order of bytes.
        if expression.starts_with("s.") || expression == "f.name" {
            sql.push(" and ").push(expression).push(" >= ");
            sql.push_bind(text.clone()).push(" and ");
            sql.push(expression).push(" <= ");
            sql.push_bind(last_beginning_with(text));
        }
        sql.push(")");
        return;
    }
    sql.push(expression).push(match comparison {
        Comparison::Equal | Comparison::Begins => " = ",
        Comparison::Less => " < ",
        Comparison::LessOrEqual => " <= ",
        Comparison::Greater => " > ",
        Comparison::GreaterOrEqual => " >= ",
    });
    value.push(sql);
}

/// Above every text that begins so, in the order of bytes.
pub(super) fn last_beginning_with(text: &str) -> String {
    format!("{text}\u{10ffff}\u{10ffff}")
}

fn joined(
    sql: &mut QueryBuilder<Postgres>,
    word: &str,
    none: &str,
    conditions: &[Condition],
    scope: Scope<'_>,
) {
    sql.push(if conditions.is_empty() { none } else { "(" });
    for (place, condition) in conditions.iter().enumerate() {
        sql.push(if place == 0 { "" } else { word });
        condition.push(sql, scope);
    }
    sql.push(if conditions.is_empty() { "" } else { ")" });
}

impl Value {
    pub(super) fn push(&self, sql: &mut QueryBuilder<Postgres>) {
        match self {
            Self::Text(text) => sql.push_bind(text.clone()),
            Self::Number(number) => sql.push_bind(signed(*number)),
            Self::Time(time) => sql.push_bind(Time(*time)),
            Self::Run(run) => sql.push_bind(Uuid::from(run)),
        };
    }

    /// As the column has it: names are kept as facts are.
    fn as_kept(&self, field: &Field) -> Self {
        match self {
            Self::Text(text) if field.source == Source::Frame("f.name") => {
                Self::Text(facts::value(text))
            }
            other => other.clone(),
        }
    }

    /// As tables have it that say something of runs.
    pub(super) fn as_said(&self) -> String {
        match self {
            Self::Text(text) => facts::value(text),
            Self::Number(number) => number.to_string(),
            Self::Time(time) => time.to_string(),
            Self::Run(run) => run.to_string(),
        }
    }
}
