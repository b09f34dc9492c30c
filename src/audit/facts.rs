//! What is said of a run and of its frames, in columns and rows of their own, against what the frames say.

use super::found::{At, Found};
use crate::store::audit::{FactRow, FrameRow};
use crate::store::facts::{field_no, verdict_no};
use onrecord_core::chain::Chain;
use onrecord_core::coverage::Known;
use onrecord_core::facts::{Fact, FactField, Facts};
use onrecord_core::frame::Frame;
use std::collections::BTreeSet;

/// What the frames of a run say of it, as far as they were read.
#[derive(Default)]
pub(super) struct Said(BTreeSet<Fact>);

/// What a frame says.
pub(super) fn of(frame: &Frame<'_>) -> Facts {
    let body = frame.body.as_bytes();
    Facts::of(frame.kind, frame.actor.kind, body, frame.payloads())
}

impl Said {
    /// The columns of a frame, and what the frame adds.
    pub(super) fn look(&mut self, row: &FrameRow<'_>, facts: Facts, found: &mut Found) {
        let at = |column| At::of("frames", column).seq(row.seq);
        found.column(at("name"), row.name, facts.name.as_deref());
        let verdict = facts.verdict.map(verdict_no);
        found.column(at("verdict"), row.verdict, verdict);
        self.0.extend(facts.of_run);
    }

    /// The rows of a run, all of whose frames were read. What it lacks is said of it once it is sealed.
    pub(super) fn check(
        mut self,
        (chain, sealed): (&Chain, bool),
        rows: &[FactRow],
        found: &mut Found,
    ) {
        if sealed {
            let mut known = Known::of(chain.kinds());
            for fact in &self.0 {
                known.add(fact.field, &fact.value);
            }
            self.0.extend(known.missing().map(Fact::missing));
        }
        let wanted = self
            .0
            .iter()
            .map(|fact| (field_no(fact.field), &*fact.value));
        let wanted: BTreeSet<(i16, &str)> = wanted.collect();
        let mut here = BTreeSet::new();
        let tenant = chain.tenant().as_str();
        for row in rows {
            let said = (row.field, &*row.value);
            if row.tenant != tenant {
                let at = At::of("run_facts", "tenant");
                found.column(at, row.tenant.as_str(), tenant);
            } else if wanted.contains(&said) {
                here.insert(said);
            } else {
                let at = At::of("run_facts", "value");
                found.surplus(
                    at,
                    format!("no frame says {:?} of field {}", said.1, said.0),
                );
            }
        }
        for (field, value) in wanted.difference(&here) {
            let field_of = |fact: &&Fact| field_no(fact.field) == *field;
            let is_missing = self.0.iter().find(field_of);
            let cause = match is_missing.map(|fact| fact.field) {
                Some(FactField::Missing) => format!("the run lacks {value:?}, and no row says so"),
                _ => format!("frames say {value:?}, and no row does in field {field}"),
            };
            found.missing(At::of("run_facts", "value"), cause);
        }
    }
}
