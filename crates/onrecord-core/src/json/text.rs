//! JSON strings: finding their end, reading and writing escapes.

use super::error::Reason;
use alloc::string::String;
use alloc::vec::Vec;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The first place at or after `at` that has a quote, a backslash, a control or a byte over 0x7f; or the end.
///
/// Most runs are short, and end within a few words. Of a long one, whole blocks are asked whether it ends in them.
#[inline(always)]
pub(crate) fn plain_run(bytes: &[u8], at: usize) -> usize {
    let (mut at, mut words) = (at, WORDS);
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let marks = marks(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return at + (marks.trailing_zeros() / 8) as usize;
        }
        at += 8;
        words -= 1;
        if words == 0 {
            (at, words) = (plain_blocks(bytes, at), WORDS);
        }
    }
    while let Some(&byte) = bytes.get(at) {
        if !is_plain(byte) {
            break;
        }
        at += 1;
    }
    at
}

/// Words that are looked at before blocks are.
const WORDS: usize = 4;
/// Bytes of a block.
const BLOCK: usize = 64;

/// Marks the high bit of the first byte of a word that is not plain.
///
/// Of bytes up to 0x7f, one minus a bound borrows into its high bit exactly if it is below the bound (0x20 for
/// controls, 1 after the XOR that makes the byte sought zero); those above are marked as they are. A borrow may also
/// mark bytes above it, but never below, so the lowest mark is right.
#[inline(always)]
fn marks(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let marks = quote.wrapping_sub(ONES)
        | backslash.wrapping_sub(ONES)
        | word.wrapping_sub(ONES * 0x20)
        | word;
    marks & HIGH
}

#[inline(always)]
fn is_plain(byte: u8) -> bool {
    byte != b'"' && byte != b'\\' && (0x20..0x80).contains(&byte)
}

/// The place after the blocks from `at` on that are plain. Every byte of a block is asked, without a branch, which the
/// compiler turns into instructions for many bytes at once.
fn plain_blocks(bytes: &[u8], mut at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    for block in rest.as_chunks::<BLOCK>().0 {
        // As a signed number a byte over 0x7f is below a space too.
        let ends = |byte: u8| {
            u8::from(byte.cast_signed() < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\')
        };
        if block.iter().fold(0, |any, byte| any | ends(*byte)) != 0 {
            break;
        }
        at += BLOCK;
    }
    at
}

/// The place after the characters beyond ASCII that begin at `at`; the bytes are known to be UTF-8.
///
/// # Errors
/// Where a noncharacter stands.
#[inline]
pub(super) fn wide_run(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    loop {
        match bytes.get(at) {
            Some(0xc0..=0xdf) => at += 2,
            Some(0xe0..=0xee) => at += 3,
            Some(0xef) => {
                let rest = bytes.get(at + 1..at + 3);
                if matches!(rest, Some([0xb7, 0x90..=0xaf] | [0xbf, 0xbe | 0xbf])) {
                    return Err(at);
                }
                at += 3;
            }
            Some(0xf0..) => {
                let rest = bytes.get(at + 1..at + 4);
                // The low 16 bits are FFFE or FFFF.
                if matches!(rest, Some([second, 0xbf, 0xbe | 0xbf]) if second & 0x0f == 0x0f) {
                    return Err(at);
                }
                at += 4;
            }
            _ => return Ok(at),
        }
    }
}

/// The character of the escape at `at` (its backslash) and the place after it.
///
/// # Errors
/// The reason and where.
pub(super) fn escape(bytes: &[u8], at: usize) -> Result<(char, usize), (Reason, usize)> {
    let character = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes, at),
        _ => return Err((Reason::Syntax, at)),
    };
    Ok((character, at + 2))
}

fn unicode_escape(bytes: &[u8], at: usize) -> Result<(char, usize), (Reason, usize)> {
    let unit = code_unit(bytes, at).ok_or((Reason::Syntax, at))?;
    let (code, end) = match unit {
        0xd800..=0xdbff => match code_unit(bytes, at + 6) {
            Some(low @ 0xdc00..=0xdfff) => {
                (0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00), at + 12)
            }
            _ => return Err((Reason::LoneSurrogate, at)),
        },
        _ => (unit, at + 6),
    };
    // Whatever is no scalar value by now is a low surrogate on its own.
    let character = char::from_u32(code).ok_or((Reason::LoneSurrogate, at))?;
    if code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code) {
        return Err((Reason::Noncharacter, at));
    }
    Ok((character, end))
}

