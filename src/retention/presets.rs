//! Policies to begin with, each with the law that it comes from. The laws say how long records are kept at least: so these
//! have floors, and whoever uses one adds from when on things go.

use super::policy::{Document, Schedule, Term, Tiers, Trigger};

/// Six months, whichever they are.
const SIX_MONTHS: u32 = 184;
/// A year with a leap day in it, and so on.
const ONE_YEAR: u32 = 366;
const THREE_YEARS: u32 = 1_096;
const SIX_YEARS: u32 = 2_192;

/// All presets, each a policy with one schedule, which is its default.
pub fn presets() -> Vec<Document> {
    let floor = |floor_days| Term {
        trigger: Trigger::Sealed,
        floor_days,
        ceiling_days: None,
    };
    let window = Term {
        trigger: Trigger::Opened,
        floor_days: 0,
        ceiling_days: Some(30),
    };
    let all = |term| [Some(term); 3];
    vec![
        preset(
            "eu-ai-act",
            "Regulation (EU) 2024/1689, Art. 19(1) and Art. 26(6): logs are kept for at least six months",
            all(floor(SIX_MONTHS)),
        ),
        preset(
            "hipaa",
            "45 CFR 164.316(b)(2)(i): six years from the creation of a record, or from when it last was in effect",
            all(floor(SIX_YEARS)),
        ),
        preset(
            "sec-17a-4",
            "17 CFR 240.17a-4(a), (b)(4) and (f): six years for records, three for communications, not rewriteable and not erasable meanwhile",
            [
                Some(floor(SIX_YEARS)),
                Some(floor(SIX_YEARS)),
                Some(floor(THREE_YEARS)),
            ],
        ),
        preset(
            "pci-dss",
            "PCI DSS v4.0, requirement 10.5.1: audit logs are kept for at least 12 months",
            all(floor(ONE_YEAR)),
        ),
        preset(
            "debug-30d",
            "No law: what is recorded for debugging goes 30 days after its run was opened; tier 1 stays",
            [None, Some(window), Some(window)],
        ),
    ]
}

fn preset(name: &str, source: &str, terms: [Option<Term>; 3]) -> Document {
    let [decisions, evidence, forensic] = terms;
    Document {
        schedules: vec![Schedule {
            name: name.to_owned(),
            source: Some(source.to_owned()),
            erase: None,
            tiers: Tiers {
                decisions,
                evidence,
                forensic,
            },
            sample: None,
        }],
        rules: Vec::new(),
        default: Some(name.to_owned()),
        classes: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Policy;
    use super::*;

    #[test]
    fn every_preset_is_a_policy_that_states_its_source() {
        for document in presets() {
            let policy = Policy::of(document).unwrap();
            let schedule = &policy.document.schedules[0];
            assert!(schedule.source.is_some(), "{}", schedule.name);
            assert_eq!(policy.default, Some(0));
        }
    }
}
