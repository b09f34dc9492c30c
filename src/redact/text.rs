//! Finding secrets in text: one pass for anchors, and a look around each.

use super::check::{Check, Verdict, entropy, variety};
use super::rules::{Hit, RuleSet, Token};
use super::value::{PLACEHOLDER, is_stand_in};
use super::view::{joined, without_colour};
use super::wrapped::Unwrapped;
use super::{Found, Rank, json, named};
use std::collections::HashMap;
use zeroize::Zeroizing;

/// Texts inside of texts that are looked into.
pub(super) const DEPTH: usize = 8;
/// Bytes of a key in PEM.
const PEM_MOST_BYTES: usize = 32 * 1024;
/// The same where a line was cut: no token that is exact is longer.
const CUT: usize = 400;
/// Bytes of the part of an address in which credentials stand.
const AUTHORITY: usize = 512;
/// The fewest characters of a key in PEM.
const PEM_BYTES: usize = 24;

/// Bytes in which what a token needs has to begin.
const NEAR: usize = 256;
/// Patterns that are tried before a text is looked at closely anyway.
const TRIED: usize = 4_096;
/// Tokens that are looked for across one end of a line.
const CUT_TOKENS: usize = 32;

/// Whether anything may be found at all: most payloads have nothing, and end here. What it lets pass is looked at
/// closely; what it does not was seen through no escape, colour or cut line.
pub(super) fn is_suspect(rules: &RuleSet, text: &[u8]) -> bool {
    if rules
        .literals
        .as_ref()
        .is_some_and(|literals| literals.is_in(text))
    {
        return true;
    }
    let mut tried = 0;
    rules.anchors.any(text, |anchor| {
        let (start, end) = (anchor.start, anchor.end);
        match &rules.hits[anchor.pattern] {
            Hit::Token(index) => {
                let token = &rules.tokens[*index];
                // Where so many anchors are, a closer look costs less than this one.
                tried += token.behind + 1;
                tried > TRIED
                    || token_at(rules, token, text, start).is_some()
                    || cut_at(text, start).is_some()
            }
            Hit::Name => named::is_suspect(rules, text, start),
            Hit::Url => url(rules, text, start).is_some(),
            // Colours may stand in the middle of anything.
            Hit::Pem | Hit::Colour => true,
            Hit::Wrapped(exact, _) => text[start..end] == **exact,
        }
    })
}

/// The secrets of a text, in no order, perhaps over one another.
pub(super) fn find(rules: &RuleSet, text: &[u8], depth: usize) -> Vec<Found> {
    if depth >= DEPTH {
        return Vec::new();
    }
    if let Some(found) = json::find_inside(rules, text, depth) {
        return found;
    }
    let view = without_colour(text);
    let mut found = Scan::default().run(rules, &view.bytes, depth);
    view.back(&mut found);
    found
}

/// One pass over one text.
#[derive(Default)]
struct Scan {
    found: Vec<Found>,
    /// Up to where a token was found, and anything.
    tokens: usize,
    all: usize,
    /// Of each token whose pattern begins before its anchor, up to where it was tried.
    behind: HashMap<usize, usize>,
    /// The end of a line across which tokens were looked for, and how many.
    cut: (usize, usize),
    named: named::Memo,
    /// Base64 that was decoded last.
    unwrapped: Vec<Unwrapped>,
    /// Characters of base64 that were decoded.
    decoded: usize,
}

impl Scan {
    fn run(mut self, rules: &RuleSet, text: &[u8], depth: usize) -> Vec<Found> {
        let mut named = 0;
        rules.anchors.each(text, |anchor| {
            let (start, end) = (anchor.start, anchor.end);
            match &rules.hits[anchor.pattern] {
                Hit::Token(index) if start >= self.tokens => {
                    let token = &rules.tokens[*index];
                    let found = self.token(rules, *index, text, start).or_else(|| {
                        let end = cut_at(text, start)?;
                        self.may_cut(end)
                            .then(|| cut_token(rules, token, text, start))?
                    });
                    self.add(found);
                }
                Hit::Name if start >= self.all && start >= named => {
                    let (found, end) = named::find(rules, text, start, &mut self.named);
                    named = end;
                    for one in found {
                        self.add(Some(one));
                    }
                }
                Hit::Url if start >= self.all => self.add(url(rules, text, start)),
                Hit::Pem if start >= self.all => self.add(pem(text, start)),
                Hit::Wrapped(exact, offset) if text[start..end] == **exact => {
                    if let Some(quad) = start.checked_sub(*offset) {
                        self.unwrap(rules, text, quad, depth);
                    }
                }
                _ => {}
            }
        });
        self.found
    }

