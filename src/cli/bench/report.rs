//! What was measured, for people and for programs.

use super::load::Tally;
use super::workload::{Figure, Item, Plan, Ratio};
use crate::store::yardstick::Inserted;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// One measurement of one round. What could not be measured is `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sample {
    /// From the first request to the last answer.
    pub seconds: Number,
    /// Frames that were acknowledged, or rows that were committed.
    pub acked: u64,
    /// Frames that the runs had afterwards.
    pub held: Option<u64>,
    /// Requests that were answered, or transactions.
    pub requests: u64,
    pub per_second: Number,
    pub p50_ms: Option<Number>,
    pub p99_ms: Option<Number>,
    pub p99_9_ms: Option<Number>,
    pub server_cpu_us: Option<Number>,
    pub postgres_cpu_us: Option<Number>,
    pub client_cpu_us: Option<Number>,
    pub frame_bytes: Option<Number>,
    pub stored_bytes: Option<Number>,
    pub wal_bytes: Option<Number>,
    pub refused: BTreeMap<String, u64>,
    pub errors: BTreeMap<String, u64>,
}

/// A number as reports have it: four digits after the point.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(super) struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64((self.0 * 1e4).round() / 1e4)
    }
}

/// A count as a number; counts are far below 2^53.
pub(super) fn count(value: u64) -> f64 {
    value as f64
}

impl Sample {
    pub fn of_frames(tally: Tally) -> Self {
        let mut sample = Self::new(tally.acknowledged, tally.elapsed, &tally.micros);
        sample.client_cpu_us = tally.cpu.and_then(|time| sample.cpu(time));
        sample.refused = tally.refused;
        sample.errors = tally.errors;
        sample
    }

    pub fn of_rows(mut inserted: Inserted) -> Self {
        inserted.micros.sort_unstable();
        Self::new(inserted.rows, inserted.elapsed, &inserted.micros)
    }

    fn new(acked: u64, elapsed: Duration, sorted_micros: &[u32]) -> Self {
        let seconds = elapsed.as_secs_f64();
        let percentile = |per_mille: usize| {
            let last = sorted_micros.len().checked_sub(1)?;
            let micros = sorted_micros.get((sorted_micros.len() * per_mille / 1000).min(last))?;
            Some(Number(f64::from(*micros) / 1e3))
        };
        Self {
            seconds: Number(seconds),
            acked,
            requests: sorted_micros.len() as u64,
            per_second: Number(count(acked) / seconds.max(1e-9)),
            p50_ms: percentile(500),
            p99_ms: percentile(990),
            p99_9_ms: percentile(999),
            ..Self::default()
        }
    }

    /// Processor time as microseconds a frame.
    pub fn cpu(&self, time: Duration) -> Option<Number> {
        self.a_frame(time.as_secs_f64() * 1e6)
    }

    /// So much in all as so much a frame.
    pub fn a_frame(&self, all: f64) -> Option<Number> {
        (self.acked > 0).then(|| Number(all / count(self.acked)))
    }

    fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => Some(self.per_second.0),
            Figure::P50 => self.p50_ms.map(|number| number.0),
            Figure::P99 => self.p99_ms.map(|number| number.0),
        }
    }
}

/// The median of rounds, with the lowest and the highest.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub median: Number,
    pub min: Number,
    pub max: Number,
}

impl Spread {
    /// `None` where no round has a value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        Some(Self {
            median: Number(median),
            min: Number(min),
            max: Number(max),
        })
    }
}

/// All rounds of a workload or a baseline.
pub(super) struct Series {
    pub item: Item,
    pub plan: Plan,
    /// What loaded it: `pgbench` or `own loop`; `None` for the load on the server.
    pub by: Option<&'static str>,
    pub rounds: Vec<Sample>,
}

/// A series as programs read it.
#[derive(Serialize)]
struct Measured<'a> {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    connections: u32,
    runs: u32,
    frames_per_request: u32,
    payload_bytes: usize,
    acked: u64,
    held: Option<u64>,
    refused: BTreeMap<&'a str, u64>,
    errors: BTreeMap<&'a str, u64>,
    frames_per_second: Option<Spread>,
    latency_ms: Latencies,
    cpu_us_per_frame: Cpu,
    bytes_per_frame: Bytes,
    rounds: &'a [Sample],
}

#[derive(Serialize)]
struct Latencies {
    p50: Option<Spread>,
    p99: Option<Spread>,
    p99_9: Option<Spread>,
}

#[derive(Serialize)]
struct Cpu {
    server: Option<Spread>,
    postgres: Option<Spread>,
    client: Option<Spread>,
}

#[derive(Serialize)]
struct Bytes {
    frame: Option<Spread>,
    stored: Option<Spread>,
    wal: Option<Spread>,
}

