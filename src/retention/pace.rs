//! How fast the sweeper goes: as fast as it can on a machine that is quiet, and seldom and in small pages where agents record.

use crate::record::Recorder;
use std::time::{Duration, Instant};

/// Into how many parts a page is cut while frames are recorded.
const SMALLER: u32 = 25;
/// So many frames a second have it rest for as long as it worked; more of them longer, and fewer shorter.
const AS_LONG: f64 = 1_000.0;
/// How many times as long as it worked it rests at most.
const MOST_REST: f64 = 8.0;
/// How long a round goes on at most, but for the page that it is at: other erasures of the tenant wait for its end.
const ROUND: Duration = Duration::from_secs(10);
/// How many frames an opening, a seal or a reading counts for: it waits for the tenant's lock, as the sweeper does.
const OF_ENTRY: u64 = 10;

/// What bounds the load of the sweeper.
#[derive(Clone, Copy, Debug)]
pub struct SweepLimits {
    /// Payloads a second that are erased at most, all in all; 0 for as many as go.
    pub payloads_per_second: u64,
}

impl SweepLimits {
    /// As many as go.
    pub const NONE: Self = Self {
        payloads_per_second: 0,
    };

    /// How long is rested after a page, and whether the next one is to be a small one.
    fn rest(self, page: Page) -> (Duration, bool) {
        let worked = page.worked.max(Duration::from_micros(1));
        let frames_per_second = page.frames as f64 / worked.as_secs_f64();
        let beside = worked.mul_f64((frames_per_second / AS_LONG).min(MOST_REST));
        let bound = (page.payloads * 1_000_000).checked_div(self.payloads_per_second);
        let bound = bound.map_or(Duration::ZERO, Duration::from_micros);
        let bound = bound.saturating_sub(worked);
        (beside.max(bound), beside > worked / 10 || bound > worked)
    }
}

/// What went on while a page was worked on.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Payloads that were erased.
    payloads: u64,
    /// Frames that were recorded by this process, entries of the ledger among them.
    frames: u64,
    /// How long it took.
    worked: Duration,
}

/// The pace of a round.
pub(super) struct Pace {
    recorder: Recorder,
    limits: SweepLimits,
    round_begun: Instant,
    begun: Instant,
    /// Frames that were recorded until then.
    frames: u64,
    /// Whether to take little at a time, and one thing after the other, so that no more than one core is taken from those who
    /// record. So it begins, until it is known how much that is.
    pub(super) is_calm: bool,
}

impl Pace {
    pub(super) fn of(recorder: &Recorder, limits: SweepLimits) -> Self {
        let begun = Instant::now();
        Self {
            round_begun: begun,
            begun,
            frames: recorded(recorder),
            recorder: recorder.clone(),
            limits,
            is_calm: true,
        }
    }

    /// How much is taken of what would be a page on a machine that is quiet.
    pub(super) fn page(&self, most: u32) -> u32 {
        if self.is_calm {
            (most / SMALLER).max(1)
        } else {
            most
        }
    }

    /// Whether the round is to end here, and the next one to go on.
    pub(super) fn is_over(&self) -> bool {
        self.recorder.is_stopping() || self.round_begun.elapsed() > ROUND
    }

    /// Rests after a page in which so many payloads were erased. Returns how long it took without the rest.
    pub(super) async fn rest(&mut self, payloads: u64) -> Duration {
        let page = Page {
            payloads,
            frames: recorded(&self.recorder).saturating_sub(self.frames),
            worked: self.begun.elapsed(),
        };
        let (rest, is_calm) = self.limits.rest(page);
        self.is_calm = is_calm;
        tokio::time::sleep(rest).await;
        self.begun = Instant::now();
        self.frames = recorded(&self.recorder);
        page.worked
    }
}

/// What the process recorded, in frames.
fn recorded(recorder: &Recorder) -> u64 {
    let figures = &recorder.figures;
    let entries = [&figures.openings, &figures.seals, &figures.readings];
    let entries: u64 = entries.into_iter().map(|one| one.value()).sum();
    figures.frames.value() + OF_ENTRY * entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_in_proportion_to_what_is_recorded_beside_it() {
        for (bound, payloads, frames, worked_ms, rest_ms, is_calm) in [
            (0, 1_000, 0, 100, 0, false),
            (0, 1_000, 5, 100, 5, false),
            (0, 1_000, 100, 100, 100, true),
            (0, 40, 200, 10, 80, true),
            (0, 40, 2, 10, 2, true),
            (1_000, 40, 0, 10, 30, true),
            (1_000, 40, 20, 10, 30, true),
            (1_000, 40, 80, 10, 80, true),
            (9_000, 1_000, 0, 100, 11, false),
            (u64::MAX, 1_000, 0, 100, 0, false),
            (0, 0, u64::MAX, 0, 0, true),
        ] {
            let limits = SweepLimits {
                payloads_per_second: bound,
            };
            let page = Page {
                payloads,
                frames,
                worked: Duration::from_millis(worked_ms),
            };
            let (rest, calm) = limits.rest(page);
            let told = (rest.as_millis(), calm);
            assert_eq!(told, (rest_ms, is_calm), "{page:?} of {bound}");
        }
    }
}
