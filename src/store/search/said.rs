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
    /// Adds ` from … where …` of rows that are called `alias`: one for each run and value, or several where
    /// [`Said::is_unique`] is false. With their runs, `r`, if they are asked for.
    pub(super) fn push(
        self,
        sql: &mut QueryBuilder<Postgres>,
        alias: &'static str,
        tenant: &str,
        with_run: bool,
    ) {
        sql.push(" from ").push(match self {
            Self::Fact(_) => "run_facts",
            Self::Flag | Self::Incident => "run_flags",
            Self::Hold => "holds",
        });
        sql.push(" ").push(alias);
        if with_run {
            // One look at the key for each: with `offset 0` it cannot become a join with all runs.
            sql.push(format!(
                " cross join lateral (select * from runs where runs.run = {alias}.run offset 0) r"
            ));
        }
        sql.push(format!(" where {alias}.tenant = "));
        sql.push_bind(tenant.to_owned());
        match self {
            Self::Fact(fact) => {
                sql.push(format!(" and {alias}.field = "));
                sql.push_bind(field_no(fact))
            }
            Self::Flag => sql.push(format!(" and {alias}.cleared_index is null")),
            Self::Incident => sql.push(format!(
                " and {alias}.cleared_index is null and {alias}.incident is not null"
            )),
            Self::Hold => sql.push(format!(
                " and {alias}.released_index is null and {alias}.run is not null"
            )),
        };
    }

    /// The column of the values of rows that are called `d`, in the order of bytes.
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Fact(_) => "d.value",
            Self::Flag => "d.flag",
            Self::Incident => "d.incident",
            Self::Hold => "d.matter",
        }
    }

    /// The same of rows that are called `s`.
    fn tested(self) -> &'static str {
        match self {
            Self::Fact(_) => "s.value",
            Self::Flag => "s.flag",
            Self::Incident => "s.incident",
            Self::Hold => "s.matter",
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
        // `offset 0` keeps the planner from turning one look at an index into a join with all runs that have it.
        if scope.each {
            sql.push("exists (select");
        } else {
            sql.push(scope.run).push(" in (select s.run");
        }
        // Another name than that of what leads to the runs, which the test may be about.
        self.push(sql, "s", scope.tenant, false);
        self.push_values(sql, test);
        if scope.each {
            sql.push(" and s.run = ").push(scope.run).push(" offset 0");
        }
        sql.push(")");
        if self == Self::Hold {
            sql.push(" or exists (select from holds s where s.tenant = ");
            sql.push_bind(scope.tenant.to_owned());
            sql.push(" and s.released_index is null and s.run is null");
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
                compare(sql, self.tested(), comparison, &value);
            }
            [value] => compare(sql, self.tested(), comparison, value),
            values => {
                let values: Vec<String> = values.iter().map(Value::as_said).collect();
                sql.push(self.tested()).push(" = any(");
                sql.push_bind(values).push(")");
            }
        }
    }
}
