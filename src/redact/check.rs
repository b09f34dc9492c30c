//! What tells a secret from a likeness of one: checksums of issuers, and how random a value is.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{GeneralPurposeConfig, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::Deserialize;

/// A check beside a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Check {
    /// `PREFIX_` and 30 characters, and CRC-32 of these in six digits of base 62.
    Github,
    /// A header that is a JSON object in base64.
    Jwt,
    /// `USER:PASSWORD` in base64.
    Basic,
    /// Letters and figures.
    Mixed,
}

/// What a check says of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is what it looks like, whatever stands around it.
    Certain,
    /// It looks like it.
    Likely,
    /// It is something else.
    No,
}

impl Check {
    pub(super) fn of(self, value: &[u8]) -> Verdict {
        match self {
            Self::Github if github(value) => Verdict::Certain,
            // Old tokens and those of other servers have none.
            Self::Github => Verdict::Likely,
            Self::Jwt => likely(jwt(value)),
            Self::Basic => likely(basic(value)),
            Self::Mixed => likely(is_mixed(value)),
        }
    }
}

fn likely(is: bool) -> Verdict {
    if is { Verdict::Likely } else { Verdict::No }
}

fn github(token: &[u8]) -> bool {
    let Some(at) = token.iter().position(|byte| *byte == b'_') else {
        return false;
    };
    let body = &token[at + 1..];
    body.len() == 36 && body[30..] == base62(crc32(&body[..30]))
}

/// CRC-32 of IEEE 802.3, bit by bit: it is asked of a few bytes, rarely.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Six digits of base 62, figures before capitals before small letters.
pub(super) fn base62(mut number: u32) -> [u8; 6] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [b'0'; 6];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    text
}

fn jwt(token: &[u8]) -> bool {
    let header = token.split(|byte| *byte == b'.').next().unwrap_or(&[]);
    decode(header).is_some_and(|header| {
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&header)
            .is_ok_and(|header| header.contains_key("alg") || header.contains_key("typ"))
    })
}

fn basic(value: &[u8]) -> bool {
    decode(value).is_some_and(|text| {
        let at = text.iter().position(|byte| *byte == b':');
        at.is_some_and(|at| at + 1 < text.len())
            && std::str::from_utf8(&text).is_ok_and(|text| !text.contains(char::is_control))
    })
}

/// Base64 of either alphabet, with and without padding and whatever the bits after its end are.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    const URL: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::URL_SAFE,
        LENIENT
            .with_encode_padding(false)
            .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
    );
    const PLAIN: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        LENIENT
            .with_encode_padding(false)
            .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
    );
    let text = text.trim_ascii_end();
    let end = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |at| at + 1);
    let text = &text[..end];
    if text.iter().any(|byte| matches!(byte, b'-' | b'_')) {
        URL.decode(text).ok()
    } else {
        PLAIN.decode(text).ok()
    }
}

/// All that base64 of a text can look like: either alphabet, without padding.
pub(super) fn encode(bytes: &[u8]) -> [String; 2] {
    [STANDARD_NO_PAD.encode(bytes), URL_SAFE_NO_PAD.encode(bytes)]
}

/// Letters and figures both.
pub(super) fn is_mixed(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic)
}

/// Shannon's entropy, in bits a byte.
pub(super) fn entropy(value: &[u8]) -> f32 {
    let mut counts = [0u32; 256];
    for byte in value {
        counts[usize::from(*byte)] += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let length = value.len() as f32;
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let part = |count: u32| count as f32 / length;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| -part(*count) * part(*count).log2())
        .sum()
}

/// How many different bytes there are.
pub(super) fn variety(value: &[u8]) -> usize {
    let mut seen = [false; 256];
    value
        .iter()
        .filter(|byte| !std::mem::replace(&mut seen[usize::from(**byte)], true))
        .count()
}
