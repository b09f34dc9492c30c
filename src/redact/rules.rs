//! Rule sets: versioned data, compiled once into one automaton over all that a secret can be found by.

use super::anchors::Anchors;
use super::check::Check;
use super::echo::Echo;
use super::wrapped;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The fewest bytes of a literal secret: shorter ones would be found in everything.
pub const LITERAL_BYTES: usize = 8;
/// The most bytes that a pattern compiles to.
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
const BUILTIN: &str = include_str!("rules.toml");
/// Where a key in PEM begins.
const PEM: &str = "-----BEGIN ";
/// Where the authority of an address begins; a slash may be escaped.
const URLS: [&str; 3] = ["://", ":\\/", ":\\\\/"];
const COLOURS: [&str; 2] = ["\u{1b}", "\\u001b"];

/// Why a rule set cannot be used. Nothing of a literal secret is in it.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// No TOML, or members that are not known.
    #[error("the rule set is malformed: {0}")]
    Malformed(String),
    /// A pattern that does not compile, or matches nothing of its own anchors.
    #[error("rule {rule}: {detail}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong, and what to do.
        detail: String,
    },
}

/// The rules under which payloads are redacted.
pub struct RuleSet {
    pub(super) version: String,
    pub(super) tokens: Vec<Token>,
    pub(super) names: Vec<Name>,
    /// By the last words of a name, joined.
    words: HashMap<String, usize>,
    /// Ends of names whose words nothing separates.
    glued: Vec<(String, usize)>,
    never_names: HashSet<String>,
    pub(super) never_values: HashSet<String>,
    pub(super) anchors: Anchors,
    pub(super) hits: Vec<Hit>,
    pub(super) literals: Option<Echo>,
}

/// What a secret looks like by itself.
pub(super) struct Token {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) pattern: Regex,
    /// Bytes before the anchor at which the pattern may begin.
    pub(super) behind: usize,
    /// Whether a letter may stand before.
    pub(super) glued: bool,
    /// Whether it may be of any length. It then begins where a run of its characters begins, and nowhere else: many
    /// beginnings of one long end would be read again and again.
    pub(super) open: bool,
    pub(super) entropy: f32,
    pub(super) check: Option<Check>,
}

/// What something that holds a secret is called.
pub(super) struct Name {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) trust: Trust,
}

/// How much the name says about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Trust {
    /// Nearly any value is a secret.
    High,
    /// A value that looks made up.
    Middle,
    /// The same, in quotes or assigned only.
    Strict,
    /// A long random value.
    Low,
    /// A scheme and credentials.
    Authorization,
    /// Pairs, and attributes.
    Cookie,
}

