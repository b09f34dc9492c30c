//! How fast the sweeper goes: as fast as it can on a machine that is quiet, and seldom and in small pages where agents record.

use crate::record::Recorder;
use std::time::{Duration, Instant};

/// Into how many parts a page is cut while frames are recorded.
const SMALLER: u32 = 25;
/// So many frames a second have it rest for as long as it worked; more of them longer, and fewer shorter.
const AS_LONG: f64 = 1_000.0;
/// How many times as long as it worked it rests at most.
const MOST_REST: f64 = 8.0;

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

    /// How long is rested after a page.
    fn rest(self, page: Page) -> Duration {
        let worked = page.worked.max(Duration::from_micros(1));
        let frames_per_second = page.frames as f64 / worked.as_secs_f64();
        let beside = worked.mul_f64((frames_per_second / AS_LONG).min(MOST_REST));
        let bound = (page.payloads * 1_000_000).checked_div(self.payloads_per_second);
        let bound = bound.map_or(Duration::ZERO, Duration::from_micros);
        beside.max(bound.saturating_sub(worked))
    }
}

/// What went on while a page was worked on.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Payloads that were erased.
    payloads: u64,
    /// Frames that were recorded by this process.
    frames: u64,
    /// How long it took.
    worked: Duration,
}

/// The pace of a round.
pub(super) struct Pace {
    recorder: Recorder,
    limits: SweepLimits,
    begun: Instant,
    /// Frames that were recorded until then.
    frames: u64,
    /// Whether to take little at a time, and one thing after the other, so that no more than one core is taken from those who
    /// record. So it begins, until it is known how much is recorded.
    pub(super) is_calm: bool,
}

impl Pace {
    pub(super) fn of(recorder: &Recorder, limits: SweepLimits) -> Self {
        Self {
            begun: Instant::now(),
            frames: recorder.figures.frames.value(),
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

    /// Rests after a page in which so many payloads were erased. Returns how long it took without the rest.
    pub(super) async fn rest(&mut self, payloads: u64) -> Duration {
        let page = Page {
            payloads,
            frames: self.recorder.figures.frames.value() - self.frames,
            worked: self.begun.elapsed(),
        };
        let rest = self.limits.rest(page);
        self.is_calm = rest > page.worked;
        tokio::time::sleep(rest).await;
        self.begun = Instant::now();
        self.frames = self.recorder.figures.frames.value();
        page.worked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_in_proportion_to_what_is_recorded_beside_it() {
        for (bound, payloads, frames, worked_ms, rest_ms) in [
            (0, 1_000, 0, 100, 0),
            (0, 1_000, 100, 100, 100),
            (0, 40, 200, 10, 80),
            (0, 40, 2, 10, 2),
            (1_000, 40, 0, 10, 30),
            (1_000, 40, 20, 10, 30),
            (1_000, 40, 80, 10, 80),
            (u64::MAX, 1_000, 0, 100, 0),
            (0, 0, u64::MAX, 0, 0),
        ] {
            let limits = SweepLimits {
                payloads_per_second: bound,
            };
            let page = Page {
                payloads,
                frames,
                worked: Duration::from_millis(worked_ms),
            };
            assert_eq!(
                limits.rest(page).as_millis(),
                rest_ms,
                "{page:?} of {bound}"
            );
        }
    }
}
