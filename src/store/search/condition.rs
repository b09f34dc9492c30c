//! Conditions on rows, as queries ask for them: data here, SQL at the end.
//!
//! A condition has two values and never three: a comparison with what a row does not have is false, and `Not` is
//! exactly the opposite of what it is about. So `not (a = b)` is true of a row without `a`, which `a <> b` of SQL is not.

use super::field::{Field, Source};
use crate::store::facts::field_no;
use crate::store::id::Uuid;
use crate::store::signed;
use crate::store::time::Time;
use onrecord_core::facts::{self, FactField};
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
}

impl<'a> Scope<'a> {
    /// All runs of a tenant, whose rows are called `r`.
    pub(crate) fn of_all(tenant: &'a TenantId) -> Self {
        Self {
            tenant: tenant.as_str(),
            run: "r.run",
            each: false,
        }
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
        match self {
            Self::All(all) => joined(sql, " and ", "true", all, scope),
            Self::Any(any) => joined(sql, " or ", "false", any, scope),
            Self::Not(inner) => {
                sql.push("(");
                inner.push(sql, scope);
                sql.push(") is not true");
            }
            Self::Is(field, comparison, value) => match field.source {
                Source::Fact(fact) => said(sql, scope, fact, *comparison, value),
                source => {
                    let expression = expression(source, scope);
                    let value = match comparison {
                        Comparison::Begins => value.clone(),
                        _ => value.as_kept(field),
                    };
                    compare(sql, expression, *comparison, &value);
                }
            },
            Self::In(field, values) => {
                let any = values
                    .iter()
                    .map(|value| Self::Is(field, Comparison::Equal, value.clone()));
                match field.source {
                    Source::Fact(fact) => said_any(sql, scope, fact, values),
                    _ if values.len() == 1 => any.for_each(|one| one.push(sql, scope)),
                    source => {
                        sql.push(expression(source, scope)).push(" in (");
                        for (place, value) in values.iter().enumerate() {
                            sql.push(if place == 0 { "" } else { ", " });
                            value.as_kept(field).push(sql);
                        }
                        sql.push(")");
                    }
                }
            }
            Self::Present(field) => match field.source {
                Source::Fact(fact) => {
                    listed(sql, scope, fact);
                    sql.push(")");
                }
                source => {
                    sql.push(expression(source, scope)).push(" is not null");
                }
            },
        }
    }
}

/// The expression that has the values. What the kind of a frame decides was answered before.
fn expression(source: Source, scope: Scope<'_>) -> &'static str {
    match source {
        Source::Run(sql) | Source::Frame(sql) | Source::Payload(sql) => sql,
        Source::RunId => scope.run,
        Source::Fact(_) | Source::Kind | Source::Name(_) | Source::Verdict | Source::FailedGate => {
            "null"
        }
    }
}

fn compare(
    sql: &mut QueryBuilder<Postgres>,
    expression: &str,
    comparison: Comparison,
    value: &Value,
) {
    if let (Comparison::Begins, Value::Text(text)) = (comparison, value) {
        sql.push("(starts_with(").push(expression).push(", ");
        sql.push_bind(text.clone()).push(")");
        // An index knows a range only, and only these columns are in the order of bytes.
        if ["value", "f.name"].contains(&expression) {
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

/// `exists (…)`: a frame of the run says so. `offset 0` keeps the planner from turning one look at an index for each row
/// into a join with all runs that say so.
fn said(
    sql: &mut QueryBuilder<Postgres>,
    scope: Scope<'_>,
    fact: FactField,
    comparison: Comparison,
    value: &Value,
) {
    if comparison == Comparison::Begins {
        listed(sql, scope, fact);
        sql.push(" and ");
        compare(sql, "value", comparison, value);
        sql.push(")");
        return;
    }
    said_any(sql, scope, fact, std::slice::from_ref(value));
}

fn said_any(sql: &mut QueryBuilder<Postgres>, scope: Scope<'_>, fact: FactField, values: &[Value]) {
    if scope.each {
        sql.push("exists (select from run_facts where tenant = ");
        sql.push_bind(scope.tenant.to_owned()).push(" and field = ");
        sql.push_bind(field_no(fact));
    } else {
        listed(sql, scope, fact);
    }
    let values: Vec<String> = values.iter().map(Value::as_fact).collect();
    match &values[..] {
        [one] => sql.push(" and value = ").push_bind(one.clone()),
        _ => sql.push(" and value = any(").push_bind(values).push(")"),
    };
    if scope.each {
        sql.push(" and run = ").push(scope.run).push(" offset 0");
    }
    sql.push(")");
}

/// `run in (select …`: the runs that say anything of a field, which are listed once and not looked for row by row, since
/// the index has the value before the run.
fn listed(sql: &mut QueryBuilder<Postgres>, scope: Scope<'_>, fact: FactField) {
    sql.push(scope.run)
        .push(" in (select run from run_facts where tenant = ");
    sql.push_bind(scope.tenant.to_owned()).push(" and field = ");
    sql.push_bind(field_no(fact));
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

    /// As `run_facts` has it.
    pub(super) fn as_fact(&self) -> String {
        match self {
            Self::Text(text) => facts::value(text),
            Self::Number(number) => number.to_string(),
            Self::Time(time) => time.to_string(),
            Self::Run(run) => run.to_string(),
        }
    }
}
