//! Finding secrets in JSON: by the names of members, and in strings as they are meant. The bytes themselves are
//! never written anew, so that whatever is not redacted stays as it was.

use super::rules::{RuleSet, Trust};
use super::value::{Stands, is_random, is_secret, is_stand_in};
use super::view::unescaped;
use super::{Found, named, text};

/// Levels of a document inside a text; what is deeper is read as text.
const LEVELS: usize = 64;
/// The fewest figures of a number that a name makes a secret.
const FIGURES: usize = 6;
/// Names of members that say what the value beside them is called.
const PAIR_NAMES: [&[u8]; 5] = [b"name", b"key", b"header", b"field", b"variable"];
/// Members of a cookie that are no secret.
const COOKIE_MEMBERS: [&[u8]; 10] = [
    b"name",
    b"key",
    b"domain",
    b"path",
    b"expires",
    b"samesite",
    b"httponly",
    b"secure",
    b"url",
    b"type",
];

/// The secrets of a text that is JSON; none where it is not.
pub(super) fn find_inside(rules: &RuleSet, text: &[u8], depth: usize) -> Option<Vec<Found>> {
    let inner = text.trim_ascii();
    let fits = matches!(
        (inner.first(), inner.last()),
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) | (Some(b'"'), Some(b'"'))
    );
    (fits && inner.len() > 4).then(|| find(rules, text, depth))?
}

/// The secrets of a JSON document; none where it is no JSON.
pub(super) fn find(rules: &RuleSet, json: &[u8], depth: usize) -> Option<Vec<Found>> {
    let mut walk = Walk {
        rules,
        json,
        at: 0,
        depth,
        found: Vec::new(),
    };
    walk.space();
    walk.value(None, 0)?;
    walk.space();
    (walk.at == json.len()).then_some(walk.found)
}

struct Walk<'a> {
    rules: &'a RuleSet,
    json: &'a [u8],
    at: usize,
    depth: usize,
    found: Vec<Found>,
}

impl Walk<'_> {
    fn space(&mut self) {
        while self
            .json
            .get(self.at)
            .is_some_and(|byte| b" \t\r\n".contains(byte))
        {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        let is = self.json.get(self.at) == Some(&byte);
        self.at += usize::from(is);
        is.then_some(())
    }

    fn value(&mut self, name: Option<usize>, level: usize) -> Option<()> {
        if level > LEVELS {
            return None;
        }
        match self.json.get(self.at)? {
            b'{' => self.object(name, level),
            b'[' => self.array(name, level),
            b'"' => {
                let (start, end) = self.string()?;
                self.look(start, end, name);
                Some(())
            }
            _ => self.scalar(name),
        }
    }

    fn object(&mut self, name: Option<usize>, level: usize) -> Option<()> {
        // What a name says holds for what is in its object only where it is the name of a header.
        let above = name.filter(|name| {
            matches!(
                self.rules.names[*name].trust,
                Trust::Cookie | Trust::Authorization
            )
        });
        let mut pair = None;
        self.eat(b'{')?;
        self.space();
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            self.space();
            let (start, end) = self.string()?;
            let key = unescaped(&self.json[start..end]).bytes.to_ascii_lowercase();
            let own = self.rules.name(&unescaped(&self.json[start..end]).bytes);
            self.look(start, end, None);
            self.space();
            self.eat(b':')?;
            self.space();
            let is_pair = matches!(key.as_slice(), b"value" | b"val" | b"content");
            let inherited = above.filter(|_| !COOKIE_MEMBERS.contains(&key.as_slice()));
            let value = self.at;
            self.value(
                own.or(if is_pair {
                    pair.or(inherited)
                } else {
                    inherited
                }),
                level + 1,
            )?;
            if PAIR_NAMES.contains(&key.as_slice()) {
                pair = self.named_by(value, self.at);
            }
            self.space();
            if self.eat(b'}').is_some() {
                return Some(());
            }
            self.eat(b',')?;
        }
    }

    fn array(&mut self, name: Option<usize>, level: usize) -> Option<()> {
        self.eat(b'[')?;
        self.space();
        if self.eat(b']').is_some() {
            return Some(());
        }
        let mut pair = None;
        for index in 0.. {
            self.space();
            let value = self.at;
            self.value(name.or(pair), level + 1)?;
            // ["authorization", "Bearer …"]
            pair = if index == 0 {
                self.named_by(value, self.at)
            } else {
                None
            };
            self.space();
            if self.eat(b']').is_some() {
                break;
            }
            self.eat(b',')?;
        }
        Some(())
    }

    /// The rule that a string falls under, read as the name of the next value.
    fn named_by(&self, start: usize, end: usize) -> Option<usize> {
        let raw = self.json[start..end]
            .strip_prefix(b"\"")?
            .strip_suffix(b"\"")?;
        (raw.len() <= 64 && !raw.contains(&b' ')).then(|| self.rules.name(raw))?
    }

    /// What stands between the quotes of a string.
    fn string(&mut self) -> Option<(usize, usize)> {
        self.eat(b'"')?;
        let start = self.at;
        loop {
            let rest = &self.json[self.at..];
            self.at += rest
                .iter()
                .position(|byte| *byte == b'"' || *byte == b'\\')?;
            if self.json[self.at] == b'"' {
                self.at += 1;
                return Some((start, self.at - 1));
            }
            self.json.get(self.at + 1)?;
            self.at += 2;
        }
    }

    /// A number or a word.
    fn scalar(&mut self, name: Option<usize>) -> Option<()> {
        let start = self.at;
        let rest = self.json[start..].iter();
        self.at += rest
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
            .count();
        let scalar = &self.json[start..self.at];
        if !matches!(scalar, b"true" | b"false" | b"null") {
            serde_json::from_slice::<serde_json::Number>(scalar).ok()?;
        }
        let figures = scalar.iter().filter(|byte| byte.is_ascii_digit()).count();
        if let Some(name) = name
            && figures >= FIGURES
            && matches!(self.rules.names[name].trust, Trust::High | Trust::Middle)
        {
            let found = named::one(self.rules, name, scalar, start, self.at, Some(0));
            self.found.push(found);
        }
        Some(())
    }

    /// Looks into a string, whose name may say that it is a secret.
    fn look(&mut self, start: usize, end: usize, name: Option<usize>) {
        let view = unescaped(&self.json[start..end]);
        let bytes = &view.bytes;
        let mut found = text::find(self.rules, bytes, self.depth + 1);
        for one in &mut found {
            one.quoted = one.quoted.map(|levels| levels + 1);
        }
        if let Some(name) = name {
            let places = self.secrets(name, bytes);
            let own = places
                .into_iter()
                .map(|(from, to)| named::one(self.rules, name, &bytes[from..to], from, to, None));
            found.extend(own);
        }
        view.back(&mut found);
        for one in &mut found {
            one.start += start;
            one.end += start;
        }
        self.found.extend(found);
    }

    fn secrets(&self, name: usize, value: &[u8]) -> Vec<(usize, usize)> {
        let all = |is: bool| is.then_some((0, value.len())).into_iter().collect();
        match self.rules.names[name].trust {
            Trust::Authorization => named::credentials(self.rules, value).into_iter().collect(),
            Trust::Cookie if value.contains(&b'=') => named::cookies(self.rules, value),
            Trust::Cookie => all(value.len() >= 4
                && !is_stand_in(self.rules, value)
                && (super::check::is_mixed(value) || is_random(value))),
            trust => all(is_secret(self.rules, value, trust, Stands::Member)),
        }
    }
}
