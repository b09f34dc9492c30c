//! JSON numbers: grammar, range and the canonical text.

use super::error::Reason;
use crate::limits::{FRAME_BYTES, SAFE_INTEGER};

/// Digits of the largest integer that is let in.
const SAFE_DIGITS: usize = 16;

/// Reads the number that begins at `start`. Answers the place after it, and its canonical text if that is another.
///
/// # Errors
/// The reason and where.
#[inline]
pub(super) fn number<'b>(
    text: &str,
    start: usize,
    buffer: &'b mut ryu_js::Buffer,
) -> Result<(usize, Option<&'b str>), (Reason, usize)> {
    let bytes = text.as_bytes();
    let negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let mut at = first;
    let mut value = 0u64;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        // It wraps only where the count of digits refuses it, or where it is not used.
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    let digits = at - first;
    if digits == 0 || (digits > 1 && bytes.get(first) == Some(&b'0')) {
        return Err((Reason::Syntax, start));
    }
    if let Some(b'.' | b'e' | b'E') = bytes.get(at) {
        return fraction(text, start, at, buffer);
    }
    if digits > SAFE_DIGITS || value > SAFE_INTEGER.unsigned_abs() {
        return Err((Reason::IntegerRange, start));
    }
    Ok((at, (negative && value == 0).then_some("0")))
}

/// A number whose point or exponent stands at `at`.
fn fraction<'b>(
    text: &str,
    start: usize,
    mut at: usize,
    buffer: &'b mut ryu_js::Buffer,
) -> Result<(usize, Option<&'b str>), (Reason, usize)> {
    let bytes = text.as_bytes();
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1).ok_or((Reason::Syntax, start))?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at = digits(bytes, at + 1 + usize::from(signed)).ok_or((Reason::Syntax, start))?;
    }
    let spelled = &text[start..at];
    if spelled.len() > FRAME_BYTES {
        // The standard library misreads exponents beyond 655,359, which so many digits can outweigh.
        return Err((Reason::Size, start));
    }
    let value: f64 = spelled.parse().map_err(|_| (Reason::Syntax, start))?;
    if value.is_infinite() {
        return Err((Reason::NumberOverflow, start));
    }
    if value.abs() > SAFE_INTEGER as f64 {
        return Err((Reason::IntegerRange, start));
    }
    let canonical = buffer.format_finite(value);
    Ok((at, (canonical != spelled).then_some(canonical)))
}

/// The place after the digits at `at`, of which there must be one.
fn digits(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(at + count)
}
