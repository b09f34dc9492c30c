//! Questions about text that the rest of the room asks: what may stand in a body, what a JSON
//! string can carry, and how a time of a transcript is spelled in a frame.

use serde_json::Value;

/// Whether a JSON string carries this text: no noncharacters (which the strict reader refuses), and
/// not so many escapes that base64 would be shorter.
pub fn travels(text: &str) -> bool {
    let escapes: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
            0..=31 => 5,
            _ => 0,
        })
        .sum();
    escapes <= text.len() / 3 + 64 && !text.chars().any(is_noncharacter)
}

/// Whether this is one of the 66 code points that are never characters.
fn is_noncharacter(character: char) -> bool {
    let code = u32::from(character);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// Whether the text can stand in a body: not empty, at most `chars` characters, none of them a
/// control or a noncharacter.
pub fn is_label(text: &str, chars: usize) -> bool {
    !text.is_empty()
        && text.chars().count() <= chars
        && !text
            .chars()
            .any(|one| one.is_control() || is_noncharacter(one))
}

/// A time of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// As a frame spells it: UTC, six fraction digits (finer ones are cut off). `None` where the
    /// transcript does not say in which zone it is, so that it is nobody's instant.
    pub at: Option<String>,
    /// The transcript's own spelling, where `at` does not say all of it: another offset than UTC, a
    /// finer fraction, a number.
    pub spelling: Option<String>,
}

/// Reads a time. `None` where it is neither RFC 3339 nor a date and time without a zone; the record then
/// keeps it as it is.
pub fn written_time(text: &str) -> Option<Written> {
    let spelled = || is_label(text, 64).then(|| text.to_owned());
    let Ok(instant) = text.parse::<jiff::Timestamp>() else {
        // A date alone, or any other text, is no time of an event.
        let local = text.contains(':') && text.parse::<jiff::civil::DateTime>().is_ok();
        return local.then(|| Written {
            at: None,
            spelling: spelled(),
        });
    };
    let at = onrecord_core::timestamp::Timestamp::from_micros(instant.as_microsecond())?;
    let utc = text.ends_with('Z') || text.ends_with('z');
    let says_all = utc && instant.subsec_nanosecond() % 1_000 == 0;
    Some(Written {
        at: Some(at.to_string()),
        spelling: spelled().filter(|_| !says_all),
    })
}

/// Reads a time that is counted in milliseconds (or, below 10¹¹, in seconds) since 1970, UTC.
pub fn counted_time(value: &Value) -> Option<Written> {
    let number = value.as_f64()?;
    let millis = if number.abs() < 1e11 {
        number * 1_000.0
    } else {
        number
    };
    // Exact to the microsecond for any time that a clock shows; out of range saturates and is refused.
    let at = onrecord_core::timestamp::Timestamp::from_micros((millis * 1_000.0).round() as i64)?;
    Some(Written {
        at: Some(at.to_string()),
        spelling: Some(value.to_string()),
    })
}

/// A Claude Code session is named by a UUID.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_frames_spell_them() {
        let some = |text: &str| Some(text.to_owned());
        for (written, at, spelling) in [
            (
                "2025-12-16T00:00:03.2Z",
                "2025-12-16T00:00:03.200000Z",
                None,
            ),
            (
                "2025-12-16T01:00:03+01:00",
                "2025-12-16T00:00:03.000000Z",
                some("2025-12-16T01:00:03+01:00"),
            ),
            (
                "2025-12-16T00:00:03.123456789Z",
                "2025-12-16T00:00:03.123456Z",
                some("2025-12-16T00:00:03.123456789Z"),
            ),
        ] {
            let at = some(at);
            assert_eq!(written_time(written), Some(Written { at, spelling }));
        }
        for local in ["2025-12-16T00:00:03.5", "2025-12-16 00:00:03"] {
            let spelling = some(local);
            let time = Written { at: None, spelling };
            assert_eq!(written_time(local), Some(time), "no zone, no instant");
        }
        for none in ["yesterday", "", "2025-12-16", "2025-13-16T00:00:00Z"] {
            assert_eq!(written_time(none), None, "{none}");
        }
    }

    #[test]
    fn counted_times_are_milliseconds_or_seconds() {
        let of = |value: Value| counted_time(&value)?.at;
        let at = Some("2025-12-16T00:00:03.250000Z".to_owned());
        assert_eq!(of(1_765_843_203_250_i64.into()), at);
        assert_eq!(of(1_765_843_203.25.into()), at);
        assert_eq!(of(1e300.into()), None);
        assert_eq!(of("1765843203250".into()), None);
    }

    #[test]
    fn uuids_are_told_from_names() {
        assert!(is_uuid("0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"));
        assert!(!is_uuid("agent-a0ad4f44468bdf20d"));
        assert!(!is_uuid("0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7g"));
    }
}
