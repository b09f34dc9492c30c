//! Times of the format: RFC 3339, UTC, exactly six fraction digits (spec: `docs/spec/frames.md`).

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z; what Postgres keeps, so nothing is lost on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is not `YYYY-MM-DDThh:mm:ss.ffffffZ`, or no such day or time exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a UTC time with six fraction digits, such as 2026-08-09T11:00:00.000000Z")]
pub struct BadTimestamp;

const SECOND: i64 = 1_000_000;
/// 0000-01-01 and the last microsecond of 9999, which is what four year digits can say.
const RANGE: core::ops::RangeInclusive<i64> =
    -62_167_219_200 * SECOND..=253_402_300_800 * SECOND - 1;

impl Timestamp {
    /// The beginning of the year 0000, before which no time is.
    pub const MIN: Self = Self(*RANGE.start());

    /// From microseconds since 1970; `None` outside the years 0000 to 9999.
    pub fn from_micros(micros: i64) -> Option<Self> {
        RANGE.contains(&micros).then_some(Self(micros))
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date (the era method: 400 years are 146,097 days).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Days of a month, 1 to 12.
fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The date of a day number: the inverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

impl Timestamp {
    /// The text, as ASCII.
    pub fn text(self) -> [u8; 27] {
        let seconds = self.seconds();
        let (year, month, day) = date(seconds.div_euclid(86_400));
        let clock = seconds.rem_euclid(86_400);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let mut put = |from: usize, to: usize, mut value: i64| {
            for digit in text[from..to].iter_mut().rev() {
                *digit += (value % 10) as u8;
                value /= 10;
            }
        };
        put(0, 4, year);
        put(5, 7, month);
        put(8, 10, day);
        put(11, 13, clock / 3_600);
        put(14, 16, clock / 60 % 60);
        put(17, 19, clock % 60);
        put(20, 26, self.0.rem_euclid(SECOND));
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(core::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        let bytes: &[u8; 27] = text.as_bytes().try_into().map_err(|_| BadTimestamp)?;
        // Every frame has two times: all is read before it is asked whether it is well.
        let mut wrong = false;
        let mut number = |from: usize, to: usize| {
            bytes[from..to].iter().fold(0, |sum, byte| {
                let digit = byte.wrapping_sub(b'0');
                wrong |= digit > 9;
                sum * 10 + i64::from(digit)
            })
        };
        let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
        let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
        let micros = number(20, 26);
        for (place, want) in [4, 7, 10, 13, 16, 19, 26].into_iter().zip(*b"--T::.Z") {
            wrong |= bytes[place] != want;
        }
        // A leap second has no place in an order of microseconds: 60 is refused.
        if wrong
            || hour > 23
            || minute > 59
            || second > 59
            || !(1..=12).contains(&month)
            || !(1..=days_in(year, month)).contains(&day)
        {
            return Err(BadTimestamp);
        }
        let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
        Ok(Self(seconds * SECOND + micros))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = alloc::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl From<Timestamp> for String {
    fn from(timestamp: Timestamp) -> Self {
        format!("{timestamp}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_day_of_ten_thousand_years_round_trips() {
        for day in days(0, 1, 1)..=days(9999, 12, 31) {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
            assert!((1..=days_in(year, month)).contains(&of_month));
            let ends = date(day + 1).2 == 1;
            assert_eq!(of_month == days_in(year, month), ends);
        }
    }

    #[test]
    fn text_round_trips_and_nothing_else_is_taken() {
        for text in [
            "2026-08-09T11:00:00.000000Z",
            "0000-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
            "1969-12-31T23:59:59.999999Z",
            "2024-02-29T00:00:00.000001Z",
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        }
        for text in [
            "2026-08-09",
            "2026-08-09T11:00:00Z",
            "2026-08-09T11:00:00.0000000Z",
            "2026-08-09T24:00:00.000000Z",
            "2026-02-30T11:00:00.000000Z",
            "2023-02-29T11:00:00.000000Z",
            "2026-08-09t11:00:00.000000z",
            "2026-08-09T11:00:00.000000+00:00",
            "2026-08-09T23:59:60.000000Z",
            "2026-00-09T11:00:00.000000Z",
            "2026-08-00T11:00:00.000000Z",
            "2026-08-09T11:60:00.000000Z",
            "",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(BadTimestamp), "{text}");
        }
    }
}
