//! What is measured: kinds of load on the server, plain PostgreSQL beside them, and which is compared with
//! which.

use super::BenchArgs;
use crate::store::yardstick::Insert;

/// A kind of load on the server. Its name stands in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Single frames of many connections into one run
    #[value(name = "single_hot_run")]
    SingleHotRun,
    /// Single frames of many connections over many runs
    #[value(name = "single_many_runs")]
    SingleManyRuns,
    /// Frames in NDJSON batches, each connection into a run of its own
    #[value(name = "batch")]
    Batch,
    /// The same, each frame with a payload
    #[value(name = "payload")]
    Payload,
    /// One client that sends one frame at a time
    #[value(name = "lone")]
    Lone,
}

/// What a plain PostgreSQL does beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    RawSingle,
    RawLone,
    RawBatch,
    RawPayload,
    TriggerHotRun,
    TriggerManyRuns,
}

/// Rows of a statement, and connections, at which plain inserts are about as fast as they get.
const RAW_BATCH: (u32, u32) = (500, 2);

/// How a workload or a baseline is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub name: &'static str,
    pub connections: u32,
    pub runs: u32,
    /// Frames of a request, or rows of a transaction.
    pub frames: u32,
    /// Bytes of the payload of each frame, 0 for none.
    pub payload_bytes: usize,
}

impl Workload {
    /// In the order in which they are measured and reported.
    pub const ALL: [Self; 5] = [
        Self::SingleHotRun,
        Self::SingleManyRuns,
        Self::Batch,
        Self::Payload,
        Self::Lone,
    ];

    pub fn plan(self, args: &BenchArgs) -> Plan {
        let single = Plan {
            name: "single_hot_run",
            connections: args.connections.unwrap_or(64),
            runs: 1,
            frames: 1,
            payload_bytes: 0,
        };
        let connections = args.connections.unwrap_or(16);
        let batch = Plan {
            name: "batch",
            connections,
            runs: connections,
            frames: args.batch,
            payload_bytes: 0,
        };
        match self {
            Self::SingleHotRun => single,
            Self::SingleManyRuns => Plan {
                name: "single_many_runs",
                runs: args.runs,
                ..single
            },
            Self::Batch => batch,
            Self::Payload => Plan {
                name: "payload",
                payload_bytes: args.payload_bytes,
                ..batch
            },
            Self::Lone => Plan {
                name: "lone",
                connections: 1,
                ..single
            },
        }
    }
}

impl Baseline {
    pub const ALL: [Self; 6] = [
        Self::RawSingle,
        Self::RawLone,
        Self::RawBatch,
        Self::RawPayload,
        Self::TriggerHotRun,
        Self::TriggerManyRuns,
    ];

    pub fn plan(self, args: &BenchArgs) -> Plan {
        let like = |workload: Workload, name| Plan {
            name,
            ..workload.plan(args)
        };
        match self {
            Self::RawSingle => like(Workload::SingleManyRuns, "raw_single"),
            Self::RawLone => like(Workload::Lone, "raw_lone"),
            Self::RawBatch => Plan {
                frames: RAW_BATCH.0,
                connections: RAW_BATCH.1,
                runs: RAW_BATCH.1,
                ..like(Workload::Batch, "raw_batch")
            },
            Self::RawPayload => like(Workload::Payload, "raw_payload"),
            Self::TriggerHotRun => like(Workload::SingleHotRun, "trigger_hot_run"),
            Self::TriggerManyRuns => like(Workload::SingleManyRuns, "trigger_many_runs"),
        }
    }

    pub fn insert(self, args: &BenchArgs) -> Insert {
        let plan = self.plan(args);
        match self {
            Self::RawSingle | Self::RawLone => Insert::Row,
            Self::RawBatch => Insert::Guarded(plan.frames),
            Self::RawPayload => Insert::Rows(plan.frames),
            Self::TriggerHotRun | Self::TriggerManyRuns => Insert::Chained(plan.runs),
        }
    }
}

/// What is measured in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Ours(Workload),
    Plain(Baseline),
}

/// Which figure of two measurements is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// Frames or rows a second.
    Rate,
    /// The median of latencies.
    P50,
    /// Their 99th percentile.
    P99,
}

