//! The entries that a monitor believes, and what they say against the rules.

use super::alarm::{Alarm, LEFT_OPEN};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::Frontier;
use onrecord_core::timestamp::Timestamp;
use onrecord_verify::{LedgerWalk, Trust};
use std::collections::BTreeMap;
use std::time::Duration;

/// Alarms about entries that are kept; more are counted.
const ALARMS: usize = 1_000;
/// The entries that are believed, as far as they are needed.
pub(super) struct Ledger {
    pub(super) walk: LedgerWalk,
    pub(super) tree: Frontier,
    /// Hashes of the complete nodes of each level that is a multiple of 8.
    pub(super) nodes: BTreeMap<u8, Vec<Hash>>,
    pub(super) alarms: Vec<Alarm>,
    pub(super) more: u64,
}

impl Ledger {
    /// A ledger of this origin without entries.
    pub(super) fn new(origin: &str) -> Self {
        Self {
            walk: LedgerWalk::new(origin),
            tree: Frontier::new(),
            nodes: BTreeMap::new(),
            alarms: Vec::new(),
            more: 0,
        }
    }

    /// The next entry.
    pub(super) fn read(&mut self, bytes: &[u8], origin: &str, trust: &Trust) {
        let index = self.tree.size();
        let nodes = &mut self.nodes;
        self.tree.push_with(leaf_hash(bytes), |level, _, hash| {
            if level % 8 == 0 {
                nodes.entry(level).or_default().push(hash);
            }
        });
        for (number, finding) in self.walk.read(bytes, Some(trust)).into_iter().enumerate() {
            if self.alarms.len() >= ALARMS {
                self.more += 1;
                continue;
            }
            self.alarms.push(Alarm {
                alarm: finding.code.as_str().to_owned(),
                origin: origin.to_owned(),
                index: Some(index),
                run: None,
                size: None,
                cause: finding.cause,
                evidence: None,
                mark: format!("{index}-{number}"),
            });
        }
    }

    /// Runs that were opened long ago and have no seal.
    pub(super) fn left_open(
        &self,
        origin: &str,
        (now, after): (Timestamp, Duration),
    ) -> Vec<Alarm> {
        let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
        let late = self.walk.runs().filter(|(_, run)| {
            !run.sealed && now.micros().saturating_sub(run.opened_at.micros()) > after
        });
        late.take(ALARMS)
            .map(|(id, run)| Alarm {
                alarm: LEFT_OPEN.to_owned(),
                origin: origin.to_owned(),
                index: Some(run.open_index),
                run: Some(id.to_string()),
                size: None,
                cause: format!("opened at {} and not sealed", run.opened_at),
                evidence: None,
                mark: id.to_string(),
            })
            .collect()
    }
}