    /// The token whose anchor is at a place. What was tried for an anchor before is not tried again.
    fn token(
        &mut self,
        rules: &RuleSet,
        index: usize,
        text: &[u8],
        anchor: usize,
    ) -> Option<Found> {
        let token = &rules.tokens[index];
        if token.behind == 0 {
            return token_from(rules, token, text, anchor);
        }
        let next = self.behind.entry(index).or_default();
        let first = anchor.saturating_sub(token.behind).max(*next);
        let last = anchor.saturating_sub(1);
        *next = (*next).max(last + 1);
        (first..=last).find_map(|start| token_from(rules, token, text, start))
    }

    fn may_cut(&mut self, end: usize) -> bool {
        if self.cut.0 != end {
            self.cut = (end, 0);
        }
        self.cut.1 += 1;
        self.cut.1 <= CUT_TOKENS
    }

    fn add(&mut self, found: Option<Found>) {
        let Some(found) = found else { return };
        if found.rank == Rank::Token {
            self.tokens = self.tokens.max(found.end);
        }
        self.all = self.all.max(found.end);
        self.found.push(found);
    }

    fn unwrap(&mut self, rules: &RuleSet, text: &[u8], quad: usize, depth: usize) {
        if self.unwrapped.iter().any(|one| one.has(quad)) {
            return;
        }
        // A quad can lie in four ways, and a text that is base64 in all of them, and again inside, is made for it.
        let times = if depth == 0 { 4 } else { 1 };
        if self.decoded > times * text.len() {
            return;
        }
        let Some(unwrapped) = Unwrapped::around(text, quad) else {
            return;
        };
        self.decoded += unwrapped.len();
        for one in find(rules, &unwrapped.bytes, depth + 1) {
            if let Some((start, end)) = unwrapped.back(one.start, one.end) {
                self.found.push(Found {
                    start,
                    end,
                    quoted: None,
                    ..one
                });
            }
        }
        // Four are all ways in which the quads can lie.
        self.unwrapped.insert(0, unwrapped);
        self.unwrapped.truncate(4);
    }
}

/// The token whose anchor is at a place.
fn token_at(rules: &RuleSet, token: &Token, text: &[u8], anchor: usize) -> Option<Found> {
    let first = anchor.saturating_sub(token.behind);
    let last = if token.behind == 0 {
        anchor
    } else {
        anchor.saturating_sub(1)
    };
    (first..=last).find_map(|start| token_from(rules, token, text, start))
}

fn token_from(rules: &RuleSet, token: &Token, text: &[u8], start: usize) -> Option<Found> {
    let before = text[..start].last();
    if token.open && before.is_some_and(|byte| b"_-".contains(byte))
        || !token.glued && !begins(text, start) && token.check != Some(Check::Github)
    {
        return None;
    }
    let window = &text[start..text.len().min(start + token.window)];
    let near = &window[..window.len().min(NEAR)];
    if !token.needs.is_empty() && !token.needs.iter().any(|one| one.find(near).is_some()) {
        return None;
    }
    let (whole, secret) = if token.pattern.captures_len() > 1 {
        let groups = token.pattern.captures(window)?;
        let whole = groups.get(0)?;
        (whole.end(), groups.name("secret").unwrap_or(whole).range())
    } else {
        let whole = token.pattern.find(window)?;
        (whole.end(), whole.range())
    };
    let value = &window[secret.clone()];
    let verdict = token.check.map_or(Verdict::Likely, |check| check.of(value));
    let stands_alone = || {
        let after = text.get(start + whole);
        (token.glued || begins(text, start)) && !after.is_some_and(u8::is_ascii_alphanumeric)
    };
    let is = match verdict {
        Verdict::No => false,
        Verdict::Certain => true,
        Verdict::Likely => {
            stands_alone()
                && !value.starts_with(PLACEHOLDER)
                && (token.entropy <= 0.0
                    || entropy(value) >= token.entropy && !is_stand_in(rules, value))
        }
    };
    let generic = matches!(token.check, Some(Check::Mixed | Check::Basic));
    is.then(|| Found {
        start: start + secret.start,
        end: start + secret.end,
        secret: Zeroizing::new(value.to_vec()),
        rule: token.id.clone(),
        kind: token.kind.clone(),
        rank: if generic { Rank::Context } else { Rank::Token },
        quoted: None,
    })
}

/// The token that begins at a place and goes on in the next line.
fn cut_token(rules: &RuleSet, token: &Token, text: &[u8], start: usize) -> Option<Found> {
    if token.behind > 0
        || matches!(token.check, Some(Check::Mixed | Check::Basic))
        || !begins(text, start)
    {
        return None;
    }
    let view = joined(text, start, CUT);
    let mut found = [token_from(rules, token, &view.bytes, 0)?];
    view.back(&mut found);
    let [found] = found;
    Some(found)
}