/// A figure of one measurement over that of another, of the same round.
pub(super) struct Ratio {
    pub name: String,
    pub figure: Figure,
    pub of: Item,
    pub over: Item,
}

/// All that is compared.
pub(super) fn ratios(args: &BenchArgs) -> Vec<Ratio> {
    use Baseline::{RawBatch, RawLone, RawPayload, RawSingle, TriggerHotRun, TriggerManyRuns};
    use Item::{Ours, Plain};
    use Workload::{Batch, Lone, Payload, SingleHotRun, SingleManyRuns};
    let payload = match args.payload_bytes {
        bytes if bytes % 1024 == 0 => format!("{}k", bytes / 1024),
        bytes => format!("{bytes}b"),
    };
    let ratio = |name: &str, figure, of, over| Ratio {
        name: name.to_owned(),
        figure,
        of: Ours(of),
        over,
    };
    let batch = format!("batch{}_vs_raw_batch", args.batch);
    let payload = format!("payload_{payload}_vs_raw");
    let rate = |name: &str, of, over| ratio(name, Figure::Rate, of, over);
    vec![
        rate(
            "single_many_runs_vs_raw_single",
            SingleManyRuns,
            Plain(RawSingle),
        ),
        rate(
            "single_hot_run_vs_many_runs",
            SingleHotRun,
            Ours(SingleManyRuns),
        ),
        rate(
            "single_hot_run_vs_trigger",
            SingleHotRun,
            Plain(TriggerHotRun),
        ),
        rate(
            "single_many_runs_vs_trigger",
            SingleManyRuns,
            Plain(TriggerManyRuns),
        ),
        rate(&batch, Batch, Plain(RawBatch)),
        rate(&payload, Payload, Plain(RawPayload)),
        ratio(
            "lone_median_vs_raw_single",
            Figure::P50,
            Lone,
            Plain(RawLone),
        ),
        ratio(
            "p99_vs_raw_single",
            Figure::P99,
            SingleManyRuns,
            Plain(RawSingle),
        ),
    ]
}

/// What is measured: the workloads that were asked for, and the baselines that they are compared with.
pub(super) fn items(args: &BenchArgs) -> Vec<Item> {
    let is_wanted = |one: Workload| args.workload.is_empty() || args.workload.contains(&one);
    let ours = Workload::ALL.into_iter().filter(|one| is_wanted(*one));
    let mut items: Vec<Item> = ours.map(Item::Ours).collect();
    if args.baseline {
        let ratios = ratios(args);
        let is_compared = |one: &Baseline| {
            let item = Item::Plain(*one);
            let mut with = ratios.iter().filter(|ratio| ratio.over == item);
            with.any(|ratio| items.contains(&ratio.of))
        };
        let plain: Vec<Baseline> = Baseline::ALL.into_iter().filter(is_compared).collect();
        items.extend(plain.into_iter().map(Item::Plain));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn args(flags: &[&str]) -> BenchArgs {
        let words = ["onrecord", "bench"].iter().chain(flags);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Bench(args) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn ratios_have_the_names_that_programs_ask_for() {
        let names: Vec<String> = ratios(&args(&[])).into_iter().map(|one| one.name).collect();
        assert_eq!(
            names,
            [
                "single_many_runs_vs_raw_single",
                "single_hot_run_vs_many_runs",
                "single_hot_run_vs_trigger",
                "single_many_runs_vs_trigger",
                "batch100_vs_raw_batch",
                "payload_8k_vs_raw",
                "lone_median_vs_raw_single",
                "p99_vs_raw_single",
            ]
        );
        let all = items(&args(&["--baseline"]));
        for ratio in ratios(&args(&[])) {
            assert!(
                all.contains(&ratio.of) && all.contains(&ratio.over),
                "{}",
                ratio.name
            );
        }
    }

    #[test]
    fn only_what_is_compared_is_measured() {
        let few = args(&["--baseline", "--workload", "lone", "--workload", "batch"]);
        let (ours, plain) = (Item::Ours, Item::Plain);
        assert_eq!(
            items(&few),
            [
                ours(Workload::Batch),
                ours(Workload::Lone),
                plain(Baseline::RawLone),
                plain(Baseline::RawBatch),
            ]
        );
        assert_eq!(items(&args(&[])).len(), Workload::ALL.len());
    }
}
