//! Compiling documents of rules into one set.

use super::anchors::Anchors;
use super::document::{Document, LiteralRow, NameRow, TokenRow};
use super::echo::Echo;
use super::pointers::Pointers;
use super::rules::{
    Allowed, Hit, LITERAL, LITERAL_BYTES, Literals, Name, RuleError, RuleSet, Token, refused,
};
use super::wrapped;
use memchr::memmem::Finder;
use regex::bytes::RegexBuilder;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where a key in PEM begins.
const PEM: &str = "-----BEGIN ";
/// Where the authority of an address begins; a slash may be escaped.
const URLS: [&str; 3] = ["://", ":\\/", ":\\\\/"];
const COLOURS: [&str; 2] = ["\u{1b}", "\\u001b"];

/// Ids of rules that are no data.
const OWN_IDS: [&str; 3] = ["url-credentials", "pem-private-key", "json-always"];

/// Rules on their way to a set.
#[derive(Default)]
pub(super) struct Builder {
    patterns: Vec<Vec<u8>>,
    hits: Vec<Hit>,
    /// What is looked for in base64 too.
    wrap: HashSet<String>,
    stems: Vec<String>,
    ids: HashSet<String>,
    tokens: Vec<Token>,
    names: Vec<Name>,
    words: HashMap<String, usize>,
    glued: Vec<(String, usize)>,
    never_names: HashSet<String>,
    never_values: HashSet<String>,
    allowed: Allowed,
    always: Vec<String>,
    never: Vec<String>,
}

impl Builder {
    fn anchor(&mut self, bytes: &[u8], hit: Hit) {
        self.patterns.push(bytes.to_vec());
        self.hits.push(hit);
    }

    fn id(&mut self, id: &str) -> Result<(), RuleError> {
        if !OWN_IDS.contains(&id) && self.ids.insert(id.to_owned()) {
            return Ok(());
        }
        Err(refused(id, "there is a rule of that id already"))
    }

    /// Adds the rules of a document, whose patterns are shown so many bytes and compile to so many at most.
    pub(super) fn document(
        &mut self,
        document: &Document,
        window: usize,
        most: usize,
    ) -> Result<(), RuleError> {
        for row in &document.token {
            self.id(&row.id)?;
            for one in &row.anchors {
                if one.is_empty() {
                    return Err(refused(&row.id, "an anchor is empty"));
                }
                self.anchor(one.as_bytes(), Hit::Token(self.tokens.len()));
                if one.len() >= wrapped::ANCHOR_BYTES && row.behind == 0 {
                    self.wrap.insert(one.clone());
                }
            }
            self.tokens.push(token(row, window, most)?);
        }
        for row in &document.name {
            self.id(&row.id)?;
            check_kind(&row.id, &row.kind)?;
            self.name(row);
        }
        self.never_names
            .extend(document.never.names.iter().cloned());
        self.never_values
            .extend(document.never.values.iter().cloned());
        let values = document.allow.values.iter();
        self.allowed
            .values
            .extend(values.map(|value| value.clone().into_bytes()));
        for (index, pattern) in document.allow.patterns.iter().enumerate() {
            let pattern = RegexBuilder::new(&format!("^(?:{pattern})$"))
                .unicode(false)
                .size_limit(most)
                .build()
                .map_err(|error| {
                    let entry = index + 1;
                    RuleError::Malformed(format!("allow.patterns, entry {entry}: {error}"))
                })?;
            self.allowed.patterns.push(pattern);
        }
        self.always.extend(document.json.always.iter().cloned());
        self.never.extend(document.json.never.iter().cloned());
        Ok(())
    }

    fn name(&mut self, row: &NameRow) {
        let number = self.names.len();
        for word in &row.words {
            let joined = ["", "_", "-"].map(|separator| word.replace(' ', separator));
            self.stems.extend(joined);
            self.words.insert(word.replace(' ', ""), number);
        }
        for word in &row.short {
            let followed = ["\"", "'", "=", ":", "\\"].map(|after| format!("{word}{after}"));
            self.stems.extend(followed);
            self.words.insert(word.clone(), number);
        }
        for end in &row.glued {
            self.stems.push(end.clone());
            self.glued.push((end.clone(), number));
        }
        self.names.push(Name {
            id: row.id.clone(),
            kind: row.kind.clone(),
            trust: row.trust,
        });
    }

