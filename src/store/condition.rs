//! Conditions on rows, as queries ask for them: data here, SQL at the end.
//!
//! A condition has two values and never three: a comparison with what a row does not have is false, and `Not` is
//! exactly the opposite of what it is about. So `not (a = b)` is true of a row without `a`, which `a <> b` of SQL is not.

use super::signed;
use super::time::Time;
use onrecord_core::timestamp::Timestamp;
use sqlx::{Postgres, QueryBuilder};

/// What a field's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from 0.
    Number,
    /// A time.
    Time,
}

/// A field of rows that conditions can be about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// As people write it.
    pub(crate) name: &'static str,
    pub(crate) kind: FieldType,
    /// The expression of a row that has its value, null for none.
    sql: &'static str,
}

/// A value of a field's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Time(Timestamp),
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

/// Fields of runs, as the answers name them.
pub(crate) const RUN_FIELDS: &[Field] = &[
    field("agent", FieldType::Text, "agent"),
    field(
        "status",
        FieldType::Word(&["open", "ended", "sealed"]),
        "case when sealed_at is not null then 'sealed' when ended then 'ended' else 'open' end",
    ),
    field(
        "outcome",
        FieldType::Word(&["completed", "failed", "cancelled", "unknown"]),
        "coalesce(outcome, 'unknown')",
    ),
    field("run_no", FieldType::Number, "run_no"),
    field("size", FieldType::Number, "size"),
    field("erased", FieldType::Number, "erased"),
    field("opened_at", FieldType::Time, "opened_at"),
    field("last_at", FieldType::Time, "last_at"),
    field("sealed_at", FieldType::Time, "sealed_at"),
];

/// Fields of runs that rules of retention may ask for. They are compared in memory, with what was read of the run.
pub(crate) const RULE_FIELDS: &[Field] = &[
    field("agent", FieldType::Text, "null"),
    field("profile", FieldType::Text, "null"),
    field("release", FieldType::Text, "null"),
    field("label", FieldType::Text, "null"),
    field(
        "outcome",
        FieldType::Word(&["completed", "failed", "cancelled", "unknown"]),
        "null",
    ),
    field("flag", FieldType::Text, "null"),
    field("gate.failed", FieldType::Text, "null"),
];

const fn field(name: &'static str, kind: FieldType, sql: &'static str) -> Field {
    Field { name, kind, sql }
}

impl Condition {
    /// Adds the condition to a statement, its values as arguments.
    ///
    /// Null counts as false under `and` and `or`, and at the top of a `where`; only `not` has to say so.
    pub(super) fn push(&self, sql: &mut QueryBuilder<Postgres>) {
        match self {
            Self::All(all) => joined(sql, " and ", "true", all),
            Self::Any(any) => joined(sql, " or ", "false", any),
            Self::Not(inner) => {
                sql.push("(");
                inner.push(sql);
                sql.push(") is not true");
            }
            Self::Is(field, Comparison::Begins, value) => {
                sql.push("starts_with(").push(field.sql).push(", ");
                value.push(sql);
                sql.push(")");
            }
            Self::Is(field, comparison, value) => {
                sql.push(field.sql).push(match comparison {
                    Comparison::Equal | Comparison::Begins => " = ",
                    Comparison::Less => " < ",
                    Comparison::LessOrEqual => " <= ",
                    Comparison::Greater => " > ",
                    Comparison::GreaterOrEqual => " >= ",
                });
                value.push(sql);
            }
            Self::In(field, values) => {
                sql.push(field.sql).push(" in (");
                for (place, value) in values.iter().enumerate() {
                    sql.push(if place == 0 { "" } else { ", " });
                    value.push(sql);
                }
                sql.push(")");
            }
            Self::Present(field) => {
                sql.push(field.sql).push(" is not null");
            }
        }
    }
}

fn joined(sql: &mut QueryBuilder<Postgres>, word: &str, none: &str, conditions: &[Condition]) {
    sql.push(if conditions.is_empty() { none } else { "(" });
    for (place, condition) in conditions.iter().enumerate() {
        sql.push(if place == 0 { "" } else { word });
        condition.push(sql);
    }
    sql.push(if conditions.is_empty() { "" } else { ")" });
}

impl Value {
    fn push(&self, sql: &mut QueryBuilder<Postgres>) {
        match self {
            Self::Text(text) => sql.push_bind(text.clone()),
            Self::Number(number) => sql.push_bind(signed(*number)),
            Self::Time(time) => sql.push_bind(Time(*time)),
        };
    }
}
