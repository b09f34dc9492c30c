//! Secrets beside their names in a text: `NAME=value`, `name: value`, `"name": "value"`, `--name value`, headers.

use super::check::is_mixed;
use super::rules::{RuleSet, Trust};
use super::value::{Stands, is_secret, is_stand_in};
use super::{Found, Rank};
use zeroize::Zeroizing;

/// Bytes of a name on each side of its anchor.
const NAME: usize = 64;
/// Spaces between a name and its value.
const SPACES: usize = 16;
/// Bytes of a value in quotes, within which they have to close.
const QUOTED: usize = 1_024;
/// Bytes of a value without quotes.
const RUN: usize = 1_024;

/// The part of a text that is a value, and how it stands there.
struct Value {
    start: usize,
    end: usize,
    stands: Stands,
    /// In a text of JSON a number has no quotes, and what replaces it needs them.
    member: bool,
}

/// What was read for the names before, so that a text of nothing but names is read once and not for each of them.
#[derive(Default)]
pub(super) struct Memo {
    /// The beginning of what was read of a value without quotes, and how far it goes on.
    run: (usize, usize),
    /// Whether quotes alone end it.
    tight: bool,
    /// Up to where the last header of cookies goes, which ends those in it too.
    cookies: usize,
}

/// Whether a name at an anchor is one that holds secrets, and something may follow it.
pub(super) fn is_suspect(rules: &RuleSet, text: &[u8], anchor: usize) -> bool {
    let (start, end) = extent(text, anchor);
    let mut after = text[end..].iter().take(SPACES);
    let mut quoted = false;
    let next = after.find(|byte| {
        quoted |= b"\"'`".contains(byte);
        !b"\\\"'`] \t".contains(byte)
    });
    let option = text[..start].ends_with(b"-") || text[start..].starts_with(b"--");
    // After a comma in quotes, the value of a pair may follow.
    let follows =
        next.is_none_or(|next| b":=>".contains(next) || *next == b',' && quoted) || option;
    follows && rules.name(&text[start..end]).is_some()
}

/// The secrets that the name at an anchor holds, and the end of that name.
pub(super) fn find(
    rules: &RuleSet,
    text: &[u8],
    anchor: usize,
    memo: &mut Memo,
) -> (Vec<Found>, usize) {
    let (start, end) = extent(text, anchor);
    let found = rules.name(&text[start..end]).and_then(|name| {
        let value = value_after(text, start, end, memo)?;
        let places = match rules.names[name].trust {
            Trust::Cookie if value.start < memo.cookies => Vec::new(),
            Trust::Authorization => {
                let line = &text[value.start..line_end(text, &value)];
                credentials(rules, line).into_iter().collect()
            }
            Trust::Cookie => {
                memo.cookies = line_end(text, &value);
                cookies(rules, &text[value.start..memo.cookies])
            }
            trust => {
                let bytes = &text[value.start..value.end];
                let is = is_secret(rules, bytes, trust, value.stands);
                is.then_some((0, bytes.len())).into_iter().collect()
            }
        };
        let found = places.into_iter().map(|(from, to)| {
            let (start, end) = (value.start + from, value.start + to);
            one(
                rules,
                name,
                &text[start..end],
                start,
                end,
                value.member.then_some(0),
            )
        });
        Some(found.collect())
    });
    (found.unwrap_or_default(), end)
}

/// A finding of a name.
pub(super) fn one(
    rules: &RuleSet,
    name: usize,
    secret: &[u8],
    start: usize,
    end: usize,
    quoted: Option<u32>,
) -> Found {
    let name = &rules.names[name];
    Found {
        start,
        end,
        secret: Zeroizing::new(secret.to_vec()),
        rule: name.id.clone(),
        kind: name.kind.clone(),
        rank: Rank::Name,
        quoted,
    }
}