/// The end of the line that what looks like the beginning of a token runs into.
fn cut_at(text: &[u8], start: usize) -> Option<usize> {
    const LEAST: usize = 8;
    if !begins(text, start) {
        return None;
    }
    let run = text[start..].iter().take(CUT);
    let run = run
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte))
        .count();
    let is_cut = run >= LEAST
        && matches!(text.get(start + run), Some(b'\n' | b'\r' | b'\\' | 0x1b))
        && text[start..start + run].iter().any(u8::is_ascii_digit);
    is_cut.then_some(start + run)
}

/// Whether a token may begin here: no letter stands before, unless it is the end of an escape.
fn begins(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    let Some(last) = before.last().filter(|byte| byte.is_ascii_alphabetic()) else {
        return true;
    };
    let second = before.len().checked_sub(2).map(|at| before[at]);
    let third = before.len().checked_sub(3).map(|at| before[at]);
    let escaped = second == Some(b'\\') && b"nrtbf".contains(last);
    let encoded = third == Some(b'%')
        && last.is_ascii_hexdigit()
        && second.is_some_and(|byte| byte.is_ascii_hexdigit());
    let coloured = || {
        let codes = before[..before.len() - 1].iter().rev().take(16);
        let mut codes = codes.skip_while(|byte| byte.is_ascii_digit() || **byte == b';');
        codes.next() == Some(&b'[')
    };
    escaped || encoded || *last == b'm' && coloured()
}

/// The password in the address whose authority begins here, or the token that stands for a user.
fn url(rules: &RuleSet, text: &[u8], colon: usize) -> Option<Found> {
    let slashes = text[colon + 1..]
        .iter()
        .take(16)
        .take_while(|byte| b"/\\".contains(byte));
    let slashes = slashes.filter(|byte| **byte == b'/').count();
    let start = colon
        + 1
        + text[colon + 1..]
            .iter()
            .take(16)
            .take_while(|byte| b"/\\".contains(byte))
            .count();
    if slashes < 2 || !text[..colon].last().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/?#\"'`<>\\|,;".contains(byte)
    };
    let rest = &text[start..text.len().min(start + AUTHORITY)];
    let authority = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    if !authority
        .get(at + 1)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"[_$".contains(byte))
    {
        return None;
    }
    let user = &authority[..at];
    let (from, to) = match user.iter().position(|byte| *byte == b':') {
        Some(colon) if !matches!(&user[colon + 1..], b"" | b"x-oauth-basic") => (colon + 1, at),
        // A token instead of a user.
        colon => (0, colon.unwrap_or(at)),
    };
    let value = &user[from..to];
    let is = if from == 0 {
        value.len() >= 20 && super::value::is_random(value)
    } else {
        variety(value) > 1 && value.len() >= 3 && !is_stand_in(rules, value)
    };
    is.then(|| Found {
        start: start + from,
        end: start + to,
        secret: Zeroizing::new(value.to_vec()),
        rule: "url-credentials".to_owned(),
        kind: "url_password".to_owned(),
        rank: Rank::Context,
        quoted: None,
    })
}

/// The key between the lines of PEM, whose end may be missing.
fn pem(text: &[u8], at: usize) -> Option<Found> {
    const LABEL: &[u8] = b"PRIVATE KEY";
    let head = &text[at + 11..text.len().min(at + 11 + 64)];
    let label = memmem(head, LABEL)?;
    let dashes = memmem(&head[label..], b"-----")?;
    if dashes > LABEL.len() + 6
        || !head[..label]
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ')
    {
        return None;
    }
    let start = at + 11 + label + dashes + 5;
    // Base64, the headers of an encrypted key, and escapes of a text in a text.
    let fits = |byte: &u8| {
        byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=\\:,-".contains(byte)
    };
    let body = &text[start..text.len().min(start + PEM_MOST_BYTES)];
    let body = &body[..memmem(body, b"-----").unwrap_or(body.len())];
    let body = &body[..body.iter().take_while(|byte| fits(byte)).count()];
    // What ends lines stays, so that the text keeps its shape.
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let from = body.iter().position(|byte| !blank(byte))?;
    let to = body.iter().rposition(|byte| !blank(byte))? + 1;
    let from = from
        + if body[from..to].starts_with(b"\\n") {
            2
        } else {
            0
        };
    let to = to
        - if body[from..to].ends_with(b"\\n") {
            2
        } else {
            0
        };
    let value = &body[from..to];
    (value.len() >= PEM_BYTES && variety(value) >= 10).then(|| Found {
        start: start + from,
        end: start + to,
        secret: Zeroizing::new(value.iter().filter(|byte| !blank(byte)).copied().collect()),
        rule: "pem-private-key".to_owned(),
        kind: "private_key".to_owned(),
        rank: Rank::Token,
        quoted: None,
    })
}

fn memmem(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len())
        .position(|window| window == needle)
}