impl Series {
    pub fn spread(&self, of: impl Fn(&Sample) -> Option<Number>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(of).map(|number| number.0))
    }

    pub fn total(&self, of: impl Fn(&Sample) -> &BTreeMap<String, u64>) -> BTreeMap<&str, u64> {
        let mut total = BTreeMap::new();
        for sample in &self.rounds {
            for name in of(sample).keys() {
                total.entry(name.as_str()).or_default();
            }
        }
        for (name, all) in &mut total {
            *all = self
                .rounds
                .iter()
                .filter_map(|one| of(one).get(*name))
                .sum();
        }
        total
    }

    fn measured(&self) -> Measured<'_> {
        let sum = |of: fn(&Sample) -> u64| self.rounds.iter().map(of).sum();
        Measured {
            name: self.plan.name,
            by: self.by,
            connections: self.plan.connections,
            runs: self.plan.runs,
            frames_per_request: self.plan.frames,
            payload_bytes: self.plan.payload_bytes,
            acked: sum(|one| one.acked),
            held: self.rounds.iter().map(|one| one.held).sum(),
            refused: self.total(|one| &one.refused),
            errors: self.total(|one| &one.errors),
            frames_per_second: self.spread(|one| Some(one.per_second)),
            latency_ms: Latencies {
                p50: self.spread(|one| one.p50_ms),
                p99: self.spread(|one| one.p99_ms),
                p99_9: self.spread(|one| one.p99_9_ms),
            },
            cpu_us_per_frame: Cpu {
                server: self.spread(|one| one.server_cpu_us),
                postgres: self.spread(|one| one.postgres_cpu_us),
                client: self.spread(|one| one.client_cpu_us),
            },
            bytes_per_frame: Bytes {
                frame: self.spread(|one| one.frame_bytes),
                stored: self.spread(|one| one.stored_bytes),
                wal: self.spread(|one| one.wal_bytes),
            },
            rounds: &self.rounds,
        }
    }
}

/// Everything.
pub(super) struct Report {
    pub url: String,
    pub is_private: bool,
    pub seconds: f64,
    pub rounds: u32,
    pub frame_bytes: usize,
    pub ratios: Vec<Ratio>,
    pub series: Vec<Series>,
}

impl Report {
    /// Each ratio that has both its sides, over the rounds.
    pub fn compared(&self) -> Vec<(&str, Spread)> {
        let find = |item: Item| self.series.iter().find(|one| one.item == item);
        let mut compared = Vec::new();
        for ratio in &self.ratios {
            let (Some(of), Some(over)) = (find(ratio.of), find(ratio.over)) else {
                continue;
            };
            let rounds = of.rounds.iter().zip(&over.rounds);
            let values = rounds.filter_map(|(of, over)| {
                let over = over.figure(ratio.figure).filter(|figure| *figure > 0.0)?;
                Some(of.figure(ratio.figure)? / over)
            });
            compared.extend(Spread::of(values).map(|spread| (ratio.name.as_str(), spread)));
        }
        let many = self
            .series
            .iter()
            .find(|one| one.plan.name == "single_many_runs");
        let stored = many.and_then(|many| {
            many.spread(|one| Some(Number(one.stored_bytes?.0 / one.frame_bytes?.0)))
        });
        compared.extend(stored.map(|spread| ("stored_bytes_per_frame_byte", spread)));
        compared
    }

    /// Frames that were acknowledged and are not in their runs.
    pub fn lost(&self) -> u64 {
        let rounds = self.series.iter().flat_map(|one| &one.rounds);
        rounds
            .filter_map(|one| Some(one.acked.saturating_sub(one.held?)))
            .sum()
    }

    /// One document.
    pub fn json(&self) -> anyhow::Result<String> {
        let is_ours = |one: &&Series| matches!(one.item, Item::Ours(_));
        let measured = |ours: bool| -> Vec<Measured<'_>> {
            let series = self.series.iter().filter(|one| is_ours(one) == ours);
            series.map(Series::measured).collect()
        };
        let (mut ratios, mut spreads) = (serde_json::Map::new(), serde_json::Map::new());
        for (name, spread) in self.compared() {
            ratios.insert(name.to_owned(), serde_json::to_value(spread.median)?);
            spreads.insert(name.to_owned(), serde_json::to_value(spread)?);
        }
        let document = serde_json::json!({
            "onrecord": env!("CARGO_PKG_VERSION"),
            "server": {"url": self.url, "private": self.is_private},
            "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "seconds": self.seconds,
            "rounds": self.rounds,
            "frame_bytes": self.frame_bytes,
            "workloads": measured(true),
            "baselines": measured(false),
            "ratios": ratios,
            "ratio_spreads": spreads,
        });
        Ok(format!("{document}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_what_is_there() {
        let of = |values: &[f64]| Spread::of(values.iter().copied()).map(|one| one.median.0);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(3.0));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        let spread = Spread::of([5.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.min.0, spread.max.0), (1.0, 5.0));
    }

    #[test]
    fn percentiles_are_measured_times() {
        let rows = Inserted {
            rows: 1_000,
            micros: (1..=1_000).rev().map(|place| place * 1_000).collect(),
            elapsed: Duration::from_secs(2),
        };
        let sample = Sample::of_rows(rows);
        assert_eq!(sample.per_second.0, 500.0);
        assert_eq!(sample.p50_ms.unwrap().0, 501.0);
        assert_eq!(sample.p99_ms.unwrap().0, 991.0);
        assert_eq!(sample.p99_9_ms.unwrap().0, 1_000.0);
        assert_eq!(Sample::of_rows(Inserted::default()).p50_ms, None);
    }
}