/// Where the name around an anchor begins and ends.
fn extent(text: &[u8], anchor: usize) -> (usize, usize) {
    let fits = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let before = text[..anchor]
        .iter()
        .rev()
        .take(NAME)
        .take_while(fits)
        .count();
    let after = text[anchor..].iter().take(NAME).take_while(fits).count();
    let mut start = anchor - before;
    // `\n` before a name is the end of a line in a text that is escaped.
    if before > 0 && start > 0 && text[start - 1] == b'\\' && b"nrt".contains(&text[start]) {
        start += 1;
    }
    (start, anchor + after)
}

/// The value that a name has.
fn value_after(text: &[u8], start: usize, end: usize, memo: &mut Memo) -> Option<Value> {
    let at = |place: usize| text.get(place).copied();
    let skip = |from: usize, set: &[u8]| {
        from + text[from.min(text.len())..]
            .iter()
            .take(SPACES)
            .take_while(|byte| set.contains(byte))
            .count()
    };
    let close = skip(end, b"\\");
    let (quoted, close) = match at(close) {
        Some(b'"' | b'\'' | b'`') => (true, skip(close + 1, b"]")),
        _ => (false, end),
    };
    let separator = skip(close, b" \t");
    let option = text[start..].starts_with(b"--") || start > 0 && text[start - 1] == b'-';
    let (mut from, mut tight) = match (at(separator), at(separator + 1)) {
        (Some(b'='), Some(b'=')) => return None,
        (Some(b'='), Some(b'>')) | (Some(b':'), Some(b'=')) => (separator + 2, false),
        (Some(b'='), next) => (
            separator + 1,
            separator == end && !matches!(next, Some(b' ' | b'\t')),
        ),
        (Some(b':'), Some(b':')) => return None,
        (Some(b':'), _) => (separator + 1, false),
        // <password>value</password>
        (Some(b'>'), _) if start > 0 && b"<:".contains(&text[start - 1]) => (separator + 1, true),
        _ if option && !quoted && separator > end => (separator, true),
        _ => return None,
    };
    from = skip(from, b" \t");
    // A type may stand between: `password: str = "…"`.
    let typed = skip_word(text, from);
    if typed > from && text[typed..].starts_with(b" = ") {
        from = skip(typed + 3, b" \t");
        tight = false;
    }
    // b"…", f'…'
    if at(from).is_some_and(|byte| b"bfruBFRU".contains(&byte))
        && matches!(at(from + 1), Some(b'"' | b'\''))
    {
        from += 1;
    }
    let slashes = skip(from, b"\\") - from;
    match at(from + slashes) {
        Some(quote @ (b'"' | b'\'' | b'`')) => {
            let start = from + slashes + 1;
            let end = closing(text, start, quote, slashes)?;
            Some(Value {
                start,
                end,
                stands: if tight {
                    Stands::Assigned
                } else {
                    Stands::Quoted
                },
                member: false,
            })
        }
        _ => {
            let length = memo.length(text, from, tight && line_begins(text, start));
            let number = text[from..from + length].iter().all(u8::is_ascii_digit);
            (length > 0).then_some(Value {
                start: from,
                end: from + length,
                stands: if tight {
                    Stands::Assigned
                } else {
                    Stands::Bare
                },
                member: quoted && number,
            })
        }
    }
}

impl Memo {
    /// The length of a value without quotes, at most [`RUN`].
    fn length(&mut self, text: &[u8], from: usize, tight: bool) -> usize {
        let ends: &[u8] = if tight {
            b"\"'`\\"
        } else {
            b"\"'`,;&<>()[]{}|\\"
        };
        let goes_on = |byte: &u8| {
            !byte.is_ascii_whitespace() && !byte.is_ascii_control() && !ends.contains(byte)
        };
        let (start, end) = self.run;
        let most = text.len().min(from + RUN);
        let known = (start..=end).contains(&from) && self.tight == tight && start < end;
        let begin = if known { end } else { from };
        let more = text[begin.min(most)..most]
            .iter()
            .take_while(|byte| goes_on(byte));
        let end = begin + more.count();
        self.run = (if known { start } else { from }, end);
        self.tight = tight;
        end.min(most) - from
    }
}

