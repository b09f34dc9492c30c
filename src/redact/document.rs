//! Documents of rules, as they are written: TOML, or JSON of the same shape.

use super::check::Check;
use super::rules::{RuleError, Trust, refused};
use serde::Deserialize;

/// Bytes of a tenant's document.
pub const DOCUMENT_BYTES: usize = 64 * 1024;
/// Rules of a tenant, tokens and names each.
const RULES: usize = 64;
/// Anchors of a token, and words of a name.
const ANCHORS: usize = 32;
/// The fewest bytes of a tenant's anchor, and letters of its words: what is shorter is found everywhere.
const ANCHOR_BYTES: usize = 3;
/// Bytes of a pattern.
const PATTERN_BYTES: usize = 1_000;
/// Bytes before an anchor at which a pattern may begin.
const BEHIND: usize = 64;
/// Entries of a list of what is allowed or never anything.
const LISTED: usize = 1_000;
/// Patterns of what is allowed, and pointers of a list.
const PATTERNS: usize = 100;
/// Bytes of an entry, an anchor, a word or a pointer.
const ENTRY_BYTES: usize = 512;

/// Rules as data.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) token: Vec<TokenRow>,
    #[serde(default)]
    pub(super) name: Vec<NameRow>,
    #[serde(default)]
    pub(super) never: NeverRow,
    #[serde(default)]
    pub(super) literal: Vec<LiteralRow>,
    #[serde(default)]
    pub(super) allow: AllowRow,
    #[serde(default)]
    pub(super) json: JsonRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRow {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) anchors: Vec<String>,
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) behind: usize,
    /// Words of which one stands within 256 bytes, with case.
    #[serde(default)]
    pub(super) needs: Vec<String>,
    #[serde(default)]
    pub(super) glued: bool,
    #[serde(default)]
    pub(super) entropy: f32,
    #[serde(default)]
    pub(super) check: Option<Check>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NameRow {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) trust: Trust,
    #[serde(default)]
    pub(super) words: Vec<String>,
    /// Words so short that the pass looks for them with what follows a name.
    #[serde(default)]
    pub(super) short: Vec<String>,
    #[serde(default)]
    pub(super) glued: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeverRow {
    #[serde(default)]
    pub(super) names: Vec<String>,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiteralRow {
    pub(super) id: String,
    pub(super) value: String,
}

/// What is no secret, though it looks like one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowRow {
    #[serde(default)]
    pub(super) values: Vec<String>,
    #[serde(default)]
    pub(super) patterns: Vec<String>,
}

/// Places in JSON payloads.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonRow {
    #[serde(default)]
    pub(super) always: Vec<String>,
    #[serde(default)]
    pub(super) never: Vec<String>,
}

impl Document {
    /// Reads TOML.
    ///
    /// # Errors
    /// [`RuleError::Malformed`], with the line. The line itself is not quoted: it may hold a literal secret.
    pub fn toml(text: &str) -> Result<Self, RuleError> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let place = error.span().map_or_else(String::new, |span| {
                let before = text.get(..span.start).unwrap_or_default();
                format!("line {}: ", before.matches('\n').count() + 1)
            });
            RuleError::Malformed(format!("{place}{}", error.message()))
        })
    }

    /// Reads JSON of the same shape.
    ///
    /// # Errors
    /// [`RuleError::Malformed`], with the line.
    pub fn json(bytes: &[u8]) -> Result<Self, RuleError> {
        serde_json::from_slice(bytes).map_err(|error| RuleError::Malformed(error.to_string()))
    }

    /// Whether it may be a tenant's: within the limits, and without what is the operator's.
    ///
    /// # Errors
    /// Names the rule, or the list and its entry, and what is wrong with it.
    pub fn check_tenant(&self) -> Result<(), RuleError> {
        if self.version.is_some() {
            return Err(malformed(
                "leave `version` out: the server numbers documents",
            ));
        }
        if !self.literal.is_empty() {
            return Err(malformed(
                "literal secrets are the operator's (`serve --redact-literals`): a document is kept as it is",
            ));
        }
        if self.token.len() > RULES || self.name.len() > RULES {
            return Err(malformed(&format!("at most {RULES} rules of a kind")));
        }
        for row in &self.token {
            check_rule(&row.id, &row.kind)?;
            check_token(row).map_err(|detail| refused(&row.id, &detail))?;
        }
        for row in &self.name {
            check_rule(&row.id, &row.kind)?;
            check_name(row).map_err(|detail| refused(&row.id, &detail))?;
        }
        for (list, entries, most) in [
            ("never.names", &self.never.names, LISTED),
            ("never.values", &self.never.values, LISTED),
            ("allow.values", &self.allow.values, LISTED),
            ("allow.patterns", &self.allow.patterns, PATTERNS),
            ("json.always", &self.json.always, PATTERNS),
            ("json.never", &self.json.never, PATTERNS),
        ] {
            if entries.len() > most {
                return Err(malformed(&format!("{list}: at most {most} entries")));
            }
            let bad = |entry: &String| entry.is_empty() || entry.len() > ENTRY_BYTES;
            if let Some(index) = entries.iter().position(bad) {
                return Err(malformed(&format!(
                    "{list}, entry {}: 1 to {ENTRY_BYTES} bytes",
                    index + 1
                )));
            }
        }
        Ok(())
    }
}

fn malformed(detail: &str) -> RuleError {
    RuleError::Malformed(detail.to_owned())
}

fn check_rule(id: &str, kind: &str) -> Result<(), RuleError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=64).contains(&id.len()) || !id.bytes().all(fits) {
        return Err(malformed(
            "the id of a rule has 1 to 64 of a to z, 0 to 9 and -",
        ));
    }
    if kind == "literal" || kind.len() > 40 {
        return Err(refused(
            id,
            "a kind has at most 40 bytes, and is not `literal`",
        ));
    }
    Ok(())
}

fn check_token(row: &TokenRow) -> Result<(), String> {
    let lengths = ANCHOR_BYTES..=ENTRY_BYTES;
    let fits = |anchor: &String| lengths.contains(&anchor.len());
    if row.anchors.len() > ANCHORS || !row.anchors.iter().all(fits) {
        return Err(format!(
            "at most {ANCHORS} anchors, of {ANCHOR_BYTES} to {ENTRY_BYTES} bytes"
        ));
    }
    if row.pattern.is_empty() || row.pattern.len() > PATTERN_BYTES {
        return Err(format!("a pattern has 1 to {PATTERN_BYTES} bytes"));
    }
    if row.needs.len() > ANCHORS || row.needs.iter().any(|one| one.len() > ENTRY_BYTES) {
        return Err(format!(
            "`needs` has at most {ANCHORS} words, of {ENTRY_BYTES} bytes"
        ));
    }
    if row.behind > BEHIND {
        return Err(format!("`behind` is at most {BEHIND}"));
    }
    Ok(())
}

fn check_name(row: &NameRow) -> Result<(), String> {
    let words = || row.words.iter().chain(&row.short).chain(&row.glued);
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = |word: &String| {
        (ANCHOR_BYTES..=ENTRY_BYTES).contains(&word.len())
            && word
                .split(' ')
                .all(|part| !part.is_empty() && part.bytes().all(letter))
    };
    if words().count() == 0 || words().count() > ANCHORS || !words().all(fits) {
        return Err(format!(
            "1 to {ANCHORS} words, each of {ANCHOR_BYTES} or more of a to z and 0 to 9, with single spaces between"
        ));
    }
    Ok(())
}