    /// The set.
    pub(super) fn finish(
        mut self,
        version: String,
        literals: Option<Literals>,
    ) -> Result<RuleSet, RuleError> {
        for stem in least(std::mem::take(&mut self.stems)) {
            self.anchor(stem.as_bytes(), Hit::Name);
            if stem.len() > 5 {
                self.wrap.extend([stem.clone(), stem.to_uppercase()]);
            }
        }
        for url in URLS {
            self.anchor(url.as_bytes(), Hit::Url);
        }
        self.anchor(PEM.as_bytes(), Hit::Pem);
        self.wrap.insert(PEM.to_owned());
        for escape in COLOURS {
            self.anchor(escape.as_bytes(), Hit::Colour);
        }
        let mut wrap: Vec<String> = self.wrap.drain().collect();
        wrap.sort();
        for one in wrap {
            for (fragment, offset) in wrapped::fragments(one.as_bytes()) {
                let exact = fragment.clone().into_boxed_slice();
                self.anchor(&fragment, Hit::Wrapped(exact, offset));
            }
        }
        Ok(RuleSet {
            version,
            tokens: self.tokens,
            names: self.names,
            words: self.words,
            glued: self.glued,
            never_names: self.never_names,
            never_values: self.never_values,
            anchors: Anchors::new(&self.patterns)?,
            hits: self.hits,
            literals: literals.map(|literals| literals.0),
            allowed: self.allowed,
            pointers: Pointers::new(&self.always, &self.never)?,
        })
    }
}

/// The stems that no other is a part of: a name that is found by a part of it need not be looked for as a whole.
fn least(stems: Vec<String>) -> Vec<String> {
    let known: HashSet<String> = stems.into_iter().collect();
    let has_part = |stem: &String| {
        known
            .iter()
            .any(|other| other != stem && stem.contains(other))
    };
    let mut least: Vec<String> = known
        .iter()
        .filter(|stem| !has_part(stem))
        .cloned()
        .collect();
    least.sort();
    least
}

fn check_kind(id: &str, kind: &str) -> Result<(), RuleError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if kind.is_empty() || !kind.bytes().all(fits) {
        return Err(refused(id, "a kind is made of a to z, 0 to 9 and _"));
    }
    Ok(())
}

fn token(row: &TokenRow, window: usize, most: usize) -> Result<Token, RuleError> {
    check_kind(&row.id, &row.kind)?;
    if row.anchors.is_empty() {
        return Err(refused(&row.id, "a token needs anchors to be found by"));
    }
    let pattern = RegexBuilder::new(&format!("^(?:{})", row.pattern))
        .unicode(false)
        .size_limit(most)
        .build()
        .map_err(|error| refused(&row.id, &error.to_string()))?;
    let needs = row.needs.iter();
    let needs = needs.map(|one| Finder::new(one).into_owned());
    Ok(Token {
        open: row.pattern.contains(",}"),
        id: row.id.clone(),
        kind: row.kind.clone(),
        pattern,
        window,
        needs: needs.collect(),
        behind: row.behind,
        glued: row.glued,
        entropy: row.entropy,
        check: row.check,
    })
}

pub(super) fn literals(rows: &[LiteralRow]) -> Result<Option<Literals>, RuleError> {
    for row in rows {
        if row.value.len() < LITERAL_BYTES {
            let detail = format!(
                "a literal secret has at least {LITERAL_BYTES} bytes; a shorter one would be found in everything"
            );
            return Err(refused(&row.id, &detail));
        }
    }
    let secrets = rows.iter().map(|row| {
        let value = row.value.clone().into_bytes();
        (value, row.id.clone(), LITERAL.to_owned())
    });
    Ok(Echo::new(secrets, true).map(|echo| Literals(Arc::new(echo))))
}
