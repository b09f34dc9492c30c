//! The complete nodes of a tree that a table keeps, against the tree.

use super::found::{At, Found};
use crate::store::StoreError;
use crate::store::audit::NodeRow;
use crate::store::copy::Copy;
use onrecord_core::digest::{Hash, node_hash};

/// A table of nodes.
pub(super) struct Nodes {
    pub(super) table: &'static str,
    /// Its lowest level.
    pub(super) level: i16,
    /// Whether all of them have to be there.
    pub(super) all: bool,
}

impl Nodes {
    /// Compares rows, which come by level and index, with the nodes of the lowest level and those above them.
    pub(super) async fn check(
        &self,
        mut rows: Copy<'_>,
        mut nodes: Vec<Hash>,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let (mut level, mut next) = (self.level, 0_usize);
        while let Some(row) = rows.next().await? {
            let row = NodeRow::read(&row)?;
            while row.level > level && !nodes.is_empty() {
                self.missing(level, next..nodes.len(), found);
                nodes = above(&nodes);
                (level, next) = (level + 1, 0);
            }
            let place = usize::try_from(row.index).ok();
            let place = place.filter(|place| row.level == level && *place >= next);
            match place.and_then(|place| Some((place, nodes.get(place)?))) {
                Some((place, hash)) => {
                    self.missing(level, next..place, found);
                    found.digest(self.at("hash", row.index), &row.hash, hash);
                    next = place + 1;
                }
                None => {
                    let cause = format!(
                        "the tree has no complete node {} of level {}",
                        row.index, row.level
                    );
                    found.surplus(self.at("idx", row.index), cause);
                }
            }
        }
        while !nodes.is_empty() {
            self.missing(level, next..nodes.len(), found);
            nodes = above(&nodes);
            (level, next) = (level + 1, 0);
        }
        Ok(())
    }

    fn at(&self, column: &'static str, index: i64) -> At {
        At::of(self.table, column).index(index)
    }

    fn missing(&self, level: i16, places: std::ops::Range<usize>, found: &mut Found) {
        for index in places.filter(|_| self.all) {
            let cause = format!("no node {index} of level {level}");
            let index = i64::try_from(index).unwrap_or(i64::MAX);
            found.missing(self.at("hash", index), cause);
        }
    }
}

/// The complete nodes of the next level.
fn above(nodes: &[Hash]) -> Vec<Hash> {
    let pairs = nodes.as_chunks::<2>().0;
    pairs
        .iter()
        .map(|[left, right]| node_hash(left, right))
        .collect()
}