fn skip_word(text: &[u8], from: usize) -> usize {
    let word = text[from.min(text.len())..].iter().take(32);
    from + word.take_while(|byte| byte.is_ascii_alphabetic()).count()
}

/// Whether nothing but `export` and the like stands in the line before a name.
fn line_begins(text: &[u8], start: usize) -> bool {
    let before = text[..start].iter().rev().take(SPACES);
    before
        .take_while(|byte| **byte != b'\n')
        .all(|byte| byte.is_ascii_alphabetic() || b" \t-".contains(byte))
}

/// The quote that closes a string, whose opening one had so many backslashes before it.
fn closing(text: &[u8], start: usize, quote: u8, slashes: usize) -> Option<usize> {
    let mut run = 0;
    for (at, byte) in text.iter().enumerate().skip(start).take(QUOTED) {
        match *byte {
            b'\\' => run += 1,
            byte if byte == quote && (run == slashes || slashes == 0 && run % 2 == 0) => {
                return Some(at - run.min(slashes));
            }
            b'\n' => return None,
            _ => run = 0,
        }
    }
    None
}

/// Headers go to the end of their line, or of the string that they stand in.
fn line_end(text: &[u8], value: &Value) -> usize {
    if value.stands == Stands::Quoted {
        return value.end;
    }
    let line = text[value.start..].iter().take(QUOTED);
    let line = line.take_while(|byte| !matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'\\'));
    value.start + line.count()
}

/// Where the credentials of an authorization are: behind the scheme, or all of it.
pub(super) fn credentials(rules: &RuleSet, value: &[u8]) -> Option<(usize, usize)> {
    let end = value.trim_ascii_end().len();
    let start = end - value[..end].trim_ascii_start().len();
    let word = value[start..end]
        .iter()
        .take_while(|byte| !byte.is_ascii_whitespace())
        .count();
    let scheme = value[start..start + word].to_ascii_lowercase();
    let rest = &value[start + word..end];
    let from = start + word + (rest.len() - rest.trim_ascii_start().len());
    let (from, to) = match scheme.as_slice() {
        b"bearer" | b"basic" | b"token" | b"apikey" | b"api-key" | b"key" | b"bot"
        | b"negotiate" | b"ntlm" | b"dpop" => {
            let length = value[from..end]
                .iter()
                .take_while(|byte| !byte.is_ascii_whitespace() && !b",;".contains(byte));
            (from, from + length.count())
        }
        b"digest" | b"signature" | b"hawk" | b"oauth" => (from, end),
        scheme if scheme.starts_with(b"aws4-") => (from, end),
        _ if word == end - start => (start, end),
        _ => return None,
    };
    let secret = &value[from..to];
    let alone = from == start;
    let is = !is_stand_in(rules, secret)
        && secret.len() >= 4
        && (!alone || secret.len() >= 8 && is_mixed(secret));
    is.then_some((from, to))
}

/// Where the values of cookies are; attributes of cookies are none.
pub(super) fn cookies(rules: &RuleSet, value: &[u8]) -> Vec<(usize, usize)> {
    const ATTRIBUTES: [&[u8]; 9] = [
        b"path",
        b"domain",
        b"expires",
        b"max-age",
        b"samesite",
        b"secure",
        b"httponly",
        b"priority",
        b"version",
    ];
    let mut found = Vec::new();
    let mut at = 0;
    for pair in value.split(|byte| *byte == b';') {
        if let Some(equals) = pair.iter().position(|byte| *byte == b'=') {
            let name = pair[..equals].trim_ascii().to_ascii_lowercase();
            let value = pair[equals + 1..].trim_ascii_end();
            let is = !ATTRIBUTES.contains(&name.as_slice())
                && name.iter().all(|byte| byte.is_ascii_graphic())
                && !name.is_empty()
                && value.len() >= 4
                && !is_stand_in(rules, value)
                && (is_mixed(value) || value.len() >= 8);
            if is && !value.contains(&b' ') {
                found.push((at + equals + 1, at + equals + 1 + value.len()));
            }
        }
        at += pair.len() + 1;
    }
    found
}
