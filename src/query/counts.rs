//! Counts of rows in groups.

use super::filter::{self, BadFilter, Fields};
use super::resource::Resource;
use super::table::{Cell, Column, ColumnType, Row};
use crate::access::Caller;
use crate::record::{RecordError, Recorder};
use crate::store::StoreError;
use crate::store::search::condition::Condition;
use crate::store::search::counts::{By, GROUPS, GroupKey, Of, Unit, count};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Fields and units that rows are counted by at most.
const KEYS: usize = 3;

/// What is counted, and by what.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    resource: Resource,
    condition: Condition,
    by: Vec<(&'static str, By)>,
}

/// Groups under columns.
pub(crate) struct Counted {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Whether there are more groups.
    pub(crate) cut_off: bool,
}

/// The names that rows may be counted by, of each resource: a column's name lives as long as the program.
static NAMES: LazyLock<BTreeMap<&'static str, BTreeMap<String, By>>> = LazyLock::new(|| {
    let all = Resource::ALL.into_iter();
    all.map(|resource| (resource.as_str(), names(resource.fields())))
        .collect()
});

fn names(fields: Fields) -> BTreeMap<String, By> {
    let units = [
        ("hour", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
    ];
    let units = units.map(|(name, unit)| (name.to_owned(), By::Time(unit)));
    let fields = fields.iter().flat_map(|(prefix, fields)| {
        let countable = fields.iter().filter(|field| field.is_countable());
        countable.map(move |field| (format!("{prefix}{}", field.name), By::Field(field)))
    });
    fields.chain(units).collect()
}

impl Counts {
    /// What `by` names, separated by commas; nothing, to count all rows together.
    ///
    /// # Errors
    /// The filter is none.
    pub(crate) fn new(
        resource: Resource,
        filter: Option<&str>,
        by: &str,
    ) -> Result<Result<Self, String>, BadFilter> {
        let condition = filter.map(|text| filter::parse(text, resource.fields()));
        let condition = condition.transpose()?.unwrap_or_else(Condition::always);
        Ok(keys(resource, by).map(|by| Self {
            resource,
            condition,
            by,
        }))
    }

    /// The names that it counts by.
    pub(crate) fn by(&self) -> Vec<String> {
        self.by.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Counts.
    ///
    /// # Errors
    /// [`RecordError::TooSlow`], and the database.
    pub(crate) async fn count(
        &self,
        recorder: &Recorder,
        caller: &Caller,
    ) -> Result<Counted, RecordError> {
        let (store, tenant) = (recorder.store().clone(), caller.tenant.clone());
        let (of, condition) = (self.of(), self.condition.clone());
        let by: Vec<By> = self.by.iter().map(|(_, by)| *by).collect();
        let work = async move {
            let mut tx = store.snapshot(&tenant).await?;
            let groups = count(&mut tx, &tenant, of, &condition, &by).await;
            let groups = groups.map_err(RecordError::of_search)?;
            tx.commit().await.map_err(StoreError::from)?;
            Ok(groups)
        };
        let mut groups = recorder.detached(work).await?;
        let cut_off = groups.len() > GROUPS;
        groups.truncate(GROUPS);
        let column = |(name, by): &(&'static str, By)| Column {
            name,
            kind: match by {
                By::Field(_) => ColumnType::Text,
                By::Time(_) => ColumnType::Time,
            },
        };
        let count = Column {
            name: "count",
            kind: ColumnType::Number,
        };
        let rows = groups.into_iter().map(|group| {
            let keys = group.keys.into_iter().map(|key| match key {
                GroupKey::Text(text) => text.map_or(Cell::Null, Cell::Text),
                GroupKey::Time(time) => Cell::Time(time),
            });
            keys.chain([Cell::Number(group.count)]).collect()
        });
        Ok(Counted {
            columns: self.by.iter().map(column).chain([count]).collect(),
            rows: rows.collect(),
            cut_off,
        })
    }

    fn of(&self) -> Of {
        match self.resource {
            Resource::Runs => Of::Runs,
            Resource::Frames => Of::Frames,
            Resource::PayloadRecords => Of::Payloads,
        }
    }
}

fn keys(resource: Resource, by: &str) -> Result<Vec<(&'static str, By)>, String> {
    let known = NAMES.get(resource.as_str());
    let known = known.ok_or_else(|| "nothing".to_owned())?;
    let mut found: Vec<(&'static str, By)> = Vec::new();
    for name in by.split(',').filter(|name| !name.is_empty()) {
        let key = known.get_key_value(name);
        let is_new = |(name, _): &(&String, &By)| found.iter().all(|(one, _)| one != name);
        let key = key.filter(is_new).ok_or_else(|| {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            format!(
                "up to {KEYS} of {}, each once, separated by commas",
                names.join(", ")
            )
        })?;
        found.push((key.0, *key.1));
    }
    if found.len() > KEYS {
        return Err(format!("up to {KEYS} names, separated by commas"));
    }
    Ok(found)
}