/// The UTF-16 code unit that is written `\uXXXX` at `at`.
fn code_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = bytes.get(at..at + 6)? else {
        return None;
    };
    digits.iter().try_fold(0, |unit, &digit| {
        char::from(digit)
            .to_digit(16)
            .map(|digit| unit << 4 | digit)
    })
}

/// The canonical spelling of a character inside a string.
pub(super) fn spell(character: char, buffer: &mut [u8; 6]) -> &[u8] {
    match character {
        '"' => b"\\\"",
        '\\' => b"\\\\",
        '\u{8}' => b"\\b",
        '\u{c}' => b"\\f",
        '\n' => b"\\n",
        '\r' => b"\\r",
        '\t' => b"\\t",
        '\0'..='\u{1f}' => {
            let digits = b"0123456789abcdef";
            let code = character as usize;
            *buffer = *b"\\u0000";
            buffer[4] = digits[code >> 4];
            buffer[5] = digits[code & 15];
            buffer
        }
        _ => character.encode_utf8(buffer).as_bytes(),
    }
}

/// Appends a string as RFC 8785 spells it, quotes included.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let (mut copied, mut at) = (0, 0);
    out.push(b'"');
    loop {
        at = plain_run(bytes, at);
        match bytes.get(at) {
            None => break,
            Some(0x80..) => at += 1,
            Some(&byte) => {
                out.extend_from_slice(&bytes[copied..at]);
                out.extend_from_slice(spell(char::from(byte), &mut [0; 6]));
                at += 1;
                copied = at;
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// The characters of a string from between its quotes, which the scanner has found in order.
#[derive(Clone)]
pub(super) struct Characters<'a> {
    pub(super) raw: &'a str,
}

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let first = self.raw.chars().next()?;
        let (character, length) = if first == '\\' {
            escape(self.raw.as_bytes(), 0).ok()?
        } else {
            (first, first.len_utf8())
        };
        self.raw = self.raw.get(length..)?;
        Some(character)
    }
}

/// The text of a string from between its quotes.
pub(crate) fn unescape(raw: &str) -> String {
    if raw.contains('\\') {
        Characters { raw }.collect()
    } else {
        raw.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_plain_run_ends_at_the_first_byte_that_is_not_plain() {
        for byte in 0..=255 {
            let plain = (0x20..0x80).contains(&byte) && byte != b'"' && byte != b'\\';
            for at in 0..19 {
                // What follows may hide nothing: these are marked by a borrow if the byte before is.
                for after in [b' ', b'!', b'#', b']', b'a', b'"'] {
                    let mut bytes = [b'a'; 20];
                    bytes[at] = byte;
                    bytes[at + 1] = after;
                    let end = if !plain {
                        at
                    } else if after == b'"' {
                        at + 1
                    } else {
                        20
                    };
                    assert_eq!(plain_run(&bytes, 0), end, "{byte} at {at}, {after}");
                }
            }
        }
    }

    #[test]
    fn a_long_plain_run_ends_at_the_first_byte_that_is_not_plain() {
        let length = 8 * WORDS + 2 * BLOCK + 9;
        for byte in 0..=255 {
            for at in 0..length {
                let mut bytes = vec![b'a'; length];
                bytes[at] = byte;
                let end = if is_plain(byte) { length } else { at };
                assert_eq!(plain_run(&bytes, 0), end, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn noncharacters_are_found_in_every_plane() {
        for code in (0x80..=0x10_ffff).filter_map(char::from_u32) {
            let text = String::from(code);
            let noncharacter =
                u32::from(code) & 0xfffe == 0xfffe || ('\u{fdd0}'..='\u{fdef}').contains(&code);
            let end = if noncharacter { Err(0) } else { Ok(text.len()) };
            assert_eq!(wide_run(text.as_bytes(), 0), end, "{code:?}");
        }
    }
}
