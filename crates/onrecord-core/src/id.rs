//! Identifiers: tenants, runs and ledger origins (spec: `docs/spec/frames.md`).

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is no such identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// Not `t_` and 12 to 32 characters of `[0-9a-z]`.
    #[error("a tenant is `t_` and 12 to 32 characters of 0-9 and a-z")]
    Tenant,
    /// Not a ULID in upper case.
    #[error(
        "a run is a ULID: 26 characters of 0-9 and A-Z without I, L, O and U, the first at most 7"
    )]
    Run,
    /// Not `HOST/t/LOGID`.
    #[error("a ledger's origin is HOST/t/LOGID, printable and without spaces or `+`")]
    Origin,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident($text:ty), $bad:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($text);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(<$text>::from(text))) } else { Err($bad) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = alloc::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Bytes of the longest tenant.
const SHORT: usize = 34;

/// A text of so many bytes at most, in place: every frame has two, which are compared and dropped again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Short {
    /// Zeros after the text, so that they are in its order.
    bytes: [u8; SHORT],
    length: u8,
}

impl Short {
    fn as_str(&self) -> &str {
        let text = self.bytes.get(..usize::from(self.length));
        core::str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
    }
}

impl From<&str> for Short {
    /// What is longer is cut; it was refused before.
    fn from(text: &str) -> Self {
        let length = text.len().min(SHORT);
        let mut bytes = [0; SHORT];
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self {
            bytes,
            length: length as u8,
        }
    }
}

impl fmt::Debug for Short {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

text_id!(
    /// A tenant: `t_` and 12 to 32 characters of `[0-9a-z]`, with nothing of the customer's name.
    TenantId(Short),
    BadId::Tenant,
    |text| {
        text.strip_prefix("t_").is_some_and(|rest| {
            (12..=32).contains(&rest.len()) && all(rest, |byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        })
    }
);

text_id!(
    /// A run: a ULID in upper case, 48 bits of milliseconds and 80 random bits.
    RunId(Short),
    BadId::Run,
    |text| text.len() == 26 && RunId::may_begin_with(text)
);

text_id!(
    /// A ledger's origin, `HOST/t/LOGID`: the name of the log in checkpoints and of its key.
    Origin(String),
    BadId::Origin,
    |text| {
        let mut parts = text.rsplitn(3, '/');
        let (log, marker, host) = (parts.next(), parts.next(), parts.next());
        text.len() <= 255
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'+')
            && marker == Some("t")
            && log.is_some_and(|log| !log.is_empty())
            && host.is_some_and(|host| !host.is_empty())
    }
);

impl Origin {
    /// The id of the log: the last step.
    pub fn log(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

/// Crockford's base32, the alphabet of ULIDs.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Whether all bytes fit. Each is asked, which is faster than to stop at the first that does not: of nearly
/// all texts all fit.
#[inline]
fn all(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(true, |all, byte| all & fits(byte))
}

/// Whether a byte is of [`CROCKFORD`].
fn is_crockford(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z') & !matches!(byte, b'I' | b'L' | b'O' | b'U')
}

/// The digit that each character of the alphabet stands for; 0 for all others, which no id has.
const DIGITS: [u8; 256] = {
    let mut digits = [0; 256];
    let mut digit = 0;
    while digit < CROCKFORD.len() {
        digits[CROCKFORD[digit] as usize] = digit as u8;
        digit += 1;
    }
    digits
};

impl RunId {
    /// A ULID of a time in milliseconds since 1970 (its low 48 bits) and ten random bytes.
    pub fn from_parts(millis: u64, random: [u8; 10]) -> Self {
        let mut bits = u128::from(millis & 0xffff_ffff_ffff) << 80;
        for (place, byte) in random.iter().enumerate() {
            bits |= u128::from(*byte) << (72 - 8 * place);
        }
        Self::from_bits(bits)
    }

    /// The ULID of 128 bits.
    pub fn from_bits(bits: u128) -> Self {
        let mut bytes = [0; SHORT];
        for (byte, place) in bytes.iter_mut().zip((0..26).rev()) {
            *byte = CROCKFORD[usize::from((bits >> (5 * place)) as u8 & 31)];
        }
        Self(Short { bytes, length: 26 })
    }

    /// The 128 bits of the ULID, which sort as its text does.
    pub fn to_bits(&self) -> u128 {
        let digits = self.as_str().bytes();
        digits.fold(0, |bits, byte| {
            bits << 5 | u128::from(DIGITS[usize::from(byte)])
        })
    }

    /// Whether the id of a run may begin with a text; every one begins with the empty text.
    pub fn may_begin_with(text: &str) -> bool {
        text.len() <= 26
            && all(text, is_crockford)
            && text.bytes().next().is_none_or(|first| first <= b'7')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_upper_case_ulids() {
        assert_eq!(
            RunId::from_parts(0, [0; 10]).as_str(),
            "00000000000000000000000000"
        );
        assert_eq!(
            RunId::from_parts(u64::MAX, [255; 10]).as_str(),
            "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
        );
        assert!("01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse::<RunId>().is_ok());
        for text in [
            "00000000000000000000000000",
            "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01K7Q4Z8V2N5R3T6Y9B1C0D4E8",
        ] {
            let run: RunId = text.parse().unwrap();
            assert_eq!(RunId::from_bits(run.to_bits()), run);
        }
        for text in [
            "01k7q4z8v2n5r3t6y9b1c0d4e8",
            "81K7Q4Z8V2N5R3T6Y9B1C0D4E8",
            "01K7Q4Z8V2N5R3T6Y9B1C0D4EU",
            "01K7Q4Z8V2N5R3T6Y9B1C0D4E",
            "",
        ] {
            assert_eq!(text.parse::<RunId>(), Err(BadId::Run), "{text}");
        }
    }

    #[test]
    fn ids_are_in_the_order_of_their_texts() {
        let texts = [
            "t_0000000000000",
            "t_000000000000",
            "t_000000000001",
            "t_zzzzzzzzzzzz",
        ];
        let longest = alloc::format!("t_{}", "z".repeat(32));
        for a in texts.into_iter().chain([longest.as_str()]) {
            let id: TenantId = a.parse().unwrap();
            assert_eq!(id.as_str(), a);
            assert_eq!(alloc::format!("{id:?}"), alloc::format!("TenantId({a:?})"));
            for b in texts {
                assert_eq!(id.cmp(&b.parse().unwrap()), a.cmp(b), "{a} {b}");
            }
        }
        assert!(alloc::format!("{longest}z").parse::<TenantId>().is_err());
    }

    #[test]
    fn the_alphabet_is_the_alphabet() {
        for byte in 0..=255 {
            assert_eq!(is_crockford(byte), CROCKFORD.contains(&byte), "{byte}");
        }
    }

    #[test]
    fn origins_have_host_marker_and_log() {
        assert!("evidence.example/t/9d2v6c1p8h4z".parse::<Origin>().is_ok());
        assert!("localhost:8470/t/x".parse::<Origin>().is_ok());
        for text in [
            "",
            "/t/x",
            "host/t/",
            "host/x",
            "host/u/x",
            "ho st/t/x",
            "host+1/t/x",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(BadId::Origin), "{text}");
        }
    }
}
