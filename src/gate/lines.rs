//! Lines of a log, as a person would see them: decoded, without a terminal's escapes.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

use encoding_rs::WINDOWS_1252;

use super::decode::{Kind, Utf8};

/// Bytes of a line that are looked at; the rest of a longer one is passed over.
const LINE: usize = 1024 * 1024;

/// The lines of a log. A carriage return ends one as a line feed does: what a progress bar paints over
/// is a line of its own.
pub(super) struct Lines<R> {
    input: BufReader<Input<R>>,
    bytes: Vec<u8>,
    /// Lines that were too long to be looked at whole.
    pub long: u64,
}

/// UTF-16 is decoded as it is read. In all else a line feed is a line feed, and each line is UTF-8 or,
/// where it is not, windows-1252.
enum Input<R> {
    Decoded(Utf8<R>),
    Raw(R),
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Decoded(input) => input.read(into),
            Self::Raw(input) => input.read(into),
        }
    }
}

impl<R: Read> Lines<R> {
    /// Over a log of which [`Kind`] has seen the beginning.
    pub fn new(input: R, kind: &Kind) -> Self {
        let input = match kind.encoding {
            Some(_) => Input::Decoded(Utf8::new(input, kind)),
            None => Input::Raw(input),
        };
        Self {
            input: BufReader::with_capacity(64 * 1024, input),
            bytes: Vec::new(),
            long: 0,
        }
    }

    /// Gives the next line to `look`; `false` at the end.
    pub fn next(&mut self, look: impl FnOnce(&str)) -> io::Result<bool> {
        self.bytes.clear();
        let (mut any, mut long) = (false, false);
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &chunk[..end.unwrap_or(chunk.len())];
            let room = LINE - self.bytes.len();
            self.bytes
                .extend_from_slice(&piece[..piece.len().min(room)]);
            long |= piece.len() > room;
            let read = piece.len() + usize::from(end.is_some());
            self.input.consume(read);
            if end.is_some() {
                break;
            }
        }
        self.long += u64::from(long);
        if any {
            let text = match std::str::from_utf8(&self.bytes) {
                Ok(text) => Cow::Borrowed(text),
                // A cut line may end within a character.
                Err(error) if long && error.error_len().is_none() => {
                    String::from_utf8_lossy(&self.bytes)
                }
                // Bytes that it has no character for are letters of some other encoding, no controls.
                Err(_) => {
                    let text = WINDOWS_1252.decode_without_bom_handling(&self.bytes).0;
                    Cow::Owned(text.replace(|one| matches!(one, '\u{80}'..='\u{9f}'), "\u{fffd}"))
                }
            };
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            look(after_time(&visible(text)));
        }
        Ok(any)
    }
}

/// The text without escape sequences of terminals (ECMA-48) and without other control characters than
/// tabs and line ends.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let is_control = |one: char| one.is_control() && !matches!(one, '\t' | '\n' | '\r');
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut seen = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(one) = chars.next() {
        match one {
            '\u{1b}' => match chars.next() {
                Some('[') => skip_csi(&mut chars),
                // Strings of the operating system, of devices and of programs.
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut chars),
                // Intermediates, then one final character.
                Some(' '..='/') => {
                    while chars.next_if(|next| (' '..='/').contains(next)).is_some() {}
                    chars.next();
                }
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut chars),
            '\u{9d}' | '\u{90}' => skip_string(&mut chars),
            one if is_control(one) => {}
            one => seen.push(one),
        }
    }
    Cow::Owned(seen)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_csi(chars: &mut Chars<'_>) {
    while chars.next_if(|next| (' '..='?').contains(next)).is_some() {}
    chars.next_if(|next| ('@'..='~').contains(next));
}

/// Up to the string's terminator: BEL, ESC \ or ST. One without is as long as its line.
fn skip_string(chars: &mut Chars<'_>) {
    while let Some(one) = chars.next() {
        match one {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                chars.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// The line after the time that some services put before each.
fn after_time(line: &str) -> &str {
    let Some((time, rest)) = line.split_once(' ') else {
        return line;
    };
    let bytes = time.as_bytes();
    let is_time = (20..=35).contains(&bytes.len())
        && bytes[4] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes.ends_with(b"Z")
        && time.parse::<jiff::Timestamp>().is_ok();
    if is_time { rest } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(bytes, &Kind::of(bytes));
        let mut found = Vec::new();
        while lines.next(|line| found.push(line.to_owned())).unwrap() {}
        found
    }

    #[test]
    fn escapes_are_not_seen() {
        assert_eq!(visible("\u{1b}[1;31mred\u{1b}[0m"), "red");
        assert_eq!(
            visible("a\u{1b}]8;;http://x\u{7}b\u{1b}]8;;\u{1b}\\c"),
            "abc"
        );
        assert_eq!(visible("\u{1b}_bk;t=1\u{7}x\u{1b}(By"), "xy");
        assert_eq!(visible("a\u{0}\u{8}b\tc"), "ab\tc");
        for broken in [
            "\u{1b}",
            "\u{1b}[",
            "\u{1b}[12;",
            "\u{1b}]never ended",
            "\u{1b}(",
        ] {
            assert_eq!(visible(broken), "", "{broken:?}");
        }
    }

    #[test]
    fn every_encoding_is_read() {
        assert_eq!(lines("\u{feff}ä\r\nb".as_bytes()), ["ä", "", "b"]);
        assert_eq!(lines(b"gr\xfcn\nb\n"), ["grün", "b"]);
        // A letter of another encoding does not hide what follows it.
        assert_eq!(lines(b"ok \x90 # SKIP\n"), ["ok \u{fffd} # SKIP"]);
        let wide = |text: &str, little: bool| -> Vec<u8> {
            let units = text.encode_utf16();
            let bytes = |unit: u16| {
                if little {
                    unit.to_le_bytes()
                } else {
                    unit.to_be_bytes()
                }
            };
            units.flat_map(bytes).collect()
        };
        for little in [true, false] {
            assert_eq!(lines(&wide("\u{feff}one\ntwö\n", little)), ["one", "twö"]);
            assert_eq!(lines(&wide("one\ntwo\n", little)), ["one", "two"]);
        }
        // A half of a unit at the end.
        let mut cut = wide("one\ntwo", true);
        cut.push(b'x');
        assert_eq!(lines(&cut), ["one", "two\u{fffd}"]);
        assert_eq!(lines(b""), Vec::<String>::new());
    }

    #[test]
    fn progress_is_lines_and_times_are_left_out() {
        assert_eq!(lines(b"10%\r99%\rdone\n"), ["10%", "99%", "done"]);
        assert_eq!(lines(b"2024-05-06T07:08:09.1234567Z ok\n"), ["ok"]);
        assert_eq!(
            lines(b"2024-99-06T07:08:09.123Z ok\n"),
            ["2024-99-06T07:08:09.123Z ok"]
        );
        assert_eq!(lines("äääääääääääää x\n".as_bytes()), ["äääääääääääää x"]);
    }

    #[test]
    fn a_line_without_end_does_not_grow() {
        let endless = std::io::repeat(b'x').take(64 * 1024 * 1024);
        let mut lines = Lines::new(endless.chain(&b"\nlast"[..]), &Kind::of(b"x"));
        let mut found = Vec::new();
        while lines.next(|line| found.push(line.len())).unwrap() {}
        assert_eq!(found, [LINE, 4]);
        assert_eq!(lines.long, 1);
        assert!(lines.bytes.capacity() <= 2 * LINE);
    }
}
