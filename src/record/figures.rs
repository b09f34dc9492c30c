//! What a process counts of its own work, for whoever watches it: numbers that are added to without a lock, and hold nothing of
//! any tenant. They begin at 0 with the process.

use super::{RecordError, Recorder, commit};
use crate::store;
use crate::store::gauges::Gauges;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the latencies that are told apart, in microseconds.
pub(crate) const BOUNDS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// How much there is of some things, of all tenants together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllGauges {
    pub(crate) tenants: u64,
    pub(crate) sum: Gauges,
}

impl Recorder {
    /// Asks the database how much there is of some things.
    ///
    /// # Errors
    /// The database.
    pub(crate) async fn gauges(&self) -> Result<AllGauges, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut all = AllGauges::default();
            for (tenant, _) in recorder.store.tenants().await? {
                let mut tx = recorder.store.snapshot(&tenant).await?;
                let more = store::gauges::read(&mut tx, &tenant).await?;
                commit(tx).await?;
                let sum = &mut all.sum;
                all.tenants += 1;
                sum.entries += more.entries;
                sum.open_runs += more.open_runs;
                sum.unstated_runs += more.unstated_runs;
                sum.holds += more.holds;
                sum.erasing += more.erasing;
                sum.expired_runs += more.expired_runs;
            }
            Ok(all)
        })
        .await
    }

    /// Submissions of frames that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.sequencer.queued()
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Frames that were appended and are durable; those of openings and seals are not among them.
    pub(crate) frames: Counter,
    /// Batches that were written, and how long each took.
    pub(crate) batches: Histogram,
    /// From when frames were handed over until they were durable or refused.
    pub(crate) appends: Histogram,
    /// Runs that were opened.
    pub(crate) openings: Counter,
    /// Runs that were sealed.
    pub(crate) seals: Counter,
    /// Readings of payloads, and exports with payloads, that were entered into a ledger.
    pub(crate) readings: Counter,
    /// Payloads that expired and were erased.
    pub(crate) expired: Counter,
    /// Requests that were refused or not done, by the code of the problem. There are some hundred codes, and a refusal is seldom
    /// enough for a lock.
    refused: Mutex<BTreeMap<String, u64>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Of each bound those that were not longer, and longer than the bound before; behind them all that were longer.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Figures {
    /// Counts a refusal.
    pub(crate) fn refuse(&self, code: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused.get_mut(code) {
            Some(count) => *count += 1,
            None => {
                refused.insert(code.to_owned(), 1);
            }
        }
    }

    /// Refusals by code.
    pub(crate) fn refused(&self) -> BTreeMap<String, u64> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.clone()
    }
}

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Histogram {
    /// Counts something that took so long.
    pub(crate) fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS_US.partition_point(|bound| *bound < micros);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Of each bound how many were not longer, how many there were in all, and how many microseconds they took together.
    pub(crate) fn read(&self) -> ([u64; BOUNDS_US.len()], u64, u64) {
        let mut below = [0; BOUNDS_US.len()];
        let mut sum = 0;
        for (place, count) in self.counts.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            if let Some(below) = below.get_mut(place) {
                *below = sum;
            }
        }
        (below, sum, self.sum_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_their_bounds() {
        let times = Histogram::default();
        for micros in [500, 501, 1_000, 20_000_000] {
            times.took(Duration::from_micros(micros));
        }
        let (below, all, sum) = times.read();
        assert_eq!((below[0], below[1], below[13]), (1, 3, 3));
        assert_eq!((all, sum), (4, 20_002_001));
    }

    #[test]
    fn refusals_are_counted_by_their_codes() {
        let figures = Figures::default();
        for code in ["sealed", "no_run", "sealed"] {
            figures.refuse(code);
        }
        let refused = figures.refused();
        assert_eq!((refused["sealed"], refused["no_run"]), (2, 1));
    }
}
