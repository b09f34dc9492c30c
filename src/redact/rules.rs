//! Rule sets: versioned data, compiled once into one automaton over all that a secret can be found by.

use super::anchors::Anchors;
use super::check::Check;
use super::compile::{Builder, literals};
use super::document::{Document, LiteralRow};
use super::echo::Echo;
use super::pointers::Pointers;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The fewest bytes of a literal secret: shorter ones would be found in everything.
pub const LITERAL_BYTES: usize = 8;
/// The most bytes of a literal secret, and how many there may be.
const LITERAL_MOST_BYTES: usize = 4 * 1024;
const LITERALS: usize = 1_000;
/// Kind of a literal secret.
pub(super) const LITERAL: &str = "literal";
/// The most bytes that a pattern compiles to.
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
const BUILTIN: &str = include_str!("rules.toml");
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
    pub(super) words: HashMap<String, usize>,
    /// Ends of names whose words nothing separates.
    pub(super) glued: Vec<(String, usize)>,
    pub(super) never_names: HashSet<String>,
    pub(super) never_values: HashSet<String>,
    pub(super) anchors: Anchors,
    pub(super) hits: Vec<Hit>,
    pub(super) literals: Option<Arc<Echo>>,
    pub(super) allowed: Allowed,
    pub(super) pointers: Pointers,
}

/// What a secret looks like by itself.
pub(super) struct Token {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) pattern: Regex,
    /// Bytes that it is shown.
    pub(super) window: usize,
    /// Words of which one stands near: looking for them costs less than the pattern.
    pub(super) needs: Vec<Finder<'static>>,
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

/// Bytes from an anchor on that a pattern may need.
const WINDOW: usize = 32 * 1024;
/// The same of a tenant's, and what its pattern compiles to at most: what one tenant writes, others wait for.
const TENANT_WINDOW: usize = 1_024;
const TENANT_PATTERN_BYTES: usize = 256 * 1024;

/// Literal secrets of an operator.
#[derive(Clone)]
pub struct Literals(pub(super) Arc<Echo>);

impl Literals {
    /// Literal secrets, one a line; empty lines are none.
    ///
    /// # Errors
    /// Names the line of one that has less than [`LITERAL_BYTES`] or too many; nothing of it is in the error.
    pub fn read(text: &str) -> Result<Option<Self>, RuleError> {
        let mut rows = Vec::new();
        for (line, value) in (1..).zip(text.lines()) {
            if value.is_empty() {
                continue;
            }
            if value.len() > LITERAL_MOST_BYTES || rows.len() == LITERALS {
                return Err(RuleError::Malformed(format!(
                    "line {line}: at most {LITERALS} literal secrets, of at most {LITERAL_MOST_BYTES} bytes"
                )));
            }
            rows.push(LiteralRow {
                id: format!("literal-{line}"),
                value: value.to_owned(),
            });
        }
        literals(&rows)
    }
}

/// What is no secret, though it looks like one.
#[derive(Default)]
pub(super) struct Allowed {
    pub(super) values: HashSet<Vec<u8>>,
    pub(super) patterns: Vec<Regex>,
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
        let document = Document::toml(text)?;
        let version = document.version.clone();
        let version =
            version.ok_or_else(|| RuleError::Malformed("a version is missing".to_owned()))?;
        Self::compile(version, &document, None, None)
    }

    /// The built-in rules with what an operator and a tenant add to them, compiled into one pass. The version says
    /// so: `builtin/1+t/3` with the third document of a tenant, `builtin/1+l` with literals.
    ///
    /// # Errors
    /// Names the rule that cannot be used, or that has the id of another.
    pub fn composed(
        literals: Option<&Literals>,
        tenant: Option<(&Document, u64)>,
    ) -> Result<Self, RuleError> {
        let builtin = Document::toml(BUILTIN)?;
        let mut version = builtin.version.clone().unwrap_or_default();
        if literals.is_some() {
            version.push_str("+l");
        }
        if let Some((_, number)) = tenant {
            version.push_str(&format!("+t/{number}"));
        }
        let own = tenant.map(|(document, _)| document);
        Self::compile(version, &builtin, own, literals)
    }

    fn compile(
        version: String,
        document: &Document,
        own: Option<&Document>,
        given: Option<&Literals>,
    ) -> Result<Self, RuleError> {
        let mut builder = Builder::default();
        builder.document(document, WINDOW, PATTERN_BYTES)?;
        if let Some(own) = own {
            builder.document(own, TENANT_WINDOW, TENANT_PATTERN_BYTES)?;
        }
        let literals = match given {
            Some(given) => Some(given.clone()),
            None => literals(&document.literal)?,
        };
        builder.finish(version, literals)
    }

    /// Whether somebody said that this is no secret.
    pub(super) fn is_allowed(&self, secret: &[u8]) -> bool {
        let mut patterns = self.allowed.patterns.iter();
        self.allowed.values.contains(secret)
            || secret.len() <= TENANT_WINDOW && patterns.any(|pattern| pattern.is_match(secret))
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

pub(super) fn refused(rule: &str, detail: &str) -> RuleError {
    RuleError::Rule {
        rule: rule.to_owned(),
        detail: detail.to_owned(),
    }
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
