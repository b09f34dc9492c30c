//! The clocks of a frame: the run's own, and the store's.

use onrecord_core::timestamp::Timestamp;
use serde_json::Value;

/// From which difference on the two times of a frame are both shown, in microseconds.
const SKEW_MICROS: i64 = 5_000_000;

/// The two times of a frame.
#[derive(Clone)]
pub(super) struct Times {
    occurred: Option<Timestamp>,
    at: Option<Timestamp>,
}

impl Times {
    pub(super) fn of(frame: &Value) -> Self {
        let time = |name| frame[name].as_str().and_then(|text| text.parse().ok());
        Self {
            occurred: time("occurred_at"),
            at: time("at"),
        }
    }

    /// The run's own clock.
    pub(super) fn shown(&self, imported: bool) -> Option<Timestamp> {
        self.occurred.or(self.at.filter(|_| !imported))
    }

    /// When the store took it, to the second, where that is another time.
    pub(super) fn recorded(&self) -> Option<String> {
        let (occurred, at) = (self.occurred?, self.at?);
        let differ = (at.micros() - occurred.micros()).abs() > SKEW_MICROS;
        differ.then(|| {
            at.to_string()
                .get(..19)
                .unwrap_or_default()
                .replace('T', " ")
        })
    }

    /// How long it was until another frame, on the clock that both have.
    pub(super) fn until(&self, later: &Self) -> Option<String> {
        let (from, to) = match (self.occurred, later.occurred) {
            (Some(from), Some(to)) => (from, to),
            (None, None) => (self.at?, later.at?),
            // Two clocks have no difference.
            _ => return None,
        };
        let millis = (to.micros() - from.micros()) / 1_000;
        match millis {
            ..1 => None,
            1..1_000 => Some(format!("{millis} ms")),
            1_000..60_000 => Some(format!("{}.{} s", millis / 1_000, millis / 100 % 10)),
            60_000..3_600_000 => Some(format!("{} min {} s", millis / 60_000, millis / 1_000 % 60)),
            _ => Some(format!(
                "{} h {} min",
                millis / 3_600_000,
                millis / 60_000 % 60
            )),
        }
    }
}
