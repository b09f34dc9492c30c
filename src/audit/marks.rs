//! Holds and flags: what the ledger says began and ended, against the tables that decisions are made by.

use super::found::{At, Found};
use crate::store::audit::MarkRow;
use onrecord_core::frame::Actor;
use onrecord_core::id::RunId;
use onrecord_core::statement::{Flag, FlagAction, Hold, HoldAction};
use std::collections::{BTreeMap, HashMap};

/// By what the two statements of a mark belong together: the run, the matter or flag, and the incident.
type Name = (Option<RunId>, String, Option<String>);

/// Marks of one kind, as the entries have them.
#[derive(Default)]
pub(super) struct Marks {
    /// By the index of the statement that each began with.
    said: BTreeMap<i64, MarkRow>,
    /// Those that have not ended.
    standing: HashMap<Name, i64>,
}

impl Marks {
    /// Takes the next statement about a hold.
    pub(super) fn hold(&mut self, index: i64, hold: &Hold) {
        let mark = MarkRow {
            index,
            run: hold.run.clone(),
            what: hold.matter.clone(),
            incident: None,
            reason: hold.reason.clone(),
            at: Some(hold.at.micros()),
            by: Some(names(&hold.by)),
            ..MarkRow::default()
        };
        match hold.action {
            HoldAction::Set => self.begin(mark),
            HoldAction::Released => self.end(mark, hold.with.as_ref().map(names)),
        }
    }

    /// Takes the next statement about a flag.
    pub(super) fn flag(&mut self, index: i64, flag: &Flag) {
        let mark = MarkRow {
            index,
            run: Some(flag.run.clone()),
            what: flag.flag.clone(),
            incident: flag.incident.clone(),
            reason: flag.reason.clone(),
            at: Some(flag.at.micros()),
            by: Some(names(&flag.by)),
            ..MarkRow::default()
        };
        match flag.action {
            FlagAction::Set => self.begin(mark),
            FlagAction::Cleared => self.end(mark, None),
        }
    }

    /// A second beginning says nothing, and neither does the end of what has ended.
    fn begin(&mut self, mark: MarkRow) {
        let name = (mark.run.clone(), mark.what.clone(), mark.incident.clone());
        if let std::collections::hash_map::Entry::Vacant(vacant) = self.standing.entry(name) {
            vacant.insert(mark.index);
            self.said.insert(mark.index, mark);
        }
    }

    fn end(&mut self, mark: MarkRow, with: Option<(String, String)>) {
        let begun = self.standing.remove(&(mark.run, mark.what, mark.incident));
        if let Some(said) = begun.and_then(|index| self.said.get_mut(&index)) {
            said.end_index = Some(mark.index);
            said.end_at = mark.at;
            said.end_by = mark.by;
            said.end_with = with;
        }
    }

    /// Holds the rows of a table against what was said. `columns` are its names of index, matter or flag, and end.
    pub(super) fn check(
        mut self,
        rows: Vec<MarkRow>,
        (table, [index, what, end]): (&'static str, [&'static str; 3]),
        found: &mut Found,
    ) {
        for row in rows {
            let at = |column| At::of(table, column).index(row.index);
            let Some(said) = self.said.remove(&row.index) else {
                found.surplus(at(index), "no entry says that it began");
                continue;
            };
            let begun = |mark: &MarkRow| {
                let mark = mark.clone();
                (
                    mark.run,
                    mark.what,
                    mark.incident,
                    mark.reason,
                    mark.at,
                    mark.by,
                )
            };
            let ended = |mark: &MarkRow| {
                let mark = mark.clone();
                (mark.end_index, mark.end_at, mark.end_by, mark.end_with)
            };
            found.column(at(what), begun(&row), begun(&said));
            found.column(at(end), ended(&row), ended(&said));
        }
        for (missing, said) in self.said {
            let cause = format!("{:?}, which the entry says began, is not there", said.what);
            found.missing(At::of(table, index).index(missing), cause);
        }
    }
}

fn names(actor: &Actor) -> (String, String) {
    (actor.kind.as_str().to_owned(), actor.id.clone())
}
