//! How much of a search is read at once, and when it has taken long enough: a page that is not full by then ends with where it
//! came to.

use std::time::{Duration, Instant};

/// What a page of a search may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Rows that an index leads to, which are looked at before the time is asked for the first time; 1 at least.
    pub first: u32,
    /// How long a page is looked for, about; what was begun is ended.
    pub patience: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            first: 512,
            patience: Duration::from_millis(25),
        }
    }
}

/// Rows of a page, and how far it was looked for.
pub(crate) struct Found<T, K> {
    pub(crate) rows: Vec<T>,
    /// The place up to which there are no others, where the time was up before the page was full; the next page goes on behind it.
    pub(crate) looked_to: Option<K>,
}

impl<T, K> Found<T, K> {
    /// All that there is, or as much as was asked for.
    pub(crate) fn all(rows: Vec<T>) -> Self {
        Self {
            rows,
            looked_to: None,
        }
    }
}

/// The pace of a search: pieces grow as long as there is time for larger ones.
pub(super) struct Pace {
    size: i64,
    begun: Instant,
    end: Instant,
}

impl Pace {
    pub(super) fn new(effort: Effort) -> Self {
        let begun = Instant::now();
        Self {
            size: i64::from(effort.first.max(1)),
            begun,
            end: begun + effort.patience,
        }
    }

    /// How many rows the next piece looks at.
    pub(super) fn size(&self) -> i64 {
        self.size
    }

    /// After a piece: whether there is time for another one, which is as large as the time that is left allows.
    pub(super) fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        let (took, left) = (now - self.begun, self.end.saturating_duration_since(now));
        self.begun = now;
        let fits = left.as_micros().saturating_mul(4) / took.as_micros().max(1);
        // In quarters of the last one; twice as large at most, since what it reads may not be at hand as it was for the last.
        let quarters = i64::try_from(fits.min(8)).unwrap_or(8);
        self.size = self.size.saturating_mul(quarters) / 4;
        quarters > 0 && self.size > 0
    }
}
