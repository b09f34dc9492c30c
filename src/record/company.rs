//! Company: for how many a lane waits before it writes the next batch.
//!
//! Those who were answered with a batch mostly come back at once with their next frame. If the lane writes what waits
//! at that moment, two cohorts form: each waits while the other is written, and each pays for a batch of its own. A
//! moment's wait makes them one. Whoever is alone never waits, and nobody waits for those who do not come.

use std::time::Duration;

/// A batch that takes less is not worth waiting for company: a wait in vain would be longer than it.
const SLOW: Duration = Duration::from_micros(600);
/// A batch of so many frames shares its costs among enough.
const ENOUGH: usize = 128;
/// How many batches are not waited with after a wait in vain; after each further one twice as many.
const IN_VAIN: u32 = 16;
/// Doublings at most.
const DOUBLED: u32 = 6;
/// How long a lane waits at most. Timers count in milliseconds, so that it may be one more.
pub(super) const WAIT: Duration = Duration::from_millis(1);

/// What the last batches say of the next.
#[derive(Debug, Default)]
pub(super) struct Company {
    submissions: usize,
    frames: usize,
    took: Duration,
    /// Waits in vain, one after the other.
    in_vain: u32,
    /// Batches that are still not waited with.
    pause: u32,
}

impl Company {
    /// A batch was taken.
    pub(super) fn taken(&mut self, submissions: usize, frames: usize) {
        (self.submissions, self.frames) = (submissions, frames);
    }

    /// It was written in this time.
    pub(super) fn written(&mut self, took: Duration) {
        self.took = took;
    }

    /// With how many submissions the next batch is to begin, of which so many wait; `None`: with those.
    pub(super) fn wanted(&mut self, waiting: usize) -> Option<usize> {
        if self.submissions < 2 || self.frames >= ENOUGH || self.took < SLOW {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        // One in eight may take longer.
        Some(waiting + self.submissions - self.submissions / 8)
    }

    /// How many came while they were waited for. Fewer than half of those who were answered are not worth the time.
    pub(super) fn came(&mut self, came: usize) {
        if came * 2 >= self.submissions {
            self.in_vain = 0;
        } else {
            self.pause = IN_VAIN << self.in_vain.min(DOUBLED);
            self.in_vain = self.in_vain.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(submissions: usize, frames: usize, took: Duration) -> Company {
        let mut company = Company::default();
        company.taken(submissions, frames);
        company.written(took);
        company
    }

    #[test]
    fn those_who_were_answered_are_waited_for_beside_those_who_wait() {
        assert_eq!(after(16, 16, SLOW).wanted(10), Some(24));
        assert_eq!(after(2, 2, SLOW).wanted(0), Some(2));
    }

    #[test]
    fn nobody_is_waited_for_where_it_does_not_pay() {
        assert_eq!(Company::default().wanted(3), None);
        assert_eq!(after(1, 1, SLOW).wanted(0), None);
        assert_eq!(after(2, ENOUGH, SLOW).wanted(0), None);
        assert_eq!(after(16, 16, SLOW / 2).wanted(0), None);
    }

    #[test]
    fn a_wait_in_vain_is_not_soon_repeated() {
        let mut company = after(4, 4, SLOW);
        let mut pauses = |came: bool| {
            let came = if came { 2 } else { 1 };
            company.came(came);
            (0..).take_while(|_| company.wanted(0).is_none()).count()
        };
        assert_eq!(pauses(false), 16);
        assert_eq!(pauses(false), 32);
        assert_eq!(pauses(true), 0);
        assert_eq!(pauses(false), 16);
        for _ in 0..40 {
            pauses(false);
        }
        assert_eq!(pauses(false), 16 << DOUBLED);
    }
}
