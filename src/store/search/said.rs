//! What is said of runs in tables of their own: by their frames, by flags and by holds. A run may have several values.

use super::condition::{Comparison, Scope, Value, compare};
use crate::store::facts::field_no;
use onrecord_core::facts::FactField;
use sqlx::{Postgres, QueryBuilder};

/// Where something is said of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Any frame of the run says so.
    Fact(FactField),
    /// A flag that stands.
    Flag,
    /// What a flag that stands is about.
    Incident,
    /// The matter of a hold in force over the run. Those over the whole tenant are all runs'.
    Hold,
}

impl Said {
    /// Adds ` from … d where …`: a row for each run and value, or several where [`Said::is_unique`] is false.
    pub(super) fn push(self, sql: &mut QueryBuilder<Postgres>, tenant: &str, with_run: bool) {
        sql.push(" from ").push(match self {
            Self::Fact(_) => "run_facts",
            Self::Flag | Self::Incident => "run_flags",
            Self::Hold => "holds",
        });
        sql.push(" d");
        if with_run {
            // One look at the key for each: with `offset 0` it cannot become a join with all runs.
            sql.push(" cross join lateral (select * from runs where runs.run = d.run offset 0) r");
        }
        sql.push(" where d.tenant = ").push_bind(tenant.to_owned());
        match self {
            Self::Fact(fact) => sql.push(" and d.field = ").push_bind(field_no(fact)),
            Self::Flag => sql.push(" and d.cleared_index is null"),
            Self::Incident => sql.push(" and d.cleared_index is null and d.incident is not null"),
            Self::Hold => sql.push(" and d.released_index is null and d.run is not null"),
        };
    }

    /// The column of the values, all in the order of bytes.
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Fact(_) => "d.value",
            Self::Flag => "d.flag",
            Self::Incident => "d.incident",
            Self::Hold => "d.matter",
        }
    }

    /// Whether a run has a value once.
    pub(super) fn is_unique(self) -> bool {
        matches!(self, Self::Fact(_) | Self::Hold)
    }

    /// Adds that the run has a value, which compares so; without one, that it has any.
    pub(super) fn push_test(
        self,
        sql: &mut QueryBuilder<Postgres>,
        scope: Scope<'_>,
        test: Option<(Comparison, &[Value])>,
    ) {
        sql.push("(");
        // What names a value is looked for row by row. `offset 0` keeps the planner from turning one look at an index into a
        // join with all runs that have it. Else the runs are listed once, since the indexes have the value before the run.
        let each = scope.each && matches!(test, Some((Comparison::Equal, _)));
        if each {
            sql.push("exists (select");
        } else {
            sql.push(scope.run).push(" in (select d.run");
        }
        self.push(sql, scope.tenant, false);
        self.push_values(sql, test);
        if each {
            sql.push(" and d.run = ").push(scope.run).push(" offset 0");
        }
        sql.push(")");
        if self == Self::Hold {
            sql.push(" or exists (select from holds d where d.tenant = ");
            sql.push_bind(scope.tenant.to_owned());
            sql.push(" and d.released_index is null and d.run is null");
            self.push_values(sql, test);
            sql.push(")");
        }
        sql.push(")");
    }

    fn push_values(self, sql: &mut QueryBuilder<Postgres>, test: Option<(Comparison, &[Value])>) {
        let Some((comparison, values)) = test else {
            return;
        };
        sql.push(" and ");
        match values {
            [value] if comparison == Comparison::Equal => {
                let value = Value::Text(value.as_said());
                compare(sql, self.column(), comparison, &value);
            }
            [value] => compare(sql, self.column(), comparison, value),
            values => {
                let values: Vec<String> = values.iter().map(Value::as_said).collect();
                sql.push(self.column()).push(" = any(");
                sql.push_bind(values).push(")");
            }
        }
    }
}