/// What the finding of an anchor means.
pub(super) enum Hit {
    Token(usize),
    Name,
    Url,
    Pem,
    /// An escape of a terminal, as it is or as JSON escapes it.
    Colour,
    /// An anchor in base64: its own bytes, and how many characters of its first quad stand before them.
    Wrapped(Box<[u8]>, usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: String,
    #[serde(default)]
    token: Vec<TokenRow>,
    #[serde(default)]
    name: Vec<NameRow>,
    #[serde(default)]
    never: NeverRow,
    #[serde(default)]
    literal: Vec<LiteralRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRow {
    id: String,
    kind: String,
    anchors: Vec<String>,
    pattern: String,
    #[serde(default)]
    behind: usize,
    #[serde(default)]
    glued: bool,
    #[serde(default)]
    entropy: f32,
    #[serde(default)]
    check: Option<Check>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NameRow {
    id: String,
    kind: String,
    trust: Trust,
    words: Vec<String>,
    /// Words so short that the pass looks for them with what follows a name.
    #[serde(default)]
    short: Vec<String>,
    #[serde(default)]
    glued: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeverRow {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LiteralRow {
    id: String,
    value: String,
}

impl RuleSet {
    /// The rules that every server has.
    ///
    /// # Errors
    /// As [`RuleSet::read`]; a test holds that there are none.
    pub fn builtin() -> Result<Self, RuleError> {
        Self::read(BUILTIN)
    }

    /// Reads and compiles a rule set in TOML.
    ///
    /// # Errors
    /// Names the rule that cannot be used. A literal secret of less than [`LITERAL_BYTES`] is refused, not left out.
    pub fn read(text: &str) -> Result<Self, RuleError> {
        // The parser's own words would quote the line, and a line may hold a literal secret.
        let file: File = toml::from_str(text)
            .map_err(|error: toml::de::Error| RuleError::Malformed(error.message().to_owned()))?;
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let mut hits = Vec::new();
        let mut anchor = |bytes: &[u8], hit: Hit| {
            patterns.push(bytes.to_vec());
            hits.push(hit);
        };
        let mut wrap = HashSet::new();
        let mut tokens = Vec::new();
        for row in file.token {
            for one in &row.anchors {
                if one.is_empty() {
                    return Err(refused(&row.id, "an anchor is empty"));
                }
                anchor(one.as_bytes(), Hit::Token(tokens.len()));
                if one.len() >= wrapped::ANCHOR_BYTES && row.behind == 0 {
                    wrap.insert(one.clone());
                }
            }
            tokens.push(token(row)?);
        }
        let mut names = Vec::new();
        let (mut words, mut glued) = (HashMap::new(), Vec::new());
        let mut stems: Vec<String> = Vec::new();
        for row in file.name {
            for word in &row.words {
                stems.extend(["", "_", "-"].map(|separator| word.replace(' ', separator)));
                words.insert(word.replace(' ', ""), names.len());
            }
            for word in row.short {
                stems.extend(["\"", "'", "=", ":", "\\"].map(|after| format!("{word}{after}")));
                words.insert(word, names.len());
            }
            glued.extend(row.glued.into_iter().map(|end| (end, names.len())));
            names.push(Name {
                id: row.id,
                kind: row.kind,
                trust: row.trust,
            });
        }
        for stem in least(stems) {
            anchor(stem.as_bytes(), Hit::Name);
            if stem.len() > 5 {
                wrap.extend([stem.clone(), stem.to_uppercase()]);
            }
        }
        for url in URLS {
            anchor(url.as_bytes(), Hit::Url);
        }
        anchor(PEM.as_bytes(), Hit::Pem);
        wrap.insert(PEM.to_owned());
        for escape in COLOURS {
            anchor(escape.as_bytes(), Hit::Colour);
        }
        let mut wrap: Vec<String> = wrap.into_iter().collect();
        wrap.sort();
        for one in wrap {
            for (fragment, offset) in wrapped::fragments(one.as_bytes()) {
                anchor(
                    &fragment.clone(),
                    Hit::Wrapped(fragment.into_boxed_slice(), offset),
                );
            }
        }
        Ok(Self {
            version: file.version,
            tokens,
            names,
            words,
            glued,
            never_names: file.never.names.into_iter().collect(),
            never_values: file.never.values.into_iter().collect(),
            anchors: Anchors::new(&patterns)?,
            hits,
            literals: literals(file.literal)?,
        })
    }

    /// The version that stands beside each redaction.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The rule that the end of a name falls under.
    pub(super) fn name(&self, name: &[u8]) -> Option<usize> {
        let words = split(name);
        let mut joined = String::new();
        let mut found = None;
        for word in words.iter().rev().take(5) {
            joined.insert_str(0, word);
            if self.never_names.contains(&joined) {
                return None;
            }
            found = self.words.get(&joined).copied().or(found);
        }
        found.or_else(|| {
            let last = words.last()?;
            let end = self.glued.iter().find(|(end, _)| last.ends_with(end));
            end.map(|(_, name)| *name)
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

fn refused(rule: &str, detail: &str) -> RuleError {
    RuleError::Rule {
        rule: rule.to_owned(),
        detail: detail.to_owned(),
    }
}

fn token(row: TokenRow) -> Result<Token, RuleError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if row.kind.is_empty() || !row.kind.bytes().all(fits) {
        return Err(refused(&row.id, "a kind is made of a to z, 0 to 9 and _"));
    }
    if row.anchors.is_empty() {
        return Err(refused(&row.id, "a token needs anchors to be found by"));
    }
    let pattern = RegexBuilder::new(&format!("^(?:{})", row.pattern))
        .unicode(false)
        .size_limit(PATTERN_BYTES)
        .build()
        .map_err(|error| refused(&row.id, &error.to_string()))?;
    Ok(Token {
        open: row.pattern.contains(",}"),
        id: row.id,
        kind: row.kind,
        pattern,
        behind: row.behind,
        glued: row.glued,
        entropy: row.entropy,
        check: row.check,
    })
}

fn literals(rows: Vec<LiteralRow>) -> Result<Option<Echo>, RuleError> {
    for row in &rows {
        if row.value.len() < LITERAL_BYTES {
            let detail = format!(
                "a literal secret has at least {LITERAL_BYTES} bytes; a shorter one would be found in everything"
            );
            return Err(refused(&row.id, &detail));
        }
    }
    let secrets = rows
        .into_iter()
        .map(|row| (row.value.into_bytes(), row.id, "literal".to_owned()));
    Ok(Echo::new(secrets, true))
}

/// The words of a name in lower case, without figures and environments at its end.
fn split(name: &[u8]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for (at, byte) in name.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| name[at]);
        let after = name.get(at + 1).copied();
        let hump = byte.is_ascii_uppercase()
            && (before
                .is_some_and(|before| before.is_ascii_lowercase() || before.is_ascii_digit())
                || after.is_some_and(|after| after.is_ascii_lowercase()));
        if !byte.is_ascii_alphanumeric() || hump {
            words.push(std::mem::take(&mut word));
        }
        if byte.is_ascii_alphanumeric() {
            word.push(char::from(byte.to_ascii_lowercase()));
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    while words.len() > 1
        && words.last().is_some_and(|last| {
            last.bytes().all(|byte| byte.is_ascii_digit())
                || matches!(
                    last.as_str(),
                    "prod" | "production" | "dev" | "staging" | "live"
                )
        })
    {
        words.pop();
    }
    if let Some(last) = words.last_mut() {
        let trimmed = last.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if !trimmed.is_empty() {
            last.truncate(trimmed.len());
        }
    }
    words
}
