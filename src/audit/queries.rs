//! Questions over many runs: what the ledger says was asked, against the texts beside it. A text may be removed, since it may
//! name people; one that is there has to be the one that was asked.

use super::found::{At, Found};
use crate::store::StoreError;
use crate::store::audit::QueryRow;
use crate::store::copy::Copy;
use onrecord_core::digest::Hash;
use onrecord_core::statement::Query;
use std::collections::HashMap;

/// Questions by the indexes of their entries, with the digests of their texts.
#[derive(Default)]
pub(super) struct Queries(HashMap<i64, (Query, Hash)>);

impl Queries {
    /// Takes the next statement about one.
    pub(super) fn query(&mut self, index: i64, query: Query, text: Hash) {
        self.0.insert(index, (query, text));
    }

    /// Holds the rows of the table against what was said.
    pub(super) async fn check(
        self,
        mut rows: Copy<'_>,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        while let Some(row) = rows.next().await? {
            let row = QueryRow::read(&row)?;
            let at = |column| At::of("queries", column).index(row.index);
            let Some((query, text)) = self.0.get(&row.index) else {
                found.surplus(at("ledger_index"), "no entry says that it was asked");
                continue;
            };
            found.digest(at("text"), &Hash::of(&[row.text]).0, text);
            found.column(at("at"), row.at, query.at.micros());
            found.column(at("resource"), row.resource, query.resource.as_str());
            found.column(at("purpose"), row.purpose, query.purpose.as_str());
            let by = (query.by.kind.as_str(), query.by.id.as_str());
            found.column(at("actor_id"), row.by, by);
        }
        Ok(())
    }
}
